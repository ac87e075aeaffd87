//! Blocks of counters with a single writer.
//!
//! Invariants:
//! 1. Only one thread at a time writes to a block, and passing that role to another thread orders memory (a
//!    mutex, an `Arc`'s last drop, a task's move). So an addition needs no locked instruction.
//! 2. `version` is odd while an [`Update`] is in progress. [`Block::values`] returns all of an update or
//!    nothing of it.
//! 3. Blocks share no cache line, nor an aligned pair of lines that the processor prefetches together.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The number of cells in a block.
pub const CELLS: usize = 64;

/// The index of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell(pub(crate) u8);

/// The values of the cells of a block, or the sums of several blocks. Sums wrap.
pub type Values = [u64; CELLS];

/// The counters of one owner.
#[repr(align(128))]
pub struct Block {
    version: AtomicU64,
    cells: [AtomicU64; CELLS],
}

/// A change of several cells that readers see as a whole.
pub struct Update<'a> {
    block: &'a Block,
    version: u64,
}

impl Default for Block {
    fn default() -> Block {
        Block { version: AtomicU64::new(0), cells: [const { AtomicU64::new(0) }; CELLS] }
    }
}

impl Block {
    /// Adds to a cell; only the block's writer may call this.
    #[inline]
    pub fn add(&self, cell: Cell, n: u64) {
        let c = self.cell(cell);
        c.store(c.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets a cell; only the block's writer may call this.
    pub fn set(&self, cell: Cell, n: u64) {
        self.cell(cell).store(n, Ordering::Relaxed);
    }

    /// The value of a cell.
    #[inline]
    pub fn get(&self, cell: Cell) -> u64 {
        self.cell(cell).load(Ordering::Relaxed)
    }

    /// Adds to a cell from any thread. Must not be mixed with [`Block::add`] on the same cell.
    pub fn add_shared(&self, cell: Cell, n: u64) {
        self.cell(cell).fetch_add(n, Ordering::Relaxed);
    }

    /// Subtracts from a cell from any thread; see [`Block::add_shared`].
    pub fn sub_shared(&self, cell: Cell, n: u64) {
        self.cell(cell).fetch_sub(n, Ordering::Relaxed);
    }

    /// Begins an update of several cells, which ends when the value is dropped; only the block's writer may
    /// call this.
    #[inline]
    pub fn update(&self) -> Update<'_> {
        let version = self.version.load(Ordering::Relaxed);
        debug_assert!(version.is_multiple_of(2), "a block has one writer");
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        Update { block: self, version }
    }

    /// All cells, consistent with respect to updates.
    pub fn values(&self) -> Values {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let values = std::array::from_fn(|i| self.cells[i].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return values;
            }
            // The writer is in the middle of an update, perhaps preempted.
            std::thread::yield_now();
        }
    }

    #[inline]
    fn cell(&self, cell: Cell) -> &AtomicU64 {
        &self.cells[usize::from(cell.0) % CELLS]
    }
}

impl Update<'_> {
    /// Adds to one cell.
    #[inline]
    pub fn add(&self, cell: Cell, n: u64) {
        self.block.add(cell, n);
    }

    /// The value of a cell.
    pub fn get(&self, cell: Cell) -> u64 {
        self.block.get(cell)
    }
}

impl Drop for Update<'_> {
    #[inline]
    fn drop(&mut self) {
        self.block.version.store(self.version.wrapping_add(2), Ordering::Release);
    }
}

/// Adds `more` to `sum`, cell by cell.
pub(crate) fn add_values(sum: &mut Values, more: &Values) {
    for (s, m) in sum.iter_mut().zip(more) {
        *s = s.wrapping_add(*m);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn blocks_share_no_cache_line() {
        assert!(align_of::<Block>() >= 128 && size_of::<Block>().is_multiple_of(128));
    }

    #[test]
    fn a_reader_sees_whole_updates() {
        let (block, over) = (Block::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..200_000 {
                    let u = block.update();
                    u.add(Cell(0), 1);
                    u.add(Cell(31), u64::MAX); // takes one away
                    assert_eq!(u.get(Cell(0)), i + 1);
                }
                over.store(true, Ordering::Release);
            });
            let mut last = 0;
            while !over.load(Ordering::Acquire) {
                let v = block.values();
                assert_eq!(v[0].wrapping_add(v[31]), 0, "half of an update was seen");
                assert!(v[0] >= last);
                last = v[0];
            }
        });
        assert_eq!(block.values()[0], 200_000);
    }

    #[test]
    fn many_threads_may_add_to_shared_cells() {
        let block = Block::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        block.add_shared(Cell(7), 3);
                        block.sub_shared(Cell(7), 1);
                    }
                });
            }
        });
        assert_eq!(block.get(Cell(7)), 80_000);
    }
}
