//! Fills stale regions of copies: on a disk that was absent, and on the new place of a slab that is moved.
//! `docs/0004-spaces.md`, rules 14 and 18.
//!
//! A region is filled unit by unit under their locks: writes go to all present copies, so a filled unit stays current.
//! Then its blocks are written, the disk is flushed and marked, and the region is recorded as current in the metadata:
//! each step durable before the next. A disk that is rolled back in between has a mark with a lower count.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use arena::{Class, IoBufMut, Sg, SgMut, sg_slice};
use disk::sized;
use futures_util::future::join_all;
use pool_seam::{Absence, DiskNumber, GROUP_UNITS, Membership, Regions, RowNumber, SpaceView, UNIT};

use super::{CHUNK, Job};
use crate::SpaceError;
use crate::blocks::{ContentId, Units};
use crate::cache::Cached;
use crate::locks::Mode;
use crate::owner::{CopyRegion, Inner, RETRY};
use crate::port::Port;
use crate::table::Value;
use crate::view::{GroupKey, Member, route};
use crate::write::Target;

/// A stale region of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece {
    pub(super) row: RowNumber,
    /// The copy, and its allocation.
    pub(super) index: u8,
    pub(super) generation: u32,
    pub(super) disk: DiskNumber,
    pub(super) of: Membership,
    pub(super) set: u8,
    pub(super) content: u8,
    pub(super) region: u32,
}

impl Piece {
    /// Its key in [`Inner::unfilled`] and [`Inner::filling`].
    pub(super) fn note(&self) -> CopyRegion {
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

/// The outcome of filling a piece.
enum FillOutcome {
    /// The region is filled, through this port.
    Filled(Arc<Port>),
    /// The copy does not exist any more, or is complete.
    NotNeeded,
    /// Its units cannot be read now.
    Unreadable,
}

impl Job {
    /// Fills the stale regions of a disk.
    pub(super) async fn resync(&mut self, disk: DiskNumber) -> Result<(), SpaceError> {
        self.done.total = self.inner.count_missing(|piece| piece.disk == disk) * self.inner.region_bytes();
        while self.pieces(|piece| piece.disk == disk).await? {}
        self.inner.settle_restored().await
    }

    /// Fills as many of the wanted pieces as may run now. Returns `false` if no piece is left, or the job must end.
    pub(super) async fn pieces(&mut self, is_wanted: impl Fn(&Piece) -> bool) -> Result<bool, SpaceError> {
        let left: BTreeSet<_> = self.not_moved.keys().copied().collect();
        let is_wanted = |piece: &Piece| is_wanted(piece) && !left.contains(&(piece.row, piece.index));
        if self.inner.missing(1, is_wanted).is_empty() {
            return Ok(false);
        }
        let turn = self.turn().await?;
        if turn == 0 {
            let all = self.inner.missing(usize::MAX, is_wanted);
            self.note_unfinished(all.iter().map(|piece| (piece.row, piece.index)));
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
                FillOutcome::Filled(port) => {
                    self.done.bytes += self.inner.region_bytes();
                    done.push((piece, port));
                }
                FillOutcome::NotNeeded => {}
                FillOutcome::Unreadable => self.note_unfinished([(piece.row, piece.index)]),
            }
        }
        self.inner.record_filled(done).await?;
        Ok(true)
    }
}

impl Inner {
    /// The first `count` wanted stale regions of copies on present disks.
    fn missing(&self, count: usize, is_wanted: impl Fn(&Piece) -> bool) -> Vec<Piece> {
        missing(&self.view.get().value).filter(is_wanted).take(count).collect()
    }

    /// Claims the first `count` wanted pieces that no other job is filling.
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
    pub(super) fn target(&self, piece: &Piece, key: GroupKey) -> Option<Member> {
        let view = self.view.get().value;
        let at = route(&view, key)?;
        let is_it = |member: &&Member| {
            (member.index, member.generation, member.membership)
                == (piece.index, piece.generation, Some(piece.of))
        };
        at.members.iter().find(is_it).filter(|member| !member.counts).copied()
    }

    async fn fill_region(self: &Arc<Inner>, piece: &Piece) -> Result<FillOutcome, SpaceError> {
        let groups = Regions::new(self.view.get().value.slab_bytes).groups(piece.region);
        // Only writes through this handle are made durable by its flush.
        let Some(port) = self.ports.reopen(piece.disk, piece.of).await else {
            return Ok(FillOutcome::NotNeeded);
        };
        self.unfilled.lock().remove(&piece.note());
        for group in groups {
            let key = GroupKey { row: piece.row, set: piece.set, group };
            for first in (0..GROUP_UNITS as usize).step_by(CHUNK) {
                match self.fill_units(piece, &port, key, first..first + CHUNK).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(FillOutcome::NotNeeded),
                    Err(SpaceError::Seam(error)) => return Err(error.into()),
                    Err(error @ SpaceError::Log(_)) => return Err(error),
                    Err(error) => {
                        tracing::warn!(space = self.space().0, row = piece.row.0, disk = piece.disk.0, %error,
                            "part of a slab could not be copied to a disk");
                        return Ok(FillOutcome::Unreadable);
                    }
                }
            }
        }
        Ok(FillOutcome::Filled(port))
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
            if self.with_table(&cached, |table| table.has_open(units.clone())) {
                self.decide(&target, &cached).await?;
                continue;
            }
            if !is_restored {
                // The copy that is being filled may have units that are lost elsewhere.
                self.restore(&target, &cached).await?;
                is_restored = true;
                continue;
            }
            let wanted: Units = self.with_table(&cached, |table| {
                let has = |unit: &usize| match table.value(content, *unit) {
                    Value::Written(_) | Value::Unknown { written: true } => true,
                    // The row's code determines it, not the copy's bytes.
                    Value::Unwritten | Value::Unknown { written: false } => false,
                    Value::Lost(_) | Value::LostWithoutSum => false,
                };
                units.clone().filter(has).collect()
            });
            if wanted.is_empty() {
                self.with_table(&cached, |table| {
                    units.clone().for_each(|unit| table.learn(content, unit, None))
                });
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
            index == row.slabs.len() || row.copy(index).is_some_and(|copy| copy.stale_regions == u64::MAX)
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
                self.remove_from_service(piece.disk, piece.of, Absence::WriteFailed, error).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Computes unknown checksums of a content from the units' bytes, because its block is damaged or on an absent
    /// disk. Units without bytes stay unknown.
    pub(super) fn learn<'a>(
        &self,
        target: &Target,
        birth: u32,
        cached: &Cached,
        content: usize,
        bytes: impl Fn(usize) -> Option<&'a [u8]>,
    ) {
        let of = ContentId { space: self.space(), birth, content: content as u8 };
        self.with_table(cached, |table| {
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
}

/// Stale regions of copies on present disks.
fn missing(view: &SpaceView) -> impl Iterator<Item = Piece> {
    let regions = Regions::new(view.slab_bytes);
    let rows = view.record.rows.iter().filter(|(row, record)| **row != RowNumber::LOG && !record.is_new);
    let copies = rows.flat_map(move |(row, record)| {
        let behind = record.copies().filter(move |(_, copy)| copy.stale_regions & regions.all() != 0);
        behind.map(move |(index, copy)| (*row, record, index, copy))
    });
    copies.flat_map(move |(row, record, index, copy)| {
        let of = view.membership(copy.place.disk);
        let (shape, slab) = (view.record.shape_of(record), record.slab_of(index));
        let set = (slab / shape.slabs_in_set()) as u8;
        let content = if shape.resiliency.is_parity() { slab as u8 } else { 0 };
        let (disk, generation, index) = (copy.place.disk, copy.generation, index as u8);
        let stale = (0..regions.count()).filter(|region| copy.stale_regions & 1 << region != 0);
        let piece = move |of| move |region| Piece { row, index, generation, disk, of, set, content, region };
        of.into_iter().flat_map(move |of| stale.clone().map(piece(of)))
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
