//! A set of the 512 units of a group.

use std::ops::BitOr;

use pool_seam::GROUP_UNITS;

use crate::codec::{Malformed, Reader};

const WORDS: usize = GROUP_UNITS as usize / 64;

/// Which units of a group; unit `u` is bit `u mod 64` of word `u / 64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units(pub [u64; WORDS]);

impl Units {
    /// The empty set.
    pub const NONE: Units = Units([0; WORDS]);

    /// The set of all units.
    pub const ALL: Units = Units([u64::MAX; WORDS]);

    /// Whether a unit, 0 to 511, is in the set.
    pub fn has(&self, unit: usize) -> bool {
        self.0[unit / 64] & 1 << (unit % 64) != 0
    }

    /// Adds or removes a unit, 0 to 511.
    pub fn set(&mut self, unit: usize, to: bool) {
        let (word, bit) = (&mut self.0[unit / 64], 1 << (unit % 64));
        if to { *word |= bit } else { *word &= !bit }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        *self == Units::NONE
    }

    /// The units of the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let words = self.0.into_iter().enumerate();
        words.flat_map(|(at, word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(64 * at + bit)
            })
        })
    }

    /// The 64 bytes of the set on a disk.
    pub(super) fn bytes(&self) -> impl Iterator<Item = u8> {
        self.0.into_iter().flat_map(u64::to_le_bytes)
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<Units, Malformed> {
        let mut units = Units::NONE;
        for word in &mut units.0 {
            *word = r.u64()?;
        }
        Ok(units)
    }
}

impl BitOr for Units {
    type Output = Units;

    /// The union of two sets.
    fn bitor(self, other: Units) -> Units {
        Units(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }
}

impl FromIterator<usize> for Units {
    fn from_iter<I: IntoIterator<Item = usize>>(units: I) -> Units {
        let mut set = Units::NONE;
        units.into_iter().for_each(|unit| set.set(unit, true));
        set
    }
}
