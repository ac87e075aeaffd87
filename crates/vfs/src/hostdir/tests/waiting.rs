//! Which calls complete at once and which go to the pool.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use env::Io;
use rustix::fs::{Advice, fadvise};

use super::*;
use crate::ReportChange;
use crate::hostdir::cached::resident;

/// The pool reads data that is not in the page cache; cached data is read at once. The kernel may read ahead during the
/// test, or evict pages that it has just read: each case occurs at least once in some tries, and the bytes are right in
/// all of them.
#[tokio::test]
async fn a_cold_file_does_not_block() {
    const LENGTH: u64 = 1 << 20;
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, c, arena) = (tree(dir.path()), Ctx::default(), arena());
    let node = open(&*vfs, "f", OpenMode::Create).await.expect("made").node;
    let data: Vec<u8> = (0..LENGTH).map(|i| (i / 4096) as u8).collect();
    node.write(&c, 0, payload(&data)).wait().await.expect("room");
    node.flush(&c).wait().await.expect("flushed");
    let file = std::fs::File::open(dir.path().join("f")).expect("there");
    let want = || ReadOptions { length: LENGTH as u32, arena: &arena, file_ok: true };
    let (mut waited, mut at_once) = (false, false);
    for _ in 0..20 {
        fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
        match resident(file.as_fd(), 0, LENGTH) {
            Some(false) => {}
            _ => return eprintln!("SKIPPED: the page cache cannot be emptied or asked here"),
        }
        let cold = node.read(&c, 0, want());
        waited |= matches!(cold, Io::Pending(_));
        let Ok(Data::Bufs(sg)) = cold.wait().await else { panic!("bytes: it was not in memory") };
        assert!(sg_to_vec(&sg) == data);
        let warm = node.read(&c, 0, want());
        at_once |= matches!(&warm, Io::Done(Ok(Data::File { length, .. })) if u64::from(*length) == LENGTH);
        if waited && at_once {
            break;
        }
    }
    assert!(waited, "it would have blocked");
    assert!(at_once, "it was in memory");
    let small = ReadOptions { length: 8192, arena: &arena, file_ok: true };
    assert!(
        matches!(node.read(&c, LENGTH - 100, small).wait().await, Ok(Data::Bufs(sg)) if arena::sg_len(&sg) == 100)
    );
    assert!(matches!(node.stat(&c), Io::Done(Ok(_))));
}

/// Half of the file is in memory: the pool reads the rest, and all bytes are right.
#[tokio::test]
async fn a_lukewarm_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, c) = (tree(dir.path()), Ctx::default());
    let node = open(&*vfs, "f", OpenMode::Create).await.expect("made").node;
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 1000) as u8).collect();
    node.write(&c, 0, payload(&data)).wait().await.expect("room");
    node.flush(&c).wait().await.expect("flushed");
    let file = std::fs::File::open(dir.path().join("f")).expect("there");
    for cold in [0u64, 4096, 1 << 20, 2 << 20] {
        fadvise(&file, cold, std::num::NonZero::new(500_000), Advice::DontNeed).expect("advice");
        assert!(read(&*node, 4_000_000).await == data);
    }
}

/// A file system that refuses RWF_NOWAIT is served by the pool.
#[tokio::test]
async fn without_nowait() {
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, c) = (tree(dir.path()), Ctx::default());
    let node = open(&*vfs, "f", OpenMode::Create).await.expect("made").node;
    node.write(&c, 0, payload(b"hello")).wait().await.expect("room");
    let device = vfs.tree.devices.lock().values().next().map(Arc::clone).expect("the root's");
    if device.memory {
        return eprintln!("SKIPPED: this is a file system in memory");
    }
    device.nowait_reads.store(false, Ordering::Relaxed);
    device.nowait_writes.store(false, Ordering::Relaxed);
    assert_eq!(read(&*node, 100).await, b"hello");
    node.write(&c, 3, payload(b"p!")).wait().await.expect("room");
    assert_eq!(read(&*node, 100).await, b"help!");
}

/// Reserved space is freed with the last open, whichever that is, and only if no other process has the file open.
#[tokio::test]
async fn reserved_space_is_given_back() {
    use std::os::unix::fs::MetadataExt;
    for above in [std::env::temp_dir(), "/dev/shm".into()] {
        let Ok(dir) = tempfile::tempdir_in(above) else { continue };
        let options = HostDirOptions { threads: 1, ..Default::default() };
        let (vfs, c) = (HostDir::open(dir.path(), options).expect("a directory"), Ctx::default());
        let file = dir.path().join("f");
        let taken = || std::fs::metadata(&file).expect("there").blocks() * 512;
        for (elsewhere, reads_last) in [(false, false), (false, true), (true, false)] {
            let f = open(&*vfs, "f", OpenMode::OpenOrCreate).await.expect("made").node;
            f.write(&c, 0, payload(b"data")).wait().await.expect("room");
            f.set_allocation(&c, 4 << 20).wait().await.expect("room");
            let change = crate::BasicChange {
                written: Some(crate::Timestamp { seconds: 1000, nanoseconds: 0 }),
                ..Default::default()
            };
            f.set_basic(&c, change).wait().await.expect("times");
            if taken() < 4 << 20 {
                return eprintln!("SKIPPED: nothing can be reserved here");
            }
            let mut reader = request("f", OpenMode::Open, None);
            reader.rights.write = false;
            let reader = vfs.open(&c, reader).wait().await.expect("there").node;
            let other = elsewhere.then(|| std::fs::File::open(&file).expect("there"));
            let (first, last) = if reads_last { (f, reader) } else { (reader, f) };
            drop(first);
            vfs.tree.pool.run(|| ()).await;
            assert!(taken() >= 4 << 20, "it is open");
            drop(last);
            vfs.tree.pool.run(|| ()).await;
            assert_eq!(taken() >= 4 << 20, elsewhere);
            assert_eq!(std::fs::read(&file).expect("there"), b"data");
            assert_eq!(std::fs::metadata(&file).expect("there").mtime(), 1000);
            drop(other);
        }
    }
}

/// How many descriptors of `path` this process has.
fn descriptors(path: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("proc");
    all.filter_map(|e| std::fs::read_link(e.ok()?.path()).ok())
        .filter(|p| p.to_string_lossy().trim_end_matches(" (deleted)") == path.to_string_lossy())
        .count()
}

/// The pool closes files that were written or have no name any more; files that were only read are closed at once.
#[tokio::test]
async fn closing_does_not_block() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = HostDirOptions { threads: 1, ..Default::default() };
    let (vfs, c) = (HostDir::open(dir.path(), options).expect("a directory"), Ctx::default());
    if vfs.tree.all_memory.load(Ordering::Relaxed) {
        return eprintln!("SKIPPED: this is a file system in memory");
    }
    let file = dir.path().join("f");
    std::fs::write(&file, "data").expect("room");
    let reader = || async {
        let mut r = request("f", OpenMode::Open, None);
        r.rights.write = false;
        vfs.open(&c, r).wait().await.expect("there").node
    };
    let (writer, reads, orphan) = (existing(&*vfs, "f").await.node, reader().await, reader().await);
    let (release, held) = std::sync::mpsc::channel::<()>();
    let busy = vfs.tree.pool.run(move || held.recv());
    assert_eq!(descriptors(&file), 3);
    drop(reads);
    assert_eq!(descriptors(&file), 2, "at once");
    drop(writer);
    assert_eq!(descriptors(&file), 2, "the pool's only thread is busy");
    std::fs::remove_file(&file).expect("there");
    drop(orphan);
    assert_eq!(descriptors(&file), 2);
    release.send(()).expect("it waits");
    busy.await.expect("released");
    vfs.tree.pool.run(|| ()).await;
    assert_eq!(descriptors(&file), 0);
}

/// The open of a file on which a local process holds a lease waits until the lease is released, and no other call
/// waits.
#[tokio::test]
async fn a_lease_is_waited_for() {
    for above in [std::env::temp_dir(), "/dev/shm".into()] {
        let Ok(dir) = tempfile::tempdir_in(above) else { continue };
        let vfs = tree(dir.path());
        std::fs::write(dir.path().join("f"), "data").expect("room");
        std::fs::write(dir.path().join("g"), "other").expect("room");
        let holder = std::fs::File::open(dir.path().join("f")).expect("there");
        if !lease(&holder, libc::F_RDLCK) {
            eprintln!("SKIPPED: no lease can be had here");
            continue;
        }
        let waiting = tokio::spawn({
            let vfs = Arc::clone(&vfs);
            async move { open(&*vfs, "f", OpenMode::Open).await.map(|o| o.node) }
        });
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert_eq!(read(&*existing(&*vfs, "g").await.node, 10).await, b"other");
        assert!(!waiting.is_finished());
        assert!(lease(&holder, libc::F_UNLCK));
        let node = waiting.await.expect("no panic").expect("free now");
        assert_eq!(read(&*node, 10).await, b"data");
    }
}

/// The same wait, for a name that differs in case and that the call could create: other names in the directory can
/// change during the wait.
#[tokio::test]
async fn a_lease_is_waited_for_without_the_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let vfs = tree(dir.path());
    std::fs::write(dir.path().join("f"), "data").expect("room");
    let holder = std::fs::File::open(dir.path().join("f")).expect("there");
    if !lease(&holder, libc::F_RDLCK) {
        return eprintln!("SKIPPED: no lease can be had here");
    }
    let waiting = tokio::spawn({
        let vfs = Arc::clone(&vfs);
        async move { open(&*vfs, "F", OpenMode::OpenOrCreate).await.map(|o| (o.created, o.node)) }
    });
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let beside = open(&*vfs, "g", OpenMode::Create);
    let made = tokio::time::timeout(std::time::Duration::from_secs(10), beside).await;
    assert!(made.expect("it need not wait").is_ok() && !waiting.is_finished());
    assert!(lease(&holder, libc::F_UNLCK));
    assert!(!waiting.await.expect("no panic").expect("free now").0);
}

/// Acquires or releases a lease; the signal of the lease break has no effect.
#[allow(unsafe_code)] // rustix has no leases
fn lease(file: &std::fs::File, kind: i32) -> bool {
    use std::os::fd::AsRawFd;
    const F_SETSIG: i32 = 10;
    // SAFETY: both calls take numbers only.
    unsafe {
        libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0
    }
}

/// A write that fails without waiting is retried in the pool, where it may wait, and fails there.
#[tokio::test]
async fn only_success_is_taken_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, c) = (tree(dir.path()), Ctx::default());
    std::fs::write(dir.path().join("f"), "data").expect("room");
    let mut r = request("f", OpenMode::Open, None);
    r.rights.write = false;
    let f = vfs.open(&c, r).wait().await.expect("there").node;
    if vfs.tree.all_memory.load(Ordering::Relaxed) {
        return eprintln!("SKIPPED: this is a file system in memory");
    }
    let write = f.write(&c, 0, payload(b"x"));
    assert!(matches!(write, Io::Pending(_)));
    assert_eq!(write.wait().await, Err(VfsError::AccessDenied), "not open for writing");
}

/// A write whose future is dropped is still written, in its order.
#[tokio::test]
async fn issued_and_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, c) = (tree(dir.path()), Ctx::default());
    let node = open(&*vfs, "f", OpenMode::Create).await.expect("made").node;
    for _ in 0..100 {
        drop(node.write(&c, 0, payload(b"first")));
        node.write(&c, 0, payload(b"FIR")).wait().await.expect("room");
        assert_eq!(read(&*node, 100).await, b"FIRst");
        node.set_len(&c, 0).wait().await.expect("empty");
    }
}

/// Watches of whole trees that take long to begin leave threads for other slow jobs.
#[tokio::test]
async fn walks_of_whole_trees_run_one_at_a_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let vfs = tree(dir.path());
    vfs.tree.all_memory.store(false, Ordering::Relaxed);
    let report: ReportChange = Arc::new(|_| {});
    let walks: Vec<_> = {
        let _held = vfs.tree.changes.lock();
        let walks = (0..8).map(|_| vfs.watch(&VfsPath::root(), true, &report)).collect();
        let (done, wait) = mpsc::channel();
        drop(vfs.tree.pool.run_slow(move || done.send(())));
        wait.recv_timeout(Duration::from_secs(20)).expect("a thread is free");
        walks
    };
    for walk in walks {
        assert!(walk.wait().await.is_some());
    }
}
