//! Who closes a disk may open it again at once: the kernel's workers hold an open file for some moments after its last I/O.

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

/// On one runtime; and as the server looks at a disk, in a thread and a runtime that end with it.
fn again_and_again(path: &Path) {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let one = runtime();
    (0..ROUNDS).for_each(|round| one.block_on(use_and_close(path, round)));
    for round in ROUNDS..2 * ROUNDS {
        let path = path.to_owned();
        std::thread::spawn(move || runtime().block_on(use_and_close(&path, round))).join().expect("no panic");
    }
}

#[test]
fn a_file() {
    let folder = folder();
    drop(new_file(&folder, "a"));
    again_and_again(&folder.path().join("a"));
}

#[test]
fn a_device() {
    match LoopDevice::new(SIZE_MIN) {
        Ok(device) => again_and_again(&device.path),
        Err(e) => skipped!("no block device can be made here: {e}"),
    }
}
