//! How often payload is read or written in user space, for each path: the figures of ARCHITECTURE.md's table.
//!
//! The counters are those of the process, so this is a program with one test. Client and server are both in it: a pass
//! that both make (a signature, a cipher) counts twice.

#[path = "server/world.rs"]
mod world;

use arena::passes::{Counts, counts};
use arena::{Class, IoBufMut, Sg};
use env::Env;
use smb_client::{Client, ConnectOptions, OpenOptions};
use smb_server::Limits;
use world::World;

/// Bytes of one I/O, and how many there are.
const IO: u32 = 256 << 10;
const COUNT: u64 = 32;
const TOTAL: u64 = IO as u64 * COUNT;

fn since(before: Counts) -> Counts {
    let now = counts();
    Counts {
        copy: now.copy - before.copy,
        place: now.place - before.place,
        crc: now.crc - before.crc,
        mac: now.mac - before.mac,
        cipher: now.cipher - before.cipher,
    }
}

/// The passes of `COUNT` WRITEs and of `COUNT` READs.
async fn measure(world: &World, client: &Client) -> [Counts; 2] {
    let tree = client.tree("null").await.expect("the share");
    let file = tree.open("f", OpenOptions::create()).await.expect("created");
    // Allocates the zeros that `null` returns on reads, and its metadata.
    file.set_len(TOTAL).await.expect("sized");
    assert!(!file.read_at(0, IO).await.expect("read").is_empty());
    let before = counts();
    for i in 0..COUNT {
        let buffers = world.arena.alloc_sg(IO as usize, Class::Payload).await;
        let payload: Sg = buffers
            .into_iter()
            .map(|mut b: IoBufMut| {
                b.set_len(IO as usize);
                b.freeze()
            })
            .collect();
        let n = file.submit_write(i * u64::from(IO), payload).await.expect("written");
        assert_eq!(n, IO);
    }
    let writes = since(before);
    let before = counts();
    for i in 0..COUNT {
        let got = file.submit_read(i * u64::from(IO), IO).await.expect("read");
        assert_eq!(arena::sg_len(&got), IO as usize);
    }
    let reads = since(before);
    file.close().await.expect("closed");
    [writes, reads]
}

/// Checks that `bytes` is `times` the payload within 2 %: headers, and parts of messages that arrived with another
/// message.
#[track_caller]
fn about(bytes: u64, times: u64, what: &str) {
    let (low, high) = (times * TOTAL, times * TOTAL + TOTAL / 50);
    assert!((low..=high).contains(&bytes), "{what}: {bytes} bytes, expected {low} to {high}");
}

fn options() -> ConnectOptions {
    let mut options = ConnectOptions::new(world::credentials("alice"));
    options.require_signing = false;
    options
}

#[tokio::test]
async fn payload_is_touched_as_often_as_it_must_be() {
    let world = World::new(Env::real(), 64 << 20, Limits::default());

    let plain = measure(&world, &world.client(options()).await).await;
    for (c, what) in plain.iter().zip(["plain WRITE", "plain READ"]) {
        about(c.copy + c.mac + c.cipher + c.place + c.crc, 0, what);
    }

    let mut signing = options();
    signing.require_signing = true;
    let signed = measure(&world, &world.client(signing).await).await;
    for (c, what) in signed.iter().zip(["signed WRITE", "signed READ"]) {
        about(c.mac, 2, what);
        about(c.copy + c.cipher + c.place + c.crc, 0, what);
    }

    let mut sealing = options();
    sealing.encrypt = true;
    let sealed = measure(&world, &world.client(sealing).await).await;
    for (c, what) in sealed.iter().zip(["encrypted WRITE", "encrypted READ"]) {
        about(c.cipher, 2, what);
        about(c.mac + c.place + c.crc, 0, what);
        // An encrypted message must be contiguous: its part that arrived in an earlier chunk is copied, once at most.
        assert!(c.copy <= TOTAL + TOTAL / 50, "{what}: {} bytes copied of {TOTAL}", c.copy);
    }

    let (queue_pair, _serving) = world.queue_pair();
    let (arena, env) = (world.arena.clone(), world.env.clone());
    let client = Client::connect_over(queue_pair, "world", options(), arena, env).await.expect("a session");
    let rdma = measure(&world, &client).await;
    for (c, what) in rdma.iter().zip(["RDMA WRITE", "RDMA READ"]) {
        about(c.copy + c.mac + c.cipher, 0, what);
    }
    let totals = world.server.totals();
    assert!(totals.read_bytes_rdma >= TOTAL && totals.written_bytes_rdma >= TOTAL, "{totals:?}");
}
