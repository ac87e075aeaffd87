//! Findings of the owners of spaces, counted.

use std::collections::BTreeMap;

use disk::DiskError;
use parking_lot::Mutex;
pub use pool_seam::{DamageKind, Finding};

use crate::supervision::outliers::Slowness;
use crate::{DiskNumber, SpaceId};

/// See the module.
#[derive(Default)]
pub struct Events {
    counts: Mutex<Counts>,
    failing: Mutex<BTreeMap<DiskNumber, DiskError>>,
    slow: Mutex<Slow>,
}

/// Current outliers, and disks that were removed as outliers.
#[derive(Default)]
struct Slow {
    in_service: BTreeMap<DiskNumber, Slowness>,
    removed: BTreeMap<DiskNumber, Slowness>,
}

/// Counts by kind, disk and space; `None` is the pool's metadata.
type Counts = BTreeMap<(DamageKind, DiskNumber, Option<SpaceId>), u64>;

impl Events {
    /// Counts a finding.
    pub fn add(&self, finding: Finding) {
        let Finding { kind: found, disk, space, address } = finding;
        let so_far = {
            let mut counts = self.counts.lock();
            let count = counts.entry((found, disk, Some(space))).or_insert(0);
            *count += 1;
            *count
        };
        if found == DamageKind::Unsettled {
            // Writes that a crash interrupted are no damage, and there may be thousands of them.
            tracing::debug!(
                disk = disk.0,
                space = space.0,
                address,
                "the copies of a unit differed after a crash"
            );
        } else if so_far.is_power_of_two() {
            // Logs only some of them, because there may be thousands.
            tracing::warn!(?found, disk = disk.0, so_far, space = space.0, address, "a unit was damaged");
        }
    }

    /// Records the result of [`crate::Pool::scrub_metadata`]: the number of rewritten places of labels and metadata
    /// by disk. Earlier damage is cleared for a disk without such a place.
    pub fn metadata(&self, found: &BTreeMap<DiskNumber, u64>) {
        let is_clean = |disk: &DiskNumber| found.get(disk).is_none_or(|places| *places == 0);
        self.counts.lock().retain(|(kind, disk, _), _| *kind != DamageKind::Metadata || !is_clean(disk));
        for (disk, places) in found.iter().filter(|(_, places)| **places > 0) {
            *self.counts.lock().entry((DamageKind::Metadata, *disk, None)).or_insert(0) += places;
            tracing::warn!(disk = disk.0, places, "labels or metadata were damaged, and were repaired");
        }
    }

    /// Clears the damage of a space, after the whole space was read without damage.
    pub(crate) fn is_clean(&self, space: SpaceId) {
        self.counts.lock().retain(|(_, _, of), _| *of != Some(space));
    }

    /// Clears the counts of repaired damage, and the failure, of a disk, or of all disks if `None`.
    pub fn clear(&self, disk: Option<DiskNumber>) {
        let repaired = |found: &DamageKind| !matches!(found, DamageKind::Lost);
        self.counts
            .lock()
            .retain(|(found, d, _), _| !(repaired(found) && disk.is_none_or(|disk| disk == *d)));
        self.failing.lock().retain(|of, _| disk.is_some_and(|disk| disk != *of));
    }

    /// Records that a disk fails, but stays in service because it has the only copy of some data.
    pub(crate) fn fails(&self, disk: DiskNumber, error: &DiskError) {
        self.failing.lock().insert(disk, *error);
    }

    /// Records that a check found the opened disk: if it was gone, it is back.
    pub(crate) fn disk_found(&self, disk: DiskNumber) {
        let mut failing = self.failing.lock();
        if matches!(failing.get(&disk), Some(DiskError::Gone { .. })) {
            failing.remove(&disk);
        }
    }

    /// Records that a disk joins again.
    pub(crate) fn disk_joined(&self, disk: DiskNumber) {
        self.failing.lock().remove(&disk);
        self.slow.lock().removed.remove(&disk);
    }

    /// Sets the disks that are outliers now.
    pub(crate) fn set_slow(&self, slow: &BTreeMap<DiskNumber, Slowness>) {
        let mut mine = self.slow.lock();
        if mine.in_service != *slow {
            for (disk, why) in slow.iter().filter(|(d, _)| !mine.in_service.contains_key(d)) {
                tracing::warn!(disk = disk.0, ?why, "a disk is much slower than its peers");
            }
            mine.in_service.clone_from(slow);
        }
    }

    /// Records that a disk is removed because it is slow.
    pub(crate) fn removed_as_slow(&self, disk: DiskNumber, why: Slowness) {
        let mut slow = self.slow.lock();
        slow.in_service.remove(&disk);
        slow.removed.insert(disk, why);
    }

    /// Disks that are much slower than their peers or were removed because of it, and how slow.
    pub fn slow(&self) -> BTreeMap<DiskNumber, Slowness> {
        let slow = self.slow.lock();
        slow.removed.iter().chain(&slow.in_service).map(|(d, why)| (*d, *why)).collect()
    }

    /// Disks in service with a failed I/O since they joined, with the last error.
    pub fn failing(&self) -> BTreeMap<DiskNumber, String> {
        self.failing.lock().iter().map(|(disk, error)| (*disk, error.to_string())).collect()
    }

    /// The failing disks whose storage was full.
    pub fn full(&self) -> Vec<DiskNumber> {
        let is_full = |error: &DiskError| matches!(error, DiskError::Full { .. });
        self.failing.lock().iter().filter(|(_, error)| is_full(error)).map(|(disk, _)| *disk).collect()
    }

    /// Records that the storage of a full disk has space again: the disk itself did not fail.
    pub fn has_room(&self, disk: DiskNumber) {
        let mut failing = self.failing.lock();
        if matches!(failing.get(&disk), Some(DiskError::Full { .. })) {
            failing.remove(&disk);
            tracing::info!(disk = disk.0, "the storage of a full disk has room again");
        }
    }

    /// Counts by kind and disk.
    pub fn counts(&self) -> BTreeMap<(DamageKind, DiskNumber), u64> {
        let mut counts = BTreeMap::new();
        for (&(found, disk, _), n) in &*self.counts.lock() {
            *counts.entry((found, disk)).or_insert(0) += n;
        }
        counts
    }

    /// The count of a kind, on all disks.
    pub fn count(&self, found: DamageKind) -> u64 {
        self.counts.lock().iter().filter(|((f, ..), _)| *f == found).map(|(_, n)| n).sum()
    }
}
