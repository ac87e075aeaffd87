//! The tables of groups in memory, within a budget of bytes that all spaces of the process share.
//!
//! Invariants:
//! 1. A table that is dirty or held is not evicted. Of the others a shard evicts the least recently used one; the
//!    shards of all spaces take turns. A table found dirty or held in a turn counts as used then.
//! 2. A table is loaded once, by a task, for all concurrent callers; the task continues when they are dropped.
//! 3. A group has at most one table at a time: an evicted one had no holder, and its blocks have all its values. A
//!    table that is not *whole* is never changed, and may still be held when a whole one replaces it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use env::{BoxFuture, Env, Io};
use futures_util::FutureExt;
use futures_util::future::Shared;
use parking_lot::Mutex;
use pool_seam::DiskNumber;
use rustc_hash::FxHashMap;

use crate::locks::{SHARDS, shard_of};
use crate::table::Table;
use crate::view::GroupKey;

/// Tables that one turn of a shard examines.
const LOOKS: usize = 16;

/// The bytes that the tables of all spaces of a process may take. More are taken while all tables are dirty or held.
pub struct Budget {
    bytes: usize,
    used: AtomicUsize,
    dirty: AtomicUsize,
    turns: Mutex<Turns>,
}

#[derive(Default)]
struct Turns {
    shards: Vec<Weak<dyn Evict>>,
    next: usize,
    /// Bytes to load before the next round of turns, after a round without an eviction.
    patience: usize,
}

trait Evict: Send + Sync {
    /// Evicts at most one table; returns its bytes.
    fn evict(&self) -> usize;
}

/// The tables of a space. Loads fail with `E`.
pub struct Cache<E> {
    shards: [Arc<Shard<E>>; SHARDS],
}

/// A table in memory.
pub struct Cached {
    key: GroupKey,
    /// The birth of the table's row.
    birth: u32,
    table: Mutex<Table>,
    /// Whether the table was dirty after the last update; changed under the table's lock, then the shard's.
    is_dirty: AtomicBool,
    bytes: AtomicUsize,
    /// Whether it is in the list of tables with values that wait for a record.
    pub(crate) is_listed: AtomicBool,
    source: Source,
}

/// The blocks from which a table was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The blocks of all complete copies: the table is *whole*.
    All,
    /// The block of one copy of a mirror, on this disk. It verifies reads of other disks, but not of the same one.
    Copy(DiskNumber),
    /// The blocks of two columns of a coded row: the one that is read and another one.
    Column,
}

/// Which table a caller needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A whole table.
    Whole,
    /// Any table: the caller only reads checksums.
    Any,
}

struct Shard<E> {
    budget: Arc<Budget>,
    inner: Mutex<Inner<E>>,
}

struct Inner<E> {
    slots: FxHashMap<GroupKey, Slot<E>>,
    /// Tables in the order of their last use; a table that an eviction passed counts as used then.
    order: BTreeMap<u64, GroupKey>,
    dirty: BTreeSet<GroupKey>,
    clock: u64,
    /// Cache hits, and misses, which began to load a table or waited for it. Counted under the lock, at no extra cost.
    hits: u64,
    misses: u64,
}

enum Slot<E> {
    Ready { cached: Arc<Cached>, used: u64 },
    Loading { id: u64, need: Need, load: Shared<BoxFuture<Result<Arc<Cached>, E>>> },
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Arc<Budget> {
        let (used, dirty, turns) = Default::default();
        Arc::new(Budget { bytes, used, dirty, turns })
    }

    /// Bytes of all tables.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether more than half of the bytes are dirty: spaces begin a checkpoint then.
    pub fn is_half_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.bytes / 2
    }

    /// Subtracts a removed table.
    fn release<E>(&self, slot: &Slot<E>) {
        let Some(cached) = slot.ready() else { return };
        self.used.fetch_sub(cached.bytes(), Ordering::Relaxed);
        if cached.is_dirty.load(Ordering::Relaxed) {
            self.dirty.fetch_sub(cached.bytes(), Ordering::Relaxed);
        }
    }

    /// Called after so many bytes were loaded: evicts until the tables fit, or a whole round of turns has found none to
    /// evict.
    fn evict(&self, loaded: usize) {
        // One thread evicts for all.
        let Some(mut turns) = self.turns.try_lock() else { return };
        turns.patience = turns.patience.saturating_sub(loaded);
        let mut in_vain = 0;
        while self.used() > self.bytes && turns.patience == 0 {
            if in_vain >= turns.shards.len() {
                turns.patience = self.bytes / 16;
                return;
            }
            turns.next = (turns.next + 1) % turns.shards.len();
            let at = turns.next;
            match turns.shards[at].upgrade().map(|shard| shard.evict()) {
                None => drop(turns.shards.swap_remove(at)),
                Some(0) => in_vain += 1,
                Some(bytes) => {
                    self.used.fetch_sub(bytes, Ordering::Relaxed);
                    in_vain = 0;
                }
            }
        }
    }
}

impl Cached {
    /// The group.
    pub fn key(&self) -> GroupKey {
        self.key
    }

    /// The generation with which the table's row was allocated.
    pub fn birth(&self) -> u32 {
        self.birth
    }

    /// See [`Source`].
    pub fn source(&self) -> Source {
        self.source
    }

    /// Reads the table.
    pub fn with_table<T>(&self, read: impl FnOnce(&Table) -> T) -> T {
        read(&self.table.lock())
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl<E: Clone + Send + Sync + 'static> Cache<E> {
    /// The tables of a space, in this budget.
    pub fn new(budget: Arc<Budget>) -> Cache<E> {
        let shard = |_| Arc::new(Shard { budget: Arc::clone(&budget), inner: Mutex::default() });
        let shards: [Arc<Shard<E>>; SHARDS] = std::array::from_fn(shard);
        let weak = shards.iter().map(|shard| {
            let shard: Weak<Shard<E>> = Arc::downgrade(shard);
            shard as Weak<dyn Evict>
        });
        budget.turns.lock().shards.extend(weak);
        Cache { shards }
    }

    /// Returns the table of a group. If it is not in memory and no caller is loading it, a task of this worker loads
    /// it with `load`; concurrent callers wait for the same task. After an error of `load` the next caller loads
    /// again. A caller that needs a whole table starts a load that replaces a table, or a running load, that is not
    /// whole.
    pub fn get<F>(
        &self,
        env: &Env,
        key: GroupKey,
        need: Need,
        load: impl FnOnce() -> F,
    ) -> Io<Result<Arc<Cached>, E>>
    where
        F: Future<Output = Result<(Table, Source), E>> + Send + 'static,
    {
        let shard = &self.shards[shard_of(&key)];
        let mut inner = shard.inner.lock();
        inner.clock += 1;
        let id = inner.clock;
        match inner.slots.get_mut(&key) {
            Some(Slot::Ready { cached, used }) if need == Need::Any || cached.source == Source::All => {
                *used = id;
                let cached = Arc::clone(cached);
                inner.hits += 1;
                return Io::Done(Ok(cached));
            }
            Some(Slot::Loading { load, need: of, .. }) if need == Need::Any || *of == Need::Whole => {
                let load = load.clone();
                inner.misses += 1;
                return Io::Pending(Box::pin(load));
            }
            _ => inner.misses += 1,
        }
        let (load, budget, shard) = (load(), &shard.budget, Arc::clone(shard));
        let task = env.run(async move {
            let _failed = Loading { shard: &shard, key, id };
            let (table, source) = load.await?;
            let cached = shard.loaded(key, id, table, source);
            shard.budget.evict(cached.bytes());
            Ok(cached)
        });
        let task: BoxFuture<Result<Arc<Cached>, E>> = Box::pin(task);
        let load = task.shared();
        let former = inner.slots.insert(key, Slot::Loading { id, need, load: load.clone() });
        former.iter().for_each(|slot| budget.release(slot));
        Io::Pending(Box::pin(load))
    }

    /// Changes a table, and records whether it is dirty after that.
    pub fn update<T>(&self, cached: &Cached, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = cached.table.lock();
        let result = change(&mut table);
        let now = (table.is_dirty(), table.bytes());
        if now != (cached.is_dirty.load(Ordering::Relaxed), cached.bytes()) {
            self.shards[shard_of(&cached.key)].note(cached, now);
        }
        result
    }

    /// The dirty tables, in the order of their groups.
    pub fn dirty(&self) -> Vec<Arc<Cached>> {
        let mut all: Vec<Arc<Cached>> = Vec::new();
        for shard in &self.shards {
            let inner = shard.inner.lock();
            all.extend(inner.dirty.iter().filter_map(|key| inner.slots.get(key)?.ready()).cloned());
        }
        all.sort_unstable_by_key(|cached| cached.key);
        all
    }

    /// Cache hits and misses since the space was opened.
    pub fn lookups(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(hits, misses), shard| {
            let inner = shard.inner.lock();
            (hits + inner.hits, misses + inner.misses)
        })
    }

    /// Removes the tables, even dirty ones, and the running loads of a row that is freed or was changed elsewhere.
    /// The caller has the locks of these groups, so no other call uses them.
    pub fn forget(&self, is_gone: impl Fn(&GroupKey) -> bool) {
        for shard in &self.shards {
            let mut inner = shard.inner.lock();
            inner.order.retain(|_, key| !is_gone(key));
            inner.dirty.retain(|key| !is_gone(key));
            let gone = inner.slots.extract_if(|key, _| is_gone(key));
            gone.for_each(|(_, slot)| shard.budget.release(&slot));
        }
    }
}

impl<E> Shard<E> {
    /// Stores a table that was loaded. A load whose group was removed meanwhile has no effect.
    fn loaded(&self, key: GroupKey, id: u64, table: Table, source: Source) -> Arc<Cached> {
        let mut inner = self.inner.lock();
        let now = (table.is_dirty(), table.bytes());
        let (is_dirty, bytes) = (AtomicBool::new(false), AtomicUsize::new(0));
        let cached = Arc::new(Cached {
            key,
            birth: table.id().birth,
            table: Mutex::new(table),
            is_dirty,
            bytes,
            is_listed: AtomicBool::new(false),
            source,
        });
        if inner.is_loading(&key, id) {
            inner.clock += 1;
            let used = inner.clock;
            inner.order.insert(used, key);
            inner.slots.insert(key, Slot::Ready { cached: Arc::clone(&cached), used });
            // Done before another thread finds the table: a later update by that thread must not be overwritten by
            // this one.
            self.note_in(&mut inner, &cached, now);
        }
        cached
    }

    /// Records whether a table is dirty, and its bytes, unless it was removed.
    fn note(&self, cached: &Cached, now: (bool, usize)) {
        self.note_in(&mut self.inner.lock(), cached, now);
    }

    fn note_in(&self, inner: &mut Inner<E>, cached: &Cached, (is_dirty, bytes): (bool, usize)) {
        let present = inner.slots.get(&cached.key).and_then(Slot::ready);
        if !present.is_some_and(|present| std::ptr::eq(&**present, cached)) {
            return;
        }
        let had = cached.bytes.swap(bytes, Ordering::Relaxed);
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.budget.used.fetch_sub(had, Ordering::Relaxed);
        if is_dirty {
            inner.dirty.insert(cached.key);
            self.budget.dirty.fetch_add(bytes, Ordering::Relaxed);
        } else {
            inner.dirty.remove(&cached.key);
        }
        if cached.is_dirty.swap(is_dirty, Ordering::Relaxed) {
            self.budget.dirty.fetch_sub(had, Ordering::Relaxed);
        }
    }
}

impl<E: Send + Sync> Evict for Shard<E> {
    fn evict(&self) -> usize {
        let mut inner = self.inner.lock();
        let mut looks = 0;
        while looks < LOOKS {
            let Some((at, key)) = inner.order.pop_first() else { return 0 };
            inner.clock += 1;
            let Inner { slots, order, clock, .. } = &mut *inner;
            let Some(Slot::Ready { cached, used }) = slots.get_mut(&key) else { continue };
            // The only reference is the slot's; another one can be made under this lock only.
            let is_idle = Arc::strong_count(cached) == 1 && !cached.is_dirty.load(Ordering::Relaxed);
            if *used == at && is_idle {
                let bytes = cached.bytes();
                slots.remove(&key);
                return bytes;
            }
            if *used == at {
                (*used, looks) = (*clock, looks + 1);
            }
            order.insert(*used, key);
        }
        0
    }
}

/// The space is closed: subtracts its tables from the budget.
impl<E> Drop for Shard<E> {
    fn drop(&mut self) {
        self.inner.get_mut().slots.values().for_each(|slot| self.budget.release(slot));
    }
}

/// A running load: if it fails, panics or ends with its worker, the next caller loads again.
struct Loading<'a, E> {
    shard: &'a Shard<E>,
    key: GroupKey,
    id: u64,
}

impl<E> Drop for Loading<'_, E> {
    fn drop(&mut self) {
        let mut inner = self.shard.inner.lock();
        if inner.is_loading(&self.key, self.id) {
            inner.slots.remove(&self.key);
        }
    }
}

impl<E> Inner<E> {
    /// Whether this load of a group is still running, and the group was not removed.
    fn is_loading(&self, key: &GroupKey, id: u64) -> bool {
        matches!(self.slots.get(key), Some(Slot::Loading { id: other, .. }) if *other == id)
    }
}

impl<E> Slot<E> {
    fn ready(&self) -> Option<&Arc<Cached>> {
        match self {
            Slot::Ready { cached, .. } => Some(cached),
            Slot::Loading { .. } => None,
        }
    }
}

impl<E> Default for Inner<E> {
    fn default() -> Inner<E> {
        let (slots, order, dirty) = Default::default();
        Inner { slots, order, dirty, clock: 0, hits: 0, misses: 0 }
    }
}

#[cfg(test)]
mod tests;
