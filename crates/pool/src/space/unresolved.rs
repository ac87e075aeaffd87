//! What a crash, or a write that failed, left in doubt: regions of groups to be resolved before they are used.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::{Space, SpaceInner};
use crate::RowNumber;
use crate::groups::GroupKey;
use crate::path::DataPath;

/// Regions in doubt, by group.
#[derive(Default)]
pub(super) struct Unresolved(Mutex<BTreeMap<GroupKey, u64>>);

impl Unresolved {
    pub(super) fn of(&self, key: GroupKey) -> u64 {
        self.0.lock().get(&key).copied().unwrap_or(0)
    }

    pub(super) fn add(&self, key: GroupKey, regions: u64) {
        *self.0.lock().entry(key).or_insert(0) |= regions;
    }

    pub(super) fn remove(&self, key: GroupKey, regions: u64) {
        let mut map = self.0.lock();
        if let Some(r) = map.get_mut(&key) {
            *r &= !regions;
            if *r == 0 {
                map.remove(&key);
            }
        }
    }

    fn column(&self, row: RowNumber, column: u8) -> u64 {
        let (first, last) = (GroupKey { row, column, group: 0 }, GroupKey { row, column, group: u32::MAX });
        self.0.lock().range(first..=last).fold(0, |all, (_, r)| all | r)
    }

    pub(super) fn has(&self, row: RowNumber) -> bool {
        let first = GroupKey { row, column: 0, group: 0 };
        self.0.lock().range(first..).next().is_some_and(|(key, _)| key.row == row)
    }

    pub(super) fn kill(&self, row: RowNumber) {
        self.0.lock().retain(|k, _| k.row != row);
    }

    fn columns(&self) -> Vec<(RowNumber, u8, u64)> {
        let mut all: BTreeMap<(RowNumber, u8), u64> = BTreeMap::new();
        for (key, regions) in &*self.0.lock() {
            *all.entry((key.row, key.column)).or_insert(0) |= regions;
        }
        all.into_iter().map(|((row, column), regions)| (row, column, regions)).collect()
    }
}

impl SpaceInner {
    /// Regions of a column are in doubt.
    pub(crate) fn unresolve_slab(&self, row: RowNumber, column: u8, regions: u64) {
        for region in (0..crate::REGIONS).filter(|r| regions & 1 << r != 0) {
            for group in self.regions.groups(region) {
                self.unresolved.add(GroupKey { row, column, group }, 1 << region);
            }
        }
    }

    /// Which regions of a group are in doubt.
    pub(crate) fn in_doubt(&self, key: GroupKey) -> u64 {
        self.unresolved.of(key)
    }

    /// Which regions of a column are in doubt.
    pub(crate) fn unresolved_regions(&self, row: RowNumber, column: u8) -> u64 {
        self.unresolved.column(row, column)
    }

    /// Marks what is in doubt on every disk that has a copy; where a log is full its other copies have the mark.
    pub(crate) fn repin(&self, path: &DataPath) {
        for (row, column, regions) in self.unresolved.columns() {
            self.pin(path, row, column, regions);
        }
    }

    /// A write to regions of a group failed on a copy that counts.
    pub(super) fn doubt(&self, path: &DataPath, key: GroupKey, regions: u64) {
        self.unresolved.add(key, regions);
        self.pin(path, key.row, key.column, regions);
    }

    fn pin(&self, path: &DataPath, row: RowNumber, column: u8, regions: u64) {
        for copy in self.copies(path, row, column).into_iter().flatten() {
            if let Some(disk) = &copy.disk {
                let _ = disk.log.with(|core| core.pin(self.id, copy.slab, copy.generation, regions));
            }
        }
    }

    /// Regions of a group are no longer in doubt; those that are so in no other group may be unmarked.
    pub(super) fn resolved(&self, path: &DataPath, key: GroupKey, regions: u64) {
        self.unresolved.remove(key, regions);
        let free = regions & !self.unresolved.column(key.row, key.column);
        for copy in self.copies(path, key.row, key.column).into_iter().flatten() {
            if let Some(disk) = &copy.disk {
                disk.log.with(|core| core.unpin(copy.slab, copy.generation, free));
            }
        }
    }
}

impl Space {
    /// The groups in doubt.
    pub fn unresolved_groups(&self) -> usize {
        if let Some(striped) = self.striped() {
            return striped.in_doubt();
        }
        self.inner.unresolved.0.lock().len()
    }

    /// All of them.
    pub(crate) fn groups_in_doubt(&self) -> Vec<GroupKey> {
        if let Some(striped) = self.striped() {
            // One for the whole journal.
            let all = GroupKey { row: RowNumber(0), column: 0, group: 0 };
            return if striped.in_doubt() > 0 { vec![all] } else { Vec::new() };
        }
        self.inner.unresolved.0.lock().keys().copied().collect()
    }
}
