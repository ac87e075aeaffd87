//! The memory of a tree and its limit.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use arena::{Arena, CHUNK_MAX, Class, IoBuf, IoBufMut};

use super::blocks::{BLOCK, CLASS};
use crate::{VfsError, VfsResult};

/// The allocator of blocks, and the used capacity.
pub(super) struct Store {
    /// `None` for a tree that keeps no data.
    arena: Option<Arena>,
    /// The limit in bytes.
    capacity: u64,
    used: AtomicU64,
    zeros: OnceLock<IoBuf>,
    /// A buffer of zeros in the callers' arena, and that arena's address.
    lent: OnceLock<(usize, IoBuf)>,
}

impl Store {
    /// # Errors
    /// The system's, when the address range cannot be mapped.
    pub(super) fn new(capacity: u64, keeps_data: bool) -> std::io::Result<Store> {
        let arena = if keeps_data {
            // The arena is larger than the capacity, because blocks that readers hold are copied when they are written.
            let bytes = capacity.saturating_add(capacity / 4).saturating_add(16 << 20);
            Some(Arena::new(usize::try_from(bytes).unwrap_or(usize::MAX))?)
        } else {
            None
        };
        let (zeros, lent) = (OnceLock::new(), OnceLock::new());
        Ok(Store { arena, capacity, used: AtomicU64::new(0), zeros, lent })
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes` of the capacity.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn charge(&self, bytes: u64) -> VfsResult<()> {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.capacity);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(VfsError::NoSpace),
        }
    }

    pub(super) fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A block, charged, not cleared.
    ///
    /// # Errors
    /// `NoSpace`, `NoMemory`.
    pub(super) fn block(&self) -> VfsResult<IoBufMut> {
        self.charge(BLOCK)?;
        self.spare().inspect_err(|_| self.release(BLOCK))
    }

    /// A block that replaces one that is charged already.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(super) fn spare(&self) -> VfsResult<IoBufMut> {
        self.arena.as_ref().and_then(|a| a.try_alloc(BLOCK as usize, CLASS)).ok_or(VfsError::NoMemory)
    }

    /// A block of zeros.
    pub(super) fn zeros(&self) -> &IoBuf {
        self.zeros.get_or_init(|| IoBuf::from(vec![0; BLOCK as usize]))
    }

    /// Up to 1 MiB of zeros, in the callers' arena if that had memory at the first call. It stays allocated.
    pub(super) fn lent_zeros(&self, arena: &Arena) -> &IoBuf {
        let home = arena.mapping().0.as_ptr() as usize;
        if self.lent.get().is_none()
            && let Some(mut b) = arena.try_alloc(CHUNK_MAX, Class::Payload)
        {
            b.space().fill(0);
            b.set_len(CHUNK_MAX);
            let _ = self.lent.set((home, b.freeze()));
        }
        match self.lent.get() {
            Some((at, zeros)) if *at == home => zeros,
            _ => self.zeros(),
        }
    }
}
