//! Moves slabs: the metadata gets the new place, the target is filled like any stale copy, and then the old slab is
//! freed. `docs/0004-spaces.md`, rule 17 for replicas of the log and rule 18 for other slabs.

use std::ops::ControlFlow;
use std::sync::Arc;

use pool_seam::{GROUP_UNITS, NotMoved, OwnerOp, Regions, Row, RowNumber, SeamError, SlabPlace};

use super::Job;
use super::fill::Piece;
use crate::SpaceError;
use crate::locks::{Mode, RangeLock};
use crate::owner::{Inner, RETRY};

impl Job {
    /// Moves slabs to other places.
    pub(super) async fn fill(
        &mut self,
        moves: Vec<(RowNumber, u8, Option<SlabPlace>)>,
    ) -> Result<(), SpaceError> {
        self.done.total = moves.len() as u64 * self.inner.view.get().value.slab_bytes;
        for (row, index, to) in moves {
            if !self.move_slab(row, index, to).await? {
                self.note_unfinished([(row, index)]);
            }
        }
        Ok(())
    }

    /// Moves a slab. Returns `false` if it could not be moved, and `not_moved` does not have the reason yet.
    async fn move_slab(
        &mut self,
        row: RowNumber,
        index: u8,
        to: Option<SlabPlace>,
    ) -> Result<bool, SpaceError> {
        let birth = match self.begin_move(row, index, to).await? {
            ControlFlow::Continue(birth) => birth,
            ControlFlow::Break(is_done) => return Ok(is_done),
        };
        if row == RowNumber::LOG {
            return self.replica_moves(index).await;
        }
        if self.fill_target(row, birth, index).await?
            && self.inner.commit_alone(row, OwnerOp::EndMove { row, birth }, || true).await?
        {
            return Ok(true);
        }
        let target = self.inner.view.get().value.record.rows.get(&row).map(|record| record.slabs.len() as u8);
        target.map(|target| self.not_moved.remove(&(row, target)));
        self.inner.commit_alone(row, OwnerOp::CancelMove { row, birth }, || true).await?;
        Ok(false)
    }

    /// Begins a move, or finds that it has begun, and returns the birth of the row. If there is nothing to do,
    /// returns whether the slab needs no entry in `not_moved`, or has one.
    async fn begin_move(
        &mut self,
        row: RowNumber,
        index: u8,
        to: Option<SlabPlace>,
    ) -> Result<ControlFlow<bool, u32>, SpaceError> {
        let is_new = |record: &Row| record.is_new && row != RowNumber::LOG;
        let before = self.inner.view.get().value.record.rows.get(&row).map(|record| record.birth);
        if self.inner.view.get().value.record.rows.get(&row).is_some_and(is_new)
            && let Err(why) = self.inner.initialise(row).await?
        {
            self.not_moved.insert((row, index), why);
            return Ok(ControlFlow::Break(true));
        }
        let view = self.inner.view.get().value;
        let Some(record) = view.record.rows.get(&row).filter(|record| !record.is_new) else {
            return Ok(ControlFlow::Break(false));
        };
        let birth = record.birth;
        if before != Some(birth) {
            // The row was reallocated: it has other slabs.
            return Ok(ControlFlow::Break(false));
        }
        match record.moving() {
            Some(_) if usize::from(index) == record.slabs.len() => {
                let cancel = OwnerOp::CancelMove { row, birth };
                return Ok(ControlFlow::Break(self.inner.commit_alone(row, cancel, || true).await?));
            }
            Some(moving) if moving.index != index => return Ok(ControlFlow::Break(false)),
            Some(_) => return Ok(ControlFlow::Continue(birth)),
            None => {}
        }
        match self.inner.commit_if_fits(vec![OwnerOp::BeginMove { row, birth, index, to }]).await {
            Ok(true) => Ok(ControlFlow::Continue(birth)),
            Ok(false) => Ok(ControlFlow::Break(false)),
            Err(SpaceError::Seam(SeamError::NoRoom(why))) => {
                self.not_moved.insert((row, index), NotMoved::NoPlace(why));
                Ok(ControlFlow::Break(true))
            }
            Err(error) => Err(error),
        }
    }

    /// Fills the target of a move. `false`: its disk was removed, another job ended the move, or some regions cannot be
    /// filled now.
    async fn fill_target(&mut self, row: RowNumber, birth: u32, index: u8) -> Result<bool, SpaceError> {
        loop {
            let view = self.inner.view.get().value;
            let record = view.record.rows.get(&row).filter(|record| record.birth == birth);
            let Some(record) = record.filter(|of| of.moving().is_some_and(|moving| moving.index == index))
            else {
                return Ok(false);
            };
            let target = record.slabs.len() as u8;
            if self.pieces(|piece: &Piece| piece.row == row && piece.index == target).await? {
                continue;
            }
            let view = self.inner.view.get().value;
            let copy = view.record.rows.get(&row).and_then(|row| row.copy(target.into()).copied());
            let regions = Regions::new(view.slab_bytes);
            return Ok(copy.is_some_and(|copy| copy.stale_regions & regions.all() == 0));
        }
    }

    /// Waits until a move of a replica of the log ends. The owner carries out the move even without this job, like
    /// the join of any replica: the old replica is kept until the new one is complete.
    async fn replica_moves(&mut self, index: u8) -> Result<bool, SpaceError> {
        let moving = || self.inner.view.get().value.log_row().and_then(Row::moving);
        let Some(generation) = moving().map(|moving| moving.copy.generation) else { return Ok(false) };
        while moving().is_some_and(|moving| moving.copy.generation == generation) {
            if self.turn().await? == 0 {
                return Ok(false);
            }
            self.inner.to_keep.notify_one();
            self.inner.env.sleep(RETRY).await;
        }
        let view = self.inner.view.get().value;
        let copy = view.log_row().and_then(|row| row.copy(index.into()));
        let is_moved = copy.is_some_and(|copy| copy.generation == generation);
        self.done.bytes += if is_moved { view.slab_bytes } else { 0 };
        Ok(is_moved)
    }
}

impl Inner {
    /// Commits an operation that may free slabs of a row, while no write or checkpoint of the row is in progress.
    /// Returns `false` if `may` refuses it, or it conflicts with the metadata.
    pub(super) async fn commit_alone(
        self: &Arc<Inner>,
        row: RowNumber,
        op: OwnerOp,
        may: impl Fn() -> bool,
    ) -> Result<bool, SpaceError> {
        loop {
            {
                let _one = self.checkpoints.lock().await;
                if let Some(_locks) = self.lock_row(row).await {
                    return if may() { self.commit_if_fits(vec![op]).await } else { Ok(false) };
                }
            }
            // A checkpoint must run first.
            self.log().has_room().await?;
        }
    }

    /// Takes the locks of all groups of a row. Returns `None` if the log becomes full meanwhile: the holders may wait
    /// for room, which only a checkpoint makes.
    async fn lock_row(&self, row: RowNumber) -> Option<Vec<RangeLock>> {
        let mut full = std::pin::pin!(self.log().full());
        let mut locks = Vec::new();
        for key in self.groups(row) {
            locks.push(tokio::select! {
                biased;
                lock = self.locks.lock(key, 0..GROUP_UNITS as usize, Mode::Exclusive) => lock,
                () = &mut full => return None,
            });
        }
        Some(locks)
    }
}
