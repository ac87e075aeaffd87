//! Checkpoints: the blocks say what the journal said, durably, and the journal's room can be used again.
//!
//! The order: everything in place so far (`to`), the blocks, a flush of every disk with a column of a group,
//! then the journal's header, then the marks. A column that fails on the way and counts in the changed
//! regions ends it; one that counts elsewhere in the group only is not recorded as having its block, in the
//! others' blocks, before the header is written.
//!
//! Fresh stripes are skipped: a block records them as unwritten. Groups that no journal entry names (repaired
//! ones) are named first, so that a reader that finds them torn by a power cut knows the reason.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arena::IoBuf;
use disk::DiskError;
use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, StreamExt};

use super::Striped;
use super::log::Room;
use super::table::{RowGroup, RowKey};
use crate::UNIT;
use crate::blocks::stripes::{Block, encode};
use crate::disks::DataDisk;
use crate::journal::record::{self, Entry, Kind};
use crate::journal::ring::Point;
use crate::space::SpaceError;
use crate::space::copies::{Copy, blame};
use crate::space::left::Left;

/// Groups with outstanding blocks at a time.
const AT_ONCE: usize = 16;

/// Units of a record that names groups.
const NAMING: u64 = 1;

/// Interval between checks of a journal in which another task frees room.
const ROOM_WAIT: Duration = Duration::from_millis(1);

/// Checks a journal that keeps what checkpoints skip, until the waiter gets a reason.
const ROOM_TRIES: usize = 64;

struct Written {
    group: Arc<RowGroup>,
    columns: Vec<(Copy, Result<(), DiskError>)>,
    /// Of each column, the generation of the block that it has durably.
    before: Vec<u64>,
    /// The oldest record that its blocks before these do not say, as
    /// [`RowState::since`](super::table::RowState) has it.
    since: u64,
}

/// The information required before the blocks can be encoded.
enum Lacks {
    /// The parts of counting columns that memory does not know.
    Table,
    /// The contents of these columns' own blocks for regions unknown to memory.
    Own(Vec<Copy>),
}

impl Striped {
    /// Reserves room in the journal for a record of this many units; frees some if there is none. The caller
    /// holds no lock.
    ///
    /// # Errors
    /// What keeps a checkpoint from being made.
    pub(super) async fn room(&self, units: u64) -> Result<Room, SpaceError> {
        // Where the last one left something, and so much of the journal with it, the next one waits until it has to be.
        let worth = self.p.log.is_half_full() && !self.p.leaves.load(Ordering::Relaxed);
        if worth && self.p.checkpointing.try_lock().is_ok() {
            self.checkpoint().await?;
        }
        let mut tries = 0;
        loop {
            if let Some(room) = self.try_room(units) {
                return Ok(room);
            }
            let left = self.checkpoint().await?;
            if let Some(room) = self.try_room(units) {
                return Ok(room);
            }
            self.settle_journaled().await?;
            if tries == ROOM_TRIES {
                left.nothing()?;
            }
            tries = (tries + 1).min(ROOM_TRIES);
            self.space.path.env.sleep(ROOM_WAIT).await;
        }
    }

    /// Writes the journal's contents to the blocks, and frees the journal's room, as far as possible; returns
    /// the groups that wait.
    ///
    /// # Errors
    /// When the journal cannot be written, or the metadata; the journal keeps its contents then.
    pub(crate) fn checkpoint(&self) -> BoxFuture<'_, Result<Left, SpaceError>> {
        Box::pin(async move {
            let _one = self.p.checkpointing.lock().await;
            self.checkpoint_now(true).await
        })
    }

    /// The same; the caller has `checkpointing`. Without `naming` the journal, which is being replayed, names
    /// every group there is.
    pub(super) async fn checkpoint_now(&self, naming: bool) -> Result<Left, SpaceError> {
        let began = self.p.marks.now();
        let to = self.p.log.in_place();
        // Over all rounds: blocks written in one are not written in the next, and groups skipped in one are
        // not tried in the next.
        let (mut begun, mut left) = (Vec::new(), BTreeMap::new());
        loop {
            let mut groups = self.p.groups.all_dirty();
            groups.retain(|g| !left.contains_key(&g.key) && g.state.lock().stale);
            if naming {
                groups = self.named(groups).await?;
            }
            let blocks = groups.into_iter().map(async |g| (g.key, self.write_blocks(g, naming).await));
            let mut blocks = futures_util::stream::iter(blocks).buffered(AT_ONCE);
            let mut written: Vec<Written> = Vec::new();
            while let Some((key, one)) = blocks.next().await {
                match one {
                    Ok(one) => written.extend(one),
                    Err(error) => drop(left.insert(key, error)),
                }
            }
            begun.extend(written.iter().map(|w| w.group.key));
            let accounts = self.account(&mut written).await;
            let mut again = false;
            for (at, w) in written.iter().enumerate() {
                let account =
                    accounts.as_ref().map_or_else(|error| Err(error.clone()), |all| all[at].clone());
                // The others' blocks record that a removed column, which counts, has a block that it does not
                // have.
                again |= self.take_back(w, account.is_err());
                left.extend(account.err().map(|error| (w.group.key, error)));
            }
            accounts?;
            if !again {
                break;
            }
        }
        begun.iter().filter(|key| !left.contains_key(key)).for_each(|key| self.p.marks.blocks_end(*key));
        self.p.leaves.store(!left.is_empty(), Ordering::Relaxed);
        let all = |left: BTreeMap<RowKey, SpaceError>| {
            left.into_iter().map(|(key, error)| (key.group_key(), error)).collect()
        };
        if !naming && !left.is_empty() {
            // Until replayed data is in place, the journal alone is valid.
            return Ok(all(left));
        }
        self.trim(self.before_left(to, left.keys())).await?;
        let waiting: Vec<(crate::RowNumber, u64)> = self
            .p
            .groups
            .all_dirty()
            .iter()
            .map(|g| {
                let state = g.state.lock();
                // One that a flush made stale meanwhile has no block of its new stripes: a disk that leaves
                // before the next checkpoint has missed them.
                let regions = match state.stale {
                    true => self.regions(&g.key.units()),
                    false => self.regions_of(g, &state.fresh),
                };
                (g.key.row, regions)
            })
            .collect();
        let of = |row| waiting.iter().filter(|(r, _)| *r == row).fold(0, |all, (_, regions)| all | regions);
        self.p.marks.durable(began, of);
        Ok(all(left))
    }

    /// How far the journal is not needed any more, of what is before `to`: records that say what is in no
    /// block of these groups stay, and the one that names a group whose blocks may be torn now.
    fn before_left<'a>(&self, to: Point, left: impl Iterator<Item = &'a RowKey>) -> Point {
        let since = left.filter_map(|key| {
            let group = self.p.groups.get(*key);
            let state = group.state.lock();
            let oldest = if state.since != 0 { state.since } else { state.named };
            oldest.checked_sub(1)
        });
        since.min().map_or(to, |position| self.p.log.no_later(to, position))
    }

    /// Withdraws the record that columns have their new blocks, for those that may not have them (`all`: for
    /// every one). Returns whether a block has to be written again, to record that for later loads of the
    /// group: a column that has missed all of it needs none, nor does a skipped group.
    fn take_back(&self, w: &Written, all: bool) -> bool {
        let mut again = false;
        let regions = self.regions(&w.group.key.units());
        let now = self.targets(w.group.key.row).unwrap_or_default();
        let mut state = w.group.state.lock();
        for (copy, result) in w.columns.iter().filter(|(_, result)| all || result.is_err()) {
            if !copy.is_new() {
                state.wrote[copy.index] = w.before[copy.index];
            }
            let counts = now.iter().any(|c| c.index == copy.index && regions & !c.missed != 0);
            if all || result.is_err() && counts {
                again = !all;
                self.p.groups.stale(&w.group, &mut state);
            }
        }
        // The entry that names it stays as long as its blocks are not durable: they may be torn.
        if (all || again) && w.since != 0 {
            state.name(w.since);
        }
        again
    }

    /// Names in the journal the groups that it does not name; those that there is no room for stay dirty.
    async fn named(&self, groups: Vec<Arc<RowGroup>>) -> Result<Vec<Arc<RowGroup>>, SpaceError> {
        let has = |g: &Arc<RowGroup>| self.p.log.has(g.state.lock().named);
        let (mut named, unnamed): (Vec<_>, Vec<_>) = groups.into_iter().partition(has);
        let mut fits = 0;
        while fits < unnamed.len() && record::units(fits + 1, self.p.columns(), 0) <= NAMING {
            fits += 1;
        }
        let entry = |g: &Arc<RowGroup>| {
            Some(Entry {
                kind: Kind::Touched,
                row: g.key.row,
                birth: Striped::birth(&self.columns(g.key.row)?),
                unit: g.key.first(),
                written: 0,
                known: 0,
                payload: 0,
                sums: Vec::new(),
            })
        };
        let entries: Vec<Entry> = unnamed[..fits].iter().filter_map(entry).collect();
        if !entries.is_empty()
            && let Some(room) = self.spare_room(NAMING)
        {
            let pending = self.append(entries, Vec::new(), room).await?;
            for group in unnamed.into_iter().take(fits) {
                group.state.lock().name(pending.named());
                named.push(group);
            }
        }
        Ok(named)
    }

    /// Writes the blocks of a group; `None` when its row is freed. It stays marked until the caller knows
    /// that they are durable.
    async fn write_blocks(&self, group: Arc<RowGroup>, naming: bool) -> Result<Option<Written>, SpaceError> {
        let key = group.key;
        // Before the columns are looked at: a disk that leaves after that look has missed the group.
        self.p.marks.blocks_begin(key, self.regions(&key.units()));
        let written = self.write_generation(group, naming).await;
        if let Ok(None) = &written {
            self.p.marks.blocks_end(key);
        }
        written
    }

    /// Gives a group a new generation and writes its blocks to every column; `None` when its row is gone.
    async fn write_generation(
        &self,
        group: Arc<RowGroup>,
        naming: bool,
    ) -> Result<Option<Written>, SpaceError> {
        let key = group.key;
        let mut own: BTreeMap<usize, Option<Block>> = BTreeMap::new();
        let (here, (blocks, before, since)) = loop {
            let Some(columns) = self.targets(key.row) else { return Ok(None) };
            match self.blocks_of(&group, &columns, &own) {
                None => return Ok(None),
                Some(Ok(made)) => {
                    let here: Vec<Copy> = columns.into_iter().filter(|c| c.disk.is_some()).collect();
                    break (here, made);
                }
                // The next iteration sees the loaded state.
                Some(Err(Lacks::Table)) => {
                    self.load(&group, &columns, !naming).boxed().await?;
                }
                Some(Err(Lacks::Own(unread))) => {
                    for copy in unread {
                        own.insert(copy.index, self.read_block(key, &copy).await.ok());
                    }
                }
            }
        };
        let writes = here.iter().zip(blocks).map(|(c, block)| async move {
            let disk = c.disk.as_ref()?;
            Some(disk.write(c.block_at(disk, key.group), [IoBuf::from(block)].into_iter().collect()).await)
        });
        let results = join_all(writes).await.into_iter().flatten();
        let columns = here.iter().cloned().zip(results).collect();
        Ok(Some(Written { group, columns, before, since }))
    }

    /// The new blocks of the present columns, the previous generations of all, and the oldest record that
    /// they do not include; or the missing information. `None` when the row is freed.
    #[allow(clippy::type_complexity)] // of what one caller takes apart at once
    fn blocks_of(
        &self,
        group: &RowGroup,
        columns: &[Copy],
        own: &BTreeMap<usize, Option<Block>>,
    ) -> Option<Result<(Vec<Vec<u8>>, Vec<u64>, u64), Lacks>> {
        let key = group.key;
        let mut state = group.state.lock();
        if state.flags.dead {
            return None;
        }
        let regions = self.regions(&key.units());
        let here = || columns.iter().filter(|c| c.disk.is_some());
        let columns_here = || here().filter(|c| !c.is_new());
        if here().any(|c| regions & c.current() & !(state.mapped & state.known[c.slab_of]) != 0) {
            return Some(Err(Lacks::Table));
        }
        let vague = regions & !state.mapped;
        let unread: Vec<Copy> =
            columns_here().filter(|c| vague != 0 && !own.contains_key(&c.index)).cloned().collect();
        if !unread.is_empty() {
            return Some(Err(Lacks::Own(unread)));
        }
        // Above all generations before this opening, on any disk: the newest block is the last one written.
        let first = self.space.path.io.epoch.0.min(u64::from(u32::MAX)) << 32;
        let given = self.p.generation.load(Ordering::Relaxed).max(first).max(state.generation);
        let generation = given.saturating_add(1);
        self.p.generation.fetch_max(generation, Ordering::Relaxed);
        state.generation = generation;
        let before = state.wrote.clone();
        let since = std::mem::take(&mut state.since);
        columns_here().for_each(|c| state.wrote[c.index] = generation);
        state.stale = false;
        self.p.groups.clean(group, &mut state);
        if !state.fresh.is_empty() {
            // Fresh stripes wait for the next one.
            self.p.groups.dirty(group, &mut state);
        }
        let block = |c: &Copy| {
            let mut block = Block {
                generation,
                wrote: state.wrote.clone(),
                written: state.written.iter().map(|w| w.without(&state.fresh)).collect(),
                lost: state.lost[c.slab_of],
                sums: Box::new(state.sums[c.slab_of]),
            };
            if let Some(Some(told)) = own.get(&c.index) {
                for unit in self.space.inner.regions.in_group(key.group, vague).iter() {
                    let written = block.written.iter_mut().zip(&told.written);
                    written.for_each(|(to, from)| to.set(unit, from.has(unit)));
                    block.lost.set(unit, told.lost.has(unit));
                    block.sums[unit] = told.sums[unit];
                }
            }
            encode(&self.block_id(key.row, key.group, c), &block)
        };
        Some(Ok((here().map(block).collect(), before, since)))
    }

    /// Flushes the disks, handles failures, and returns for each group whether it is complete: every column
    /// that counts in a changed region has its block.
    async fn account(&self, written: &mut [Written]) -> Result<Vec<Result<(), SpaceError>>, SpaceError> {
        let all = written.iter().flat_map(|w| &w.columns);
        let mut disks: Vec<Arc<DataDisk>> = all.filter_map(|(c, _)| c.disk.clone()).collect();
        disks.sort_by_key(|d| d.number);
        disks.dedup_by_key(|d| d.number);
        let failed = self.flush_disks(&disks).await?;
        for w in written.iter_mut() {
            let (row, regions) = (w.group.key.row, self.regions(&w.group.key.units()));
            for (copy, result) in &mut w.columns {
                if let Err(error) = result {
                    match self.space.fail_copy(row, copy, regions, error).await {
                        Ok(()) | Err(SpaceError::Disk { .. }) => {}
                        Err(other) => return Err(other),
                    }
                } else if let Some((_, error)) = failed.iter().find(|(disk, _)| disk.number == copy.number) {
                    *result = Err(*error);
                }
            }
        }
        Ok(written.iter().map(|w| self.account_of(w)).collect())
    }

    fn account_of(&self, w: &Written) -> Result<(), SpaceError> {
        let row = w.group.key.row;
        let Some(now) = self.targets(row) else { return Ok(()) };
        let regions = self.regions(&w.group.key.units());
        let used = self.p.marks.of(row) & regions;
        for (copy, result) in &w.columns {
            // One whose disk is back meanwhile gets another block.
            let counts = now.iter().any(|c| c.is_as(copy) && c.current() & regions != 0);
            if let (Err(error), true) = (result, counts) {
                return Err(blame(copy.number, *error));
            }
        }
        // A present column without a block has joined since, and missed the change.
        self.enough(row, &now, used)
    }
}

const _: () = assert!(UNIT as usize == crate::blocks::BLOCK);
