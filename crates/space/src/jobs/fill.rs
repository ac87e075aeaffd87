//! Fills stale regions of copies: on a disk that was absent, and on the new place of a slab that is moved.
//! `docs/0004-spaces.md`, rules 14 and 18.
//!
//! A region is filled unit by unit under their locks: writes go to all present copies, so a filled unit stays current.
//! Then its blocks are written, the disk is flushed and marked, and the region is recorded as current in the metadata:
//! each step durable before the next. A disk that is rolled back in between has a mark with a lower count.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use arena::{Class, IoBuf, IoBufMut, Sg, SgMut, sg_slice};
use disk::sized;
use futures_util::future::join_all;
use pool_seam::{
    Absence, DiskNumber, GROUP_UNITS, Membership, OwnerOp, Regions, Row, RowNumber, SeamError, SlabPlace,
    SpaceView, Stays, UNIT,
};
use tokio::sync::oneshot;

use super::{CHUNK, Job};
use crate::SpaceError;
use crate::blocks::{ContentId, Units};
use crate::cache::Cached;
use crate::locks::{Mode, RangeLock};
use crate::log::commit::FlushSet;
use crate::owner::{CopyRegion, Inner, RETRY};
use crate::port::Port;
use crate::table::Value;
use crate::view::{GroupKey, Member, block_id, route};
use crate::write::Target;

/// A stale region of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece {
    row: RowNumber,
    /// The copy, and its allocation.
    index: u8,
    generation: u32,
    disk: DiskNumber,
    of: Membership,
    set: u8,
    content: u8,
    region: u32,
}

impl Piece {
    /// Its key in [`Inner::unfilled`] and [`Inner::filling`].
    fn note(&self) -> CopyRegion {
        (self.row, self.generation, 1 << self.region)
    }
}

/// Pieces that a job fills. No other job fills them until it is dropped.
struct Claim {
    inner: Arc<Inner>,
    pieces: Vec<Piece>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut filling = self.inner.filling.lock();
        self.pieces.iter().for_each(|piece| _ = filling.remove(&piece.note()));
    }
}

/// Regions that a job has filled, and the ports through which they were written.
type FilledRegions = Vec<(Piece, Arc<Port>)>;

/// Regions that a job has filled, and the channel that returns which of them are durable with their blocks.
pub(crate) struct ToFlush {
    filled: FilledRegions,
    told: oneshot::Sender<Result<FilledRegions, SpaceError>>,
}

/// The outcome of a piece.
enum Filled {
    /// Filled, through this port.
    Yes(Arc<Port>),
    /// The copy does not exist any more, or is complete.
    Gone,
    /// Its units cannot be read now.
    No,
}

impl Job {
    /// Fills the stale regions of a disk.
    pub(super) async fn resync(&mut self, disk: DiskNumber) -> Result<(), SpaceError> {
        self.done.of = self.inner.count_missing(|piece| piece.disk == disk) * self.inner.region_bytes();
        while self.pieces(|piece| piece.disk == disk).await? {}
        self.inner.settle_restored().await
    }

    /// Moves slabs to other places.
    pub(super) async fn fill(
        &mut self,
        moves: Vec<(RowNumber, u8, Option<SlabPlace>)>,
    ) -> Result<(), SpaceError> {
        self.done.of = moves.len() as u64 * self.inner.view.get().value.slab_bytes;
        for (row, index, to) in moves {
            if !self.move_slab(row, index, to).await? {
                self.leave([(row, index)]);
            }
        }
        Ok(())
    }

    /// `false`: it could not be moved.
    async fn move_slab(
        &mut self,
        row: RowNumber,
        index: u8,
        to: Option<SlabPlace>,
    ) -> Result<bool, SpaceError> {
        let is_new = |record: &Row| record.is_new && row != RowNumber::LOG;
        let before = self.inner.view.get().value.record.rows.get(&row).map(|record| record.birth);
        if self.inner.view.get().value.record.rows.get(&row).is_some_and(is_new)
            && let Err(why) = self.inner.initialise(row).await?
        {
            self.left.insert((row, index), why);
            return Ok(true);
        }
        let birth = {
            let view = self.inner.view.get().value;
            let Some(record) = view.record.rows.get(&row).filter(|record| !record.is_new) else {
                return Ok(false);
            };
            let birth = record.birth;
            if before != Some(birth) {
                // It has other slabs now.
                return Ok(false);
            }
            match record.moving() {
                Some(_) if usize::from(index) == record.slabs.len() => {
                    return self.inner.commit_alone(row, OwnerOp::CancelMove { row, birth }, || true).await;
                }
                Some(moving) if moving.index != index => return Ok(false),
                Some(_) => {}
                None => {
                    match self.inner.commit_if_fits(vec![OwnerOp::BeginMove { row, birth, index, to }]).await
                    {
                        Ok(true) => {}
                        Ok(false) => return Ok(false),
                        Err(SpaceError::Seam(SeamError::NoRoom(why))) => {
                            self.left.insert((row, index), Stays::NoPlace(why));
                            return Ok(true);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            birth
        };
        if row == RowNumber::LOG {
            return self.replica_moves(index).await;
        }
        loop {
            let view = self.inner.view.get().value;
            let record = view.record.rows.get(&row).filter(|record| record.birth == birth);
            let Some(record) = record else { return Ok(false) };
            let target = record.slabs.len() as u8;
            if record.moving().is_none_or(|moving| moving.index != index) {
                break;
            }
            let is_of_it = |piece: &Piece| piece.row == row && piece.index == target;
            if self.pieces(is_of_it).await? {
                continue;
            }
            // Otherwise its disk was removed, or not all regions could be filled.
            let view = self.inner.view.get().value;
            let copy = view.record.rows.get(&row).and_then(|row| row.copy(target.into()).copied());
            let regions = Regions::new(view.slab_bytes);
            let is_filled = copy.is_some_and(|copy| copy.missed & regions.all() == 0);
            if is_filled && self.inner.commit_alone(row, OwnerOp::EndMove { row, birth }, || true).await? {
                return Ok(true);
            }
            break;
        }
        let target = self.inner.view.get().value.record.rows.get(&row).map(|record| record.slabs.len() as u8);
        target.map(|target| self.left.remove(&(row, target)));
        self.inner.commit_alone(row, OwnerOp::CancelMove { row, birth }, || true).await?;
        Ok(false)
    }

    /// Waits until a move of a replica of the log ends. The owner carries it out like the join of any replica, also
    /// without this job: the old replica is kept until the new one is complete.
    async fn replica_moves(&mut self, index: u8) -> Result<bool, SpaceError> {
        let moving = || self.inner.view.get().value.log_row().and_then(Row::moving);
        let Some(generation) = moving().map(|moving| moving.copy.generation) else { return Ok(false) };
        while moving().is_some_and(|moving| moving.copy.generation == generation) {
            if self.turn().await? == 0 {
                return Ok(false);
            }
            self.inner.to_keep.notify_one();
            self.inner.env.sleep(RETRY).await;
        }
        let view = self.inner.view.get().value;
        let copy = view.log_row().and_then(|row| row.copy(index.into()));
        let is_moved = copy.is_some_and(|copy| copy.generation == generation);
        self.done.bytes += if is_moved { view.slab_bytes } else { 0 };
        Ok(is_moved)
    }

    /// Fills as many of the wanted pieces as may run now. `false`: none is left, or the job ends.
    pub(super) async fn pieces(&mut self, is_wanted: impl Fn(&Piece) -> bool) -> Result<bool, SpaceError> {
        let left: BTreeSet<_> = self.left.keys().copied().collect();
        let is_wanted = |piece: &Piece| is_wanted(piece) && !left.contains(&(piece.row, piece.index));
        if self.inner.missing(1, is_wanted).is_empty() {
            return Ok(false);
        }
        let turn = self.turn().await?;
        if turn == 0 {
            let all = self.inner.missing(usize::MAX, is_wanted);
            self.leave(all.iter().map(|piece| (piece.row, piece.index)));
            return Ok(false);
        }
        let claim = self.inner.claim(turn, is_wanted);
        if claim.pieces.is_empty() {
            // Another job is filling them.
            self.inner.env.sleep(RETRY).await;
            return Ok(true);
        }
        let filled = join_all(claim.pieces.iter().map(|piece| self.inner.fill_region(piece))).await;
        let mut done = Vec::new();
        for (piece, filled) in claim.pieces.iter().copied().zip(filled) {
            match filled? {
                Filled::Yes(port) => {
                    self.done.bytes += self.inner.region_bytes();
                    done.push((piece, port));
                }
                Filled::Gone => {}
                Filled::No => self.leave([(piece.row, piece.index)]),
            }
        }
        self.inner.record_filled(done).await?;
        Ok(true)
    }
}

impl Inner {
    /// Commits an operation that may free slabs of a row, while no write or checkpoint of the row is in progress.
    /// `false`: `may` refuses it then, or it conflicts with the metadata.
    pub(super) async fn commit_alone(
        self: &Arc<Inner>,
        row: RowNumber,
        op: OwnerOp,
        may: impl Fn() -> bool,
    ) -> Result<bool, SpaceError> {
        loop {
            {
                let _one = self.checkpoints.lock().await;
                if let Some(_locks) = self.lock_row(row).await {
                    return if may() { self.commit_if_fits(vec![op]).await } else { Ok(false) };
                }
            }
            // A checkpoint must run first.
            self.log().has_room().await?;
        }
    }

    /// The locks of all groups of a row; `None` if the log becomes full meanwhile: the holders may wait for room, which
    /// only a checkpoint makes.
    async fn lock_row(&self, row: RowNumber) -> Option<Vec<RangeLock>> {
        let mut full = std::pin::pin!(self.log().full());
        let mut locks = Vec::new();
        for key in self.groups(row) {
            locks.push(tokio::select! {
                biased;
                lock = self.locks.lock(key, 0..GROUP_UNITS as usize, Mode::Exclusive) => lock,
                () = &mut full => return None,
            });
        }
        Some(locks)
    }

    /// The first `count` wanted stale regions of copies on present disks.
    fn missing(&self, count: usize, is_wanted: impl Fn(&Piece) -> bool) -> Vec<Piece> {
        missing(&self.view.get().value).filter(is_wanted).take(count).collect()
    }

    /// The same for those that no job is filling.
    fn claim(self: &Arc<Inner>, count: usize, is_wanted: impl Fn(&Piece) -> bool) -> Claim {
        let mut filling = self.filling.lock();
        let pieces = self.missing(count, |piece| is_wanted(piece) && !filling.contains(&piece.note()));
        filling.extend(pieces.iter().map(Piece::note));
        Claim { inner: Arc::clone(self), pieces }
    }

    pub(super) fn count_missing(&self, is_wanted: impl Fn(&Piece) -> bool) -> u64 {
        missing(&self.view.get().value).filter(is_wanted).count() as u64
    }

    /// Bytes of a region.
    pub(super) fn region_bytes(&self) -> u64 {
        let slab_bytes = self.view.get().value.slab_bytes;
        slab_bytes / u64::from(Regions::new(slab_bytes).count())
    }

    /// The member of a piece, if the group is still stale on it.
    fn target(&self, piece: &Piece, key: GroupKey) -> Option<Member> {
        let view = self.view.get().value;
        let at = route(&view, key)?;
        let is_it = |member: &&Member| {
            (member.index, member.generation, member.membership)
                == (piece.index, piece.generation, Some(piece.of))
        };
        at.members.iter().find(is_it).filter(|member| !member.counts).copied()
    }

    async fn fill_region(self: &Arc<Inner>, piece: &Piece) -> Result<Filled, SpaceError> {
        let groups = Regions::new(self.view.get().value.slab_bytes).groups(piece.region);
        // Only writes through this handle are made durable by its flush.
        let Some(port) = self.ports.reopen(piece.disk, piece.of).await else { return Ok(Filled::Gone) };
        self.unfilled.lock().remove(&piece.note());
        for group in groups {
            let key = GroupKey { row: piece.row, set: piece.set, group };
            for first in (0..GROUP_UNITS as usize).step_by(CHUNK) {
                match self.fill_units(piece, &port, key, first..first + CHUNK).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(Filled::Gone),
                    Err(SpaceError::Seam(error)) => return Err(error.into()),
                    Err(error @ SpaceError::Log(_)) => return Err(error),
                    Err(error) => {
                        tracing::warn!(space = self.space().0, row = piece.row.0, disk = piece.disk.0, %error,
                            "part of a slab could not be copied to a disk");
                        return Ok(Filled::No);
                    }
                }
            }
        }
        Ok(Filled::Yes(port))
    }

    /// Writes some units of a group to a copy; `false` if the copy was removed or is complete.
    async fn fill_units(
        self: &Arc<Inner>,
        piece: &Piece,
        port: &Arc<Port>,
        key: GroupKey,
        units: std::ops::Range<usize>,
    ) -> Result<bool, SpaceError> {
        let content = usize::from(piece.content);
        let column = if self.is_coded(&self.view.get().value, key.row) { piece.content } else { key.set };
        let target = Target { key, column, units: units.clone() };
        let _lock = self.locks.lock(key, units.clone(), Mode::Exclusive).await;
        let mut dst = SgMut::new();
        let mut is_restored = false;
        let wanted = loop {
            let Some(cached) = self.loaded(key).await? else { return Ok(false) };
            if self.look(&cached, |table| table.has_open(units.clone())) {
                self.decide(&target, &cached).await?;
                continue;
            }
            if !is_restored {
                // The copy that is filled may have units that are lost elsewhere.
                self.restore(&target, &cached).await?;
                is_restored = true;
                continue;
            }
            let wanted: Units = self.look(&cached, |table| {
                let has = |unit: &usize| match table.value(content, *unit) {
                    Value::Written(_) | Value::Unknown { written: true } => true,
                    // Decided by the row's code, not by its bytes.
                    Value::Unwritten | Value::Unknown { written: false } => false,
                    Value::Lost(_) | Value::LostWithoutSum => false,
                };
                units.clone().filter(has).collect()
            });
            if wanted.is_empty() {
                self.look(&cached, |table| units.clone().for_each(|unit| table.learn(content, unit, None)));
                break wanted;
            }
            let view = self.view.get().value;
            let Some(at) = route(&view, key) else { return Ok(false) };
            if dst.is_empty() {
                let length = units.len() * UNIT as usize;
                dst = sized(self.arena.alloc_sg(length, Class::Control).await, length);
            }
            if self.read_wanted(&target, &at, &cached, wanted, &mut dst).await? {
                self.learn(&target, at.birth, &cached, content, |at| Some(unit_of(&dst, at)));
                break wanted;
            }
        };
        let Some(member) = self.target(piece, key) else { return Ok(false) };
        if wanted.is_empty() {
            return Ok(true);
        }
        let good: Sg = dst.into_iter().map(IoBufMut::freeze).collect();
        let view = self.view.get().value;
        let record = view.record.rows.get(&piece.row);
        // The old content of a slab's new place, or of a wholly stale copy, is not worth a comparison.
        let is_new = record.is_some_and(|row| {
            let index = usize::from(piece.index);
            index == row.slabs.len() || row.copy(index).is_some_and(|copy| copy.missed == u64::MAX)
        });
        let present = if is_new { None } else { self.present(port, &target, &member).await };
        let differs = |unit: &usize| {
            let at = *unit - units.start;
            present.as_ref().is_none_or(|present| unit_of(present, at) != unit_of(&good, at))
        };
        for run in runs(wanted.iter().filter(differs)) {
            let offset = member.data + run.start as u64 * UNIT;
            let src = sg_slice(&good, (run.start - units.start) * UNIT as usize, run.len() * UNIT as usize);
            if let Err(error) = port.write(offset, src, false).await {
                self.leave_out(piece.disk, piece.of, Absence::WriteFailed, error).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Learns the checksums of a content whose block is damaged or on an absent disk from its units' bytes; units
    /// without bytes stay unknown.
    pub(super) fn learn<'a>(
        &self,
        target: &Target,
        birth: u32,
        cached: &Cached,
        content: usize,
        bytes: impl Fn(usize) -> Option<&'a [u8]>,
    ) {
        let of = ContentId { space: self.space(), birth, content: content as u8 };
        self.look(cached, |table| {
            for (at, unit) in target.units.clone().enumerate() {
                let sum = match table.value(content, unit) {
                    Value::Unknown { written: true } => {
                        let Some(bytes) = bytes(at) else { continue };
                        Some(of.checksum(target.first() + at as u32, bytes))
                    }
                    Value::Unknown { written: false } => None,
                    _ => continue,
                };
                table.learn(content, unit, sum);
            }
        });
    }

    /// The current bytes of units on a copy; `None` if it cannot be read.
    async fn present(&self, port: &Arc<Port>, target: &Target, member: &Member) -> Option<SgMut> {
        let length = target.units.len() * UNIT as usize;
        let dst = sized(self.arena.alloc_sg(length, Class::Control).await, length);
        let (result, read) = port.read(member.data + target.offset(), dst).await;
        result.ok().map(|()| read)
    }

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
        // If the task that took them ended early, they are still stale, and found again.
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

    /// `false`: the disk was removed.
    async fn mark_filled(&self, port: &Arc<Port>) -> Result<bool, SpaceError> {
        let Err(error) = self.mark_again(port).await else { return Ok(true) };
        self.leave_out(port.number(), port.membership(), Absence::WriteFailed, error).await?;
        Ok(false)
    }

    /// Makes filled regions durable: blocks, flush, mark, entry of the mark, and then the metadata.
    async fn record_filled(self: &Arc<Inner>, filled: FilledRegions) -> Result<(), SpaceError> {
        if filled.is_empty() {
            return Ok(());
        }
        let mut done = self.flush_filled(filled).await?;
        // Not under the lock of checkpoints: this may wait for room, which a checkpoint makes.
        if self.has_discards(&done) {
            // Discarded units are not filled. If a crash lost the discard, the copy would lack the value before it.
            self.flush_groups(None, FlushSet::everything()).await?;
        } else {
            self.log().durable().await?;
        }
        let lacks = |piece: &Piece| self.unfilled.lock().contains(&piece.note());
        done.retain(|(piece, port)| !port.has_ended() && !lacks(piece));
        let regions = |(piece, _): &(Piece, Arc<Port>)| {
            let Piece { row, index, generation, of: membership, region, .. } = *piece;
            OwnerOp::NotMissed { row, index, generation, regions: 1 << region, membership }
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
            let missed = done.iter().filter(|(piece, _)| lacks(piece)).filter_map(|(piece, _)| {
                let Piece { row, index, generation, region, disk, .. } = *piece;
                let copy = view.record.rows.get(&row)?.copy(index.into())?;
                let op = || OwnerOp::Missed {
                    row,
                    index,
                    generation,
                    regions: 1 << region,
                    seen: view.membership(disk),
                };
                (copy.generation == generation).then(op)
            });
            let missed: Vec<_> = missed.collect();
            if missed.is_empty() || self.commit_if_fits(missed).await? {
                return Ok(());
            }
            if self.view.get().value.version == view.version {
                // No other disk has the region any more. The checksums show that this one does not have the newest
                // data.
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
        filled.any(|cached| self.look(cached, |table| table.has_discards()))
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
            let block = self.look(&cached, |table| {
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
                self.leave_out(piece.disk, piece.of, Absence::WriteFailed, error).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Stale regions of copies on present disks.
fn missing(view: &SpaceView) -> impl Iterator<Item = Piece> {
    let regions = Regions::new(view.slab_bytes);
    let rows = view.record.rows.iter().filter(|(row, record)| **row != RowNumber::LOG && !record.is_new);
    let copies = rows.flat_map(move |(row, record)| {
        let behind = record.copies().filter(move |(_, copy)| copy.missed & regions.all() != 0);
        behind.map(move |(index, copy)| (*row, record, index, copy))
    });
    copies.flat_map(move |(row, record, index, copy)| {
        let of = view.membership(copy.place.disk);
        let (resiliency, slab) = (view.record.resiliency_of(record), record.slab_of(index));
        let (set, content) = match resiliency.is_parity() {
            true => (0, slab as u8),
            false => ((slab / resiliency.copies()) as u8, 0),
        };
        let (disk, generation, index) = (copy.place.disk, copy.generation, index as u8);
        let missed = (0..regions.count()).filter(|region| copy.missed & 1 << region != 0);
        let piece = move |of| move |region| Piece { row, index, generation, disk, of, set, content, region };
        of.into_iter().flat_map(move |of| missed.clone().map(piece(of)))
    })
}

/// A unit in buffers of whole units.
fn unit_of<B: Deref<Target = [u8]>>(buffers: &[B], unit: usize) -> &[u8] {
    let mut at = unit * UNIT as usize;
    for buffer in buffers {
        match at.checked_sub(buffer.len()) {
            Some(rest) => at = rest,
            None => return &buffer[at..at + UNIT as usize],
        }
    }
    unreachable!("no unit {unit}")
}

/// Consecutive units, as ranges.
fn runs(units: impl Iterator<Item = usize>) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for unit in units {
        match runs.last_mut() {
            Some(run) if run.end == unit => run.end += 1,
            _ => runs.push(unit..unit + 1),
        }
    }
    runs
}
