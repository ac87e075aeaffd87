//! The records of the metadata, and the operations on them.

use std::collections::BTreeSet;

use disk::Media;
use pool_seam::{Areas, Membership, media_of};

use super::SpaceOp;
use crate::{Absence, DiskId, DiskNumber, FaultDomains, SpaceId};

/// One disk of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRecord {
    /// The identity in the disk's label.
    pub id: DiskId,
    /// The name: the device's own identity when the disk was added.
    pub name: String,
    /// The number of slabs of the disk.
    pub slabs: u32,
    /// Its usage.
    pub usage: Usage,
    /// Whether it is in service.
    pub presence: Presence,
    /// Its fault domains.
    pub domains: FaultDomains,
    /// The medium, as the number on disks: see [`DiskRecord::media`](DiskRecord#method.media).
    pub media: u8,
    /// The sequence number of the disk's last label. A disk with an older label has lost writes.
    pub label_sequence: u64,
    /// The number of times that the disk has joined.
    pub membership: Membership,
    /// Its areas.
    pub areas: Areas,
}

impl DiskRecord {
    /// The disk's medium; [`Media::Unspecified`] for a number that this version does not know.
    pub fn media(&self) -> Media {
        media_of(self.media)
    }

    /// Its next membership.
    pub fn next_membership(&self) -> Membership {
        Membership(self.membership.0.saturating_add(1))
    }

    /// The sequence number of the next label of a disk with a label of number `shown`. It is above the recorded
    /// number even if the disk has an older label: otherwise an old image of the disk would count as current.
    pub fn next_label(&self, shown: u64) -> u64 {
        shown.max(self.label_sequence) + 1
    }
}

/// The usage of a disk (`Set-PhysicalDisk -Usage`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// New slabs are placed on the disk.
    AutoSelect,
    /// New slabs are placed on the disk only on explicit request.
    ManualSelect,
    /// The disk takes the slabs of a failed disk.
    HotSpare,
    /// The disk is for logs of spaces.
    Journal,
    /// No new slabs are placed on the disk, and its data is moved to other disks.
    Retired,
    /// Like [`Usage::Retired`]; when the disk is empty, it is removed from the pool.
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
    /// The disk gets every write.
    Present,
    /// The disk gets no writes until it is returned.
    Absent(Absence),
}

/// The administrator's settings for the whole pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The used percentage of the slabs of all disks from which on the administrator should add disks. At most 100.
    pub warn_at: u8,
    /// Seconds after which a lost disk is rebuilt on others; [`Policy::NEVER`] means by command only.
    pub repair_after_s: u32,
}

impl Policy {
    /// A value of [`Policy::repair_after_s`]: no automatic rebuild.
    pub const NEVER: u32 = u32::MAX;
}

impl Default for Policy {
    /// A warning at 70 %, and a repair after five minutes, as in Storage Spaces: longer than a restart, or
    /// reconnecting a cable, takes.
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
    /// Adds a disk; its number is the next one.
    AddDisk { disk: DiskNumber, record: DiskRecord },
    /// Removes an empty disk from the pool.
    RemoveDisk { disk: DiskNumber },
    /// Removes the disk from service. See [`super::State::removal_ops`].
    DiskAbsent { disk: DiskNumber, reason: Absence },
    /// Returns the disk to service: it gets writes, and is current except for its stale regions.
    DiskPresent { disk: DiskNumber, membership: Membership },
    /// Sets the usage of a disk.
    SetUsage { disk: DiskNumber, usage: Usage },
    /// Sets the fault domains of a disk.
    SetDomains { disk: DiskNumber, domains: FaultDomains },
    /// Records the sequence of a disk's new label.
    Labelled { disk: DiskNumber, sequence: u64 },
    /// Sets the voters from this record on; all of them have it.
    Voters { voters: BTreeSet<DiskNumber> },
    /// The pool was opened. The epoch is higher than all earlier ones, and the incarnation is random.
    Opened { epoch: u64, incarnation: u64 },
    /// Records after this one on disks that were absent at the newest opening are given up.
    GivenUp { after: u64 },
    /// The disk is stale: marks every region of its copies stale that another copy has current.
    MarkDiskStale { disk: DiskNumber },
    /// The administrator's settings.
    SetPolicy { policy: Policy },
    /// The disk's medium: the number of [`DiskRecord::media`](DiskRecord#method.media).
    SetDiskMedia { disk: DiskNumber, media: u8 },
    /// A change of a space.
    Space { space: SpaceId, op: SpaceOp },
}
