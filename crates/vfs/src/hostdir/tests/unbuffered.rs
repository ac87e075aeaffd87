//! Unbuffered I/O: checked by the pages in the cache, and against a model together with buffered I/O on the same file.

use std::os::fd::AsFd;

use arena::{Class, IoBuf};
use env::{Env, IoFlags};

use super::*;
use crate::hostdir::cached;
use crate::hostdir::node::HostNode;

pub(super) const PAST: Ctx =
    Ctx { deadline: None, epoch: env::Epoch(0), flags: IoFlags { write_through: false, unbuffered: true } };

/// A directory on a file system that supports I/O without its page cache; `None`, with a message, if there is none.
pub(super) fn disk() -> Option<tempfile::TempDir> {
    // Uses the build directory, because the temporary directory may be in memory.
    let place = std::env::current_exe().expect("this program");
    let dir = tempfile::tempdir_in(place.parent().expect("a directory")).expect("a directory");
    let file = std::fs::File::create(dir.path().join("probe")).expect("room");
    let direct = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::RDWR;
    let opened = rustix::fs::open(dir.path().join("probe"), direct, rustix::fs::Mode::empty());
    if opened.is_err() || cached::pages(file.as_fd(), 0, 4096).is_none() {
        eprintln!("SKIPPED: no O_DIRECT or no cachestat(2) here");
        return None;
    }
    Some(dir)
}

pub(super) fn host(node: &Arc<dyn Node>) -> &HostNode {
    let node: &dyn std::any::Any = &**node;
    node.downcast_ref::<HostNode>().expect("ours")
}

/// Pages of the first `length` bytes that are in the cache.
fn in_cache(node: &Arc<dyn Node>, length: usize) -> u64 {
    cached::pages(host(node).open.fd.as_fd(), 0, length as u64).expect("asked before")
}

/// Writes the dirty pages and evicts all pages from the cache.
fn forget(node: &Arc<dyn Node>, length: usize) {
    let fd = &*host(node).open.fd;
    rustix::fs::fsync(fd).expect("synced");
    rustix::fs::fadvise(fd, 0, None, rustix::fs::Advice::DontNeed).expect("advised");
    assert_eq!(in_cache(node, length), 0);
}

pub(super) async fn read_at(node: &Arc<dyn Node>, c: &Ctx, offset: u64, length: u32) -> VfsResult<Vec<u8>> {
    let arena = arena();
    // Allows a descriptor as the result, though its sender would read it through the cache.
    let file_ok = c.flags.unbuffered && (offset | u64::from(length)).is_multiple_of(512);
    match node.read(c, offset, ReadOptions { length, arena: &arena, file_ok }).wait().await? {
        Data::Bufs(sg) => Ok(sg_to_vec(&sg)),
        Data::File { .. } => panic!("a descriptor"),
    }
}

/// Bytes in the arena's memory, at a sector, or anywhere else.
pub(super) fn payload_at(arena: &Arena, bytes: &[u8], aligned: bool) -> Sg {
    if aligned {
        let mut bufs = arena.try_alloc_sg(bytes.len(), Class::Payload).expect("room");
        let mut rest = bytes;
        for b in &mut bufs {
            rest = &rest[b.append(rest)..];
        }
        return bufs.into_iter().map(arena::IoBufMut::freeze).collect();
    }
    let (head, tail) = bytes.split_at(bytes.len() / 3);
    let odd = |b: &[u8]| IoBuf::from([&[0][..], b].concat()).slice(1..b.len() + 1);
    [odd(head), odd(tail)].into_iter().collect()
}

#[tokio::test]
async fn the_cache_has_nothing_of_it() {
    const LENGTH: usize = 1 << 20;
    let Some(dir) = disk() else { return };
    let bytes: Vec<u8> = (0..LENGTH).map(|i| (i / 512 * 7 + i) as u8).collect();
    std::fs::write(dir.path().join("f"), &bytes).expect("room");
    let vfs = tree(dir.path());
    let node = existing(&*vfs, "f").await.node;
    forget(&node, LENGTH);
    for (offset, length) in [(0, 512), (4096, 4096), (65536, 65536), (0, LENGTH), (512, 8192)] {
        let got = read_at(&node, &PAST, offset as u64, length as u32).await.expect("read");
        assert!(got == bytes[offset..offset + length], "{length} bytes at {offset}");
        assert_eq!(in_cache(&node, LENGTH), 0, "{length} bytes at {offset}");
    }
    let arena = arena();
    for (aligned, through) in [(true, false), (false, false), (true, true), (false, true)] {
        let c = Ctx { flags: IoFlags { write_through: through, unbuffered: true }, ..PAST };
        let written: Vec<u8> = bytes.iter().rev().copied().collect();
        let data = payload_at(&arena, &written[8192..200_704], aligned);
        assert_eq!(node.write(&c, 8192, data).wait().await, Ok(192_512));
        assert_eq!(in_cache(&node, LENGTH), 0, "aligned: {aligned}");
        assert!(read_at(&node, &PAST, 8192, 192_512).await.expect("read") == written[8192..200_704]);
        std::fs::write(dir.path().join("f"), &bytes).expect("room");
        forget(&node, LENGTH);
    }
    // A buffered read, and an unbuffered one that is not aligned to sectors, go through the cache.
    let got = read_at(&node, &Ctx::default(), 65536, 4096).await.expect("read");
    assert!(got == bytes[65536..69632] && in_cache(&node, LENGTH) > 0);
    forget(&node, LENGTH);
    assert!(read_at(&node, &PAST, 3, 5).await.expect("read") == bytes[3..8] && in_cache(&node, LENGTH) > 0);
    // An unbuffered read returns the data that a buffered write has left dirty in the cache.
    node.write(&Ctx::default(), 4096, payload(&[9; 512])).wait().await.expect("written");
    assert_eq!(read_at(&node, &PAST, 4096, 512).await.expect("read"), [9; 512]);
}

#[tokio::test]
async fn ends_and_holes() {
    let Some(dir) = disk() else { return };
    std::fs::write(dir.path().join("f"), [5; 5000]).expect("room");
    let vfs = tree(dir.path());
    let node = existing(&*vfs, "f").await.node;
    for (offset, length, there) in [
        (0, 4096, 4096),
        (4096, 4096, 904),
        (0, 1 << 20, 5000),
        (8192, 4096, 0),
        (4608, 512, 392),
        (5120, 512, 0),
    ] {
        let got = read_at(&node, &PAST, offset, length).await;
        assert_eq!(got.expect("read"), vec![5; there], "{length} bytes at {offset}");
    }
    assert_eq!(read_at(&node, &PAST, i64::MAX as u64 - 511, 512).await, Ok(vec![]));
    // Beyond its end: a hole before the written data.
    let data = payload_at(&arena(), &[7; 8192], true);
    assert_eq!(node.write(&PAST, 1 << 20, data).wait().await, Ok(8192));
    let stat = node.stat(&Ctx::default()).wait().await.expect("there");
    assert!(stat.size == (1 << 20) + 8192 && stat.allocation < 1 << 20, "{stat:?}");
    assert_eq!(
        read_at(&node, &PAST, 4096, 4096).await.expect("read")[..1000],
        [&[5; 904][..], &[0; 96]].concat()
    );
    assert_eq!(read_at(&node, &PAST, (1 << 20) - 512, 1024).await, Ok([[0; 512], [7; 512]].concat()));
    assert_eq!(read_at(&node, &PAST, 65536, 65536).await, Ok(vec![0; 65536]));
    // A write through a read-only open fails, and so does a read through a write-only open.
    let mut reader = request("f", OpenMode::Open, None);
    reader.rights.write = false;
    let reader = vfs.open(&Ctx::default(), reader).wait().await.expect("there").node;
    assert_eq!(read_at(&reader, &PAST, 0, 512).await, Ok(vec![5; 512]));
    let refused = reader.write(&PAST, 0, payload(&[0; 512])).wait().await;
    assert!(refused.is_err(), "{refused:?}");
    drop((node, reader));
}

/// Buffered and unbuffered, at sectors and elsewhere, from all kinds of memory, against the expected bytes.
#[tokio::test]
async fn as_the_model() {
    let Some(dir) = disk() else { return };
    for (seed, io_uring) in (0..4).flat_map(|seed| [(seed, true), (seed, false)]) {
        let random = Env::simulated(seed);
        let name = format!("f{seed}");
        std::fs::write(dir.path().join(&name), "").expect("room");
        let options = HostDirOptions { io_uring, ..Default::default() };
        let vfs = HostDir::open(dir.path(), options).expect("a directory");
        let (one, other) = (existing(&*vfs, &name).await.node, existing(&*vfs, &name).await.node);
        let (arena, mut model) = (arena(), Vec::new());
        for step in 0..150 {
            let n = random.random_u64();
            let unit = if n.is_multiple_of(3) { 1 } else { 512 };
            let offset = (n >> 8) % 300_000 / unit * unit;
            let length = ((n >> 32) % 70_000).max(unit) / unit * unit;
            let c = if (n >> 3).is_multiple_of(3) { Ctx::default() } else { PAST };
            let node = if (n >> 5).is_multiple_of(2) { &one } else { &other };
            let (from, to) = (offset as usize, (offset + length) as usize);
            if (n >> 6).is_multiple_of(2) {
                let bytes: Vec<u8> = (0..length).map(|i| (i * 31 + n) as u8).collect();
                let data = payload_at(&arena, &bytes, (n >> 7).is_multiple_of(2));
                assert_eq!(node.write(&c, offset, data).wait().await, Ok(length as u32), "{step}");
                if model.len() < to {
                    model.resize(to, 0);
                }
                model[from..to].copy_from_slice(&bytes);
            } else {
                let got = read_at(node, &c, offset, length as u32).await.expect("read");
                let there = &model[from.min(model.len())..to.min(model.len())];
                assert!(
                    got == there,
                    "seed {seed}, step {step}: {length} bytes at {offset} of {}",
                    model.len()
                );
            }
        }
        assert!(std::fs::read(dir.path().join(&name)).expect("there") == model);
    }
}

/// Space reserved behind the end is freed although the file had two descriptors.
#[tokio::test]
async fn the_last_close_frees_reserved_space() {
    let Some(dir) = disk() else { return };
    let vfs = tree(dir.path());
    std::fs::write(dir.path().join("f"), [1; 512]).expect("room");
    let node = existing(&*vfs, "f").await.node;
    node.set_allocation(&Ctx::default(), 1 << 20).wait().await.expect("reserved");
    assert_eq!(node.write(&PAST, 0, payload(&[2; 512])).wait().await, Ok(512));
    let blocks =
        || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(dir.path().join("f")).expect("there"));
    if blocks() * 512 < 1 << 20 {
        eprintln!("SKIPPED: nothing is reserved here");
        return;
    }
    drop(node);
    for _ in 0..1000 {
        if blocks() * 512 < 1 << 20 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{} blocks are still there", blocks());
}

/// On a file system without a cache to bypass, it is ordinary I/O.
#[tokio::test]
async fn in_memory_it_is_as_any_other() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("SKIPPED: no file system in memory here");
        return;
    };
    std::fs::write(dir.path().join("f"), [3; 8192]).expect("room");
    let vfs = tree(dir.path());
    let node = existing(&*vfs, "f").await.node;
    assert_eq!(node.write(&PAST, 4096, payload(&[4; 4096])).wait().await, Ok(4096));
    assert_eq!(read_at(&node, &PAST, 0, 8192).await, Ok([[3; 4096], [4; 4096]].concat()));
    assert!(host(&node).open.direct.get().is_none());
    assert!(host(&node).open.shared.device.warned_buffered.load(std::sync::atomic::Ordering::Relaxed));
}
