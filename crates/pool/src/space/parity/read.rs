//! Reading: from the column, directly into the caller's buffers, each unit verified there; damaged units are
//! read again under their stripe's lock, and computed from the other columns.

use std::ops::Range;

use arena::SgMut;
use futures_util::FutureExt;

use super::Striped;
use super::table::RowKey;
use crate::blocks::Units;
use crate::layout::Run;
use crate::space::SpaceError;
use crate::space::read::{fill, pieces};
use crate::{GROUP_UNITS, UNIT};

/// Stripes that are looked at again together.
const PIECE: u32 = 64;

impl Striped {
    /// Reads what a run has into buffers of its length.
    pub(crate) async fn read_run(&self, run: &Run, mut dst: SgMut) -> (Result<(), SpaceError>, SgMut) {
        let (row, column) = (run.at.row, usize::from(run.at.column));
        let units = run.at.units(run.length);
        let first = units.start;
        let _use = self.p.life.read().await;
        if let Err(e) = self.opened().await {
            return (Err(e), dst);
        }
        let mut there = 0;
        for (key, part) in groups_of(row, &units) {
            if let Err(e) = self.settle_stripes(row, &part).await {
                return (Err(e), dst);
            }
            match self.prepared(key, self.regions(&part), Some(column)).await {
                Err(e) => return (Err(e), dst),
                Ok(None) => {}
                Ok(Some(group)) => {
                    let range = within(key, &part);
                    let written = group.state.lock().there(column);
                    there += written.and(&Units::range(range.start, range.end)).count();
                }
            }
        }
        let columns = self.columns(row);
        let (Some(columns), true) = (columns, there > 0) else {
            dst.iter_mut().for_each(|b| b.filled_mut().fill(0));
            return (Ok(()), dst);
        };
        let copy = &columns[column];
        let mut done = false;
        if copy.is_current(self.regions(&units))
            && let Some(disk) = &copy.disk
        {
            (done, dst) = self.read_column(row, column, &units, disk, copy.data_at(disk, first), dst).await;
        }
        for (key, part) in groups_of(row, &units) {
            let range = within(key, &part);
            let bad = if done { self.verify(key, column, &part, first, &mut dst) } else { None };
            let bad = bad.unwrap_or_else(|| Units::range(range.start, range.end));
            for from in part.clone().step_by(PIECE as usize) {
                let piece = from..part.end.min(from + PIECE);
                let range = within(key, &piece);
                let again = bad.and(&Units::range(range.start, range.end));
                if !again.is_empty()
                    && let Err(e) = self.read_again(key, column, &again, piece, first, &mut dst).boxed().await
                {
                    return (Err(e), dst);
                }
            }
        }
        (Ok(()), dst)
    }

    /// Compares what was read with the table: units that do not match. Those never written become zeros.
    /// `None` when the group is no longer ready.
    pub(super) fn verify(
        &self,
        key: RowKey,
        column: usize,
        part: &Range<u32>,
        first: u32,
        dst: &mut SgMut,
    ) -> Option<Units> {
        let group = self.p.groups.get(key);
        if !self.is_prepared(&group, self.regions(part), Some(column)) || self.p.stuck.has(key.row, part) {
            return None;
        }
        let at = |number: u32| (number - first) as usize * UNIT as usize;
        let bytes = pieces(dst, at(part.start), at(part.end));
        let sums = self.space.sums(key.row, column as u8, part.start, bytes);
        let mut bad = Units::NONE;
        let state = group.state.lock();
        for ((unit, number), sum) in within(key, part).zip(part.clone()).zip(sums) {
            if !state.written[column].has(unit) {
                fill(dst, at(number), None);
            } else if state.lost[column].has(unit) || state.sums[column][unit] != sum {
                bad.insert(unit);
            }
        }
        Some(bad)
    }

    async fn read_again(
        &self,
        key: RowKey,
        column: usize,
        units: &Units,
        piece: Range<u32>,
        first: u32,
        dst: &mut SgMut,
    ) -> Result<(), SpaceError> {
        let regions = self.regions(&piece);
        let at = |unit: usize| (key.first() + unit as u32 - first) as usize * UNIT as usize;
        loop {
            self.settle_stripes(key.row, &piece).await?;
            let Some(group) = self.ready(key, regions).await? else {
                units.iter().for_each(|u| fill(dst, at(u), None));
                return Ok(());
            };
            let _stripes = self.lock(key.row, piece.clone()).await;
            if !self.is_ready(&group, regions) || self.p.stuck.has(key.row, &piece) {
                continue;
            }
            let there = group.state.lock().there(column).and(units);
            units.without(&there).iter().for_each(|u| fill(dst, at(u), None));
            for (unit, bytes) in self.heal(&group, column, &there).await? {
                match bytes {
                    Some(bytes) => fill(dst, at(unit), Some(&bytes)),
                    None => return Err(self.corrupt(key.row, column, key.first() + unit as u32)),
                }
            }
            return Ok(());
        }
    }
}

/// Cuts units of a row at groups.
pub(super) fn groups_of(
    row: crate::RowNumber,
    units: &Range<u32>,
) -> impl Iterator<Item = (RowKey, Range<u32>)> + use<> {
    let (units, per) = (units.clone(), GROUP_UNITS as u32);
    (units.start / per..=(units.end - 1) / per).map(move |group| {
        let part = units.start.max(group * per)..units.end.min((group + 1) * per);
        (RowKey { row, group }, part)
    })
}

/// Units counted from the beginning of the group.
pub(super) fn within(key: RowKey, units: &Range<u32>) -> Range<usize> {
    (units.start - key.first()) as usize..(units.end - key.first()) as usize
}
