//! Rows that go, slabs that move, and looking at everything.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Striped;
use super::table::RowKey;
use crate::blocks::Units;
use crate::jobs::Progress;
use crate::space::SpaceError;
use crate::space::emptying::Seen;
use crate::{GROUP_UNITS, Op, RowNumber, UNIT};

/// All stripes of a row.
const ALL: Range<u32> = 0..u32::MAX;

/// Checkpoints that are tried until the blocks of a row are written.
pub(super) const TRIES: usize = 8;

/// Stripes that are looked at together.
const PIECE: u32 = 64;

impl Striped {
    /// Frees a row's slabs if that is right while the row is unused; returns whether it has none now.
    pub(crate) async fn free_row_if(
        &self,
        row: RowNumber,
        may: impl Fn() -> bool,
    ) -> Result<bool, SpaceError> {
        let _use = self.p.life.read().await;
        self.opened().await?;
        self.free_in_use(row, may).await
    }

    /// Frees a row's slabs, whatever their contents. The journal may be waiting for disks meanwhile: its
    /// entries for the row no longer count, because the row's slabs have changed.
    pub(crate) async fn free_row(&self, row: RowNumber) -> Result<(), SpaceError> {
        let _use = self.p.life.read().await;
        self.free_in_use(row, || true).await.map(drop)
    }

    async fn free_in_use(&self, row: RowNumber, may: impl Fn() -> bool) -> Result<bool, SpaceError> {
        let _stripes = self.lock(row, ALL).await;
        let _blocks = self.p.checkpointing.lock().await;
        // The slabs are not reused before the data path's state about them is dropped, and a failed disk does
        // not record missed regions of them.
        let _one = self.space.path.allocating.lock().await;
        let failing = self.space.path.failing.lock().await;
        if self.columns(row).is_none() {
            return Ok(true);
        }
        if !may() {
            return Ok(false);
        }
        let (path, space) = (&self.space.path, self.space.inner.id);
        let freed = path.commit_row(space, row, vec![Op::FreeRow { space, row }]).await?;
        self.p.groups.kill(row);
        self.p.stuck.kill(row);
        self.p.marks.forget(row);
        self.p.resyncing.lock().retain(|of, _| of.0 != row);
        self.space.inner.emptying.forget(row);
        // A disk that does not answer can be removed.
        drop(failing);
        path.discard_slabs(freed).await;
        Ok(true)
    }

    /// The last that is written in a group.
    pub(crate) async fn anything(&self, row: RowNumber, group: u32) -> Result<Seen, SpaceError> {
        let key = RowKey { row, group };
        let _use = self.p.life.read().await;
        self.opened().await?;
        let Some(group) = self.ready(key, self.regions(&key.units())).await? else {
            return Ok(Seen::Gone);
        };
        let state = group.state.lock();
        let Some(unit) = state.any().iter().last() else { return Ok(Seen::Nothing) };
        let column = (0..self.p.data()).rfind(|c| state.written[*c].has(unit)).unwrap_or(0);
        Ok(Seen::Something(self.address(row, column, key.first() + unit as u32)))
    }

    /// Whether a change of a row waits to be carried out.
    pub(crate) fn is_stuck(&self, row: RowNumber) -> bool {
        self.p.stuck.has(row, &ALL)
    }

    /// Changes which slabs a row has, at a moment when they are not in use: no change or block is in flight,
    /// no slab is being allocated, and no failed disk is being handled.
    ///
    /// # Errors
    /// Of the metadata, when the state does not allow it; and when the journal cannot be carried out before the row gets another set of slabs.
    pub(crate) async fn change_slabs(&self, row: RowNumber, op: Op) -> Result<(), SpaceError> {
        let _use = self.p.life.read().await;
        self.opened().await?;
        // The journal's entries identify the row by its slabs: their contents must be in the blocks before
        // the slabs change.
        let others = matches!(op, Op::MoveSlab { .. } | Op::EndMove { .. });
        for _ in 0..TRIES {
            if others {
                self.settle_stripes(row, &ALL).await?;
            }
            let _stripes = self.lock(row, ALL).await;
            if others && self.p.stuck.has(row, &ALL) {
                continue;
            }
            let _blocks = self.p.checkpointing.lock().await;
            if others {
                self.checkpoint_now(true).await?;
                if self.stale_regions(row) != 0 {
                    continue;
                }
            }
            let _one = self.space.path.allocating.lock().await;
            let failing = self.space.path.failing.lock().await;
            // Does not wait: the holder may wait for a lock that is held here.
            let joining = matches!(op, Op::MoveSlab { .. }).then(|| self.space.path.joining.try_lock());
            if let Some(one) = &joining
                && (one.is_err() || self.is_here(&op))
            {
                break;
            }
            let freed = self.space.path.commit_row(self.space.inner.id, row, vec![op]).await?;
            let past = self.p.columns();
            self.p.resyncing.lock().retain(|(of, index), _| *of != row || *index < past);
            if others {
                // Records that name its groups may still exist, and name others: a reader that finds blocks
                // torn by a power cut would not know the reason.
                let group = |group| RowKey { row, group };
                for group in self.p.groups.of(group(0)..=group(u32::MAX)) {
                    let mut state = group.state.lock();
                    (state.named, state.since) = (0, 0);
                }
            }
            drop(failing);
            self.space.path.discard_slabs(freed).await;
            return Ok(());
        }
        let columns = self.columns(row).unwrap_or_default();
        self.enough(row, &columns, u64::MAX)?;
        Err(SpaceError::Unavailable { space: self.space.inner.id, row, disks: Default::default() })
    }

    /// Whether a slab's disk that a move replaces because it was absent is present.
    fn is_here(&self, op: &Op) -> bool {
        let Op::MoveSlab { space, row, index, .. } = *op else { return false };
        self.space.path.read(|s| {
            let copy = s.rows.get(&(space, row)).and_then(|r| r.copy(usize::from(index)));
            copy.is_some_and(|c| s.is_present(c.place.disk))
        })
    }

    /// Makes durable what was repaired so far: a repair is in its place, and in memory, but a block that a
    /// column has lost is written by a checkpoint only.
    ///
    /// # Errors
    /// What keeps a checkpoint from being made.
    pub(crate) async fn keep_repairs(&self) -> Result<(), SpaceError> {
        let _use = self.p.life.read().await;
        if !self.p.open.load(Ordering::Acquire) {
            return Ok(());
        }
        let stale = self.p.groups.all_dirty().into_iter().filter_map(|g| {
            let state = g.state.lock();
            let generation = state.stale.then_some(state.generation)?;
            drop(state);
            Some((g, generation))
        });
        let mut repaired: Vec<_> = stale.collect();
        let mut tries = TRIES;
        while !repaired.is_empty() {
            let before = repaired.len();
            let left = self.checkpoint().await?;
            repaired.retain(|(g, generation)| {
                let state = g.state.lock();
                !state.flags.dead && (state.generation == *generation || left.not(g.key.group_key()).is_err())
            });
            if repaired.len() < before {
                tries = TRIES;
                continue;
            }
            // The journal has no room to name them, because its contents cannot be carried out.
            if tries == 0 {
                left.nothing()?;
                let (space, row) = (self.p.journal, RowNumber(0));
                return Err(SpaceError::Unavailable { space, row, disks: Default::default() });
            }
            tries -= 1;
            self.settle_journaled().await?;
        }
        Ok(())
    }

    /// Reads all units of a group on every column that is current, and makes them what they should be.
    pub(crate) async fn scrub_group(
        &self,
        row: RowNumber,
        group: u32,
        progress: &Progress,
    ) -> Result<(), SpaceError> {
        let key = RowKey { row, group };
        for from in key.units().step_by(PIECE as usize) {
            let units = from..from + PIECE.min(GROUP_UNITS as u32);
            let using = self.p.life.read().await;
            self.opened().await?;
            let group = match self.settle_stripes(row, &units).await {
                Ok(()) => self.ready(key, self.regions(&units)).await,
                Err(e) => Err(e),
            };
            let group = match group {
                Err(SpaceError::Unavailable { .. }) => continue,
                other => other?,
            };
            let Some(group) = group else { return Ok(()) };
            let range = super::read::within(key, &units);
            if group.state.lock().any().and(&Units::range(range.start, range.end)).is_empty() {
                // Units written meanwhile are valid.
                continue;
            }
            // A paused job delays no other.
            drop(using);
            let bytes = u64::from(PIECE) * UNIT * self.p.columns() as u64;
            let Some(_turn) = progress.piece(bytes).await else { return Ok(()) };
            let _use = self.p.life.read().await;
            let _stripes = self.lock(row, units.clone()).await;
            if self.is_ready(&group, self.regions(&units)) && !self.p.stuck.has(row, &units) {
                let (healed, lost) = self.check(&group, range).await?;
                progress.found(healed, lost);
            }
        }
        Ok(())
    }
}
