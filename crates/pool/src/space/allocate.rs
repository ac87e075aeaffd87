//! Slabs for a row, at its first write. A pool that is not whole gives slabs of absent disks where it must: they have missed everything.
//!
//! The new slabs' checksum blocks are written and flushed before the row exists: from then on a block that cannot be read is damage. They carry
//! the generation that the slabs are about to get; nobody else gets one meanwhile (`path`, invariant 2).

use std::sync::Arc;
use std::time::Duration;

use arena::IoBuf;
use futures_util::future::join_all;

use super::{Space, SpaceError};
use crate::CommitError;
use crate::blocks::BlockId;
use crate::blocks::checksums::{Table, encode};
use crate::blocks::stripes;
use crate::disks::DataDisk;
use crate::{Absence, DiskNumber, GROUP, InvalidOp, Op, RowNumber, SlabPlace, State, placement};

/// Between two looks at a disk that is back and does not take part yet.
const JOIN_WAIT: Duration = Duration::from_millis(1);

/// How many of them a row waits for: one second.
const JOIN_WAITS: u32 = 1000;

impl Space {
    /// Gives every row its slabs, for a space of fixed provisioning; what is there already stays, so it may be called again.
    ///
    /// # Errors
    /// [`SpaceError::NoRoom`]; rows until then have theirs.
    pub async fn allocate_all(&self) -> Result<(), SpaceError> {
        let rows = self.inner.info.geometry.size.div_ceil(self.inner.layout.row_bytes());
        for row in 0..rows {
            self.allocate(RowNumber(row as u32)).await?;
        }
        Ok(())
    }

    /// Sees to it that a row has slabs.
    pub(super) async fn allocate(&self, row: RowNumber) -> Result<(), SpaceError> {
        let (id, path) = (self.inner.id, &self.path);
        if let Some(striped) = self.striped() {
            // A space whose journal found no room later could not be written any more.
            Box::pin(striped.journal()?.allocate(RowNumber(0))).await?;
        }
        let (mut waits, mut still_away) = (JOIN_WAITS, None);
        let mut one = path.allocating.lock().await;
        loop {
            let chosen = path.read(|state| match state.rows.contains_key(&(id, row)) {
                true => Ok(None),
                false => {
                    let places = placement::row(state, id);
                    let places = places.or_else(|why| placement::row_with_absent(state, id).map_err(|_| why));
                    places.map(|places| {
                        let away: Vec<bool> = places.iter().map(|p| !state.is_present(p.disk)).collect();
                        Some((places, away, state.next_generation))
                    })
                }
            });
            let chosen = chosen.map_err(|why| SpaceError::NoRoom { space: id, why })?;
            let Some((mut slabs, mut away, generation)) = chosen else { return Ok(()) };
            if self.inner.parity.is_some() {
                // Equal disks would be chosen in the same order each time, and the last ones have all parity.
                let turn = row.0 as usize % slabs.len();
                slabs.rotate_left(turn);
                away.rotate_left(turn);
            }
            // Nothing is held while others are waited for: they may need it.
            if self.are_coming(&slabs) {
                drop((one, still_away.take()));
                self.wait_for_coming(&slabs, &mut waits).await?;
                one = path.allocating.lock().await;
                continue;
            }
            // A disk that returns joins after this, and is brought up to date after that: this row, too.
            if away.contains(&true) && still_away.is_none() {
                drop(one);
                still_away = Some(path.joining.lock().await);
                one = path.allocating.lock().await;
                continue;
            }
            let is_away = |state: &State| slabs.iter().map(|p| !state.is_present(p.disk)).collect::<Vec<_>>();
            if path.read(is_away) != away || !self.write_fresh(row, &slabs, &away, generation).await? {
                continue;
            }
            let missed = away.iter().enumerate().filter(|(_, away)| **away).map(|(index, _)| Op::Missed {
                space: id,
                row,
                index: index as u8,
                regions: u64::MAX,
            });
            let ops = [Op::AllocateRow { space: id, row, slabs }].into_iter().chain(missed);
            match path.book.commit(ops.collect()).await {
                // Somebody took a slab, or a disk left: look again.
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

    /// Whether some of these disks count as present and take no part yet.
    fn are_coming(&self, slabs: &[SlabPlace]) -> bool {
        slabs.iter().any(|p| self.comes(p.disk))
    }

    fn comes(&self, disk: DiskNumber) -> bool {
        self.path.disk(disk).is_none() && self.path.book.members().get(disk).is_some()
    }

    /// Waits for those that are, but not for ever.
    async fn wait_for_coming(&self, slabs: &[SlabPlace], waits: &mut u32) -> Result<(), SpaceError> {
        if let Some(left) = waits.checked_sub(1) {
            *waits = left;
            self.path.env.sleep(JOIN_WAIT).await;
            return Ok(());
        }
        for disk in slabs.iter().map(|p| p.disk).filter(|d| self.comes(*d)) {
            self.path.book.leave(disk, Absence::Gone).await?;
        }
        Ok(())
    }

    /// Writes the blocks of empty groups; false when a disk failed and has been dealt with.
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
                // If it is not on its way in, it is on its way out.
                if self.path.book.members().get(place.disk).is_none() {
                    self.path.book.leave(place.disk, Absence::Gone).await?;
                }
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
                Some(p) => stripes::encode(&id, &stripes::Block::empty(p.data, p.parity)),
                None => encode(&id, 1, &Table::default()),
            });
        }
        let at = disk.member.areas.checksums(slab).offset;
        disk.write(at, [IoBuf::from(bytes)].into_iter().collect()).await?;
        disk.flush().await
    }
}
