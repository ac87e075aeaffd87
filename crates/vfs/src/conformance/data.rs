//! Reading and writing.

use std::os::fd::AsFd;

use arena::Class;
use env::{Ctx, IoFlags};

use super::{Subject, path, pattern, payload};
use crate::{Data, OpenRequest, ReadOptions, Rights, VfsError};

/// Reads of every alignment around the borders of pages, blocks and chunks.
pub(super) async fn boundaries(s: &Subject) {
    let f = s.file("f").await;
    let data = pattern(5, 3 << 20);
    s.write(&*f.node, 0, &data).await;
    for border in [0u64, 1, 4096, 65_536, 1 << 20, 2 << 20, 3 << 20] {
        for before in [0u64, 1, 100] {
            for length in [1u32, 2, 4095, 4096, 65_535, 65_537, (1 << 20) + 1, 5 << 19] {
                let start = border.saturating_sub(before);
                let end = (start + u64::from(length)).min(data.len() as u64).max(start);
                s.expect(&*f.node, start, length, &data[start as usize..end as usize]).await;
            }
        }
    }
    let small = pattern(6, 300);
    for at in [0usize, 4000, 65_500, (1 << 20) - 1, 2_000_000] {
        s.write(&*f.node, at as u64, &small).await;
        s.expect(&*f.node, at as u64, 300, &small).await;
        s.expect(&*f.node, at as u64 + 300, 10, &data[at + 300..at + 310]).await;
    }
    assert_eq!(s.stat(&*f.node).await.size, data.len() as u64);
}

/// A read at the end of file returns fewer bytes; a read behind it returns none.
pub(super) async fn end_of_file(s: &Subject) {
    let (c, f) = (Ctx::default(), s.file("f").await);
    s.expect(&*f.node, 0, 100, &[]).await;
    s.write(&*f.node, 0, b"hello").await;
    s.expect(&*f.node, 0, 1 << 20, b"hello").await;
    s.expect(&*f.node, 4, 10, b"o").await;
    for offset in [5, 6, 4096, 1 << 40, i64::MAX as u64, u64::MAX - 5, u64::MAX] {
        s.expect(&*f.node, offset, 10, &[]).await;
    }
    s.expect(&*f.node, 0, 0, &[]).await;
    assert_eq!(f.node.write(&c, 100, payload(&[], 1)).wait().await, Ok(0));
    assert_eq!(s.stat(&*f.node).await.size, 5, "nothing written, nothing extended");
    for offset in [i64::MAX as u64, u64::MAX] {
        let refused = f.node.write(&c, offset, payload(b"x", 1)).wait().await;
        assert_eq!(refused, Err(VfsError::TooLarge));
    }
    s.write(&*f.node, 10, b"gap").await;
    s.expect(&*f.node, 0, 100, b"hello\0\0\0\0\0gap").await;
    // A file that was opened without write access can be read.
    let request =
        OpenRequest { rights: Rights { read: true, write: false }, ..OpenRequest::for_metadata(path("f")) };
    let reader = s.vfs.open(&c, request).wait().await.expect("there");
    s.expect(&*reader.node, 10, 100, b"gap").await;
}

/// The end of file moves; the new range reads as zero.
pub(super) async fn lengths(s: &Subject) {
    let (c, f) = (Ctx::default(), s.file("f").await);
    let data = pattern(7, 200_000);
    s.write(&*f.node, 0, &data).await;
    for len in [150_000usize, 70_001, 65_536, 5] {
        f.node.set_len(&c, len as u64).wait().await.expect("shorter");
        assert_eq!(s.stat(&*f.node).await.size, len as u64);
        s.expect(&*f.node, 0, 300_000, &data[..len]).await;
    }
    f.node.set_len(&c, 100_000).wait().await.expect("longer");
    s.expect(&*f.node, 0, 5, &data[..5]).await;
    s.expect(&*f.node, 5, 200_000, &vec![0; 99_995]).await;
    assert_eq!(f.node.set_len(&c, u64::MAX).wait().await, Err(VfsError::TooLarge));
    f.node.set_len(&c, 0).wait().await.expect("empty");
    s.expect(&*f.node, 0, 10, &[]).await;
}

/// Many writes at a time into one file and into several.
pub(super) async fn concurrent_writes(s: &Subject) {
    const N: usize = 64;
    const LENGTH: usize = 8192;
    let files = [s.file("a").await, s.file("b").await, s.existing("A").await];
    let data = pattern(8, N * LENGTH);
    for turn in 0..4 {
        let mut waiting = Vec::new();
        for i in (0..N).map(|i| (i * 37 + turn) % N) {
            let part = &data[i * LENGTH..(i + 1) * LENGTH];
            for f in [&files[0], &files[1]] {
                let offset = (i * LENGTH) as u64;
                waiting.push(f.node.write(&Ctx::default(), offset, payload(part, 3000)));
            }
        }
        for write in waiting.into_iter().rev() {
            assert_eq!(write.wait().await, Ok(LENGTH as u32));
        }
        for f in &files {
            assert_eq!(s.stat(&*f.node).await.size, data.len() as u64);
            s.expect(&*f.node, 0, data.len() as u32, &data).await;
        }
    }
}

/// Write-through writes, and flushes of a file and a directory.
pub(super) async fn durable(s: &Subject) {
    let (f, d) = (s.file("f").await, s.directory("d").await);
    let c = Ctx { flags: IoFlags { write_through: true, unbuffered: false }, ..Ctx::default() };
    let waiting: Vec<_> =
        (0..4u64).map(|i| f.node.write(&c, i * 100_000, payload(&[i as u8 + 1; 100_000], 30_000))).collect();
    for write in waiting {
        assert_eq!(write.wait().await, Ok(100_000));
    }
    s.expect(&*f.node, 99_999, 2, &[1, 2]).await;
    f.node.flush(&c).wait().await.expect("flushed");
    d.node.flush(&c).wait().await.expect("flushed");
    // Closing reports no failure, and the file is still usable.
    s.write(&*f.node, 400_000, &[5; 100_000]).await;
    for node in [&f.node, &d.node, &f.node] {
        node.close(&c).wait().await.expect("stored");
    }
    s.expect(&*f.node, 499_999, 2, &[5]).await;
}

/// When a read returns a descriptor instead of bytes, it has those bytes.
pub(super) async fn descriptor(s: &Subject) {
    let f = s.file("f").await;
    let data = pattern(10, 704_512);
    s.write(&*f.node, 0, &data).await;
    for (offset, length) in
        [(0u64, 704_512u32), (5, 65_536), (600_000, 512_000), (0, 8192), (704_512, 65_536)]
    {
        let want = ReadOptions { length, arena: &s.arena, file_ok: true };
        let expected = &data[offset as usize..(offset as usize + length as usize).min(data.len())];
        match f.node.read(&Ctx::default(), offset, want).wait().await.expect("a read") {
            Data::File { fd, offset: at, length: n } => {
                assert_eq!((at, n as usize), (offset, expected.len()), "inside the file");
                let mut bytes = vec![0; expected.len()];
                assert_eq!(rustix::io::pread(fd.as_fd(), &mut bytes, at), Ok(bytes.len()));
                assert!(bytes == expected);
            }
            Data::Bufs(_) => s.expect(&*f.node, offset, length, expected).await,
        }
    }
}

/// An exhausted arena makes reads wait, not fail.
pub(super) async fn no_memory(s: &Subject) {
    let f = s.file("f").await;
    let data = pattern(11, 102_400);
    s.write(&*f.node, 0, &data).await;
    let mut held = Vec::new();
    while let Some(b) = s.arena.try_alloc(4096, Class::Payload) {
        held.push(b);
    }
    let want = || ReadOptions { length: 102_400, arena: &s.arena, file_ok: false };
    let reads = (0..3).map(|_| tokio::spawn(f.node.read(&Ctx::default(), 0, want()).wait()));
    let reads: Vec<_> = reads.collect();
    drop(f.node.read(&Ctx::default(), 0, want())); // the future is dropped
    tokio::task::yield_now().await;
    drop(held);
    for read in reads {
        let read = read.await.expect("no panic").expect("memory again");
        assert_eq!(read.len(), data.len());
    }
    s.expect(&*f.node, 0, 102_400, &data).await;
}

/// A directory has no data.
pub(super) async fn directory(s: &Subject) {
    let (c, d) = (Ctx::default(), s.directory("d").await);
    assert_eq!(s.read(&*d.node, 0, 10).await.err(), Some(VfsError::IsDirectory));
    assert_eq!(d.node.write(&c, 0, payload(b"x", 1)).wait().await.err(), Some(VfsError::IsDirectory));
    assert_eq!(d.node.set_len(&c, 0).wait().await.err(), Some(VfsError::IsDirectory));
    assert_eq!(d.node.zero(&c, 0..1).wait().await.err(), Some(VfsError::IsDirectory));
    assert_eq!(d.node.allocated(&c, 0..1, 9).wait().await.err(), Some(VfsError::IsDirectory));
    assert_eq!(s.stat(&*d.node).await.size, 0);
}
