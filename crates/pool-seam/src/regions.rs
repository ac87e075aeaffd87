//! The regions of a slab, in which missed writes and overwrites in progress are counted: `docs/on-disk-format.md`, "A
//! disk". Region `r` is bit `r` of 64.

use std::ops::Range;

use crate::{GROUP, GROUP_UNITS, REGIONS, UNIT};

/// Units and regions of slabs of one size.
///
/// A region is the larger of a 64th of a slab and a group, so that a checksum block is never valid in one part and
/// stale in another. A slab of less than 128 MiB has fewer than 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    units_per_region: u32,
    count: u32,
}

impl Regions {
    /// Those of slabs of this many bytes, a power of two from 2 MiB to 1 GiB; see [`crate::Areas`].
    pub fn new(slab_bytes: u64) -> Regions {
        let bytes = (slab_bytes / u64::from(REGIONS)).max(GROUP);
        Regions { units_per_region: (bytes / UNIT) as u32, count: (slab_bytes / bytes) as u32 }
    }

    /// How many a slab has.
    pub fn count(self) -> u32 {
        self.count
    }

    /// The bits of all of them.
    pub fn all(self) -> u64 {
        u64::MAX >> (u64::BITS - self.count)
    }

    /// What a copy has missed that had missed `missed`, and lacks `more` now: only regions that there are, or all 64 bits for
    /// everything.
    pub fn missed(self, missed: u64, more: u64) -> u64 {
        if missed == u64::MAX || more == u64::MAX { u64::MAX } else { (missed | more) & self.all() }
    }

    /// The bits of the regions of a slab's units; not none of them.
    pub fn of(self, units: &Range<u32>) -> u64 {
        let (first, last) = (units.start / self.units_per_region, (units.end - 1) / self.units_per_region);
        (u64::MAX >> (63 - (last - first))) << first
    }

    /// The bit of the region that has a group.
    pub fn of_group(self, group: u32) -> u64 {
        1 << (group * GROUP_UNITS as u32 / self.units_per_region)
    }

    /// The groups of a region.
    pub fn groups(self, region: u32) -> Range<u32> {
        let groups = self.units_per_region / GROUP_UNITS as u32;
        region * groups..(region + 1) * groups
    }
}

#[cfg(test)]
mod tests;
