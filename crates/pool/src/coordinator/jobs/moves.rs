//! Moves slabs of retired or lost disks to other disks.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use pool_seam::{JobOrder, NotMoved, SeamError, SlabPlace};

use super::at_once;
use crate::jobs::{EvacuationResult, Job};
use crate::placement::{reserve, slab_by, sources};
use crate::{DiskNumber, Pool, RowNumber, SpaceId, State, Usage};

/// Rows of one job whose slabs move at a time: enough to keep some disks busy while others are flushed.
pub(super) const MOVES_AT_ONCE: usize = 64;

/// Regions of one slab that are filled at a time.
const REGIONS_AT_ONCE: usize = 4;

/// The number of slabs that each disk reads or writes while a disk is emptied: slabs whose source copy it has, and
/// slabs placed on it. The sources are fixed, so to balance the work, disks that read much write little.
struct Work {
    slabs: Mutex<BTreeMap<DiskNumber, usize>>,
    /// Every disk of the same medium has room for twice its share. Otherwise only free space decides, because the last
    /// slabs may have few possible places.
    is_ample: bool,
}

/// A slab in an order: its row, its index, and its target.
type Fill = (RowNumber, u8, Option<SlabPlace>);

impl Pool {
    /// Moves all slabs of a disk to others (with automatic selection, or hot spares), whose reserve may be used. The
    /// disk may be present or absent; data that is only on absent disks stays. Errors: the first one; all other slabs
    /// are moved nevertheless.
    pub async fn evacuate(&self, from: DiskNumber, job: &Job) -> Result<EvacuationResult, SeamError> {
        let rows = in_turns(self.read(|s| s.rows_on(from).map(|(space, row, _)| (space, row)).collect()));
        job.add_total(rows.iter().map(|(_, row)| self.bytes_of(*row)).sum());
        let work = &self.read(|s| Work::of(s, from));
        let each = rows.into_iter().map(|(space, row)| async move {
            if job.is_stopped() {
                return (row, Ok(Err(NotMoved::Unfinished)));
            }
            (row, self.move_off(from, space, row, work, job).await)
        });
        let (mut result, mut failed, mut stays) = (EvacuationResult::default(), None, BTreeMap::new());
        for (row, moved) in at_once(MOVES_AT_ONCE, each).await {
            match moved {
                Ok(Ok(slabs)) => result.moved += slabs,
                Ok(Err(why)) => _ = stays.insert(row, why),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        // Prefers the reason of a data slab: a log may need faster media, so that the disks which suit it may not
        // suffice for data.
        result.why = stays.into_values().next();
        if let Some(error) = failed {
            return Err(error);
        }
        result.remaining = self.read(|s| s.copies_on(from));
        if result.remaining == 0 {
            result.why = None;
        } else {
            result.why.get_or_insert(NotMoved::Unfinished);
        }
        Ok(result)
    }

    /// Completes moves that no job continues, such as those from before a restart. Errors: the first one; the other
    /// moves are continued nevertheless.
    pub async fn resume_moves(&self, job: &Job) -> Result<(), SeamError> {
        let moves = self.read(|s| {
            let rows = s.spaces.iter().flat_map(|(space, record)| {
                let moving =
                    record.rows.iter().filter_map(|(row, of)| Some((*space, *row, of.moving()?.index)));
                moving.collect::<Vec<_>>()
            });
            rows.collect::<Vec<_>>()
        });
        job.add_total(moves.iter().map(|(_, row, _)| self.bytes_of(*row)).sum());
        let each = moves.into_iter().map(|(space, row, index)| async move {
            let Some(_mine) = self.orders().moving(space, row).filter(|_| !job.is_stopped()) else {
                return Ok(());
            };
            self.fill(space, vec![(row, index, None)], job).await.map(drop)
        });
        at_once(MOVES_AT_ONCE, each).await.into_iter().collect()
    }

    /// Moves a row's slabs off a disk; returns the number of slabs moved.
    async fn move_off(
        &self,
        from: DiskNumber,
        space: SpaceId,
        row: RowNumber,
        work: &Work,
        job: &Job,
    ) -> Result<Result<usize, NotMoved>, SeamError> {
        let Some(_mine) = self.orders().moving(space, row) else { return Ok(Err(NotMoved::Unfinished)) };
        let mut left = None;
        // In the second attempt the owner requests any disk, because the chosen disk may have no room any more.
        for work in [Some(work), None] {
            let fills = match self.read(|s| s.moves_off(from, space, row, work)) {
                Ok(fills) if fills.is_empty() => return Ok(Ok(0)),
                Ok(fills) => fills,
                Err(why) => return Ok(Err(why)),
            };
            left = self.fill(space, fills, job).await?;
            if !matches!(left, Some(NotMoved::NoPlace(_))) {
                break;
            }
        }
        let still = self.read(|s| s.row_copies_on(space, row, from));
        match left {
            Some(why) if still > 0 => Ok(Err(why)),
            None if still > 0 => Ok(Err(NotMoved::Unfinished)),
            _ => Ok(Ok(1)),
        }
    }

    /// Moves slabs of a row, one after the other. Returns why one of them stays, if one does, preferably one without
    /// a target. The caller has the row's [`Moving`].
    pub(super) async fn fill(
        &self,
        space: SpaceId,
        fills: Vec<Fill>,
        job: &Job,
    ) -> Result<Option<NotMoved>, SeamError> {
        let (region_bytes, regions) = self.regions();
        let bytes = fills.iter().map(|(row, ..)| self.bytes_of(*row)).max().unwrap_or(0);
        let most = REGIONS_AT_ONCE.min(regions);
        let report = self.order(job, space, JobOrder::Fill(fills), region_bytes, most).await?;
        if report.not_moved.is_empty() {
            // Unwritten bytes count as done, too.
            job.add_done(bytes.saturating_sub(report.progress.bytes));
        }
        let mut left: Vec<NotMoved> = report.not_moved.into_iter().map(|(_, _, why)| why).collect();
        let no_place = left.iter().position(|why| matches!(why, NotMoved::NoPlace(_)));
        Ok((!left.is_empty()).then(|| left.swap_remove(no_place.unwrap_or(0))))
    }

    /// Bytes to copy for a slab of a row; a replica of a log is not copied.
    fn bytes_of(&self, row: RowNumber) -> u64 {
        if row == RowNumber::LOG { 0 } else { self.read(|s| s.slab_bytes) }
    }
}

impl Work {
    fn of(state: &State, from: DiskNumber) -> Work {
        let (mut all, mut slabs) = (BTreeMap::new(), 0);
        for (space, _, row) in state.rows_on(from).filter(|(_, number, _)| *number != RowNumber::LOG) {
            for (index, _) in row.slabs.iter().enumerate().filter(|(_, copy)| copy.place.disk == from) {
                let sources = sources(state, &state.spaces[&space], row, index);
                sources.into_iter().for_each(|disk| *all.entry(disk).or_default() += 1);
                slabs += 1;
            }
        }
        let media = state.disks.get(&from).map(|of| of.media());
        let others = state.disks.iter().filter(|(disk, of)| {
            let is_like_it = of.usage == Usage::AutoSelect && Some(of.media()) == media;
            **disk != from && is_like_it && state.is_present(**disk)
        });
        let room: Vec<u32> =
            others.map(|(disk, of)| state.slabs_free(*disk).saturating_sub(reserve(of.slabs))).collect();
        let is_ample = !room.is_empty() && room.iter().all(|free| *free as usize * room.len() >= 2 * slabs);
        Work { slabs: Mutex::new(all), is_ample }
    }

    /// Chooses a place for a slab on the suitable disk with the least work. Returns `None` if there is none, or if
    /// only free space decides.
    fn place(&self, state: &State, space: SpaceId, row: RowNumber, index: u8) -> Option<SlabPlace> {
        if !self.is_ample {
            return None;
        }
        let mut all = self.slabs.lock();
        let work = |disk: DiskNumber| all.get(&disk).copied().unwrap_or(0);
        let place = slab_by(state, space, row, index, |_| true, work).ok()?;
        *all.entry(place.disk).or_default() += 1;
        Some(place)
    }
}

impl State {
    /// The slabs of an order that moves a row off a disk. An existing move in the row is completed first, or
    /// cancelled if its target is this disk.
    fn moves_off(
        &self,
        from: DiskNumber,
        space: SpaceId,
        row: RowNumber,
        work: Option<&Work>,
    ) -> Result<Vec<Fill>, NotMoved> {
        let Some(present) = self.spaces.get(&space).and_then(|record| record.rows.get(&row)) else {
            return Ok(Vec::new());
        };
        let mut fills = Vec::new();
        if let Some(moving) = present.moving() {
            let index = if moving.copy.place.disk == from { present.slabs.len() as u8 } else { moving.index };
            fills.push((row, index, None));
        }
        let here = present.slabs.iter().enumerate().filter(|(_, copy)| copy.place.disk == from);
        let here: Vec<u8> = here.map(|(index, _)| index as u8).collect();
        if !here.is_empty() && !self.is_present(from) && self.is_only_copy(from, space, row) {
            return Err(NotMoved::OnlyCopy(space));
        }
        // A place chosen now might be the target of the move that is completed first.
        let work = work.filter(|_| fills.is_empty() && row != RowNumber::LOG);
        let is_done = |index: u8| fills.iter().any(|(_, done, _)| *done == index);
        let to = |index| work.and_then(|work| work.place(self, space, row, index));
        let rest: Vec<Fill> =
            here.into_iter().filter(|index| !is_done(*index)).map(|index| (row, index, to(index))).collect();
        fills.extend(rest);
        Ok(fills)
    }

    fn row_copies_on(&self, space: SpaceId, row: RowNumber, disk: DiskNumber) -> usize {
        let present = self.spaces.get(&space).and_then(|record| record.rows.get(&row));
        present.map_or(0, |row| row.copies().filter(|(_, copy)| copy.place.disk == disk).count())
    }

    fn copies_on(&self, disk: DiskNumber) -> usize {
        let rows = self.rows_on(disk);
        rows.map(|(_, _, row)| row.copies().filter(|(_, copy)| copy.place.disk == disk).count()).sum()
    }
}

/// Interleaves the rows of all spaces, so that several owners work concurrently.
fn in_turns(rows: Vec<(SpaceId, RowNumber)>) -> Vec<(SpaceId, RowNumber)> {
    let mut seen: BTreeMap<SpaceId, usize> = BTreeMap::new();
    let mut turns: Vec<(usize, (SpaceId, RowNumber))> = Vec::with_capacity(rows.len());
    for row in rows {
        let turn = seen.entry(row.0).or_default();
        turns.push((*turn, row));
        *turn += 1;
    }
    turns.sort();
    turns.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests;
