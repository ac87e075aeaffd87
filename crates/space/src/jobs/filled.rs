//! Makes filled regions durable: their blocks, a flush, the mark of the disk, and then the metadata.
//! `docs/0004-spaces.md`, rule 14.

use std::collections::BTreeMap;
use std::sync::Arc;

use arena::{IoBuf, Sg};
use futures_util::future::join_all;
use pool_seam::{Absence, DiskNumber, OwnerOp, Regions};
use tokio::sync::oneshot;

use super::fill::Piece;
use crate::SpaceError;
use crate::log::commit::FlushSet;
use crate::owner::Inner;
use crate::port::Port;
use crate::view::{GroupKey, block_id, route};

/// Regions that a job has filled, and the ports through which they were written.
pub(super) type FilledRegions = Vec<(Piece, Arc<Port>)>;

/// Regions that a job has filled, and the channel that returns which of them are durable with their blocks.
pub(crate) struct ToFlush {
    filled: FilledRegions,
    told: oneshot::Sender<Result<FilledRegions, SpaceError>>,
}

impl Inner {
    /// Makes filled regions and their blocks durable, together with those of other jobs; then writes the disks' marks.
    /// Returns the regions that are durable.
    async fn flush_filled(self: &Arc<Inner>, filled: FilledRegions) -> Result<FilledRegions, SpaceError> {
        let (told, flushed) = oneshot::channel();
        self.to_flush.lock().push(ToFlush { filled, told });
        {
            // A checkpoint writes the same blocks and marks. The lock is held no longer than needed, as a checkpoint
            // makes room in the log.
            let _one = self.checkpoints.lock().await;
            let all = std::mem::take(&mut *self.to_flush.lock());
            self.flush_all_filled(all).await;
        }
        // If the task that took the regions ended early, they are still stale, and found again.
        flushed.await.unwrap_or(Ok(Vec::new()))
    }

    async fn flush_all_filled(self: &Arc<Inner>, all: Vec<ToFlush>) {
        let blocks = |of: &ToFlush| {
            let filled = of.filled.clone();
            async move { join_all(filled.iter().map(|piece| self.copy_blocks(piece))).await }
        };
        let copied = join_all(all.iter().map(blocks)).await;
        let mut ports = BTreeMap::new();
        let mut waiting = Vec::new();
        for (of, copied) in all.into_iter().zip(copied) {
            match copied.into_iter().collect::<Result<Vec<bool>, _>>() {
                Ok(copied) => {
                    let there = of.filled.into_iter().zip(copied).filter(|(_, is_there)| *is_there);
                    let there: FilledRegions = there.map(|(piece, _)| piece).collect();
                    ports.extend(there.iter().map(|(piece, port)| (piece.disk, Arc::clone(port))));
                    waiting.push((there, of.told));
                }
                Err(error) => _ = of.told.send(Err(error)),
            }
        }
        let marked = join_all(ports.values().map(|port| async move {
            let is_flushed = self.flush_port(port).await.is_none();
            let marked = match is_flushed {
                true => self.mark_filled(port).await,
                false => Ok(false),
            };
            (port.number(), marked)
        }));
        let marked: BTreeMap<DiskNumber, _> = marked.await.into_iter().collect();
        for (mut there, told) in waiting {
            let failed = there.iter().find_map(|(piece, _)| marked[&piece.disk].as_ref().err());
            let failed = failed.cloned();
            there.retain(|(piece, _)| marked[&piece.disk] == Ok(true));
            _ = told.send(failed.map_or(Ok(there), Err));
        }
    }

    /// Writes the disk's mark after a fill. Returns `false` if the disk was removed.
    async fn mark_filled(&self, port: &Arc<Port>) -> Result<bool, SpaceError> {
        let Err(error) = self.mark_again(port).await else { return Ok(true) };
        self.remove_from_service(port.number(), port.membership(), Absence::WriteFailed, error).await?;
        Ok(false)
    }

    /// Makes filled regions durable: blocks, flush, mark, entry of the mark, and then the metadata.
    pub(super) async fn record_filled(self: &Arc<Inner>, filled: FilledRegions) -> Result<(), SpaceError> {
        if filled.is_empty() {
            return Ok(());
        }
        let mut done = self.flush_filled(filled).await?;
        // Without the lock of checkpoints: this may wait for room, which a checkpoint makes.
        if self.has_discards(&done) {
            // Discarded units are not filled: if a crash lost the discard, the copy would lack the former value.
            self.flush_groups(None, FlushSet::everything()).await?;
        } else {
            self.log().durable().await?;
        }
        let lacks = |piece: &Piece| self.unfilled.lock().contains(&piece.note());
        done.retain(|(piece, port)| !port.has_ended() && !lacks(piece));
        let regions = |(piece, _): &(Piece, Arc<Port>)| {
            let Piece { row, index, generation, of: membership, region, .. } = *piece;
            OwnerOp::MarkCurrent { row, index, generation, regions: 1 << region, membership }
        };
        let ops: Vec<_> = done.iter().map(regions).collect();
        if ops.is_empty() {
            return Ok(());
        }
        // The operations conflict if a disk was removed meanwhile: the other regions are found again.
        self.commit_if_fits(ops).await?;
        // Marks regions stale again in which a write failed while the metadata was changed.
        loop {
            let view = self.view.get().value;
            let stale = done.iter().filter(|(piece, _)| lacks(piece)).filter_map(|(piece, _)| {
                let Piece { row, index, generation, region, disk, .. } = *piece;
                let copy = view.record.rows.get(&row)?.copy(index.into())?;
                let op = || OwnerOp::MarkStale {
                    row,
                    index,
                    generation,
                    regions: 1 << region,
                    membership: view.membership(disk),
                };
                (copy.generation == generation).then(op)
            });
            let stale: Vec<_> = stale.collect();
            if stale.is_empty() || self.commit_if_fits(stale).await? {
                return Ok(());
            }
            if self.view.get().value.version == view.version {
                // No other disk has the region any more. The checksums detect that this disk lacks the newest data.
                return Ok(());
            }
        }
    }

    /// Whether regions have discards that are not durable.
    fn has_discards(&self, pieces: &[(Piece, Arc<Port>)]) -> bool {
        let regions = Regions::new(self.view.get().value.slab_bytes);
        let is_of = |piece: &Piece, key: GroupKey| {
            (piece.row, piece.set) == (key.row, key.set)
                && regions.of_group(key.group) & 1 << piece.region != 0
        };
        let dirty = self.cache.dirty();
        let mut filled =
            dirty.iter().filter(|cached| pieces.iter().any(|(piece, _)| is_of(piece, cached.key())));
        filled.any(|cached| self.with_table(cached, |table| table.has_discards()))
    }

    /// Writes the blocks of a region to the filled copy; `false` if the copy was removed.
    async fn copy_blocks(self: &Arc<Inner>, (piece, port): &(Piece, Arc<Port>)) -> Result<bool, SpaceError> {
        let groups = Regions::new(self.view.get().value.slab_bytes).groups(piece.region);
        for group in groups {
            let key = GroupKey { row: piece.row, set: piece.set, group };
            let Some(cached) = self.loaded(key).await? else { return Ok(false) };
            let Some(member) = self.target(piece, key) else { return Ok(false) };
            let view = self.view.get().value;
            let Some(at) = route(&view, key) else { return Ok(false) };
            let slab = usize::from(member.slab - at.members[0].slab);
            self.unmarked.lock().insert(key);
            let block = self.with_table(&cached, |table| {
                let is_known = table.unknown_contents() & 1 << piece.content == 0;
                table.fit(at.slabs());
                is_known.then(|| table.begin_copy(slab));
                table.block(usize::from(piece.content))
            });
            // The table was evicted since, or its units are lost.
            let Some(block) = block else { return Ok(false) };
            let id = block_id(&view, key.row, key.group, member.generation);
            let written =
                port.write(member.block, Sg::from_iter([IoBuf::from(block.encode(&id))]), false).await;
            if let Err(error) = written {
                self.remove_from_service(piece.disk, piece.of, Absence::WriteFailed, error).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }
}
