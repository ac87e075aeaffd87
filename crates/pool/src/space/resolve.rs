//! Resolving a group after a crash or a failed write: of what may be there one state is chosen, everywhere,
//! before anybody reads it.
//!
//! The four steps are those of `docs/0001-pool.md`, "Crash". Of tables, one that is more than a generation
//! behind the newest is not asked: honest disks are one behind at most, because a group has one flush at a
//! time.

use arena::IoBuf;
use disk::DiskError;
use futures_util::future::join_all;
use smallvec::SmallVec;

use super::copies::{Copies, Copy, current, in_pieces};
use super::flush::BadBlock;
use super::{Space, SpaceError};
use crate::blocks::Units;
use crate::blocks::checksums::Table;
use crate::events::{Finding, Found};
use crate::groups::Group;
use crate::{GROUP_UNITS, REGIONS, UNIT};

/// The new contents of a unit.
enum Verdict {
    /// Zeros.
    Unwritten,
    /// The bytes of this copy, by its position, with this checksum.
    Data { copy: usize, sum: u32 },
    /// Its checksum is known and no copy has it: reads report that, and other contents of its place are
    /// ignored.
    Unreadable { sum: u32 },
    /// Not even the checksum.
    Lost,
}

/// The decision for a unit.
struct Decided {
    unit: usize,
    verdict: Verdict,
}

/// A copy with what could be read of it: `None` for a unit that could not.
struct Witness<'a> {
    copy: &'a Copy,
    data: Vec<Option<IoBuf>>,
    /// Its disk did not answer.
    silent: Option<DiskError>,
}

/// Whether an error says nothing of what lies there: the disk does not answer, now.
pub(super) fn is_silence(error: &DiskError) -> bool {
    !matches!(error, DiskError::Medium { .. })
}

impl Space {
    /// Resolves what can be of a group. Its caller has `preparing` and no range.
    pub(crate) async fn resolve(&self, group: &Group) -> Result<(), SpaceError> {
        let key = group.key;
        let _units = self.inner.locks.lock(key.row, key.column, key.units()).await;
        loop {
            let Some(copies) = self.inner.copies(&self.path, key.row, key.column) else { return Ok(()) };
            let here = current(&copies);
            let regions = self.inner.unresolved.of(key) & here;
            if regions == 0 {
                return Ok(());
            }
            // 1. Absent copies miss the decision.
            let present: Copies = copies.iter().filter(|c| c.disk.is_some()).cloned().collect();
            self.miss(key.row, &copies, &present, regions).await?;
            if self.is_changed(key.row, key.column, &copies) {
                continue;
            }
            if self.decide(group, &copies, regions).await? {
                break self.settle(group, regions).await;
            }
        }
    }

    /// 4., its end: all of it durable, and no longer in doubt.
    async fn settle(&self, group: &Group, regions: u64) -> Result<(), SpaceError> {
        Box::pin(self.flush_most()).await?.not(group.key)?;
        self.inner.resolved(&self.path, group.key, regions);
        Ok(())
    }

    /// Steps 2 to 4 but for the flush; false when a disk was lost on the way.
    async fn decide(&self, group: &Group, copies: &Copies, regions: u64) -> Result<bool, SpaceError> {
        let key = group.key;
        let blocks = self.read_blocks(group, copies, regions).await;
        let units = self.inner.regions.in_group(key.group, regions);
        let witnesses = self.witnesses(group, copies, regions, &units).await;
        let of_blocks = blocks.iter().filter_map(|(copy, block)| match block {
            Err(BadBlock::Disk(error)) if is_silence(error) => Some((*copy, *error)),
            _ => None,
        });
        let silent = of_blocks.chain(witnesses.iter().filter_map(|w| Some((w.copy, w.silent?))));
        let silent: SmallVec<[(&Copy, DiskError); 3]> = silent.collect();
        for (copy, error) in &silent {
            // It has lost nothing: it is absent from now on, or the resolution waits for it. A decision
            // without it could lose data for good.
            self.fail_copy(key.row, copy, regions & copy.current(), error).await?;
        }
        if !silent.is_empty() {
            return Ok(false);
        }
        let memory = {
            let state = group.state.lock();
            // Acknowledged writes since the last flush are only in memory.
            (state.unknown & regions != regions)
                .then(|| (state.generation, state.unknown, state.table.clone()))
        };
        let in_doubt = self.inner.unresolved.units_of(key);
        let mut highest = memory.as_ref().map_or(0, |m| m.0);
        let mut decided: Vec<Decided> = Vec::new();
        for region in (0..REGIONS).map(|r| 1_u64 << r).filter(|r| regions & r != 0) {
            let mut tables: Vec<(u64, &Table)> = Vec::new();
            for (copy, block) in &blocks {
                if let Ok((generation, table)) = block {
                    highest = highest.max(*generation);
                    if copy.is_current(region) {
                        tables.push((*generation, table));
                    }
                }
            }
            // A stable sort: of equal ones the lower copy's comes first.
            tables.sort_by_key(|(generation, _)| std::cmp::Reverse(*generation));
            let newest = tables.first().map_or(0, |(g, _)| *g);
            tables.retain(|(g, _)| g + 1 >= newest);
            if let Some((_, unknown, table)) = &memory
                && unknown & region == 0
            {
                tables.insert(0, (u64::MAX, table));
            }
            for unit in self.inner.regions.in_group(key.group, region).iter() {
                let verdict = self.verdict(group, region, (unit, in_doubt.has(unit)), &tables, &witnesses);
                decided.push(Decided { unit, verdict });
            }
        }
        if !self.bring_behind(group, copies, &in_doubt, &decided, &witnesses).await? {
            return Ok(false);
        }
        self.carry_out(group, regions, highest, decided, &witnesses).await
    }

    /// A copy that is being brought up to date is not asked, but may have received data that is not chosen
    /// now, and may become current a moment later: it gets the chosen data. False when a disk was lost on the
    /// way.
    async fn bring_behind(
        &self,
        group: &Group,
        copies: &Copies,
        in_doubt: &Units,
        decided: &[Decided],
        witnesses: &[Witness<'_>],
    ) -> Result<bool, SpaceError> {
        let first = group.key.units().start;
        for copy in copies {
            let Some(disk) = &copy.disk else { continue };
            let chosen = decided.iter().filter(|d| in_doubt.has(d.unit)).filter_map(|d| {
                let Verdict::Data { copy: winner, .. } = d.verdict else { return None };
                let number = first + d.unit as u32;
                let is_behind = copy.missed & self.inner.regions.of(&(number..number + 1)) != 0;
                Some((number, witnesses[winner].data[d.unit].clone()?)).filter(|_| is_behind)
            });
            for (number, src) in in_pieces(chosen) {
                let regions = self.inner.regions.of(&(number..number + src.len() as u32));
                if let Err(error) = disk.write(copy.data_at(disk, number), src).await {
                    self.fail_copy(group.key.row, copy, regions, &error).await?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Reads the units of every copy that is current in one of the regions.
    async fn witnesses<'a>(
        &self,
        group: &Group,
        copies: &'a Copies,
        regions: u64,
        units: &Units,
    ) -> Vec<Witness<'a>> {
        let first = group.key.units().start;
        let reads = copies.iter().filter(|c| c.current() & regions != 0).map(|copy| async move {
            let mut data: Vec<Option<IoBuf>> = vec![None; GROUP_UNITS as usize];
            let mut silent = None;
            for (from, to) in units.stretches() {
                if let Ok(bytes) = self.try_read_units(copy, first + from as u32, to - from).await {
                    let bytes = IoBuf::from(bytes);
                    for (i, place) in data[from..to].iter_mut().enumerate() {
                        let start = i * UNIT as usize;
                        *place = Some(bytes.slice(start..start + UNIT as usize));
                    }
                    continue;
                }
                for (unit, place) in data.iter_mut().enumerate().take(to).skip(from) {
                    match self.try_read_units(copy, first + unit as u32, 1).await {
                        Ok(bytes) => *place = Some(IoBuf::from(bytes)),
                        Err(error) => silent = silent.or(error.filter(is_silence)),
                    }
                }
            }
            Witness { copy, data, silent }
        });
        join_all(reads).await
    }

    /// Steps 2 and 3 for one unit. Of one that is in no doubt, but its neighbours are, the newest table's
    /// word is all that counts.
    fn verdict(
        &self,
        group: &Group,
        region: u64,
        (unit, in_doubt): (usize, bool),
        tables: &[(u64, &Table)],
        witnesses: &[Witness<'_>],
    ) -> Verdict {
        let key = group.key;
        let number = key.units().start + unit as u32;
        let sum = |w: &Witness<'_>| w.data[unit].as_ref().map(|b| self.sum(key, number, b));
        let here = || witnesses.iter().enumerate().filter(|(_, w)| w.copy.is_current(region));
        // The others have lost its checksum.
        let told = || tables.iter().filter(|(_, t)| t.written.has(unit) || !t.lost.has(unit));
        let Some((top, newest)) = told().next() else { return Verdict::Lost };
        for (_, table) in told().take(if in_doubt { tables.len() } else { 1 }) {
            if !table.written.has(unit) {
                return Verdict::Unwritten;
            }
            let want = table.sums[unit];
            if let Some((copy, _)) = here().find(|(_, w)| sum(w) == Some(want)) {
                return Verdict::Data { copy, sum: want };
            }
        }
        // It was lost before, too: the contents of its place were bad already.
        let was_bad = told().take_while(|(g, _)| g == top).all(|(_, t)| t.lost.has(unit));
        if !in_doubt || was_bad {
            return Verdict::Unreadable { sum: newest.sums[unit] };
        }
        // A block says of a unit that it is written only when data of it was durable, so what lies there is
        // this unit's.
        let has: SmallVec<[(usize, &Witness<'_>, u32); 3]> =
            here().filter_map(|(copy, w)| Some((copy, w, sum(w)?))).collect();
        let agree = |s: u32| has.iter().filter(|(.., other)| *other == s).count();
        match has.iter().copied().rev().max_by_key(|(.., s)| agree(*s)) {
            None => Verdict::Unreadable { sum: newest.sums[unit] },
            Some((copy, w, sum)) => {
                self.path.events.add(Finding {
                    found: Found::Unsettled,
                    disk: w.copy.number,
                    space: self.inner.id,
                    address: self.inner.address_in(key, unit),
                });
                Verdict::Data { copy, sum }
            }
        }
    }

    /// Writes the winners to the copies that differ, and the verdicts into the table.
    async fn carry_out(
        &self,
        group: &Group,
        regions: u64,
        highest: u64,
        decided: Vec<Decided>,
        witnesses: &[Witness<'_>],
    ) -> Result<bool, SpaceError> {
        let first = group.key.units().start;
        for Decided { unit, verdict } in &decided {
            let Verdict::Data { copy: winner, .. } = verdict else { continue };
            let Some(bytes) = &witnesses[*winner].data[*unit] else { continue };
            let number = first + *unit as u32;
            let region = self.inner.regions.of(&(number..number + 1));
            for w in witnesses.iter().filter(|w| w.copy.is_current(region)) {
                if w.data[*unit].as_ref().is_some_and(|b| b[..] == bytes[..]) {
                    continue;
                }
                let Some(disk) = &w.copy.disk else { return Ok(false) };
                let src = [bytes.clone()].into_iter().collect();
                if let Err(error) = disk.write(w.copy.data_at(disk, number), src).await {
                    self.fail_copy(group.key.row, w.copy, region, &error).await?;
                    return Ok(false);
                }
            }
        }
        let mut state = group.state.lock();
        for Decided { unit, verdict } in decided {
            state.settled.remove(unit);
            state.table.lost.set(unit, matches!(verdict, Verdict::Lost | Verdict::Unreadable { .. }));
            match verdict {
                Verdict::Unwritten | Verdict::Lost => state.table.written.remove(unit),
                Verdict::Unreadable { sum } | Verdict::Data { sum, .. } => {
                    state.table.written.insert(unit);
                    state.table.sums[unit] = sum;
                }
            }
        }
        state.unknown &= !regions;
        state.hearsay &= !regions;
        state.generation = state.generation.max(highest);
        self.inner.groups.dirty(group, &mut state);
        drop(state);
        self.inner.emptying.wrote(group.key.row);
        Ok(true)
    }
}
