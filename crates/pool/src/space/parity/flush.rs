//! Flush: makes acknowledged changes durable. Changes of written stripes are durable in the journal already.
//! For fresh stripes their disks are flushed, then one journal entry for each records that it exists, and its
//! sums.
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
use crate::space::left::{Fate, Left};
use crate::{Absence, GROUP_UNITS};

/// Groups whose fresh stripes are made durable together, at most.
const TOGETHER: usize = 32;

impl Striped {
    /// Makes all changes that were acknowledged before this call durable, as far as possible; returns the
    /// others.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub(crate) async fn flush(&self) -> Result<Left, SpaceError> {
        let _use = self.p.life.read().await;
        self.flush_now().await
    }

    /// The same, for a caller that uses the space already.
    pub(super) async fn flush_now(&self) -> Result<Left, SpaceError> {
        self.p.flushes.run(self.flush_round().boxed()).await
    }

    async fn flush_round(&self) -> Result<Left, SpaceError> {
        let mut left = self.settle_stuck(|_| true).await?;
        let fresh = |g: &Arc<RowGroup>| !g.state.lock().fresh.is_empty();
        let groups: Vec<Arc<RowGroup>> = self.p.groups.all_dirty().into_iter().filter(fresh).collect();
        let each = record::units(GROUP_UNITS as usize, self.p.columns(), 0);
        let many = (self.p.log.most() / each).clamp(1, TOGETHER as u64) as usize;
        for some in groups.chunks(many) {
            left = left.and(self.flush_together(some.to_vec()).await?);
        }
        Ok(left)
    }

    /// Makes the fresh stripes of some groups durable; those of which they are not.
    async fn flush_together(&self, mut groups: Vec<Arc<RowGroup>>) -> Result<Left, SpaceError> {
        let mut left = Vec::new();
        while !groups.is_empty() {
            let units = record::units(GROUP_UNITS as usize * groups.len(), self.p.columns(), 0);
            let room = match self.room(units).await {
                Ok(room) => room,
                Err(error) => {
                    left.extend(groups.iter().map(|g| (g.key.group_key(), error.clone())));
                    break;
                }
            };
            if self.p.log.is_failed() {
                self.mend().await?;
            }
            let fates = self.flush_some(&groups, room).await?;
            let mut again = Vec::new();
            for (group, fate) in std::mem::take(&mut groups).into_iter().zip(fates) {
                let key = group.key;
                let fate = match fate {
                    Fate::Again => match self.settle_stripes(key.row, &key.units()).await {
                        Ok(()) => Fate::Again,
                        Err(error) => Fate::Left(error),
                    },
                    other => other,
                };
                match fate {
                    Fate::Durable => {}
                    Fate::Again => again.push(group),
                    Fate::Left(error) => left.push((key.group_key(), error)),
                }
            }
            groups = again;
        }
        Ok(left.into_iter().collect())
    }

    /// One attempt at it, and what became of each group.
    async fn flush_some(&self, groups: &[Arc<RowGroup>], room: Room) -> Result<Vec<Fate>, SpaceError> {
        let mut locks = Vec::with_capacity(groups.len());
        let mut stripes: Vec<(&Arc<RowGroup>, Units)> = Vec::with_capacity(groups.len());
        let mut stuck = vec![false; groups.len()];
        for (group, stuck) in groups.iter().zip(&mut stuck) {
            let (key, fresh) = (group.key, group.state.lock().fresh);
            let mut units = Units::NONE;
            if let (Some(first), Some(last)) = (fresh.iter().next(), fresh.iter().last()) {
                let range = key.first() + first as u32..key.first() + last as u32 + 1;
                locks.push(self.lock(key.row, range.clone()).await);
                *stuck = self.p.stuck.has(key.row, &range);
                let state = group.state.lock();
                if !*stuck && !state.flags.dead {
                    units = state.fresh.and(&Units::range(first, last + 1));
                }
            }
            stripes.push((group, units));
        }
        let mut fates = self.settle_data(&stripes).await?;
        let mut entries = Vec::new();
        for ((group, units), fate) in stripes.iter().zip(&fates) {
            let Some(columns) = self.columns(group.key.row).filter(|_| *fate == Fate::Durable) else {
                continue;
            };
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
        if !entries.is_empty() {
            let pending = self.append(entries, Vec::new(), room).await?;
            for ((group, units), fate) in stripes.iter().zip(&fates) {
                if *fate != Fate::Durable || units.is_empty() {
                    continue;
                }
                let mut state = group.state.lock();
                state.fresh = state.fresh.without(units);
                state.name(pending.named());
                self.p.groups.stale(group, &mut state);
            }
            drop(pending);
        }
        fates.iter_mut().zip(stuck).filter(|(_, stuck)| *stuck).for_each(|(fate, _)| *fate = Fate::Again);
        Ok(fates)
    }

    /// Flushes the disks that have these stripes. A group is complete if every column that counts there took
    /// part, and these are enough; it has to be checked again if a counting column took part as an earlier
    /// member.
    async fn settle_data(&self, stripes: &[(&Arc<RowGroup>, Units)]) -> Result<Vec<Fate>, SpaceError> {
        let mut rows: Vec<_> = stripes.iter().map(|(g, _)| g.key.row).collect();
        rows.dedup();
        let columns = rows.iter().filter_map(|row| self.targets(*row)).flatten();
        let mut disks: Vec<Arc<DataDisk>> = columns.filter_map(|c| c.disk).collect();
        disks.sort_by_key(|d| d.number);
        disks.dedup_by_key(|d| d.number);
        let failed = self.flush_disks(&disks).await?;
        Ok(stripes.iter().map(|(group, units)| self.settled(group, units, &failed)).collect())
    }

    /// Whether the data of stripes of a group is durable, when these disks failed.
    fn settled(&self, group: &RowGroup, units: &Units, failed: &[(Arc<DataDisk>, disk::DiskError)]) -> Fate {
        let Some(now) = self.targets(group.key.row) else { return Fate::Durable };
        let regions = self.regions_of(group, units);
        for c in &now {
            if let Some((disk, error)) = failed.iter().find(|(disk, _)| disk.number == c.number)
                && c.current() & regions != 0
            {
                let same = c.disk.as_ref().is_some_and(|now| Arc::ptr_eq(now, disk));
                return if same { Fate::Left(blame(c.number, *error)) } else { Fate::Again };
            }
        }
        self.enough(group.key.row, &now, regions).map_or_else(Fate::Left, |()| Fate::Durable)
    }

    /// Flushes disks and handles those that fail, which are returned.
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
