//! What memory knows of the stripes of parity rows, by group: the same 512 units of every column.
//!
//! Invariants:
//! 1. `written` is right in the `mapped` regions, a column's `sums` in its `known` ones but for its `lost` units, as the newest change left them.
//! 2. A stripe in `fresh` is in memory and on the disks, but neither in the journal nor in a block.
//! 3. A dirty group is never dropped; one with fresh stripes is dirty, and so is one whose blocks say something else (`stale`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::blocks::Units;
use crate::groups::Regions;
use crate::{GROUP_UNITS, RowNumber};

/// Which group of which row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowKey {
    pub(crate) row: RowNumber,
    pub(crate) group: u32,
}

impl RowKey {
    pub(super) fn of(row: RowNumber, unit: u32) -> RowKey {
        RowKey { row, group: unit / GROUP_UNITS as u32 }
    }

    /// Its first unit, counted from the beginning of the columns.
    pub(super) fn first(self) -> u32 {
        self.group * GROUP_UNITS as u32
    }

    pub(super) fn units(self) -> Range<u32> {
        self.first()..self.first() + GROUP_UNITS as u32
    }
}

pub(super) struct RowGroup {
    pub(super) key: RowKey,
    pub(super) state: Mutex<RowState>,
    /// One at a time makes it known.
    pub(super) preparing: tokio::sync::Mutex<()>,
}

pub(super) struct RowState {
    pub(super) written: Vec<Units>,
    pub(super) sums: Vec<[u32; GROUP_UNITS as usize]>,
    pub(super) lost: Vec<Units>,
    pub(super) known: Vec<u64>,
    pub(super) mapped: u64,
    pub(super) fresh: Units,
    pub(super) generation: u64,
    pub(super) wrote: Vec<u64>,
    pub(super) dirty: bool,
    /// Its blocks are to be written.
    pub(super) stale: bool,
    /// Where the newest journal record is that names it, plus one; 0 for none.
    pub(super) named: u64,
    pub(super) dead: bool,
}

impl RowState {
    /// Which data columns of a stripe are written.
    pub(super) fn mask(&self, unit: usize) -> u32 {
        self.written.iter().enumerate().fold(0, |mask, (c, w)| mask | u32::from(w.has(unit)) << c)
    }

    /// Whether the column's unit has a sum to be compared with: `region` is the unit's.
    pub(super) fn has_sum(&self, column: usize, unit: usize, region: u64) -> bool {
        self.known[column] & region != 0 && !self.lost[column].has(unit)
    }

    /// Whether a unit of a column, data or parity, has anything in its place.
    pub(super) fn is_there(&self, column: usize, unit: usize) -> bool {
        match self.written.get(column) {
            Some(written) => written.has(unit),
            None => self.written.iter().any(|w| w.has(unit)),
        }
    }

    /// Units of a column that have something in their places.
    pub(super) fn there(&self, column: usize) -> Units {
        match self.written.get(column) {
            Some(written) => *written,
            None => self.written.iter().fold(Units::NONE, |all, w| all.or(w)),
        }
    }
}

pub(super) struct RowGroups {
    bound: usize,
    regions: Regions,
    data: usize,
    parity: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    groups: BTreeMap<RowKey, (Arc<RowGroup>, u64)>,
    dirty: BTreeSet<RowKey>,
    clock: u64,
}

impl RowGroups {
    pub(super) fn new(bound: usize, regions: Regions, data: usize, parity: usize) -> RowGroups {
        RowGroups { bound: bound.max(4), regions, data, parity, inner: Mutex::default() }
    }

    /// The regions that a group is part of, or has.
    pub(super) fn regions_of(&self, key: RowKey) -> u64 {
        self.regions.of(&key.units())
    }

    /// The group, known or not.
    pub(super) fn get(&self, key: RowKey) -> Arc<RowGroup> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let clock = inner.clock;
        if let Some((group, used)) = inner.groups.get_mut(&key) {
            *used = clock;
            return Arc::clone(group);
        }
        if inner.groups.len() >= self.bound {
            inner.evict(self.bound / 8 + 1);
        }
        let columns = self.data + self.parity;
        let state = RowState {
            written: vec![Units::NONE; self.data],
            sums: vec![[0; GROUP_UNITS as usize]; columns],
            lost: vec![Units::NONE; columns],
            known: vec![0; columns],
            mapped: 0,
            fresh: Units::NONE,
            generation: 0,
            wrote: vec![0; columns],
            dirty: false,
            stale: false,
            named: 0,
            dead: false,
        };
        let group = RowGroup { key, state: Mutex::new(state), preparing: tokio::sync::Mutex::new(()) };
        let group = Arc::new(group);
        inner.groups.insert(key, (Arc::clone(&group), clock));
        group
    }

    /// It is not to be dropped: it is stale, or has fresh stripes.
    pub(super) fn dirty(&self, group: &RowGroup, state: &mut RowState) {
        if !state.dirty && !state.dead {
            state.dirty = true;
            self.inner.lock().dirty.insert(group.key);
        }
    }

    /// Its blocks are to be written.
    pub(super) fn stale(&self, group: &RowGroup, state: &mut RowState) {
        state.stale = true;
        self.dirty(group, state);
    }

    pub(super) fn are_too_dirty(&self) -> bool {
        self.inner.lock().dirty.len() > self.bound / 2
    }

    /// Those that are dirty; still so.
    pub(super) fn all_dirty(&self) -> Vec<Arc<RowGroup>> {
        let inner = self.inner.lock();
        inner.dirty.iter().filter_map(|k| inner.groups.get(k).map(|(g, _)| Arc::clone(g))).collect()
    }

    /// Its blocks are being written: what changes from now on makes it dirty again.
    pub(super) fn clean(&self, group: &RowGroup, state: &mut RowState) {
        (state.dirty, state.stale) = (false, false);
        self.inner.lock().dirty.remove(&group.key);
    }

    /// Forgets the groups of a row that is gone.
    pub(super) fn kill(&self, row: RowNumber) {
        self.kill_all(|k| k.row == row);
    }

    /// Forgets groups, whatever they have.
    pub(super) fn kill_all(&self, which: impl Fn(&RowKey) -> bool) {
        let dead: Vec<Arc<RowGroup>> = {
            let mut inner = self.inner.lock();
            let keys: Vec<RowKey> = inner.groups.keys().filter(|k| which(k)).copied().collect();
            inner.dirty.retain(|k| !which(k));
            keys.iter().filter_map(|k| inner.groups.remove(k)).map(|(g, _)| g).collect()
        };
        for group in dead {
            let mut state = group.state.lock();
            (state.dead, state.dirty) = (true, false);
        }
    }

    /// Forgets what is clean and in nobody's hands. Of the others, nothing is known any more of columns that are not read again.
    pub(super) fn forget_clean(&self) {
        self.inner.lock().evict(usize::MAX);
    }
}

impl Inner {
    fn evict(&mut self, count: usize) {
        let mut clean: Vec<(u64, RowKey)> = self
            .groups
            .iter()
            // One whose state is locked is in use; and who has that lock may wait for ours.
            .filter(|(_, (g, _))| Arc::strong_count(g) == 1 && g.state.try_lock().is_some_and(|s| !s.dirty))
            .map(|(k, (_, used))| (*used, *k))
            .collect();
        clean.sort_unstable();
        for (_, key) in clean.into_iter().take(count) {
            self.groups.remove(&key);
        }
    }
}
