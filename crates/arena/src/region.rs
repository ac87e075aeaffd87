//! The mapping, its budget, and who waits for it.
//!
//! Safety invariant: a chunk that the buddy allocator handed out belongs to exactly one [`IoBufMut`], or to the
//! owners of one frozen block, until it is given back; so slices of different chunks never overlap, and a unique
//! buffer's slice is not aliased. The mapping lives as long as `Region`, which every buffer keeps alive.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::buddy::{Buddy, order_for};
use crate::{CHUNK_MAX, CHUNK_MIN, IoBufMut, SgMut};

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
    /// What must move for payload to be given back (CLOSE, CANCEL, acknowledgements): may use the reserve.
    Control,
}

/// How full the arena is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The whole budget.
    pub budget: usize,
    /// What is handed out now.
    pub used: usize,
    /// What only [`Class::Control`] may take.
    pub reserve: usize,
    /// How many callers wait for payload memory.
    pub waiting: usize,
}

pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    reserve_pages: usize,
    buddy: Mutex<Buddy>,
    freed: Notify,
    waiting: AtomicUsize,
}

// SAFETY: the mapping is plain memory; access to its parts follows the module's invariant.
unsafe impl Send for Region {}
// SAFETY: as above; shared state is behind the mutex and atomics.
unsafe impl Sync for Region {}

impl Arena {
    /// Maps `budget` bytes, rounded up to whole largest chunks (at least two). Pages are touched on first use.
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
            freed: Notify::new(),
            waiting: AtomicUsize::new(0),
        };
        Ok(Arena { region: Arc::new(region) })
    }

    /// A buffer of capacity at least `len` (up to [`CHUNK_MAX`]) and length 0, or `None` when the budget for
    /// `class` is spent.
    ///
    /// # Panics
    /// When `len` is larger than [`CHUNK_MAX`].
    pub fn try_alloc(&self, len: usize, class: Class) -> Option<IoBufMut> {
        assert!(len <= CHUNK_MAX, "a chunk holds at most {CHUNK_MAX} bytes, {len} were asked for");
        let order = order_for(len);
        let page = {
            let mut buddy = self.region.buddy.lock();
            if class == Class::Payload && buddy.free_pages() < (1 << order) + self.region.reserve_pages {
                return None;
            }
            buddy.take(order)?
        };
        Some(IoBufMut::new(Arc::clone(&self.region), page, order))
    }

    /// Buffers with a capacity of at least `len` together, or `None`; all or nothing.
    pub fn try_alloc_sg(&self, len: usize, class: Class) -> Option<SgMut> {
        let mut out = SgMut::new();
        let mut left = len;
        while left > 0 {
            let n = left.min(CHUNK_MAX);
            out.push(self.try_alloc(n, class)?);
            left -= n;
        }
        Some(out)
    }

    /// Like [`Arena::try_alloc_sg`], waiting until there is memory. Waiters are served in turn.
    ///
    /// # Panics
    /// When `len` is more than half the budget, which might never be free at once: callers bound their I/O size.
    pub async fn alloc_sg(&self, len: usize, class: Class) -> SgMut {
        assert!(len <= self.region.bytes / 2, "{len} bytes of a budget of {}", self.region.bytes);
        if let Some(sg) = self.try_alloc_sg(len, class) {
            return sg;
        }
        let _waiting = Waiting::enter(&self.region);
        loop {
            let freed = self.region.freed.notified();
            if let Some(sg) = self.try_alloc_sg(len, class) {
                self.region.freed.notify_one(); // there may be enough for the next one too
                return sg;
            }
            freed.await;
        }
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        let free = self.region.buddy.lock().free_pages() * CHUNK_MIN;
        Usage {
            budget: self.region.bytes,
            used: self.region.bytes - free,
            reserve: self.region.reserve_pages * CHUNK_MIN,
            waiting: self.region.waiting.load(Ordering::Relaxed),
        }
    }

    /// The mapping as address and length in bytes, for registering it with a ring or a protection domain.
    pub fn mapping(&self) -> (NonNull<u8>, usize) {
        (self.region.base, self.region.bytes)
    }
}

impl Region {
    /// Where a chunk lies.
    pub(crate) fn at(&self, page: usize) -> NonNull<u8> {
        assert!(page * CHUNK_MIN < self.bytes);
        // SAFETY: the offset lies inside the mapping, as just checked.
        unsafe { self.base.add(page * CHUNK_MIN) }
    }

    pub(crate) fn give(&self, page: usize, order: usize) {
        self.buddy.lock().give(page, order);
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.freed.notify_one();
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no buffer is left: each keeps the region alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Counts a waiter for as long as it lives, and passes a wake-up on when it goes away without using it.
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
