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
//! again ([`Refusal::Again`]). While a directory is renamed nothing below it is opened, and it is not renamed while
//! something is. Name changes wait for those of their own share only: a backend that hangs holds up no other.
//!
//! Invariants:
//! 1. A state is in the table exactly while it has members, or its removal or a rename onto it is running.
//! 2. `delete_pending` is never cleared once `removing` is set, and nobody joins then.
//! 3. Locks are held and waited for by members only, once [`FileTable::leave`] has returned; a list of members may be
//!    locked when the table of locks is, not the other way round.
//! 4. Every change of names happens inside a [`Change`]: from before the backend is asked until the paths here follow.

pub(crate) mod locks;
pub(crate) mod share_mode;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use smb_wire::NtStatus;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, oneshot};
use vfs::{NodeId, VfsPath};

use self::locks::{LockRange, LockRefusal, LockTable};
use self::share_mode::ShareMode;
use crate::share::Share;

/// All files that are open.
#[derive(Default)]
pub(crate) struct FileTable {
    files: Mutex<Files>,
    generation: AtomicU64,
}

#[derive(Default)]
struct Files {
    by_id: HashMap<NodeId, Arc<FileState>>,
    /// The directories that are being renamed; of each share there is one at most, see [`Share::names`].
    moving: Vec<(Arc<Share>, VfsPath)>,
}

/// One open file.
pub(crate) struct FileState {
    id: NodeId,
    state: Mutex<State>,
    /// Held while this file is renamed.
    naming: AsyncMutex<()>,
    /// Held while something of its metadata is read, changed and stored again: see [`FileState::metadata`].
    metadata: AsyncMutex<()>,
    locks: Mutex<LockTable>,
    /// Held locks: lets I/O skip the table when there are none.
    lock_count: AtomicUsize,
}

#[derive(Default)]
struct State {
    members: Vec<Member>,
    /// The name that is to be removed with the last open: that of the open which said so, whatever name the last one
    /// knows the file by.
    delete_pending: Option<(Arc<Share>, VfsPath)>,
    /// As `delete_pending`, once the last open has gone and the name is being removed.
    removing: Option<(Arc<Share>, VfsPath)>,
    /// Nobody has it open, and a rename is about to replace it.
    claimed: bool,
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

/// The name that the last open leaves to be removed.
pub(crate) struct Removal {
    pub(crate) share: Arc<Share>,
    pub(crate) path: VfsPath,
    pub(crate) id: NodeId,
}

/// A change of names in progress: opens that the backend answers meanwhile start again.
pub(crate) struct Change<'t> {
    table: &'t FileTable,
    share: Arc<Share>,
    tree_lock: TreeLock,
    _name_lock: Option<MutexGuard<'t, ()>>,
    moves: bool,
}

enum TreeLock {
    Shared { _lock: OwnedRwLockReadGuard<()> },
    Alone { _lock: OwnedRwLockWriteGuard<()> },
}

impl<'t> Change<'t> {
    /// Begins to move a directory: nothing below it is opened until this is dropped. False, and nothing begun, when
    /// something is open already.
    pub(crate) fn hold_directory(&mut self, directory: &VfsPath) -> bool {
        let share = &self.share;
        assert!(matches!(self.tree_lock, TreeLock::Alone { .. }), "a directory is renamed alone");
        let mut files = self.table.files.lock();
        let below = |s: &Arc<Share>, path: &VfsPath| {
            Arc::ptr_eq(s, share) && path != directory && path.starts_with(directory)
        };
        let held = files.by_id.values().any(|f| {
            let state = f.state.lock();
            // What is about to be removed is found by its path, and so holds its place too.
            state.members.iter().any(|m| below(&m.share, &m.path))
                || state.delete_pending.as_ref().is_some_and(|(share, path)| below(share, path))
        });
        if !held {
            files.moving.push((Arc::clone(share), directory.clone()));
            self.moves = true;
        }
        !held
    }

    fn new(
        table: &'t FileTable,
        share: &Arc<Share>,
        tree_lock: TreeLock,
        _name_lock: Option<MutexGuard<'t, ()>>,
    ) -> Change<'t> {
        table.generation.fetch_add(1, Ordering::AcqRel);
        Change { table, share: Arc::clone(share), tree_lock, _name_lock, moves: false }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // In this order: whoever asked the backend before must not join after.
        self.table.generation.fetch_add(1, Ordering::AcqRel);
        if self.moves {
            self.table.files.lock().moving.retain(|(share, _)| !Arc::ptr_eq(share, &self.share));
        }
    }
}

/// See [`FileTable::claim`].
pub(crate) struct Claim<'t>(&'t FileTable, NodeId);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.files.lock().by_id.remove(&self.1);
    }
}

impl FileTable {
    /// Changes with every rename and removal, at their beginning and end.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Begins to add or remove a name of a share.
    pub(crate) async fn begin_change(&self, share: &Arc<Share>) -> Change<'_> {
        let _lock = Arc::clone(&share.names).read_owned().await;
        Change::new(self, share, TreeLock::Shared { _lock }, None)
    }

    /// Begins to rename a file or directory: one at a time for each file, and a directory alone in its share, so that
    /// the paths in this table follow in the order in which the backend has renamed.
    pub(crate) async fn begin_rename<'t>(
        &'t self,
        share: &Arc<Share>,
        file: &'t FileState,
        directory: bool,
    ) -> Change<'t> {
        let names = Arc::clone(&share.names);
        let tree = match directory {
            true => TreeLock::Alone { _lock: names.write_owned().await },
            false => TreeLock::Shared { _lock: names.read_owned().await },
        };
        Change::new(self, share, tree, Some(file.naming.lock().await))
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
        let moves = |(share, from): &(Arc<Share>, VfsPath)| {
            Arc::ptr_eq(share, &member.share) && member.path.starts_with(from)
        };
        if self.generation() != generation || files.moving.iter().any(moves) {
            return Err(Refusal::Again);
        }
        let file = files.by_id.entry(id).or_insert_with(|| Arc::new(FileState::new(id)));
        let file = Arc::clone(file);
        let mut state = file.state.lock();
        if state.claimed {
            return Err(Refusal::Again);
        }
        if state.delete_pending.is_some() {
            return Err(Refusal::Status(NtStatus::DELETE_PENDING));
        }
        if !state.members.iter().all(|m| m.mode.compatible(member.mode)) {
            return Err(Refusal::Status(NtStatus::SHARING_VIOLATION));
        }
        state.members.push(member);
        drop(state);
        Ok(file)
    }

    /// Takes an open out of its file, with its locks (MS-FSA 2.1.5.4). When it is true, the file is to be removed from
    /// the backend under [`FileState::removal`], and [`FileTable::removed`] to be called.
    pub(crate) fn leave(&self, file: &Arc<FileState>, volatile: u64) -> bool {
        let removed = self.leave_members(file, volatile);
        // After that: who is no member gets no lock any more.
        file.release_locks(volatile);
        removed
    }

    fn leave_members(&self, file: &Arc<FileState>, volatile: u64) -> bool {
        let mut files = self.files.lock();
        let mut state = file.state.lock();
        let Some(i) = state.members.iter().position(|m| m.volatile == volatile) else { return false };
        let member = state.members.swap_remove(i);
        if member.delete_on_close && state.delete_pending.is_none() {
            state.delete_pending = Some((member.share, member.path));
        }
        if !state.members.is_empty() {
            return false;
        }
        if state.delete_pending.is_some() {
            state.removing = state.delete_pending.clone();
            return true;
        }
        files.by_id.remove(&file.id);
        false
    }

    /// The removal that [`FileTable::leave`] asked for is done, or has failed: the file may be opened again, if it is
    /// still there.
    pub(crate) fn removed(&self, file: &Arc<FileState>) {
        self.files.lock().by_id.remove(&file.id);
    }

    /// How many files are open.
    #[cfg(test)]
    pub(crate) fn open_files(&self) -> usize {
        self.files.lock().by_id.len()
    }

    /// Keeps a file from being opened while a rename replaces it; `None` when it is open.
    pub(crate) fn claim(&self, id: NodeId) -> Option<Claim<'_>> {
        match self.files.lock().by_id.entry(id) {
            Entry::Occupied(_) => None,
            Entry::Vacant(v) => {
                let file = FileState::new(id);
                file.state.lock().claimed = true;
                v.insert(Arc::new(file));
                Some(Claim(self, id))
            }
        }
    }

    /// Whether an open in this mode could join a file, without joining it.
    pub(crate) fn admits(&self, id: NodeId, mode: ShareMode) -> bool {
        let files = self.files.lock();
        files.by_id.get(&id).is_none_or(|f| f.state.lock().members.iter().all(|m| m.mode.compatible(mode)))
    }

    /// Waits until no directory of a share is being renamed: what an open does that starts again.
    pub(crate) async fn settled(&self, share: &Share) {
        drop(share.names.read().await);
    }

    /// A rename has happened: its opens follow. A second name of the file stays what it is, and so does the same path
    /// in another share.
    pub(crate) fn renamed(&self, share: &Arc<Share>, id: NodeId, from: &VfsPath, to: &VfsPath) {
        let files = self.files.lock();
        // The change may go on: what the backend said before this is old already.
        self.generation.fetch_add(1, Ordering::AcqRel);
        if let Some(file) = files.by_id.get(&id) {
            let mut state = file.state.lock();
            let state = &mut *state;
            let members = state.members.iter_mut().map(|m| (&m.share, &mut m.path));
            let marked = state.delete_pending.iter_mut().map(|(share, path)| (&*share, path));
            for (s, path) in members.chain(marked) {
                if Arc::ptr_eq(s, share) && *path == *from {
                    *path = to.clone();
                }
            }
        }
    }
}

impl FileState {
    fn new(id: NodeId) -> FileState {
        FileState {
            id,
            state: Mutex::default(),
            naming: AsyncMutex::default(),
            metadata: AsyncMutex::default(),
            locks: Mutex::default(),
            lock_count: AtomicUsize::new(0),
        }
    }

    /// The path under which an open knows it.
    pub(crate) fn path_of(&self, volatile: u64) -> VfsPath {
        let state = self.state.lock();
        state.members.iter().find(|m| m.volatile == volatile).map(|m| m.path.clone()).unwrap_or_default()
    }

    /// For who reads metadata of the file to store it again with a part changed (its security descriptor, its
    /// attributes, its length): of two at once the second builds upon what the first has stored.
    pub(crate) async fn metadata(&self) -> MutexGuard<'_, ()> {
        self.metadata.lock().await
    }

    /// Whether it goes when its last open does.
    pub(crate) fn is_delete_pending(&self) -> bool {
        self.state.lock().delete_pending.is_some()
    }

    /// What is to be removed, after [`FileTable::leave`] has said so.
    pub(crate) fn removal(&self) -> Option<Removal> {
        let state = self.state.lock();
        let (share, path) = state.removing.as_ref()?;
        Some(Removal { share: Arc::clone(share), path: path.clone(), id: self.id })
    }

    /// FileDispositionInformation: whether it goes with its last open (MS-FSA 2.1.5.15.3).
    pub(crate) fn set_delete_pending(&self, volatile: u64, pending: bool) {
        let mut state = self.state.lock();
        if state.removing.is_some() {
            return;
        }
        let by = state.members.iter().find(|m| pending && m.volatile == volatile);
        let name = by.map(|m| (Arc::clone(&m.share), m.path.clone()));
        state.delete_pending = name;
    }

    /// It goes with this open, if nobody else has it open.
    pub(crate) fn delete_if_alone(&self, volatile: u64) {
        let mut state = self.state.lock();
        if let [m] = state.members.as_slice()
            && m.volatile == volatile
        {
            state.delete_pending = Some((Arc::clone(&m.share), m.path.clone()));
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
        self.with_locks(|t| {
            self.check_member(volatile)?;
            t.try_lock(volatile, range, exclusive)
        })
    }

    /// Takes a byte-range lock or waits in line for it.
    ///
    /// # Errors
    /// [`LockRefusal::TooMany`] and [`LockRefusal::Closed`] only.
    pub(crate) fn lock_or_wait(
        self: &Arc<Self>,
        volatile: u64,
        range: LockRange,
        exclusive: bool,
    ) -> Result<Option<LockWait>, LockRefusal> {
        self.with_locks(|t| {
            self.check_member(volatile)?;
            match t.try_lock(volatile, range, exclusive) {
                Ok(()) => Ok(None),
                Err(LockRefusal::Conflict) if t.is_crowded() => Err(LockRefusal::TooMany),
                Err(LockRefusal::Conflict) => {
                    let (id, granted) = t.wait(volatile, range, exclusive);
                    Ok(Some(LockWait { file: Arc::clone(self), id, granted }))
                }
                Err(e) => Err(e),
            }
        })
    }

    /// Asked with the table of locks locked: an open that is closed at the same time on another channel either is no
    /// member any more, and gets no lock, or gives back after this what it gets now.
    fn check_member(&self, volatile: u64) -> Result<(), LockRefusal> {
        let state = self.state.lock();
        if state.members.iter().any(|m| m.volatile == volatile) { Ok(()) } else { Err(LockRefusal::Closed) }
    }

    /// Gives back a lock of exactly this range; false when the open holds none.
    pub(crate) fn unlock(&self, volatile: u64, range: LockRange) -> bool {
        self.with_locks(|t| t.unlock(volatile, range))
    }

    /// Takes back what [`FileState::try_lock`] has just given.
    pub(crate) fn undo_lock(&self, volatile: u64, range: LockRange, exclusive: bool) {
        self.with_locks(|t| t.undo(volatile, range, exclusive));
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
