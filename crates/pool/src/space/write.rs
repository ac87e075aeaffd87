//! Writing: `space`, invariants 1 to 3.

use std::ops::Range;

use arena::passes::{Pass, count};
use arena::{Sg, sg_len, sg_slice};
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
        let sums = self.sums(row, column, first, src.iter().map(|b| &b[..]));
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

    /// The checksums of the whole units that these bytes are end to end, `first` the first.
    pub(super) fn sums<'a>(
        &self,
        row: RowNumber,
        column: u8,
        first: u32,
        bytes: impl IntoIterator<Item = &'a [u8]>,
    ) -> Vec<u32> {
        let (mut sums, mut unit, mut have) = (Vec::new(), SmallVec::<[&[u8]; 4]>::new(), 0);
        for mut bytes in bytes {
            while !bytes.is_empty() {
                let (piece, rest) = bytes.split_at(bytes.len().min(UNIT as usize - have));
                unit.push(piece);
                (bytes, have) = (rest, have + piece.len());
                if have == UNIT as usize {
                    let number = first + sums.len() as u32;
                    sums.push(checksum(self.inner.id, row, column, number, unit.drain(..)));
                    have = 0;
                }
            }
        }
        count(Pass::Crc, sums.len() * UNIT as usize);
        sums
    }

    /// One attempt, under the lock of the units.
    async fn write_locked(&self, group: &Group, job: &mut Job) -> Result<Attempt, SpaceError> {
        let (row, column) = (job.key.row, job.key.column);
        let (targets, marks) = match self.begin_change(job.key, job.regions, &mut job.skip).await? {
            Ok(begun) => begun,
            Err(attempt) => return Ok(attempt),
        };
        let writes = targets.iter().filter_map(|c| {
            let disk = c.disk.as_ref()?;
            Some(disk.write(c.data_at(disk, job.units.start), job.src.clone()))
        });
        let results = join_all(writes).await;
        let wrote: Vec<(&Copy, Result<(), DiskError>)> = targets.iter().zip(results).collect();
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
