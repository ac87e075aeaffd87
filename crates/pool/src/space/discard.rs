//! Discarding: units become zeros, rows that have nothing else give their slabs back. No data is written.

use std::ops::Range;
use std::sync::Arc;

use super::change::Attempt;
use super::copies::Copy;
use super::{Space, SpaceError};
use crate::groups::{Group, GroupKey};
use crate::{CommitError, DataPath, GROUP, InvalidOp, Op, RowNumber, SpaceId, SpaceRecord, UNIT};

impl DataPath {
    /// Destroys a space and what is on it: its rows go first, then it and its journal in one record, so that
    /// a crash leaves a space or nothing.
    ///
    /// The space is unused; remaining users get errors.
    ///
    /// # Errors
    /// [`SpaceError`]; then it is there, with some of its rows.
    pub async fn destroy_space(self: &Arc<DataPath>, space: SpaceId) -> Result<(), SpaceError> {
        let data = self.space(space)?;
        data.discard_at(0, data.inner.size()).await?;
        let mut destroy = vec![Op::DestroySpace { space }];
        let Some(journal) = self.read(|s| s.journal_of(space).filter(|j| s.spaces.contains_key(j))) else {
            return Ok(self.book.commit(destroy).await?);
        };
        destroy.push(Op::DestroySpace { space: journal });
        // It has one row, which is there from its first use on.
        let row = self.read(|s| s.rows_of(journal).next().map(|(row, _)| row));
        match row {
            Some(row) => self.space(journal)?.free_row_with(row, || true, destroy).await.map(drop),
            None => Ok(self.book.commit(destroy).await?),
        }
    }

    /// Gives a space another size while it is open: a larger one reads as zeros there, and what is beyond a smaller
    /// one is discarded. Spaces that are opened from now on report it; those that are open take I/O up to it.
    ///
    /// The caller makes sure that nothing is written beyond a smaller size meanwhile.
    ///
    /// # Errors
    /// [`SpaceError`]; then it has its former size, and may have lost what is beyond the new one.
    pub async fn resize_space(self: &Arc<DataPath>, space: SpaceId, size: u64) -> Result<(), SpaceError> {
        let data = self.space(space)?;
        self.read(|s| {
            let record = s.spaces.get(&space).ok_or(InvalidOp::NoSpace(space))?;
            s.check_shape(&SpaceRecord { size, ..record.clone() })
        })
        .map_err(CommitError::Invalid)?;
        let had = data.inner.size();
        if size < had {
            data.discard_at(size, had - size).await?;
            data.flush_all().await?;
        }
        self.book.commit(vec![Op::ResizeSpace { space, size }]).await?;
        data.inner.set_size(size);
        Ok(())
    }
}

impl Space {
    /// Makes a range zeros. Durable after a flush. The slabs of rows in which nothing is left are free, and
    /// that is durable, when it returns; where that cannot be found out now, after a later flush.
    ///
    /// # Errors
    /// [`SpaceError`]; then each unit is as it was, or zeros.
    ///
    /// # Panics
    /// When the range is not whole units inside the space: the caller has checked it.
    pub async fn discard_at(&self, address: u64, length: u64) -> Result<(), SpaceError> {
        let size = self.inner.size();
        assert!(address.is_multiple_of(UNIT) && length.is_multiple_of(UNIT) && address + length <= size);
        let (row_bytes, end) = (self.inner.layout.row_bytes(), address + length);
        let mut at = address;
        while at < end {
            let row = RowNumber((at / row_bytes) as u32);
            let (first, next) = (u64::from(row.0) * row_bytes, (u64::from(row.0) + 1) * row_bytes);
            let stop = end.min(next);
            if at == first && stop == next.min(size) {
                self.free_row(row).await?;
            } else if let Some(striped) = self.striped() {
                Box::pin(striped.discard(at, stop - at)).await?;
                self.emptied(row, at..stop).await;
            } else if self.inner.copies(&self.path, row, 0).is_some() {
                for run in self.inner.layout.runs(at, stop - at, GROUP) {
                    self.discard_units(GroupKey::of(run.at), run.at.units(run.length)).await?;
                }
                self.emptied(row, at..stop).await;
            }
            at = stop;
        }
        Ok(())
    }

    async fn discard_units(&self, key: GroupKey, units: Range<u32>) -> Result<(), SpaceError> {
        let regions = self.inner.regions.of(&units);
        let mut skip = Vec::new();
        let _one = self.path.writes.acquire().await.expect("never closed");
        if self.inner.groups.are_too_dirty() {
            Box::pin(self.flush_too_dirty()).await?;
        }
        loop {
            let Some(group) = self.ready(key, regions).await? else { return Ok(()) };
            let lock = self.inner.locks.lock(key.row, key.column, units.clone()).await;
            if !self.is_ready(&group, regions) {
                continue;
            }
            match self.discard_locked(&group, &units, regions, &mut skip).await? {
                Attempt::Done => return Ok(()),
                Attempt::Again => {}
                Attempt::NoMark(disk) => {
                    drop(lock);
                    self.make_room(disk).await?;
                }
            }
        }
    }

    /// A table that changes is marked like data that does: until it is flushed the copies may differ.
    async fn discard_locked(
        &self,
        group: &Group,
        units: &Range<u32>,
        regions: u64,
        skip: &mut Vec<Copy>,
    ) -> Result<Attempt, SpaceError> {
        let key = group.key;
        {
            let table = &group.state.lock().table;
            if !key.within(units).any(|u| table.written.has(u) || table.lost.has(u)) {
                return Ok(Attempt::Done);
            }
        }
        let (_, marks) = match self.begin_change(key, regions, skip).await? {
            Ok(begun) => begun,
            Err(attempt) => return Ok(attempt),
        };
        {
            let mut state = group.state.lock();
            for unit in key.within(units) {
                state.table.written.remove(unit);
                state.table.lost.remove(unit);
            }
            self.inner.groups.dirty(group, &mut state);
        }
        drop(marks);
        Ok(Attempt::Done)
    }

    /// Gives a row's slabs back, whatever it has.
    async fn free_row(&self, row: RowNumber) -> Result<(), SpaceError> {
        match self.striped() {
            Some(striped) => Box::pin(striped.free_row(row)).await,
            None => self.free_row_with(row, || true, Vec::new()).await.map(drop),
        }
    }

    /// Frees a row's slabs if that is right while the row is unused; returns whether it has none now.
    pub(super) async fn free_row_if(
        &self,
        row: RowNumber,
        may: impl Fn() -> bool,
    ) -> Result<bool, SpaceError> {
        if let Some(striped) = self.striped() {
            return Box::pin(striped.free_row_if(row, may)).await;
        }
        self.free_row_with(row, may, Vec::new()).await
    }

    /// The same of a mirror, in one record with other operations; without them, if the row has no slabs.
    async fn free_row_with(
        &self,
        row: RowNumber,
        may: impl Fn() -> bool,
        and: Vec<Op>,
    ) -> Result<bool, SpaceError> {
        let mut locks = Vec::new();
        for column in 0..self.inner.columns {
            locks.push(self.inner.locks.lock(row, column, 0..u32::MAX).await);
        }
        let _blocks = self.no_flush().await;
        // The slabs are not reused before the data path's state about them is dropped, and a failed disk does
        // not record missed regions of them.
        let _one = self.path.allocating.lock().await;
        let failing = self.path.failing.lock().await;
        if self.path.slabs(self.inner.id, row).is_empty() {
            return Ok(true);
        }
        if !may() {
            return Ok(false);
        }
        let free = Op::FreeRow { space: self.inner.id, row };
        let ops = [free].into_iter().chain(and).collect();
        let freed = self.path.commit_row(self.inner.id, row, ops).await?;
        self.inner.groups.kill(row);
        self.inner.unresolved.kill(row);
        self.inner.emptying.forget(row);
        // A disk that does not answer can be removed.
        drop(failing);
        self.path.discard_slabs(freed).await;
        Ok(true)
    }
}
