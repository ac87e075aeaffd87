//! The memory mapping, its budget, and callers that wait for memory.
//!
//! Safety invariant: until it is returned, a chunk of the buddy allocator belongs to exactly one
//! [`IoBufMut`], or to the owners of one frozen block, or is cut into blocks that do not overlap. So slices
//! of different chunks never overlap, and a unique buffer's slice is not aliased. Every buffer keeps
//! `Region`, and with it the mapping, alive.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::buddy::{Buddy, order_for};
use crate::magazine::{self, SLOTS};
use crate::{CHUNK_MAX, CHUNK_MIN, IoBufMut, RUN_MAX, SgMut};

/// The process's payload memory: a handle, cheap to clone.
#[derive(Clone)]
pub struct Arena {
    region: Arc<Region>,
}

/// What an allocation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Read and write payload: refused when only the reserve is left.
    Payload,
    /// Messages that let payload memory be freed (CLOSE, CANCEL, acknowledgements): may use the reserve.
    Control,
}

/// Memory use of the arena, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The size of the arena.
    pub budget: usize,
    /// Allocated bytes.
    pub used: usize,
    /// Bytes that only [`Class::Control`] may use.
    pub reserve: usize,
    /// The number of callers that wait for memory.
    pub waiting: usize,
}

pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    reserve_pages: usize,
    buddy: Mutex<Buddy>,
    /// The buddy allocator's free pages: written under its lock, read without it.
    free_pages: AtomicUsize,
    freed: Notify,
    waiting: AtomicUsize,
    /// Bitmask of the slots in use by threads.
    slots: AtomicU64,
    /// Pages in the magazine of each slot's thread.
    pub(crate) magazine_pages: [PageCount; SLOTS],
}

/// A counter that only one thread writes, on its own cache line.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct PageCount(pub(crate) AtomicUsize);

// SAFETY: the mapping is plain memory; access to its parts follows the module's invariant.
unsafe impl Send for Region {}
// SAFETY: as above; shared state is behind the mutex and atomics.
unsafe impl Sync for Region {}

impl Arena {
    /// Maps `budget` bytes, rounded up to a multiple of [`CHUNK_MAX`] (at least two chunks). The kernel
    /// provides pages on first use.
    ///
    /// # Errors
    /// The system's error when the address range cannot be mapped.
    pub fn new(budget: usize) -> io::Result<Arena> {
        let bytes = budget.div_ceil(CHUNK_MAX).max(2) * CHUNK_MAX;
        // SAFETY: an anonymous private mapping at an address of the kernel's choosing touches no existing memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let pages = bytes / CHUNK_MIN;
        let region = Region {
            base,
            bytes,
            reserve_pages: pages / 16,
            buddy: Mutex::new(Buddy::new(pages)),
            free_pages: AtomicUsize::new(pages),
            freed: Notify::new(),
            waiting: AtomicUsize::new(0),
            slots: AtomicU64::new(0),
            magazine_pages: std::array::from_fn(|_| PageCount::default()),
        };
        Ok(Arena { region: Arc::new(region) })
    }

    /// A buffer of length 0 and a capacity of at least `len` (up to [`CHUNK_MAX`]). Returns `None` if the
    /// budget for `class` is exhausted.
    ///
    /// # Panics
    /// If `len` is larger than [`CHUNK_MAX`].
    pub fn try_alloc(&self, len: usize, class: Class) -> Option<IoBufMut> {
        assert!(len <= CHUNK_MAX, "a chunk holds at most {CHUNK_MAX} bytes, {len} were asked for");
        self.take(1 << order_for(len), class)
    }

    /// A contiguous buffer of at least `len` bytes, in whole pages of 4 KiB. Beyond [`CHUNK_MAX`] it can
    /// return `None` because free memory is fragmented, so the caller needs a fallback.
    ///
    /// # Panics
    /// If `len` is larger than [`RUN_MAX`].
    pub fn try_alloc_run(&self, len: usize, class: Class) -> Option<IoBufMut> {
        assert!(len <= RUN_MAX, "a run holds at most {RUN_MAX} bytes, {len} were asked for");
        self.take(len.max(1).div_ceil(CHUNK_MIN), class)
    }

    fn take(&self, pages: usize, class: Class) -> Option<IoBufMut> {
        if let Some(block) = magazine::take(&self.region, pages) {
            return Some(IoBufMut::reuse(block));
        }
        let page = self.region.take(pages, class);
        let page =
            page.or_else(|| self.empty_magazine().then(|| self.region.take(pages, class)).flatten())?;
        Some(IoBufMut::new(Arc::clone(&self.region), page, pages))
    }

    /// Returns this thread's magazine to the region after an allocation failed; whether there was anything to
    /// return.
    fn empty_magazine(&self) -> bool {
        magazine::empty(&self.region)
    }

    /// Buffers with a total capacity of at least `len`, or `None`. They are chunks of [`CHUNK_MAX`] and a
    /// last one, or smaller ones if free memory is fragmented: only the amount of free memory matters.
    pub fn try_alloc_sg(&self, len: usize, class: Class) -> Option<SgMut> {
        if len <= CHUNK_MAX
            && let Some(block) = magazine::take(&self.region, 1 << order_for(len))
        {
            return Some(SgMut::from_buf([IoBufMut::reuse(block)]));
        }
        let found = self.scattered(len, class);
        found.or_else(|| self.empty_magazine().then(|| self.scattered(len, class)).flatten())
    }

    fn scattered(&self, len: usize, class: Class) -> Option<SgMut> {
        let reserve = if class == Class::Payload { self.region.reserve_pages } else { 0 };
        let mut taken: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        {
            let mut buddy = self.region.buddy.lock();
            let mut left = len;
            while left > 0 {
                let whole = order_for(left.min(CHUNK_MAX));
                let found = (0..=whole).rev().find_map(|order| {
                    let room = buddy.free_pages() >= (1 << order) + reserve;
                    room.then(|| buddy.take(1 << order)).flatten().map(|page| (page, 1 << order))
                });
                let Some((page, pages)) = found else {
                    // The lock was held all the time, so no waiter missed this memory and none needs a
                    // wake-up.
                    taken.iter().for_each(|(page, pages)| buddy.give(*page, *pages));
                    return None;
                };
                taken.push((page, pages));
                left = left.saturating_sub(pages * CHUNK_MIN);
            }
            self.region.note_free(&buddy);
        }
        Some(
            taken
                .iter()
                .map(|(page, pages)| IoBufMut::new(Arc::clone(&self.region), *page, *pages))
                .collect(),
        )
    }

    /// Like [`Arena::try_alloc_sg`], but waits for memory. Waiters are served in order.
    ///
    /// # Panics
    /// If `len` is more than half the budget: so much might never be free at once. Callers limit their I/O
    /// size.
    pub async fn alloc_sg(&self, len: usize, class: Class) -> SgMut {
        assert!(len <= self.region.bytes / 2, "{len} bytes of a budget of {}", self.region.bytes);
        if let Some(sg) = self.try_alloc_sg(len, class) {
            return sg;
        }
        let _waiting = Waiting::enter(&self.region);
        loop {
            let freed = self.region.freed.notified();
            if let Some(sg) = self.try_alloc_sg(len, class) {
                self.region.freed.notify_one(); // there may be enough for the next waiter too
                return sg;
            }
            freed.await;
        }
    }

    /// Memory use, read without a lock: may be slightly stale while other threads allocate.
    pub fn usage(&self) -> Usage {
        let kept: usize = self.region.magazine_pages.iter().map(|k| k.0.load(Ordering::Relaxed)).sum();
        let free = (self.region.free_pages.load(Ordering::Relaxed) + kept) * CHUNK_MIN;
        let free = free.min(self.region.bytes); // a block that leaves a magazine is counted twice for a moment
        Usage {
            budget: self.region.bytes,
            used: self.region.bytes - free,
            reserve: self.region.reserve_pages * CHUNK_MIN,
            waiting: self.region.waiting.load(Ordering::Relaxed),
        }
    }

    /// The size of the arena, in bytes.
    pub fn budget(&self) -> usize {
        self.region.bytes
    }

    /// Free bytes outside the threads' magazines, so a lower bound of what is free. Cheap enough to call for
    /// each request.
    pub fn shared_free(&self) -> usize {
        self.region.free_pages.load(Ordering::Relaxed) * CHUNK_MIN
    }

    /// Whether payload memory is scarce: an allocation waits, or at most twice the reserve is free.
    pub fn is_short(&self) -> bool {
        self.region.waiting.load(Ordering::Relaxed) > 0
            || self.region.free_pages.load(Ordering::Relaxed) <= 2 * self.region.reserve_pages
    }

    /// Pages in the magazines of all threads.
    #[cfg(test)]
    pub(crate) fn cached_pages(&self) -> usize {
        self.region.magazine_pages.iter().map(|k| k.0.load(Ordering::Relaxed)).sum()
    }

    /// The mapping as address and length in bytes, for registering it with a ring or a protection domain.
    pub fn mapping(&self) -> (NonNull<u8>, usize) {
        (self.region.base, self.region.bytes)
    }
}

impl Region {
    /// The address of a page.
    pub(crate) fn at(&self, page: usize) -> NonNull<u8> {
        assert!(page * CHUNK_MIN < self.bytes);
        // SAFETY: the offset lies inside the mapping, as just checked.
        unsafe { self.base.add(page * CHUNK_MIN) }
    }

    /// The size of the region in pages.
    pub(crate) fn pages(&self) -> usize {
        self.bytes / CHUNK_MIN
    }

    /// Whether freed blocks bypass the magazines: an allocation waits, or less than half of the memory is
    /// free.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.free_pages.load(Ordering::Relaxed) < self.pages() / 2
    }

    /// A slot for this thread's magazine, if one is free.
    pub(crate) fn enter(&self) -> Option<usize> {
        let taken = self
            .slots
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |slots| Some(slots | slots.wrapping_add(1)));
        let slot = taken.ok()?.trailing_ones() as usize;
        (slot < SLOTS).then_some(slot)
    }

    /// Releases the slot.
    pub(crate) fn leave(&self, slot: usize) {
        self.magazine_pages[slot].0.store(0, Ordering::Relaxed);
        self.slots.fetch_and(!(1 << slot), Ordering::AcqRel);
    }

    fn take(&self, pages: usize, class: Class) -> Option<usize> {
        let mut buddy = self.buddy.lock();
        if class == Class::Payload && buddy.free_pages() < pages + self.reserve_pages {
            return None;
        }
        let page = buddy.take(pages)?;
        self.note_free(&buddy);
        Some(page)
    }

    /// Publishes the number of free pages; the caller holds the lock.
    fn note_free(&self, buddy: &Buddy) {
        self.free_pages.store(buddy.free_pages(), Ordering::Relaxed);
    }

    pub(crate) fn give(&self, page: usize, pages: usize) {
        {
            let mut buddy = self.buddy.lock();
            buddy.give(page, pages);
            self.note_free(&buddy);
        }
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.freed.notify_one();
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this region owns the mapping, and no buffer exists any more: each keeps the region alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Counts a waiter while it exists. On drop it passes on a wake-up that it may not have used.
struct Waiting<'a>(&'a Region);

impl<'a> Waiting<'a> {
    fn enter(region: &'a Region) -> Waiting<'a> {
        region.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(region)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_leaves_the_reserve() {
        let arena = Arena::new(4 << 20).expect("a small mapping");
        let mut held = Vec::new();
        while let Some(b) = arena.try_alloc(CHUNK_MIN, Class::Payload) {
            held.push(b);
        }
        let u = arena.usage();
        assert_eq!(u.budget - u.used, u.reserve);
        assert!(arena.try_alloc(CHUNK_MIN, Class::Control).is_some());
        drop(held);
        assert_eq!(arena.usage().used, 0);
    }

    #[test]
    fn a_run_costs_its_pages() {
        let arena = Arena::new(4 << 20).expect("a small mapping");
        let run = arena.try_alloc_run(CHUNK_MAX + 1, Class::Payload).expect("there is memory");
        assert_eq!((run.capacity(), arena.usage().used), (CHUNK_MAX + CHUNK_MIN, CHUNK_MAX + CHUNK_MIN));
        // The rest of its block is free.
        let rest = arena.try_alloc(CHUNK_MAX / 2, Class::Payload).expect("the other half of its block");
        drop(run);
        drop(rest);
        assert_eq!(arena.usage().used, 0);
        assert!(arena.try_alloc_run(4 << 20, Class::Payload).is_none(), "the reserve is no payload's");
        assert!(arena.try_alloc_run(3 << 20, Class::Payload).is_some());
    }

    #[test]
    fn scattered_memory_is_used() {
        let arena = Arena::new(4 << 20).expect("a small mapping");
        let mut held: Vec<_> =
            std::iter::from_fn(|| arena.try_alloc(2 * CHUNK_MIN, Class::Payload)).collect();
        let mut i = 0;
        held.retain(|_| {
            i += 1;
            i % 2 == 0
        });
        assert!(arena.try_alloc(CHUNK_MAX, Class::Payload).is_none(), "it is not in one piece");
        let used = arena.usage().used;
        let sg = arena.try_alloc_sg(CHUNK_MAX + 1, Class::Payload).expect("there is enough");
        assert!(sg.iter().map(IoBufMut::capacity).sum::<usize>() > CHUNK_MAX);
        assert!(arena.try_alloc_sg(CHUNK_MAX, Class::Payload).is_none());
        drop(sg);
        assert_eq!(arena.usage().used, used, "what did not suffice was given back");
    }

    /// Waiters that cannot be satisfied do not wake each other: a failed attempt wakes no other waiter.
    #[tokio::test]
    async fn waiters_sleep() {
        let arena = Arena::new(8 << 20).expect("a small mapping");
        let mut held: Vec<_> = (0..6).filter_map(|_| arena.try_alloc(CHUNK_MAX, Class::Payload)).collect();
        let wakes = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let (arena, wakes) = (arena.clone(), Arc::clone(&wakes));
                tokio::spawn(async move {
                    let mut wait = std::pin::pin!(arena.alloc_sg(3 * CHUNK_MAX, Class::Payload));
                    std::future::poll_fn(|cx| {
                        wakes.fetch_add(1, Ordering::Relaxed);
                        wait.as_mut().poll(cx)
                    })
                    .await;
                })
            })
            .collect();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!((arena.usage().waiting, wakes.load(Ordering::Relaxed)), (3, 3));
        while held.pop().is_some() {
            tokio::task::yield_now().await;
        }
        for t in tasks {
            t.await.expect("each waiter is served");
        }
    }

    #[tokio::test]
    async fn waiters_are_woken_in_turn() {
        let arena = Arena::new(2 << 20).expect("a small mapping");
        let first = arena.alloc_sg(CHUNK_MAX, Class::Payload).await;
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let arena = arena.clone();
                tokio::spawn(async move {
                    let sg = arena.alloc_sg(CHUNK_MAX, Class::Payload).await;
                    tokio::task::yield_now().await;
                    drop(sg);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        drop(first);
        for t in tasks {
            t.await.expect("each waiter is served");
        }
        assert_eq!(arena.usage().used, 0);
        assert_eq!(arena.usage().waiting, 0);
    }
}
