//! Writing: `space`, invariants 1 to 3.

use std::ops::Range;

use arena::passes::{Pass, count};
use arena::{Sg, sg_len, sg_slice};
use disk::DiskError;
use futures_util::StreamExt;
use smallvec::SmallVec;
use tokio::sync::SemaphorePermit;

use super::change::{Attempt, Targets};
use super::copies::Copy;
use super::{Space, SpaceError};
use crate::blocks::checksums::{Sums, checksums};
use crate::disks::Started;
use crate::groups::{Group, GroupKey};
use crate::layout::Spot;
use crate::{GROUP, RowNumber, UNIT};

/// Concurrent runs of one write.
const AT_ONCE: usize = 8;

/// A run of a write on its way.
struct Job<'a> {
    key: GroupKey,
    /// Of the column.
    units: Range<u32>,
    /// Of the slab.
    regions: u64,
    sums: Sums,
    src: &'a Sg,
    /// Copies that have missed the regions and whose disk cannot mark them: not written.
    skip: Vec<Copy>,
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
        assert!(address + length <= self.inner.size());
        match self.start_write(address, src, None) {
            Ok(wait) => wait.await,
            Err((src, _)) => self.write_from(address, &src).await,
        }
    }

    /// The same, with all that it may have to wait for. (By reference: a future has room for what is given to
    /// it, and once more for where it puts that.)
    pub(super) async fn write_from(&self, address: u64, src: &Sg) -> Result<(), SpaceError> {
        let length = sg_len(src) as u64;
        assert!(address.is_multiple_of(UNIT) && length.is_multiple_of(UNIT));
        assert!(address + length <= self.inner.size());
        if let Some(striped) = self.striped() {
            return Box::pin(striped.write(address, src.clone())).await;
        }
        if let Some(at) = self.inner.layout.one_piece(address, length, GROUP).filter(|_| length > 0) {
            return self.write_run(at, length, src).await;
        }
        let runs = self.inner.layout.runs(address, length, GROUP);
        let writes = runs.iter().map(|run| {
            let mut part = Sg::new();
            for p in &run.pieces {
                part.extend(sg_slice(src, p.start as usize, p.length as usize));
            }
            async move { self.write_run(run.at, run.length, &part).await }
        });
        let writes: Vec<_> = writes.collect();
        // In a box, so that the task of a short write has no room for it.
        let mut results = Box::pin(futures_util::stream::iter(writes).buffered(AT_ONCE));
        let mut result = Ok(());
        while let Some(one) = results.next().await {
            result = result.and(one);
        }
        result
    }

    async fn write_run(&self, at: Spot, length: u64, src: &Sg) -> Result<(), SpaceError> {
        let (row, column) = (at.row, at.column);
        let (key, units) = (GroupKey::of(at), at.units(length));
        let regions = self.inner.regions.of(&units);
        let sums = self.sums(row, column, units.start, src.iter().map(|b| &b[..]));
        let mut job = Job { key, units, regions, sums, src, skip: Vec::new() };
        let mut one = self.may_write().await;
        // Rare cases are boxed: a write's task is as large as all its possible waits.
        if self.inner.groups.are_too_dirty() {
            Box::pin(self.flush_too_dirty()).await?;
        }
        loop {
            let mut group = self.inner.groups.get(key);
            if !self.is_ready(&group, job.regions) {
                if self.inner.copies(&self.path, row, column).is_none() {
                    // It may wait for a disk to join, and that for a journal's write.
                    drop(one);
                    Box::pin(self.allocate(row)).await?;
                    one = self.may_write().await;
                }
                match Box::pin(self.ready(key, job.regions)).await? {
                    Some(ready) => group = ready,
                    None => continue,
                }
            }
            let lock = self.inner.locks.lock(row, column, job.units.clone()).await;
            if !self.is_ready(&group, job.regions) {
                continue;
            }
            match self.write_locked(&group, &mut job).await? {
                Attempt::Done => return Ok(()),
                Attempt::Again => {}
                Attempt::NoMark(disk) => {
                    drop(lock);
                    Box::pin(self.make_room(disk)).await?;
                }
            }
        }
    }

    /// The right to one run of a write.
    async fn may_write(&self) -> SemaphorePermit<'_> {
        match self.path.writes.try_acquire() {
            Ok(one) => one,
            Err(_) => Box::pin(self.path.writes.acquire()).await.expect("never closed"),
        }
    }

    /// The checksums of the whole units that these bytes are end to end, `first` the first.
    pub(super) fn sums<'a>(
        &self,
        row: RowNumber,
        column: u8,
        first: u32,
        bytes: impl IntoIterator<Item = &'a [u8]>,
    ) -> Sums {
        let sums = checksums(self.inner.id, row, column, first, bytes);
        count(Pass::Crc, sums.len() * UNIT as usize);
        sums
    }

    /// One attempt, under the lock of the units.
    async fn write_locked(&self, group: &Group, job: &mut Job<'_>) -> Result<Attempt, SpaceError> {
        let (targets, marks) = match self.begin_change(job.key, job.regions, &mut job.skip).await? {
            Ok(begun) => begun,
            Err(attempt) => return Ok(attempt),
        };
        // What came before may have taken long.
        self.owned().await?;
        // All of them are started before the first is awaited.
        let (mut writes, now) = (SmallVec::<[_; 2]>::new(), self.path.env.moment());
        for copy in targets.copies() {
            if let Some(disk) = &copy.disk {
                writes.push(disk.start_write(now, copy.data_at(disk, job.units.start), job.src.clone()));
            }
        }
        Started::wait_all(&mut writes).await;
        let results: SmallVec<[_; 2]> = writes.iter().map(Started::result).collect();
        drop(writes);
        if !self.is_well(&targets, job.regions, &results) {
            Box::pin(self.judge_writes(job.key, &job.units, &targets, &results)).await?;
        }
        self.written(group, &job.units, &job.sums);
        drop(marks);
        Ok(Attempt::Done)
    }

    /// The results of writes to the copies, some of which failed.
    pub(super) async fn judge_writes(
        &self,
        key: GroupKey,
        units: &Range<u32>,
        targets: &Targets,
        results: &[Result<(), DiskError>],
    ) -> Result<(), SpaceError> {
        let written = targets.copies().iter().filter(|c| c.disk.is_some());
        let wrote: Vec<(&Copy, Result<(), DiskError>)> = written.zip(results.iter().copied()).collect();
        let judged = self.judge(key.row, key.column, self.inner.regions.of(units), &wrote).await;
        if judged.is_err() {
            // Old or new on each copy, unknown which: the next access decides.
            self.inner.doubt(&self.path, key, units);
        }
        judged
    }

    /// The copies have units with these checksums: so does the table.
    pub(super) fn written(&self, group: &Group, units: &Range<u32>, sums: &Sums) {
        let mut state = group.state.lock();
        for (unit, sum) in group.key.within(units).zip(sums) {
            state.table.sums[unit] = *sum;
            state.table.written.insert(unit);
            state.table.lost.remove(unit);
        }
        self.inner.groups.dirty(group, &mut state);
        drop(state);
        self.inner.emptying.wrote(group.key.row);
    }
}
