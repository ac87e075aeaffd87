//! Logs on simulated disks, in virtual time.

mod annex;
mod calls;
mod cuts;
mod gather;
mod members;
mod model;
mod simulation;
mod tables;
mod world;

use std::sync::OnceLock;

use arena::Arena;

use crate::log::tests::Chance;

/// One for all worlds: a mapping for each would cost more than most of them.
fn arena() -> Arena {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    ARENA.get_or_init(|| Arena::new(64 << 20).expect("a mapping")).clone()
}

/// Runs one world on a runtime of its own with virtual time.
fn in_virtual_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}
