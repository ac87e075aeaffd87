//! I/O in flight in a ring. Pipes simulate slow disks: the test decides when a read from an empty pipe or a write to a
//! full one completes.

use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use arena::Class;
use env::{Io, IoFlags};

use super::unbuffered::{PAST, disk, host};
use super::*;
use crate::hostdir::device::{self, Device};
use crate::hostdir::job::Job;
use crate::hostdir::node::{Open, statx};
use crate::hostdir::ring::{IN_KERNEL_MAX, SLOW_MAX, load};
use crate::hostdir::unbuffered::DirectFd;

const THROUGH: Ctx = Ctx { flags: IoFlags { write_through: true, unbuffered: false }, ..PAST };

/// Both ends of a pipe: the file of a node, and the end that the test uses.
fn slow_reads(vfs: &HostDir) -> (Arc<Open>, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    (opened(vfs, reader.into()), writer)
}

fn slow_writes(vfs: &HostDir) -> (Arc<Open>, std::io::PipeReader) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let size = rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("one page");
    writer.write_all(&vec![0; size]).expect("room");
    (opened(vfs, writer.into()), reader)
}

fn opened(vfs: &HostDir, fd: OwnedFd) -> Arc<Open> {
    let stat = statx(&fd).expect("a pipe");
    let number = device::number(&stat);
    let mut pipes = Device::of(&fd, &HostDirOptions::default()).expect("pipes");
    pipes.local = true;
    vfs.tree.devices.lock().insert(number, Arc::new(pipes));
    Arc::clone(&vfs.tree.node(fd, &stat, Kind::File, (true, true)).expect("a node").0.open)
}

/// A read of one byte.
fn read_byte(open: &Arc<Open>, arena: &Arena) -> env::BoxFuture<VfsResult<Sg>> {
    let bufs = arena.try_alloc_sg(1, Class::Payload).expect("room");
    match Job::read(Arc::clone(open), 0, bufs, 0, 1).start(|sg| sg) {
        Io::Pending(read) => read,
        Io::Done(_) => panic!("nothing is there yet"),
    }
}

/// Lets the ring's driver run until `is_so`.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what}: {:?} in the kernel and waiting", load());
}

/// Whether this system has io_uring; prints a message if not.
fn has_ring() -> bool {
    let made = io_uring::IoUring::new(2);
    if let Err(e) = &made {
        eprintln!("SKIPPED: no io_uring here: {e}");
    }
    made.is_ok()
}

#[tokio::test]
async fn as_many_as_are_issued_are_in_flight() {
    if !has_ring() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, arena) = (tree(dir.path()), arena());
    let (open, mut outside) = slow_reads(&vfs);
    let reads: Vec<_> = (0..64).map(|_| read_byte(&open, &arena)).collect();
    until("64 are in the kernel", || load() == (64, 0)).await;
    outside.write_all(&[7; 64]).expect("room");
    for read in reads {
        assert_eq!(sg_to_vec(&read.await.expect("a byte")), [7]);
    }
    assert_eq!(load(), (0, 0));
}

/// More requests than the ring holds: the others wait, and each completes.
#[tokio::test]
async fn a_full_ring() {
    const MORE: usize = 100;
    if !has_ring() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, arena) = (tree(dir.path()), arena());
    let (open, mut outside) = slow_reads(&vfs);
    let reads: Vec<_> = (0..IN_KERNEL_MAX + MORE).map(|_| read_byte(&open, &arena)).collect();
    until("it is full", || load() == (IN_KERNEL_MAX, MORE)).await;
    outside.write_all(&[7; MORE / 2]).expect("room");
    until("others have had their turn", || load() == (IN_KERNEL_MAX, MORE / 2)).await;
    outside.write_all(&[7; IN_KERNEL_MAX + MORE / 2]).expect("room");
    for read in reads {
        assert_eq!(sg_to_vec(&read.await.expect("a byte")), [7]);
    }
    assert_eq!((load(), arena.usage().used), ((0, 0), 0));
}

/// Slow syncs and write-through writes delay neither unbuffered I/O nor cache misses.
#[tokio::test]
async fn slow_syncs_hold_up_nothing_else() {
    if !has_ring() {
        return;
    }
    let Some(dir) = disk() else { return };
    std::fs::write(dir.path().join("f"), [5; 1 << 16]).expect("room");
    let vfs = tree(dir.path());
    let node = existing(&*vfs, "f").await.node;
    let (open, mut outside) = slow_writes(&vfs);
    let through = |_| match Job::write(Arc::clone(&open), 0, payload(b"x"), true).start(drop) {
        Io::Pending(write) => write,
        Io::Done(done) => panic!("there is no room: {done:?}"),
    };
    let slow: Vec<_> = (0..SLOW_MAX + 5).map(through).collect();
    until("some wait", || load() == (SLOW_MAX, 5)).await;
    for i in 0..100u8 {
        let data = unbuffered::payload_at(&arena(), &[i; 8192], i % 2 == 0);
        assert_eq!(node.write(&PAST, 0, data).wait().await, Ok(8192));
        assert_eq!(unbuffered::read_at(&node, &PAST, 0, 8192).await, Ok(vec![i; 8192]));
        rustix::fs::fadvise(&*host(&node).open.fd, 0, None, rustix::fs::Advice::DontNeed).expect("advised");
        assert_eq!(unbuffered::read_at(&node, &Ctx::default(), 4096, 100).await, Ok(vec![i; 100]));
    }
    assert_eq!(load(), (SLOW_MAX, 5));
    let mut bytes = vec![1; 4096 + SLOW_MAX + 5];
    let reader = std::thread::spawn(move || outside.read_exact(&mut bytes).map(|()| bytes));
    for write in slow {
        write.await.expect("written");
    }
    assert!(reader.join().expect("no panic").expect("read").ends_with(&[b'x'; SLOW_MAX + 5]));
}

/// The job keeps the memory that the kernel writes to until the I/O has completed, and keeps its file open.
#[tokio::test]
async fn a_dropped_read_keeps_its_memory() {
    if !has_ring() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, arena) = (tree(dir.path()), arena());
    for is_in_kernel in [false, true] {
        let (open, mut outside) = slow_reads(&vfs);
        let read = read_byte(&open, &arena);
        if is_in_kernel {
            until("it is in the kernel", || load() == (1, 0)).await;
        }
        drop((read, open));
        until("it is in the kernel", || load() == (1, 0)).await;
        assert_eq!(arena.usage().used, 4096);
        outside.write_all(b"x").expect("the other end is open");
        until("it has ended", || load() == (0, 0) && arena.usage().used == 0).await;
    }
}

/// Polls `future` at most `times` times; returns whether it completed.
fn poll_some(future: &mut env::BoxFuture<bool>, times: usize) -> bool {
    (0..times).any(|_| Pin::new(&mut *future).poll(&mut Context::from_waker(Waker::noop())).is_ready())
}

/// Drops the future of every call after each number of polls: issued I/O completes, and no job remains.
#[tokio::test]
async fn dropped_at_each_await() {
    let Some(dir) = disk() else { return };
    for shared in [false, true] {
        std::fs::write(dir.path().join("f"), [0; 8192]).expect("room");
        let options = HostDirOptions { shared, ..Default::default() };
        let vfs = HostDir::open(dir.path(), options).expect("a directory");
        let node = existing(&*vfs, "f").await.node;
        let c = Ctx::default();
        for times in 0..6 {
            for round in 0..7 {
                let node = Arc::clone(&node);
                let mut call: env::BoxFuture<bool> = Box::pin(async move {
                    match round {
                        0 => unbuffered::read_at(&node, &PAST, 0, 4096).await.is_ok(),
                        1 => unbuffered::read_at(&node, &c, 1, 4096).await.is_ok(),
                        2 => node.write(&PAST, 0, payload(&[1; 4096])).wait().await.is_ok(),
                        3 => node.write(&THROUGH, 0, payload(&[1])).wait().await.is_ok(),
                        4 => node.flush(&c).wait().await.is_ok(),
                        5 => node.close(&c).wait().await.is_ok(),
                        _ => {
                            drop(node.write(&c, 0, payload(&[1])));
                            node.flush(&c).wait().await.is_ok()
                        }
                    }
                });
                poll_some(&mut call, times);
                drop(call);
                if times % 2 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
        drop(node.write(&PAST, 4096, payload(&[9; 4096])));
        let last = || std::fs::read(dir.path().join("f")).expect("there").ends_with(&[9; 4096]);
        until("what was issued is written", || last() && load() == (0, 0)).await;
        node.flush(&c).wait().await.expect("flushed");
    }
}

/// The end of a runtime waits for issued I/O, and the next runtime on the thread has another ring.
#[test]
fn a_runtime_ends_after_its_jobs() {
    let Some(dir) = disk() else { return };
    std::fs::write(dir.path().join("f"), [0; 8192]).expect("room");
    for round in 1..4u8 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let vfs = tree(dir.path());
            let node = existing(&*vfs, "f").await.node;
            node.write(&PAST, 0, payload(&[round; 4096])).wait().await.expect("written");
            drop(node.write(&PAST, 4096, payload(&[round; 4096])));
        });
        drop(runtime);
        assert_eq!(std::fs::read(dir.path().join("f")).expect("there"), [round; 8192]);
    }
}

/// Two runtimes that alternate on a thread, each with I/O in flight.
#[test]
fn runtimes_in_turns() {
    let Some(dir) = disk() else { return };
    std::fs::write(dir.path().join("f"), [3; 8192]).expect("room");
    let make = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (one, two, vfs) = (make(), make(), tree(dir.path()));
    let node = one.block_on(async { existing(&*vfs, "f").await.node });
    for _ in 0..10 {
        let spawned = Arc::clone(&node);
        let read = one.spawn(async move { unbuffered::read_at(&spawned, &PAST, 0, 8192).await });
        one.block_on(tokio::task::yield_now());
        let other = two.block_on(unbuffered::read_at(&node, &PAST, 0, 8192));
        assert_eq!(other, Ok(vec![3; 8192]));
        assert_eq!(one.block_on(read).expect("no panic"), Ok(vec![3; 8192]));
    }
}

/// Several workers, each with a ring, use one file: each writes different blocks, and all flush.
#[test]
fn four_workers() {
    const BLOCKS: u64 = 64;
    let Some(dir) = disk() else { return };
    std::fs::write(dir.path().join("f"), []).expect("room");
    let vfs = tree(dir.path());
    std::thread::scope(|scope| {
        for worker in 0..4u64 {
            let vfs = &vfs;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    let node = existing(&**vfs, "f").await.node;
                    for round in 0..4u8 {
                        let byte = worker as u8 * 16 + round;
                        let at = |i: u64| (i * 4 + worker) * 8192;
                        let write = |i| tokio::spawn(node.write(&PAST, at(i), payload(&[byte; 8192])).wait());
                        let writes: Vec<_> = (0..BLOCKS).map(write).collect();
                        node.flush(&Ctx::default()).wait().await.expect("flushed");
                        for write in writes {
                            assert_eq!(write.await.expect("no panic"), Ok(8192));
                        }
                        for i in 0..BLOCKS {
                            let read = unbuffered::read_at(&node, &PAST, at(i), 8192).await;
                            assert!(read == Ok(vec![byte; 8192]), "worker {worker}, block {i}");
                        }
                    }
                });
            });
        }
    });
}

/// A flush includes buffered writes that were issued before it and are still queued.
#[tokio::test]
async fn a_flush_waits_for_the_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = HostDirOptions { threads: 1, ..Default::default() };
    let (vfs, c) = (HostDir::open(dir.path(), options).expect("a directory"), Ctx::default());
    if vfs.tree.all_memory.load(std::sync::atomic::Ordering::Relaxed) {
        return eprintln!("SKIPPED: this is a file system in memory");
    }
    let node = open(&*vfs, "f", OpenMode::Create).await.expect("made").node;
    host(&node).open.shared.device.nowait_writes.store(false, std::sync::atomic::Ordering::Relaxed);
    let (release, held) = std::sync::mpsc::channel::<()>();
    let busy = vfs.tree.pool.run(move || held.recv());
    let write = tokio::spawn(node.write(&c, 0, payload(b"data")).wait());
    let flush = tokio::spawn(node.flush(&c).wait());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!flush.is_finished() && !write.is_finished());
    release.send(()).expect("it waits");
    flush.await.expect("no panic").expect("flushed");
    assert_eq!(std::fs::read(dir.path().join("f")).expect("there"), b"data");
    write.await.expect("no panic").expect("written");
    busy.await.expect("released");
}

/// Buffered and unbuffered writes, at the same time and side by side in the same pages: all data is there afterwards,
/// and nothing is reported as lost.
#[tokio::test]
async fn both_kinds_of_writes_at_once() {
    let Some(dir) = disk() else { return };
    std::fs::write(dir.path().join("f"), [0; 1 << 16]).expect("room");
    let vfs = tree(dir.path());
    let (node, other) = (existing(&*vfs, "f").await.node, existing(&*vfs, "f").await.node);
    let c = Ctx::default();
    for round in 1..100u8 {
        let write = |i: u64| {
            let (c, node) = match i % 4 {
                0 => (c, &node),
                1 => (PAST, &other),
                2 => (THROUGH, &other),
                _ => (PAST, &node),
            };
            tokio::spawn(node.write(&c, i * 512, payload(&[round; 512])).wait())
        };
        let writes: Vec<_> = (0..128).map(write).collect();
        for write in writes {
            assert_eq!(write.await.expect("no panic"), Ok(512));
        }
        node.flush(&c).wait().await.expect("nothing is lost");
        let now = unbuffered::read_at(&other, &PAST, 0, 1 << 16).await.expect("read");
        let wrong: Vec<_> = (0..128).filter(|i| now[i * 512] != round).collect();
        assert!(wrong.is_empty(), "round {round}: {wrong:?}");
    }
}

/// I/O that the file system refuses without the page cache (here: memory that no device can read from) goes through the
/// cache.
#[tokio::test]
async fn refused_past_the_cache() {
    let Some(dir) = disk() else { return };
    std::fs::write(dir.path().join("f"), [0; 1 << 16]).expect("room");
    let vfs = tree(dir.path());
    let node = existing(&*vfs, "f").await.node;
    let direct = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::RDWR;
    let fd = rustix::fs::open(dir.path().join("f"), direct, rustix::fs::Mode::empty()).expect("opened");
    let second = Some(DirectFd { fd, memory: 1, sector: 512 });
    assert!(host(&node).open.direct.set(second).is_ok(), "it has none yet");
    let write = |i: u64, c| {
        let data = unbuffered::payload_at(&arena(), &[i as u8; 4096], false);
        tokio::spawn(node.write(&c, i * 4096, data).wait())
    };
    let through = Ctx { flags: IoFlags { write_through: true, unbuffered: true }, ..PAST };
    let writes: Vec<_> = (1..16).map(|i| write(i, if i % 2 == 0 { PAST } else { through })).collect();
    for write in writes {
        assert_eq!(write.await.expect("no panic"), Ok(4096));
    }
    node.flush(&Ctx::default()).wait().await.expect("flushed");
    let now = std::fs::read(dir.path().join("f")).expect("there");
    assert!((0..16).all(|i| now[i * 4096..][..4096] == [i as u8; 4096]));
}

/// Without io_uring the pool does all I/O.
#[tokio::test]
async fn without_a_ring() {
    let Some(dir) = disk() else { return };
    std::fs::write(dir.path().join("f"), [0; 1 << 16]).expect("room");
    let options = HostDirOptions { io_uring: false, ..Default::default() };
    let vfs = HostDir::open(dir.path(), options).expect("a directory");
    let node = existing(&*vfs, "f").await.node;
    for i in 1..20u8 {
        let data = unbuffered::payload_at(&arena(), &[i; 8192], i % 2 == 0);
        assert_eq!(node.write(&PAST, 8192, data).wait().await, Ok(8192));
        assert_eq!(node.write(&THROUGH, 3, payload(&[i; 100])).wait().await, Ok(100));
        node.flush(&Ctx::default()).wait().await.expect("flushed");
        assert_eq!(unbuffered::read_at(&node, &PAST, 8192, 8192).await, Ok(vec![i; 8192]));
        rustix::fs::fadvise(&*host(&node).open.fd, 0, None, rustix::fs::Advice::DontNeed).expect("advised");
        assert_eq!(unbuffered::read_at(&node, &Ctx::default(), 3, 100).await, Ok(vec![i; 100]));
    }
}
