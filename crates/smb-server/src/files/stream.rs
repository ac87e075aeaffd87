//! The state of one stream of an open file: its byte-range locks, and whether it is cached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use smb_wire::NtStatus;
use tokio::sync::oneshot;

use super::FileState;
use super::locks::{LockRange, LockRefusal, LockTable};

/// One stream of an open file.
pub(crate) struct StreamState {
    /// It has a name, which may change ([`StreamEntry::name`]).
    pub(super) is_named: bool,
    /// It is deleted at its last close (MS-FSA 2.1.1.5, IsDeleted). Only for named streams: the unnamed one is the
    /// file.
    pub(super) deleting: AtomicBool,
    /// Its data changed, which was not reported to watches yet. Only for named streams.
    has_changed: AtomicBool,
    locks: Mutex<LockTable>,
    /// Held locks: lets I/O skip the table when there are none.
    pub(super) lock_count: AtomicUsize,
    /// See [`Caching::summary`]: lets a change of data skip the file's state when no other holder caches.
    pub(super) cached_by: AtomicU64,
}

impl StreamState {
    pub(super) fn new(is_named: bool) -> StreamState {
        StreamState {
            is_named,
            deleting: AtomicBool::new(false),
            has_changed: AtomicBool::new(false),
            locks: Mutex::default(),
            lock_count: AtomicUsize::new(0),
            cached_by: AtomicU64::new(0),
        }
    }

    /// Whether it has a name.
    pub(crate) fn is_named(&self) -> bool {
        self.is_named
    }

    /// Records that its data changes, if it has a name.
    #[inline]
    pub(crate) fn note_change(&self) {
        if self.is_named {
            self.has_changed.store(true, Ordering::Release);
        }
    }

    /// Whether its data has changed since the last call.
    pub(crate) fn take_change(&self) -> bool {
        self.is_named && self.has_changed.swap(false, Ordering::AcqRel)
    }

    /// Whether it is deleted at its last close.
    pub(crate) fn is_deleting(&self) -> bool {
        self.deleting.load(Ordering::Acquire)
    }

    /// Whether any holder but the one with this token caches the stream.
    pub(crate) fn is_cached_by_others(&self, token: u64) -> bool {
        let by = self.cached_by.load(Ordering::Acquire);
        by != 0 && by != token
    }

    /// The byte-range locks that an open holds, in order: offset, length, exclusive.
    pub(crate) fn locks_held_by(&self, open: u64) -> Vec<(u64, u64, bool)> {
        self.locks.lock().list(open)
    }

    /// Byte-range locks that an open holds.
    pub(crate) fn locks_of(&self, open: u64) -> usize {
        self.locks.lock().held_by(open)
    }

    /// Whether a read or write may touch these bytes (MS-SMB2 3.3.5.12, 3.3.5.13).
    ///
    /// # Errors
    /// STATUS_FILE_LOCK_CONFLICT.
    pub(crate) fn check_io(&self, open: u64, offset: u64, length: u64, write: bool) -> Result<(), NtStatus> {
        if length == 0 || self.lock_count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let range = LockRange::new(offset, length).ok_or(NtStatus::INVALID_PARAMETER)?;
        match self.locks.lock().forbids(open, range, write) {
            true => Err(NtStatus::FILE_LOCK_CONFLICT),
            false => Ok(()),
        }
    }

    /// Takes a byte-range lock if it is free.
    ///
    /// # Errors
    /// See [`LockRefusal`].
    pub(crate) fn try_lock(
        &self,
        file: &FileState,
        open: u64,
        range: LockRange,
        exclusive: bool,
    ) -> Result<(), LockRefusal> {
        self.with_locks(|t| {
            file.check_member(open)?;
            t.try_lock(open, range, exclusive)
        })
    }

    /// Takes a byte-range lock or queues for it.
    ///
    /// # Errors
    /// [`LockRefusal::TooMany`] and [`LockRefusal::Closed`] only.
    pub(crate) fn lock_or_wait(
        self: &Arc<Self>,
        file: &FileState,
        open: u64,
        range: LockRange,
        exclusive: bool,
    ) -> Result<Option<LockWait>, LockRefusal> {
        self.with_locks(|t| {
            file.check_member(open)?;
            match t.try_lock(open, range, exclusive) {
                Ok(()) => Ok(None),
                Err(LockRefusal::Conflict) if t.is_crowded() => Err(LockRefusal::TooMany),
                Err(LockRefusal::Conflict) => {
                    let (id, granted) = t.wait(open, range, exclusive);
                    Ok(Some(LockWait { stream: Arc::clone(self), id, granted }))
                }
                Err(e) => Err(e),
            }
        })
    }

    /// Releases a lock of exactly this range; false when the open holds none.
    pub(crate) fn unlock(&self, open: u64, range: LockRange) -> bool {
        self.with_locks(|t| t.unlock(open, range))
    }

    /// Releases a lock that [`StreamState::try_lock`] has just taken.
    pub(crate) fn undo_lock(&self, open: u64, range: LockRange, exclusive: bool) {
        self.with_locks(|t| t.undo(open, range, exclusive));
    }

    pub(super) fn release_locks(&self, open: u64) {
        self.with_locks(|t| t.release(open));
    }

    pub(super) fn with_locks<T>(&self, f: impl FnOnce(&mut LockTable) -> T) -> T {
        let mut table = self.locks.lock();
        let result = f(&mut table);
        self.lock_count.store(table.held(), Ordering::Release);
        result
    }
}

/// A queued lock; dropping it removes the lock from the queue.
pub(crate) struct LockWait {
    stream: Arc<StreamState>,
    id: u64,
    granted: oneshot::Receiver<()>,
}

impl LockWait {
    /// Completes when the lock is held (true) or its open was closed (false).
    pub(crate) async fn granted(&mut self) -> bool {
        (&mut self.granted).await.is_ok()
    }

    /// Removes the lock from the queue; false when it was granted before.
    pub(crate) fn withdraw(&self) -> bool {
        self.stream.with_locks(|t| t.leave(self.id))
    }
}

impl Drop for LockWait {
    fn drop(&mut self) {
        self.withdraw();
    }
}
