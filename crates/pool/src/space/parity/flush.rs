//! Flushing: what was acknowledged before is durable after. Changes of written stripes are, since the journal has them; fresh stripes are made so here: their
//! disks are flushed, then one journal entry for each says that they are there, and what their sums are.
//!
//! Their blocks are written by the next checkpoint.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::Striped;
use super::log::Room;
use super::table::RowGroup;
use crate::blocks::Units;
use crate::disks::DataDisk;
use crate::journal::record::{self, Entry, Kind};
use crate::space::SpaceError;
use crate::space::copies::blame;
use crate::{Absence, GROUP_UNITS};

/// Groups whose fresh stripes are made durable together, at most.
const TOGETHER: usize = 32;

impl Striped {
    /// Makes all changes that were acknowledged before this call durable.
    ///
    /// # Errors
    /// [`SpaceError`]: then what was written since the last flush may be lost.
    pub(crate) async fn flush(&self) -> Result<(), SpaceError> {
        let _use = self.p.life.read().await;
        self.flush_now().await
    }

    /// The same, for who uses the space already.
    pub(super) async fn flush_now(&self) -> Result<(), SpaceError> {
        self.p.flushes.run(self.flush_round().boxed()).await
    }

    async fn flush_round(&self) -> Result<(), SpaceError> {
        self.settle_stuck(|_| true).await?;
        let fresh = |g: &Arc<RowGroup>| !g.state.lock().fresh.is_empty();
        let groups: Vec<Arc<RowGroup>> = self.p.groups.all_dirty().into_iter().filter(fresh).collect();
        let each = record::units(GROUP_UNITS as usize, self.p.columns(), 0);
        let many = (self.p.log.most() / each).clamp(1, TOGETHER as u64) as usize;
        for some in groups.chunks(many) {
            loop {
                let units = record::units(GROUP_UNITS as usize * some.len(), self.p.columns(), 0);
                let room = self.room(units).await?;
                if self.p.log.is_failed() {
                    self.mend().await?;
                }
                if self.flush_some(some, room).await? {
                    break;
                }
                self.settle_stuck(|_| true).await?;
            }
        }
        Ok(())
    }

    /// Makes the fresh stripes of some groups durable; false when it has to be tried again: a change of one of them waits to be carried out, or a disk left
    /// and counts again.
    async fn flush_some(&self, groups: &[Arc<RowGroup>], room: Room) -> Result<bool, SpaceError> {
        let mut locks = Vec::with_capacity(groups.len());
        let mut stripes: Vec<(&Arc<RowGroup>, Units)> = Vec::with_capacity(groups.len());
        for group in groups {
            let key = group.key;
            let range = {
                let fresh = group.state.lock().fresh;
                let Some(first) = fresh.iter().next() else { continue };
                key.first() + first as u32..key.first() + fresh.iter().last().unwrap_or(first) as u32 + 1
            };
            locks.push(self.lock(key.row, range.clone()).await);
            if self.p.stuck.has(key.row, &range) {
                return Ok(false);
            }
            let within = super::read::within(key, &range);
            let state = group.state.lock();
            if !state.flags.dead {
                stripes.push((group, state.fresh.and(&Units::range(within.start, within.end))));
            }
        }
        if !self.settle_data(&stripes).await? {
            return Ok(false);
        }
        let mut entries = Vec::new();
        for (group, units) in &stripes {
            let Some(columns) = self.columns(group.key.row) else { continue };
            let birth = Striped::birth(&columns);
            let state = group.state.lock();
            entries.extend(units.iter().map(|unit| {
                let number = group.key.first() + unit as u32;
                let region = self.regions(&(number..number + 1));
                let n = self.p.columns();
                Entry {
                    kind: Kind::Fresh,
                    row: group.key.row,
                    birth,
                    unit: number,
                    written: state.mask(unit),
                    known: (0..n).filter(|c| state.has_sum(*c, unit, region)).fold(0, |all, c| all | 1 << c),
                    payload: 0,
                    sums: (0..n).map(|c| state.sums[c][unit]).collect(),
                }
            }));
        }
        if entries.is_empty() {
            return Ok(true);
        }
        let pending = self.append(entries, Vec::new(), room).await?;
        for (group, units) in &stripes {
            let mut state = group.state.lock();
            state.fresh = state.fresh.without(units);
            state.named = state.named.max(pending.named());
            self.p.groups.stale(group, &mut state);
        }
        drop(pending);
        Ok(true)
    }

    /// Flushes the disks that have these stripes. Well, if every column that counts there took part, and enough do; false when one counts that took
    /// part in another life of its disk.
    async fn settle_data(&self, stripes: &[(&Arc<RowGroup>, Units)]) -> Result<bool, SpaceError> {
        let mut rows: Vec<_> = stripes.iter().map(|(g, _)| g.key.row).collect();
        rows.dedup();
        let columns = rows.iter().filter_map(|row| self.targets(*row)).flatten();
        let mut disks: Vec<Arc<DataDisk>> = columns.filter_map(|c| c.disk).collect();
        disks.sort_by_key(|d| d.number);
        disks.dedup_by_key(|d| d.number);
        let flushed = self.flush_disks(&disks).await?;
        for (group, units) in stripes {
            let Some(now) = self.targets(group.key.row) else { continue };
            let regions = self.regions_of(group, units);
            for c in &now {
                if let Some((disk, error)) = flushed.iter().find(|(disk, _)| disk.number == c.number)
                    && c.current() & regions != 0
                {
                    if !c.disk.as_ref().is_some_and(|now| Arc::ptr_eq(now, disk)) {
                        return Ok(false);
                    }
                    return Err(blame(c.number, *error));
                }
            }
            self.enough(group.key.row, &now, regions)?;
        }
        Ok(true)
    }

    /// Flushes disks and deals with those that fail, which are returned.
    pub(super) async fn flush_disks(
        &self,
        disks: &[Arc<DataDisk>],
    ) -> Result<Vec<(Arc<DataDisk>, disk::DiskError)>, SpaceError> {
        let results = join_all(disks.iter().map(|d| d.flush())).await;
        let mut failed = Vec::new();
        for (disk, result) in disks.iter().zip(results) {
            if let Err(error) = result {
                self.space.path.fail(disk, &error, Absence::FlushFailed, None).await?;
                failed.push((Arc::clone(disk), error));
            }
        }
        Ok(failed)
    }

    pub(super) fn regions_of(&self, group: &RowGroup, units: &Units) -> u64 {
        let first = group.key.first();
        let of = |(from, to): (usize, usize)| self.regions(&(first + from as u32..first + to as u32));
        units.stretches().into_iter().map(of).fold(0, |all, r| all | r)
    }
}
