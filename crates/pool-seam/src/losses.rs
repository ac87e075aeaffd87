//! Known lost units of a space; the record outlives a closing of the pool.

use std::collections::BTreeSet;

use crate::UNIT;

/// The maximum number of recorded addresses per space: the units of one checksum block.
pub const LOST_MAX: usize = 512;

/// Known lost units of a space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossRecord {
    /// The number of lost units, or a lower bound of it; at least the length of `at`.
    pub units: u64,
    /// The lowest [`LOST_MAX`] addresses found.
    pub at: BTreeSet<u64>,
}

impl LossRecord {
    /// Whether the count may be incomplete: not every address is recorded, so a unit that is found again
    /// cannot be recognised.
    pub fn is_open(&self) -> bool {
        self.units > self.at.len() as u64 || self.at.len() >= LOST_MAX
    }

    /// Adds the lost units at these addresses, each counted once. Beyond [`LOST_MAX`] addresses only the
    /// count is kept, which is a lower bound from then on.
    #[must_use]
    pub fn with(&self, found: &BTreeSet<u64>) -> LossRecord {
        let all: BTreeSet<u64> = self.at.union(found).copied().collect();
        let units = self.units.max(all.len() as u64);
        LossRecord { units, at: all.into_iter().take(LOST_MAX).collect() }
    }

    /// Adds at least `units` lost units with unknown addresses.
    #[must_use]
    pub fn with_unknown(&self, units: u64) -> LossRecord {
        LossRecord { units: self.units.max(self.at.len() as u64 + units), at: self.at.clone() }
    }

    /// The remaining losses after all of the space has been read: recorded and newly found ones without those
    /// that are `gone`. `counted` is the reader's count, used if not every address is known.
    #[must_use]
    pub fn settled(&self, found: &BTreeSet<u64>, gone: &BTreeSet<u64>, counted: u64) -> LossRecord {
        let is_open = self.is_open() || found.len() >= LOST_MAX;
        let left: BTreeSet<u64> = self.at.union(found).filter(|a| !gone.contains(a)).copied().collect();
        let known = left.len() as u64;
        let units = if is_open { known.max(counted) } else { known };
        LossRecord { units, at: left.into_iter().take(LOST_MAX).collect() }
    }

    /// Whether the addresses are multiples of a unit, at most [`LOST_MAX`], and not more than `units`.
    pub fn is_sound(&self) -> bool {
        self.at.len() <= LOST_MAX
            && self.units >= self.at.len() as u64
            && self.at.iter().all(|a| a.is_multiple_of(UNIT))
    }
}

#[cfg(test)]
mod tests;
