//! Writing and discarding: which stripes change, what their parity becomes, and by which reads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::{IoBuf, Sg, sg_len, sg_slice, sg_to_vec};
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};

use super::Striped;
use super::carry::{Intent, Stripe};
use super::log::Room;
use super::table::{RowGroup, RowKey};
use crate::blocks::Units;
use crate::journal::record;
use crate::space::SpaceError;
use crate::space::copies::Copy;
use crate::{RowNumber, UNIT};

/// Concurrent batches of one call.
const AT_ONCE: usize = 8;

/// New content of units of some neighbouring stripes, by unit and column; `None`: zeros.
struct Batch {
    key: RowKey,
    changes: BTreeMap<(u32, usize), Option<IoBuf>>,
}

impl Batch {
    fn units(&self) -> Range<u32> {
        let unit = |k: Option<&(u32, usize)>| k.map_or(self.key.first(), |(u, _)| *u);
        let mut keys = self.changes.keys();
        let first = unit(keys.next());
        first..unit(keys.next_back().or(self.changes.keys().next())) + 1
    }

    fn discards(&self) -> bool {
        self.changes.values().all(Option::is_none)
    }

    /// The change of a stripe: columns that get data, columns that become zeros.
    fn of(&self, unit: u32) -> (u32, u32) {
        let mine = self.changes.range((unit, 0)..=(unit, usize::MAX));
        mine.fold((0, 0), |(data, zeros), ((_, c), content)| match content {
            Some(_) => (data | 1 << c, zeros),
            None => (data, zeros | 1 << c),
        })
    }

    fn stripes(&self) -> Vec<u32> {
        let mut units: Vec<u32> = self.changes.keys().map(|(u, _)| *u).collect();
        units.dedup();
        units
    }
}

/// How a stripe's parity is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From all data: the unchanged units are read.
    Whole,
    /// From the difference: the replaced units and the parity are read.
    Difference,
}

impl Striped {
    /// See [`crate::Space::write_at`].
    pub(crate) async fn write(&self, address: u64, src: Sg) -> Result<(), SpaceError> {
        let mut batches: BTreeMap<(RowNumber, u64), Batch> = BTreeMap::new();
        self.cut(address, sg_len(&src) as u64, &mut batches, |start| {
            let unit = sg_slice(&src, start as usize, UNIT as usize);
            Some(match &unit[..] {
                [one] => one.clone(),
                _ => IoBuf::from(sg_to_vec(&unit)),
            })
        });
        self.change_all(batches).await
    }

    /// Makes part of a row zeros.
    pub(crate) async fn discard(&self, address: u64, length: u64) -> Result<(), SpaceError> {
        let mut batches = BTreeMap::new();
        self.cut(address, length, &mut batches, |_| None);
        self.change_all(batches).await
    }

    fn cut(
        &self,
        address: u64,
        length: u64,
        batches: &mut BTreeMap<(RowNumber, u64), Batch>,
        content: impl Fn(u64) -> Option<IoBuf>,
    ) {
        let boundary = u64::from(self.p.together) * UNIT;
        for run in self.space.inner.layout.runs(address, length, boundary) {
            let mut unit = (run.at.offset / UNIT) as u32;
            let key = RowKey::of(run.at.row, unit);
            let batch = batches
                .entry((run.at.row, run.at.offset / boundary))
                .or_insert_with(|| Batch { key, changes: BTreeMap::new() });
            for piece in &run.pieces {
                for start in (piece.start..piece.start + piece.length).step_by(UNIT as usize) {
                    batch.changes.insert((unit, usize::from(run.at.column)), content(start));
                    unit += 1;
                }
            }
        }
    }

    async fn change_all(&self, batches: BTreeMap<(RowNumber, u64), Batch>) -> Result<(), SpaceError> {
        let changes: Vec<_> = batches.into_values().map(|b| self.change(b).boxed()).collect();
        let mut results = futures_util::stream::iter(changes).buffered(AT_ONCE);
        let mut result = Ok(());
        while let Some(one) = results.next().await {
            result = result.and(one);
        }
        result
    }

    async fn change(&self, batch: Batch) -> Result<(), SpaceError> {
        let (row, units) = (batch.key.row, batch.units());
        let regions = self.regions(&units);
        let _one = self.p.changes.acquire().await.expect("never closed");
        let mut using = self.p.life.read().await;
        self.opened().await?;
        self.p.counts.written.fetch_add(batch.changes.len() as u64, Ordering::Relaxed);
        if self.p.groups.are_too_dirty() {
            let left = self.flush_now().await?.and(self.checkpoint().await?);
            if self.p.groups.are_too_dirty() {
                left.nothing()?;
            }
        }
        let mut room: Option<Room> = None;
        loop {
            if self.columns(row).is_none() {
                if batch.discards() {
                    return Ok(());
                }
                // It may wait for a returning disk, which waits for the users of the space; and the space may
                // be opened again meanwhile.
                room = None;
                drop(using);
                self.space.allocate(row).await?;
                using = self.p.life.read().await;
                self.opened().await?;
                continue;
            }
            if self.p.log.is_failed() {
                self.mend().await?;
            }
            self.settle_stripes(row, &units).await?;
            let Some(group) = self.ready(batch.key, regions).await? else { continue };
            let lock = self.lock(row, units.clone()).await;
            if !self.is_ready(&group, regions) || self.p.stuck.has(row, &units) || self.p.log.is_failed() {
                continue;
            }
            if room.is_none() && self.needs_journal(&group, &batch) {
                drop(lock);
                let stripes = batch.stripes().len();
                let columns = self.p.columns();
                room = Some(self.room(record::units(stripes, columns, stripes * columns)).await?);
                continue;
            }
            if self.change_locked(&group, &batch, regions, &mut room).boxed().await? {
                return Ok(());
            }
        }
    }

    fn needs_journal(&self, group: &RowGroup, batch: &Batch) -> bool {
        let state = group.state.lock();
        batch.stripes().iter().any(|number| {
            let unit = (number - group.key.first()) as usize;
            !state.fresh.has(unit) && state.mask(unit) != 0
        })
    }

    /// One attempt, under the lock of the stripes; false when something changed meanwhile.
    async fn change_locked(
        &self,
        group: &Arc<RowGroup>,
        batch: &Batch,
        regions: u64,
        room: &mut Option<Room>,
    ) -> Result<bool, SpaceError> {
        let key = batch.key;
        // Marked before the columns are looked at: a disk that leaves after that look counts the mark.
        let mut mark = self.p.marks.begin(key.row, regions);
        let Some(columns) = self.targets(key.row) else { return Ok(false) };
        self.enough(key.row, &columns, regions)?;
        let here: Vec<Copy> = columns.iter().filter(|c| c.disk.is_some()).cloned().collect();
        self.space.miss(key.row, &columns, &here, regions).await?;
        // A disk that has joined since they were found ready counts, although its contents are unknown: a
        // later read of it would hide this write.
        if self.is_changed(key.row, &columns) || !group.state.lock().knows(&columns, regions) {
            return Ok(false);
        }
        let Some(columns) = self.targets(key.row) else { return Ok(false) };
        let stripes = self.plan(group, &columns, batch).await?;
        if stripes.is_empty() {
            return Ok(true);
        }
        if stripes.iter().any(|s| !s.fresh) && room.is_none() {
            return Ok(false);
        }
        mark.changes();
        let group = Arc::clone(group);
        let intent = Intent { key, group, regions, stripes, _mark: mark, pending: None };
        self.carry(&columns, intent, room.take()).await.map(|()| true)
    }

    /// The new contents of the stripes.
    async fn plan(
        &self,
        group: &RowGroup,
        columns: &[Copy],
        batch: &Batch,
    ) -> Result<Vec<Stripe>, SpaceError> {
        let (key, code) = (batch.key, self.p.code);
        let (data, n) = (code.data(), code.columns());
        let mut ways: Vec<(u32, Way)> = Vec::new();
        let mut wanted = vec![Units::NONE; n];
        {
            let state = group.state.lock();
            for number in batch.stripes() {
                let unit = (number - key.first()) as usize;
                let region = self.regions(&(number..number + 1));
                let was = state.mask(unit);
                let (gets, zeros) = batch.of(number);
                let changed = gets | zeros & was;
                if changed == 0 {
                    continue;
                }
                let stays = was & !changed;
                let sound = |c: usize| columns[c].is_current(region) && state.has_sum(c, unit, region);
                let goes = changed & was;
                // A parity that nothing written has a part in is zeros, and not there.
                let parities = code.parities_of(changed) & code.parities_of(was);
                let differs = goes | parities;
                let cheaper = differs.count_ones() < stays.count_ones();
                let can = (0..n).filter(|c| differs & 1 << c != 0).all(sound);
                let way = if cheaper && can { Way::Difference } else { Way::Whole };
                let reads = if way == Way::Whole { stays } else { differs };
                (0..n).filter(|c| reads & 1 << c != 0).for_each(|c| wanted[c].insert(unit));
                ways.push((number, way));
            }
        }
        let old = self.fetch(group, columns, &wanted).await?;
        let mut stripes = Vec::with_capacity(ways.len());
        let state = group.state.lock();
        for (number, way) in ways {
            let unit = (number - key.first()) as usize;
            let region = self.regions(&(number..number + 1));
            let was = state.mask(unit);
            let (gets, zeros) = batch.of(number);
            let written = (was | gets) & !zeros;
            let read = |c: usize| old.get(&(c, unit)).map(|b| &b[..]);
            let new = |c: usize| batch.changes.get(&(number, c));
            let length = UNIT as usize;
            let parities = match way {
                Way::Whole => {
                    let all: Vec<Option<&[u8]>> = (0..data)
                        .map(|c| match new(c) {
                            Some(content) => content.as_deref(),
                            None => read(c),
                        })
                        .collect();
                    code.encode(length, &all)
                }
                Way::Difference => {
                    let was = |c: usize| read(c).map_or_else(|| vec![0; length], <[u8]>::to_vec);
                    let mut parities: Vec<Vec<u8>> = (data..n).map(was).collect();
                    for c in (0..data).filter(|c| new(*c).is_some()) {
                        for (j, p) in parities.iter_mut().enumerate() {
                            for bytes in [read(c), new(c).and_then(Option::as_deref)].into_iter().flatten() {
                                code.add(j, c, bytes, p);
                            }
                        }
                    }
                    parities
                }
            };
            let mut units: Vec<(usize, IoBuf)> =
                (0..data).filter_map(|c| Some((c, new(c)?.clone()?))).collect();
            // Those that change, but for those that are not there any more.
            let changed = gets | zeros & was;
            let there = code.parities_of(changed) & code.parities_of(written);
            let parities = parities.into_iter().enumerate().map(|(j, p)| (data + j, p));
            units.extend(parities.filter(|(c, _)| there & 1 << c != 0).map(|(c, p)| (c, IoBuf::from(p))));
            let mut sums: Vec<u32> = (0..n).map(|c| state.sums[c][unit]).collect();
            let mut known = (0..n).filter(|c| state.has_sum(*c, unit, region)).fold(0, |all, c| all | 1 << c);
            for (c, bytes) in &units {
                sums[*c] = self.sum(key.row, *c, number, bytes);
                known |= 1 << c;
            }
            let fresh = state.fresh.has(unit) || was == 0;
            stripes.push(Stripe { unit: number, fresh, written, known, sums, units });
        }
        Ok(stripes)
    }

    /// Reads units of columns, made from the others where they are not as they should be.
    async fn fetch(
        &self,
        group: &RowGroup,
        columns: &[Copy],
        wanted: &[Units],
    ) -> Result<BTreeMap<(usize, usize), IoBuf>, SpaceError> {
        let reads = wanted.iter().enumerate().flat_map(|(c, units)| {
            units.stretches().into_iter().map(move |(from, to)| self.fetch_run(group, &columns[c], from, to))
        });
        let mut found = BTreeMap::new();
        let mut again = vec![Units::NONE; wanted.len()];
        for (c, unit, bytes) in join_all(reads).await.into_iter().flatten() {
            match bytes {
                Some(bytes) => drop(found.insert((c, unit), bytes)),
                None => again[c].insert(unit),
            }
        }
        for (c, units) in again.iter().enumerate() {
            for (unit, bytes) in self.heal(group, c, units).await? {
                let number = group.key.first() + unit as u32;
                let bytes = bytes.ok_or_else(|| self.corrupt(group.key.row, c, number))?;
                found.insert((c, unit), bytes);
            }
        }
        Ok(found)
    }

    async fn fetch_run(
        &self,
        group: &RowGroup,
        copy: &Copy,
        from: usize,
        to: usize,
    ) -> Vec<(usize, usize, Option<IoBuf>)> {
        let read = self.read_good(group, copy, from, to).await;
        self.p.counts.read_to_write.fetch_add((to - from) as u64, Ordering::Relaxed);
        read.into_iter().map(|(unit, bytes)| (copy.index, unit, bytes)).collect()
    }

    /// Neighbouring units of a column, of a group; `None` for those that are not what they should be, or not
    /// current. The caller has their stripes' lock.
    pub(super) async fn read_good(
        &self,
        group: &RowGroup,
        copy: &Copy,
        from: usize,
        to: usize,
    ) -> Vec<(usize, Option<IoBuf>)> {
        let (c, first) = (copy.index, group.key.first());
        let current = copy.is_current(self.regions(&(first + from as u32..first + to as u32)));
        let read = match current {
            true => self.space.read_units(copy, first + from as u32, to - from).await.map(IoBuf::from),
            false => None,
        };
        let state = group.state.lock();
        let unit = |unit: usize| {
            let number = first + unit as u32;
            let start = (unit - from) * UNIT as usize;
            let bytes = read.as_ref().map(|r| r.slice(start..start + UNIT as usize));
            let good = |b: &IoBuf| {
                state.has_sum(c, unit, self.regions(&(number..number + 1)))
                    && self.sum(group.key.row, c, number, b) == state.sums[c][unit]
            };
            (unit, bytes.filter(good))
        };
        (from..to).map(unit).collect()
    }
}
