//! Reading everything on every copy, and healing what differs.

use std::time::Duration;

use futures_util::future::join_all;

use super::{Progress, pieces};
use crate::blocks::Units;
use crate::groups::GroupKey;
use crate::space::{Copy, SpaceError, current};
use crate::{GROUP, GROUP_UNITS, Op, RowNumber, ScrubRecord, Space, UNIT};

/// Units that are compared at a time, under their lock.
const PIECE: usize = (super::pacer::PIECE_BYTES / UNIT) as usize;

/// The position is recorded at the end of a row, so often at most while nothing is found: a restart reads
/// again the row that it was in, and small ones that were read in this time.
const RECORD_EVERY: Duration = Duration::from_secs(2);

impl Space {
    /// Reads every written unit on every copy, of a journal too, and repairs damage.
    /// [`crate::DataPath::events`] has the findings. Regions whose newest data is on absent disks are
    /// skipped.
    ///
    /// # Errors
    /// When the failure of a disk cannot be handled.
    pub async fn scrub(&self, progress: &Progress) -> Result<(), SpaceError> {
        self.scrub_journal(progress).await?;
        self.scrub_rows(progress).await?;
        self.keep_repairs(progress.findings().0).await
    }

    /// The same, with its position and findings in the metadata ([`ScrubRecord`]): after a stop or a restart
    /// it continues at its last row, unless it is to start from the beginning. Returns whether it reached the
    /// end.
    ///
    /// # Errors
    /// As for [`Space::scrub`], and when the metadata takes no changes.
    pub async fn scrub_recorded(
        &self,
        asked: bool,
        anew: bool,
        progress: &Progress,
    ) -> Result<bool, SpaceError> {
        let id = self.id();
        let unix_s = || self.path.env.unix_time().as_secs().max(1);
        let mut record = self.path.read(|s| s.scrubs.get(&id).copied()).unwrap_or_default();
        if anew || record.began == 0 {
            record = ScrubRecord { began: unix_s(), asked, next: RowNumber(0), healed: 0, lost: 0, ..record };
            self.record(record).await?;
        }
        let before = (record.healed, record.lost);
        let (rows, row_bytes) = (self.rows_from(record.next), self.inner.layout.row_bytes());
        progress.skip((self.rows_from(RowNumber(0)).len() - rows.len()) as u64 * row_bytes);
        progress.expect(rows.len() as u64 * row_bytes);
        let mut found = progress.findings();
        let mut recorded = self.path.env.now();
        if record.next == RowNumber(0) {
            self.scrub_journal(progress).await?;
            // Lost units of a journal are not lost to its space.
            found.1 = progress.findings().1;
            if progress.is_stopped() {
                return Ok(false);
            }
        }
        for row in rows {
            let so_far = progress.findings();
            let read = self.scrub_row(row, progress).await;
            let (healed, lost) = progress.findings();
            record.healed = before.0 + healed - found.0;
            let ends = progress.is_stopped() || read.is_err();
            if ends {
                // A row that was not read to its end is read again, and what is lost there found again.
                record.next = row;
            } else {
                record.lost = before.1 + lost - found.1;
                record.next = RowNumber(row.0.saturating_add(1));
            }
            let is_due = self.path.env.now() - recorded >= RECORD_EVERY;
            if ends || is_due || so_far != (healed, lost) {
                recorded = self.path.env.now();
                self.keep_repairs(record.healed).await?;
                self.record(record).await?;
            }
            read?;
            if progress.is_stopped() {
                return Ok(false);
            }
        }
        self.keep_repairs(record.healed).await?;
        let Some(again) = self.find_again(record.lost, progress).await else {
            self.record(record).await?;
            return Ok(false);
        };
        let ended = unix_s();
        let (last_healed, last_lost) = (record.healed, record.lost);
        let done = ScrubRecord { ended, since: ended, last_healed, last_lost, ..ScrubRecord::default() };
        self.end_reading(again, Op::Scrub { space: id, record: done }).await?;
        if (last_healed, last_lost) == (0, 0) {
            self.path.events.is_clean(id);
        }
        Ok(true)
    }

    /// The time until the next scrub begins to count now, where it does not yet.
    ///
    /// # Errors
    /// When the metadata takes no changes.
    pub async fn await_scrub(&self) -> Result<(), SpaceError> {
        let id = self.id();
        let mut record = self.path.read(|s| s.scrubs.get(&id).copied()).unwrap_or_default();
        if record.since == 0 {
            record.since = self.path.env.unix_time().as_secs().max(1);
            self.record(record).await?;
        }
        Ok(())
    }

    async fn record(&self, record: ScrubRecord) -> Result<(), SpaceError> {
        Ok(self.path.book.commit(vec![Op::Scrub { space: self.id(), record }]).await?)
    }

    /// Flushes repairs, so that no power cut reverts them: the units are not read again soon. Without
    /// repairs, groups that wait for a failing or absent disk do not stop the scrub.
    async fn keep_repairs(&self, healed: u64) -> Result<(), SpaceError> {
        let kept = match self.striped() {
            Some(striped) => striped.keep_repairs().await,
            None => self.flush_all().await,
        };
        if healed > 0 { kept } else { Ok(()) }
    }

    fn rows_from(&self, from: RowNumber) -> Vec<RowNumber> {
        let id = self.id();
        self.path
            .read(|s| s.rows.range((id, from)..=(id, RowNumber(u32::MAX))).map(|((_, r), _)| *r).collect())
    }

    /// The journal of a parity space: otherwise it is not read before a crash, and then it is needed.
    async fn scrub_journal(&self, progress: &Progress) -> Result<(), SpaceError> {
        let Some(journal) = self.path.read(|s| s.journal_of(self.id())) else { return Ok(()) };
        let Ok(journal) = self.path.space(journal) else { return Ok(()) };
        journal.scrub_rows(progress).await?;
        let lost = self.path.events.lost().remove(&journal.id()).unwrap_or_default();
        if let (Some(striped), false) = (self.striped(), lost.is_empty()) {
            // Its findings are repaired by then, or will be reported again; the repeated read has no other
            // cost.
            let cleared = striped.clear_lost(&lost).await?;
            self.path.events.noted.forget(journal.id(), &cleared);
        }
        Ok(())
    }

    async fn scrub_rows(&self, progress: &Progress) -> Result<(), SpaceError> {
        let rows = self.rows_from(RowNumber(0));
        progress.expect(rows.len() as u64 * self.inner.layout.row_bytes());
        for row in rows {
            if progress.is_stopped() {
                return Ok(());
            }
            self.scrub_row(row, progress).await?;
        }
        Ok(())
    }

    async fn scrub_row(&self, row: RowNumber, progress: &Progress) -> Result<(), SpaceError> {
        let groups = (self.path.slab_bytes / GROUP) as u32;
        let columns = 0..self.inner.columns;
        let keys: Vec<GroupKey> = columns
            .flat_map(|column| (0..groups).map(move |group| GroupKey { row, column, group }))
            .collect();
        let scrubbed = pieces::each(keys, |key| async move {
            self.scrub_group(key, progress).await?;
            progress.did(GROUP);
            Ok(())
        });
        scrubbed.await.map(drop)
    }

    async fn scrub_group(&self, key: GroupKey, progress: &Progress) -> Result<(), SpaceError> {
        if progress.is_stopped() {
            return Ok(());
        }
        if let Some(striped) = self.striped() {
            // All columns together.
            return match key.column {
                0 => striped.scrub_group(key.row, key.group, progress).await,
                _ => Ok(()),
            };
        }
        // Held, so that it stays loaded.
        let group = self.inner.groups.get(key);
        let all = self.inner.regions.of(&key.units());
        let was_known = group.state.lock().unknown & all != all;
        self.settle_doubts(key).await?;
        if was_known {
            // The first read of a table compares its blocks.
            self.check_blocks(&group).await;
        }
        let piece = |from| Units::range(from, from + PIECE);
        for from in (0..GROUP_UNITS as usize).step_by(PIECE) {
            let (written, lost) = {
                let state = group.state.lock();
                (state.table.written, state.table.lost)
            };
            // Units written meanwhile are valid.
            if written.or(&lost).and(&piece(from)).is_empty() {
                continue;
            }
            let Some(_turn) = progress.piece(PIECE as u64 * UNIT).await else { return Ok(()) };
            let first = key.units().start;
            let range = first + from as u32..first + (from + PIECE) as u32;
            let _units = self.inner.locks.lock(key.row, key.column, range).await;
            let Some(copies) = self.inner.copies(&self.path, key.row, key.column) else { return Ok(()) };
            let mut bad;
            let (mut look, unknown) = {
                let state = group.state.lock();
                if state.flags.dead {
                    return Ok(());
                }
                let regions = current(&copies) & !state.unknown & !self.inner.in_doubt(key);
                let known = self.inner.regions.in_group(key.group, regions);
                let look = state.table.written.and(&known).and(&piece(from));
                // Previously lost data may be present again.
                bad = look.and(&state.table.lost);
                // It is unknown whether these units were written, and their checksums are unknown.
                let unknown = state.table.lost.without(&state.table.written);
                (look, unknown.and(&known).and(&piece(from)))
            };
            for (from, to) in std::mem::take(&mut look).stretches() {
                let each = copies.iter().map(|c| self.differing(&group.state, key, c, from, to));
                bad = join_all(each).await.iter().fold(bad, |bad, b| bad.or(b));
            }
            let looked = self.heal(&group, &bad.or(&unknown)).await?;
            let lost = looked.iter().filter(|(_, bytes)| bytes.is_err()).count() as u64;
            progress.found(looked.len() as u64 - lost, lost + unknown.count() as u64);
        }
        Ok(())
    }

    /// Units of a copy, where it is current, that are not what the table says or cannot be read.
    async fn differing(
        &self,
        state: &parking_lot::Mutex<crate::groups::GroupState>,
        key: GroupKey,
        copy: &Copy,
        from: usize,
        to: usize,
    ) -> Units {
        let units = Units::range(from, to).and(&self.inner.regions.in_group(key.group, copy.current()));
        if units.is_empty() {
            return Units::NONE;
        }
        let first = key.units().start;
        let Some(read) = self.read_units(copy, first + from as u32, to - from).await else { return units };
        let state = state.lock();
        let mut bad = Units::NONE;
        for unit in units.iter() {
            let start = (unit - from) * UNIT as usize;
            let sum = self.sum(key, first + unit as u32, &read[start..start + UNIT as usize]);
            bad.set(unit, sum != state.table.sums[unit]);
        }
        bad
    }
}
