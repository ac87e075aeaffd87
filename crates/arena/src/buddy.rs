//! The buddy allocator: which chunks of the region are free. Pure bookkeeping, no memory is touched.
//!
//! Invariants:
//! 1. A page range is in exactly one state: free at one order, or handed out at one order.
//! 2. A free block's buddy of the same order is not free, except at the largest order.
//! 3. `free_pages` is the number of pages in free blocks.

use crate::{CHUNK_MAX, CHUNK_MIN};

/// The number of chunk sizes: `CHUNK_MIN << order`.
pub(crate) const ORDERS: usize = (CHUNK_MAX / CHUNK_MIN).trailing_zeros() as usize + 1;

/// The smallest order whose chunk holds `len` bytes.
pub(crate) fn order_for(len: usize) -> usize {
    len.max(1).div_ceil(CHUNK_MIN).next_power_of_two().trailing_zeros() as usize
}

pub(crate) struct Buddy {
    /// Free blocks by order, as page indexes; may hold stale entries that `state` disowns.
    free: [Vec<u32>; ORDERS],
    /// For the first page of a free block: its order; otherwise [`BUSY`].
    state: Vec<u8>,
    free_pages: usize,
}

const BUSY: u8 = u8::MAX;

impl Buddy {
    /// All of `pages` free; `pages` is a multiple of the largest chunk's.
    pub(crate) fn new(pages: usize) -> Buddy {
        let top = ORDERS - 1;
        let mut b = Buddy { free: Default::default(), state: vec![BUSY; pages], free_pages: pages };
        for page in (0..pages).step_by(1 << top).rev() {
            b.push(page, top);
        }
        b
    }

    pub(crate) fn free_pages(&self) -> usize {
        self.free_pages
    }

    /// Takes a chunk of `order`; the page index, or `None` when there is none.
    pub(crate) fn take(&mut self, order: usize) -> Option<usize> {
        let (page, mut at) = (order..ORDERS).find_map(|o| self.pop(o).map(|p| (p, o)))?;
        while at > order {
            at -= 1;
            self.push(page + (1 << at), at);
        }
        self.free_pages -= 1 << order;
        Some(page)
    }

    /// Gives back a chunk that [`Buddy::take`] handed out, merging it with its free buddies.
    pub(crate) fn give(&mut self, page: usize, order: usize) {
        assert!(self.state[page] == BUSY, "a chunk is given back once");
        self.free_pages += 1 << order;
        let (mut page, mut at) = (page, order);
        while at + 1 < ORDERS {
            let buddy = page ^ (1 << at);
            if self.state[buddy] != at as u8 {
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
        // Stale entries are dropped when they outnumber what could be real, so a list stays bounded.
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
        assert_eq!(order_for(CHUNK_MAX), ORDERS - 1);
    }

    proptest! {
        /// Against the naive model: a map of who owns each page.
        #[test]
        fn never_hands_out_a_page_twice(ops in proptest::collection::vec((0usize..ORDERS, any::<prop::sample::Index>(), any::<bool>()), 1..400)) {
            let pages = 4 << (ORDERS - 1);
            let mut buddy = Buddy::new(pages);
            let mut owner = vec![false; pages];
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (order, pick, take) in ops {
                if take || held.is_empty() {
                    if let Some(page) = buddy.take(order) {
                        prop_assert_eq!(page % (1 << order), 0);
                        for o in &mut owner[page..page + (1 << order)] {
                            prop_assert!(!*o);
                            *o = true;
                        }
                        held.push((page, order));
                    }
                } else {
                    let (page, order) = held.swap_remove(pick.index(held.len()));
                    owner[page..page + (1 << order)].fill(false);
                    buddy.give(page, order);
                }
                prop_assert_eq!(buddy.free_pages(), owner.iter().filter(|o| !**o).count());
            }
            for (page, order) in held {
                buddy.give(page, order);
            }
            // Everything merged again: all the largest chunks can be had.
            for _ in 0..4 {
                prop_assert!(buddy.take(ORDERS - 1).is_some());
            }
            prop_assert!(buddy.take(0).is_none());
        }
    }
}
