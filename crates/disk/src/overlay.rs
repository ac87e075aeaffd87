//! A writable view of a read-only disk: changes are kept in memory and discarded on drop.
//!
//! Invariants:
//! 1. Only reads and fences reach the disk below.
//! 2. A block that was ever written is read from memory only: the disk's block may be unreadable.
//! 3. All overlays of one [`OverlayBudget`] together store at most its limit.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arena::{Sg, SgMut, parts, sg_len, sg_to_vec};
use env::{Ctx, Epoch, Io};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::{Disk, DiskError, DiskInfo, Gate, IoRange, Op, sized};

/// See the module. Writes complete immediately.
pub struct Overlay {
    below: Arc<dyn Disk>,
    budget: Arc<OverlayBudget>,
    gate: Arc<Gate>,
    /// The written blocks, by logical block number.
    written: Mutex<BTreeMap<u64, Block>>,
}

/// The memory budget of overlays, in bytes.
#[derive(Debug)]
pub struct OverlayBudget {
    limit: u64,
    used: AtomicU64,
}

type Block = Arc<[u8]>;

/// The written blocks of a range with their offsets, in order.
type WrittenBlocks = SmallVec<[(u64, Block); 4]>;

impl OverlayBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Arc<OverlayBudget> {
        Arc::new(OverlayBudget { limit, used: AtomicU64::new(0) })
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

impl Overlay {
    /// A disk that reads like `below` until it is written. A write that exceeds `budget` fails with
    /// [`DiskError::Full`].
    pub fn new(below: Arc<dyn Disk>, budget: Arc<OverlayBudget>) -> Arc<Overlay> {
        Arc::new(Overlay { below, budget, gate: Arc::default(), written: Mutex::default() })
    }

    fn block(&self) -> u64 {
        u64::from(self.below.info().geometry.logical_block)
    }

    fn written_in(&self, at: IoRange) -> WrittenBlocks {
        let block = self.block();
        let range = at.offset / block..(at.offset + at.length) / block;
        self.written.lock().range(range).map(|(n, b)| (n * block, Arc::clone(b))).collect()
    }

    fn store(&self, c: &Ctx, at: IoRange, src: &Sg) -> Result<(), DiskError> {
        self.info().geometry.check(at)?;
        let _pass = self.gate.enter(c, at)?;
        let (block, bytes) = (self.block(), sg_to_vec(src));
        let mut written = self.written.lock();
        let first = at.offset / block;
        let had = written.range(first..first + at.length / block).count() as u64;
        if !self.budget.take(at.length - had * block) {
            return Err(DiskError::Full { at });
        }
        written.extend((first..).zip(bytes.chunks(block as usize).map(Block::from)));
        Ok(())
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let bytes = self.written.get_mut().len() as u64 * self.block();
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Disk for Overlay {
    fn info(&self) -> &DiskInfo {
        self.below.info()
    }

    fn read(&self, c: &Ctx, offset: u64, mut dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)> {
        let at = IoRange::new(Op::Read, offset, dst.iter().map(|b| b.len() as u64).sum());
        if let Err(e) = self.info().geometry.check(at) {
            return Io::Done((Err(e), dst));
        }
        let found = self.written_in(at);
        if found.is_empty() {
            return self.below.read(c, offset, dst);
        }
        if found.len() as u64 * self.block() == at.length {
            let result = self.gate.enter(c, at).map(|_pass| copy_blocks(&found, offset, &mut dst));
            return Io::Done((result, dst));
        }
        let (c, below, read) = (*c, Arc::clone(&self.below), self.below.read(c, offset, dst));
        Io::pending(async move {
            match read.wait().await {
                (Ok(()), mut dst) => {
                    copy_blocks(&found, offset, &mut dst);
                    (Ok(()), dst)
                }
                // The block that is unreadable on the disk may be in memory.
                (Err(DiskError::Medium { .. }), dst) => read_between(&*below, &c, at, &found, dst).await,
                other => other,
            }
        })
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>> {
        Io::Done(self.store(c, IoRange::new(Op::Write, offset, sg_len(&src) as u64), &src))
    }

    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        Io::Done(self.gate.enter(c, IoRange::whole(Op::Flush)).map(drop))
    }

    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>> {
        let at = IoRange::new(Op::Discard, offset, length);
        Io::Done(self.info().geometry.check(at).and_then(|()| self.gate.enter(c, at).map(drop)))
    }

    fn fence(&self, c: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>> {
        match self.gate.fence(epoch) {
            // Only reads can outlast their call, and they are reads of the disk below.
            Io::Done(Ok(())) => self.below.fence(c, epoch),
            other => other,
        }
    }

    fn check(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        self.below.check(c)
    }
}

/// Copies the found blocks over the data read from `offset` on.
fn copy_blocks(found: &[(u64, Block)], offset: u64, dst: &mut SgMut) {
    let lengths: SmallVec<[usize; 4]> = dst.iter().map(|b| b.len()).collect();
    for (begin, block) in found {
        put(&lengths, (begin - offset) as usize, block, dst);
    }
}

fn put(lengths: &[usize], at: usize, bytes: &[u8], dst: &mut SgMut) {
    let mut done = 0;
    for (i, part) in parts(lengths.iter().copied(), at, bytes.len()) {
        let n = part.len();
        dst[i].filled_mut()[part].copy_from_slice(&bytes[done..done + n]);
        done += n;
    }
}

/// Reads the gaps between the found blocks one by one, through the caller's buffers.
async fn read_between(
    below: &dyn Disk,
    c: &Ctx,
    at: IoRange,
    found: &[(u64, Block)],
    mut dst: SgMut,
) -> (Result<(), DiskError>, SgMut) {
    let lengths: SmallVec<[usize; 4]> = dst.iter().map(|b| b.len()).collect();
    let mut whole = vec![0; at.length as usize];
    for gap in gaps(at, found) {
        let (result, back) =
            below.read(c, gap.start, sized(dst, (gap.end - gap.start) as usize)).wait().await;
        dst = back;
        if result.is_err() {
            // After a timeout the driver keeps the buffers.
            dst.iter_mut().zip(&lengths).for_each(|(b, length)| b.set_len(*length));
            return (result, dst);
        }
        let mut to = (gap.start - at.offset) as usize;
        for b in &dst {
            whole[to..to + b.len()].copy_from_slice(b);
            to += b.len();
        }
    }
    dst.iter_mut().zip(&lengths).for_each(|(b, length)| b.set_len(*length));
    put(&lengths, 0, &whole, &mut dst);
    copy_blocks(found, at.offset, &mut dst);
    (Ok(()), dst)
}

/// The byte ranges without a found block.
fn gaps(at: IoRange, found: &[(u64, Block)]) -> Vec<Range<u64>> {
    let mut from = at.offset;
    let ends = found.iter().map(|(begin, b)| (*begin, begin + b.len() as u64));
    let all = ends.chain([(at.offset + at.length, 0)]);
    all.map(|(begin, next)| std::mem::replace(&mut from, next)..begin).filter(|gap| !gap.is_empty()).collect()
}

#[cfg(test)]
mod tests;
