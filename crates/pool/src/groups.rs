//! The checksum tables of a space in memory.
//!
//! Invariants:
//! 1. A table says of every unit in its known regions what was last written there; others are not known: no
//!    copy that has them was here when it was loaded, or they are unresolved.
//! 2. A region in `hearsay` (unverified) is not written to blocks from its table.

use std::ops::Range;

use crate::blocks::Units;
use crate::blocks::checksums::Table;
use crate::cache::{Cache, Cached, Entry, Flags, Key};
use crate::layout::Spot;
use crate::{GROUP, GROUP_UNITS, REGIONS, RowNumber, UNIT};

/// Which group of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupKey {
    pub(crate) row: RowNumber,
    pub(crate) column: u8,
    pub(crate) group: u32,
}

/// One group.
pub(crate) type Group = Cached<GroupKey, GroupState>;

/// The groups that a space has in memory.
pub(crate) type Groups = Cache<GroupKey, GroupState>;

pub(crate) struct GroupState {
    pub(crate) table: Box<Table>,
    /// The highest that a block of it has been given.
    pub(crate) generation: u64,
    /// Written units whose data was durable on all copies before their block said that they are written.
    pub(crate) settled: Units,
    /// Regions of the slab whose units are not known.
    pub(crate) unknown: u64,
    /// Regions whose only copy was absent and has returned, and may have lost writes that the table contains,
    /// until they are resolved.
    pub(crate) hearsay: u64,
    pub(crate) flags: Flags,
}

impl Key for GroupKey {
    fn row(&self) -> RowNumber {
        self.row
    }
}

impl Entry for GroupState {
    fn flags(&mut self) -> &mut Flags {
        &mut self.flags
    }
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
    /// The one that a byte of a space is in.
    pub(crate) fn of(at: Spot) -> GroupKey {
        GroupKey { row: at.row, column: at.column, group: (at.offset / GROUP) as u32 }
    }

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

impl Groups {
    /// The groups of slabs with these regions, at most this many.
    pub(crate) fn with(bound: usize, regions: Regions) -> Groups {
        Cache::new(bound, move |key: GroupKey| GroupState {
            table: Box::default(),
            generation: 0,
            settled: Units::NONE,
            unknown: regions.of(&key.units()),
            hearsay: 0,
            flags: Flags::default(),
        })
    }

    /// Marks these regions of a column as unverified.
    pub(crate) fn hearsay(&self, row: RowNumber, column: u8, regions: Regions, which: u64) {
        let key = |group| GroupKey { row, column, group };
        for group in self.of(key(0)..=key(u32::MAX)) {
            let mut state = group.state.lock();
            let mine = regions.of(&group.key.units()) & !state.unknown;
            state.hearsay |= which & mine;
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
}
