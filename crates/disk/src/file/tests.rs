use std::process::Command;
use std::sync::Arc;

use arena::{Arena, Class, IoBuf, Sg, sg_slice};
use env::{Ctx, Env, Epoch};
use tempfile::TempDir;

use super::*;
use crate::conformance::{SIZE_MIN, bytes};
use crate::loops::{folder, skipped};
use crate::{IdKind, sized};

mod closing;
mod device;
mod locks;

fn new_file(folder: &TempDir, name: &str) -> Arc<FileDisk> {
    let options = FileOptions { create: Some(SIZE_MIN), ..FileOptions::default() };
    FileDisk::open(&Env::real(), &folder.path().join(name), &options).expect("a new file is a disk")
}

fn open(path: &std::path::Path) -> Result<Arc<FileDisk>, OpenError> {
    FileDisk::open(&Env::real(), path, &FileOptions::default())
}

async fn write(d: &FileDisk, offset: u64, data: Vec<u8>) -> Result<(), DiskError> {
    d.write(&Ctx::default(), offset, Sg::from_iter([IoBuf::from(data)])).wait().await
}

async fn read(d: &FileDisk, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
    let arena = Arena::new(2 * length).expect("a small mapping");
    let dst = sized(arena.try_alloc_sg(length, Class::Control).expect("it is empty"), length);
    let (result, dst) = d.read(&Ctx::default(), offset, dst).wait().await;
    result.map(|()| dst.iter().flat_map(|b| b.to_vec()).collect())
}

#[tokio::test]
async fn files_conform() {
    let (folder, arena) = (folder(), Arena::new(32 << 20).expect("a small mapping"));
    let mut n = 0;
    // With full queues, with a queue depth of one, and with registered memory.
    for (depth, fixed) in [(None, false), (Some(1), false), (None, true)] {
        crate::conformance::run(&arena, || {
            n += 1;
            let create = Some(SIZE_MIN + 4096 * n);
            let arena = fixed.then(|| arena.clone());
            let options = FileOptions { create, arena, queue_depth: depth, ..FileOptions::default() };
            let disk = FileDisk::open(&Env::real(), &folder.path().join(n.to_string()), &options);
            async move { disk.expect("a new file is a disk") as Arc<dyn Disk> }
        })
        .await;
    }
}

/// Later writes are lost when it is closed, although they succeed.
#[tokio::test]
async fn a_file_that_was_removed_or_truncated_is_gone() {
    let folder = folder();
    let c = Ctx::default();
    let gone = Err(DiskError::Gone { at: IoRange::whole(Op::Check) });
    let d = new_file(&folder, "removed");
    assert_eq!(d.check(&c).wait().await, Ok(()));
    std::fs::remove_file(folder.path().join("removed")).expect("removed");
    write(&d, 0, bytes(1, 4096)).await.expect("the kernel takes it");
    assert_eq!(d.check(&c).wait().await, gone);

    let d = new_file(&folder, "truncated");
    let size = |n| std::fs::OpenOptions::new().write(true).open(&d.info().path).and_then(|f| f.set_len(n));
    size(SIZE_MIN - 4096).expect("shorter");
    assert_eq!(d.check(&c).wait().await, gone);
    size(SIZE_MIN + 4096).expect("longer");
    assert_eq!(d.check(&c).wait().await, Ok(()), "it has room for all that a disk of its size has");
    std::fs::rename(&d.info().path, folder.path().join("elsewhere")).expect("renamed");
    assert_eq!(d.check(&c).wait().await, Ok(()), "a label is found anywhere");
}

#[tokio::test]
async fn memory_is_registered_as_it_is_used() {
    let (folder, arena) = (folder(), Arena::new(10 << 20).expect("a small mapping"));
    let options = |name: &str, arena| {
        let options = FileOptions { create: Some(SIZE_MIN), arena, ..FileOptions::default() };
        FileDisk::open(&Env::real(), &folder.path().join(name), &options).expect("a disk")
    };
    let without = options("without", None);
    let with = options("with", Some(arena.clone()));
    assert_eq!(
        (without.fixed_buffers(), with.fixed_buffers()),
        (FixedBuffers::NotRequested, FixedBuffers::NotYet)
    );
    let (mut held, mut seen) = (Vec::new(), Vec::new());
    while let Some(mut buffer) = arena.try_alloc(1 << 20, Class::Control) {
        let data = crate::conformance::bytes(held.len() as u64, 1 << 20);
        buffer.append(&data);
        let buffer = buffer.freeze();
        held.push(buffer.clone());
        with.write(&Ctx::default(), 0, Sg::from_iter([buffer])).wait().await.expect("written");
        assert!(read(&with, 0, 1 << 20).await == Ok(data));
        seen.push(with.fixed_buffers());
    }
    let of = |state: &FixedBuffers| match state {
        FixedBuffers::Registered { bytes } => *bytes,
        FixedBuffers::Refused { bytes, errno } => {
            eprintln!("here it is {state} (error {errno})");
            *bytes
        }
        other => panic!("{other}"),
    };
    let bytes: Vec<usize> = seen.iter().map(of).collect();
    assert!(bytes.is_sorted() && bytes.iter().all(|b| *b <= arena.usage().budget), "{bytes:?}");
    if let Some(FixedBuffers::Registered { bytes: all }) = seen.last() {
        assert_eq!((held.len(), *all), (10, arena.usage().budget));
        assert!(bytes[0] < *all, "unused memory is not locked: {bytes:?}");
    }
}

#[tokio::test]
async fn opening_says_what_is_wrong() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    assert!(matches!(open(&at("none")), Err(OpenError::Path { .. })));
    assert!(matches!(open(folder.path()), Err(OpenError::NotADisk { .. })));
    assert!(matches!(open("/dev/null".as_ref()), Err(OpenError::NotADisk { .. })));
    std::fs::write(at("short"), [0; 100]).expect("written");
    assert!(matches!(open(&at("short")), Err(OpenError::TooSmall { size: 100, .. })));
    let first = new_file(&folder, "disk");
    assert!(matches!(open(&at("disk")), Err(OpenError::InUse { .. })));
    let create = FileOptions { create: Some(SIZE_MIN), ..FileOptions::default() };
    assert!(matches!(FileDisk::open(&Env::real(), &at("disk"), &create), Err(OpenError::Path { .. })));
    drop(first);
    let read_only = FileOptions { read_only: true, ..FileOptions::default() };
    let d = FileDisk::open(&Env::real(), &at("disk"), &read_only).expect("opened again");
    let refused = |op| Err(DiskError::ReadOnly { at: IoRange::new(op, 0, 4096) });
    assert_eq!(write(&d, 0, vec![1; 4096]).await, refused(Op::Write));
    assert_eq!(d.discard(&Ctx::default(), 0, 4096).wait().await, refused(Op::Discard));
    assert_eq!(read(&d, 0, 4096).await, Ok(vec![0; 4096]));
}

#[tokio::test]
async fn a_file_knows_itself_and_its_copies() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let id = new_file(&folder, "a").info().id.clone();
    let other = new_file(&folder, "b").info().id.clone();
    assert_ne!(id, other);
    if id.kind != IdKind::File {
        return skipped!("this file system keeps no extended attributes");
    }
    std::fs::rename(at("a"), at("moved")).expect("renamed");
    assert_eq!(open(&at("moved")).expect("opened").info().id, id, "another name, the same file");
    let copied = Command::new("cp").args(["--archive"]).arg(at("moved")).arg(at("copy")).status();
    assert!(copied.expect("cp is there").success());
    let copy = open(&at("copy")).expect("opened").info().id.clone();
    assert!(copy != id && copy.kind == IdKind::File, "a copy is another disk");
    assert_eq!(open(&at("copy")).expect("opened").info().id, copy, "and stays so");
}

#[tokio::test]
async fn a_hole_is_given_back() {
    use std::os::unix::fs::MetadataExt;
    let folder = folder();
    let d = new_file(&folder, "a");
    let blocks = || std::fs::metadata(folder.path().join("a")).expect("it is there").blocks();
    write(&d, 0, bytes(1, 2 << 20)).await.expect("written");
    d.flush(&Ctx::default()).wait().await.expect("flushed");
    let before = blocks();
    d.discard(&Ctx::default(), 0, 1 << 20).wait().await.expect("discarded");
    assert!(blocks() + 1024 <= before, "{} blocks of {before} are left", blocks());
    assert_eq!(read(&d, 1 << 20, 1 << 20).await.as_deref(), Ok(&bytes(1, 2 << 20)[1 << 20..]));
}

#[tokio::test]
async fn reserved_ranges_are_allocated() {
    use std::os::unix::fs::MetadataExt;
    let folder = folder();
    let path = folder.path().join("a");
    drop(new_file(&folder, "a"));
    let blocks = || std::fs::metadata(&path).expect("it is there").blocks();
    let before = blocks();
    let reserve = vec![0..1 << 20, SIZE_MIN - 4096..2 * SIZE_MIN];
    let options = FileOptions { reserve: reserve.clone(), ..FileOptions::default() };
    let d = FileDisk::open(&Env::real(), &path, &options).expect("there is room");
    let reserved = blocks();
    assert!(reserved >= before + (1 << 20) / 512 + 8, "{before} blocks were {reserved} then");
    assert_eq!(d.info().geometry.size, SIZE_MIN, "and no longer than it was");
    write(&d, 0, bytes(1, 8192)).await.expect("written");
    drop(d);
    // Reserving again changes nothing, and a read-only disk reserves nothing.
    let d = FileDisk::open(&Env::real(), &path, &options).expect("there is room");
    assert_eq!(read(&d, 0, 8192).await, Ok(bytes(1, 8192)));
    drop(d);
    drop(new_file(&folder, "b"));
    let options = FileOptions { reserve, read_only: true, ..FileOptions::default() };
    drop(FileDisk::open(&Env::real(), &folder.path().join("b"), &options).expect("it may be read"));
    assert!(std::fs::metadata(folder.path().join("b")).expect("it is there").blocks() < reserved);
}

/// The file is truncated by another process: an error that names the missing range, not zeros.
#[tokio::test]
async fn a_file_cut_off_is_a_medium_error() {
    let folder = folder();
    let d = new_file(&folder, "a");
    let file = std::fs::OpenOptions::new().write(true).open(folder.path().join("a")).expect("opened");
    file.set_len(8192).expect("cut off");
    assert_eq!(read(&d, 4096, 4096).await, Ok(vec![0; 4096]));
    let at = IoRange::new(Op::Read, 8192, 8192);
    assert_eq!(read(&d, 4096, 12288).await, Err(DiskError::Medium { at }));
}

/// One disk, four threads: each has its ring, and the fence waits for all of them.
#[test]
fn threads_have_rings_of_their_own() {
    let folder = folder();
    let d = new_file(&folder, "a");
    std::thread::scope(|scope| {
        for n in 0..4u64 {
            let d = &d;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    for i in 0..32 {
                        write(d, (n * 32 + i) * 4096, bytes(n * 32 + i, 4096)).await.expect("written");
                    }
                });
            });
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let c = Ctx { epoch: Epoch(1), ..Ctx::default() };
        d.fence(&c, Epoch(1)).wait().await.expect("fenced");
        d.flush(&c).wait().await.expect("flushed");
    });
    let found = std::fs::read(folder.path().join("a")).expect("read");
    for i in 0..128 {
        assert!(found[i * 4096..(i + 1) * 4096] == bytes(i as u64, 4096), "block {i}");
    }
}

/// Started I/Os complete after the runtime has ended, and leave nothing behind; the next runtime starts
/// afresh.
#[test]
fn a_runtime_ends_with_its_io() {
    let (folder, arena) = (folder(), Arena::new(8 << 20).expect("a small mapping"));
    let d = new_file(&folder, "a");
    for round in 0..10u64 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut b = arena.try_alloc(1 << 20, Class::Payload).expect("room");
            b.append(&bytes(round, 1 << 20));
            let b = b.freeze();
            for i in 0..256 {
                let piece = sg_slice(std::slice::from_ref(&b), i * 4096, 4096);
                drop(d.write(&Ctx::default(), i as u64 * 4096, piece));
            }
        });
        drop(runtime);
        assert_eq!((arena.usage().used, d.target.gate.in_flight()), (0, 0), "round {round}");
        assert!(std::fs::read(folder.path().join("a")).expect("read")[..1 << 20] == bytes(round, 1 << 20));
    }
}

#[tokio::test]
async fn the_kernels_answers_are_understood() {
    let folder = folder();
    let d = new_file(&folder, "a");
    let (send, _receive) = tokio::sync::oneshot::channel();
    let at = IoRange::new(Op::Write, 4096, 8192);
    let admitted = d.enter(&Ctx::default(), at).expect("not fenced");
    let work = Work::write(Reply::Channel(send), Sg::from_iter([IoBuf::from(vec![0; 8192])]), 512, 512);
    let mut job = Job { admitted, work, at, write_through: false, done: 0, retries: 0 };
    let finished = |outcome| match outcome {
        job::Verdict::Finished(result) => Some(result),
        job::Verdict::Resubmit => None,
    };
    let rest = IoRange::new(Op::Write, 8192, 4096);
    assert_eq!(finished(job.interpret(-libc::EINTR)), None);
    assert_eq!(finished(job.interpret(4096)), None, "half of it");
    for (errno, expected) in [
        (libc::EIO, DiskError::Medium { at: rest }),
        (libc::ENODATA, DiskError::Medium { at: rest }),
        (libc::EILSEQ, DiskError::Medium { at: rest }),
        (libc::ENODEV, DiskError::Gone { at: rest }),
        (libc::ENXIO, DiskError::Gone { at: rest }),
        (libc::ENOSPC, DiskError::Full { at: rest }),
        (libc::EDQUOT, DiskError::Full { at: rest }),
        (libc::ETIMEDOUT, DiskError::Timeout { at: rest }),
        (libc::EBADF, DiskError::Refused { at: rest, errno: libc::EBADF }),
    ] {
        assert_eq!(finished(job.interpret(-errno)), Some(Err(expected)));
    }
    assert_eq!(finished(job.interpret(4096)), Some(Ok(())));
    job.retries = 1000;
    assert!(
        matches!(finished(job.interpret(-libc::EAGAIN)), Some(Err(DiskError::Refused { .. }))),
        "not for ever"
    );
    job.at.op = Op::Discard;
    assert_eq!(finished(job.interpret(-libc::EOPNOTSUPP)), Some(Ok(())), "a hint");
    assert!(matches!(finished(job.interpret(-libc::EIO)), Some(Err(DiskError::Medium { .. }))));
}

/// A failed write-through write may have lost other writes in its flush: nothing is durable any more.
#[tokio::test]
async fn a_failed_flush_latches() {
    let folder = folder();
    let d = new_file(&folder, "a");
    let failed = Err(DiskError::Medium { at: IoRange::whole(Op::Flush) });
    assert_eq!(d.target.latch.record(failed), failed);
    assert_eq!(d.flush(&Ctx::default()).wait().await, failed);
    let mut through = Ctx::default();
    through.flags.write_through = true;
    let data = Sg::from_iter([IoBuf::from(vec![1; 4096])]);
    assert_eq!(d.write(&through, 0, data).wait().await, failed);
    assert_eq!(write(&d, 0, vec![1; 4096]).await, Ok(()));
}
