//! Checkpoints: the blocks say what the journal said, durably, and the journal's room can be used again.
//!
//! Fresh stripes are left out: a block says of them that nothing is written. Groups that no journal entry names (repaired ones) are named first, so
//! that whoever finds them torn by a power cut knows why.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arena::IoBuf;
use disk::DiskError;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};

use super::Striped;
use super::columns::Columns;
use super::log::Room;
use super::table::{RowGroup, RowState};
use crate::UNIT;
use crate::blocks::stripes::{Block, encode};
use crate::disks::DataDisk;
use crate::journal::record::{self, Entry, Kind};
use crate::space::SpaceError;
use crate::space::copies::{Copy, blame};

/// Groups whose blocks are under way at a time.
const AT_ONCE: usize = 16;

/// Units of a record that names groups.
const NAMING: u64 = 1;

/// Between two looks at a journal that somebody else makes room in.
const ROOM_WAIT: Duration = Duration::from_millis(1);

struct Written {
    group: Arc<RowGroup>,
    columns: Vec<(Copy, Result<(), DiskError>)>,
}

impl Striped {
    /// Room in the journal for a record of so many units, made if there is none. The caller has no lock.
    ///
    /// # Errors
    /// What keeps a checkpoint from being made.
    pub(super) async fn room(&self, units: u64) -> Result<Room, SpaceError> {
        if self.p.log.is_half_full() && self.p.checkpointing.try_lock().is_ok() {
            self.checkpoint().await?;
        }
        loop {
            if let Some(room) = self.try_room(units) {
                return Ok(room);
            }
            self.checkpoint().await?;
            if let Some(room) = self.try_room(units) {
                return Ok(room);
            }
            self.settle_journaled().await?;
            self.space.path.env.sleep(ROOM_WAIT).await;
        }
    }

    /// Makes the blocks say what the journal says, and gives back the journal's room.
    ///
    /// # Errors
    /// [`SpaceError::Disk`] when a disk that cannot be spared failed; the journal keeps what it has then.
    pub(crate) fn checkpoint(&self) -> BoxFuture<'_, Result<(), SpaceError>> {
        Box::pin(async move {
            let _one = self.p.checkpointing.lock().await;
            self.checkpoint_now(true).await
        })
    }

    /// The same; the caller has `checkpointing`. Without `naming` the journal, which is being replayed, names every group there is.
    pub(super) async fn checkpoint_now(&self, naming: bool) -> Result<(), SpaceError> {
        let began = self.p.marks.now();
        let to = self.p.log.in_place();
        let mut groups = self.p.groups.all_dirty();
        groups.retain(|g| g.state.lock().stale);
        if naming {
            groups = self.named(groups).await?;
        }
        let mut blocks =
            futures_util::stream::iter(groups).map(|g| self.write_blocks(g, naming)).buffered(AT_ONCE);
        let mut written: Vec<Written> = Vec::new();
        while let Some(one) = blocks.next().await {
            written.extend(one);
        }
        let result = self.account(&written).await;
        if result.is_err() {
            for w in &written {
                self.p.groups.stale(&w.group, &mut w.group.state.lock());
            }
            return result;
        }
        written.iter().for_each(|w| self.p.marks.blocks_end(w.group.key));
        self.trim(to).await?;
        let fresh: Vec<(crate::RowNumber, u64)> = self
            .p
            .groups
            .all_dirty()
            .iter()
            .map(|g| {
                let units = g.state.lock().fresh;
                (g.key.row, self.regions_of(g, &units))
            })
            .collect();
        let of = |row| fresh.iter().filter(|(r, _)| *r == row).fold(0, |all, (_, regions)| all | regions);
        self.p.marks.durable(began, of);
        Ok(())
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
                group.state.lock().named = pending.named();
                named.push(group);
            }
        }
        Ok(named)
    }

    /// Writes the blocks of a group; `None` when its row is gone. It is marked until whoever gets the result knows that they are durable.
    async fn write_blocks(&self, group: Arc<RowGroup>, naming: bool) -> Option<Written> {
        let key = group.key;
        // Before the columns are looked at: a disk that leaves after that look has missed the group.
        self.p.marks.blocks_begin(key, self.regions(&key.units()));
        let written = self.write_generation(group, naming).await;
        if written.is_none() {
            self.p.marks.blocks_end(key);
        }
        written
    }

    /// Gives a group a new generation and writes its blocks to every column; `None` when its row is gone.
    async fn write_generation(&self, group: Arc<RowGroup>, naming: bool) -> Option<Written> {
        let key = group.key;
        let mut own: BTreeMap<usize, Option<Block>> = BTreeMap::new();
        let (here, blocks) = loop {
            let columns: Columns = self.columns(key.row)?;
            let here: Vec<Copy> = columns.into_iter().filter(|c| c.disk.is_some()).collect();
            let unread = match self.blocks_of(&group, &here, &own, naming)? {
                Ok(blocks) => break blocks,
                Err(unread) => unread,
            };
            for copy in unread {
                own.insert(copy.index, self.read_block(key, &copy).await.ok());
            }
        };
        let writes = here.iter().zip(blocks).map(|(c, block)| async move {
            let disk = c.disk.as_ref()?;
            Some(disk.write(c.block_at(disk, key.group), [IoBuf::from(block)].into_iter().collect()).await)
        });
        let results = join_all(writes).await.into_iter().flatten();
        let columns = here.iter().cloned().zip(results).collect();
        Some(Written { group, columns })
    }

    /// The new blocks of the columns that get one; or those whose own blocks have to be read before, because they know of regions what memory does
    /// not. `None` when the row is gone.
    #[allow(clippy::type_complexity)] // of what one caller takes apart at once
    fn blocks_of(
        &self,
        group: &RowGroup,
        here: &[Copy],
        own: &BTreeMap<usize, Option<Block>>,
        naming: bool,
    ) -> Option<Result<(Vec<Copy>, Vec<Vec<u8>>), Vec<Copy>>> {
        let key = group.key;
        let mut state = group.state.lock();
        if state.flags.dead {
            return None;
        }
        let regions = self.regions(&key.units());
        let unknown = |s: &RowState, c: &Copy| regions & (!s.mapped | (c.current() & !s.known[c.index]));
        let unread: Vec<Copy> =
            here.iter().filter(|c| unknown(&state, c) != 0 && !own.contains_key(&c.index)).cloned().collect();
        if !unread.is_empty() {
            return Some(Err(unread));
        }
        // Who knows more than memory and cannot be asked keeps what he has.
        let can = |s: &RowState, c: &Copy| {
            let told = own.get(&c.index).and_then(Option::as_ref);
            unknown(s, c) == 0 || told.is_some_and(|b| !naming || b.generation >= s.wrote[c.index])
        };
        let chosen: Vec<Copy> = here.iter().filter(|c| can(&state, c)).cloned().collect();
        state.generation += 1;
        for told in own.values().flatten() {
            state.generation = state.generation.max(told.generation + 1);
        }
        let generation = state.generation;
        chosen.iter().for_each(|c| state.wrote[c.index] = generation);
        state.stale = false;
        self.p.groups.clean(group, &mut state);
        if chosen.len() < here.len() {
            self.p.groups.stale(group, &mut state);
        } else if !state.fresh.is_empty() {
            // What is fresh waits for the next one.
            self.p.groups.dirty(group, &mut state);
        }
        let block = |c: &Copy| {
            let mut block = Block {
                generation,
                wrote: state.wrote.clone(),
                written: state.written.iter().map(|w| w.without(&state.fresh)).collect(),
                lost: state.lost[c.index],
                sums: Box::new(state.sums[c.index]),
            };
            if let (unknown, Some(Some(told))) = (unknown(&state, c), own.get(&c.index)) {
                for unit in self.space.inner.regions.in_group(key.group, unknown).iter() {
                    let written = block.written.iter_mut().zip(&told.written);
                    written.for_each(|(to, from)| to.set(unit, from.has(unit)));
                    block.lost.set(unit, told.lost.has(unit));
                    block.sums[unit] = told.sums[unit];
                }
            }
            encode(&self.block_id(key.row, key.group, c), &block)
        };
        let blocks = chosen.iter().map(block).collect();
        Some(Ok((chosen, blocks)))
    }

    /// Flushes the disks, deals with what failed, and says whether it is good: every column that counts in a region that was changed has its block.
    async fn account(&self, written: &[Written]) -> Result<(), SpaceError> {
        let all = written.iter().flat_map(|w| &w.columns);
        let mut disks: Vec<Arc<DataDisk>> = all.filter_map(|(c, _)| c.disk.clone()).collect();
        disks.sort_by_key(|d| d.number);
        disks.dedup_by_key(|d| d.number);
        let failed = self.flush_disks(&disks).await?;
        for w in written {
            let (row, regions) = (w.group.key.row, self.regions(&w.group.key.units()));
            for (copy, result) in &w.columns {
                if let Err(error) = result {
                    match self.space.fail_copy(row, copy, regions, error).await {
                        Ok(()) | Err(SpaceError::Disk { .. }) => {}
                        Err(other) => return Err(other),
                    }
                }
            }
        }
        for w in written {
            let row = w.group.key.row;
            let Some(now) = self.columns(row) else { continue };
            let regions = self.regions(&w.group.key.units());
            let used = self.p.marks.of(row) & regions;
            for (copy, result) in &w.columns {
                let flush = failed.iter().find(|(number, _)| *number == copy.number).map(|(_, e)| *e);
                let error = result.err().or(flush);
                let counts = now.iter().any(|c| c.index == copy.index && c.current() & regions != 0);
                if let (Some(error), true) = (error, counts) {
                    return Err(blame(copy.number, error));
                }
            }
            // Who is here and has no block has come since, and missed what changed.
            self.enough(row, &now, used)?;
        }
        Ok(())
    }
}

const _: () = assert!(UNIT as usize == crate::blocks::BLOCK);
