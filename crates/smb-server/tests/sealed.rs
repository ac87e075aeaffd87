//! Encrypted sessions and the memory budget: clients that use all their credits and read no answers cost no more than
//! the arena's memory.
//!
//! This program's allocator counts the server's use of the heap, so the program has one test only. The server runs in a
//! thread of its own, so that its allocations are distinguished from the clients'.
#![allow(unsafe_code)]

#[path = "server/raw.rs"]
#[expect(dead_code, reason = "shared with other programs of tests")]
mod raw;
#[path = "server/world.rs"]
#[expect(dead_code, reason = "shared with other programs of tests")]
mod world;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use env::Env;
use raw::Raw;
use smb_auth::crypt::Cipher;
use smb_server::Limits;
use smb_wire::msg::{ReadResponse, WriteResponse};
use smb_wire::{Decode, NtStatus};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use world::World;

/// Counts large allocations on the server's thread.
struct Counting;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}
static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The least size of an allocation that counts, in bytes.
const LARGE: usize = 32 << 10;

fn counts(layout: Layout) -> bool {
    layout.size() >= LARGE && COUNTS.try_with(Cell::get).unwrap_or(false)
}

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if counts(layout) {
            PEAK.fetch_max(
                NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(),
                Ordering::Relaxed,
            );
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if counts(layout) {
            // An allocation made before counting began may be freed after.
            let _ = NOW.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                Some(n.saturating_sub(layout.size()))
            });
        }
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BUDGET: usize = 32 << 20;
const CLIENTS: usize = 24;
/// One I/O: more than a chunk of the arena.
const IO: u32 = 3 << 20;
/// READs of one client whose answers it does not read.
const READS: u64 = 8;

fn pattern(client: usize) -> Vec<u8> {
    (0..IO as usize).map(|i| (i >> 8) as u8 ^ (i as u8).wrapping_mul(client as u8 + 1)).collect()
}

#[tokio::test]
async fn encrypted_clients_stay_within_the_budget() {
    let (listener, world) = {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        (listener, Arc::new(World::new(Env::real(), BUDGET, Limits::default())))
    };
    let address = listener.local_addr().expect("bound");
    let server = Arc::clone(&world.server);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("a socket");
            COUNTS.with(|c| c.set(true));
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&server).serve_tcp(stream));
            }
        });
    });
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut raw = Raw::new(TcpStream::connect(address).await.expect("connected"));
        raw.offers = Some(if number % 6 == 5 { Cipher::Aes128Ccm } else { Cipher::Aes128Gcm });
        raw.negotiate(0x0311, number as u8).await;
        assert_eq!(raw.log_on("alice", None).await, NtStatus::SUCCESS);
        raw.tree("ram").await;
        let file = raw.open(&format!("f{number}")).await;
        while raw.credits < 450 {
            raw.echo().await.expect("an answer");
        }
        clients.push((raw, file));
    }
    let within = |what: &str| {
        let (used, heap) = (world.arena.usage().used, PEAK.load(Ordering::Relaxed));
        // On the heap: the block maps of the file system, and one message that is being encrypted or decrypted.
        assert!(
            used <= BUDGET && heap <= BUDGET / 4,
            "{what}: {used} bytes of the arena, {heap} of the heap"
        );
    };

    // Each client begins a WRITE, and none finishes it before all have begun.
    let mut halves = Vec::new();
    for (number, (raw, file)) in clients.iter_mut().enumerate() {
        let message = raw.write(*file, 0, &pattern(number));
        let (begun, rest) = message.split_at(200_000);
        raw.stream.write_all(begun).await.expect("taken");
        halves.push(rest.to_vec());
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    within("begun WRITEs");
    let writes = clients.iter_mut().zip(halves).map(|((raw, _), rest)| async move {
        raw.stream.write_all(&rest).await.expect("taken");
        let (header, m) = raw.answer().await.expect("an answer");
        assert_eq!(header.status, NtStatus::SUCCESS);
        assert_eq!(WriteResponse::decode(&m).expect("sound").count, IO);
    });
    futures_util::future::join_all(writes).await;
    within("WRITEs");

    // Each client requests more than a socket buffer holds, and reads no answer until all have sent their requests.
    for (raw, file) in &mut clients {
        let out: Vec<u8> = (0..READS).flat_map(|_| raw.read(*file, 0, IO)).collect();
        raw.stream.write_all(&out).await.expect("taken");
    }
    let patience = tokio::time::Instant::now() + Duration::from_secs(60);
    while world.arena.usage().waiting == 0 {
        assert!(tokio::time::Instant::now() < patience, "memory was never short: {:?}", world.arena.usage());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    within("READs that nobody takes");
    let reads = clients.iter_mut().enumerate().map(|(number, (raw, _))| async move {
        let expected = pattern(number);
        for _ in 0..READS {
            let (header, m) = raw.answer().await.expect("an answer");
            assert_eq!(header.status, NtStatus::SUCCESS);
            let body = ReadResponse::decode(&m).expect("sound");
            assert!(body.data(&m).expect("there") == expected, "other data");
        }
    });
    futures_util::future::join_all(reads).await;
    within("READs");
}
