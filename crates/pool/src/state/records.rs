//! The records of the metadata, and the operations on them.

use std::collections::BTreeSet;

use disk::Media;
use pool_seam::{Areas, Membership, media_of};

use super::SpaceOp;
use crate::{Absence, DiskId, DiskNumber, FaultDomains, SpaceId};

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
    /// Logs of spaces.
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
    /// The pool was opened: the epoch is higher than all before, the incarnation random.
    Opened { epoch: u64, incarnation: u64 },
    /// The later records of disks that were absent at the newest opening are given up, beyond this record.
    GivenUp { after: u64 },
    /// The disk is stale: its copies have missed every region that another copy has.
    Stale { disk: DiskNumber },
    /// The administrator's settings.
    SetPolicy { policy: Policy },
    /// The disk's medium: the number of [`DiskRecord::media`](DiskRecord#method.media).
    SetDiskMedia { disk: DiskNumber, media: u8 },
    /// A change of a space.
    Space { space: SpaceId, op: SpaceOp },
}
