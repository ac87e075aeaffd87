//! Bringing a disk that was away up to date, region by region.

use std::ops::Range;
use std::sync::Arc;

use arena::{IoBuf, Sg};

use super::Progress;
use crate::blocks::Units;
use crate::disks::DataDisk;
use crate::groups::Group;
use crate::space::{Copy, SpaceError};
use crate::{DataPath, DiskNumber, GROUP_UNITS, Op, REGIONS, RowNumber, Space, SpaceId, UNIT};

/// Regions of a copy that are flushed and recorded together.
const TOGETHER: usize = 8;

/// Units that are copied at a time, under their lock.
const PIECE: u32 = 64;

impl DataPath {
    /// Copies to a present disk what it has missed. Regions whose newest data is not here are left as they are.
    ///
    /// # Errors
    /// When the disk, or the metadata, fails; what was recorded until then stays.
    pub async fn resync(
        self: &Arc<DataPath>,
        disk: DiskNumber,
        progress: &Progress,
    ) -> Result<(), SpaceError> {
        let behind: Vec<(SpaceId, RowNumber, usize, u64)> = self.read(|state| {
            let rows = state.rows.iter().flat_map(|(&(space, row), r)| {
                let mine = r.slabs.iter().enumerate();
                mine.filter(|(_, c)| c.place.disk == disk && c.missed != 0)
                    .map(move |(index, c)| (space, row, index, c.missed))
            });
            rows.collect()
        });
        let region_bytes = self.slab_bytes / u64::from(REGIONS);
        progress.expect(behind.iter().map(|b| u64::from(b.3.count_ones()) * region_bytes).sum());
        for (space, row, index, missed) in behind {
            let space = self.space(space)?;
            let regions: Vec<u32> = (0..REGIONS).filter(|r| missed & 1 << r != 0).collect();
            for some in regions.chunks(TOGETHER) {
                if progress.is_stopped() {
                    return Ok(());
                }
                space.resync_regions(row, index, some).await?;
                progress.did(some.len() as u64 * region_bytes);
            }
        }
        Ok(())
    }
}

impl Space {
    async fn resync_regions(&self, row: RowNumber, index: usize, regions: &[u32]) -> Result<(), SpaceError> {
        let Some((target, disk)) = self.copy_here(row, index) else { return Ok(()) };
        let key = (self.id(), row, index);
        let column = (index / self.inner.copies) as u8;
        let mut copied = 0;
        for region in regions {
            disk.resync_begins(key, 1 << region);
            let units = self.inner.regions.units(*region);
            let mut from = units.start;
            let mut whole = true;
            while from < units.end {
                let piece = from..units
                    .end
                    .min(from + PIECE)
                    .min((from / GROUP_UNITS as u32 + 1) * GROUP_UNITS as u32);
                from = piece.end;
                whole &= self.resync_piece(row, column, &target, &disk, piece).await?;
            }
            copied |= if whole { 1 << region } else { 0 };
        }
        self.flush_all().await?;
        let all = regions.iter().fold(0, |all, r| all | 1 << r);
        // Who deals with a failed write comes before this, or finds the copy current and makes it missed again.
        let _one = self.path.failing.lock().await;
        let good = disk.resync_ends(key, all) & copied;
        let same = self.copy_here(row, index).is_some_and(|(now, _)| now.is_as(&target));
        if good != 0 && same {
            let op = Op::NotMissed { space: self.id(), row, index: index as u8, regions: good };
            self.path.book.commit(vec![op]).await?;
        }
        Ok(())
    }

    fn copy_here(&self, row: RowNumber, index: usize) -> Option<(Copy, Arc<DataDisk>)> {
        let column = (index / self.inner.copies) as u8;
        let copies = self.inner.copies(&self.path, row, column)?;
        let copy = copies.into_iter().find(|c| c.index == index)?;
        let disk = copy.disk.clone()?;
        Some((copy, disk))
    }

    /// Copies units of one group; false when nobody here has them.
    async fn resync_piece(
        &self,
        row: RowNumber,
        column: u8,
        target: &Copy,
        disk: &DataDisk,
        units: Range<u32>,
    ) -> Result<bool, SpaceError> {
        let regions = self.inner.regions.of(&units);
        let Some((key, _)) = self.inner.groups_of(row, column, &units).next() else { return Ok(true) };
        loop {
            let group = match self.ready(key, regions).await {
                Err(SpaceError::Unavailable { .. }) => return Ok(false),
                other => other?,
            };
            let Some(group) = group else { return Ok(false) };
            let _units = self.inner.locks.lock(row, column, units.clone()).await;
            if !self.is_ready(&group, regions) {
                continue;
            }
            if !self.copy_here(row, target.index).is_some_and(|(now, _)| now.is_as(target)) {
                return Ok(false);
            }
            let within = key.within(&units);
            let written = group.state.lock().table.written.and(&Units::range(within.start, within.end));
            for (from, to) in written.stretches() {
                let (first, units) = (key.units().start, Units::range(from, to));
                let bytes = self.verified(&group, from, to).await?;
                for (unit, bytes) in merge(units, bytes) {
                    let at = target.data_at(disk, first + unit as u32);
                    if let Err(error) = disk.write(at, bytes).await {
                        self.fail_copy(row, target, regions, &error).await?;
                        return Ok(false);
                    }
                }
            }
            // The copy's block is written whether or not anything in the group has changed.
            self.inner.groups.dirty(&group, &mut group.state.lock());
            return Ok(true);
        }
    }

    /// Neighbouring units as they should be, healed where a copy differs; `None` for one that nobody has. The caller has their lock.
    async fn verified(
        &self,
        group: &Group,
        from: usize,
        to: usize,
    ) -> Result<Vec<Option<IoBuf>>, SpaceError> {
        let key = group.key;
        let first = key.units().start;
        let range = first + from as u32..first + to as u32;
        let copies = self.inner.copies(&self.path, key.row, key.column).unwrap_or_default();
        let mut out: Vec<Option<IoBuf>> = vec![None; to - from];
        let mut bad = Units::range(from, to);
        let regions = self.inner.regions.of(&range);
        let source = copies.iter().find(|c| c.is_current(regions));
        if let Some(copy) = source
            && let Some(read) = self.read_units(copy, range.start, to - from).await
        {
            let read = IoBuf::from(read);
            let state = group.state.lock();
            for unit in from..to {
                let start = (unit - from) * UNIT as usize;
                let bytes = read.slice(start..start + UNIT as usize);
                if self.sum(key, first + unit as u32, &bytes) == state.table.sums[unit] {
                    bad.remove(unit);
                    out[unit - from] = Some(bytes);
                }
            }
        }
        for (unit, bytes) in self.heal(group, &bad).await? {
            out[unit - from] = bytes;
        }
        Ok(out)
    }
}

/// Neighbours that are known, together.
fn merge(units: Units, bytes: Vec<Option<IoBuf>>) -> Vec<(usize, Sg)> {
    let mut out: Vec<(usize, Sg)> = Vec::new();
    let mut next = usize::MAX;
    for (unit, bytes) in units.iter().zip(bytes) {
        let Some(bytes) = bytes else { continue };
        match out.last_mut() {
            Some((_, sg)) if next == unit => sg.push(bytes),
            _ => out.push((unit, [bytes].into_iter().collect())),
        }
        next = unit + 1;
    }
    out
}
