//! Spaces in the metadata, and which of their copies are current (`docs/0004-spaces.md`, rules 10, 14, 17 and 18).

mod apply;
mod freed;
mod index;
mod op;
mod parts;
mod removal;
mod request;
mod reshape;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Range;

use pool_seam::{
    DiskView, Membership, Ownership, REGIONS, Row, SlabCopy, SpaceEpoch, SpaceRecord, SpaceView, ViewVersion,
};

use super::State;
use crate::{DiskNumber, RowNumber, SpaceId};
pub(super) use index::Index;
pub use op::{NewSlab, SpaceOp};
pub use removal::OwnerAnswers;
pub(crate) use request::{Refusal, RequestOutcome, carry_out};

/// The stale bits of a wholly stale copy, in slabs of any size.
const ALL: u64 = u64::MAX;

impl State {
    /// A new space of this shape, without rows, with the first owner of this opening of the pool. Returns `None` if
    /// all slots of marks are used.
    pub(crate) fn new_space(&self, record: SpaceRecord) -> Option<SpaceRecord> {
        let ownership = Ownership { epoch: SpaceEpoch::first(self.epoch()), ..Ownership::default() };
        Some(SpaceRecord { former: record.shape(), ownership, slot: self.free_slot()?, ..record })
    }

    /// The membership of a disk that is in service.
    pub fn membership(&self, disk: DiskNumber) -> Option<Membership> {
        self.disks.get(&disk).filter(|_| self.is_present(disk)).map(|record| record.membership)
    }

    /// The view of a space for its owner.
    pub(crate) fn space_view(&self, space: SpaceId, version: ViewVersion) -> Option<SpaceView> {
        let record = self.spaces.get(&space)?.clone();
        let disks = self.index.disks_of(space).filter_map(|disk| {
            let of = self.disks.get(&disk)?;
            Some((
                disk,
                DiskView {
                    membership: self.membership(disk),
                    is_leaving: of.usage.is_leaving(),
                    areas: of.areas,
                },
            ))
        });
        let disks = disks.collect::<std::collections::BTreeMap<_, _>>().into();
        Some(SpaceView { version, pool: self.pool, space, slab_bytes: self.slab_bytes, record, disks })
    }

    /// Whether rows have slabs on a disk.
    pub(crate) fn has_rows(&self, disk: DiskNumber) -> bool {
        self.index.spaces_on(disk).next().is_some()
    }

    /// The spaces with slabs on a disk, each once.
    pub(crate) fn spaces_on(&self, disk: DiskNumber) -> impl Iterator<Item = SpaceId> + '_ {
        self.index.spaces_on(disk)
    }

    /// The rows of a space in order, without its log.
    pub fn rows_of(&self, space: SpaceId) -> impl Iterator<Item = (RowNumber, &Row)> {
        self.spaces.get(&space).into_iter().flat_map(|record| record.data_rows())
    }

    /// Whether a slab of any row is being moved.
    pub fn is_moving(&self) -> bool {
        self.spaces.values().any(|record| record.rows.values().any(|row| row.moving().is_some()))
    }

    /// Whether a copy may be read in these regions: its disk is present, and none of them is stale.
    pub fn is_current(&self, record: &SpaceRecord, copy: &SlabCopy, regions: u64) -> bool {
        record.stale_regions(copy) & regions == 0 && self.is_present(copy.place.disk)
    }

    /// The rows with slabs on a disk, including slabs that are being moved, in the order of their spaces.
    pub(crate) fn rows_on(&self, disk: DiskNumber) -> impl Iterator<Item = (SpaceId, RowNumber, &Row)> + '_ {
        let rows = self.index.rows_on(disk);
        rows.filter_map(|(space, row)| Some((space, row, self.spaces.get(&space)?.rows.get(&row)?)))
    }

    /// Whether a disk has data of a row that the other present disks do not have.
    pub(crate) fn is_only_copy(&self, disk: DiskNumber, space: SpaceId, number: RowNumber) -> bool {
        let here = |other| other != disk && self.is_present(other);
        self.spaces.get(&space).is_some_and(|record| {
            record.rows.get(&number).is_some_and(|row| alone(record, number, row, disk, here) != 0)
        })
    }

    /// Whether a disk has the only current copy of some data among the present disks: it is never removed from service.
    pub fn needs(&self, disk: DiskNumber) -> bool {
        self.has_alone(disk, |other| other != disk && self.is_present(other))
    }

    /// Whether a disk has data that no other disk has, including absent ones.
    pub fn has_only_copies(&self, disk: DiskNumber) -> bool {
        self.has_alone(disk, |other| other != disk)
    }

    /// Whether the disk has data that the disks in `here` cannot recover without it.
    pub(crate) fn has_alone(&self, disk: DiskNumber, here: impl Fn(DiskNumber) -> bool) -> bool {
        self.index.rows_on(disk).any(|(space, number)| {
            let Some(record) = self.spaces.get(&space) else { return false };
            record.rows.get(&number).is_some_and(|row| alone(record, number, row, disk, &here) != 0)
        })
    }
}

/// Regions of a row that the disks in `here` can recover with this disk, but not without it. Other unaccounted disks
/// are not used.
pub(super) fn alone(
    record: &SpaceRecord,
    number: RowNumber,
    row: &Row,
    disk: DiskNumber,
    here: impl Fn(DiskNumber) -> bool,
) -> u64 {
    only(record, number, row, disk, |other| here(other) && !record.unaccounted.contains_key(&other))
}

/// [`alone`], with the unaccounted disks that are in `here`.
pub(super) fn only(
    record: &SpaceRecord,
    number: RowNumber,
    row: &Row,
    disk: DiskNumber,
    here: impl Fn(DiskNumber) -> bool,
) -> u64 {
    if row.is_new && number != RowNumber::LOG {
        return 0;
    }
    let has = |set: &Range<usize>, bit: u32, here: &dyn Fn(DiskNumber) -> bool| {
        let has = |copy: &SlabCopy| here(copy.place.disk) && copy.stale_regions & (1 << bit) == 0;
        let copies = row.copies().filter(|(_, copy)| has(copy)).map(|(index, _)| row.slab_of(index));
        copies.filter(|slab| set.contains(slab)).collect::<BTreeSet<_>>().len()
    };
    let with = |other| other == disk || here(other);
    let mut alone = 0;
    for (set, needed) in sets(record, number, row) {
        let bits =
            (0..REGIONS).filter(|bit| has(&set, *bit, &with) >= needed && has(&set, *bit, &here) < needed);
        alone |= bits.fold(0, |bits, bit| bits | 1 << bit);
    }
    alone
}

/// The sets of slabs, and how many slabs of each suffice to recover the set.
fn sets(record: &SpaceRecord, number: RowNumber, row: &Row) -> Vec<(Range<usize>, usize)> {
    if number == RowNumber::LOG {
        return vec![(0..row.slabs.len(), 1)];
    }
    let shape = record.shape_of(row);
    let (size, needed) = (shape.slabs_in_set(), shape.slabs_in_set() - shape.resiliency.failures());
    (0..usize::from(shape.sets())).map(|set| (set * size..(set + 1) * size, needed)).collect()
}
