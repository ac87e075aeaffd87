//! Slabs that catch up: of a column whose disk was away, made from the others; of one that a column moves to,
//! as the old one has it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::IoBuf;
use tokio::sync::RwLockReadGuard;

use super::rows::TRIES;
use super::table::{RowGroup, RowKey};
use super::{Held, Striped};
use crate::blocks::Units;
use crate::disks::DataDisk;
use crate::space::{Copy, SpaceError, in_pieces};
use crate::{Op, RowNumber, State};

/// Units of a group and their bytes, in order.
type Found = Vec<(usize, IoBuf)>;

/// The result of a resync, durably.
pub(crate) struct Resynced {
    /// Of which regions.
    pub(crate) regions: u64,
    /// The groups whose sums it found.
    held: Held,
}

impl Resynced {
    /// Whether memory still has them.
    pub(crate) fn is_kept(&self) -> bool {
        self.held.iter().all(|g| !g.state.lock().flags.dead)
    }
}

impl Striped {
    /// Computes some stripes of a slab that has missed them; false if too few columns are present.
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
            let now = self.targets(row);
            if !now.is_some_and(|n| n.get(target.index).is_some_and(|c| c.is_as(target))) {
                return Ok(false);
            }
            let range = super::read::within(key, &units);
            let there = group.state.lock().there(target.slab_of).and(&Units::range(range.start, range.end));
            let found = match target.is_new() {
                true => self.of_old(&group, target.slab_of, regions, &there).await?,
                false => self.of_others(&group, target.index, &there).await?,
            };
            let Some(found) = found else { return Ok(false) };
            let number = |unit: usize| key.first() + unit as u32;
            for (first, src) in in_pieces(found.iter().map(|(unit, bytes)| (number(*unit), bytes.clone()))) {
                if let Err(error) = disk.write(target.data_at(disk, first), src).await {
                    self.space.fail_copy(row, target, regions, &error).await?;
                    return Ok(false);
                }
            }
            let mut state = group.state.lock();
            if !target.is_new() {
                for (unit, bytes) in found {
                    state.sums[target.index][unit] = self.sum(row, target.index, number(unit), &bytes);
                    state.lost[target.index].remove(unit);
                }
            }
            self.p.groups.stale(&group, &mut state);
            let mut resyncing = self.p.resyncing.lock();
            let held = resyncing.entry((row, target.index)).or_default();
            if !held.iter().any(|g| Arc::ptr_eq(g, &group)) {
                held.push(Arc::clone(&group));
            }
            return Ok(true);
        }
    }

    /// Units of a column, made from the others; `None` when one of them cannot be.
    async fn of_others(
        &self,
        group: &RowGroup,
        column: usize,
        units: &Units,
    ) -> Result<Option<Found>, SpaceError> {
        let healed = self.heal(group, column, units).await?;
        Ok(healed.into_iter().map(|(unit, bytes)| Some((unit, bytes?))).collect())
    }

    /// Units of a column that moves, as its old slab has them, or the others; but for those that are lost,
    /// which the new slab has no more than that. `None` when the old one is not current.
    async fn of_old(
        &self,
        group: &RowGroup,
        column: usize,
        regions: u64,
        units: &Units,
    ) -> Result<Option<Found>, SpaceError> {
        let columns = self.columns(group.key.row);
        let Some(old) = columns.and_then(|c| c.get(column).cloned()).filter(|c| c.is_current(regions)) else {
            return Ok(None);
        };
        let (mut found, mut bad) = (Found::new(), Units::NONE);
        for (from, to) in units.stretches() {
            for (unit, bytes) in self.read_good(group, &old, from, to).await {
                match bytes {
                    Some(bytes) => found.push((unit, bytes)),
                    None => bad.insert(unit),
                }
            }
        }
        let healed = self.heal(group, column, &bad).await?;
        found.extend(healed.into_iter().filter_map(|(unit, bytes)| Some((unit, bytes?))));
        found.sort_unstable_by_key(|(unit, _)| *unit);
        Ok(Some(found))
    }

    /// Records the sums of regions of a slab that was brought up to date, and makes its blocks durable, as
    /// far as possible now; `None` if none could. The result is kept until the regions count: a group that
    /// memory evicted before would be loaded without this slab, and this slab's block afterwards, over the
    /// sums of writes between the two.
    pub(crate) async fn resynced(
        &self,
        row: RowNumber,
        index: usize,
        regions: u64,
    ) -> Result<Option<Resynced>, SpaceError> {
        let _use = self.p.life.read().await;
        let held = self.p.resyncing.lock().remove(&(row, index)).unwrap_or_default();
        // Before the journal is replayed nothing is known that could be made durable, and a checkpoint would
        // say that all of it is.
        if regions == 0 || !self.p.open.load(Ordering::Acquire) {
            return Ok(None);
        }
        let slab = self.targets(row).and_then(|t| t.get(index).map(|c| (c.slab_of, c.is_new())));
        let Some((column, is_new)) = slab else { return Ok(None) };
        for region in (0..crate::REGIONS).filter(|r| regions & 1 << r != 0) {
            for group in self.space.inner.regions.groups(region) {
                let key = RowKey { row, group };
                let Some(group) = held.iter().find(|g| g.key == key) else { return Ok(None) };
                let mut state = group.state.lock();
                if state.flags.dead {
                    return Ok(None);
                }
                if !is_new {
                    state.known[index] |= 1 << region;
                } else if state.known[column] & 1 << region == 0 {
                    return Ok(None);
                }
                self.p.groups.stale(group, &mut state);
            }
        }
        let mut good = 0;
        for _ in 0..TRIES {
            self.checkpoint().await?;
            good = regions & !self.stale_regions(row);
            if good == regions {
                break;
            }
        }
        Ok((good != 0).then_some(Resynced { regions: good, held }))
    }

    /// Additional operations for the record with which columns of these rows count again: until then the rows
    /// needed columns on absent disks, so those have missed nothing, and yet may have lost their last writes.
    /// Now they can be marked.
    pub(crate) fn lost_by_absent(&self, rows: &BTreeSet<RowNumber>, ops: &[Op]) -> Vec<Op> {
        let space = self.space.inner.id;
        let (mut state, mut more) = (self.space.path.read(State::clone), Vec::new());
        if state.apply_all(ops).is_err() {
            return more;
        }
        for row in rows {
            let lost = self.p.marks.may_be_lost(*row);
            for index in 0..state.rows.get(&(space, *row)).map_or(0, |r| r.copies().count()) {
                let copy = state.rows.get(&(space, *row)).and_then(|r| r.copy(index)).copied();
                let Some(copy) = copy.filter(|c| !state.is_present(c.place.disk)) else { continue };
                let regions = lost & !copy.missed & !state.only_here(space, *row, index);
                let op = Op::Missed { space, row: *row, index: index as u8, regions };
                if regions != 0 && state.apply(&op).is_ok() {
                    more.push(op);
                }
            }
        }
        more
    }

    /// Keeps memory from forgetting all it knows, as it does when a disk is back that it doubts.
    pub(crate) async fn using(&self) -> RwLockReadGuard<'_, ()> {
        self.p.life.read().await
    }

    /// Regions of a row that have a part of a group whose blocks are to be written.
    pub(super) fn stale_regions(&self, row: RowNumber) -> u64 {
        let groups = self.p.groups.all_dirty();
        let stale = groups.iter().filter(|g| g.key.row == row && g.state.lock().stale);
        stale.fold(0, |all, g| all | self.regions(&g.key.units()))
    }
}
