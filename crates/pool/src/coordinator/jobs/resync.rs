//! Fills the stale regions of a disk that was absent.

use pool_seam::{JobOrder, Regions, SeamError};

use super::{SPACES_AT_ONCE, at_once, first_error};
use crate::jobs::Job;
use crate::{DiskNumber, Pool, RowNumber, SpaceId, State};

/// Regions of one space that are filled at a time.
const REGIONS_AT_ONCE: usize = 8;

impl Pool {
    /// Disks in service with stale copies. Slabs that are being moved do not count, because the job that moves them
    /// fills them; neither do replicas of logs, which their owners repair.
    pub fn behind(&self) -> Vec<DiskNumber> {
        self.read(|s| {
            let disks = s.disks.keys().filter(|disk| s.is_present(**disk));
            disks.filter(|disk| s.stale_regions_on(**disk).next().is_some()).copied().collect()
        })
    }

    /// Fills the stale regions of a disk, as far as present disks have the data. Errors: the first one; the other
    /// spaces are processed nevertheless.
    pub async fn resync(&self, disk: DiskNumber, job: &Job) -> Result<(), SeamError> {
        let (region_bytes, _) = self.regions();
        let spaces = self.read(|s| {
            let mut spaces: Vec<(SpaceId, u64)> = Vec::new();
            for (space, regions) in s.stale_regions_on(disk) {
                match spaces.last_mut() {
                    Some((last, sum)) if *last == space => *sum += regions,
                    _ => spaces.push((space, regions)),
                }
            }
            spaces
        });
        job.add_total(spaces.iter().map(|(_, regions)| regions * region_bytes).sum());
        let each = spaces.into_iter().map(|(space, regions)| async move {
            let most = REGIONS_AT_ONCE.min(regions as usize);
            let report = self.order(job, space, JobOrder::Resync(disk), region_bytes, most).await?;
            if report.not_moved.is_empty() {
                // Unwritten bytes and those that were already current count as done, too.
                job.add_done((regions * region_bytes).saturating_sub(report.progress.bytes));
            }
            Ok(report)
        });
        first_error(at_once(SPACES_AT_ONCE, each).await)
    }
}

impl State {
    /// The spaces with stale copies on a disk, and for each row the number of stale regions.
    fn stale_regions_on(&self, disk: DiskNumber) -> impl Iterator<Item = (SpaceId, u64)> + '_ {
        let all = Regions::new(self.slab_bytes).all();
        self.rows_on(disk).filter(|(_, number, _)| *number != RowNumber::LOG).filter_map(
            move |(space, _, row)| {
                let here = row.slabs.iter().filter(|copy| copy.place.disk == disk);
                let regions = here.map(|copy| u64::from((copy.stale_regions & all).count_ones())).sum();
                (regions > 0).then_some((space, regions))
            },
        )
    }
}
