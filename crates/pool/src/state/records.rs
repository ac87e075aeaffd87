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
    /// The number of its slabs.
    pub slabs: u32,
    /// Its usage.
    pub usage: Usage,
    /// Whether it is in service.
    pub presence: Presence,
    /// Its fault domains.
    pub domains: FaultDomains,
    /// The number of [`DiskRecord::media`](DiskRecord#method.media).
    pub media: u8,
    /// The sequence number of its last label; a disk with an older label has lost writes.
    pub label_sequence: u64,
    /// How often it has joined the service.
    pub membership: Membership,
    /// Its areas.
    pub areas: Areas,
}

impl DiskRecord {
    /// Its medium; a number that this version does not know is [`Media::Unspecified`].
    pub fn media(&self) -> Media {
        media_of(self.media)
    }

    /// Its next membership.
    pub fn next_membership(&self) -> Membership {
        Membership(self.membership.0.saturating_add(1))
    }

    /// The sequence number of the next label of a disk with this label. Never below the recorded one, even on a disk
    /// with an older label: otherwise an old image of the disk would count as current.
    pub fn next_label(&self, shown: u64) -> u64 {
        shown.max(self.label_sequence) + 1
    }
}

/// The usage of a disk (`Set-PhysicalDisk -Usage`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// New slabs are placed here.
    AutoSelect,
    /// New slabs are placed here only on explicit request.
    ManualSelect,
    /// Takes the slabs of a disk that failed.
    HotSpare,
    /// Logs of spaces.
    Journal,
    /// No new slabs; its data is moved to other disks.
    Retired,
    /// As [`Usage::Retired`], and it is removed from the pool when it is empty.
    Leaving,
}

impl Usage {
    /// Whether the disk's data must be moved to others.
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
    /// A warning at 70 %; a repair after five minutes, as in Storage Spaces: longer than a restart or reconnecting a
    /// cable.
    fn default() -> Policy {
        Policy { warn_at: 70, repair_after_s: 300 }
    }
}

/// One change of the metadata. A journal record holds several, applied together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of the fields, which are what their types say
pub enum Op {
    /// Renames the pool.
    RenamePool { name: String },
    /// A new disk; its number is the next one.
    AddDisk { disk: DiskNumber, record: DiskRecord },
    /// Removes an empty disk from the pool.
    RemoveDisk { disk: DiskNumber },
    /// Removes it from service. See [`super::State::leave`].
    DiskAbsent { disk: DiskNumber, reason: Absence },
    /// Returns it to service: it gets writes, and is current in its regions that are not stale.
    DiskPresent { disk: DiskNumber, membership: Membership },
    /// Sets its usage.
    SetUsage { disk: DiskNumber, usage: Usage },
    /// Sets its fault domains.
    SetDomains { disk: DiskNumber, domains: FaultDomains },
    /// Records its new label.
    Labelled { disk: DiskNumber, sequence: u64 },
    /// Sets the voters from this record on; all of them have it.
    Voters { voters: BTreeSet<DiskNumber> },
    /// The pool was opened: the epoch is higher than all before, the incarnation random.
    Opened { epoch: u64, incarnation: u64 },
    /// Records after this one on disks that were absent at the newest opening are given up.
    GivenUp { after: u64 },
    /// The disk is stale: marks every region of its copies stale that another copy has.
    Stale { disk: DiskNumber },
    /// The administrator's settings.
    SetPolicy { policy: Policy },
    /// The disk's medium: the number of [`DiskRecord::media`](DiskRecord#method.media).
    SetDiskMedia { disk: DiskNumber, media: u8 },
    /// A change of a space.
    Space { space: SpaceId, op: SpaceOp },
}
