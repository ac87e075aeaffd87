//! The buddy allocator: which chunks of the region are free. Pure bookkeeping, no memory is touched.
//!
//! The allocator hands out *runs* of pages. A chunk is a run whose length is a power of two. A run of any
//! other length is cut from a larger block, and the rest of that block is free.
//!
//! A few freed chunks of each size are cached unmerged (*warm*) for the next request of that size. Most
//! requests find one; merging and splitting chunks each time took a tenth of the time of a small READ. Warm
//! chunks are merged when no other memory is free.
//!
//! Invariants:
//! 1. A page is in exactly one state: in one free block of one order, in one warm chunk, or handed out in one run.
//! 2. A free block's buddy of the same order is not free, except at the largest order.
//! 3. `free_pages` is the number of pages in free blocks and warm chunks.

use crate::{CHUNK_MAX, CHUNK_MIN, RUN_MAX};

/// The number of block sizes: `CHUNK_MIN << order`.
pub(crate) const ORDERS: usize = (RUN_MAX / CHUNK_MIN).trailing_zeros() as usize + 1;

/// The smallest order whose chunk holds `len` bytes.
pub(crate) fn order_for(len: usize) -> usize {
    len.max(1).div_ceil(CHUNK_MIN).next_power_of_two().trailing_zeros() as usize
}

/// The number of chunk sizes that have warm chunks: up to [`CHUNK_MAX`].
const WARM_ORDERS: usize = (CHUNK_MAX / CHUNK_MIN).trailing_zeros() as usize + 1;

/// Maximum warm chunks of each size.
const WARM_MAX: usize = 8;

pub(crate) struct Buddy {
    /// Free blocks by order, as page indexes. An entry is stale if `state` does not confirm it.
    free: [Vec<u32>; ORDERS],
    /// Warm chunks by order, as page indexes.
    warm: [Vec<u32>; WARM_ORDERS],
    /// For the first page of a free block: its order; of a warm chunk: [`WARM`]; otherwise [`BUSY`].
    state: Vec<u8>,
    free_pages: usize,
}

/// The order of the warm chunks that can serve a run of `pages`, if any.
fn warm_order(pages: usize) -> Option<usize> {
    let order = pages.trailing_zeros() as usize;
    (pages.is_power_of_two() && order < WARM_ORDERS).then_some(order)
}

const BUSY: u8 = u8::MAX;
const WARM: u8 = BUSY - 1;

impl Buddy {
    /// An allocator with all of `pages` free.
    pub(crate) fn new(pages: usize) -> Buddy {
        let mut b = Buddy {
            free: Default::default(),
            warm: Default::default(),
            state: vec![BUSY; pages],
            free_pages: 0,
        };
        b.give_cold(0, pages);
        b
    }

    pub(crate) fn free_pages(&self) -> usize {
        self.free_pages
    }

    /// Takes a run of `pages` (at most [`RUN_MAX`] bytes). Returns its first page, or `None` if there is
    /// none.
    pub(crate) fn take(&mut self, pages: usize) -> Option<usize> {
        if let Some(order) = warm_order(pages)
            && let Some(page) = self.warm[order].pop()
        {
            self.state[page as usize] = BUSY;
            self.free_pages -= pages;
            return Some(page as usize);
        }
        if let Some(page) = self.take_cold(pages) {
            return Some(page);
        }
        self.cool();
        self.take_cold(pages)
    }

    fn take_cold(&mut self, pages: usize) -> Option<usize> {
        let order = order_for(pages * CHUNK_MIN);
        let (page, mut at) = (order..ORDERS).find_map(|o| self.pop(o).map(|p| (p, o)))?;
        while at > order {
            at -= 1;
            self.push(page + (1 << at), at);
        }
        self.free_pages -= 1 << order;
        self.give_cold(page + pages, (1 << order) - pages);
        Some(page)
    }

    /// Frees a run that [`Buddy::take`] handed out.
    pub(crate) fn give(&mut self, page: usize, pages: usize) {
        if let Some(order) = warm_order(pages)
            && self.warm[order].len() < WARM_MAX
        {
            assert!(self.state[page] == BUSY, "a run is given back once");
            self.state[page] = WARM;
            self.free_pages += pages;
            self.warm[order].push(page as u32);
            return;
        }
        self.give_cold(page, pages);
    }

    /// Merges all warm chunks with the free blocks next to them.
    fn cool(&mut self) {
        for order in 0..WARM_ORDERS {
            while let Some(page) = self.warm[order].pop() {
                self.state[page as usize] = BUSY;
                self.give_block(page as usize, order);
            }
        }
    }

    /// Frees pages and merges them with the free blocks next to them.
    fn give_cold(&mut self, mut page: usize, mut pages: usize) {
        self.free_pages += pages;
        while pages > 0 {
            let aligned = page.trailing_zeros() as usize; // for page 0: more than any order
            let order = aligned.min(pages.ilog2() as usize).min(ORDERS - 1);
            self.give_block(page, order);
            page += 1 << order;
            pages -= 1 << order;
        }
    }

    fn give_block(&mut self, page: usize, order: usize) {
        assert!(self.state[page] == BUSY, "a run is given back once");
        let (mut page, mut at) = (page, order);
        while at + 1 < ORDERS {
            let buddy = page ^ (1 << at);
            // The region may end within a block of the largest size.
            if self.state.get(buddy) != Some(&(at as u8)) {
                break;
            }
            self.state[buddy] = BUSY; // its entry in `free` is stale from here
            page &= !(1 << at);
            at += 1;
        }
        self.push(page, at);
    }

    fn push(&mut self, page: usize, order: usize) {
        self.state[page] = order as u8;
        let list = &mut self.free[order];
        // Stale entries are removed when they outnumber the possible valid ones, so the list stays bounded.
        if list.len() > 2 * (self.state.len() >> order) + 16 {
            let state = &self.state;
            list.retain(|p| state[*p as usize] == order as u8);
            list.sort_unstable();
            list.dedup();
            if list.binary_search(&(page as u32)).is_ok() {
                return;
            }
        }
        list.push(page as u32);
    }

    fn pop(&mut self, order: usize) -> Option<usize> {
        while let Some(page) = self.free[order].pop() {
            if self.state[page as usize] == order as u8 {
                self.state[page as usize] = BUSY;
                return Some(page as usize);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn orders() {
        assert_eq!(order_for(1), 0);
        assert_eq!(order_for(4096), 0);
        assert_eq!(order_for(4097), 1);
        assert_eq!(order_for(RUN_MAX), ORDERS - 1);
    }

    proptest! {
        /// Against the naive model: a map of the owner of each page. Runs of any length, in a region that is
        /// no multiple of the largest block.
        #[test]
        fn never_hands_out_a_page_twice(ops in proptest::collection::vec((0usize..ORDERS, 1usize..1 << (ORDERS - 1), any::<prop::sample::Index>(), any::<bool>()), 1..400)) {
            let pages = (2 << (ORDERS - 1)) + 768;
            let mut buddy = Buddy::new(pages);
            let mut owner = vec![false; pages];
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (order, run, pick, take) in ops {
                if take || held.is_empty() {
                    let run = (run >> order).max(1);
                    if let Some(page) = buddy.take(run) {
                        prop_assert_eq!(page % run.next_power_of_two(), 0);
                        for o in &mut owner[page..page + run] {
                            prop_assert!(!*o);
                            *o = true;
                        }
                        held.push((page, run));
                    }
                } else {
                    let (page, run) = held.swap_remove(pick.index(held.len()));
                    owner[page..page + run].fill(false);
                    buddy.give(page, run);
                }
                prop_assert_eq!(buddy.free_pages(), owner.iter().filter(|o| !**o).count());
            }
            for (page, run) in held {
                buddy.give(page, run);
            }
            // Everything merged again: all the largest blocks can be had, and the rest.
            for run in [1 << (ORDERS - 1), 1 << (ORDERS - 1), 512, 256] {
                prop_assert!(buddy.take(run).is_some());
            }
            prop_assert!(buddy.take(1).is_none());
        }
    }
}
