use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use arena::{Arena, Class, PipedPayload, Pipes};
use rustix::io::Errno;

use super::store_all;
use crate::VfsError;

/// A pipe with `bytes` in it.
fn piped(bytes: &[u8]) -> PipedPayload {
    let arena = Arena::new(2 << 20).expect("a small mapping");
    let memory = arena.try_alloc_sg(bytes.len(), Class::Payload).expect("there is memory");
    let mut piped = Pipes::new(1).take(memory, bytes.len()).expect("a pipe");
    let (mut one, two) = UnixStream::pair().expect("a pair");
    one.write_all(bytes).expect("sent");
    while !piped.is_whole() {
        piped.fill(&two).expect("spliced");
    }
    piped
}

#[test]
fn at_its_offset_and_once_more_over_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("f");
    let fd: OwnedFd = File::create(&path).expect("created").into();
    let splices = AtomicBool::new(true);
    let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    store_all(&fd, 5000, piped(&bytes), &splices).expect("stored");
    store_all(&fd, 5001, piped(&bytes[1..3]), &splices).expect("stored");
    let stored = std::fs::read(&path).expect("read");
    assert!(stored[..5000].iter().all(|&b| b == 0) && stored[5000..] == bytes);
    assert!(splices.load(Ordering::Relaxed));
}

/// If a file refuses splicing (here: it is open for appending), this write and all later ones come from memory.
#[test]
fn a_file_that_refuses_pipes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("f");
    let fd: OwnedFd = OpenOptions::new().create(true).append(true).open(&path).expect("created").into();
    let splices = AtomicBool::new(true);
    store_all(&fd, 0, piped(b"all of it"), &splices).expect("stored");
    assert_eq!(std::fs::read(&path).expect("read"), b"all of it");
    assert!(!splices.load(Ordering::Relaxed));
}

/// Writing to a full disk after a refused splice reports an error, and so does writing to a read-only descriptor.
#[test]
fn failures_are_told() {
    let full: OwnedFd = OpenOptions::new().write(true).open("/dev/full").expect("Linux").into();
    let splices = AtomicBool::new(true);
    assert_eq!(store_all(&full, 0, piped(b"x"), &splices), Err(Errno::NOSPC.into()));
    let reader: OwnedFd = File::open("/dev/null").expect("Linux").into();
    assert_eq!(store_all(&reader, 0, piped(b"x"), &splices), Err(VfsError::from(Errno::BADF)));
}
