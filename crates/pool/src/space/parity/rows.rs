//! Rows that go, slabs that move, columns that catch up, and looking at everything.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::RwLockReadGuard;

use super::table::RowKey;
use super::{Held, Striped};
use crate::blocks::Units;
use crate::disks::DataDisk;
use crate::jobs::Progress;
use crate::space::emptying::Seen;
use crate::space::{Copy, SpaceError};
use crate::{GROUP_UNITS, Op, RowNumber, SlabPlace, UNIT};

/// All stripes of a row.
const ALL: Range<u32> = 0..u32::MAX;

/// Checkpoints that are tried until the blocks of a region are written.
const TRIES: usize = 8;

/// Stripes that are looked at together.
const PIECE: u32 = 64;

/// Groups whose sums a resync found.
pub(crate) struct Resynced(Held);

impl Resynced {
    /// Whether memory still has them.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.iter().all(|g| !g.state.lock().flags.dead)
    }
}

impl Striped {
    /// Gives a row's slabs back if that is right when nobody uses the row; whether it has none now. What the journal has of it does not count any more: its
    /// slabs are not what they were.
    pub(crate) async fn free_row_if(
        &self,
        row: RowNumber,
        may: impl Fn() -> bool,
    ) -> Result<bool, SpaceError> {
        let _use = self.p.life.read().await;
        self.opened().await?;
        let _stripes = self.lock(row, ALL).await;
        let _blocks = self.p.checkpointing.lock().await;
        // Nobody takes the slabs before what is known of them here is forgotten, nor writes down what a failed disk has missed of them.
        let _one = self.space.path.allocating.lock().await;
        let _failing = self.space.path.failing.lock().await;
        if self.columns(row).is_none() {
            return Ok(true);
        }
        if !may() {
            return Ok(false);
        }
        self.space.path.book.commit(vec![Op::FreeRow { space: self.space.inner.id, row }]).await?;
        self.p.groups.kill(row);
        self.p.stuck.kill(row);
        self.p.marks.forget(row);
        self.p.resyncing.lock().retain(|of, _| of.0 != row);
        self.space.inner.emptying.forget(row);
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

    /// Moves a column to a free slab, where it has missed everything.
    pub(crate) async fn move_slab(
        &self,
        row: RowNumber,
        index: usize,
        to: SlabPlace,
    ) -> Result<(), SpaceError> {
        let _use = self.p.life.read().await;
        self.opened().await?;
        for _ in 0..TRIES {
            self.settle_stripes(row, &ALL).await?;
            let _stripes = self.lock(row, ALL).await;
            if self.p.stuck.has(row, &ALL) {
                continue;
            }
            // The journal's entries call the row by its slabs: what they say has to be in the blocks before that changes.
            let _blocks = self.p.checkpointing.lock().await;
            self.checkpoint_now(true).await?;
            if self.is_stale(row, u64::MAX) {
                continue;
            }
            let _one = self.space.path.allocating.lock().await;
            let space = self.space.inner.id;
            self.space.path.book.commit(vec![Op::MoveSlab { space, row, index: index as u8, to }]).await?;
            // Records that name its groups may be there still, and name others: whoever finds blocks torn by a power cut would not know why.
            let group = |group| RowKey { row, group };
            for group in self.p.groups.of(group(0)..=group(u32::MAX)) {
                group.state.lock().named = 0;
            }
            return Ok(());
        }
        let columns = self.columns(row).unwrap_or_default();
        self.enough(row, &columns, u64::MAX)?;
        Err(SpaceError::Unavailable { space: self.space.inner.id, row, disks: Default::default() })
    }

    fn is_stale(&self, row: RowNumber, regions: u64) -> bool {
        let stale = |key: RowKey| key.row == row && self.regions(&key.units()) & regions != 0;
        self.p.groups.all_dirty().iter().any(|g| stale(g.key) && g.state.lock().stale)
    }

    /// Makes some stripes of a column that has missed them what they should be; false when nobody here can tell.
    pub(crate) async fn resync_piece(
        &self,
        row: RowNumber,
        target: &Copy,
        disk: &DataDisk,
        units: Range<u32>,
    ) -> Result<bool, SpaceError> {
        let regions = self.regions(&units);
        let key = RowKey::of(row, units.start);
        let _use = self.p.life.read().await;
        self.opened().await?;
        loop {
            if self.settle_stripes(row, &units).await.is_err() {
                return Ok(false);
            }
            let group = match self.ready(key, regions).await {
                Err(SpaceError::Unavailable { .. }) => return Ok(false),
                other => other?,
            };
            let Some(group) = group else { return Ok(false) };
            let _stripes = self.lock(row, units.clone()).await;
            if !self.is_ready(&group, regions) || self.p.stuck.has(row, &units) {
                continue;
            }
            let now = self.columns(row);
            if !now.is_some_and(|n| n.get(target.index).is_some_and(|c| c.is_as(target))) {
                return Ok(false);
            }
            let range = super::read::within(key, &units);
            let there = group.state.lock().there(target.index).and(&Units::range(range.start, range.end));
            for (unit, bytes) in self.heal(&group, target.index, &there).await? {
                let Some(bytes) = bytes else { return Ok(false) };
                let number = key.first() + unit as u32;
                let sum = self.sum(row, target.index, number, &bytes);
                let src = [bytes].into_iter().collect();
                if let Err(error) = disk.write(target.data_at(disk, number), src).await {
                    self.space.fail_copy(row, target, regions, &error).await?;
                    return Ok(false);
                }
                let mut state = group.state.lock();
                state.sums[target.index][unit] = sum;
                state.lost[target.index].remove(unit);
            }
            let mut state = group.state.lock();
            self.p.groups.stale(&group, &mut state);
            let mut resyncing = self.p.resyncing.lock();
            let held = resyncing.entry((row, target.index)).or_default();
            if !held.iter().any(|g| Arc::ptr_eq(g, &group)) {
                held.push(Arc::clone(&group));
            }
            return Ok(true);
        }
    }

    /// The sums of regions of a column that was brought up to date are known, and its blocks are made durable; `None` when that could not be done now.
    /// What it gives is kept until the regions count: a group that memory forgot before would be read without this column, and this column's block afterwards,
    /// over the sums of what was written between the two.
    pub(crate) async fn resynced(
        &self,
        row: RowNumber,
        index: usize,
        regions: u64,
    ) -> Result<Option<Resynced>, SpaceError> {
        let _use = self.p.life.read().await;
        let held = self.p.resyncing.lock().remove(&(row, index)).unwrap_or_default();
        for region in (0..crate::REGIONS).filter(|r| regions & 1 << r != 0) {
            for group in self.space.inner.regions.groups(region) {
                let key = RowKey { row, group };
                let Some(group) = held.iter().find(|g| g.key == key) else { return Ok(None) };
                let mut state = group.state.lock();
                if state.flags.dead {
                    return Ok(None);
                }
                state.known[index] |= 1 << region;
                self.p.groups.stale(group, &mut state);
            }
        }
        for _ in 0..TRIES {
            self.checkpoint().await?;
            if !self.is_stale(row, regions) {
                return Ok(Some(Resynced(held)));
            }
        }
        Ok(None)
    }

    /// Keeps memory from forgetting all it knows, as it does when a disk is back that it doubts.
    pub(crate) async fn using(&self) -> RwLockReadGuard<'_, ()> {
        self.p.life.read().await
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
            let group = match self.settle_now().await {
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
                // What is written meanwhile is what it should be.
                continue;
            }
            // A job that is paused keeps nobody from anything.
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
