//! Groups with values that wait for a record of the log.
//!
//! Invariants:
//! 1. A table with a waiting value is in the list. Its flag for that is set after the value, and cleared before the
//!    table is read.
//! 2. While a caller waits for a flush, no write begins that would block an acknowledged value
//!    ([`Table::begin_write`](crate::table::Table::begin_write)), and the caller waits for earlier ones. So a flush
//!    includes every value that was acknowledged before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::cache::Cached;

/// See the module.
#[derive(Default)]
pub(crate) struct WaitingGroups {
    groups: Mutex<Vec<Arc<Cached>>>,
    /// Groups whose values the next record must take, for its own flush (FUA), or that need no flush.
    urgent: Mutex<Vec<Arc<Cached>>>,
    /// The groups of writes that block a value, one for each write.
    blocking: Mutex<Vec<Arc<Cached>>>,
    /// Callers that wait for a flush.
    flush_waiters: AtomicUsize,
}

/// A write that blocks a value; it ends on drop.
pub(crate) struct BlockingWrite {
    waiting: Arc<WaitingGroups>,
    cached: Arc<Cached>,
}

/// A caller that waits for a flush.
pub(crate) struct FlushWaiter(Arc<WaitingGroups>);

impl WaitingGroups {
    /// Adds a group with a waiting value.
    pub(crate) fn add(&self, cached: &Arc<Cached>) {
        if !cached.is_listed.swap(true, Ordering::SeqCst) {
            self.groups.lock().push(Arc::clone(cached));
        }
    }

    /// Adds a group with a waiting value that the next record takes, whatever its flush covers.
    pub(crate) fn add_urgent(&self, cached: &Arc<Cached>) {
        self.add(cached);
        self.urgent.lock().push(Arc::clone(cached));
    }

    /// Takes the urgent groups out of their list.
    pub(crate) fn take_urgent(&self) -> Vec<Arc<Cached>> {
        std::mem::take(&mut *self.urgent.lock())
    }

    /// Takes all groups out of the list.
    pub(crate) fn take_all(&self) -> Vec<Arc<Cached>> {
        let groups = std::mem::take(&mut *self.groups.lock());
        groups.iter().for_each(|cached| cached.is_listed.store(false, Ordering::SeqCst));
        groups
    }

    /// Begins a write that blocks a value. Returns `None` if a caller waits for a flush: the flush comes first.
    pub(crate) fn begin_blocking_write(
        self: &Arc<WaitingGroups>,
        cached: &Arc<Cached>,
    ) -> Option<BlockingWrite> {
        self.blocking.lock().push(Arc::clone(cached));
        let blocking = BlockingWrite { waiting: Arc::clone(self), cached: Arc::clone(cached) };
        (self.flush_waiters.load(Ordering::SeqCst) == 0).then_some(blocking)
    }

    /// Registers a caller that waits for a flush. Returns the groups in which a write may block an earlier
    /// acknowledged value.
    pub(crate) fn flush(self: &Arc<WaitingGroups>) -> (FlushWaiter, Vec<Arc<Cached>>) {
        self.flush_waiters.fetch_add(1, Ordering::SeqCst);
        (FlushWaiter(Arc::clone(self)), self.blocking.lock().clone())
    }
}

impl Drop for BlockingWrite {
    fn drop(&mut self) {
        let mut blocking = self.waiting.blocking.lock();
        if let Some(at) = blocking.iter().position(|cached| Arc::ptr_eq(cached, &self.cached)) {
            blocking.swap_remove(at);
        }
    }
}

impl Drop for FlushWaiter {
    fn drop(&mut self) {
        self.0.flush_waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
