//! Writing: `space`, invariants 1 to 3.

use std::ops::Range;

use arena::passes::{Pass, count};
use arena::{IoBuf, Sg, sg_len, sg_slice};
use disk::DiskError;
use futures_util::StreamExt;
use futures_util::future::join_all;
use smallvec::SmallVec;

use super::change::Attempt;
use super::copies::Copy;
use super::{Space, SpaceError};
use crate::blocks::checksums::checksum;
use crate::groups::{Group, GroupKey};
use crate::layout::Run;
use crate::{GROUP, RowNumber, UNIT};

/// Runs of one write under way at a time.
const AT_ONCE: usize = 8;

/// A run of a write on its way.
struct Job {
    key: GroupKey,
    /// Of the column.
    units: Range<u32>,
    /// Of the slab.
    regions: u64,
    sums: Vec<u32>,
    src: Sg,
    /// Copies, by index, that have missed the regions and whose disk cannot mark them: not written.
    skip: SmallVec<[usize; 2]>,
}

impl Space {
    /// Writes whole units at `address`. When it returns well they are what every read gives; durable after a flush.
    ///
    /// # Errors
    /// [`SpaceError`]; then each unit is old or new.
    ///
    /// # Panics
    /// When the range is not whole units inside the space: the caller has checked it.
    pub async fn write_at(&self, address: u64, src: Sg) -> Result<(), SpaceError> {
        let length = sg_len(&src) as u64;
        assert!(address.is_multiple_of(UNIT) && length.is_multiple_of(UNIT));
        assert!(address + length <= self.inner.info.geometry.size);
        let runs = self.inner.layout.runs(address, length, GROUP);
        let writes = runs.into_iter().map(|run| {
            let mut part = Sg::new();
            for p in &run.pieces {
                part.extend(sg_slice(&src, p.start as usize, p.length as usize));
            }
            self.write_run(run, part)
        });
        let writes: Vec<_> = writes.collect();
        let mut results = futures_util::stream::iter(writes).buffered(AT_ONCE);
        let mut result = Ok(());
        while let Some(one) = results.next().await {
            result = result.and(one);
        }
        result
    }

    async fn write_run(&self, run: Run, src: Sg) -> Result<(), SpaceError> {
        let (row, column) = (run.at.row, run.at.column);
        let first = (run.at.offset / UNIT) as u32;
        let units = first..first + (run.length / UNIT) as u32;
        let key = GroupKey { row, column, group: (run.at.offset / GROUP) as u32 };
        let regions = self.inner.regions.of(&units);
        count(Pass::Crc, run.length as usize);
        let sums = self.sums(row, column, first, &src);
        let mut job = Job { key, units, regions, sums, src, skip: SmallVec::new() };
        let _one = self.path.writes.acquire().await.expect("never closed");
        if self.inner.groups.are_too_dirty() {
            self.flush_all().await?;
        }
        loop {
            if self.inner.copies(&self.path, row, column).is_none() {
                self.allocate(row).await?;
            }
            let Some(group) = self.ready(key, job.regions).await? else { continue };
            let lock = self.inner.locks.lock(row, column, job.units.clone()).await;
            if !self.is_ready(&group, job.regions) {
                continue;
            }
            match self.write_locked(&group, &mut job).await? {
                Attempt::Done => return Ok(()),
                Attempt::Again => {}
                Attempt::NoMark(disk) => {
                    drop(lock);
                    self.make_room(disk).await?;
                }
            }
        }
    }

    /// The checksums of units that lie end to end in a payload.
    fn sums(&self, row: RowNumber, column: u8, first: u32, src: &[IoBuf]) -> Vec<u32> {
        let (mut at, mut buffers) = (0, src.iter());
        let mut buffer = buffers.next();
        let units = sg_len(src) as u64 / UNIT;
        let mut sums = Vec::with_capacity(units as usize);
        for unit in 0..units as u32 {
            let mut pieces: SmallVec<[&[u8]; 4]> = SmallVec::new();
            let mut left = UNIT as usize;
            while left > 0 {
                let Some(b) = buffer else { break };
                let n = left.min(b.len() - at);
                pieces.push(&b[at..at + n]);
                (left, at) = (left - n, at + n);
                if at == b.len() {
                    (buffer, at) = (buffers.next(), 0);
                }
            }
            sums.push(checksum(self.inner.id, row, column, first + unit, pieces));
        }
        sums
    }

    /// One attempt, under the lock of the units.
    async fn write_locked(&self, group: &Group, job: &mut Job) -> Result<Attempt, SpaceError> {
        let (row, column) = (job.key.row, job.key.column);
        let Some(copies) = self.inner.copies(&self.path, row, column) else { return Ok(Attempt::Again) };
        self.inner.unavailable(row, &copies, job.regions)?;
        let targets: Vec<&Copy> =
            copies.iter().filter(|c| c.disk.is_some() && !job.skip.contains(&c.index)).collect();
        let marks = match self.mark(row, &targets, job.regions, &mut job.skip).await? {
            Ok(marks) => marks,
            Err(attempt) => return Ok(attempt),
        };
        self.miss(row, &copies, &targets, job.regions).await?;
        if self.is_changed(row, column, &copies) {
            return Ok(Attempt::Again);
        }
        let writes = targets.iter().filter_map(|c| {
            let disk = c.disk.as_ref()?;
            Some(disk.write(c.data_at(disk, job.units.start), job.src.clone()))
        });
        let results = join_all(writes).await;
        let wrote: Vec<(&Copy, Result<(), DiskError>)> = targets.iter().copied().zip(results).collect();
        let judged = self.judge(row, column, job.regions, &wrote).await;
        if let Err(error) = judged {
            // Old or new on each copy, nobody knows which: who looks next decides.
            self.inner.doubt(&self.path, job.key, job.regions);
            return Err(error);
        }
        {
            let mut state = group.state.lock();
            for (unit, sum) in job.key.within(&job.units).zip(&job.sums) {
                state.table.sums[unit] = *sum;
                state.table.written.insert(unit);
                state.table.lost.remove(unit);
            }
            self.inner.groups.dirty(group, &mut state);
        }
        drop(marks);
        Ok(Attempt::Done)
    }
}
