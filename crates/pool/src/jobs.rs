//! What runs beside the users of a space: resolving, resync, scrub, repair.
//!
//! Invariants:
//! 1. A job's checkpoint is the metadata's missed bits and the activity log: a restart goes on where they are.
//! 2. A region of a copy counts again only after every unit of it was copied under its lock and flushed, and no write to the copy has
//!    failed since.
//! 3. A job holds the lock of one piece of a group at a time: users wait for no more than that.

mod repair;
mod resolve;
mod resync;
mod scrub;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far a job is; shared with whoever shows it, or stops it.
#[derive(Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    /// Bytes done and bytes there are, as far as is known.
    pub fn bytes(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Ends the job after the piece that it is at.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    fn did(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}
