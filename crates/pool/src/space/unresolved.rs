//! Regions of groups in doubt after a crash or a failed write, to be resolved before they are used. After a
//! crash every unit of an active region is in doubt; after a failed write only its own: the others there are
//! known.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::Mutex;

use super::{Space, SpaceInner};
use crate::RowNumber;
use crate::blocks::Units;
use crate::groups::{GroupKey, Regions};
use crate::path::DataPath;

/// The regions in doubt, by group.
pub(super) struct Unresolved {
    sizes: Regions,
    groups: Mutex<BTreeMap<GroupKey, Doubt>>,
}

/// The units in doubt of a group.
#[derive(Default)]
struct Doubt {
    regions: u64,
    /// Which units, if not all of the regions'.
    some: Option<Box<Units>>,
}

impl Unresolved {
    pub(super) fn with(sizes: Regions) -> Unresolved {
        Unresolved { sizes, groups: Mutex::default() }
    }

    /// Regions with a unit in doubt.
    pub(super) fn of(&self, key: GroupKey) -> u64 {
        self.groups.lock().get(&key).map_or(0, |d| d.regions)
    }

    /// The units in doubt.
    pub(super) fn units_of(&self, key: GroupKey) -> Units {
        self.groups.lock().get(&key).map_or(Units::NONE, |d| self.units_in(key, d))
    }

    fn units_in(&self, key: GroupKey, doubt: &Doubt) -> Units {
        doubt.some.as_deref().copied().unwrap_or_else(|| self.sizes.in_group(key.group, doubt.regions))
    }

    /// Units of these regions are in doubt.
    fn add(&self, key: GroupKey, regions: u64, units: &Units) {
        let mut groups = self.groups.lock();
        let doubt = groups.entry(key).or_default();
        let units = self.units_in(key, doubt).or(units);
        doubt.regions |= regions;
        let all = self.sizes.in_group(key.group, doubt.regions);
        doubt.some = (units != all).then(|| Box::new(units));
    }

    pub(super) fn remove(&self, key: GroupKey, regions: u64) {
        let mut groups = self.groups.lock();
        if let Some(doubt) = groups.get_mut(&key) {
            doubt.regions &= !regions;
            if let Some(units) = &mut doubt.some {
                **units = units.without(&self.sizes.in_group(key.group, regions));
            }
            if doubt.regions == 0 {
                groups.remove(&key);
            }
        }
    }

    fn column(&self, row: RowNumber, column: u8) -> u64 {
        let (first, last) = (GroupKey { row, column, group: 0 }, GroupKey { row, column, group: u32::MAX });
        self.groups.lock().range(first..=last).fold(0, |all, (_, d)| all | d.regions)
    }

    pub(super) fn has(&self, row: RowNumber) -> bool {
        let first = GroupKey { row, column: 0, group: 0 };
        self.groups.lock().range(first..).next().is_some_and(|(key, _)| key.row == row)
    }

    pub(super) fn kill(&self, row: RowNumber) {
        self.groups.lock().retain(|k, _| k.row != row);
    }

    fn columns(&self) -> Vec<(RowNumber, u8, u64)> {
        let mut all: BTreeMap<(RowNumber, u8), u64> = BTreeMap::new();
        for (key, doubt) in &*self.groups.lock() {
            *all.entry((key.row, key.column)).or_insert(0) |= doubt.regions;
        }
        all.into_iter().map(|((row, column), regions)| (row, column, regions)).collect()
    }
}

impl SpaceInner {
    /// Regions of a column are in doubt.
    pub(crate) fn unresolve_slab(&self, row: RowNumber, column: u8, regions: u64) {
        for region in (0..crate::REGIONS).filter(|r| regions & 1 << r != 0) {
            for group in self.regions.groups(region) {
                let units = self.regions.in_group(group, 1 << region);
                self.unresolved.add(GroupKey { row, column, group }, 1 << region, &units);
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

    /// A write to units of a group failed on a copy that counts.
    pub(super) fn doubt(&self, path: &DataPath, key: GroupKey, units: &Range<u32>) {
        let (regions, Range { start, end }) = (self.regions.of(units), key.within(units));
        self.unresolved.add(key, regions, &Units::range(start, end));
        self.pin(path, key.row, key.column, regions);
    }

    fn pin(&self, path: &DataPath, row: RowNumber, column: u8, regions: u64) {
        for copy in self.copies(path, row, column).into_iter().flatten() {
            if let Some(disk) = &copy.disk {
                disk.log.with(|core| {
                    let _ = core.pin(self.id, copy.slab, copy.generation, regions);
                    core.yields(copy.slab, copy.generation, copy.missed);
                });
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
        self.inner.unresolved.groups.lock().len()
    }

    /// All of them.
    pub(crate) fn groups_in_doubt(&self) -> Vec<GroupKey> {
        if let Some(striped) = self.striped() {
            // One for the whole journal.
            let all = GroupKey { row: RowNumber(0), column: 0, group: 0 };
            return if striped.in_doubt() > 0 { vec![all] } else { Vec::new() };
        }
        self.inner.unresolved.groups.lock().keys().copied().collect()
    }
}
