//! Moving slabs to other disks beside the users: of disks that leave or are lost, and from full disks to empty ones.
//!
//! A move has three steps: the new slab is a copy that has missed everything; it is filled like any copy that
//! was absent; when it has everything that the old one has, it replaces it. Until then both get every write,
//! and the old one counts, so redundancy never drops. The metadata has the current step of a row: after a
//! restart [`DataPath::resume_moves`] continues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pool_seam::Stays;

use super::Progress;
use crate::placement;
use crate::space::SpaceError;
use crate::{CommitError, DataPath, DiskNumber, InvalidOp, Op, RowNumber, SlabPlace, Space, SpaceId};

/// How often a row's move may be refused before it is left alone.
const REFUSED_MAX: usize = 8;

/// The result of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The slab has moved.
    Yes,
    /// It stays where it was, and the new slab is free again: its disk was removed from service, or the data
    /// is on absent disks.
    No,
    /// Neither yet: the job was stopped, the new slab has the only copy of some data, the row waits for
    /// disks, or another job works on it.
    Begun,
}

/// The result of moving everything off a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evacuated {
    /// Slabs that have moved.
    pub moved: usize,
    /// Slabs that are still there.
    pub left: usize,
    /// Why, of one of them.
    pub why: Option<Stays>,
}

impl DataPath {
    /// Begins to move a slab of a row to a free one on another disk.
    ///
    /// # Errors
    /// [`InvalidOp`] when the state does not allow it; nothing has changed then.
    pub async fn begin_move(
        self: &Arc<DataPath>,
        space: SpaceId,
        row: RowNumber,
        index: usize,
        to: SlabPlace,
    ) -> Result<(), SpaceError> {
        let op = Op::BeginMove { space, row, index: index as u8, to };
        self.space(space)?.change_copies(row, index, op).await
    }

    /// Fills the slab that a row's slab is moving to, and lets it take the old one's place.
    ///
    /// # Errors
    /// Of the metadata, and of disks that stay although they fail; the move can be taken up again.
    pub async fn finish_move(
        self: &Arc<DataPath>,
        space: SpaceId,
        row: RowNumber,
        progress: &Progress,
    ) -> Result<Moved, SpaceError> {
        let Some(_mine) = About::begin(self, space, row) else { return Ok(Moved::Begun) };
        let space_of = self.space(space)?;
        let (mut last, mut tried) = (None, true);
        loop {
            let now = self.read(|s| {
                let r = s.rows.get(&(space, row))?;
                let m = r.moving()?;
                let old = r.slabs.get(usize::from(m.index))?;
                Some((m, r.slabs.len(), m.copy.missed & !old.missed, s.is_present(m.copy.place.disk)))
            });
            // Its row is freed, or another task has ended the move.
            let Some((moving, index, lacks, present)) = now else { return Ok(Moved::No) };
            // The new slab is filled, except for data on absent disks, which the old slab lacks too.
            let stuck = last == Some(moving.copy.missed);
            if present && (moving.copy.missed == 0 || (stuck && lacks == 0)) {
                return match space_of.change_copies(row, index, Op::EndMove { space, row }).await {
                    Ok(()) => Ok(Moved::Yes),
                    // A write failed there meanwhile, or the row was freed.
                    Err(e) if is_refused(&e) => continue,
                    Err(e) if is_away(&e) => Ok(Moved::Begun),
                    Err(e) => Err(e),
                };
            }
            // A disk may belong to the pool and not have joined yet.
            if present && (progress.is_stopped() || !tried) {
                return Ok(Moved::Begun);
            }
            if !present || stuck {
                let cancel = Op::CancelMove { space, row };
                return match space_of.change_copies(row, index, cancel).await {
                    Ok(()) => Ok(Moved::No),
                    Err(SpaceError::Metadata(CommitError::Invalid(InvalidOp::LastCopy { .. }))) => {
                        Ok(Moved::Begun)
                    }
                    Err(e) if is_refused(&e) => continue,
                    Err(e) if is_away(&e) => Ok(Moved::Begun),
                    Err(e) => Err(e),
                };
            }
            tried = space_of.resync_copy(row, index, moving.copy.missed, progress).await?;
            last = tried.then_some(moving.copy.missed);
        }
    }

    /// Continues moves that were started before a restart.
    ///
    /// # Errors
    /// As for [`DataPath::finish_move`].
    pub async fn resume_moves(self: &Arc<DataPath>, progress: &Progress) -> Result<(), SpaceError> {
        let moves: Vec<_> = self.read(|s| s.moves().map(|(space, row, _)| (space, row)).collect());
        progress.expect(moves.len() as u64 * self.slab_bytes);
        for (space, row) in moves {
            if progress.is_stopped() {
                return Ok(());
            }
            self.finish_move(space, row, progress).await?;
        }
        Ok(())
    }

    /// Moves everything on a disk to others: to automatically selected disks and hot spares, using their
    /// reserve too. The disk may be present or absent; data that is only on absent disks stays.
    ///
    /// # Errors
    /// As for [`DataPath::finish_move`].
    pub async fn evacuate(
        self: &Arc<DataPath>,
        from: DiskNumber,
        progress: &Progress,
    ) -> Result<Evacuated, SpaceError> {
        let mut result = Evacuated::default();
        self.chosen().await;
        let copies: Vec<_> = self.read(|s| s.copies_on(from).collect());
        progress.expect(copies.len() as u64 * self.slab_bytes);
        for (space, row, _) in copies {
            if progress.is_stopped() {
                result.why = Some(Stays::Unfinished);
                break;
            }
            match self.move_off(from, space, row, progress).await? {
                Ok(moved) => result.moved += usize::from(moved),
                Err(why) => result.why = Some(why),
            }
        }
        result.left = self.read(|s| s.copies_on(from).count());
        if result.left == 0 {
            result.why = None;
        } else {
            result.why.get_or_insert(Stays::Unfinished);
        }
        Ok(result)
    }

    /// Waits until every row has its slabs whose disks were chosen before this call: by what was known of
    /// disks and classes then.
    async fn chosen(&self) {
        drop(self.allocating.lock().await);
    }

    /// Moves what a row has on a disk; whether it had anything.
    async fn move_off(
        self: &Arc<DataPath>,
        from: DiskNumber,
        space: SpaceId,
        row: RowNumber,
        progress: &Progress,
    ) -> Result<Result<bool, Stays>, SpaceError> {
        // Moves in progress in this row are completed first; moves to this disk are cancelled.
        if let Some(to) = self.read(|s| Some(s.rows.get(&(space, row))?.moving()?.copy.place.disk)) {
            if to == from {
                let Some(_mine) = About::begin(self, space, row) else { return Ok(Err(Stays::Unfinished)) };
                let index = self.read(|s| s.rows.get(&(space, row)).map_or(0, |r| r.slabs.len()));
                let cancel = Op::CancelMove { space, row };
                match self.space(space)?.change_copies(row, index, cancel).await {
                    Err(e) if is_refused(&e) => return Ok(Err(Stays::Unfinished)),
                    other => other?,
                }
            } else if self.finish_move(space, row, progress).await? == Moved::Begun {
                return Ok(Err(Stays::Unfinished));
            }
        }
        let planned = self.read(|s| {
            let r = s.rows.get(&(space, row))?;
            let index = r.slabs.iter().position(|c| c.place.disk == from)?;
            Some(placement::place_off(s, space, row, index).map(|to| (index, to)))
        });
        let (index, to) = match planned {
            None => return Ok(Ok(false)),
            Some(Err(why)) => return Ok(Err(why)),
            Some(Ok(plan)) => plan,
        };
        let is_here = self.read(|s| s.is_present(from));
        if let Some(striped) = self.space(space)?.striped().filter(|_| !is_here) {
            // It is rebuilt from the other columns, and counts as far as it is filled.
            match striped.change_slabs(row, Op::MoveSlab { space, row, index: index as u8, to }).await {
                Ok(()) => {}
                // Its disk has returned, or returns during this, too.
                Err(e) if is_refused(&e) || is_away(&e) => return Ok(Err(Stays::Unfinished)),
                Err(e) => return Err(e),
            }
            self.space(space)?.resync_copy(row, index, u64::MAX, progress).await?;
            return Ok(Ok(true));
        }
        match self.begin_move(space, row, index, to).await {
            Ok(()) => {}
            // A user took the slab or freed the row, or another job moves it: the next request tries it
            // again.
            Err(e) if is_refused(&e) || is_away(&e) => return Ok(Err(Stays::Unfinished)),
            Err(e) => return Err(e),
        }
        match self.finish_move(space, row, progress).await? {
            Moved::Yes => Ok(Ok(true)),
            Moved::No | Moved::Begun => Ok(Err(Stays::Unfinished)),
        }
    }

    /// Moves slabs until the disks are as evenly full, and the copies as far apart, as can be; how many moved.
    ///
    /// # Errors
    /// As for [`DataPath::finish_move`].
    pub async fn optimize(self: &Arc<DataPath>, progress: &Progress) -> Result<usize, SpaceError> {
        let (mut moved, mut skip) = (0, BTreeSet::new());
        let mut refused: BTreeMap<(SpaceId, RowNumber), usize> = BTreeMap::new();
        self.chosen().await;
        progress.expect(self.read(placement::to_rebalance) as u64 * self.slab_bytes);
        while !progress.is_stopped() {
            let Some(step) = self.read(|s| placement::rebalance(s, &skip)) else { break };
            let placement::Step { space, row, index, to } = step;
            match self.begin_move(space, row, index, to).await {
                Ok(()) => {}
                // A user took the slab, most of the time: there is another.
                Err(e) if is_refused(&e) => {
                    let times = refused.entry((space, row)).or_default();
                    *times += 1;
                    if *times == REFUSED_MAX {
                        skip.insert((space, row));
                    }
                    continue;
                }
                Err(e) if is_away(&e) => {
                    skip.insert((space, row));
                    continue;
                }
                Err(e) => return Err(e),
            }
            match self.finish_move(space, row, progress).await? {
                Moved::Yes => moved += 1,
                Moved::No | Moved::Begun => drop(skip.insert((space, row))),
            }
        }
        Ok(moved)
    }
}

/// Whether the state has changed meanwhile, which is no error.
fn is_refused(error: &SpaceError) -> bool {
    matches!(error, SpaceError::Metadata(CommitError::Invalid(_)) | SpaceError::Deleted(_))
}

/// Whether the row waits for disks, which others do not.
fn is_away(error: &SpaceError) -> bool {
    matches!(error, SpaceError::Unavailable { .. })
}

/// One job is about a row's move at a time.
struct About<'a> {
    path: &'a DataPath,
    of: (SpaceId, RowNumber),
}

impl About<'_> {
    /// `None`: another is.
    fn begin(path: &DataPath, space: SpaceId, row: RowNumber) -> Option<About<'_>> {
        let free = path.moving.lock().insert((space, row));
        if free { Some(About { path, of: (space, row) }) } else { None }
    }
}

impl Drop for About<'_> {
    fn drop(&mut self) {
        self.path.moving.lock().remove(&self.of);
    }
}

impl Space {
    /// Changes which copies a row has, at a moment when they are not in use: no write or block is in flight,
    /// no slab is being allocated, and no failed disk is being handled.
    async fn change_copies(&self, row: RowNumber, index: usize, op: Op) -> Result<(), SpaceError> {
        if let Some(striped) = self.striped() {
            return striped.change_slabs(row, op).await;
        }
        let column = self.inner.column_of(&self.path, row, index);
        let _units = self.inner.locks.lock(row, column, 0..u32::MAX).await;
        let _blocks = self.no_flush().await;
        let _one = self.path.allocating.lock().await;
        let failing = self.path.failing.lock().await;
        let freed = self.path.commit_row(self.id(), row, vec![op]).await?;
        // A disk that does not answer can be removed.
        drop(failing);
        self.path.discard_slabs(freed).await;
        Ok(())
    }
}
