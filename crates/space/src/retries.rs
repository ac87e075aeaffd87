//! The number of repeated calls to disks.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use pool_seam::{DiskNumber, SpaceId};

/// Counts, for each space and disk, the calls that a space repeated on this or another disk: reads that failed or
/// returned damaged data, and writes, flushes and records of the log that failed. The owners of all spaces of a pool in
/// a process share one, so the counts of a disk outlive its membership and the opening of a space.
///
/// Not counted: a write that was not repeated because the disk that failed it was removed from service; a read whose
/// unit was overwritten meanwhile.
#[derive(Debug, Default)]
pub struct Retries(Mutex<BTreeMap<(SpaceId, DiskNumber), u64>>);

impl Retries {
    /// A call of the space to the disk is repeated.
    pub(crate) fn add(&self, space: SpaceId, disk: DiskNumber) {
        *self.0.lock().entry((space, disk)).or_default() += 1;
    }

    /// The count of a space.
    pub fn of_space(&self, space: SpaceId) -> u64 {
        self.sum(|of, _| of == space)
    }

    /// The count of a disk.
    pub fn of_disk(&self, disk: DiskNumber) -> u64 {
        self.sum(|_, of| of == disk)
    }

    /// The count of all spaces and disks.
    pub fn total(&self) -> u64 {
        self.sum(|_, _| true)
    }

    fn sum(&self, is_wanted: impl Fn(SpaceId, DiskNumber) -> bool) -> u64 {
        let counts = self.0.lock();
        counts.iter().filter(|((space, disk), _)| is_wanted(*space, *disk)).map(|(_, count)| count).sum()
    }
}
