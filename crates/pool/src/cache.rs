//! A bounded cache of what memory knows of a space's groups.
//!
//! Invariants:
//! 1. A dirty entry is never evicted. Clean entries without a holder are, least recently used first, when
//!    there are more than the bound; and when half of the bound is dirty, writers flush.
//! 2. A dead entry's row is freed; the entry does not change any more.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::RowNumber;

/// The key of an entry.
pub(crate) trait Key: Copy + Ord + Hash {
    /// The row that it is part of, and ends with.
    fn row(&self) -> RowNumber;
}

/// Flags that the cache and the users of an entry exchange, under its lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    /// It differs from the disks' blocks, which are to be written.
    pub(crate) dirty: bool,
    /// Its row is gone.
    pub(crate) dead: bool,
}

/// The value of an entry.
pub(crate) trait Entry {
    fn flags(&mut self) -> &mut Flags;
}

/// One entry.
pub(crate) struct Cached<K, S> {
    pub(crate) key: K,
    pub(crate) state: Mutex<S>,
    /// One at a time makes it ready.
    pub(crate) preparing: tokio::sync::Mutex<()>,
}

pub(crate) struct Cache<K, S> {
    bound: usize,
    /// An entry of which nothing is known yet.
    new: Box<dyn Fn(K) -> S + Send + Sync>,
    inner: Mutex<Inner<K, S>>,
    /// How many are dirty: changed with them, looked at by every writer.
    dirty: AtomicUsize,
}

struct Inner<K, S> {
    entries: FxHashMap<K, (Arc<Cached<K, S>>, u64)>,
    dirty: BTreeSet<K>,
    clock: u64,
    /// Entries that were new.
    misses: u64,
}

impl<K: Key, S: Entry> Cache<K, S> {
    pub(crate) fn new(bound: usize, new: impl Fn(K) -> S + Send + Sync + 'static) -> Cache<K, S> {
        let inner = Inner { entries: FxHashMap::default(), dirty: BTreeSet::new(), clock: 0, misses: 0 };
        Cache {
            bound: bound.max(4),
            new: Box::new(new),
            inner: Mutex::new(inner),
            dirty: AtomicUsize::new(0),
        }
    }

    /// The entry, known or not.
    pub(crate) fn get(&self, key: K) -> Arc<Cached<K, S>> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let clock = inner.clock;
        if let Some((entry, used)) = inner.entries.get_mut(&key) {
            *used = clock;
            return Arc::clone(entry);
        }
        inner.misses += 1;
        if inner.entries.len() >= self.bound {
            inner.evict(self.bound / 8 + 1);
        }
        let state = Mutex::new((self.new)(key));
        let entry = Arc::new(Cached { key, state, preparing: tokio::sync::Mutex::new(()) });
        inner.entries.insert(key, (Arc::clone(&entry), clock));
        entry
    }

    /// How often an entry that is wanted was there, and how often it was not.
    pub(crate) fn hits_and_misses(&self) -> (u64, u64) {
        let inner = self.inner.lock();
        (inner.clock - inner.misses, inner.misses)
    }

    /// It is not to be dropped.
    pub(crate) fn dirty(&self, entry: &Cached<K, S>, state: &mut S) {
        let flags = state.flags();
        if !flags.dirty && !flags.dead {
            flags.dirty = true;
            let mut inner = self.inner.lock();
            inner.dirty.insert(entry.key);
            self.dirty.store(inner.dirty.len(), Ordering::Relaxed);
        }
    }

    /// Whether so many are dirty that the next writer has to flush.
    pub(crate) fn are_too_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.bound / 2
    }

    /// Those that are dirty; still so.
    pub(crate) fn all_dirty(&self) -> Vec<Arc<Cached<K, S>>> {
        self.inner.lock().all_dirty()
    }

    /// It is being written: later changes make it dirty again.
    pub(crate) fn clean(&self, entry: &Cached<K, S>, state: &mut S) {
        state.flags().dirty = false;
        let mut inner = self.inner.lock();
        inner.dirty.remove(&entry.key);
        self.dirty.store(inner.dirty.len(), Ordering::Relaxed);
    }

    /// Those of some keys, in their order.
    pub(crate) fn of(&self, keys: std::ops::RangeInclusive<K>) -> Vec<Arc<Cached<K, S>>> {
        let inner = self.inner.lock();
        let found = inner.entries.iter().filter(|(k, _)| keys.contains(k));
        let mut found: Vec<_> = found.map(|(_, (e, _))| Arc::clone(e)).collect();
        drop(inner);
        found.sort_unstable_by_key(|e| e.key);
        found
    }

    /// Forgets the entries of a row that is gone.
    pub(crate) fn kill(&self, row: RowNumber) {
        self.kill_all(|k| k.row() == row);
    }

    /// Forgets entries, whatever they have.
    pub(crate) fn kill_all(&self, which: impl Fn(&K) -> bool) {
        let dead: Vec<_> = {
            let mut inner = self.inner.lock();
            inner.dirty.retain(|k| !which(k));
            self.dirty.store(inner.dirty.len(), Ordering::Relaxed);
            inner.entries.extract_if(|k, _| which(k)).map(|(_, (e, _))| e).collect()
        };
        for entry in dead {
            *entry.state.lock().flags() = Flags { dirty: false, dead: true };
        }
    }

    /// Evicts clean entries without a holder, so that they are read, and compared, again.
    pub(crate) fn forget_clean(&self) {
        self.inner.lock().evict(usize::MAX);
    }

    /// How many there are, and how many are dirty.
    #[cfg(test)]
    pub(crate) fn count(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.entries.len(), inner.dirty.len())
    }
}

impl<K: Key, S: Entry> Inner<K, S> {
    fn all_dirty(&self) -> Vec<Arc<Cached<K, S>>> {
        self.dirty.iter().filter_map(|k| self.entries.get(k).map(|(e, _)| Arc::clone(e))).collect()
    }

    /// Evicts the least recently used clean entries without a holder.
    fn evict(&mut self, count: usize) {
        // An entry with a locked state is in use; and the holder of that lock may wait for ours.
        let is_clean = |e: &Cached<K, S>| e.state.try_lock().is_some_and(|mut s| !s.flags().dirty);
        let idle = |e: &Arc<Cached<K, S>>| Arc::strong_count(e) == 1 && is_clean(e);
        let mut clean: Vec<(u64, K)> =
            self.entries.iter().filter(|(_, (e, _))| idle(e)).map(|(k, (_, used))| (*used, *k)).collect();
        clean.sort_unstable();
        for (_, key) in clean.into_iter().take(count) {
            self.entries.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Only(Flags);

    impl Entry for Only {
        fn flags(&mut self) -> &mut Flags {
            &mut self.0
        }
    }

    impl Key for (RowNumber, u32) {
        fn row(&self) -> RowNumber {
            self.0
        }
    }

    #[test]
    fn dirty_ones_stay() {
        let cache: Cache<(RowNumber, u32), Only> = Cache::new(4, |_| Only::default());
        let key = |number| (RowNumber(0), number);
        let first = cache.get(key(0));
        cache.dirty(&first, &mut first.state.lock());
        drop(first);
        let held = cache.get(key(1));
        for number in 2..20 {
            cache.get(key(number));
        }
        assert!(cache.count().0 <= 5);
        assert_eq!(cache.hits_and_misses(), (0, 20));
        assert!(Arc::ptr_eq(&held, &cache.get(key(1))));
        assert_eq!(cache.hits_and_misses(), (1, 20));
        let first = cache.get(key(0));
        assert!(first.state.lock().0.dirty);
        assert_eq!((cache.all_dirty().len(), cache.count().1), (1, 1));
        cache.clean(&first, &mut first.state.lock());
        assert_eq!(cache.count().1, 0);
        drop(held);
        cache.kill(RowNumber(0));
        assert!(first.state.lock().0.dead);
        assert_eq!(cache.count(), (0, 0));
    }

    #[test]
    fn what_is_held_or_dirty_is_not_forgotten() {
        let cache: Cache<(RowNumber, u32), Only> = Cache::new(4, |_| Only::default());
        let held = cache.get((RowNumber(1), 0));
        let dirty = cache.get((RowNumber(2), 0));
        cache.dirty(&dirty, &mut dirty.state.lock());
        drop(dirty);
        cache.get((RowNumber(2), 1));
        cache.forget_clean();
        assert_eq!(cache.count(), (2, 1));
        assert_eq!(cache.of((RowNumber(2), 0)..=(RowNumber(2), u32::MAX)).len(), 1);
        drop(held);
    }
}
