//! The disks in service now.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use disk::{Disk, DiskError, Op};

use crate::format::Areas;
use crate::{Absence, DiskId, DiskNumber};

/// A present disk of the pool.
pub struct Member {
    /// The number of the disk in the pool.
    pub number: DiskNumber,
    /// The identity in the disk's label.
    pub id: DiskId,
    /// The device.
    pub disk: Arc<dyn Disk>,
    /// The areas of the disk.
    pub areas: Areas,
}

/// A snapshot of the members: a failed disk is removed from the members before its failure is handled.
#[derive(Clone, Debug, Default)]
pub struct Members {
    members: BTreeMap<DiskNumber, Arc<Member>>,
}

impl Members {
    /// The disk, if it is in service.
    pub fn get(&self, disk: DiskNumber) -> Option<&Arc<Member>> {
        self.members.get(&disk)
    }

    /// All members, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.members.values()
    }

    pub(crate) fn with(&self, member: Arc<Member>) -> Members {
        let mut members = self.members.clone();
        members.insert(member.number, member);
        Members { members }
    }

    pub(crate) fn without(&self, disk: DiskNumber) -> Members {
        let mut members = self.members.clone();
        members.remove(&disk);
        Members { members }
    }
}

/// The membership to end: a disk that has joined again since is not removed for earlier failures.
#[derive(Clone)]
pub(crate) enum MembershipToEnd {
    /// The current membership.
    Current,
    /// The membership of this member, unless the disk has a newer one.
    OfMember(Arc<Member>),
    /// A membership that is already ending: the disk is no member any more.
    AlreadyEnding,
}

impl MembershipToEnd {
    /// Whether the disk's current membership is not the one to end.
    pub(crate) fn has_ended(&self, now: Option<&Arc<Member>>) -> bool {
        match (self, now) {
            (MembershipToEnd::OfMember(was), Some(is)) => !Arc::ptr_eq(was, is),
            (MembershipToEnd::AlreadyEnding, is) => is.is_some(),
            (MembershipToEnd::Current, _) | (MembershipToEnd::OfMember(_), None) => false,
        }
    }
}

/// A disk to remove from service.
pub(crate) struct Removal {
    pub(crate) disk: DiskNumber,
    pub(crate) membership: MembershipToEnd,
    pub(crate) reason: Absence,
}

/// The reason of absence of a disk after a write failed with this error.
pub(crate) fn absence(error: &DiskError) -> Absence {
    match error {
        DiskError::Gone { .. } => Absence::Gone,
        DiskError::Timeout { .. } => Absence::Slow,
        e if e.at().op == Op::Flush => Absence::FlushFailed,
        _ => Absence::WriteFailed,
    }
}

impl FromIterator<Arc<Member>> for Members {
    fn from_iter<T: IntoIterator<Item = Arc<Member>>>(iter: T) -> Members {
        Members { members: iter.into_iter().map(|m| (m.number, m)).collect() }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disk {} ({})", self.number.0, self.disk.info().id)
    }
}
