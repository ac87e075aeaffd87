//! Reading a group's table for the first time, from every current copy.
//!
//! Of each region the current copy with the highest generation is believed. The others must say the same: one
//! that does not has lost writes or is an old state of its disk, so its units are compared with the data at
//! once, before it may be the last copy that is left. An older generation alone is nothing bad: the disk was
//! away while other regions of the group were written.

use std::cmp::Reverse;

use futures_util::future::join_all;

use super::copies::{Copies, Copy, blame, current};
use super::flush::BadBlock;
use super::resolve::is_silence;
use super::{Space, SpaceError};
use crate::blocks::Units;
use crate::blocks::checksums::Table;
use crate::events::{Finding, Found};
use crate::groups::Group;

/// A copy, and what its checksum block says: a generation, and a table.
pub(super) type Block<'a> = (&'a Copy, Result<(u64, Box<Table>), BadBlock>);

impl Space {
    /// Makes known what can be; nothing, and without an error, when it has to be tried again. Its caller has
    /// `preparing` and no range.
    pub(super) async fn load(&self, group: &Group) -> Result<(), SpaceError> {
        let key = group.key;
        let (mut copies, mut wanted);
        let blocks = loop {
            let Some(now) = self.inner.copies(&self.path, key.row, key.column) else { return Ok(()) };
            copies = now;
            wanted = group.state.lock().unknown & current(&copies) & !self.inner.unresolved.of(key);
            if wanted == 0 {
                return Ok(());
            }
            let blocks = self.read_blocks(group, &copies, wanted).await;
            if !self.is_changed(key.row, key.column, &copies) {
                break blocks;
            }
            // A slab moved, and may belong to another row now: the data read is ignored.
        };
        let (mut suspect, mut bad) = (Units::NONE, Vec::new());
        let mut filled = Table::default();
        for region in (0..crate::REGIONS).map(|r| 1 << r).filter(|r| wanted & r != 0) {
            let units = self.inner.regions.in_group(key.group, region);
            let told = || blocks.iter().filter(|(c, _)| c.is_current(region));
            let best = told()
                .filter_map(|(c, b)| b.as_ref().ok().map(|(g, t)| (*g, Reverse(c.index), t)))
                .max_by_key(|(generation, index, _)| (*generation, *index));
            let Some((_, Reverse(index), best)) = best else {
                for (copy, block) in told() {
                    match block {
                        Err(BadBlock::Disk(error)) if is_silence(error) => {
                            let (path, inner) = (&self.path, &self.inner);
                            return match inner.has_come(path, key.row, key.column, &copies, region) {
                                true => Ok(()),
                                false => Err(blame(copy.number, *error)),
                            };
                        }
                        _ => bad.push(copy.number),
                    }
                }
                units.iter().for_each(|u| filled.lost.insert(u));
                continue;
            };
            filled.take(best, &units);
            // A copy that lost its units does not decide for the others. If a block has the checksum, it is
            // known, although no copy had the unit.
            for (_, table) in told().filter_map(|(c, b)| Some((c, &b.as_ref().ok()?.1))) {
                let knows = filled.lost.without(&filled.written).and(&units).without(&table.lost);
                filled.take(table, &knows);
            }
            for (copy, block) in told().filter(|(c, _)| c.index != index) {
                let before = suspect;
                match block {
                    Ok((_, table)) => suspect = suspect.or(&best.differ(table, &units)),
                    Err(_) => suspect = suspect.or(&units),
                }
                // A disk that does not answer has not lost its table.
                let is_silent = matches!(block, Err(BadBlock::Disk(e)) if is_silence(e));
                if (block.is_err() || suspect != before) && !is_silent {
                    bad.push(copy.number);
                }
            }
        }
        bad.sort_unstable();
        bad.dedup();
        for disk in &bad {
            let address = self.inner.address_in(key, 0);
            self.path.events.add(Finding {
                found: Found::BadTable,
                disk: *disk,
                space: self.inner.id,
                address,
            });
        }
        {
            let mut state = group.state.lock();
            let fill = wanted & state.unknown;
            let units = self.inner.regions.in_group(key.group, fill);
            state.table.take(&filled, &units);
            let settled = filled.written.without(&suspect).and(&units);
            state.settled = state.settled.without(&units).or(&settled);
            state.unknown &= !fill;
            let newest = blocks.iter().filter_map(|(_, b)| b.as_ref().ok().map(|(g, _)| *g)).max();
            state.generation = state.generation.max(newest.unwrap_or(0));
            if !bad.is_empty() {
                self.inner.groups.dirty(group, &mut state);
            }
        }
        if !suspect.is_empty() {
            let _units = self.inner.locks.lock(key.row, key.column, key.units()).await;
            self.heal(group, &suspect).await?;
        }
        Ok(())
    }

    /// The blocks of the copies that are current in any of these regions.
    pub(super) async fn read_blocks<'a>(
        &self,
        group: &Group,
        copies: &'a Copies,
        regions: u64,
    ) -> Vec<Block<'a>> {
        let current = copies.iter().filter(|c| c.current() & regions != 0);
        let reads = current.filter_map(|c| {
            let disk = c.disk.as_ref()?;
            Some(async move { (c, self.read_block(c, disk, group.key).await) })
        });
        join_all(reads).await
    }
}
