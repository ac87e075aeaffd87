//! Rebuilding the slabs of a disk that is lost or retired on other disks.

use std::sync::Arc;

use super::Progress;
use crate::space::SpaceError;
use crate::{DataPath, DiskNumber, Op, RowNumber, SlabPlace, Space, SpaceId};

impl DataPath {
    /// Moves a copy of a row to a free slab of another disk, where it has missed everything; [`DataPath::resync`] of that disk then fills it.
    ///
    /// # Errors
    /// [`crate::InvalidOp::LastCopy`] when the copy has data that no other has: it cannot be given up.
    pub async fn move_copy(
        self: &Arc<DataPath>,
        space: SpaceId,
        row: RowNumber,
        index: usize,
        to: SlabPlace,
    ) -> Result<(), SpaceError> {
        self.space(space)?.move_slab(row, index, to).await
    }

    /// Moves every copy on a disk to places that `place` gives, and fills them. What has no place, or no other copy, stays.
    ///
    /// # Errors
    /// Of the metadata and of the disks that the copies move to.
    pub async fn repair(
        self: &Arc<DataPath>,
        from: DiskNumber,
        place: impl Fn(&crate::State, SpaceId, RowNumber, usize) -> Option<SlabPlace>,
        progress: &Progress,
    ) -> Result<(), SpaceError> {
        let copies: Vec<(SpaceId, RowNumber, usize)> = self.read(|s| {
            let on = s.rows.iter().flat_map(|(&(space, row), r)| {
                let mine = r.slabs.iter().enumerate().filter(|(_, c)| c.place.disk == from);
                mine.map(move |(index, _)| (space, row, index))
            });
            on.collect()
        });
        for (space, row, index) in copies {
            if progress.is_stopped() {
                return Ok(());
            }
            let Some(to) = self.read(|s| place(s, space, row, index)) else { continue };
            match self.move_copy(space, row, index, to).await {
                Err(SpaceError::Metadata(crate::CommitError::Invalid(_))) => continue,
                other => other?,
            }
            self.resync(to.disk, progress).await?;
        }
        Ok(())
    }
}

impl Space {
    async fn move_slab(&self, row: RowNumber, index: usize, to: SlabPlace) -> Result<(), SpaceError> {
        if let Some(striped) = self.striped() {
            return striped.move_slab(row, index, to).await;
        }
        let column = (index / self.inner.copies) as u8;
        // No write and no block is under way to the slab that is given up.
        let _units = self.inner.locks.lock(row, column, 0..u32::MAX).await;
        let _blocks = self.no_flush().await;
        let _one = self.path.allocating.lock().await;
        let id = self.id();
        let old = self.path.read(|s| Some(s.rows.get(&(id, row))?.slabs.get(index)?.place));
        self.path.book.commit(vec![Op::MoveSlab { space: id, row, index: index as u8, to }]).await?;
        if let Some((place, disk)) = old.and_then(|p| Some((p, self.path.disk(p.disk)?))) {
            disk.log.with(|core| core.forget(place.slab));
        }
        Ok(())
    }
}
