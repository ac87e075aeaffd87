//! Known lost units of a space, across openings of the pool.

use std::collections::BTreeSet;

use crate::UNIT;

/// How many addresses of lost units are kept for a space; as many as one checksum block is of.
pub const LOST_MAX: usize = 512;

/// Known lost units of a space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossRecord {
    /// How many there are, at least: as many as `at` has, or more.
    pub units: u64,
    /// Where: the lowest [`LOST_MAX`] of those that were found.
    pub at: BTreeSet<u64>,
}

impl LossRecord {
    /// Whether there may be more than are counted: not every address is recorded, so one that is found again
    /// would count as a new one.
    pub fn is_open(&self) -> bool {
        self.units > self.at.len() as u64 || self.at.len() >= LOST_MAX
    }

    /// The same with units that were found at these addresses, each counted once. Of those beyond
    /// [`LOST_MAX`] only the number is kept, and it is a lower bound from then on.
    #[must_use]
    pub fn with(&self, found: &BTreeSet<u64>) -> LossRecord {
        let all: BTreeSet<u64> = self.at.union(found).copied().collect();
        let units = self.units.max(all.len() as u64);
        LossRecord { units, at: all.into_iter().take(LOST_MAX).collect() }
    }

    /// The same with so many units at least of which it is not known where they are.
    #[must_use]
    pub fn with_unknown(&self, units: u64) -> LossRecord {
        LossRecord { units: self.units.max(self.at.len() as u64 + units), at: self.at.clone() }
    }

    /// The remaining losses, including those found meanwhile, when all of the space has been read: without
    /// those that are `gone`. `counted` is the reader's count, which is used if not every address is known.
    #[must_use]
    pub fn settled(&self, found: &BTreeSet<u64>, gone: &BTreeSet<u64>, counted: u64) -> LossRecord {
        let is_open = self.is_open() || found.len() >= LOST_MAX;
        let left: BTreeSet<u64> = self.at.union(found).filter(|a| !gone.contains(a)).copied().collect();
        let known = left.len() as u64;
        let units = if is_open { known.max(counted) } else { known };
        LossRecord { units, at: left.into_iter().take(LOST_MAX).collect() }
    }

    /// Whether these are addresses of units, at most [`LOST_MAX`] of them, and not more than there are units.
    pub fn is_sound(&self) -> bool {
        self.at.len() <= LOST_MAX
            && self.units >= self.at.len() as u64
            && self.at.iter().all(|a| a.is_multiple_of(UNIT))
    }
}

#[cfg(test)]
mod tests;
