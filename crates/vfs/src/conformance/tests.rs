//! The suite on the backends of this crate.

use std::path::Path;

use env::Env;

use super::{Subject, run_all, run_some};
use crate::{HostDir, HostDirOptions, RamFs, RamOptions};

fn arena() -> arena::Arena {
    arena::Arena::new(16 << 20).expect("a mapping")
}

/// Whether the file system at `path` takes `user.*` attributes.
fn takes_attributes(path: &Path) -> bool {
    rustix::fs::setxattr(path, "user.try", b"1", rustix::fs::XattrFlags::empty()).is_ok()
}

fn host(above: &Path, options: HostDirOptions) -> Subject {
    let directory = tempfile::tempdir_in(above).expect("a directory");
    let keeps_metadata = takes_attributes(directory.path());
    let vfs = HostDir::open(directory.path(), options).expect("a tree");
    Subject {
        vfs,
        arena: arena(),
        keeps_data: true,
        keeps_metadata,
        keeps_holes: true,
        links: true,
        any_file: true,
        keep: Box::new(directory),
    }
}

#[tokio::test]
async fn ram() {
    let env = Env::real();
    run_all(|| Subject {
        vfs: RamFs::new(&env, RamOptions::default()).expect("a mapping"),
        arena: arena(),
        keeps_data: true,
        keeps_metadata: true,
        keeps_holes: true,
        links: true,
        any_file: true,
        keep: Box::new(()),
    })
    .await;
}

#[tokio::test]
async fn null() {
    let env = Env::real();
    run_all(|| Subject {
        vfs: RamFs::null(&env, "null").expect("nothing to map"),
        arena: arena(),
        keeps_data: false,
        keeps_metadata: true,
        keeps_holes: false,
        links: true,
        any_file: true,
        keep: Box::new(()),
    })
    .await;
}

#[tokio::test]
async fn hostdir() {
    run_all(|| host(&std::env::temp_dir(), HostDirOptions::default())).await;
}

/// Simulates a network file system: no call completes at once, and nothing is cached.
#[tokio::test]
async fn hostdir_shared_with_others() {
    // Without the cache of names, creating 10,000 files reads the directory 10,000 times: too slow for a test.
    let options = || HostDirOptions { shared: true, ..Default::default() };
    run_some(|| host(&std::env::temp_dir(), options()), |name| name != "listing::ten_thousand").await;
}

/// Simulates a system that forbids io_uring.
#[tokio::test]
async fn hostdir_without_io_uring() {
    let options = || HostDirOptions { io_uring: false, ..Default::default() };
    run_some(|| host(&std::env::temp_dir(), options()), |name| name.starts_with("data::")).await;
}

/// A directory on a file system in memory: every call completes at once.
#[tokio::test]
async fn hostdir_in_memory() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        eprintln!("SKIPPED: there is no /dev/shm here, so hostdir was not tried on tmpfs");
        return;
    }
    run_all(|| host(memory, HostDirOptions::default())).await;
}
