//! Cells with one writer.
//!
//! Invariants:
//! 1. One thread at a time writes to a block; handing the writing over orders memory (a mutex, an `Arc`'s last drop,
//!    a task's move). So an addition needs no locked instruction.
//! 2. `version` is odd while an [`Update`] is under way. [`Block::values`] gives all of an update or nothing of it.
//! 3. Two blocks share no cache line, nor a pair that is fetched together.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Cells of a block.
pub const CELLS: usize = 64;

/// Which cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell(pub(crate) u8);

/// What the cells of a block, or of several together, hold. Sums wrap.
pub type Values = [u64; CELLS];

/// Counts of one owner.
#[repr(align(128))]
pub struct Block {
    version: AtomicU64,
    cells: [AtomicU64; CELLS],
}

/// Several cells that change together.
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
    /// Adds to one cell; its one writer calls this.
    #[inline]
    pub fn add(&self, cell: Cell, n: u64) {
        let c = self.cell(cell);
        c.store(c.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets one cell; its one writer calls this.
    pub fn set(&self, cell: Cell, n: u64) {
        self.cell(cell).store(n, Ordering::Relaxed);
    }

    /// One cell.
    #[inline]
    pub fn get(&self, cell: Cell) -> u64 {
        self.cell(cell).load(Ordering::Relaxed)
    }

    /// Adds to one cell from any thread; never to a cell that [`Block::add`] is used on.
    pub fn add_shared(&self, cell: Cell, n: u64) {
        self.cell(cell).fetch_add(n, Ordering::Relaxed);
    }

    /// Takes from one cell from any thread, as [`Block::add_shared`].
    pub fn sub_shared(&self, cell: Cell, n: u64) {
        self.cell(cell).fetch_sub(n, Ordering::Relaxed);
    }

    /// Begins a change of several cells, which ends when the value is dropped; its one writer calls this.
    #[inline]
    pub fn update(&self) -> Update<'_> {
        let version = self.version.load(Ordering::Relaxed);
        debug_assert!(version.is_multiple_of(2), "a block has one writer");
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        Update { block: self, version }
    }

    /// All cells, as they were between two updates.
    pub fn values(&self) -> Values {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let values = std::array::from_fn(|i| self.cells[i].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return values;
            }
            // The writer is in the middle of a few stores, or was taken off its processor there.
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

    /// One cell.
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
