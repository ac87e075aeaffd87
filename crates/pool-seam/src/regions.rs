//! The regions of a slab, by which stale data and overwrites in progress are tracked:
//! `docs/on-disk-format.md`, "A disk". Region `r` is bit `r` of a 64-bit mask.

use std::ops::Range;

use crate::{GROUP, GROUP_UNITS, REGIONS, UNIT};

/// Units and regions of slabs of one size.
///
/// A region is 1/64 of a slab, but at least a group. So a checksum block never covers both a stale and a
/// current region. A slab of less than 128 MiB has fewer than 64 regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    units_per_region: u32,
    count: u32,
}

impl Regions {
    /// The regions of slabs of `slab_bytes` bytes, a power of two from 2 MiB to 1 GiB; see [`crate::Areas`].
    pub fn new(slab_bytes: u64) -> Regions {
        let bytes = (slab_bytes / u64::from(REGIONS)).max(GROUP);
        Regions { units_per_region: (bytes / UNIT) as u32, count: (slab_bytes / bytes) as u32 }
    }

    /// The number of regions of a slab.
    pub fn count(self) -> u32 {
        self.count
    }

    /// Bitmask of all regions.
    pub fn all(self) -> u64 {
        u64::MAX >> (u64::BITS - self.count)
    }

    /// The union of two bitmasks of stale regions: only existing regions, or all 64 bits if either says that
    /// everything is stale.
    pub fn union(self, stale: u64, more: u64) -> u64 {
        if stale == u64::MAX || more == u64::MAX { u64::MAX } else { (stale | more) & self.all() }
    }

    /// Bitmask of the regions that contain these units; `units` must not be empty.
    pub fn of(self, units: &Range<u32>) -> u64 {
        let (first, last) = (units.start / self.units_per_region, (units.end - 1) / self.units_per_region);
        (u64::MAX >> (63 - (last - first))) << first
    }

    /// The bit of the region that contains a group.
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
