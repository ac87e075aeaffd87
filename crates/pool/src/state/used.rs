//! The slabs of disks that rows use, as bitmaps.
//!
//! Invariant: no stored word and no count is 0, so that equal sets are equal values.

use super::SlabPlace;
use crate::DiskNumber;
use pool_seam::Tree;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// The bits of 64 slabs each, by disk and index of the word.
    words: Tree<(DiskNumber, u32), u64>,
    counts: Tree<DiskNumber, u32>,
    total: usize,
}

impl Used {
    /// Adds a slab; returns `false` if it was already in the set.
    pub(super) fn insert(&mut self, place: SlabPlace) -> bool {
        if self.contains(place) {
            return false;
        }
        let (key, bit) = word_of(place);
        match self.words.get_mut(&key) {
            Some(word) => *word |= bit,
            None => drop(self.words.insert(key, bit)),
        }
        match self.counts.get_mut(&place.disk) {
            Some(count) => *count += 1,
            None => drop(self.counts.insert(place.disk, 1)),
        }
        self.total += 1;
        true
    }

    /// Removes a slab.
    pub(super) fn remove(&mut self, place: SlabPlace) {
        if !self.contains(place) {
            return;
        }
        let (key, bit) = word_of(place);
        if let Some(word) = self.words.get_mut(&key) {
            *word &= !bit;
            if *word == 0 {
                self.words.remove(&key);
            }
        }
        if let Some(count) = self.counts.get_mut(&place.disk) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&place.disk);
            }
        }
        self.total -= 1;
    }

    pub(super) fn contains(&self, place: SlabPlace) -> bool {
        let (key, bit) = word_of(place);
        self.words.get(&key).is_some_and(|word| word & bit != 0)
    }

    /// The number of slabs of a disk.
    pub(super) fn count(&self, disk: DiskNumber) -> u32 {
        self.counts.get(&disk).copied().unwrap_or(0)
    }

    /// The number of slabs of all disks.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// The slabs of a disk, in order.
    pub(super) fn of(&self, disk: DiskNumber) -> impl Iterator<Item = u32> + '_ {
        self.words_of(disk).flat_map(|(at, word)| bits(word).map(move |bit| at * 64 + bit))
    }

    /// The slabs of a disk below `total` that are not in the set, in order.
    pub(super) fn free(&self, disk: DiskNumber, total: u32) -> impl Iterator<Item = u32> + '_ {
        let mut words = self.words_of(disk).peekable();
        let mut used = move |at: u32| words.next_if(|(w, _)| *w == at).map_or(0, |(_, word)| word);
        (0..total.div_ceil(64))
            .flat_map(move |at| bits(!used(at)).map(move |bit| at * 64 + bit))
            .take_while(move |slab| *slab < total)
    }

    fn words_of(&self, disk: DiskNumber) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.words.range((disk, 0)..=(disk, u32::MAX)).map(|((_, at), word)| (*at, *word))
    }
}

fn word_of(place: SlabPlace) -> ((DiskNumber, u32), u64) {
    ((place.disk, place.slab / 64), 1 << (place.slab % 64))
}

fn bits(word: u64) -> impl Iterator<Item = u32> {
    let rest = |word: &u64| Some(word & (word - 1)).filter(|w| *w != 0);
    std::iter::successors(Some(word).filter(|w| *w != 0), rest).map(u64::trailing_zeros)
}

#[cfg(test)]
mod tests;
