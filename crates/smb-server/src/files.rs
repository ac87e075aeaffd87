//! What all opens of one file share: who has it open and how, whether it will be deleted, its byte-range locks.
//!
//! **Place for what is to come.** Oplocks and leases (MS-SMB2 3.3.1.10, 3.3.1.12) belong to [`FileState`], beside the
//! list of opens: a break is owed to a [`Member`] before [`FileTable::join`] may refuse or admit another. Durable and
//! persistent opens keep their [`Member`] when their session is gone. Named streams will share delete-pending with
//! their file and have share modes of their own. None of this is faked: no oplock or lease is ever granted.
//!
//! **Paths.** A file may be reached by several names (hard links, shares that overlap), so the path belongs to the
//! [`Member`]: share and path as the backend stores them.
//!
//! **Races.** Nothing is locked while the backend works. An open reads [`FileTable::generation`], asks the backend,
//! and joins with that number; a rename or removal that started or ended meanwhile has changed it, and the open starts
//! again ([`Refusal::Again`]). A rename moves the paths of everything below it when it is done.
//!
//! Invariants:
//! 1. A state is in the table exactly while it has members or its removal is running.
//! 2. `delete_pending` is never cleared once `removing` is set, and nobody joins then.
//! 3. Every change of a name that is held open happens between [`FileTable::begin_change`] and the drop of its
//!    [`Change`].

pub(crate) mod locks;
pub(crate) mod share_mode;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use smb_wire::NtStatus;
use tokio::sync::oneshot;
use vfs::{NodeId, VfsPath};

use self::locks::{LockRange, LockRefusal, LockTable};
use self::share_mode::ShareMode;
use crate::share::Share;

/// All files that are open.
#[derive(Default)]
pub(crate) struct FileTable {
    files: Mutex<HashMap<NodeId, Arc<FileState>>>,
    generation: AtomicU64,
}

/// One open file.
pub(crate) struct FileState {
    id: NodeId,
    state: Mutex<State>,
    locks: Mutex<LockTable>,
    /// Held locks: lets I/O skip the table when there are none.
    lock_count: AtomicUsize,
}

#[derive(Default)]
struct State {
    members: Vec<Member>,
    delete_pending: bool,
    removing: bool,
}

/// One open of a file, as its other opens see it.
pub(crate) struct Member {
    /// The volatile half of its FileId.
    pub(crate) volatile: u64,
    pub(crate) mode: ShareMode,
    pub(crate) share: Arc<Share>,
    pub(crate) path: VfsPath,
    /// Opened with FILE_DELETE_ON_CLOSE, or told so later.
    pub(crate) delete_on_close: bool,
}

/// Why an open may not join its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Names changed while the backend was asked: ask again.
    Again,
    /// STATUS_SHARING_VIOLATION, STATUS_DELETE_PENDING.
    Status(NtStatus),
}

/// The name that the last open leaves to be removed; the state stays in the table until [`FileTable::removed`].
pub(crate) struct Removal {
    pub(crate) share: Arc<Share>,
    pub(crate) path: VfsPath,
    pub(crate) id: NodeId,
}

/// A change of names in progress: see [`FileTable::begin_change`].
pub(crate) struct Change<'t>(&'t FileTable);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.generation.fetch_add(1, Ordering::AcqRel);
    }
}

impl FileTable {
    /// Changes with every rename and removal, at their beginning and end.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Opens that the backend answers from now until the result is dropped will start again.
    pub(crate) fn begin_change(&self) -> Change<'_> {
        self.generation.fetch_add(1, Ordering::AcqRel);
        Change(self)
    }

    /// Adds an open to its file (MS-FSA 2.1.5.1.2): delete-pending and share modes are judged here, at once with
    /// being added, so that of two opens that exclude each other one is first.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub(crate) fn join(
        &self,
        id: NodeId,
        generation: u64,
        member: Member,
    ) -> Result<Arc<FileState>, Refusal> {
        let mut files = self.files.lock();
        if self.generation() != generation {
            return Err(Refusal::Again);
        }
        let file = files.entry(id).or_insert_with(|| Arc::new(FileState::new(id)));
        let file = Arc::clone(file);
        let mut state = file.state.lock();
        if state.delete_pending {
            return Err(Refusal::Status(NtStatus::DELETE_PENDING));
        }
        if !state.members.iter().all(|m| m.mode.compatible(member.mode)) {
            return Err(Refusal::Status(NtStatus::SHARING_VIOLATION));
        }
        state.members.push(member);
        drop(state);
        Ok(file)
    }

    /// Takes an open out of its file, with its locks (MS-FSA 2.1.5.4). What is returned must be removed from the
    /// backend, then [`FileTable::removed`] be called.
    pub(crate) fn leave(&self, file: &Arc<FileState>, volatile: u64) -> Option<Removal> {
        file.release_locks(volatile);
        let mut files = self.files.lock();
        let mut state = file.state.lock();
        let i = state.members.iter().position(|m| m.volatile == volatile)?;
        let member = state.members.swap_remove(i);
        state.delete_pending |= member.delete_on_close;
        if !state.members.is_empty() {
            return None;
        }
        if state.delete_pending {
            state.removing = true;
            return Some(Removal { share: member.share, path: member.path, id: file.id });
        }
        files.remove(&file.id);
        None
    }

    /// The removal that [`FileTable::leave`] asked for is done, or has failed: the file may be opened again, if it is
    /// still there.
    pub(crate) fn removed(&self, file: &Arc<FileState>) {
        self.files.lock().remove(&file.id);
    }

    /// Whether this file is open.
    pub(crate) fn is_open(&self, id: NodeId) -> bool {
        self.files.lock().contains_key(&id)
    }

    /// Whether an open in this mode could join a file, without joining it.
    pub(crate) fn admits(&self, id: NodeId, mode: ShareMode) -> bool {
        let files = self.files.lock();
        files.get(&id).is_none_or(|f| f.state.lock().members.iter().all(|m| m.mode.compatible(mode)))
    }

    /// Whether anything below a directory of `share` is open.
    pub(crate) fn is_open_below(&self, share: &Arc<Share>, directory: &VfsPath) -> bool {
        self.files.lock().values().any(|f| {
            let state = f.state.lock();
            state.members.iter().any(|m| {
                Arc::ptr_eq(&m.share, share) && m.path != *directory && m.path.starts_with(directory)
            })
        })
    }

    /// A rename has happened: moves the paths of its opens, and of what was opened below it meanwhile.
    pub(crate) fn renamed(&self, share: &Arc<Share>, id: NodeId, from: &VfsPath, to: &VfsPath) {
        for file in self.files.lock().values() {
            for m in file.state.lock().members.iter_mut().filter(|m| Arc::ptr_eq(&m.share, share)) {
                // A second name of the file stays what it is.
                if (file.id == id || m.path != *from)
                    && let Some(path) = m.path.rebased(from, to)
                {
                    m.path = path;
                }
            }
        }
    }
}

impl FileState {
    fn new(id: NodeId) -> FileState {
        FileState { id, state: Mutex::default(), locks: Mutex::default(), lock_count: AtomicUsize::new(0) }
    }

    /// A path of it, for listings: that of its first open.
    pub(crate) fn path(&self) -> VfsPath {
        self.state.lock().members.first().map(|m| m.path.clone()).unwrap_or_default()
    }

    /// The path under which an open knows it.
    pub(crate) fn path_of(&self, volatile: u64) -> VfsPath {
        let state = self.state.lock();
        state.members.iter().find(|m| m.volatile == volatile).map(|m| m.path.clone()).unwrap_or_default()
    }

    /// Whether it goes when its last open does.
    pub(crate) fn is_delete_pending(&self) -> bool {
        self.state.lock().delete_pending
    }

    /// FileDispositionInformation: whether it goes with its last open (MS-FSA 2.1.5.15.3).
    pub(crate) fn set_delete_pending(&self, pending: bool) {
        let mut state = self.state.lock();
        if !state.removing {
            state.delete_pending = pending;
        }
    }

    /// FileDispositionInformationEx with FILE_DISPOSITION_ON_CLOSE: whether one open takes the file with it.
    pub(crate) fn set_delete_on_close(&self, volatile: u64, on: bool) {
        if let Some(m) = self.state.lock().members.iter_mut().find(|m| m.volatile == volatile) {
            m.delete_on_close = on;
        }
    }

    /// Byte-range locks that an open holds.
    pub(crate) fn locks_of(&self, volatile: u64) -> usize {
        self.locks.lock().held_by(volatile)
    }

    /// Whether a read or write may touch these bytes (MS-SMB2 3.3.5.12, 3.3.5.13).
    ///
    /// # Errors
    /// STATUS_FILE_LOCK_CONFLICT.
    pub(crate) fn check_io(
        &self,
        volatile: u64,
        offset: u64,
        length: u64,
        write: bool,
    ) -> Result<(), NtStatus> {
        if length == 0 || self.lock_count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let range = LockRange::new(offset, length).ok_or(NtStatus::INVALID_PARAMETER)?;
        match self.locks.lock().forbids(volatile, range, write) {
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
        volatile: u64,
        range: LockRange,
        exclusive: bool,
    ) -> Result<(), LockRefusal> {
        self.with_locks(|t| t.try_lock(volatile, range, exclusive))
    }

    /// Takes a byte-range lock or waits in line for it.
    ///
    /// # Errors
    /// [`LockRefusal::TooMany`] only.
    pub(crate) fn lock_or_wait(
        self: &Arc<Self>,
        volatile: u64,
        range: LockRange,
        exclusive: bool,
    ) -> Result<Option<LockWait>, LockRefusal> {
        self.with_locks(|t| match t.try_lock(volatile, range, exclusive) {
            Ok(()) => Ok(None),
            Err(LockRefusal::Conflict) => {
                let (id, granted) = t.wait(volatile, range, exclusive);
                Ok(Some(LockWait { file: Arc::clone(self), id, granted }))
            }
            Err(e) => Err(e),
        })
    }

    /// Gives back a lock of exactly this range; false when the open holds none.
    pub(crate) fn unlock(&self, volatile: u64, range: LockRange) -> bool {
        self.with_locks(|t| t.unlock(volatile, range))
    }

    fn release_locks(&self, volatile: u64) {
        self.with_locks(|t| t.release(volatile));
    }

    fn with_locks<T>(&self, f: impl FnOnce(&mut LockTable) -> T) -> T {
        let mut table = self.locks.lock();
        let result = f(&mut table);
        self.lock_count.store(table.held(), Ordering::Release);
        result
    }
}

/// A place in the line for a lock; dropping it leaves the line.
pub(crate) struct LockWait {
    file: Arc<FileState>,
    id: u64,
    granted: oneshot::Receiver<()>,
}

impl LockWait {
    /// Completes when the lock is held (true) or its open was closed (false).
    pub(crate) async fn granted(&mut self) -> bool {
        (&mut self.granted).await.is_ok()
    }

    /// Leaves the line; false when the lock was granted before.
    pub(crate) fn withdraw(&self) -> bool {
        self.file.with_locks(|t| t.leave(self.id))
    }
}

impl Drop for LockWait {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(test)]
mod tests;
