//! The disks in service now.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use disk::Disk;

use crate::format::Areas;
use crate::{DiskId, DiskNumber};

/// A present disk of the pool.
pub struct Member {
    /// Its number in the pool.
    pub number: DiskNumber,
    /// Its identity in its label.
    pub id: DiskId,
    /// The device.
    pub disk: Arc<dyn Disk>,
    /// Its areas.
    pub areas: Areas,
}

/// The members at one moment: a disk that fails leaves it before anything else is done about it.
#[derive(Clone, Debug, Default)]
pub struct Members {
    members: BTreeMap<DiskNumber, Arc<Member>>,
}

impl Members {
    /// The disk, if it is in service.
    pub fn get(&self, disk: DiskNumber) -> Option<&Arc<Member>> {
        self.members.get(&disk)
    }

    /// All of them, by number.
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
