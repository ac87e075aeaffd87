//! The records of the metadata, and the operations on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use disk::Media;
use pool_seam::{Areas, LogState, Membership, Ownership, SpaceEpoch, Tree, media_of};
pub use pool_seam::{Moving, SlabCopy};

use super::SpaceOp;

use crate::parity::Code;
use crate::{
    Absence, DiskId, DiskNumber, FaultDomains, LossRecord, MediaClass, Provisioning, Resiliency, RowNumber,
    ScrubRecord, SlabPlace, SpaceId,
};

/// One disk of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRecord {
    /// Its identity in its label.
    pub id: DiskId,
    /// Its name: the device's own identity when it was added.
    pub name: String,
    /// How many slabs it has room for.
    pub slabs: u32,
    /// Its usage.
    pub usage: Usage,
    /// Whether it is in service.
    pub presence: Presence,
    /// Where it stands.
    pub domains: FaultDomains,
    /// The number of [`DiskRecord::media`](DiskRecord#method.media).
    pub media: u8,
    /// The sequence number of the label that it was last given; one that shows an older label has lost writes.
    pub label_sequence: u64,
    /// How often it has joined the service.
    pub membership: Membership,
    /// Where everything is on it.
    pub areas: Areas,
}

impl DiskRecord {
    /// Its medium; a number that this version does not know is [`Media::Unspecified`].
    pub fn media(&self) -> Media {
        media_of(self.media)
    }

    /// The membership that it has when it joins again.
    pub fn next_membership(&self) -> Membership {
        Membership(self.membership.0.saturating_add(1))
    }

    /// The sequence number of the next label of a disk that shows this one. Not below what is remembered,
    /// even on a disk that shows an older one: a disk with what it had before would pass as current.
    pub fn next_label(&self, shown: u64) -> u64 {
        shown.max(self.label_sequence) + 1
    }
}

/// The usage of a disk (`Set-PhysicalDisk -Usage`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// New slabs go here.
    AutoSelect,
    /// New slabs go here only when asked for by name.
    ManualSelect,
    /// Takes the slabs of a disk that failed.
    HotSpare,
    /// Parity journals.
    Journal,
    /// No new slabs; its data moves to other disks.
    Retired,
    /// As [`Usage::Retired`], and it is removed from the pool when it is empty.
    Leaving,
}

impl Usage {
    /// Whether what the disk has is to be moved to others.
    pub fn is_leaving(self) -> bool {
        matches!(self, Usage::Retired | Usage::Leaving)
    }
}

/// Whether a disk is in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It gets every write.
    Present,
    /// It gets none, until it is returned.
    Absent(Absence),
}

/// One virtual disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceRecord {
    /// Its name, unique in the pool.
    pub name: String,
    /// Bytes that its user sees: a multiple of [`crate::UNIT`].
    pub size: u64,
    /// How it survives failures.
    pub resiliency: Resiliency,
    /// Bytes that go to one column before the next: a power of two, from [`crate::UNIT`] to a slab.
    pub interleave: u32,
    /// Data columns of a row.
    pub columns: u8,
    /// When its slabs are allocated.
    pub provisioning: Provisioning,
    /// Which disks they may lie on.
    pub media: MediaClass,
}

/// The slabs of one row: `column * copies + copy`; data columns first, then parity columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// One for each column and copy.
    pub slabs: Slabs,
    /// Few rows have one: the others have a pointer's room for it.
    moving: Option<Box<Moving>>,
}

/// The slabs of a row. There are millions: rows that are clones share them until one of them is changed.
#[derive(Clone, PartialEq, Eq)]
pub struct Slabs(Arc<[SlabCopy]>);

impl Deref for Slabs {
    type Target = [SlabCopy];

    fn deref(&self) -> &[SlabCopy] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a Slabs {
    type Item = &'a SlabCopy;
    type IntoIter = std::slice::Iter<'a, SlabCopy>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Debug for Slabs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The administrator's settings for the whole pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Percentage of the slabs of all disks in use from which on the administrator should add disks. At most
    /// 100.
    pub warn_at: u8,
    /// Seconds after which a lost disk is rebuilt on others; [`Policy::NEVER`]: by command only.
    pub repair_after_s: u32,
}

impl Policy {
    /// For [`Policy::repair_after_s`].
    pub const NEVER: u32 = u32::MAX;
}

impl Default for Policy {
    /// A warning at 70 %; five minutes, as Storage Spaces has it: longer than a restart or a cable that is put back.
    fn default() -> Policy {
        Policy { warn_at: 70, repair_after_s: 300 }
    }
}

impl Row {
    /// A row of these slabs, none of which moves.
    pub fn new(slabs: impl IntoIterator<Item = SlabCopy>) -> Row {
        Row { slabs: Slabs(slabs.into_iter().collect()), moving: None }
    }

    /// Where one of its slabs is moving to.
    pub fn moving(&self) -> Option<Moving> {
        self.moving.as_deref().copied()
    }

    pub(crate) fn set_moving(&mut self, moving: Option<Moving>) {
        self.moving = moving.map(Box::new);
    }

    /// The copy of an index, to change.
    pub(crate) fn copy_mut(&mut self, index: usize) -> Option<&mut SlabCopy> {
        if index < self.slabs.len() {
            return Arc::make_mut(&mut self.slabs.0).get_mut(index);
        }
        self.moving.as_deref_mut().map(|m| &mut m.copy).filter(|_| index == self.slabs.len())
    }

    /// Every copy with its index: the row's slabs, then where one of them is moving to.
    pub fn copies(&self) -> impl Iterator<Item = (usize, &SlabCopy)> + Clone {
        self.slabs.iter().chain(self.moving.as_deref().map(|m| &m.copy)).enumerate()
    }

    /// The copy of an index.
    pub fn copy(&self, index: usize) -> Option<&SlabCopy> {
        self.copies().nth(index).map(|(_, c)| c)
    }

    /// Which of the row's slabs a copy is, or will be.
    pub fn slab_of(&self, index: usize) -> usize {
        match &self.moving {
            Some(m) if index == self.slabs.len() => usize::from(m.index),
            _ => index,
        }
    }
}

impl SpaceRecord {
    /// What an administrator says of a space that an owner drives.
    pub fn of(s: &pool_seam::SpaceRecord) -> SpaceRecord {
        SpaceRecord {
            name: s.name.clone(),
            size: s.size,
            resiliency: s.resiliency,
            interleave: s.interleave,
            columns: s.columns,
            provisioning: s.provisioning,
            media: s.media,
        }
    }

    /// A new space of this kind that an owner drives, without rows; it is made in this epoch of the pool.
    pub(crate) fn owned(&self, slot: u16, pool_epoch: u64) -> pool_seam::SpaceRecord {
        let epoch = SpaceEpoch::first(pool_epoch);
        pool_seam::SpaceRecord {
            name: self.name.clone(),
            size: self.size,
            resiliency: self.resiliency,
            former: self.resiliency,
            interleave: self.interleave,
            columns: self.columns,
            provisioning: self.provisioning,
            media: self.media,
            ownership: Ownership { epoch, ..Ownership::default() },
            slot,
            log: LogState::default(),
            unaccounted: BTreeMap::new(),
            scrub: ScrubRecord::default(),
            loss: LossRecord::default(),
            attachments: BTreeMap::new(),
            rows: Tree::default(),
        }
    }

    /// Slabs in a row.
    pub fn slabs_in_row(&self) -> usize {
        usize::from(self.columns) * self.resiliency.copies() + self.resiliency.parity_columns()
    }

    /// Slabs of a row that stand for each other: the copies of a column, or all of a row with parity.
    pub fn slabs_in_group(&self) -> usize {
        if self.resiliency.is_parity() { self.slabs_in_row() } else { self.resiliency.copies() }
    }

    /// The kind of its parity columns; `None` if it has none.
    pub(crate) fn code(&self) -> Option<Code> {
        self.resiliency.code(self.columns.into())
    }

    /// Bytes of the user's in a row.
    pub fn row_bytes(&self, slab_bytes: u64) -> u64 {
        u64::from(self.columns) * slab_bytes
    }

    /// Rows that the space has addresses for.
    pub fn rows(&self, slab_bytes: u64) -> u64 {
        self.size.div_ceil(self.row_bytes(slab_bytes))
    }
}

/// One change of the metadata. A journal record holds several, applied together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of the fields, which are what their types say
pub enum Op {
    /// Another name for the pool.
    RenamePool { name: String },
    /// A new disk; its number is the next one.
    AddDisk { disk: DiskNumber, record: DiskRecord },
    /// An empty disk leaves.
    RemoveDisk { disk: DiskNumber },
    /// It takes no part any more. See [`super::State::leave`].
    DiskAbsent { disk: DiskNumber, reason: Absence },
    /// It is in service again: it gets writes, and is current where it has missed none.
    DiskPresent { disk: DiskNumber, membership: Membership },
    /// Its usage.
    SetUsage { disk: DiskNumber, usage: Usage },
    /// Where it stands.
    SetDomains { disk: DiskNumber, domains: FaultDomains },
    /// The label that it has been given.
    Labelled { disk: DiskNumber, sequence: u64 },
    /// The voters from this record on, which all of them have.
    Voters { voters: BTreeSet<DiskNumber> },
    /// A new space; its number is the next one.
    CreateSpace { space: SpaceId, record: SpaceRecord },
    /// A space without rows is gone.
    DestroySpace { space: SpaceId },
    /// Another size; rows beyond it have been freed before.
    ResizeSpace { space: SpaceId, size: u64 },
    /// Another name.
    RenameSpace { space: SpaceId, name: String },
    /// Slabs for a row, in its order; they read as zeros.
    AllocateRow { space: SpaceId, row: RowNumber, slabs: Vec<SlabPlace> },
    /// The row's slabs are free; it reads as zeros.
    FreeRow { space: SpaceId, row: RowNumber },
    /// A copy does not get writes to these regions.
    Missed { space: SpaceId, row: RowNumber, index: u8, regions: u64 },
    /// A copy has these regions again, durably.
    NotMissed { space: SpaceId, row: RowNumber, index: u8, regions: u64 },
    /// A copy moves to a free slab, where it has missed everything.
    MoveSlab { space: SpaceId, row: RowNumber, index: u8, to: SlabPlace },
    /// Regions that no copy has completely are accepted from this one, on request.
    AcceptLoss { space: SpaceId, row: RowNumber, index: u8, regions: u64 },
    /// The pool was opened: the epoch is higher than all before, the incarnation random.
    Opened { epoch: u64, incarnation: u64 },
    /// The later records of disks that were absent at the newest opening are given up, beyond this record.
    GivenUp { after: u64 },
    /// Known lost units of a space.
    Lost { space: SpaceId, record: LossRecord },
    /// How far the reading of a space's copies is.
    Scrub { space: SpaceId, record: ScrubRecord },
    /// The disk is stale: its copies have missed every region that another copy has.
    MissedAll { disk: DiskNumber },
    /// A slab begins to move to a free one on another disk, which has missed everything.
    BeginMove { space: SpaceId, row: RowNumber, index: u8, to: SlabPlace },
    /// The new slab has all that the old one has: it is the row's now, and the old one is free.
    EndMove { space: SpaceId, row: RowNumber },
    /// The slab stays where it is.
    CancelMove { space: SpaceId, row: RowNumber },
    /// The administrator's settings.
    SetPolicy { policy: Policy },
    /// The disk's medium: the number of [`DiskRecord::media`](DiskRecord#method.media).
    SetDiskMedia { disk: DiskNumber, media: u8 },
    /// Which disks the space's slabs may lie on from now on; those that there are stay where they are until
    /// they are moved.
    SetSpaceMedia { space: SpaceId, media: MediaClass },
    /// A change of a space that an owner drives.
    Space { space: SpaceId, op: SpaceOp },
}
