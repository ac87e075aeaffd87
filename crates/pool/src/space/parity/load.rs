//! Reading what the blocks say of a group, from every column that is current.
//!
//! In each region the block with the highest generation among the current columns defines what is written,
//! and which generation every column should have. A column with an older block than that has lost writes: its
//! sums are ignored, and its units are computed from the others. Only if a journal entry names the group
//! (`relaxed`) may a power cut have torn its blocks; then a column's block is valid wherever no entry says
//! otherwise ([`doubt`](super::doubt)).

use std::sync::Arc;

use disk::DiskError;
use futures_util::FutureExt;
use futures_util::future::join_all;

use super::Striped;
use super::columns::usable;
use super::table::{RowGroup, RowKey};
use crate::blocks::stripes::{Block, decode};
use crate::blocks::{BLOCK, BlockId, Units};
use crate::events::{Finding, Found};
use crate::space::SpaceError;
use crate::space::copies::{Copy, blame, current};
use crate::space::resolve::is_silence;
use crate::{REGIONS, RowNumber};

/// Why a block says nothing.
pub(super) enum Bad {
    Damaged,
    Disk(DiskError),
}

/// The result of reading the blocks.
pub(super) enum Loaded {
    Well,
    /// Some units' sums are lost, or doubted.
    Suspect,
    /// A disk failed and does not count here any more: nothing was made known, look again.
    Again,
}

impl Striped {
    /// The group, with these regions known and usable; `None` when its row has no slabs.
    pub(super) async fn ready(&self, key: RowKey, regions: u64) -> Result<Option<Arc<RowGroup>>, SpaceError> {
        self.prepared(key, regions, None).await
    }

    /// The group, with these regions known, and usable unless this column is current there.
    pub(super) async fn prepared(
        &self,
        key: RowKey,
        regions: u64,
        column: Option<usize>,
    ) -> Result<Option<Arc<RowGroup>>, SpaceError> {
        loop {
            let group = self.p.groups.get(key);
            if self.is_prepared(&group, regions, column) {
                return Ok(Some(group));
            }
            let one = group.preparing.lock().await;
            if self.is_prepared(&group, regions, column) {
                drop(one);
                return Ok(Some(group));
            }
            let Some(columns) = self.columns(key.row) else { return Ok(None) };
            if group.state.lock().flags.dead {
                continue;
            }
            if !column.is_some_and(|c| columns[c].is_current(regions)) {
                self.enough(key.row, &columns, regions)?;
            }
            match self.load(&group, &columns, false).await? {
                Loaded::Again | Loaded::Well => {}
                Loaded::Suspect => self.heal_lost(&group).boxed().await?,
            }
        }
    }

    /// Whether regions are known in every column that is current there. Changes for the worse when a disk
    /// returns or the row goes.
    pub(super) fn is_ready(&self, group: &RowGroup, regions: u64) -> bool {
        self.is_prepared(group, regions, None)
    }

    /// The same for a reader of one column: the group need not be usable if that column is current.
    pub(super) fn is_prepared(&self, group: &RowGroup, regions: u64, column: Option<usize>) -> bool {
        let Some(columns) = self.columns(group.key.row) else { return false };
        let enough = column.is_some_and(|c| columns[c].is_current(regions))
            || regions & !usable(&self.p, &columns) == 0;
        let state = group.state.lock();
        enough && !state.flags.dead && state.mapped & regions == regions && state.knows(&columns, regions)
    }

    /// Makes known what can be. The caller has `preparing`.
    ///
    /// # Errors
    /// Of a disk that failed and cannot be spared.
    pub(super) async fn load(
        &self,
        group: &RowGroup,
        columns: &[Copy],
        relaxed: bool,
    ) -> Result<Loaded, SpaceError> {
        let key = group.key;
        let here = self.regions(&key.units()) & current(columns);
        let reads = columns.iter().filter(|c| !c.is_new() && c.current() & here != 0);
        let reads = reads.map(|c| async move { (c, self.read_block(key, c).await) });
        let blocks: Vec<(&Copy, Result<Block, Bad>)> = join_all(reads).await;
        let mut gone = false;
        for (copy, block) in &blocks {
            // A disk that does not answer has lost nothing: it is absent from now on. Otherwise its data
            // would be recorded as lost, and stay so when it returns.
            if let Err(Bad::Disk(error)) = block
                && is_silence(error)
            {
                self.space.fail_copy(key.row, copy, here & copy.current(), error).boxed().await?;
                gone = true;
            }
        }
        let doubted = if gone { Vec::new() } else { self.doubted(group, &blocks, here, relaxed) };
        let mut unlike = vec![Units::NONE; self.p.columns()];
        for (copy, found) in self.unlike(key, &doubted).await {
            match found {
                Ok(units) => unlike[copy.index] = units,
                Err(error) => {
                    self.space.fail_copy(key.row, copy, here & copy.current(), &error).boxed().await?;
                    gone = true;
                }
            }
        }
        if gone {
            return Ok(Loaded::Again);
        }
        let mut bad = Vec::new();
        let mut suspect = false;
        {
            let mut state = group.state.lock();
            // A disk that was removed meanwhile may have missed later changes of the table.
            let now = self.columns(key.row).unwrap_or_default();
            let stays = |c: &Copy, region| now.iter().any(|n| n.is_as(c) && n.is_current(region));
            for region in (0..REGIONS).map(|r| 1_u64 << r).filter(|r| here & r != 0) {
                let units = self.space.inner.regions.in_group(key.group, region);
                let told = || blocks.iter().filter(|(c, _)| c.is_current(region) && stays(c, region));
                if told().next().is_none() {
                    continue;
                }
                let newest = told().filter_map(|(_, b)| b.as_ref().ok()).max_by_key(|b| b.generation);
                let those = |good: bool| {
                    let of = told().filter(|(_, b)| !good || b.is_ok());
                    of.fold(0_u32, |all, (c, _)| all | 1 << c.index)
                };
                let (all, good) = (those(false), those(true));
                let short = if self.p.code.decodes(all) { !self.p.code.decodes(good) } else { good != all };
                let failed = told().find_map(|(c, b)| match b {
                    Err(Bad::Disk(error)) => Some(blame(c.number, *error)),
                    _ => None,
                });
                if let (true, Some(error)) = (short, failed) {
                    // It may be readable another time.
                    return Err(error);
                }
                if state.mapped & region == 0 {
                    for (c, written) in state.written.iter_mut().enumerate() {
                        // Without any block the written units are unknown: all count as written, and lost.
                        units.iter().for_each(|u| written.set(u, newest.is_none_or(|b| b.written[c].has(u))));
                    }
                    state.mapped |= region;
                    if let Some(newest) = newest {
                        state.generation = state.generation.max(newest.generation);
                    }
                    // A power cut may have kept from a column the block that the others record for it; for an
                    // absent column that is unknown.
                    if let Some(newest) = newest.filter(|_| !relaxed) {
                        state.wrote.iter_mut().zip(&newest.wrote).for_each(|(w, n)| *w = (*w).max(*n));
                    }
                }
                for (copy, block) in told() {
                    let c = copy.index;
                    if state.known[c] & region != 0 {
                        continue;
                    }
                    let wrote =
                        newest.map_or(0, |b| b.wrote[c]).max(if relaxed { 0 } else { state.wrote[c] });
                    match block {
                        Ok(b) if relaxed || b.generation >= wrote => {
                            let lost = b.lost.or(&unlike[c]).and(&units);
                            for u in units.iter() {
                                state.sums[c][u] = b.sums[u];
                                state.lost[c].set(u, lost.has(u));
                            }
                            suspect |= !lost.is_empty();
                            if !unlike[c].and(&units).is_empty() {
                                bad.push(copy.number);
                            }
                        }
                        _ => {
                            let there = state.there(c).and(&units);
                            suspect |= !there.is_empty();
                            state.lost[c] = state.lost[c].or(&there);
                            bad.push(copy.number);
                        }
                    }
                    state.known[c] |= region;
                }
            }
            state.doubted |= doubted.iter().fold(0, |all, d| all | 1 << d.copy.index);
            suspect |= !doubted.is_empty();
            // A doubted unit that proved right is confirmed by the next block.
            if !bad.is_empty() || !doubted.is_empty() {
                self.p.groups.stale(group, &mut state);
            }
        }
        bad.sort_unstable();
        bad.dedup();
        for disk in bad {
            let address = self.address(key.row, 0, key.first());
            let space = self.space.inner.id;
            self.space.path.events.add(Finding { found: Found::BadTable, disk, space, address });
        }
        Ok(if suspect { Loaded::Suspect } else { Loaded::Well })
    }

    pub(super) async fn read_block(&self, key: RowKey, copy: &Copy) -> Result<Block, Bad> {
        let Some(disk) = &copy.disk else { return Err(Bad::Damaged) };
        let at = copy.block_at(disk, key.group);
        let bytes = disk.read_vec(&self.space.path.io, at, BLOCK).await.map_err(Bad::Disk)?;
        let id = self.block_id(key.row, key.group, copy);
        decode(&bytes, &id, self.p.data(), self.p.code.parity()).map_err(|_| Bad::Damaged)
    }

    pub(super) fn block_id(&self, row: RowNumber, group: u32, copy: &Copy) -> BlockId {
        BlockId {
            pool: self.space.path.pool,
            space: self.space.inner.id,
            row,
            index: copy.slab_of as u8,
            group,
            allocation: copy.generation,
        }
    }
}
