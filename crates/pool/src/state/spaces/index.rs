//! An index of the rows with slabs on each disk, derived from the rows.
//!
//! Invariant: no count is 0, so that equal sets are equal values.

use pool_seam::Tree;

use crate::{DiskNumber, RowNumber, SpaceId};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::state) struct Index {
    /// The number of slabs that a row has on a disk.
    rows: Tree<(DiskNumber, SpaceId, RowNumber), u32>,
    /// The number of slabs that a space has on a disk.
    disks: Tree<(SpaceId, DiskNumber), u32>,
}

impl Index {
    /// Adds a slab of a row on a disk.
    pub(super) fn insert(&mut self, space: SpaceId, row: RowNumber, disk: DiskNumber) {
        more(&mut self.rows, (disk, space, row));
        more(&mut self.disks, (space, disk));
    }

    /// Removes a slab of a row on a disk.
    pub(super) fn remove(&mut self, space: SpaceId, row: RowNumber, disk: DiskNumber) {
        fewer(&mut self.rows, (disk, space, row));
        fewer(&mut self.disks, (space, disk));
    }

    /// The disks with slabs of a space.
    pub(super) fn disks_of(&self, space: SpaceId) -> impl Iterator<Item = DiskNumber> + '_ {
        let all = (space, DiskNumber(0))..=(space, DiskNumber(u16::MAX));
        self.disks.range(all).map(|((_, disk), _)| *disk)
    }

    /// The rows with slabs on a disk.
    pub(super) fn rows_on(&self, disk: DiskNumber) -> impl Iterator<Item = (SpaceId, RowNumber)> + '_ {
        let first = (disk, SpaceId(0), RowNumber(0));
        let last = (disk, SpaceId(u32::MAX), RowNumber(u32::MAX));
        self.rows.range(first..=last).map(|((_, space, row), _)| (*space, *row))
    }

    /// The spaces with slabs on a disk, each once. Costs one search for each space.
    pub(super) fn spaces_on(&self, disk: DiskNumber) -> impl Iterator<Item = SpaceId> + '_ {
        let mut next = Some(SpaceId(0));
        std::iter::from_fn(move || {
            let first = (disk, next?, RowNumber(0));
            let last = (disk, SpaceId(u32::MAX), RowNumber(u32::MAX));
            let space = self.rows.range(first..=last).next().map(|((_, space, _), _)| *space);
            next = space.and_then(|space| space.0.checked_add(1)).map(SpaceId);
            space
        })
    }
}

fn more<K: Ord + Copy>(counts: &mut Tree<K, u32>, key: K) {
    match counts.get_mut(&key) {
        Some(count) => *count += 1,
        None => drop(counts.insert(key, 1)),
    }
}

fn fewer<K: Ord + Copy>(counts: &mut Tree<K, u32>, key: K) {
    let Some(count) = counts.get_mut(&key) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
}
