//! A set of the 512 units of a group.

use std::ops::Range;

use crate::GROUP_UNITS;

const WORDS: usize = GROUP_UNITS as usize / 64;

/// Which units of a group; unit `u` is bit `u % 64` of word `u / 64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units(pub [u64; WORDS]);

impl Units {
    /// None of them.
    pub const NONE: Units = Units([0; WORDS]);

    /// Those from `from` up to, not including, `to`.
    pub fn range(from: usize, to: usize) -> Units {
        // The bits below `unit`, of word `i`.
        let below = |unit: usize, i: usize| match unit.saturating_sub(i * 64) {
            bits @ 0..64 => (1 << bits) - 1,
            _ => u64::MAX,
        };
        Units(std::array::from_fn(|i| below(to, i) & !below(from, i)))
    }

    /// Whether it is in the set.
    pub fn has(&self, unit: usize) -> bool {
        self.0[unit / 64] & 1 << (unit % 64) != 0
    }

    /// Whether all of these are in it.
    pub fn has_all(&self, range: Range<usize>) -> bool {
        words(range).all(|(i, bits)| self.0[i] & bits == bits)
    }

    /// Whether any of these is in it.
    pub fn has_any(&self, range: Range<usize>) -> bool {
        words(range).any(|(i, bits)| self.0[i] & bits != 0)
    }

    /// Puts it in.
    pub fn insert(&mut self, unit: usize) {
        self.0[unit / 64] |= 1 << (unit % 64);
    }

    /// Takes it out.
    pub fn remove(&mut self, unit: usize) {
        self.0[unit / 64] &= !(1 << (unit % 64));
    }

    /// Puts it in or takes it out.
    pub fn set(&mut self, unit: usize, to: bool) {
        if to { self.insert(unit) } else { self.remove(unit) }
    }

    /// Whether none is in it.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// How many are in it.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }

    /// Those in it, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let unit = (left != 0).then(|| i * 64 + left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(unit)
            })
        })
    }

    /// Stretches of neighbours: the first, and the one after the last.
    pub fn stretches(&self) -> Vec<(usize, usize)> {
        let mut out: Vec<(usize, usize)> = Vec::new();
        for unit in self.iter() {
            match out.last_mut() {
                Some((_, to)) if *to == unit => *to += 1,
                _ => out.push((unit, unit + 1)),
            }
        }
        out
    }

    /// Those in both.
    pub fn and(&self, other: &Units) -> Units {
        Units(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Those in either.
    pub fn or(&self, other: &Units) -> Units {
        Units(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Those not in `other`.
    pub fn without(&self, other: &Units) -> Units {
        Units(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    pub(super) fn put(&self, to: &mut [u8]) {
        for (bytes, word) in to.chunks_exact_mut(8).zip(self.0) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    pub(super) fn get(from: &[u8]) -> Units {
        Units(std::array::from_fn(|i| super::u64_at(from, i * 8)))
    }
}

/// The words that have a range's units, and which of their bits those are.
fn words(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let left = range.end.checked_sub(at).filter(|n| *n > 0)?;
        let (i, bit) = (at / 64, at % 64);
        let bits = left.min(64 - bit);
        at += bits;
        Some((i, u64::MAX >> (64 - bits) << bit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_their_units_one_by_one() {
        for from in (0..=512).step_by(7).chain([63, 64, 65, 511, 512]) {
            for to in (0..=512).step_by(5).chain([63, 64, 65, 511, 512]) {
                let units = Units::range(from, to);
                assert!(units.iter().eq(from..to), "{from}..{to}");
                assert!((0..512).all(|u| units.has(u) == (from..to).contains(&u)), "{from}..{to}");
                assert!(units.has_all(from..to) && units.has_any(from..to) == (from < to), "{from}..{to}");
                let rest = Units::range(0, 512).without(&units);
                assert!(!rest.has_any(from..to) && rest.has_all(from..to) == (from >= to), "{from}..{to}");
            }
        }
    }

    #[test]
    fn a_range_and_its_bytes() {
        let units = Units::range(60, 130);
        assert_eq!((units.count(), units.iter().next(), units.iter().last()), (70, Some(60), Some(129)));
        assert!(units.has(64) && !units.has(130) && !units.is_empty());
        let mut bytes = [0; 64];
        units.put(&mut bytes);
        assert_eq!((bytes[7], Units::get(&bytes)), (0xf0, units));
        let other = Units::range(100, 512);
        assert_eq!(units.and(&other), Units::range(100, 130));
        assert_eq!(units.or(&other), Units::range(60, 512));
        assert_eq!(units.without(&other), Units::range(60, 100));
        assert_eq!(Units::range(0, 3).or(&other).stretches(), [(0, 3), (100, 512)]);
    }
}
