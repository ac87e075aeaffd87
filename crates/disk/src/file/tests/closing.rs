//! A closed disk can be reopened immediately, although the kernel's workers keep the file open for a short
//! time after its last I/O.

use std::ops::Range;
use std::path::Path;

use super::*;
use crate::loops::LoopDevice;

const ROUNDS: u64 = 300;

/// Flushes and discards, which the kernel leaves to workers; then the disk is closed.
async fn use_and_close(path: &Path, round: u64) {
    let path = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || open(&path)).await.expect("no panic");
    let d = opened.unwrap_or_else(|e| panic!("round {round}: {e}"));
    let c = Ctx::default();
    let ios: Vec<_> = (0..8).flat_map(|n| [d.flush(&c), d.discard(&c, n * 4096, 4096)]).collect();
    for io in ios {
        io.wait().await.expect("done");
    }
}

/// Uses a disk on one runtime, in a thread that ends with it; then as the server examines a disk, with a
/// thread and runtime for each time. The test's own thread does not use the disk: it waits for others without
/// running a runtime, so its ring would keep the file open.
fn reopened_many_times(path: &Path) {
    let rounds = |rounds: Range<u64>| {
        let path = path.to_owned();
        let uses = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            rounds.for_each(|round| runtime.block_on(use_and_close(&path, round)));
        };
        std::thread::spawn(uses).join().expect("no panic");
    };
    rounds(0..ROUNDS);
    (ROUNDS..2 * ROUNDS).for_each(|round| rounds(round..round + 1));
}

#[test]
fn a_file() {
    let folder = folder();
    drop(new_file(&folder, "a"));
    reopened_many_times(&folder.path().join("a"));
}

#[test]
fn a_device() {
    match LoopDevice::new(SIZE_MIN) {
        Ok(device) => reopened_many_times(&device.path),
        Err(e) => skipped!("no block device can be made here: {e}"),
    }
}
