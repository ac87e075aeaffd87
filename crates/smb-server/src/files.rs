//! State that all opens of one file share: its opens and their modes, whether it is marked for deletion, its byte-range
//! locks.
//!
//! **File, link and stream.** Opens and streams belong to the file; delete-pending to each of its names ([`Removal`]);
//! share modes, caching rights ([`caching`]) and byte-range locks to each of its streams. Durable opens stay members after
//! their session has ended.
//!
//! **Breaks.** [`FileTable::join_file`] and [`FileState::contend`] decide which caching rights of other opens an
//! operation breaks, and return the notices to send and how long to wait; [`FileState::changed_since`] completes when
//! the caller should retry. This module neither sends nor waits.
//!
//! **Paths.** A file may be reached by several names (hard links, shares that overlap), so the path belongs to the
//! [`Member`]: share and path as the backend stores them.
//!
//! **Races** between opens and changes of names: see [`crate::namespace`].
//!
//! Invariants:
//! 1. A state is in the table exactly while it has members, or while a removal of the file or of one of its streams,
//!    or a rename onto the file, is running.
//! 2. A removal stays until it has ended, and no open joins by its name until then: it waits for [`FileTable::removed`].
//!    A link has at most one.
//! 3. Once [`FileTable::leave_file`] has returned, only members hold locks and wait for them. The lock of a table of
//!    locks is taken before that of a list of members, not the other way round.

pub(crate) mod caching;
mod contend;
pub(crate) mod locks;
mod members;
mod names;
mod removal;
pub(crate) mod share_mode;
mod stream;
mod table;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use env::{Env, Moment};
use parking_lot::Mutex;
use smb_wire::msg::{CompletionFilter, LeaseKey};
use smb_wire::{AccessMask, NtStatus};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, Notify};
use vfs::{FileKey, StreamName, VfsPath, WatchGuard};

use self::caching::{Caching, CachingRequest, Contention, HolderId, HolderState, LeaseId};
pub(crate) use self::removal::{Mark, Removal};
use self::share_mode::ShareMode;
pub(crate) use self::stream::{LockWait, StreamState};
pub(crate) use self::table::Claim;
use crate::share::Share;

/// All open files.
#[derive(Default)]
pub(crate) struct FileTable {
    by_id: Mutex<HashMap<FileKey, Arc<FileState>>>,
}

/// One open file.
pub(crate) struct FileState {
    id: FileKey,
    state: Mutex<State>,
    /// Held while this file is renamed, or one of its names removed.
    naming: AsyncMutex<()>,
    /// Held during a read-modify-write of its metadata: see [`FileState::metadata`].
    metadata: AsyncMutex<()>,
    /// Counts closed opens, ended breaks and completed removals; a waiter retries when it changes.
    changes: AtomicU64,
    changed: Notify,
    /// Changes that were not yet reported to watches: a CompletionFilter, see `namespace::modified`.
    pending_changes: AtomicU32,
    /// When the server last began or completed a change of its data, in ns since [`Moment::START`]; 0 for never.
    changed_at: AtomicU64,
    /// When the server last set the time of the last write, which is no change of data; as `changed_at`.
    written_set_at: AtomicU64,
    /// Doubtful reports of data changes since the running check began, see `namespace::external`; 0 without a check.
    doubts: AtomicU32,
    /// Reports changes of other programs in the file's folder. Set when a client caches the file for the first time.
    folder: OnceLock<Arc<WatchGuard>>,
}

#[derive(Default)]
struct State {
    members: Vec<Member>,
    /// The streams that are open.
    streams: Vec<StreamEntry>,
    /// The names that are marked for deletion.
    removals: Vec<Removal>,
    /// The path that a running rename gives it.
    renamed_to: Option<VfsPath>,
    /// It has no opens, and a rename is about to replace it.
    claimed: bool,
}

/// A change of a file's data, or of its last write time, by the server. Its end is recorded when this is dropped.
#[must_use]
pub(crate) struct DataChange<'f> {
    file: &'f FileState,
    env: &'f Env,
}

impl Drop for DataChange<'_> {
    fn drop(&mut self) {
        self.file.note_change(self.env.moment());
    }
}

/// How limited the access of an open is (MS-FSA 2.1.4.12, OPEN).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccessClass {
    /// It has access to attributes only.
    AttributesOnly,
    /// It may also read the security descriptor: this breaks oplocks, but not leases.
    AttributesAndSecurity,
    /// It has more access.
    More,
}

impl AccessClass {
    /// The class of an open with this access.
    pub(crate) fn of(access: AccessMask) -> AccessClass {
        let attributes = AccessMask::READ_ATTRIBUTES | AccessMask::WRITE_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        match access {
            a if attributes.contains(a) => AccessClass::AttributesOnly,
            a if (attributes | AccessMask::READ_CONTROL).contains(a) => AccessClass::AttributesAndSecurity,
            _ => AccessClass::More,
        }
    }
}

struct StreamEntry {
    /// `None` for the unnamed one.
    name: Option<StreamName>,
    stream: Arc<StreamState>,
    caching: Caching,
}

/// One open of a file, as its other opens see it.
pub(crate) struct Member {
    /// The persistent half of its FileId.
    pub(crate) open: u64,
    /// The stream's name; `None` for the unnamed one.
    pub(crate) stream: Option<StreamName>,
    pub(crate) mode: ShareMode,
    /// How limited its access is: an open with limited access breaks fewer caching rights of others.
    pub(crate) access_class: AccessClass,
    /// The oplock or lease of this open, once it has joined.
    pub(crate) holder: Option<HolderId>,
    /// The lease on its directory that operations through this open do not break.
    pub(crate) parent_lease: Option<LeaseKey>,
    /// Opened with POSIX extensions: it does not keep a file's name from being removed or replaced.
    pub(crate) posix: bool,
    pub(crate) share: Arc<Share>,
    pub(crate) path: VfsPath,
    /// The file had no other name when it was opened, and has got none from a client since.
    pub(crate) only_link: bool,
    /// Opened with FILE_DELETE_ON_CLOSE, or set so later.
    pub(crate) delete_on_close: bool,
}

/// Why an open may not join its file.
pub(crate) enum Refusal {
    /// Names changed during the backend's call: retry.
    Retry,
    /// Other opens hold conflicting caching rights (send them the notices), or the file is being removed. If
    /// `contention` has a deadline, wait ([`FileState::changed_since`]) and retry; otherwise answer with `status`.
    Contended { file: Arc<FileState>, contention: Contention, status: NtStatus },
    /// STATUS_DELETE_PENDING, …
    Status(NtStatus),
}

/// The parameters of a join in addition to the member.
#[derive(Clone, Copy)]
pub(crate) struct JoinOptions {
    pub(crate) caching_request: CachingRequest,
    pub(crate) overwrites: bool,
    pub(crate) directory: bool,
    /// The token of a new caching holder.
    pub(crate) token: u64,
    pub(crate) acknowledge_timeout: Option<Duration>,
    pub(crate) now: Moment,
}

/// An open that has joined its file.
pub(crate) struct JoinedMember {
    pub(crate) file: Arc<FileState>,
    pub(crate) stream: Arc<StreamState>,
    pub(crate) caching: Option<(HolderId, HolderState)>,
    pub(crate) parent_lease: Option<LeaseKey>,
    pub(crate) posix: bool,
}

/// What the caller must do after an open has left its file.
#[derive(Default)]
pub(crate) struct CloseActions {
    /// It was the last open of this lease.
    pub(crate) ended_lease: Option<LeaseId>,
    /// Names of the file are to be removed: see [`FileState::removal`].
    pub(crate) remove: bool,
    /// This stream is to be removed, and [`FileTable::stream_removed`] to be called.
    pub(crate) remove_stream: Option<StreamName>,
}

impl From<NtStatus> for Refusal {
    fn from(status: NtStatus) -> Refusal {
        Refusal::Status(status)
    }
}

impl FileState {
    fn new(id: FileKey) -> FileState {
        FileState {
            id,
            state: Mutex::default(),
            naming: AsyncMutex::default(),
            metadata: AsyncMutex::default(),
            changes: AtomicU64::new(0),
            changed: Notify::new(),
            pending_changes: AtomicU32::new(0),
            changed_at: AtomicU64::new(0),
            written_set_at: AtomicU64::new(0),
            doubts: AtomicU32::new(0),
            folder: OnceLock::new(),
        }
    }

    /// The server begins to change data of the file, or its last write time.
    #[inline]
    pub(crate) fn begin_change<'f>(&'f self, env: &'f Env) -> DataChange<'f> {
        self.note_change(env.moment());
        DataChange { file: self, env }
    }

    /// The server begins to change data of the file, or has done so.
    #[inline]
    pub(crate) fn note_change(&self, now: Moment) {
        self.changed_at.store(now.ns_since(Moment::START), Ordering::Relaxed);
    }

    /// The server sets the time of the last write, to one that is not after now.
    pub(crate) fn note_written_set(&self, now: Moment) {
        self.written_set_at.store(now.ns_since(Moment::START), Ordering::Relaxed);
    }

    /// Whether the last known change of the file's data by the server is later than `lag` before `when`.
    pub(crate) fn has_changed_since(&self, when: Moment, lag: Duration) -> bool {
        let at = self.changed_at.load(Ordering::Relaxed);
        at != 0 && Duration::from_nanos(when.ns_since(Moment::START).saturating_sub(at)) < lag
    }

    /// When the server last began or completed a change of the file's data, or set the time of the last write.
    pub(crate) fn changed_at(&self) -> Moment {
        let (data, time) = (&self.changed_at, &self.written_set_at);
        let last = data.load(Ordering::Relaxed).max(time.load(Ordering::Relaxed));
        Moment::START.after(Duration::from_nanos(last))
    }

    /// Counts a doubtful report of a data change. Returns whether the caller must start a check.
    pub(crate) fn add_doubt(&self) -> bool {
        self.doubts.fetch_add(1, Ordering::AcqRel) == 0
    }

    /// The doubtful reports counted since the running check began.
    pub(crate) fn doubts(&self) -> u32 {
        self.doubts.load(Ordering::Acquire)
    }

    /// Ends the check unless there are more doubtful reports than `doubts`; returns whether it has ended.
    pub(crate) fn end_check(&self, doubts: u32) -> bool {
        self.doubts.compare_exchange(doubts, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Called when a client caches the file. The first call keeps the guard from `watch`, which watches the folder.
    pub(crate) async fn watch_folder(&self, watch: impl Future<Output = Option<Arc<WatchGuard>>>) {
        if self.folder.get().is_none()
            && let Some(guard) = watch.await
        {
            let _ = self.folder.set(guard);
        }
    }

    /// Completes when the counter of closed opens, ended breaks and completed removals differs from `seen`.
    pub(crate) async fn changed_since(&self, seen: u64) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.changes.load(Ordering::Acquire) != seen {
                return;
            }
            changed.await;
        }
    }

    /// Wakes the waiters of this file: they retry.
    fn has_changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// The lock that a rename of the file or the removal of a name holds.
    pub(crate) async fn naming(&self) -> MutexGuard<'_, ()> {
        self.naming.lock().await
    }

    /// Which file it is.
    pub(crate) fn id(&self) -> FileKey {
        self.id
    }

    /// Lock for a read-modify-write of the file's metadata (its security descriptor, its attributes, its length): of
    /// two concurrent ones the second reads what the first has stored.
    pub(crate) async fn metadata(&self) -> MutexGuard<'_, ()> {
        self.metadata.lock().await
    }

    /// Records a change, to be published later.
    pub(crate) fn add_pending_change(&self, filter: CompletionFilter) {
        // Nearly always it is recorded already: then the cache line stays shared by all workers.
        if self.pending_changes.load(Ordering::Relaxed) & filter.bits() != filter.bits() {
            self.pending_changes.fetch_or(filter.bits(), Ordering::Relaxed);
        }
    }

    /// Whether there are unpublished changes.
    pub(crate) fn has_pending_changes(&self) -> bool {
        self.pending_changes.load(Ordering::Relaxed) != 0
    }

    /// Takes the changes since the last call.
    pub(crate) fn take_pending_changes(&self) -> CompletionFilter {
        CompletionFilter::from_bits_retain(self.pending_changes.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
pub(crate) mod tests;
