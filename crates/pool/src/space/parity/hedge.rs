//! Reading a column whose disk is slow: its data is computed from the others.
//!
//! No lock is held and nothing is repaired: a computed unit counts only if it matches its sum, like one that
//! was read.

use std::ops::Range;
use std::sync::Arc;

use arena::SgMut;
use futures_util::future::{Either, select};

use super::Striped;
use super::columns::Columns;
use super::read::{groups_of, within};
use super::table::RowGroup;
use crate::disks::{DataDisk, Reading};
use crate::space::read::fill;
use crate::{RowNumber, UNIT};

/// Stripes that are made together.
const PIECE: u32 = 64;

impl Striped {
    /// Reads units of a column: from its disk; from the others when that is an outlier, or when it takes
    /// longer than 99 of 100 of its reads, if the [budget](crate::supervision::budget) allows. The first valid
    /// result counts. False: the buffers have undefined contents.
    pub(super) async fn read_column(
        &self,
        row: RowNumber,
        column: usize,
        units: &Range<u32>,
        disk: &Arc<DataDisk>,
        offset: u64,
        dst: SgMut,
    ) -> (bool, SgMut) {
        let path = &self.space.path;
        let mut dst = dst;
        if disk.pulse.is_avoided(path.env.moment()) {
            let made = Box::pin(self.made(row, column, units, dst)).await;
            if made.0 {
                return made;
            }
            dst = made.1;
        }
        let late = path.is_hedging().then(|| disk.pulse.hedge_after());
        let first = disk.start_read(path.env.moment(), offset, dst, late);
        disk.pulse.count_user_read();
        if !first.ends_in_time().await
            && path.may_hedge()
            && let Some(buffers) = first.shape().try_alloc(&path.io.arena)
        {
            disk.pulse.count_hedged();
            return Box::pin(self.race(row, column, units, first, buffers)).await;
        }
        let (result, dst) = first.wait(&path.io, &path.env).await;
        (result.is_ok(), dst)
    }

    /// The first good answer; if there is none, the disk's.
    async fn race(
        &self,
        row: RowNumber,
        column: usize,
        units: &Range<u32>,
        first: Reading,
        buffers: SgMut,
    ) -> (bool, SgMut) {
        let path = &self.space.path;
        let first = Box::pin(first.wait(&path.io, &path.env));
        let made = Box::pin(self.made(row, column, units, buffers));
        match select(first, made).await {
            Either::Left(((Ok(()), mut dst), made)) => {
                if self.is_good(row, column, units, &mut dst) {
                    return (true, dst);
                }
                let made = made.await;
                if made.0 { made } else { (true, dst) }
            }
            Either::Left(((Err(_), dst), made)) => {
                let made = made.await;
                if made.0 { made } else { (false, dst) }
            }
            Either::Right(((true, dst), _)) => (true, dst),
            Either::Right(((false, _), first)) => {
                let (result, dst) = first.await;
                (result.is_ok(), dst)
            }
        }
    }

    /// Whether bytes match the sums of these units.
    fn is_good(&self, row: RowNumber, column: usize, units: &Range<u32>, dst: &mut SgMut) -> bool {
        groups_of(row, units).all(|(key, part)| {
            self.verify(key, column, &part, units.start, dst).is_some_and(|bad| bad.is_empty())
        })
    }

    /// Makes units of a column from the others; whether they match the sums.
    async fn made(&self, row: RowNumber, column: usize, units: &Range<u32>, mut dst: SgMut) -> (bool, SgMut) {
        for (key, part) in groups_of(row, units) {
            let group = self.p.groups.get(key);
            for from in part.clone().step_by(PIECE as usize) {
                let piece = from..part.end.min(from + PIECE);
                let Some(mut columns) = self.columns(row) else { return (false, dst) };
                // It is not asked.
                columns[column].disk = None;
                let near = self.p.code.near(column);
                let all = self.p.code.all();
                let of_near = match near {
                    Some(near) => {
                        self.made_of(&group, &columns, column, &piece, near, units.start, dst).await
                    }
                    None => (false, dst),
                };
                dst = of_near.1;
                if !of_near.0 {
                    let of_all = self.made_of(&group, &columns, column, &piece, all, units.start, dst).await;
                    dst = of_all.1;
                    if !of_all.0 {
                        return (false, dst);
                    }
                }
            }
        }
        let good = self.is_good(row, column, units, &mut dst);
        (good, dst)
    }

    /// The same of some stripes of a group, from the columns that are `asked`, by bit; whether all could be made.
    #[allow(clippy::too_many_arguments)] // of what one caller has
    async fn made_of(
        &self,
        group: &RowGroup,
        columns: &Columns,
        column: usize,
        piece: &Range<u32>,
        asked: u32,
        first: u32,
        mut dst: SgMut,
    ) -> (bool, SgMut) {
        let range = within(group.key, piece);
        let parts = self.parts(group, columns, asked, range.start, range.end).await;
        let there = group.state.lock().there(column);
        for (unit, number) in range.clone().zip(piece.clone()).filter(|(u, _)| there.has(*u)) {
            let stripe: Vec<_> = parts.iter().map(|p| p[unit - range.start].clone()).collect();
            let region = self.regions(&(number..number + 1));
            let whole = self.solve(group, unit, region, &stripe, asked);
            let Some(bytes) = whole.and_then(|w| w[column].clone()) else { return (false, dst) };
            fill(&mut dst, (number - first) as usize * UNIT as usize, Some(&bytes));
        }
        (true, dst)
    }
}
