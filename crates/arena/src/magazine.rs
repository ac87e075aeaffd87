//! Per-thread caches of freed blocks. A thread usually needs a block again soon after freeing one. The cache
//! then avoids the region's lock, atomic read-modify-writes and the allocator.
//!
//! When the last owner drops a block, its thread puts the block into its magazine, unless memory is short. An
//! allocation of that size on the same thread takes it out.
//!
//! Invariants:
//! 1. A block in a magazine has no other owner.
//! 2. `Region::kept` of the thread's slot is the number of pages in its magazine; only that thread writes it.
//! 3. A magazine holds at most 1/256 of its region's pages, and there are [`SLOTS`] slots. So at most a
//!    quarter of the memory is unavailable to other threads. Nothing is added while an allocation waits.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::buf::Block;
use crate::region::Region;

/// Maximum threads with a magazine for one region.
pub(crate) const SLOTS: usize = 64;
/// The number of block sizes that are kept: 4 KiB to 256 KiB.
const ORDERS: usize = 7;
/// Limits of a magazine: this many pages, and one part in [`SHARE`] of its region's pages.
const PAGES_MAX: usize = 512;
const SHARE: usize = 256;

thread_local! {
    static MAGAZINE: RefCell<Magazine> = const { RefCell::new(Magazine { of: None, pages: 0, blocks: [const { Vec::new() }; ORDERS] }) };
}

struct Magazine {
    /// The region of these blocks, and this thread's slot in it.
    of: Option<(Arc<Region>, usize)>,
    pages: usize,
    blocks: [Vec<Arc<Block>>; ORDERS],
}

/// Takes a block of `pages` from this thread's magazine.
pub(crate) fn take(region: &Arc<Region>, pages: usize) -> Option<Arc<Block>> {
    let order = order_of(pages)?;
    MAGAZINE.try_with(|m| m.try_borrow_mut().ok()?.take(region, order)).ok().flatten()
}

/// Puts a block without other owners into the magazine. Returns the block if it is not kept.
pub(crate) fn keep(block: Arc<Block>) -> Option<Arc<Block>> {
    let mut block = Some(block);
    let _ = MAGAZINE.try_with(|m| {
        if let Ok(mut magazine) = m.try_borrow_mut() {
            block = block.take().and_then(|block| magazine.keep(block));
        }
    });
    block
}

/// Returns all blocks in this thread's magazine to `region`; whether there were any.
pub(crate) fn empty(region: &Arc<Region>) -> bool {
    let kept = MAGAZINE.try_with(|m| m.try_borrow_mut().ok().and_then(|mut m| m.empty(region)));
    kept.ok().flatten().is_some()
}

fn order_of(pages: usize) -> Option<usize> {
    let order = pages.trailing_zeros() as usize;
    (pages.is_power_of_two() && order < ORDERS).then_some(order)
}

impl Magazine {
    fn take(&mut self, region: &Arc<Region>, order: usize) -> Option<Arc<Block>> {
        let (of, _) = self.of.as_ref()?;
        if !Arc::ptr_eq(of, region) {
            return None;
        }
        let block = self.blocks[order].pop()?;
        self.changed(self.pages - (1 << order));
        Some(block)
    }

    fn keep(&mut self, block: Arc<Block>) -> Option<Arc<Block>> {
        let Block::Arena(chunk) = &*block else { return Some(block) };
        let (region, pages) = (chunk.region(), chunk.pages());
        let Some(order) = order_of(pages) else { return Some(block) };
        let most = PAGES_MAX.min(region.pages() / SHARE);
        if self.pages + pages > most || region.is_short() || !self.is_of(region) {
            return Some(block);
        }
        self.blocks[order].push(block);
        self.changed(self.pages + pages);
        None
    }

    /// Whether this magazine belongs to `region`; an empty magazine is reassigned to it.
    fn is_of(&mut self, region: &Arc<Region>) -> bool {
        if self.of.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, region)) {
            return true;
        }
        if self.pages > 0 {
            return false;
        }
        self.leave();
        self.of = region.enter().map(|slot| (Arc::clone(region), slot));
        self.of.is_some()
    }

    fn empty(&mut self, region: &Arc<Region>) -> Option<()> {
        if self.pages == 0 || !self.of.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, region)) {
            return None;
        }
        self.blocks.iter_mut().for_each(Vec::clear);
        self.changed(0);
        Some(())
    }

    fn changed(&mut self, pages: usize) {
        self.pages = pages;
        if let Some((region, slot)) = &self.of {
            region.magazine_pages[*slot].0.store(pages, Ordering::Relaxed);
        }
    }

    fn leave(&mut self) {
        if let Some((region, slot)) = self.of.take() {
            region.leave(slot);
        }
    }
}

impl Drop for Magazine {
    fn drop(&mut self) {
        self.blocks.iter_mut().for_each(Vec::clear);
        self.changed(0);
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use crate::{Arena, CHUNK_MIN, Class};

    #[test]
    fn a_freed_block_is_used_again_and_counts_as_free() {
        let arena = Arena::new(64 << 20).expect("a mapping");
        let first = arena.try_alloc(8192, Class::Payload).expect("memory");
        let at = first.as_ptr();
        drop(first);
        assert_eq!(arena.usage().used, 0);
        let again = arena.try_alloc(8192, Class::Payload).expect("memory").freeze();
        assert_eq!((again.as_ptr(), arena.usage().used), (at, 8192));
        drop(again.clone());
        assert_eq!(arena.usage().used, 8192, "it has an owner left");
    }

    #[test]
    fn it_is_bounded_and_leaves_nothing_behind() {
        let arena = Arena::new(64 << 20).expect("a mapping");
        let worker = arena.clone();
        let kept = std::thread::spawn(move || {
            let held: Vec<_> = (0..1000).map(|_| worker.try_alloc(CHUNK_MIN, Class::Payload)).collect();
            drop(held);
            assert_eq!(worker.usage().used, 0);
            worker.cached_pages()
        });
        assert_eq!(kept.join().expect("no panic"), 64, "a 256th");
        assert_eq!((arena.cached_pages(), arena.usage().used), (0, 0), "the thread has ended");
    }

    #[test]
    fn nothing_is_kept_from_an_allocation_of_all() {
        let arena = Arena::new(4 << 20).expect("a mapping");
        drop(arena.try_alloc(CHUNK_MIN, Class::Control));
        assert_eq!(arena.cached_pages(), 1);
        let all = arena.try_alloc_sg(4 << 20, Class::Control).expect("what is kept is given back for it");
        drop(arena.try_alloc(CHUNK_MIN, Class::Control));
        assert_eq!(arena.usage().used, 4 << 20);
        drop(all);
        assert_eq!(arena.usage().used, 0);
    }
}
