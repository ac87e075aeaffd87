//! Beginnings and ends of connections and sessions: which are cut off and when, the limits, and the actions of an
//! administrator.

use std::sync::Arc;
use std::time::Duration;

use env::Env;
use smb_client::{ConnectOptions, OpenOptions};
use smb_server::{Limits, ShareConfig};
use smb_wire::fscc::FileInfoClass;
use smb_wire::msg::{
    CloseRequest, InfoType, LockElement, LockElements, LockFlags, LockRequest, LogoffRequest, SetInfoRequest,
    TreeConnectRequest,
};
use smb_wire::{AccessMask, Command, NtStatus, Utf16Buf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use vfs::{RamFs, RamOptions, Vfs};

use crate::raw::Raw;
use crate::world::{World, credentials};

fn world(limits: Limits) -> World {
    World::new(Env::simulated(1), 64 << 20, limits)
}

/// Requests that have begun are answered, new connections are not accepted, and nothing is left.
#[tokio::test]
async fn draining() {
    let world = world(Limits::default());
    let mut raws = Vec::new();
    for i in 0..20 {
        let (stream, serving) = world.dial().await;
        let mut raw = Raw::session(stream).await;
        raw.tree("ram").await;
        let file = raw.open("f").await;
        let out = [raw.write(file, i << 20, &[1; 65_536]), raw.read(file, i << 20, 65_536)].concat();
        raw.stream.write_all(&out).await.expect("sent");
        raws.push((raw, serving));
    }
    let idle = Raw::session(world.dial().await.0).await;
    // The server receives the requests before it is shut down: they were sent before.
    tokio::task::yield_now().await;
    let limit = Duration::from_secs(30);
    let begun = Instant::now();
    world.server.drain(limit).await;
    assert!(begun.elapsed() < limit, "a connection did not end");
    for (mut raw, serving) in raws {
        for _ in 0..2 {
            assert_eq!(raw.answer().await.expect("an answer").0.status, NtStatus::SUCCESS);
        }
        assert!(raw.answer().await.is_none(), "closed behind the last answer");
        serving.await.expect("served");
    }
    drop(idle);
    assert_eq!(world.server.totals().connections, 0);
    assert!(world.server.sessions().is_empty() && world.server.opens().is_empty());
    let (mut late, serving) = world.dial().await;
    serving.await.expect("refused");
    assert_eq!(late.read(&mut [0; 1]).await.expect("closed"), 0);
}

/// A client that sends its next request within a second is served while the server drains, and is closed a second after
/// its last one.
#[tokio::test]
async fn a_transfer_continues_while_the_server_drains() {
    let world = world(Limits::default());
    let (stream, serving) = world.dial().await;
    let mut raw = Raw::session(stream).await;
    raw.tree("ram").await;
    let file = raw.open("f").await;
    let (server, begun) = (Arc::clone(&world.server), Instant::now());
    let drained = tokio::spawn(async move { server.drain(Duration::from_secs(30)).await });
    for i in 0..20 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let out = raw.write(file, i << 16, &[1; 65_536]);
        raw.stream.write_all(&out).await.expect("sent");
        assert_eq!(raw.answer().await.expect("an answer").0.status, NtStatus::SUCCESS);
    }
    drained.await.expect("it drains");
    let took = begun.elapsed();
    assert!(Duration::from_secs(11) <= took && took < Duration::from_secs(12), "{took:?}");
    assert!(raw.answer().await.is_none(), "closed");
    serving.await.expect("served");
}

/// Requests that do not finish in time are cancelled, and opens are closed as usual: locks are released, files to be
/// deleted are deleted.
#[tokio::test]
async fn draining_cuts_what_is_left() {
    let world = world(Limits::default());
    let own: Arc<dyn Vfs> = RamFs::new(&world.env, RamOptions::default()).expect("address space");
    world.server.add_share(ShareConfig::new("own", Arc::clone(&own))).expect("a new name");
    let (stream, serving) = world.dial().await;
    let mut raw = Raw::session(stream).await;
    raw.tree("own").await;
    let mut locks = Vec::new();
    LockElement { offset: 0, length: 1, flags: LockFlags::EXCLUSIVE_LOCK }.encode(&mut locks);
    let locks = LockElements::from_bytes(&locks).expect("one");
    let (held, wanted) = (raw.open("f").await, raw.open("f").await);
    let held = LockRequest { lock_sequence: 0, file_id: held, locks };
    assert_eq!(raw.call(Command::LOCK, &held).await.expect("an answer").0.status, NtStatus::SUCCESS);
    let delete = SetInfoRequest {
        info_type: InfoType::FILE,
        info_class: FileInfoClass::DISPOSITION.0,
        file_id: wanted,
        buffer: &[1],
        ..SetInfoRequest::default()
    };
    assert_eq!(raw.call(Command::SET_INFO, &delete).await.expect("an answer").0.status, NtStatus::SUCCESS);
    // It waits for its own lock, so it is never answered.
    let waits = LockRequest { lock_sequence: 0, file_id: wanted, locks };
    let m = raw.encode(Command::LOCK, 1, &waits, &[]);
    raw.stream.write_all(&m).await.expect("sent");
    while world.server.opens().iter().all(|o| o.locks == 0) {
        tokio::task::yield_now().await;
    }
    let interim = crate::raw::message(&mut raw.stream).await.expect("an interim response").0;
    assert_eq!(interim.status, NtStatus::PENDING);
    let limit = Duration::from_millis(200);
    let begun = Instant::now();
    world.server.drain(limit).await;
    assert!(begun.elapsed() >= limit, "what is under way has its time");
    assert_eq!(world.server.totals().connections, 0);
    assert!(world.server.sessions().is_empty() && world.server.opens().is_empty());
    serving.await.expect("served");
    let path = vfs::VfsPath::parse("f").expect("a name");
    let gone = own.open(&env::Ctx::default(), vfs::OpenRequest::for_metadata(path)).wait().await;
    assert_eq!(gone.err(), Some(vfs::VfsError::NotFound));
}

/// MS-SMB2 3.3.5.13: an open for appending adds to a file and cannot change its contents.
#[tokio::test]
async fn an_open_for_appending_only_appends() {
    let world = world(Limits::default());
    let mut raw = Raw::session(world.dial().await.0).await;
    raw.tree("ram").await;
    let all = raw.open("f").await;
    let append = raw.open_for("f", AccessMask::APPEND_DATA).await;
    let write = raw.open_for("f", AccessMask::WRITE_DATA).await;
    let steps = [
        (all, 0, NtStatus::SUCCESS),
        (append, 0, NtStatus::ACCESS_DENIED),
        (append, 3, NtStatus::ACCESS_DENIED),
        (append, 4, NtStatus::SUCCESS),
        (append, 4, NtStatus::ACCESS_DENIED),
        (append, 20, NtStatus::SUCCESS),
        (write, 0, NtStatus::SUCCESS),
        (write, 24, NtStatus::SUCCESS),
    ];
    for (file, offset, status) in steps {
        let m = raw.write(file, offset, b"data");
        raw.stream.write_all(&m).await.expect("sent");
        assert_eq!(raw.answer().await.expect("an answer").0.status, status, "at {offset}");
    }
}

/// MS-SMB2 3.3.4.8: opens are closed, the name is gone, and so is the tree connect; the session stays.
#[tokio::test]
async fn a_share_is_removed_under_an_open_file() {
    let world = world(Limits::default());
    let mut raw = Raw::session(world.dial().await.0).await;
    raw.tree("ram").await;
    let file = raw.open("f").await;
    assert_eq!(raw.read_status(file).await, Some(NtStatus::END_OF_FILE));
    world.server.remove_share("RAM").await.expect("removed");
    assert!(world.server.opens().is_empty());
    assert_eq!(raw.read_status(file).await, Some(NtStatus::NETWORK_NAME_DELETED));
    let close = CloseRequest { file_id: file, ..CloseRequest::default() };
    let closed = raw.call(Command::CLOSE, &close).await.expect("an answer").0;
    assert_eq!(closed.status, NtStatus::NETWORK_NAME_DELETED);
    raw.signs = true;
    let path = Utf16Buf::from(r"\\world\ram");
    let body = TreeConnectRequest { path: path.as_utf16(), ..TreeConnectRequest::default() };
    let again = raw.call(Command::TREE_CONNECT, &body).await.expect("an answer").0;
    assert_eq!(again.status, NtStatus::BAD_NETWORK_NAME);
    raw.tree("null").await;
    let other = raw.open("g").await;
    assert_eq!(raw.read_status(other).await, Some(NtStatus::END_OF_FILE));
    assert!(world.server.remove_share("IPC$").await.is_err());
}

/// An administrator ends a session while one of its requests waits for a lock: the request is answered, the lock is
/// released.
#[tokio::test]
async fn a_session_is_ended_by_an_administrator() {
    let world = world(Limits::default());
    let mut holder = Raw::session(world.dial().await.0).await;
    let mut waiter = Raw::session(world.dial().await.0).await;
    let mut locks = Vec::new();
    LockElement { offset: 0, length: 1, flags: LockFlags::EXCLUSIVE_LOCK }.encode(&mut locks);
    let locks = LockElements::from_bytes(&locks).expect("one");
    for raw in [&mut holder, &mut waiter] {
        raw.tree("ram").await;
    }
    let held = holder.open("f").await;
    let body = LockRequest { lock_sequence: 0, file_id: held, locks };
    assert_eq!(holder.call(Command::LOCK, &body).await.expect("an answer").0.status, NtStatus::SUCCESS);
    let wanted = waiter.open("f").await;
    let body = LockRequest { lock_sequence: 0, file_id: wanted, locks };
    let m = waiter.encode(Command::LOCK, 1, &body, &[]);
    waiter.stream.write_all(&m).await.expect("sent");
    // The holder's session ends: the waiter gets the lock.
    assert!(world.server.close_session(holder.session_id).await);
    assert!(!world.server.close_session(holder.session_id).await);
    assert_eq!(waiter.answer().await.expect("an answer").0.status, NtStatus::SUCCESS);
    assert_eq!(holder.read_status(held).await, Some(NtStatus::USER_SESSION_DELETED));
    let opens = world.server.opens();
    assert_eq!((opens.len(), opens[0].locks), (1, 1));
    // The administrator closes one open.
    assert!(world.server.close_open(opens[0].id.0).await);
    assert_eq!(waiter.read_status(wanted).await, Some(NtStatus::FILE_CLOSED));
    assert_eq!(world.server.sessions().len(), 1);
}

#[tokio::test]
async fn who_does_not_log_on_is_cut() {
    let world = world(Limits::default());
    let (silent, silent_serving) = world.dial().await;
    let mut half = Raw::new(world.dial().await.0);
    half.negotiate(0x0311, 1).await;
    let mut honest = Raw::session(world.dial().await.0).await;
    // ECHO needs no session and does not extend the deadline.
    assert_eq!(half.echo().await, Some(NtStatus::SUCCESS));
    tokio::time::pause();
    let begun = Instant::now();
    silent_serving.await.expect("served");
    let took = begun.elapsed().as_secs();
    assert!((44..=46).contains(&took), "cut after {took} s");
    drop(silent);
    assert!(half.answer().await.is_none());
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(honest.echo().await, Some(NtStatus::SUCCESS));
}

/// A client that logs off may log on again over the same connection, however old that is.
#[tokio::test]
async fn logging_off_gives_time_to_log_on() {
    let world = world(Limits::default());
    let mut raw = Raw::session(world.dial().await.0).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3600)).await;
    tokio::time::resume();
    let said = raw.call(Command::LOGOFF, &LogoffRequest {}).await.expect("an answer").0;
    assert_eq!(said.status, NtStatus::SUCCESS);
    raw.session_id = 0;
    assert_eq!(raw.log_on("alice", None).await, NtStatus::SUCCESS);
}

/// A client that does not log on is cut off over SMB Direct too; in simulated time only.
#[tokio::test(start_paused = true)]
async fn who_does_not_log_on_is_cut_on_rdma() {
    let world = world(Limits::default());
    let (queue_pair, serving) = world.queue_pair();
    let options = smb_direct::SmbDirectOptions::default();
    let mut direct =
        smb_direct::SmbDirect::connect(queue_pair, world.arena.clone(), world.env.clone(), options)
            .await
            .expect("connected");
    let begun = Instant::now();
    while direct.event().await.is_ok() {}
    assert!((44..=51).contains(&begun.elapsed().as_secs()), "cut after {:?}", begun.elapsed());
    drop(direct);
    serving.await.expect("served");
    assert_eq!(world.server.totals().connections, 0);
}

#[tokio::test]
async fn who_stops_reading_is_cut() {
    let world = world(Limits::default());
    let baseline = world.arena.usage().used;
    let (stream, serving) = world.dial().await;
    let mut raw = Raw::session(stream).await;
    raw.tree("ram").await;
    let file = raw.open("f").await;
    let m = raw.write(file, 0, &vec![7; 1 << 20]);
    raw.stream.write_all(&m).await.expect("sent");
    raw.answer().await.expect("an answer");
    while raw.credits < 500 {
        raw.echo().await.expect("an answer");
    }
    // 31 MiB of answers: more than any socket buffer here holds.
    let out: Vec<u8> = (0..31).flat_map(|_| raw.read(file, 0, 1 << 20)).collect();
    raw.stream.write_all(&out).await.expect("sent");
    let reads = world.server.totals().reads;
    while world.server.totals().reads == reads {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    let begun = Instant::now();
    serving.await.expect("served");
    let took = begun.elapsed().as_secs();
    assert!((59..=61).contains(&took), "cut after {took} s");
    assert!(world.server.sessions().is_empty() && world.server.opens().is_empty());
    assert!(world.arena.usage().used <= baseline);
}

#[tokio::test]
async fn who_leaves_half_a_message_is_cut() {
    // The bytes sent of a message: part of the frame's header, of a small message, of a WRITE's payload.
    for keep in [2, 40, 300_000] {
        let world = world(Limits::default());
        let (stream, serving) = world.dial().await;
        let mut raw = Raw::session(stream).await;
        raw.tree("null").await;
        let file = raw.open("f").await;
        while raw.credits < 16 {
            raw.echo().await.expect("an answer");
        }
        let m = raw.write(file, 0, &vec![7; 1 << 20]);
        raw.stream.write_all(&m[..keep]).await.expect("sent");
        tokio::time::pause();
        let begun = Instant::now();
        serving.await.expect("served");
        let took = begun.elapsed().as_secs();
        assert!((59..=61).contains(&took), "{keep} bytes: cut after {took} s");
        assert!(world.server.sessions().is_empty());
        assert_eq!(world.server.totals().written_bytes, 0);
        tokio::time::resume();
    }
}

/// A connection over SMB Direct whose requests are made by `raw`. `burst` sends the last messages of its client, which
/// is not polled after that.
pub(crate) struct Piped {
    pub(crate) raw: Raw,
    burst: tokio::sync::oneshot::Sender<Vec<Vec<u8>>>,
    client: tokio::task::JoinHandle<smb_direct::SmbDirect>,
    serving: tokio::task::JoinHandle<()>,
}

async fn piped(world: &World) -> Piped {
    let mut piped = connected(world, smb_direct::SmbDirectOptions::default()).await;
    piped.raw.negotiate(0x0311, 1).await;
    assert_eq!(piped.raw.log_on("alice", None).await, NtStatus::SUCCESS);
    piped
}

/// Like `piped`, before NEGOTIATE and with the client's own SMB Direct options.
pub(crate) async fn connected(world: &World, options: smb_direct::SmbDirectOptions) -> Piped {
    let (queue_pair, serving) = world.queue_pair();
    let connecting =
        smb_direct::SmbDirect::connect(queue_pair, world.arena.clone(), world.env.clone(), options);
    let mut direct = connecting.await.expect("connected");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (ours, theirs) = tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
    let (mut from, mut to) = theirs.expect("accepted").0.into_split();
    let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(m) = crate::raw::bytes(&mut from).await {
            let _ = said.send(m);
        }
    });
    let (burst, mut last) = tokio::sync::oneshot::channel::<Vec<Vec<u8>>>();
    let client = tokio::spawn(async move {
        let message = |m: Vec<u8>| arena::Sg::from_iter([arena::IoBuf::from(m)]);
        loop {
            tokio::select! {
                Some(m) = heard.recv() => direct.send(message(m), None).expect("sent"),
                event = direct.event() => {
                    if let smb_direct::Event::Message { data, .. } = event.expect("alive") {
                        let mut framed = (arena::sg_len(&data) as u32).to_be_bytes().to_vec();
                        framed.extend(arena::sg_to_vec(&data));
                        to.write_all(&framed).await.expect("taken");
                    }
                }
                messages = &mut last => {
                    for m in messages.expect("said") {
                        direct.send(message(m[4..].to_vec()), None).expect("sent");
                    }
                    // It is sent as far as credits allow, and the connection is not polled after that.
                    let _ = std::future::poll_fn(|cx| std::task::Poll::Ready(direct.poll_event(cx).is_ready())).await;
                    return direct;
                }
            }
        }
    });
    let raw = Raw::new(ours.expect("connected"));
    Piped { raw, burst, client, serving }
}

/// As on TCP, the server cuts off a client that reads no answers, and one that does not finish its message.
#[tokio::test]
async fn who_holds_the_server_on_rdma_is_cut() {
    for takes_nothing in [true, false] {
        // Shorter than the timeout for a silent client.
        let world = world(Limits { stall_s: 20, ..Limits::default() });
        let Piped { mut raw, burst, client, serving } = piped(&world).await;
        raw.tree("ram").await;
        let file = raw.open("f").await;
        while raw.credits < 64 {
            raw.echo().await.expect("an answer");
        }
        // More than the credits that either side grants without being asked.
        let m = raw.write(file, 0, &vec![7; 1_000_000]);
        let last = if takes_nothing {
            raw.stream.write_all(&m).await.expect("sent");
            assert_eq!(raw.answer().await.expect("an answer").0.status, NtStatus::SUCCESS);
            vec![raw.read(file, 0, 900_000)]
        } else {
            vec![m]
        };
        assert!(burst.send(last).is_ok());
        let held = client.await.expect("a client that is never polled");
        tokio::time::pause();
        let begun = Instant::now();
        serving.await.expect("served");
        let took = begun.elapsed().as_secs();
        // And up to five seconds for the queue pair to end.
        assert!((19..=26).contains(&took), "takes nothing: {takes_nothing}; cut after {took} s");
        assert!(world.server.sessions().is_empty() && world.server.opens().is_empty());
        assert_eq!(world.server.totals().written_bytes, if takes_nothing { 1_000_000 } else { 0 });
        tokio::time::resume();
        drop(held);
    }
}

/// The opens of a client that vanished are closed within a minute over SMB Direct too.
#[tokio::test]
async fn who_vanishes_on_rdma_is_cut() {
    let world = world(Limits::default());
    let Piped { mut raw, burst, client, serving } = piped(&world).await;
    raw.tree("ram").await;
    raw.open("f").await;
    assert_eq!(world.server.opens().len(), 1);
    assert!(burst.send(Vec::new()).is_ok());
    let held = client.await.expect("a client that is never polled");
    tokio::time::pause();
    let begun = Instant::now();
    serving.await.expect("served");
    let took = begun.elapsed().as_secs();
    assert!(took < 60, "cut after {took} s");
    assert!(world.server.sessions().is_empty() && world.server.opens().is_empty());
    drop(held);
}

/// Half-open connections use no payload memory and are limited, and clients can connect again once they have ended.
#[tokio::test]
async fn connections_are_bounded() {
    const BOUND: usize = 500;
    // Long timeouts, so that none of the kept connections is cut off as idle on a slow machine.
    let patient = Limits { authenticate_s: 3600, stall_s: 3600, ..Limits::default() };
    let world = world(Limits { connections: BOUND, ..patient });
    let baseline = world.arena.usage().used;
    let (mut kept, mut refused) = (Vec::new(), 0);
    for _ in 0..10_000 {
        let (mut stream, serving) = world.dial().await;
        if kept.len() < BOUND {
            stream.write_all(&[0, 0]).await.expect("sent");
            kept.push((stream, serving));
        } else {
            serving.await.expect("refused");
            assert_eq!(stream.read(&mut [0; 1]).await.expect("closed"), 0);
            refused += 1;
        }
    }
    let totals = world.server.totals();
    assert_eq!((totals.connections, totals.accepted, refused), (BOUND, BOUND as u64, 10_000 - BOUND));
    let each = (world.arena.usage().used - baseline) / BOUND;
    assert!(each <= 16 << 10, "{each} bytes for each half-open connection");
    let (streams, servings): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
    drop(streams);
    for serving in servings {
        serving.await.expect("served");
    }
    assert_eq!((world.server.totals().connections, world.arena.usage().used), (0, baseline));
    let client = world.client(ConnectOptions::new(credentials("alice"))).await;
    let tree = client.tree("ram").await.expect("the share");
    tree.open("f", OpenOptions::create()).await.expect("created");
}
