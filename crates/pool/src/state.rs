//! The metadata of a pool as values, and the operations that change it.
//!
//! A [`State`] is a value: a clone of it costs a few pointers whatever the pool's size, has nothing of what
//! is changed later, and shares the memory of all that is not (`tree`).
//!
//! The journal holds [`Op`]s, the checkpoint a whole [`State`]; there is no other way to change one.
//! [`State::apply`] checks every operation against the invariants before it changes anything, so a record
//! from a disk that is damaged in a way its checksum missed is refused and does not panic.
//!
//! Invariants:
//! 1. A slab of a disk belongs to one row at most; `used` says so for every slab of every disk, and is derived.
//! 2. The copies of a column lie on different disks.
//! 3. A missed bit may be set on any copy; a row has at least one copy, present or absent, that has not
//!    missed a region: so no data is written off by accounting. ([`Op::AcceptLoss`] is the only exception,
//!    and counts.)
//! 4. Numbers of disks and spaces and slab generations only grow.
//! 5. A voter is a present disk.
//! 6. A row has at most one moving slab. It is a copy like the others, of the column of the slab that it
//!    replaces; that one is freed only when the new one has missed nothing that it has.
//! 7. Of a row with parity the slab that another moves to has at most the regions that the old one has, and
//!    none while one of their disks is absent: it never counts beside the old one, nor for it.

mod apply;
mod losses;
mod moving;
mod owned;
mod parts;
mod records;
mod redundancy;
mod shape;
mod shared;
#[cfg(test)]
mod tests;
mod used;

pub use apply::InvalidOp;
pub use owned::{Answers, SpaceOp};
pub(crate) use owned::{Carried, Refusal, carry_out};
pub(crate) use parts::StateParts;
pub use pool_seam::{
    Absence, FaultDomains, LOST_MAX, LossRecord, MediaClass, Provisioning, Resiliency, ScrubRecord,
    SlabPlace, Tree,
};
pub use records::{DiskRecord, Moving, Op, Policy, Presence, Row, SlabCopy, Slabs, SpaceRecord, Usage};
pub use shared::Shared;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{DiskNumber, PoolId, RowNumber, SpaceId, placement, voters};
use used::Used;

/// How many epochs a pool remembers.
pub const EPOCHS_MAX: usize = 4096;

/// How many openings that gave something up a pool remembers.
pub const GIVEN_UP_MAX: usize = 64;

/// The maximum size of a parity space's journal in bytes: the most that is replayed after a crash.
pub const JOURNAL_BYTES_MAX: u64 = 32 << 20;

/// Its interleave: small records stay in one column, so that few disks have to flush, and large ones go to all.
const JOURNAL_INTERLEAVE: u64 = 64 << 10;

/// The name of a parity space's journal.
fn journal_name(space: SpaceId) -> String {
    format!(".journal-{}", space.0)
}

/// The whole metadata of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The pool's identity.
    pub pool: PoolId,
    /// Its name.
    pub name: String,
    /// Bytes of data in a slab: a power of two.
    pub slab_bytes: u64,
    /// The disks, absent ones too.
    pub disks: Shared<BTreeMap<DiskNumber, DiskRecord>>,
    /// The voters, which keep this metadata.
    pub voters: BTreeSet<DiskNumber>,
    /// The spaces.
    pub spaces: Shared<BTreeMap<SpaceId, SpaceRecord>>,
    /// Their allocated rows.
    pub rows: Tree<(SpaceId, RowNumber), Row>,
    /// The reading of their copies, of those where it was begun or is awaited.
    pub scrubs: Shared<BTreeMap<SpaceId, ScrubRecord>>,
    /// The number that the next disk gets.
    pub next_disk: u16,
    /// The number that the next space gets.
    pub next_space: u32,
    /// The generation that the next allocated slab gets.
    pub next_generation: u32,
    /// Regions written off by [`Op::AcceptLoss`], for ever.
    pub regions_given_up: u64,
    /// The openings of the pool: the epoch, and the random number drawn with it. The newest [`EPOCHS_MAX`]; a
    /// disk whose label has another number for its epoch, or an epoch that is missing here, was used in
    /// another history than this one.
    pub epochs: Shared<BTreeMap<u64, u64>>,
    /// Openings, by their epochs, that gave up the data of absent disks, and the last record before each. The
    /// newest [`GIVEN_UP_MAX`]; a disk of an earlier epoch with records after that one has continued without
    /// this history.
    pub given_up: Shared<BTreeMap<u64, u64>>,
    /// Known lost units, by space; only spaces with some.
    pub losses: Shared<BTreeMap<SpaceId, LossRecord>>,
    /// The spaces that owners drive, with their rows.
    pub owned: Tree<SpaceId, Arc<pool_seam::SpaceRecord>>,
    /// The administrator's settings.
    pub policy: Policy,
    used: Used,
    index: owned::Index,
}

impl State {
    /// A new pool without disks.
    pub fn new(pool: PoolId, name: String, slab_bytes: u64) -> State {
        State {
            pool,
            name,
            slab_bytes,
            disks: Shared::default(),
            voters: BTreeSet::new(),
            spaces: Shared::default(),
            rows: Tree::default(),
            scrubs: Shared::default(),
            next_disk: 0,
            next_space: 0,
            next_generation: 1,
            regions_given_up: 0,
            epochs: Shared::default(),
            given_up: Shared::default(),
            losses: Shared::default(),
            policy: Policy::default(),
            owned: Tree::default(),
            used: Used::default(),
            index: owned::Index::default(),
        }
    }

    /// The epoch that the pool was last opened with; 0 for one that never was.
    pub fn epoch(&self) -> u64 {
        self.epochs.last_key_value().map_or(0, |(e, _)| *e)
    }

    /// How many disks may fail at once, by the most careful space; at least one.
    pub fn failures_promised(&self) -> usize {
        let spaces = self.spaces.values().map(|s| s.resiliency);
        let owned = self.owned.values().map(|s| s.resiliency);
        spaces.chain(owned).map(Resiliency::failures).max().unwrap_or(1).max(1)
    }

    /// How many voters must be left for the others to be dropped.
    pub fn needed_to_go_on(&self) -> usize {
        voters::needed_to_go_on(self.voters.len(), self.failures_promised())
    }

    /// How many of the voters must be seen to open the pool.
    pub fn needed_to_open(&self) -> usize {
        voters::needed_to_open(self.voters.len(), self.failures_promised())
    }

    /// The rows of a space that have slabs, in order.
    pub fn rows_of(&self, space: SpaceId) -> impl Iterator<Item = (RowNumber, &Row)> {
        let all = (space, RowNumber(0))..=(space, RowNumber(u32::MAX));
        self.rows.range(all).map(|((_, row), r)| (*row, r))
    }

    /// Whether the disk is present and in use.
    pub fn is_present(&self, disk: DiskNumber) -> bool {
        self.disks.get(&disk).is_some_and(|d| d.presence == Presence::Present)
    }

    /// Whether a copy may be read in these regions: its disk is present, and it has missed none of them.
    pub fn is_current(&self, copy: &SlabCopy, regions: u64) -> bool {
        copy.missed & regions == 0 && self.is_present(copy.place.disk)
    }

    /// Whether the disk has regions that the rest of their rows could not give.
    pub fn has_only_copies(&self, disk: DiskNumber) -> bool {
        self.has_only_copies_for_owners(disk)
            || self.rows.iter().any(|(&(space, row), r)| {
                let mine = r.copies().filter(|(_, c)| c.place.disk == disk);
                mine.into_iter().any(|(index, _)| self.only_here(space, row, index) != 0)
            })
    }

    /// Whether a disk has the only current copy of some data among the present disks: it is not dropped,
    /// whatever fails.
    pub fn needs(&self, disk: DiskNumber) -> bool {
        self.needs_for_owners(disk)
            || self.rows.iter().any(|(&(space, row), r)| {
                let mine = r.copies().filter(|(_, c)| c.place.disk == disk);
                mine.into_iter().any(|(index, _)| self.alone(space, row, index) != 0)
            })
    }

    /// Regions that a copy has, and that without it no present disks could give.
    pub fn alone(&self, space: SpaceId, row: RowNumber, index: usize) -> u64 {
        self.alone_among(space, row, index, |d| self.is_present(d))
    }

    /// The same among the disks that are `here`.
    pub(crate) fn alone_among(
        &self,
        space: SpaceId,
        row: RowNumber,
        index: usize,
        here: impl Fn(DiskNumber) -> bool,
    ) -> u64 {
        self.irreplaceable(space, row, index, |c| if here(c.place.disk) { c.missed } else { u64::MAX })
    }

    /// The rows with a slab on the move.
    pub fn moves(&self) -> impl Iterator<Item = (SpaceId, RowNumber, Moving)> + '_ {
        self.rows.iter().filter_map(|(&(space, row), r)| Some((space, row, r.moving()?)))
    }

    /// The copies on a disk: space, row, index.
    pub fn copies_on(&self, disk: DiskNumber) -> impl Iterator<Item = (SpaceId, RowNumber, usize)> + '_ {
        self.rows.iter().flat_map(move |(&(space, row), r)| {
            r.copies().filter(move |(_, c)| c.place.disk == disk).map(move |(index, _)| (space, row, index))
        })
    }

    /// The slabs of a disk that rows have.
    pub fn slabs_used(&self, disk: DiskNumber) -> impl Iterator<Item = u32> + '_ {
        self.used.of(disk)
    }

    /// How many slabs of all disks rows have.
    pub fn slabs_allocated(&self) -> usize {
        self.used.total()
    }

    /// How many slabs of a disk are free.
    pub fn slabs_free(&self, disk: DiskNumber) -> u32 {
        let total = self.disks.get(&disk).map_or(0, |d| d.slabs);
        total - self.used.count(disk)
    }

    /// The lowest free slabs of a disk, in order.
    pub fn free_slabs(&self, disk: DiskNumber) -> impl Iterator<Item = u32> + '_ {
        let total = self.disks.get(&disk).map_or(0, |d| d.slabs);
        self.used.free(disk, total)
    }

    /// Takes a slab that rows may not get now.
    pub(crate) fn take_slab(&mut self, place: SlabPlace) {
        self.used.insert(place);
    }

    /// The journal of a parity space: the space that was made with it, in the same record, so its number is
    /// the next one.
    pub fn journal_of(&self, space: SpaceId) -> Option<SpaceId> {
        let record = self.spaces.get(&space)?;
        let has_one = record.resiliency.is_parity() && !self.owned.contains_key(&space);
        has_one.then(|| SpaceId(space.0.wrapping_add(1)))
    }

    /// The parity space whose journal this is. It has no other users, and is destroyed with that space.
    pub fn owner_of(&self, journal: SpaceId) -> Option<SpaceId> {
        let owner = SpaceId(journal.0.checked_sub(1)?);
        let made = self.spaces.get(&journal)?.name == journal_name(owner);
        (self.journal_of(owner)? == journal && made).then_some(owner)
    }

    /// Units of a parity space's journal; `None` for others.
    pub(crate) fn journal_units(&self, space: SpaceId) -> Option<u64> {
        let journal = self.journal_of(space)?;
        Some(self.spaces.get(&journal).map_or(0, |j| j.size / crate::UNIT))
    }

    /// The operations that make a space: of one with parity, its journal too.
    pub fn create_ops(&self, record: SpaceRecord) -> Vec<Op> {
        let space = SpaceId(self.next_space);
        let copies = record.resiliency.failures() + 1;
        let media = record.media.or_faster();
        let journal = record.resiliency.is_parity().then(|| SpaceRecord {
            name: journal_name(space),
            size: self.slab_bytes.min(JOURNAL_BYTES_MAX),
            resiliency: Resiliency::Mirror { copies: copies.min(255) as u8 },
            interleave: (JOURNAL_INTERLEAVE.min(self.slab_bytes)) as u32,
            columns: placement::journal_columns(self, media, copies, record.slabs_in_row()),
            provisioning: Provisioning::Fixed,
            media,
        });
        let mut ops = vec![Op::CreateSpace { space, record }];
        ops.extend(journal.map(|record| Op::CreateSpace { space: SpaceId(space.0.wrapping_add(1)), record }));
        ops
    }

    /// The operations that give a space another class of media; the journal of one with parity may lie on
    /// faster ones, too.
    pub fn media_ops(&self, space: SpaceId, media: MediaClass) -> Vec<Op> {
        let journal = self.journal_of(space);
        let mut ops = vec![Op::SetSpaceMedia { space, media }];
        ops.extend(journal.map(|space| Op::SetSpaceMedia { space, media: media.or_faster() }));
        ops
    }

    /// The operations that make a disk absent: its copies miss the regions of `active`, which may have writes
    /// that it lost.
    ///
    /// `active` returns the regions of a copy that had writes since the disk was last flushed. A voter is
    /// also dropped as such. `answers`: what owners say that it lacks of their spaces. Regions without another copy are not marked: the disk's copy is the newest there
    /// is, and the region waits for the disk.
    pub fn leave(
        &self,
        disk: DiskNumber,
        reason: Absence,
        answers: &Answers,
        mut active: impl FnMut(SpaceId, RowNumber, usize) -> u64,
    ) -> Vec<Op> {
        let mut ops = self.account(disk, answers);
        for (&(space, row), r) in &self.rows {
            for (index, copy) in r.copies().filter(|(_, c)| c.place.disk == disk) {
                let regions = active(space, row, index) & !copy.missed;
                let regions = regions & !self.only_here(space, row, index);
                if regions != 0 {
                    ops.push(Op::Missed { space, row, index: index as u8, regions });
                }
            }
        }
        if self.voters.contains(&disk) {
            let left = self.voters.iter().copied().filter(|v| *v != disk).collect();
            ops.push(Op::Voters { voters: left });
        }
        ops.push(Op::DiskAbsent { disk, reason });
        ops
    }
}
