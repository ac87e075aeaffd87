//! The bytes of a file in memory: blocks are allocated when data is written, and shared with readers until they are
//! written again.
//!
//! Invariants:
//! 1. Every block is [`BLOCK`] bytes long and all of them are initialised.
//! 2. A block that a reader may hold is never changed: writing it copies it first.
//! 3. The store is charged [`BLOCK`] for each block in the map.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arena::passes::{self, Pass};
use arena::{Class, IoBuf, IoBufMut, Sg};

use super::store::Store;
use crate::{VfsError, VfsResult};

/// The size of a block, in bytes.
pub(super) const BLOCK: u64 = 64 << 10;

/// The blocks of one file.
pub(super) struct Blocks {
    store: Arc<Store>,
    map: BTreeMap<u64, Block>,
}

/// One block. `None` only while it changes from one state to the other.
struct Block(Option<State>);

enum State {
    /// The file is the only owner.
    Own(IoBufMut),
    /// Readers may hold references.
    Lent(IoBuf),
}

impl Blocks {
    pub(super) fn new(store: Arc<Store>) -> Blocks {
        Blocks { store, map: BTreeMap::new() }
    }

    /// The space taken, in bytes.
    pub(super) fn allocation(&self) -> u64 {
        self.map.len() as u64 * BLOCK
    }

    /// Lends the bytes of `range`; holes are lent as zeros.
    pub(super) fn lend(&mut self, range: Range<u64>) -> Sg {
        let mut out = Sg::new();
        for (index, part) in parts(range) {
            out.push(match self.map.get_mut(&index) {
                Some(block) => block.lend().slice(part),
                None => self.store.zeros().slice(part),
            });
        }
        out
    }

    /// Copies the bytes of `range` into `out`, which is as long.
    pub(super) fn copy(&self, range: Range<u64>, out: &mut [u8]) {
        passes::count(Pass::Copy, out.len());
        let mut at = 0;
        for (index, part) in parts(range) {
            let target = &mut out[at..at + part.len()];
            at += part.len();
            match self.map.get(&index) {
                Some(block) => target.copy_from_slice(&block.bytes()[part]),
                None => target.fill(0),
            }
        }
    }

    /// Writes all of `src` at `offset`, or nothing.
    ///
    /// # Errors
    /// `NoSpace` when the new blocks exceed the capacity; `NoMemory`.
    pub(super) fn write(&mut self, offset: u64, src: &Sg) -> VfsResult<()> {
        let range = offset..offset + arena::sg_len(src) as u64;
        // Steps that can fail come first. New blocks are not cleared, so all of their bytes must be written below.
        self.detach(&range)?;
        self.prepare(&range)?;
        passes::count(Pass::Copy, (range.end - range.start) as usize);
        let mut src = src.iter().map(|b| &b[..]);
        let mut from: &[u8] = &[];
        for (index, part) in parts(range) {
            let Some(block) = self.map.get_mut(&index) else { return Err(VfsError::NoMemory) };
            let mut target = &mut block.unique(&self.store)?[part];
            while !target.is_empty() {
                while from.is_empty() {
                    let Some(next) = src.next() else { return Ok(()) };
                    from = next;
                }
                let n = from.len().min(target.len());
                target[..n].copy_from_slice(&from[..n]);
                (from, target) = (&from[n..], &mut target[n..]);
            }
        }
        Ok(())
    }

    /// Copies the existing blocks of `range` that readers hold; their content does not change.
    fn detach(&mut self, range: &Range<u64>) -> VfsResult<()> {
        if range.start < range.end {
            for (_, block) in self.map.range_mut(range.start / BLOCK..=(range.end - 1) / BLOCK) {
                block.unique(&self.store)?;
            }
        }
        Ok(())
    }

    /// Allocates the missing blocks of `range`; all of them or none.
    fn prepare(&mut self, range: &Range<u64>) -> VfsResult<()> {
        let mut made: Vec<u64> = Vec::new();
        for (index, part) in parts(range.clone()) {
            if self.map.contains_key(&index) {
                continue;
            }
            match self.store.block() {
                Ok(mut block) => {
                    // Clears only the parts that will not be written.
                    block.space()[..part.start].fill(0);
                    block.space()[part.end..BLOCK as usize].fill(0);
                    block.set_len(BLOCK as usize);
                    self.map.insert(index, Block(Some(State::Own(block))));
                    made.push(index);
                }
                Err(e) => {
                    made.iter().for_each(|index| self.drop_block(*index));
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Makes `range` read as zero; whole blocks are freed.
    ///
    /// # Errors
    /// `NoMemory` when a block that readers hold cannot be copied.
    pub(super) fn zero(&mut self, range: Range<u64>) -> VfsResult<()> {
        if range.start >= range.end {
            return Ok(());
        }
        let touched = range.start / BLOCK..=(range.end - 1) / BLOCK;
        let there: Vec<u64> = self.map.range(touched).map(|(index, _)| *index).collect();
        for index in there {
            let start = range.start.saturating_sub(index * BLOCK).min(BLOCK) as usize;
            let end = range.end.saturating_sub(index * BLOCK).min(BLOCK) as usize;
            if (start, end) == (0, BLOCK as usize) {
                self.drop_block(index);
            } else if let Some(block) = self.map.get_mut(&index) {
                block.unique(&self.store)?[start..end].fill(0);
            }
        }
        Ok(())
    }

    /// The ranges inside `range` that have blocks, merged, at most `limit`.
    pub(super) fn allocated(&self, range: Range<u64>, limit: usize) -> Vec<Range<u64>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        if range.start >= range.end {
            return out;
        }
        for (index, _) in self.map.range(range.start / BLOCK..=(range.end - 1) / BLOCK) {
            let start = (index * BLOCK).max(range.start);
            let end = ((index + 1) * BLOCK).min(range.end);
            let room = out.len() < limit;
            match out.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ if !room => break,
                _ => out.push(start..end),
            }
        }
        out
    }

    fn drop_block(&mut self, index: u64) {
        if self.map.remove(&index).is_some() {
            self.store.release(BLOCK);
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.store.release(self.allocation());
    }
}

impl Block {
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Some(State::Own(b)) => b,
            Some(State::Lent(b)) => b,
            None => &[],
        }
    }

    fn lend(&mut self) -> IoBuf {
        let shared = match self.0.take() {
            Some(State::Own(b)) => b.freeze(),
            Some(State::Lent(b)) => b,
            None => IoBuf::from(vec![0; BLOCK as usize]),
        };
        self.0 = Some(State::Lent(shared.clone()));
        shared
    }

    /// The bytes to write to: a copy if a reader still holds the block.
    fn unique(&mut self, store: &Store) -> VfsResult<&mut [u8]> {
        if let Some(State::Lent(shared)) = self.0.take_if(|s| matches!(s, State::Lent(_))) {
            match shared.try_unfreeze() {
                Ok(own) => self.0 = Some(State::Own(own)),
                Err(shared) => match store.spare() {
                    Ok(mut own) => {
                        passes::count(Pass::Copy, shared.len());
                        own.append(&shared);
                        self.0 = Some(State::Own(own));
                    }
                    Err(e) => {
                        self.0 = Some(State::Lent(shared));
                        return Err(e);
                    }
                },
            }
        }
        match &mut self.0 {
            Some(State::Own(own)) => Ok(own.filled_mut()),
            _ => Err(VfsError::NoMemory),
        }
    }
}

/// The blocks that a range touches, and which part of each.
fn parts(range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let index = at / BLOCK;
        let start = at - index * BLOCK;
        let end = (range.end - index * BLOCK).min(BLOCK);
        at = index * BLOCK + end;
        Some((index, start as usize..end as usize))
    })
}

/// The class for blocks: it may use the whole of the store's arena.
pub(super) const CLASS: Class = Class::Control;
