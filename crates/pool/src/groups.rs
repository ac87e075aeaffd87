//! The checksum tables of a space in memory.
//!
//! Invariants:
//! 1. A table says of every unit in its known regions what was last written there; others are not known: no copy that has them was here
//!    when it was loaded, or they are unresolved.
//! 2. A dirty table is never dropped. Clean ones are, oldest use first, when there are more than the bound; and when half of the bound is dirty,
//!    writers flush.
//! 3. A dead group's row is gone; nobody changes it any more.
//! 4. No block says what the table says of regions in `hearsay`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::blocks::Units;
use crate::blocks::checksums::Table;
use crate::{GROUP_UNITS, REGIONS, RowNumber, UNIT};

/// Which group of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupKey {
    pub(crate) row: RowNumber,
    pub(crate) column: u8,
    pub(crate) group: u32,
}

/// One group.
pub(crate) struct Group {
    pub(crate) key: GroupKey,
    pub(crate) state: Mutex<GroupState>,
    /// One at a time makes it ready.
    pub(crate) preparing: tokio::sync::Mutex<()>,
}

pub(crate) struct GroupState {
    pub(crate) table: Box<Table>,
    /// The highest that a block of it has been given.
    pub(crate) generation: u64,
    /// Written units whose data was durable on all copies before their block said that they are written.
    pub(crate) settled: Units,
    /// Regions of the slab whose units are not known.
    pub(crate) unknown: u64,
    /// Regions whose only copy was away and came back, and may have lost what the table says, until they are resolved.
    pub(crate) hearsay: u64,
    pub(crate) dirty: bool,
    pub(crate) dead: bool,
}

/// Units and regions of slabs of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Regions {
    units_per_region: u32,
}

impl Regions {
    pub(crate) fn new(slab_bytes: u64) -> Regions {
        Regions { units_per_region: ((slab_bytes / UNIT) as u32 / REGIONS).max(1) }
    }

    /// The regions of units of a slab; not none of them.
    pub(crate) fn of(self, units: &Range<u32>) -> u64 {
        let (first, last) = (units.start / self.units_per_region, (units.end - 1) / self.units_per_region);
        (u64::MAX >> (63 - (last - first))) << first
    }

    /// The units of one region.
    pub(crate) fn units(self, region: u32) -> Range<u32> {
        region * self.units_per_region..(region + 1) * self.units_per_region
    }

    /// Those of a group that are in some regions, counted from the beginning of the group.
    pub(crate) fn in_group(self, group: u32, regions: u64) -> Units {
        let (first, per) = (group * GROUP_UNITS as u32, GROUP_UNITS as u32);
        let mut units = Units::NONE;
        for region in first / self.units_per_region..=(first + per - 1) / self.units_per_region {
            if regions & 1 << region != 0 {
                let Range { start, end } = self.units(region);
                let within = |unit: u32| unit.saturating_sub(first).min(per) as usize;
                units = units.or(&Units::range(within(start), within(end)));
            }
        }
        units
    }

    /// The groups that a region is part of, or has.
    pub(crate) fn groups(self, region: u32) -> Range<u32> {
        let units = self.units(region);
        units.start / GROUP_UNITS as u32..(units.end - 1) / GROUP_UNITS as u32 + 1
    }
}

impl GroupKey {
    /// Its units, counted from the beginning of the column.
    pub(crate) fn units(self) -> Range<u32> {
        let first = self.group * GROUP_UNITS as u32;
        first..first + GROUP_UNITS as u32
    }

    /// Units counted from the beginning of the group.
    pub(crate) fn within(self, units: &Range<u32>) -> Range<usize> {
        let first = self.group * GROUP_UNITS as u32;
        (units.start - first) as usize..(units.end - first) as usize
    }
}

/// The groups that a space has in memory.
pub(crate) struct Groups {
    bound: usize,
    regions: Regions,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    groups: BTreeMap<GroupKey, (Arc<Group>, u64)>,
    dirty: BTreeSet<GroupKey>,
    clock: u64,
}

impl Groups {
    pub(crate) fn new(bound: usize, regions: Regions) -> Groups {
        Groups { bound: bound.max(4), regions, inner: Mutex::default() }
    }

    /// The group, known or not.
    pub(crate) fn get(&self, key: GroupKey) -> Arc<Group> {
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
        let state = GroupState {
            table: Box::default(),
            generation: 0,
            settled: Units::NONE,
            unknown: self.regions.of(&key.units()),
            hearsay: 0,
            dirty: false,
            dead: false,
        };
        let group = Arc::new(Group { key, state: Mutex::new(state), preparing: tokio::sync::Mutex::new(()) });
        inner.groups.insert(key, (Arc::clone(&group), clock));
        group
    }

    /// Its table differs from the disks' blocks, which are to be written.
    pub(crate) fn dirty(&self, group: &Group, state: &mut GroupState) {
        if !state.dirty && !state.dead {
            state.dirty = true;
            self.inner.lock().dirty.insert(group.key);
        }
    }

    /// Whether so many are dirty that the next writer has to flush.
    pub(crate) fn are_too_dirty(&self) -> bool {
        self.inner.lock().dirty.len() > self.bound / 2
    }

    /// Those that are dirty, which are no longer counted as such.
    pub(crate) fn take_dirty(&self) -> Vec<Arc<Group>> {
        let mut inner = self.inner.lock();
        let keys = std::mem::take(&mut inner.dirty);
        keys.iter().filter_map(|k| inner.groups.get(k).map(|(g, _)| Arc::clone(g))).collect()
    }

    /// What is known of these regions of a column is hearsay from now on.
    pub(crate) fn hearsay(&self, row: RowNumber, column: u8, regions: u64) {
        let (first, last) = (GroupKey { row, column, group: 0 }, GroupKey { row, column, group: u32::MAX });
        let groups: Vec<Arc<Group>> =
            self.inner.lock().groups.range(first..=last).map(|(_, (g, _))| Arc::clone(g)).collect();
        for group in groups {
            let mut state = group.state.lock();
            let mine = self.regions.of(&group.key.units()) & !state.unknown;
            state.hearsay |= regions & mine;
        }
    }

    /// Forgets the groups of a row that is gone.
    pub(crate) fn kill(&self, row: RowNumber) {
        let dead: Vec<Arc<Group>> = {
            let mut inner = self.inner.lock();
            let keys: Vec<GroupKey> = inner.groups.keys().filter(|k| k.row == row).copied().collect();
            inner.dirty.retain(|k| k.row != row);
            keys.iter().filter_map(|k| inner.groups.remove(k)).map(|(g, _)| g).collect()
        };
        for group in dead {
            let mut state = group.state.lock();
            (state.dead, state.dirty) = (true, false);
        }
    }

    /// Forgets what is clean and in nobody's hands, so that it is read, and compared, again.
    pub(crate) fn forget_clean(&self) {
        self.inner.lock().evict(usize::MAX);
    }

    /// How many there are, and how many are dirty.
    #[cfg(test)]
    pub(crate) fn count(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.groups.len(), inner.dirty.len())
    }
}

impl Inner {
    /// Drops the least recently used clean groups that nobody holds.
    fn evict(&mut self, count: usize) {
        let mut clean: Vec<(u64, GroupKey)> = self
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_of_slabs_small_and_large() {
        // 2 MiB: a region is 8 units. 1 GiB: 8 groups.
        let (small, large) = (Regions::new(2 << 20), Regions::new(1 << 30));
        assert_eq!(small.of(&(0..1)), 1);
        assert_eq!(small.of(&(7..9)), 0b11);
        assert_eq!(small.of(&(0..512)), u64::MAX);
        assert_eq!(
            small.in_group(0, 0b101).iter().collect::<Vec<_>>(),
            (0..8).chain(16..24).collect::<Vec<_>>()
        );
        assert_eq!((small.groups(63), large.groups(1)), (0..1, 8..16));
        assert_eq!(large.of(&(4096..4097)), 2);
        assert_eq!(large.in_group(8, 2), Units::range(0, 512));
        assert_eq!(large.in_group(8, 1), Units::NONE);
    }

    #[test]
    fn dirty_ones_stay() {
        let groups = Groups::new(4, Regions::new(1 << 30));
        let key = |group| GroupKey { row: RowNumber(0), column: 0, group };
        let first = groups.get(key(0));
        groups.dirty(&first, &mut first.state.lock());
        drop(first);
        let held = groups.get(key(1));
        for g in 2..20 {
            groups.get(key(g));
        }
        assert!(groups.count().0 <= 5);
        assert!(Arc::ptr_eq(&held, &groups.get(key(1))));
        assert!(groups.get(key(0)).state.lock().dirty);
        let dirty = groups.take_dirty();
        assert_eq!((dirty.len(), groups.count().1), (1, 0));
        drop(held);
        groups.kill(RowNumber(0));
        assert!(dirty[0].state.lock().dead);
        assert_eq!(groups.count(), (0, 0));
    }
}
