//! Reading stripes across their columns: damaged units are computed from the others, repaired, and counted.
//!
//! With a code that has groups a unit is looked for in its group first, and the other columns are asked only
//! where that does not do.

use arena::IoBuf;
use disk::DiskError;
use futures_util::FutureExt;
use futures_util::future::join_all;

use super::Striped;
use super::columns::{Columns, have};
use super::table::RowGroup;
use crate::blocks::Units;
use crate::events::{Finding, Found};
use crate::space::SpaceError;
use crate::space::copies::Copy;
use crate::{GROUP_UNITS, UNIT};

/// Stripes that are read together.
const PIECE: usize = 64;

/// A unit of a group and its bytes; `None` when they are lost.
pub(super) type Looked = Vec<(usize, Option<IoBuf>)>;

/// The contents of a column in a stripe.
#[derive(Clone)]
pub(super) enum Part {
    /// Nothing was written: zeros.
    Zeros,
    /// The written units.
    Good(IoBuf),
    /// Something else, or it cannot be read.
    Bad(Found),
    /// Its disk did not answer: its data is not lost.
    Silent(DiskError),
    /// It is not current, or was not requested.
    Away,
}

/// The result of reading a stripe.
pub(super) enum Healed {
    /// The unit that was asked for; `None` when it is lost.
    As(Option<IoBuf>),
    /// Too few columns could be read.
    Ask,
    /// Too few columns could be read, but the columns have changed since.
    Again,
}

impl Striped {
    /// The valid contents of units of a column. Current columns that differ are repaired, and so are the
    /// other units of these stripes that were read. The caller holds the stripes' lock, and they are ready.
    ///
    /// # Errors
    /// When the failure of a disk during the repair cannot be handled; a lost unit is no error.
    pub(super) async fn heal(
        &self,
        group: &RowGroup,
        column: usize,
        units: &Units,
    ) -> Result<Looked, SpaceError> {
        let mut looked = Looked::new();
        for (from, to) in pieces(units) {
            let Some(mut columns) = self.columns(group.key.row) else { break };
            let all = self.p.code.all();
            let mut asked = self.p.code.near(column).unwrap_or(all);
            let mut parts = self.parts(group, &columns, asked, from, to).await;
            for unit in (from..to).filter(|u| units.has(*u)) {
                let bytes = loop {
                    let stripe: Vec<Part> = parts.iter().map(|p| p[unit - from].clone()).collect();
                    match self.heal_stripe(group, &columns, column, unit, stripe, asked).await? {
                        Healed::As(bytes) => break bytes,
                        Healed::Ask => {
                            let others = self.parts(group, &columns, all & !asked, from, to).await;
                            let unread = parts.iter_mut().zip(others).enumerate();
                            unread
                                .filter(|(c, _)| asked & 1 << c == 0)
                                .for_each(|(_, (to, from))| *to = from);
                            asked = all;
                        }
                        Healed::Again => {
                            let Some(now) = self.columns(group.key.row) else { return Ok(looked) };
                            let number = group.key.first() + unit as u32;
                            self.enough(group.key.row, &now, self.regions(&(number..number + 1)))?;
                            (columns, asked) = (now, all);
                            parts = self.parts(group, &columns, all, from, to).await;
                        }
                    }
                };
                looked.push((unit, bytes));
            }
        }
        Ok(looked)
    }

    /// Every unit whose sum is not known is made from the others, if it can be, and what is doubted is
    /// compared with them. The caller has no lock of stripes.
    pub(super) async fn heal_lost(&self, group: &RowGroup) -> Result<(), SpaceError> {
        let _stripes = self.lock(group.key.row, group.key.units()).await;
        // Before anything is made from what is doubted.
        self.compare_doubted(group).await?;
        for column in 0..self.p.columns() {
            let lost = {
                let state = group.state.lock();
                state.lost[column].and(&state.there(column)).and(&self.known(
                    group,
                    &state.known,
                    state.mapped,
                ))
            };
            self.heal(group, column, &lost).await?;
        }
        Ok(())
    }

    /// Units of a group in regions that are known of every current column.
    pub(super) fn known(&self, group: &RowGroup, known: &[u64], mapped: u64) -> Units {
        let columns = self.columns(group.key.row).unwrap_or_default();
        let unknown = columns.iter().zip(known).fold(0, |all, (c, k)| all | (c.current() & !k));
        self.space.inner.regions.in_group(group.key.group, mapped & !unknown)
    }

    /// The contents of each column in `asked`, by bit, in the stripes from `from` to `to` of a group.
    pub(super) async fn parts(
        &self,
        group: &RowGroup,
        columns: &Columns,
        asked: u32,
        from: usize,
        to: usize,
    ) -> Vec<Vec<Part>> {
        let reads = columns.iter().map(async |copy| match asked & 1 << copy.index {
            0 => vec![Part::Away; to - from],
            _ => self.parts_of(group, copy, from, to).await,
        });
        join_all(reads).await
    }

    async fn parts_of(&self, group: &RowGroup, copy: &Copy, from: usize, to: usize) -> Vec<Part> {
        let (key, c) = (group.key, copy.index);
        let region = |unit: usize| {
            let number = key.first() + unit as u32;
            self.regions(&(number..number + 1))
        };
        let there = group.state.lock().there(c).and(&Units::range(from, to));
        let mut parts = vec![Part::Zeros; to - from];
        for (first, end) in there.stretches() {
            let here = copy.disk.as_ref().filter(|_| (first..end).any(|u| copy.is_current(region(u))));
            let read = async |unit: usize, count: usize| {
                let disk = here?;
                let at = copy.data_at(disk, key.first() + unit as u32);
                Some(disk.read_vec(&self.space.path.io, at, count * UNIT as usize).await.map(IoBuf::from))
            };
            let whole = read(first, end - first).await;
            for unit in first..end {
                let number = key.first() + unit as u32;
                parts[unit - from] = if !copy.is_current(region(unit)) {
                    Part::Away
                } else {
                    let start = (unit - first) * UNIT as usize;
                    let bytes = match &whole {
                        Some(Ok(whole)) => Some(Ok(whole.slice(start..start + UNIT as usize))),
                        Some(Err(DiskError::Medium { .. })) => read(unit, 1).await,
                        Some(Err(error)) => Some(Err(*error)),
                        None => None,
                    };
                    let state = group.state.lock();
                    match bytes {
                        None => Part::Away,
                        Some(Err(DiskError::Medium { .. })) => Part::Bad(Found::Unreadable),
                        Some(Err(error)) => Part::Silent(error),
                        Some(Ok(_)) if !state.has_sum(c, unit, region(unit)) => Part::Bad(Found::BadTable),
                        Some(Ok(b)) if self.sum(key.row, c, number, &b) != state.sums[c][unit] => {
                            Part::Bad(Found::Healed)
                        }
                        Some(Ok(b)) => Part::Good(b),
                    }
                };
            }
        }
        parts
    }

    /// One unit, from the columns of its stripe that were read; damaged ones among these are repaired.
    pub(super) async fn heal_stripe(
        &self,
        group: &RowGroup,
        columns: &Columns,
        column: usize,
        unit: usize,
        parts: Vec<Part>,
        asked: u32,
    ) -> Result<Healed, SpaceError> {
        let key = group.key;
        let number = key.first() + unit as u32;
        let region = self.regions(&(number..number + 1));
        let bad: Vec<(usize, Found)> =
            parts.iter().enumerate().filter_map(|(c, p)| Some((c, p.bad()?))).collect();
        let mine = parts[column].bytes();
        if bad.is_empty() && mine.is_some() {
            return Ok(Healed::As(mine));
        }
        let whole = self.solve(group, unit, region, &parts, asked);
        if whole.is_none() && asked != self.p.code.all() {
            return Ok(Healed::Ask);
        }
        let space = self.space.inner.id;
        let finding = |c: usize, found| {
            let (disk, address) = (columns[c].number, self.address(key.row, c, number));
            self.space.path.events.add(Finding { found, disk, space, address });
        };
        let Some(whole) = whole else {
            if mine.is_none() && self.may_be_found(group, columns, region, &parts).await? {
                return Ok(Healed::Again);
            }
            let enough = self.p.code.decodes(have(columns, region));
            if mine.is_none()
                && enough
                && let Some((c, _)) = bad.first()
            {
                // The requested unit is lost; for a parity unit, which has no address, one that it depends
                // on.
                let lacks = |c: &usize| parts[*c].bytes().is_none();
                let of = if column < self.p.data() { Some(column) } else { (0..self.p.data()).find(lacks) };
                let (disk, address) = (columns[*c].number, self.address(key.row, of.unwrap_or(*c), number));
                self.space.path.events.add(Finding { found: Found::Lost, disk, space, address });
            }
            return Ok(Healed::As(mine));
        };
        for (c, found) in bad {
            if found != Found::BadTable {
                finding(c, found);
            }
            if let Some(bytes) = &whole[c] {
                self.put_back(group, &columns[c], unit, region, bytes.clone()).await?;
            }
        }
        Ok(Healed::As(mine.or_else(|| whole[column].clone())))
    }

    /// Whether a retry may succeed: a disk that did not answer is absent from now on, and its data is not
    /// lost; or a column that was behind has been brought up to date meanwhile.
    async fn may_be_found(
        &self,
        group: &RowGroup,
        columns: &Columns,
        region: u64,
        parts: &[Part],
    ) -> Result<bool, SpaceError> {
        let row = group.key.row;
        let mut silent = false;
        for (copy, part) in columns.iter().zip(parts) {
            if let Part::Silent(error) = part {
                self.space.fail_copy(row, copy, region, error).boxed().await?;
                silent = true;
            }
        }
        let now = self.columns(row).unwrap_or_default();
        let is_same = |(a, b): (&Copy, &Copy)| a.is_as(b) && a.is_current(region) == b.is_current(region);
        Ok(silent || now.len() != columns.len() || !now.iter().zip(columns).all(is_same))
    }

    /// All units that are `wanted`, by bit, of a stripe from those that are good, if they agree with every
    /// sum that is known; maybe others of it.
    pub(super) fn solve(
        &self,
        group: &RowGroup,
        unit: usize,
        region: u64,
        parts: &[Part],
        wanted: u32,
    ) -> Option<Vec<Option<IoBuf>>> {
        let key = group.key;
        let mut stripe: Vec<Option<Vec<u8>>> = parts.iter().map(|p| p.bytes().map(|b| b.to_vec())).collect();
        // Zeros in parity are those of a stripe without data, which is never requested.
        if !self.p.code.recover(UNIT as usize, &mut stripe, wanted) {
            return None;
        }
        let state = group.state.lock();
        let mut whole = Vec::with_capacity(stripe.len());
        for (c, bytes) in stripe.into_iter().enumerate() {
            let Some(bytes) = bytes else {
                whole.push(None);
                continue;
            };
            let made = parts[c].bytes().is_none();
            if made && state.has_sum(c, unit, region) && state.is_there(c, unit) {
                let sum = self.sum(key.row, c, key.first() + unit as u32, &bytes);
                if sum != state.sums[c][unit] {
                    return None;
                }
            }
            whole.push(Some(IoBuf::from(bytes)));
        }
        Some(whole)
    }

    /// Writes a unit to a damaged column, and to the destination slab of a moving column, if that has it:
    /// that slab is not read before it counts. It is durable after the next checkpoint.
    pub(super) async fn put_back(
        &self,
        group: &RowGroup,
        copy: &Copy,
        unit: usize,
        region: u64,
        bytes: IoBuf,
    ) -> Result<(), SpaceError> {
        let (key, c) = (group.key, copy.index);
        let number = key.first() + unit as u32;
        let sum = self.sum(key.row, c, number, &bytes);
        let is_next = |n: &Copy| n.is_new() && n.slab_of == c && n.is_current(region);
        let next = self.targets(key.row).and_then(|t| t.into_iter().find(is_next));
        let mut well = true;
        for copy in next.iter().chain([copy]) {
            let Some(disk) = &copy.disk else { continue };
            let src = [bytes.clone()].into_iter().collect();
            if let Err(error) = disk.write(copy.data_at(disk, number), src).await {
                // The others have it, so it is no longer needed here, or its owner gets the error at its next
                // write.
                match self.space.fail_copy(key.row, copy, region, &error).await {
                    Err(SpaceError::Disk { .. }) | Ok(()) => well &= copy.is_new(),
                    Err(other) => return Err(other),
                }
            }
        }
        if !well {
            return Ok(());
        }
        let mut state = group.state.lock();
        if state.lost[c].has(unit) {
            state.lost[c].remove(unit);
            state.sums[c][unit] = sum;
        }
        self.p.groups.stale(group, &mut state);
        Ok(())
    }
}

impl Part {
    pub(super) fn bytes(&self) -> Option<IoBuf> {
        match self {
            Part::Zeros => Some(IoBuf::from(vec![0; UNIT as usize])),
            Part::Good(bytes) => Some(bytes.clone()),
            Part::Bad(_) | Part::Silent(_) | Part::Away => None,
        }
    }

    pub(super) fn bad(&self) -> Option<Found> {
        match self {
            Part::Bad(found) => Some(*found),
            Part::Silent(_) => Some(Found::Unreadable),
            _ => None,
        }
    }
}

/// Stretches of at most [`PIECE`] units that have all of these.
pub(super) fn pieces(units: &Units) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    for from in (0..GROUP_UNITS as usize).step_by(PIECE) {
        let piece = units.and(&Units::range(from, from + PIECE));
        if let (Some(first), Some(last)) = (piece.iter().next(), piece.iter().last()) {
            out.push((first, last + 1));
        }
    }
    out
}
