//! The counters against the operations of a scripted client: sums, transports, gauges that return to zero.

use arena::{IoBuf, Sg, sg_len};
use counters::{SETS, Set, Snapshot, find};
use env::Env;
use rdma::sim;
use smb_client::{Client, ConnectOptions, File, OpenOptions};
use smb_server::{Limits, ShareConfig};
use smb_wire::Command;
use smb_wire::msg::{LockElement, LockElements, LockFlags, LockRequest};
use tokio::io::AsyncWriteExt;
use vfs::{RamFs, RamOptions};

use crate::raw::Raw;
use crate::world::{World, credentials};

fn set(name: &str) -> &'static Set {
    find(name)[0]
}

/// The operations of the client on the share, by the counters' names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Did {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    direct_reads: u64,
    direct_read_bytes: u64,
    direct_writes: u64,
    direct_written_bytes: u64,
}

impl Did {
    fn counted(snapshot: &Snapshot, set: &Set, instance: &str) -> Did {
        let get = |metric| snapshot.value(set, instance, metric).expect("a metric of the set");
        assert_eq!(
            (get("read_completed"), get("write_completed")),
            (get("read_requests"), get("write_requests"))
        );
        Did {
            reads: get("read_requests"),
            read_bytes: get("read_bytes"),
            writes: get("write_requests"),
            written_bytes: get("write_bytes"),
            direct_reads: get("read_direct_requests"),
            direct_read_bytes: get("read_direct_bytes"),
            direct_writes: get("write_direct_requests"),
            direct_written_bytes: get("write_direct_bytes"),
        }
    }

    fn read(&mut self, bytes: usize, direct: bool) {
        self.reads += 1;
        self.read_bytes += bytes as u64;
        self.direct_reads += u64::from(direct);
        self.direct_read_bytes += if direct { bytes as u64 } else { 0 };
    }

    fn wrote(&mut self, bytes: u32, direct: bool) {
        self.writes += 1;
        self.written_bytes += u64::from(bytes);
        self.direct_writes += u64::from(direct);
        self.direct_written_bytes += if direct { u64::from(bytes) } else { 0 };
    }
}

/// READs and WRITEs of random sizes, several at a time, some beyond the end of the file.
async fn script(file: &File, env: &Env, direct_from: u32) -> Did {
    let mut did = Did::default();
    for _ in 0..60 {
        let n = env.random_u64();
        let (count, offset) = (n % 4 + 1, (n >> 8) % 200_000);
        let length = ((n >> 32) % 70_000) as u32 + 1;
        // The length of the request decides whether it counts as RDMA, even where the file has fewer bytes than
        // requested.
        let direct = length >= direct_from;
        if (n >> 4).is_multiple_of(2) {
            let calls: Vec<_> = (0..count).map(|_| file.submit_read(offset, length)).collect();
            for call in calls {
                let bytes = sg_len(&call.await.expect("an answer"));
                // END_OF_FILE is an answer without payload.
                did.read(bytes, direct && bytes > 0);
            }
        } else {
            let data: Sg = [IoBuf::from(vec![7; length as usize])].into_iter().collect();
            let calls: Vec<_> = (0..count).map(|_| file.submit_write(offset, data.clone())).collect();
            for call in calls {
                did.wrote(call.await.expect("written"), direct);
            }
        }
    }
    did
}

/// All gauges that are not zero, by set, instance and metric.
pub fn gauges(snapshot: &Snapshot) -> Vec<(String, String, &'static str, u64)> {
    let mut found = Vec::new();
    for set in SETS.into_iter().filter(|s| s.name != "RDMA Activity") {
        for i in snapshot.of(set) {
            for m in set.metrics().filter(|m| m.kind == counters::Kind::Gauge && i.values[m.name] != 0) {
                found.push((set.name.to_owned(), i.instance.clone(), m.name, i.values[m.name]));
            }
        }
    }
    found
}

async fn run(world: &World, client: Client, direct_from: u32, compare_client: bool) {
    let tree = client.tree("ram").await.expect("a share");
    let file = tree.open("f", OpenOptions::open_or_create()).await.expect("a file");
    let before = Did::counted(&world.server.registry().snapshot(), set("SMB Server Shares"), "ram");
    let did = script(&file, &world.env, direct_from).await;
    let snapshot = world.server.registry().snapshot();
    let after = Did::counted(&snapshot, set("SMB Server Shares"), "ram");
    assert_eq!(before, Did::default());
    assert_eq!(after, did, "the share");
    let sessions = snapshot.of(set("SMB Server Sessions"));
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].labels["user"], "alice");
    assert_eq!(
        Did::counted(&snapshot, set("SMB Server Sessions"), &sessions[0].instance),
        did,
        "the session"
    );
    if compare_client {
        let of_client = client.registry().snapshot();
        let share = &of_client.of(set("SMB Client Shares"))[0].instance;
        let mut seen = Did::counted(&of_client, set("SMB Client Shares"), share);
        // The client counts a READ for which it exposed memory as RDMA, even if no data was written.
        seen.direct_reads = did.direct_reads;
        assert_eq!(seen, did, "the client");
    }
    let totals = world.server.totals();
    assert_eq!((totals.read_bytes, totals.written_bytes), (did.read_bytes, did.written_bytes));
    assert_eq!(
        (totals.read_bytes_rdma, totals.written_bytes_rdma),
        (did.direct_read_bytes, did.direct_written_bytes)
    );
    let value = |metric| snapshot.value(set("SMB Server Shares"), "ram", metric).expect("a metric");
    assert_eq!((value("open_files"), value("tree_connects"), value("files_opened")), (1, 1, 1));
    assert!(value("received_bytes") > did.written_bytes && value("sent_bytes") > did.read_bytes);
    file.close().await.expect("closed");
    let value =
        |m| world.server.registry().snapshot().value(set("SMB Server Shares"), "ram", m).expect("a metric");
    assert_eq!((value("open_files"), value("files_opened")), (0, 1));
}

#[tokio::test]
async fn sums_over_tcp() {
    for seed in 1..4 {
        let world = World::new(Env::simulated(seed), 64 << 20, Limits::default());
        let client = world.client(ConnectOptions::new(credentials("alice"))).await;
        run(&world, client, u32::MAX, true).await;
        world.server.drain(std::time::Duration::from_secs(5)).await;
        let left = world.server.registry().snapshot();
        assert_eq!(gauges(&left), vec![]);
        assert!(left.of(set("SMB Server Sessions")).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn sums_over_smb_direct() {
    for seed in 1..4 {
        let world = World::new(Env::simulated(seed), 64 << 20, Limits::default());
        let (queue_pair, serving) = world.queue_pair();
        let options = ConnectOptions::new(credentials("alice"));
        let threshold = options.rdma_threshold;
        let (arena, env) = (world.arena.clone(), world.env.clone());
        let client = Client::connect_over(queue_pair, "world", options, arena, env).await.expect("a session");
        let registry = client.registry().clone();
        run(&world, client, threshold, true).await;
        serving.await.expect("served");
        for left in [world.server.registry().snapshot(), registry.snapshot()] {
            assert_eq!(gauges(&left), vec![]);
            assert!(left.of(set("SMB Direct Connection")).is_empty());
        }
    }
}

/// Work requests per I/O, from both ends' connections: a later change that saves some is visible here.
#[tokio::test(start_paused = true)]
async fn work_requests_of_a_read_and_a_write() {
    let world = World::new(Env::simulated(9), 64 << 20, Limits::default());
    let (queue_pair, _serving) = world.queue_pair();
    let options = ConnectOptions::new(credentials("alice"));
    let (arena, env) = (world.arena.clone(), world.env.clone());
    let client = Client::connect_over(queue_pair, "world", options, arena, env).await.expect("a session");
    let file =
        client.tree("ram").await.expect("a share").open("f", OpenOptions::create()).await.expect("a file");
    let direct = set("SMB Direct Connection");
    let get = |s: &Snapshot, m| s.of(direct)[0].values[m];
    let both = || (client.registry().snapshot(), world.server.registry().snapshot());
    let data: Sg = [IoBuf::from(vec![1; 8192])].into_iter().collect();
    let (c0, s0) = both();
    for _ in 0..10 {
        file.submit_write(0, data.clone()).await.expect("written");
    }
    let (c1, s1) = both();
    for _ in 0..10 {
        file.submit_read(0, 8192).await.expect("read");
    }
    let (c2, s2) = both();
    let of = |a: &Snapshot, b: &Snapshot, m| get(b, m) - get(a, m);
    assert_eq!(of(&c0, &c1, "work_requests_register"), 10);
    assert_eq!(of(&s0, &s1, "work_requests_rdma_read"), 10);
    assert_eq!(of(&s0, &s1, "rdma_read_bytes"), 81_920);
    assert_eq!(of(&s0, &s1, "work_requests_rdma_write"), 0);
    assert_eq!(of(&s1, &s2, "work_requests_rdma_write"), 10);
    assert_eq!(of(&s1, &s2, "rdma_written_bytes"), 81_920);
    assert_eq!(of(&s0, &s2, "work_requests_send_invalidate"), 20);
    assert_eq!(of(&c0, &c2, "remote_invalidations"), 20);
    assert_eq!(of(&c0, &c2, "work_requests_local_invalidate"), 0);
    assert_eq!(get(&c2, "memory_regions"), 0);
}

/// A waiting lock is pending for as long as it waits, and not any more when its connection has ended.
#[tokio::test]
async fn what_waits_is_pending() {
    let world = World::new(Env::real(), 64 << 20, Limits::default());
    let mut holder = Raw::session(world.dial().await.0).await;
    let (stream, serving) = world.dial().await;
    let mut waiter = Raw::session(stream).await;
    let mut locks = Vec::new();
    LockElement { offset: 0, length: 1, flags: LockFlags::EXCLUSIVE_LOCK }.encode(&mut locks);
    let locks = LockElements::from_bytes(&locks).expect("one");
    holder.tree("ram").await;
    waiter.tree("ram").await;
    let file_id = holder.open("f").await;
    holder.call(Command::LOCK, &LockRequest { lock_sequence: 0, file_id, locks }).await.expect("an answer");
    let file_id = waiter.open("f").await;
    let m = waiter.encode(Command::LOCK, 1, &LockRequest { lock_sequence: 0, file_id, locks }, &[]);
    waiter.stream.write_all(&m).await.expect("sent");

    let shares = set("SMB Server Shares");
    let value = |m| world.server.registry().snapshot().value(shares, "ram", m).expect("a metric");
    let mut patience = 1000;
    while value("metadata_current") == 0 && patience > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        patience -= 1;
    }
    assert_eq!((value("metadata_current"), value("open_files"), value("tree_connects")), (1, 2, 2));
    let before = value("metadata_queue_ns");
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let grown = value("metadata_queue_ns") - before;
    assert!(grown >= 20_000_000, "the queue's integral grows while it waits: {grown} ns");
    let requests = value("metadata_requests");
    drop(waiter);
    serving.await.expect("served");
    assert_eq!((value("metadata_current"), value("open_files"), value("tree_connects")), (0, 1, 1));
    assert_eq!((value("metadata_requests"), value("metadata_completed")), (requests, requests));
}

/// A request without a tree connect belongs to no share, and is in the totals all the same.
#[tokio::test]
async fn the_totals_have_what_no_share_has() {
    let world = World::new(Env::real(), 64 << 20, Limits::default());
    let mut raw = Raw::session(world.dial().await.0).await;
    let before = world.server.totals().requests;
    assert_eq!(before, 3, "NEGOTIATE and two SESSION_SETUPs");
    raw.tree("ram").await;
    raw.open("f").await;
    let shares = set("SMB Server Shares");
    let on_share = world.server.registry().snapshot().value(shares, "ram", "metadata_requests");
    assert_eq!((on_share, world.server.totals().requests), (Some(1), before + 2));
}

/// A removed share is not listed. Its counts are kept for a share that is added under its name, because a counter in
/// Prometheus never decreases, and stay in the totals.
#[tokio::test]
async fn a_removed_share_is_not_listed_and_its_counts_are_kept() {
    let world = World::new(Env::real(), 64 << 20, Limits::default());
    let mut raw = Raw::session(world.dial().await.0).await;
    raw.tree("ram").await;
    raw.open("f").await;
    let shares = set("SMB Server Shares");
    let value = |m| world.server.registry().snapshot().value(shares, "ram", m);
    assert_eq!(value("files_opened"), Some(1));
    let total = world.server.totals().requests;
    world.server.remove_share("ram").await.expect("removed");
    drop(raw);
    assert_eq!(value("files_opened"), None);
    assert!(world.server.totals().requests >= total);
    let vfs = RamFs::new(&world.env, RamOptions::default()).expect("memory");
    world.server.add_share(ShareConfig::new("ram", vfs)).expect("a free name");
    assert_eq!(value("files_opened"), Some(1));
    assert!(value("metadata_requests") >= Some(1));
}

#[tokio::test]
async fn counting_can_be_stopped_for_a_measurement() {
    let world = World::new(Env::real(), 64 << 20, Limits::default());
    world.server.stop_counting();
    let mut raw = Raw::session(world.dial().await.0).await;
    raw.tree("ram").await;
    raw.open("f").await;
    let shares = set("SMB Server Shares");
    assert_eq!(world.server.registry().snapshot().value(shares, "ram", "metadata_requests"), Some(0));
    assert_eq!(world.server.totals().requests, 0);
}

/// Two ends over the simulated fabric, cut in the middle: nothing is left pending.
#[tokio::test(start_paused = true)]
async fn nothing_is_pending_after_a_cut() {
    for cut_at in [20, 40, 60] {
        let world = World::new(Env::simulated(cut_at), 64 << 20, Limits::default());
        let options = sim::Options { cut_at: Some(cut_at), ..sim::Options::new(world.env.clone()) };
        let (ours, theirs) = sim::pair(options);
        let serving = world.serve_direct(Box::new(theirs));
        let options = ConnectOptions::new(credentials("alice"));
        let (arena, env) = (world.arena.clone(), world.env.clone());
        if let Ok(client) = Client::connect_over(Box::new(ours), "world", options, arena, env).await {
            let registry = client.registry().clone();
            if let Ok(tree) = client.tree("ram").await
                && let Ok(file) = tree.open("f", OpenOptions::open_or_create()).await
            {
                let data: Sg = [IoBuf::from(vec![7; 50_000])].into_iter().collect();
                let calls: Vec<_> = (0..40).map(|_| file.submit_write(0, data.clone())).collect();
                let mut lost = false;
                for call in calls {
                    lost |= call.await.is_err();
                }
                assert!(lost, "the connection was to be cut");
            }
            drop(client);
            tokio::task::yield_now().await;
            assert_eq!(gauges(&registry.snapshot()), vec![]);
        }
        serving.await.expect("served");
        assert_eq!(gauges(&world.server.registry().snapshot()), vec![], "cut at {cut_at}");
    }
}
