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

use super::{SpaceLog, Wait};
use crate::log::snapshot::Parts;
use crate::log::tests::Chance;

impl SpaceLog {
    /// Blocks of the ring that records have, and those of the whole ring.
    pub(crate) fn usage(&self) -> (u64, u64) {
        self.shared.state.lock().core.used()
    }

    fn checkpoint(&self, parts: impl FnOnce() -> Parts + Send + 'static) -> Wait<()> {
        self.checkpoint_if(|_| Some(parts()))
    }
}

/// One arena for all worlds: a mapping for each would take longer than most tests.
fn arena() -> Arena {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    ARENA.get_or_init(|| Arena::new(64 << 20).expect("a mapping")).clone()
}

/// Runs one world on a runtime of its own with virtual time.
fn in_virtual_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}
