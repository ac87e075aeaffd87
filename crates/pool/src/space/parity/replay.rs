//! Opening: the journal's contents are carried out before any read.
//!
//! 1. The entries that count are read, in order; of each stripe the last one says what it is. Units of a
//!    stripe are those of the last entry that has them, but for a stripe that was fresh again since: its
//!    units lie in their places.
//! 2. Columns with absent disks durably miss the regions of the entries; there must be enough others.
//! 3. The tables are read from the blocks, which a power cut may have torn apart, and changed as the entries
//!    say; the units are written.
//! 4. A checkpoint makes all that durable, and the journal starts again, in this epoch. Until then a crash
//!    finds the same entries, and does the same.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use arena::IoBuf;
use futures_util::FutureExt;
use futures_util::future::join_all;

use super::Striped;
use super::columns::Columns;
use super::load::Loaded;
use super::table::RowKey;
use crate::journal::record::{Entry, Kind};
use crate::space::SpaceError;
use crate::{GROUP_UNITS, RowNumber};

/// The combined effect of entries on a stripe.
#[derive(Default)]
struct Told {
    written: u32,
    sums: BTreeMap<usize, u32>,
    units: BTreeMap<usize, IoBuf>,
}

#[derive(Default)]
struct Row {
    groups: BTreeMap<u32, BTreeMap<u32, Told>>,
}

impl Striped {
    /// Replays the journal, if that was not done yet.
    ///
    /// # Errors
    /// [`SpaceError::Unavailable`] when too few disks are present for its contents; the next call
    /// tries again.
    pub(super) async fn opened(&self) -> Result<(), SpaceError> {
        if self.p.open.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one = self.p.opening.lock().await;
        if self.p.open.load(Ordering::Acquire) {
            return Ok(());
        }
        let result = self.replay().boxed().await;
        if result.is_err() {
            self.p.groups.kill_all(|_| true);
        }
        result?;
        self.p.open.store(true, Ordering::Release);
        Ok(())
    }

    async fn replay(&self) -> Result<(), SpaceError> {
        let (entries, next) = self.read_log().await?;
        if entries.is_empty() {
            // Of another epoch, so that no record that was begun and not finished ever counts.
            self.p.log.begin_later(next);
            return Ok(());
        }
        let rows = self.told(entries);
        while !self.redo(&rows).await? {
            // A disk was lost on the way.
            self.p.groups.kill_all(|_| true);
        }
        let blocks = self.p.checkpointing.lock().await;
        self.checkpoint_now(false).await?.nothing()?;
        drop(blocks);
        self.begin_log(next).await
    }

    /// The effect of the entries on the present rows.
    fn told(&self, entries: Vec<(Entry, Vec<IoBuf>)>) -> BTreeMap<RowNumber, Row> {
        let mut rows: BTreeMap<RowNumber, Row> = BTreeMap::new();
        let end = (self.space.path.slab_bytes / crate::UNIT) as u32;
        for (entry, units) in entries {
            let same = self.columns(entry.row).is_some_and(|c| Striped::birth(&c) == entry.birth);
            if !same || entry.unit >= end {
                continue;
            }
            let group = rows.entry(entry.row).or_default().groups.entry(entry.unit / GROUP_UNITS as u32);
            let group = group.or_default();
            if entry.kind == Kind::Touched {
                continue;
            }
            let told = group.entry(entry.unit).or_default();
            if entry.kind == Kind::Fresh || entry.written == 0 {
                // Sums of before are of bytes that are no more.
                told.units.clear();
                told.sums.clear();
            }
            told.written = entry.written;
            for c in (0..self.p.columns()).filter(|c| entry.known & 1 << c != 0) {
                told.sums.insert(c, entry.sums[c]);
            }
            let columns = (0..self.p.columns()).filter(|c| entry.payload & 1 << c != 0);
            columns.zip(units).for_each(|(c, bytes)| drop(told.units.insert(c, bytes)));
        }
        rows
    }

    /// Steps 2 and 3; false when a disk was lost on the way.
    async fn redo(&self, rows: &BTreeMap<RowNumber, Row>) -> Result<bool, SpaceError> {
        let mut all: Vec<(RowNumber, Columns)> = Vec::new();
        for (row, told) in rows {
            let Some(columns) = self.targets(*row) else { continue };
            let stripes = told.groups.values().flat_map(|g| g.keys());
            let regions = stripes.map(|u| self.regions(&(*u..*u + 1))).fold(0, |all, r| all | r);
            self.enough(*row, &columns, regions)?;
            let here: Vec<_> = columns.iter().filter(|c| c.disk.is_some()).cloned().collect();
            self.space.miss(*row, &columns, &here, regions).await?;
            if self.is_changed(*row, &columns) {
                return Ok(false);
            }
            let Some(columns) = self.targets(*row) else { return Ok(false) };
            let mut mark = self.p.marks.begin(*row, regions);
            mark.changes();
            for (group, stripes) in &told.groups {
                if !self.redo_group(RowKey { row: *row, group: *group }, &columns, stripes).await? {
                    return Ok(false);
                }
            }
            for group in told.groups.keys() {
                // While all useful columns are present: the next disk may be removed at any time.
                self.heal_lost(&self.p.groups.get(RowKey { row: *row, group: *group })).await?;
            }
            all.push((*row, columns));
        }
        Ok(!all.iter().any(|(row, before)| self.is_changed(*row, before)))
    }

    async fn redo_group(
        &self,
        key: RowKey,
        columns: &Columns,
        stripes: &BTreeMap<u32, Told>,
    ) -> Result<bool, SpaceError> {
        let group = self.p.groups.get(key);
        let _one = group.preparing.lock().await;
        let _stripes = self.lock(key.row, key.units()).await;
        if let Loaded::Again = self.load(&group, columns, true).await? {
            return Ok(false);
        }
        let writes = stripes.iter().flat_map(|(unit, told)| {
            columns.iter().filter_map(move |copy| {
                let bytes = told.units.get(&copy.slab_of)?;
                let disk = copy.disk.as_ref()?;
                let src = [bytes.clone()].into_iter().collect();
                let write = disk.write(copy.data_at(disk, *unit), src);
                Some(async move { (copy, *unit, write.await) })
            })
        });
        let mut well = true;
        for (copy, unit, result) in join_all(writes.collect::<Vec<_>>()).await {
            if let Err(error) = result {
                let region = self.regions(&(unit..unit + 1));
                // A column that was behind there already still is; and its disk may stay in service, for
                // other data of which it has the only copy, and fail again.
                well &= !copy.is_current(region);
                self.space.fail_copy(key.row, copy, region, &error).await?;
            }
        }
        let mut state = group.state.lock();
        for (number, told) in stripes {
            let unit = (number - key.first()) as usize;
            state.set(unit, told.written);
            for (c, sum) in &told.sums {
                state.sums[*c][unit] = *sum;
                state.lost[*c].remove(unit);
            }
        }
        self.p.groups.stale(&group, &mut state);
        drop(state);
        self.space.inner.emptying.wrote(key.row);
        Ok(well)
    }
}
