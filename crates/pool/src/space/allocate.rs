//! Slabs for a row, at its first write. A pool that is not whole gives slabs of disks that are absent, or
//! have not joined yet, where it must: they have missed everything until they are resynchronised, which
//! writes their blocks, too.
//!
//! The new slabs' checksum blocks are written and flushed before the row exists: from then on an unreadable
//! block is damage. They carry the generation that the slabs are about to get; no other slab gets one
//! meanwhile (`path`, invariant 2).

use std::collections::BTreeSet;
use std::sync::Arc;

use arena::IoBuf;
use futures_util::future::join_all;

use super::{Space, SpaceError};
use crate::CommitError;
use crate::blocks::BlockId;
use crate::blocks::checksums::{Table, encode};
use crate::blocks::stripes;
use crate::book::Life;
use crate::disks::DataDisk;
use crate::{Absence, DiskNumber, GROUP, InvalidOp, Op, RowNumber, SlabPlace, placement};

impl Space {
    /// Gives every row its slabs, for a space of fixed provisioning; existing slabs stay, so it may be called
    /// again.
    ///
    /// # Errors
    /// [`SpaceError::NoRoom`]; rows until then have theirs.
    pub async fn allocate_all(&self) -> Result<(), SpaceError> {
        let rows = self.inner.size().div_ceil(self.inner.layout.row_bytes());
        for row in 0..rows {
            self.allocate(RowNumber(row as u32)).await?;
        }
        match self.striped() {
            // Its journal is there now, and nothing in it is in doubt.
            Some(striped) => Box::pin(striped.settle()).await,
            None => Ok(()),
        }
    }

    /// Gives a row its slabs, if it has none.
    pub(super) async fn allocate(&self, row: RowNumber) -> Result<(), SpaceError> {
        let (id, path) = (self.inner.id, &self.path);
        if let Some(striped) = self.striped() {
            // A space whose journal found no room later could not be written any more.
            Box::pin(striped.journal()?.allocate(RowNumber(0))).await?;
        }
        let mut none_joins = None;
        let mut one = path.allocating.lock().await;
        loop {
            let joined: BTreeSet<DiskNumber> = path.disks().iter().map(|d| d.number).collect();
            let usable = |d: DiskNumber| joined.contains(&d);
            let chosen = path.read(|state| {
                if state.rows.contains_key(&(id, row)) {
                    return Ok(None);
                }
                let places = match placement::row_on(state, id, usable) {
                    // Not before all that are about to join have done so.
                    Err(why) if none_joins.is_some() => {
                        placement::row_with_absent(state, id, usable).map_err(|_| why)?
                    }
                    other => other?,
                };
                let away = places.iter().map(|p| !state.is_present(p.disk) || !usable(p.disk));
                let away: Vec<bool> = away.collect();
                Ok(Some((places, away, state.next_generation)))
            });
            let chosen = match chosen {
                Err(_) if none_joins.is_none() => {
                    // A joining disk may wait for other allocations.
                    drop(one);
                    none_joins = Some(path.joining.lock().await);
                    one = path.allocating.lock().await;
                    continue;
                }
                chosen => chosen.map_err(|why| SpaceError::NoRoom { space: id, why })?,
            };
            let Some((mut slabs, mut away, generation)) = chosen else { return Ok(()) };
            if self.inner.parity.is_some() {
                // Equal disks would be chosen in the same order each time, and the last ones have all parity.
                let turn = row.0 as usize % slabs.len();
                slabs.rotate_left(turn);
                away.rotate_left(turn);
            }
            if !self.write_fresh(row, &slabs, &away, generation).await? {
                continue;
            }
            // An absent disk joins after this, and is brought up to date after that: this row, too.
            let missed = away.iter().enumerate().filter(|(_, away)| **away).map(|(index, _)| Op::Missed {
                space: id,
                row,
                index: index as u8,
                regions: u64::MAX,
            });
            let ops = [Op::AllocateRow { space: id, row, slabs }].into_iter().chain(missed);
            match path.book.commit(ops.collect()).await {
                // Another task took a slab, or a disk was removed: choose again.
                Err(CommitError::Invalid(InvalidOp::NotFree(_) | InvalidOp::NoDisk(_))) => continue,
                other => other?,
            }
            let given = path.read(|s| s.rows.get(&(id, row)).map(|r| r.slabs[0].generation));
            if given == Some(generation) {
                return Ok(());
            }
            path.book.commit(vec![Op::FreeRow { space: id, row }]).await?;
        }
    }

    /// Writes the blocks of empty groups; false when a disk failed, which was handled.
    async fn write_fresh(
        &self,
        row: RowNumber,
        slabs: &[SlabPlace],
        away: &[bool],
        first: u32,
    ) -> Result<bool, SpaceError> {
        let mut here = Vec::with_capacity(slabs.len());
        for ((index, place), _) in slabs.iter().enumerate().zip(away).filter(|(_, away)| !**away) {
            let Some(disk) = self.path.disk(place.disk) else {
                // It is on its way out, unless it is back already.
                self.path.book.leave(place.disk, Life::Ending, Absence::Gone).await?;
                return Ok(false);
            };
            here.push((index, place.slab, disk));
        }
        let writes = here.iter().map(|(index, slab, disk)| async move {
            let written = self.write_fresh_slab(disk, row, *index, *slab, first + *index as u32).await;
            written.map_err(|error| (disk, error))
        });
        let results = join_all(writes).await;
        let mut well = true;
        for (disk, error) in results.into_iter().filter_map(Result::err) {
            well = false;
            self.path.fail(disk, &error, Absence::WriteFailed, None).await?;
            if self.path.disk(disk.number).is_some_and(|now| Arc::ptr_eq(&now, disk)) {
                return Err(SpaceError::Disk { disk: disk.number, error });
            }
        }
        Ok(well)
    }

    async fn write_fresh_slab(
        &self,
        disk: &Arc<DataDisk>,
        row: RowNumber,
        index: usize,
        slab: u32,
        generation: u32,
    ) -> Result<(), disk::DiskError> {
        let (pool, space) = (self.path.pool, self.inner.id);
        let mut bytes = Vec::new();
        for group in 0..(self.path.slab_bytes / GROUP) as u32 {
            let id = BlockId { pool, space, row, index: index as u8, group, allocation: generation };
            bytes.extend(match &self.inner.parity {
                Some(p) => stripes::encode(&id, &stripes::Block::empty(p.data(), p.code.parity())),
                None => encode(&id, 1, &Table::default()),
            });
        }
        let at = disk.member.areas.checksums(slab).offset;
        disk.write(at, [IoBuf::from(bytes)].into_iter().collect()).await?;
        disk.flush().await
    }
}
