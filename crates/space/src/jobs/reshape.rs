//! Changes the shape of rows. The number of copies is changed first in the metadata, row by row, then new copies are
//! filled like any stale ones; any other shape by a conversion. `docs/0004-spaces.md`, section H.

use std::sync::Arc;

use pool_seam::{NotMoved, OwnerOp, Row, RowNumber, SeamError, Shape, SpaceView};

use super::Job;
use crate::SpaceError;
use crate::checkpoint::OpenPiece;
use crate::owner::Inner;

impl Job {
    /// Changes all rows to the space's current shape, and fills stale regions on present disks.
    pub(super) async fn reshape(&mut self) -> Result<(), SpaceError> {
        let view = self.inner.view.get().value;
        // The log first, then from the last row backwards, because the metadata searches from the first row for the
        // next one to reshape.
        let is_in_place = |row: &RowNumber| *row == RowNumber::LOG || !view.record.is_converting();
        let former = view.record.rows.iter().filter(|(_, row)| row.shape == Shape::Former);
        let former = former.filter(|(row, _)| is_in_place(row));
        let mut rows: Vec<RowNumber> = former.map(|(row, _)| *row).collect();
        while let Some(row) = rows.pop() {
            if self.turn().await? == 0 {
                self.note_unfinished(rows.into_iter().chain([row]).map(|row| (row, 0)));
                return Ok(());
            }
            match self.inner.reshape_row(row).await? {
                Ok(bytes) => self.done.bytes += bytes,
                Err(why) => _ = self.not_moved.insert((row, 0), why),
            }
        }
        self.convert().await?;
        self.done.total = self.done.bytes + self.inner.count_missing(|_| true) * self.inner.region_bytes();
        let left = std::mem::take(&mut self.not_moved);
        while self.pieces(|_| true).await? {}
        self.not_moved.extend(left);
        Ok(())
    }
}

impl Inner {
    /// Returns the bytes of copies that were freed; or why the row keeps its shape.
    async fn reshape_row(self: &Arc<Inner>, row: RowNumber) -> Result<Result<u64, NotMoved>, SpaceError> {
        let is_log = row == RowNumber::LOG;
        if !is_log
            && former(&self.view.get().value, row).is_some_and(|row| row.is_new)
            && let Err(why) = self.initialise(row).await?
        {
            return Ok(Err(why));
        }
        let view = self.view.get().value;
        let Some((birth, slabs)) = former(&view, row).map(|row| (row.birth, row.slabs.len())) else {
            return Ok(Ok(0));
        };
        let op = OwnerOp::Reshape { row, birth };
        let done = if is_log || slabs <= view.record.slabs_in_row() {
            self.commit_if_fits(vec![op]).await
        } else if self.resolve_row(row).await? {
            self.commit_alone(row, op, || !self.is_open(row)).await
        } else {
            return Ok(Err(NotMoved::Unfinished));
        };
        let view = self.view.get().value;
        match done {
            Ok(true) => {
                let now = view.record.rows.get(&row).map_or(slabs, |row| row.slabs.len());
                Ok(Ok(slabs.saturating_sub(now) as u64 * view.slab_bytes))
            }
            // The row was freed meanwhile, or has its new shape.
            Ok(false) if former(&view, row).is_none_or(|row| row.birth != birth) => Ok(Ok(0)),
            Ok(false) => Ok(Err(NotMoved::Shape)),
            Err(SpaceError::Seam(SeamError::NoRoom(why))) => Ok(Err(NotMoved::NoPlace(why))),
            Err(error) => Err(error),
        }
    }
}

impl Inner {
    /// Decides all undecided units of a row while all of its copies are present: one of them may have been rolled
    /// back (rule 9). Returns `false` if disks are absent.
    async fn resolve_row(self: &Arc<Inner>, row: RowNumber) -> Result<bool, SpaceError> {
        let is_of_row = |piece: &OpenPiece| piece.groups.iter().any(|key| key.row == row);
        for piece in self.to_resolve().iter().filter(|piece| is_of_row(piece)) {
            match self.resolve_piece(piece).await {
                Ok(()) => {}
                Err(error @ (SpaceError::Seam(_) | SpaceError::Log(_))) => return Err(error),
                Err(error) => {
                    tracing::debug!(space = self.space().0, row = row.0, %error, "a row keeps its present number of copies for now");
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Whether a row has undecided units.
    fn is_open(&self, row: RowNumber) -> bool {
        let dirty = self.cache.dirty();
        let mut dirty = dirty.iter().filter(|cached| cached.key().row == row);
        dirty.any(|cached| self.with_table(cached, |table| table.is_unresolved()))
            || self.active.unresolved().iter().any(|(set, _)| set.row == row)
            || self.overlay.groups().iter().any(|key| key.row == row)
    }
}

/// A row that has the former resiliency.
fn former(view: &SpaceView, row: RowNumber) -> Option<&Row> {
    view.record.rows.get(&row).filter(|row| row.shape == Shape::Former)
}
