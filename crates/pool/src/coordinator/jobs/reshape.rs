//! Changes the shape of a space's rows.

use pool_seam::{JobOrder, NotMoved, Regions, RowNumber, SeamError, Shape};

use crate::jobs::Job;
use crate::{Pool, SpaceId, State};

/// Regions that are filled at a time.
const REGIONS_AT_ONCE: usize = 8;

impl Pool {
    /// Spaces with rows whose shape differs from that of new rows.
    pub fn to_reshape(&self) -> Vec<SpaceId> {
        self.read(|s| {
            s.spaces.iter().filter(|(_, record)| record.is_changing()).map(|(space, _)| *space).collect()
        })
    }

    /// Changes the rows of a space to its current shape, and fills stale regions on present disks. Returns why a row or
    /// copy is incomplete, if one is. Errors: the space is not open, or has another owner.
    pub async fn reshape(&self, space: SpaceId, job: &Job) -> Result<Option<NotMoved>, SeamError> {
        let (region_bytes, _) = self.regions();
        let bytes = self.read(|s| s.bytes_to_reshape(space));
        job.add_total(bytes);
        let report = self.order(job, space, JobOrder::Reshape, region_bytes, REGIONS_AT_ONCE).await?;
        if report.not_moved.is_empty() {
            // Unwritten bytes count as done, too.
            job.add_done(bytes.saturating_sub(report.progress.bytes));
        }
        Ok(report.not_moved.into_iter().next().map(|(.., why)| why))
    }
}

impl State {
    /// Bytes of copies to create or free, of data to convert, and of stale regions.
    fn bytes_to_reshape(&self, space: SpaceId) -> u64 {
        let regions = Regions::new(self.slab_bytes);
        let region_bytes = self.slab_bytes / u64::from(regions.count());
        let Some(record) = self.spaces.get(&space) else { return 0 };
        let of_row = |(number, row): (&RowNumber, &pool_seam::Row)| {
            if *number == RowNumber::LOG {
                return 0;
            }
            let more = match row.shape {
                Shape::Former if record.is_converting() => {
                    // The row begins at this address; a part of it may be converted already.
                    let bytes = record.former.row_bytes(self.slab_bytes);
                    let start = u64::from(number.index()) * bytes;
                    bytes - record.converted_end().saturating_sub(start).min(bytes)
                }
                Shape::Former => record.slabs_in_row().abs_diff(row.slabs.len()) as u64 * self.slab_bytes,
                Shape::Current => 0,
            };
            let stale =
                row.slabs.iter().map(|copy| u64::from((copy.stale_regions & regions.all()).count_ones()));
            more + stale.sum::<u64>() * region_bytes
        };
        record.rows.iter().map(of_row).sum()
    }
}
