//! Reads all copies of a space, and rewrites damaged ones. The position and the damage found are in the metadata
//! ([`ScrubRecord`]).

use pool_seam::{GROUP, JobOrder, RowNumber, ScrubRecord, SeamError};

use crate::coordinator::answers::seam_error;
use crate::coordinator::no_space;
use crate::jobs::Job;
use crate::state::SpaceOp;
use crate::{Op, Pool, SpaceId};

impl Pool {
    /// Reads every copy of a space's rows, and repairs damage. After a stop or a restart it continues at its last
    /// row, unless `anew` is set. Returns whether it reached the end. `repair`: a command requested it. Errors: the
    /// space is not open, or the metadata accepts no changes.
    pub async fn scrub(
        &self,
        space: SpaceId,
        repair: bool,
        anew: bool,
        job: &Job,
    ) -> Result<bool, SeamError> {
        let mut record = self.scrub_record(space)?;
        if anew || record.began == 0 {
            let began = self.unix_s();
            record =
                ScrubRecord { began, by_command: repair, next: RowNumber(0), healed: 0, lost: 0, ..record };
            self.record_scrub(space, record).await?;
        }
        let (before, ahead) = self.to_scrub(space, record.next);
        job.add_done_before(before);
        job.add_total(ahead);
        let report = self.order(job, space, JobOrder::Scrub(record.next), GROUP, 1).await?;
        // The owner has recorded its progress.
        let record = self.scrub_record(space)?;
        if let Some(next) = report.not_moved.iter().map(|(row, ..)| *row).min() {
            if next < record.next {
                self.record_scrub(space, ScrubRecord { next, ..record }).await?;
            }
            return Ok(false);
        }
        let (ended, last_healed, last_lost) = (self.unix_s(), record.healed, record.lost);
        let ended = ScrubRecord { ended, since: ended, last_healed, last_lost, ..ScrubRecord::default() };
        self.record_scrub(space, ended).await?;
        if (last_healed, last_lost) == (0, 0) {
            self.events().is_clean(space);
        }
        Ok(true)
    }

    /// Starts the interval until the next scrub, unless it is running already. Errors: the metadata accepts no
    /// changes.
    pub async fn await_scrub(&self, space: SpaceId) -> Result<(), SeamError> {
        let record = self.scrub_record(space)?;
        if record.since != 0 {
            return Ok(());
        }
        self.record_scrub(space, ScrubRecord { since: self.unix_s(), ..record }).await
    }

    fn scrub_record(&self, space: SpaceId) -> Result<ScrubRecord, SeamError> {
        self.read(|s| s.spaces.get(&space).map(|record| record.scrub)).ok_or_else(|| no_space(space))
    }

    async fn record_scrub(&self, space: SpaceId, record: ScrubRecord) -> Result<(), SeamError> {
        let op = Op::Space { space, op: SpaceOp::Scrub { record } };
        self.metadata().commit(vec![op]).await.map_err(seam_error)
    }

    /// The bytes of the rows before this one, and of the rows from it on, in groups as owners count them.
    fn to_scrub(&self, space: SpaceId, next: RowNumber) -> (u64, u64) {
        self.read(|s| {
            let Some(record) = s.spaces.get(&space) else { return (0, 0) };
            let rows = record.data_rows();
            rows.fold((0, 0), |(before, ahead), (row, of)| {
                let bytes = record.shape_of(of).row_bytes(s.slab_bytes);
                if row < next { (before + bytes, ahead) } else { (before, ahead + bytes) }
            })
        })
    }

    fn unix_s(&self) -> u64 {
        self.metadata().env.unix_time().as_secs().max(1)
    }
}
