//! Bringing a disk that was away up to date, region by region.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arena::IoBuf;

use super::{Progress, pieces};
use crate::blocks::Units;
use crate::disks::DataDisk;
use crate::groups::Group;
use crate::space::{Copy, Resynced, SpaceError, in_pieces};
use crate::{DataPath, DiskNumber, GROUP_UNITS, Op, REGIONS, RowNumber, Space, SpaceId, UNIT};

/// Bytes that are flushed and recorded together, and regions at most: a restart, or a copy that fails, costs no more.
const TOGETHER: u64 = 64 << 20;
const REGIONS_TOGETHER: u64 = 512;

/// Units that are copied at a time, under their lock.
const PIECE: u32 = (super::pacer::PIECE_BYTES / UNIT) as u32;

/// A region that a copy has missed.
#[derive(Clone, Copy)]
struct Behind {
    row: RowNumber,
    index: usize,
    region: u32,
}

impl DataPath {
    /// Copies missed writes to a present disk. Regions whose newest data is on absent disks are skipped.
    ///
    /// # Errors
    /// When the disk, or the metadata, fails; recorded progress stays.
    pub async fn resync(
        self: &Arc<DataPath>,
        disk: DiskNumber,
        progress: &Progress,
    ) -> Result<(), SpaceError> {
        let mut behind: BTreeMap<SpaceId, Vec<Behind>> = BTreeMap::new();
        self.read(|state| {
            for (&(space, row), r) in &state.rows {
                // Moving slabs have a job of their own.
                for (index, copy) in r.slabs.iter().enumerate().filter(|(_, c)| c.place.disk == disk) {
                    let regions = (0..REGIONS).filter(|r| copy.missed & 1 << r != 0);
                    behind.entry(space).or_default().extend(regions.map(|region| Behind {
                        row,
                        index,
                        region,
                    }));
                }
            }
        });
        let region_bytes = self.slab_bytes / u64::from(REGIONS);
        progress.expect(behind.values().map(|b| b.len() as u64 * region_bytes).sum());
        let together = together(region_bytes);
        for (space, regions) in behind {
            let space = match self.space(space) {
                Err(SpaceError::Deleted(_)) => continue,
                other => other?,
            };
            for some in regions.chunks(together) {
                if progress.is_stopped() {
                    return Ok(());
                }
                space.resync_regions(disk, some, progress).await?;
            }
        }
        Ok(())
    }
}

impl Space {
    /// Copies to one copy of a row what it has missed of these regions, as far as present disks have it.
    /// False: not all was tried, because the job was stopped, or the copy's disk was not in service all the
    /// time.
    pub(crate) async fn resync_copy(
        &self,
        row: RowNumber,
        index: usize,
        missed: u64,
        progress: &Progress,
    ) -> Result<bool, SpaceError> {
        let Some((copy, disk)) = self.copy_here(row, index) else { return Ok(false) };
        let regions = (0..REGIONS).filter(|r| missed & 1 << r != 0);
        let behind: Vec<Behind> = regions.map(|region| Behind { row, index, region }).collect();
        let together = together(self.path.slab_bytes / u64::from(REGIONS));
        for some in behind.chunks(together) {
            if progress.is_stopped() {
                return Ok(false);
            }
            self.resync_regions(disk.number, some, progress).await?;
        }
        let same = self.copy_here(row, index).is_some_and(|(now, _)| now.is_as(&copy));
        Ok(same && !progress.is_stopped())
    }

    async fn resync_regions(
        &self,
        disk: DiskNumber,
        regions: &[Behind],
        progress: &Progress,
    ) -> Result<(), SpaceError> {
        let mut targets: BTreeMap<(RowNumber, usize), Target> = BTreeMap::new();
        for &Behind { row, index, region } in regions {
            let same = |t: &(Copy, Arc<DataDisk>)| t.0.number == disk;
            if let std::collections::btree_map::Entry::Vacant(new) = targets.entry((row, index))
                && let Some((copy, disk)) = self.copy_here(row, index).filter(same)
            {
                new.insert(Target { copy, disk, regions: 0, copied: 0 });
            }
            if let Some(target) = targets.get_mut(&(row, index)) {
                target.disk.resync_begins((self.id(), row, index), 1 << region);
                target.regions |= 1 << region;
            }
        }
        let mut pieces: Vec<(Behind, Target, Range<u32>)> = Vec::new();
        for behind in regions {
            let Some(target) = targets.get(&(behind.row, behind.index)) else { continue };
            let units = pieces_of(self.inner.regions.units(behind.region));
            pieces.extend(units.map(|piece| (*behind, target.clone(), piece)));
        }
        let done = pieces::each(pieces, |(behind, target, piece)| async move {
            let bytes = u64::from(piece.end - piece.start) * UNIT;
            let whole = self.resync_piece(behind.row, &target, piece, progress).await?;
            progress.did(bytes);
            Ok((behind, whole))
        });
        let done = done.await?;
        for target in targets.values_mut() {
            target.copied = target.regions;
        }
        for (behind, _) in done.iter().filter(|(_, whole)| !whole) {
            if let Some(target) = targets.get_mut(&(behind.row, behind.index)) {
                target.copied &= !(1 << behind.region);
            }
        }
        let left = self.flush_most().await?;
        let striped = self.striped();
        for ((row, _), target) in &mut targets {
            let column = if striped.is_some() { 0 } else { (target.copy.slab_of / self.inner.copies) as u8 };
            target.copied &= !left.regions(self.inner.regions, *row, column);
        }
        let mut kept = BTreeMap::new();
        if let Some(striped) = &striped {
            for ((row, index), target) in &mut targets {
                let found = striped.resynced(*row, *index, target.copied).await?;
                target.copied = found.as_ref().map_or(0, |f| f.regions);
                kept.extend(found.map(|f| ((*row, *index), f)));
            }
        }
        let _use = match &striped {
            Some(striped) => Some(striped.using().await),
            None => None,
        };
        // No row is allocated or freed between checking a copy and its record. A failed write is handled
        // before this, or finds the copy current and marks it missed again.
        let _rows = self.path.allocating.lock().await;
        let _one = self.path.failing.lock().await;
        let mut ops = Vec::new();
        for ((row, index), target) in targets {
            let good = target.disk.resync_ends((self.id(), row, index), target.regions) & target.copied;
            let same = self.copy_here(row, index).is_some_and(|(now, _)| now.is_as(&target.copy));
            let kept = kept.get(&(row, index)).is_none_or(Resynced::is_kept);
            if good != 0 && same && kept {
                // From now on its marks count.
                target.disk.log.with(|core| core.stands(target.copy.slab, target.copy.generation, good));
                ops.push(Op::NotMissed { space: self.id(), row, index: index as u8, regions: good });
            }
        }
        let rows = ops.iter().filter_map(|op| match op {
            Op::NotMissed { row, .. } => Some(*row),
            _ => None,
        });
        let rows: BTreeSet<_> = rows.collect();
        loop {
            if let Some(striped) = &striped {
                ops.extend(striped.lost_by_absent(&rows, &ops));
            }
            if ops.is_empty() {
                return Ok(());
            }
            // And once more: a disk may leave meanwhile.
            self.path.book.commit(std::mem::take(&mut ops)).await?;
        }
    }

    fn copy_here(&self, row: RowNumber, index: usize) -> Option<(Copy, Arc<DataDisk>)> {
        let column = self.inner.column_of(&self.path, row, index);
        let copies = self.inner.copies(&self.path, row, column)?;
        let copy = copies.into_iter().find(|c| c.index == index)?;
        let disk = copy.disk.clone()?;
        Some((copy, disk))
    }

    /// Copies units of one group; false if no present disk has them, or the job must stop.
    async fn resync_piece(
        &self,
        row: RowNumber,
        target: &Target,
        units: Range<u32>,
        progress: &Progress,
    ) -> Result<bool, SpaceError> {
        if let Some(striped) = self.striped() {
            let bytes = u64::from(units.end - units.start) * UNIT;
            let Some(_turn) = progress.piece(bytes).await else { return Ok(false) };
            return striped.resync_piece(row, &target.copy, &target.disk, units).await;
        }
        let column = (target.copy.slab_of / self.inner.copies) as u8;
        let regions = self.inner.regions.of(&units);
        let Some((key, _)) = self.inner.groups_of(row, column, &units).next() else { return Ok(true) };
        let mut turn = None;
        loop {
            if progress.is_stopped() {
                return Ok(false);
            }
            let group = match self.ready(key, regions).await {
                Err(SpaceError::Unavailable { .. }) => return Ok(false),
                other => other?,
            };
            let Some(group) = group else { return Ok(false) };
            let lock = self.inner.locks.lock(row, column, units.clone()).await;
            if !self.is_ready(&group, regions) {
                continue;
            }
            let same = |(now, _): &(Copy, _)| now.is_as(&target.copy);
            if !self.copy_here(row, target.copy.index).as_ref().is_some_and(same) {
                return Ok(false);
            }
            let within = key.within(&units);
            let written = group.state.lock().table.written.and(&Units::range(within.start, within.end));
            if !written.is_empty() && turn.is_none() {
                // Waits for its turn before taking the lock.
                drop(lock);
                turn = progress.piece(u64::from(units.end - units.start) * UNIT).await;
                continue;
            }
            for (from, to) in written.stretches() {
                let (first, units) = (key.units().start, Units::range(from, to));
                let bytes = match self.verified(&group, from, to).await {
                    // The disk with the data did not answer: this copy must not be marked current.
                    Err(SpaceError::Unavailable { .. }) => return Ok(false),
                    other => other?,
                };
                let known = units.iter().zip(bytes).filter_map(|(u, b)| Some((first + u as u32, b?)));
                for (unit, bytes) in in_pieces(known) {
                    let at = target.copy.data_at(&target.disk, unit);
                    if let Err(error) = target.disk.write(at, bytes).await {
                        self.fail_copy(row, &target.copy, regions, &error).await?;
                        return Ok(false);
                    }
                }
            }
            // The copy's block is written whether or not anything in the group has changed.
            self.inner.groups.dirty(&group, &mut group.state.lock());
            return Ok(true);
        }
    }

    /// The valid contents of neighbouring units, repaired where a copy differs; `None` for a lost one. The
    /// caller holds their lock.
    ///
    /// # Errors
    /// [`SpaceError::Unavailable`] when a disk that may have one did not answer.
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
                let sum = self.sum(key, first + unit as u32, &bytes);
                if sum == state.table.sums[unit] && !state.table.lost.has(unit) {
                    bad.remove(unit);
                    out[unit - from] = Some(bytes);
                }
            }
        }
        for (unit, bytes) in self.heal(group, &bad).await? {
            out[unit - from] = match bytes {
                Ok(bytes) => Some(bytes),
                Err(error @ SpaceError::Unavailable { .. }) => return Err(error),
                Err(_) => None,
            };
        }
        Ok(out)
    }
}

/// A copy that is brought up to date.
#[derive(Clone)]
struct Target {
    copy: Copy,
    disk: Arc<DataDisk>,
    /// Which regions of it, and which of these are copied.
    regions: u64,
    copied: u64,
}

/// How many regions are recorded together.
fn together(region_bytes: u64) -> usize {
    (TOGETHER / region_bytes).clamp(1, REGIONS_TOGETHER) as usize
}

/// A region's units, cut at groups, in pieces.
fn pieces_of(units: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let end = units.end;
    let next = move |from: u32| {
        let group = (from / GROUP_UNITS as u32 + 1) * GROUP_UNITS as u32;
        from..end.min(from + PIECE).min(group)
    };
    std::iter::successors(Some(next(units.start)), move |p| (p.end < end).then(|| next(p.end)))
}
