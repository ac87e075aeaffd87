//! Reading: from one current copy, straight into the caller's buffers, each unit verified there.
//!
//! No lock is held: a unit that does not match may have been written meanwhile, so it is looked at again
//! under its lock, on every copy.

use std::ops::Range;
use std::sync::Arc;

use arena::passes::{Pass, count};
use arena::{Class, IoBufMut, SgMut, parts};
use disk::sized;
use futures_util::future::join_all;
use smallvec::SmallVec;

use super::{Space, SpaceError};
use crate::UNIT;
use crate::blocks::Units;
use crate::groups::{Group, GroupKey};
use crate::layout::Run;

impl Space {
    /// Reads as many whole units at `address` as `dst` has filled. Unwritten or discarded units are zeros.
    ///
    /// # Errors
    /// [`SpaceError`]; the buffers are returned, with undefined contents.
    ///
    /// # Panics
    /// When the range is not whole units inside the space: the caller has checked it.
    pub async fn read_at(&self, address: u64, dst: SgMut) -> (Result<(), SpaceError>, SgMut) {
        let length: u64 = dst.iter().map(|b| b.len() as u64).sum();
        assert!(address.is_multiple_of(UNIT) && length.is_multiple_of(UNIT));
        assert!(address + length <= self.inner.size());
        match self.start_read(address, length, dst) {
            Ok(mut direct) => self.finish_read(&mut direct).await,
            Err(dst) => self.read_whole(address, length, dst).await,
        }
    }

    pub(super) async fn read_whole(
        &self,
        address: u64,
        length: u64,
        dst: SgMut,
    ) -> (Result<(), SpaceError>, SgMut) {
        let runs = self.inner.layout.runs(address, length, self.inner.layout.slab_bytes());
        match &runs[..] {
            [] => (Ok(()), dst),
            [run] if run.pieces.len() == 1 => self.read_run(run, dst).await,
            _ => self.read_runs(&runs, dst).await,
        }
    }

    /// Several runs: each into those of the buffers that are its own, or through others where a buffer is of two.
    async fn read_runs(&self, runs: &[Run], mut dst: SgMut) -> (Result<(), SpaceError>, SgMut) {
        let mut result = Ok(());
        let Some(whole) = whole_buffers(runs, &dst) else {
            for run in runs {
                let buffers = self.path.io.arena.alloc_sg(run.length as usize, Class::Control).await;
                let (one, back) = self.read_run(run, sized(buffers, run.length as usize)).await;
                scatter(&back, run, &mut dst);
                result = result.and(one);
            }
            return (result, dst);
        };
        let mut slots: SmallVec<[Option<IoBufMut>; 4]> = dst.into_iter().map(Some).collect();
        let mut reads = Vec::with_capacity(runs.len());
        for (run, mine) in runs.iter().zip(&whole) {
            reads.push(self.read_run(run, mine.iter().filter_map(|i| slots[*i].take()).collect()));
        }
        // All columns at a time: a row of them is a few disks.
        for (mine, (one, back)) in whole.iter().zip(join_all(reads).await) {
            mine.iter().zip(back).for_each(|(i, b)| slots[*i] = Some(b));
            result = result.and(one);
        }
        (result, slots.into_iter().flatten().collect())
    }

    async fn read_run(&self, run: &Run, mut dst: SgMut) -> (Result<(), SpaceError>, SgMut) {
        if let Some(striped) = self.striped() {
            return Box::pin(striped.read_run(run, dst)).await;
        }
        let (row, column) = (run.at.row, run.at.column);
        let units = run.at.units(run.length);
        let first = units.start;
        let parts: Vec<(GroupKey, Range<u32>)> = self.inner.groups_of(row, column, &units).collect();
        let mut written = 0;
        // Held until they have been compared: a small cache must not evict the block just read.
        let mut held: SmallVec<[Arc<Group>; 2]> = SmallVec::new();
        for (key, part) in &parts {
            match self.ready(*key, self.inner.regions.of(part)).await {
                Err(e) => return (Err(e), dst),
                Ok(None) => {}
                Ok(Some(group)) => {
                    let state = group.state.lock();
                    let range = key.within(part);
                    let known = state.table.written.or(&state.table.lost);
                    written += known.and(&Units::range(range.start, range.end)).count();
                    drop(state);
                    held.push(group);
                }
            }
        }
        let copies = self.inner.copies(&self.path, row, column);
        let (Some(copies), true) = (copies, written > 0) else {
            dst.iter_mut().for_each(|b| b.filled_mut().fill(0));
            return (Ok(()), dst);
        };
        let mut done = false;
        let now = self.path.env.moment();
        if let Some(copy) = self.choose(now, &copies, &units)
            && let Some(disk) = &copy.disk
        {
            let late = self.late(disk, &copies, &units);
            let reading = disk.start_read(now, copy.data_at(disk, first), dst, late);
            // Damaged units are handled below, part by part.
            let good = |dst: &mut SgMut| {
                let well = |(key, part): &(GroupKey, Range<u32>)| {
                    let bad = self.verify(&self.inner.groups.get(*key), part, first, dst);
                    bad.is_some_and(|bad| bad.is_empty())
                };
                parts.iter().all(well)
            };
            let (result, back) = self.hedged(&reading, row, column, &units, &good).await;
            (done, dst) = (result.is_ok(), back);
        }
        for (key, part) in parts {
            let mut again = Units::NONE;
            let range = key.within(&part);
            if done {
                match self.verify(&self.inner.groups.get(key), &part, first, &mut dst) {
                    None => again = Units::range(range.start, range.end),
                    Some(bad) => again = bad,
                }
            } else {
                again = again.or(&Units::range(range.start, range.end));
            }
            if !again.is_empty()
                && let Err(e) = self.read_again(key, &again, first, &mut dst).await
            {
                return (Err(e), dst);
            }
        }
        (Ok(()), dst)
    }

    /// Whether what was read of units of a group is what was written; those never written become zeros.
    pub(super) fn is_good(&self, group: &Group, units: &Range<u32>, dst: &mut SgMut) -> bool {
        self.verify(group, units, units.start, dst).is_some_and(|bad| bad.is_empty())
    }

    /// Compares what was read with the table: units that do not match. Those never written become zeros.
    /// `None` when the group is no longer ready.
    fn verify(&self, group: &Group, part: &Range<u32>, first: u32, dst: &mut SgMut) -> Option<Units> {
        let key = group.key;
        let at = |number: u32| (number - first) as usize * UNIT as usize;
        let sums = self.sums(key.row, key.column, part.start, pieces(dst, at(part.start), at(part.end)));
        let within = key.within(part);
        let state = group.state.lock();
        if !self.is_ready_now(key, &state, self.inner.regions.of(part)) {
            return None;
        }
        let table = &state.table;
        // Nearly always.
        if table.written.has_all(within.clone())
            && !table.lost.has_any(within.clone())
            && table.sums[within.clone()] == sums[..]
        {
            return Some(Units::NONE);
        }
        let mut bad = Units::NONE;
        for ((unit, number), sum) in within.zip(part.clone()).zip(sums) {
            if table.lost.has(unit) {
                bad.insert(unit);
            } else if !table.written.has(unit) {
                fill(dst, at(number), None);
            } else if table.sums[unit] != sum {
                bad.insert(unit);
            }
        }
        Some(bad)
    }

    /// Reads units under their lock, healing them.
    async fn read_again(
        &self,
        key: GroupKey,
        units: &Units,
        first: u32,
        dst: &mut SgMut,
    ) -> Result<(), SpaceError> {
        let (from, to) = (units.iter().next().unwrap_or(0), units.iter().last().unwrap_or(0) + 1);
        let start = key.units().start;
        let range = start + from as u32..start + to as u32;
        let regions = self.inner.regions.of(&range);
        let at = |unit: usize| (start as usize + unit - first as usize) * UNIT as usize;
        loop {
            let Some(group) = self.ready(key, regions).await? else {
                units.iter().for_each(|u| fill(dst, at(u), None));
                return Ok(());
            };
            let _units = self.inner.locks.lock(key.row, key.column, range.clone()).await;
            if !self.is_ready(&group, regions) {
                continue;
            }
            let looked = self.heal(&group, units).await?;
            let corrupt = |unit: usize| SpaceError::Corrupt {
                space: self.inner.id,
                address: self.inner.address_in(key, unit),
                length: UNIT,
            };
            let mut looked = looked.into_iter().peekable();
            for unit in units.iter() {
                match looked.next_if(|(u, _)| *u == unit) {
                    Some((_, Ok(bytes))) => fill(dst, at(unit), Some(&bytes)),
                    Some((_, Err(error))) => return Err(error),
                    None if group.state.lock().table.lost.has(unit) => return Err(corrupt(unit)),
                    None => fill(dst, at(unit), None),
                }
            }
            return Ok(());
        }
    }
}

/// Which buffers are each run's, if none is of two runs and each run's are in its order.
fn whole_buffers(runs: &[Run], dst: &SgMut) -> Option<Vec<SmallVec<[usize; 4]>>> {
    let mut starts = Vec::with_capacity(dst.len());
    let mut at = 0;
    for b in dst {
        starts.push(at);
        at += b.len() as u64;
    }
    let of = |run: &Run| {
        let mut mine = SmallVec::new();
        for piece in &run.pieces {
            let end = piece.start + piece.length;
            let mut i = starts.partition_point(|s| *s < piece.start);
            let mut covered = piece.start;
            while covered < end {
                if *starts.get(i)? != covered {
                    return None;
                }
                mine.push(i);
                covered += dst[i].len() as u64;
                i += 1;
            }
            if covered != end {
                return None;
            }
        }
        Some(mine)
    };
    runs.iter().map(of).collect()
}

/// Copies a run's bytes to where they belong.
fn scatter(from: &SgMut, run: &Run, to: &mut SgMut) {
    let mut done = 0;
    for piece in &run.pieces {
        let mut at = piece.start as usize;
        let end = done + piece.length as usize;
        for bytes in pieces(from, done, end) {
            copy_in(to, at, bytes);
            at += bytes.len();
        }
        done = end;
    }
    count(Pass::Copy, done);
}

/// The bytes from `start` to `end` of scattered ones.
pub(super) fn pieces(sg: &SgMut, start: usize, end: usize) -> impl Iterator<Item = &[u8]> {
    parts(sg.iter().map(|b| b.len()), start, end - start).map(|(i, part)| &sg[i][part])
}

fn copy_in(sg: &mut SgMut, start: usize, mut bytes: &[u8]) {
    let into: SmallVec<[_; 2]> = parts(sg.iter().map(|b| b.len()), start, bytes.len()).collect();
    for (i, part) in into {
        let (here, rest) = bytes.split_at(part.len());
        sg[i].filled_mut()[part].copy_from_slice(here);
        bytes = rest;
    }
}

/// Puts a unit's bytes in its place; `None`: zeros.
pub(super) fn fill(sg: &mut SgMut, at: usize, bytes: Option<&[u8]>) {
    const ZEROS: [u8; UNIT as usize] = [0; UNIT as usize];
    copy_in(sg, at, bytes.unwrap_or(&ZEROS));
}
