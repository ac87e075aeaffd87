//! Groups with values that wait for a record of the log, and those whose record is not confirmed.
//!
//! Invariants:
//! 1. A table with a waiting value is in the list: its flag says so, and is set after the value and cleared before the
//!    table is looked at.
//! 2. While a caller waits for a flush, no write begins that would hold up an acknowledged value
//!    ([`Table::begin_write`](crate::table::Table::begin_write)); those that began before are waited for. So a flush leaves
//!    no value behind that was acknowledged before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::cache::Cached;

/// See the module.
#[derive(Default)]
pub(crate) struct Waiting {
    groups: Mutex<Vec<Arc<Cached>>>,
    /// Groups that a caller wants to be durable by themselves, or with values that need no flush.
    urgent: Mutex<Vec<Arc<Cached>>>,
    /// Groups of records that were not confirmed when they were looked at last, with the record's sequence.
    taken: Mutex<Vec<(u64, Arc<Cached>)>>,
    /// Writes that hold up a value.
    holding: AtomicUsize,
    /// Callers that wait for a flush.
    flushing: AtomicUsize,
}

/// A write that holds up a value; it ends on drop.
pub(crate) struct Holding(Arc<Waiting>);

/// A caller that waits for a flush.
pub(crate) struct Flushing(Arc<Waiting>);

impl Waiting {
    /// A value of the group waits.
    pub(crate) fn add(&self, cached: &Arc<Cached>) {
        if !cached.is_listed.swap(true, Ordering::SeqCst) {
            self.groups.lock().push(Arc::clone(cached));
        }
    }

    /// The same; the next record takes it whatever else is flushed.
    pub(crate) fn add_urgent(&self, cached: &Arc<Cached>) {
        self.add(cached);
        self.urgent.lock().push(Arc::clone(cached));
    }

    /// The urgent groups, which are not in the list of these any more.
    pub(crate) fn take_urgent(&self) -> Vec<Arc<Cached>> {
        std::mem::take(&mut *self.urgent.lock())
    }

    /// All groups, which are not in the list any more.
    pub(crate) fn take_all(&self) -> Vec<Arc<Cached>> {
        let groups = std::mem::take(&mut *self.groups.lock());
        groups.iter().for_each(|cached| cached.is_listed.store(false, Ordering::SeqCst));
        groups
    }

    /// The groups in the list.
    pub(crate) fn all(&self) -> Vec<Arc<Cached>> {
        self.groups.lock().clone()
    }

    /// A record has values of these groups; those up to `confirmed` are forgotten.
    pub(crate) fn note(&self, record: u64, groups: Vec<Arc<Cached>>, confirmed: u64) {
        let mut taken = self.taken.lock();
        taken.retain(|(record, _)| *record > confirmed);
        taken.extend(groups.into_iter().map(|cached| (record, cached)));
    }

    /// Groups with values that are not confirmed, each at least once.
    pub(crate) fn unconfirmed(&self) -> Vec<Arc<Cached>> {
        let mut groups: Vec<_> = self.taken.lock().iter().map(|(_, cached)| Arc::clone(cached)).collect();
        groups.extend(self.all());
        groups
    }

    /// A write that holds up a value begins; `None`: a caller waits for a flush, which comes first.
    pub(crate) fn hold(self: &Arc<Waiting>) -> Option<Holding> {
        self.holding.fetch_add(1, Ordering::SeqCst);
        let holding = Holding(Arc::clone(self));
        (self.flushing.load(Ordering::SeqCst) == 0).then_some(holding)
    }

    /// A caller waits for a flush; whether a write may hold up a value that was acknowledged before.
    pub(crate) fn flush(self: &Arc<Waiting>) -> (Flushing, bool) {
        self.flushing.fetch_add(1, Ordering::SeqCst);
        (Flushing(Arc::clone(self)), self.holding.load(Ordering::SeqCst) > 0)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.holding.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Flushing {
    fn drop(&mut self) {
        self.0.flushing.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_holds_up_a_value_waits_for_flushes_and_they_for_it() {
        let waiting = Arc::<Waiting>::default();
        let write = waiting.hold();
        assert!(write.is_some());
        let (flush, is_held) = waiting.flush();
        assert!(is_held && waiting.hold().is_none());
        drop((write, flush));
        let (flush, is_held) = waiting.flush();
        assert!(!is_held);
        drop(flush);
        assert!(waiting.hold().is_some());
    }
}
