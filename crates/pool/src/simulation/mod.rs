//! Whole data paths on simulated disks: seeded workloads, power cuts at every event, lost and returning
//! disks, rot, lying disks.
//!
//! A failure prints its seed; `run` with that seed repeats it byte for byte.

mod agree;
mod book;
mod columns;
mod crashes;
mod emptying;
mod faults;
mod jobs;
mod journals;
mod leaving;
mod left;
mod local;
mod losses;
mod lost;
mod media;
mod model;
mod moves;
mod owners;
mod parity;
mod reads;
mod returns;
mod slow;
mod waits;
mod whole;
mod world;

use std::sync::OnceLock;

use arena::Arena;

/// A generator that depends on nothing: SplitMix64.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// One for all worlds: a mapping for each would cost more than most of them.
fn arena() -> Arena {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    ARENA.get_or_init(|| Arena::new(256 << 20).expect("a mapping")).clone()
}

/// Runs one world on a runtime of its own with virtual time.
pub(crate) fn in_virtual_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}
