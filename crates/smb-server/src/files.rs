//! What all opens of one file share: who has it open and how, whether it will be deleted, its byte-range locks.
//!
//! **File and stream.** Names and delete-pending belong to the file; share modes, caching rights ([`caching`]) and
//! byte-range locks to each of its streams. Durable opens stay members when their session is gone.
//!
//! **Breaks.** [`FileTable::join`] and [`FileState::contend`] decide what an operation takes from others, and return the
//! notices to send and how long to wait; [`FileState::changed_since`] says when to ask again. Nothing here sends or waits.
//!
//! **Paths.** A file may be reached by several names (hard links, shares that overlap), so the path belongs to the
//! [`Member`]: share and path as the backend stores them.
//!
//! **Races** between opens and changes of names: see [`crate::namespace`].
//!
//! Invariants:
//! 1. A state is in the table exactly while it has members, or its removal, that of one of its streams, or a rename onto it
//!    is running.
//! 2. `delete_pending` is not cleared before `removing` is, when the removal has ended, and no open joins until then: it
//!    waits for [`FileTable::removed`].
//! 3. Locks are held and waited for by members only, once [`FileTable::leave`] has returned; a list of members may be
//!    locked when the table of locks is, not the other way round.

pub(crate) mod caching;
pub(crate) mod locks;
mod removal;
pub(crate) mod share_mode;
mod stream;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use env::Moment;
use parking_lot::Mutex;
use smb_wire::msg::{CompletionFilter, LeaseKey, LeaseState};
use smb_wire::{AccessMask, NtStatus};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, Notify};
use vfs::{FileKey, StreamName, VfsPath, WatchGuard};

use self::caching::{
    Caching, Contention, Held, HolderId, LeaseId, Loss, Operation, Restored, Situation, Wish,
};
use self::locks::{LockRange, LockRefusal};
use self::share_mode::ShareMode;
pub(crate) use self::stream::{LockWait, StreamState};
use crate::namespace::{Namespace, Snapshot};
use crate::share::Share;

/// All files that are open.
#[derive(Default)]
pub(crate) struct FileTable {
    by_id: Mutex<HashMap<FileKey, Arc<FileState>>>,
}

/// One open file.
pub(crate) struct FileState {
    id: FileKey,
    state: Mutex<State>,
    /// Held while this file is renamed.
    naming: AsyncMutex<()>,
    /// Held while something of its metadata is read, changed and stored again: see [`FileState::metadata`].
    metadata: AsyncMutex<()>,
    /// Opens that left, breaks that ended and removals that are done; what waits for one asks again.
    changes: AtomicU64,
    changed: Notify,
    /// What of it has changed without being published: a CompletionFilter, see `namespace::modified`.
    owed: AtomicU32,
    /// When the server began to change its data the last time, in ns since [`Moment::START`]; 0 for never.
    changed_at: AtomicU64,
    /// Set when a client caches the file for the first time: changes that other programs make in its folder are reported.
    folder: OnceLock<Arc<WatchGuard>>,
}

#[derive(Default)]
struct State {
    members: Vec<Member>,
    /// The streams that are open.
    streams: Vec<StreamEntry>,
    /// The name that is to be removed with the last open: that of the open which said so, whatever name the last one
    /// knows the file by.
    delete_pending: Option<Removal>,
    /// As `delete_pending`, once the last open has gone and the name is being removed. Opens with POSIX extensions may
    /// be left.
    removing: Option<Removal>,
    /// Nobody has it open, and a rename is about to replace it.
    claimed: bool,
}

/// How little an open does (MS-FSA 2.1.4.12, OPEN).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Looks {
    /// At attributes.
    AttributesOnly,
    /// At the security descriptor too: oplocks break for it, leases do not.
    SecurityToo,
    /// It does more.
    No,
}

impl Looks {
    /// Of an open with this access.
    pub(crate) fn of(access: AccessMask) -> Looks {
        let attributes = AccessMask::READ_ATTRIBUTES | AccessMask::WRITE_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        match access {
            a if attributes.contains(a) => Looks::AttributesOnly,
            a if (attributes | AccessMask::READ_CONTROL).contains(a) => Looks::SecurityToo,
            _ => Looks::No,
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
    /// How little it does: such opens take no caching right from others.
    pub(crate) looks: Looks,
    /// What it caches by, once it has joined.
    pub(crate) holder: Option<HolderId>,
    /// The lease on its directory that what happens through it does not break.
    pub(crate) parent_lease: Option<LeaseKey>,
    /// Opened with POSIX extensions: it does not keep a file's name from being removed or replaced.
    pub(crate) posix: bool,
    pub(crate) share: Arc<Share>,
    pub(crate) path: VfsPath,
    /// Opened with FILE_DELETE_ON_CLOSE, or told so later.
    pub(crate) delete_on_close: bool,
}

/// Why an open may not join its file.
pub(crate) enum Refusal {
    /// Names changed while the backend was asked: ask again.
    Again,
    /// Others have what the open needs (send them the notices), or the file is being removed. Then, if there is something to wait for, wait
    /// ([`FileState::changed_since`]) and ask again; otherwise `status` is the answer.
    Contended { file: Arc<FileState>, contention: Contention, status: NtStatus },
    /// STATUS_DELETE_PENDING, …
    Status(NtStatus),
}

/// What a CREATE brings to its file beside the member.
#[derive(Clone, Copy)]
pub(crate) struct Joining {
    pub(crate) wish: Wish,
    pub(crate) overwrites: bool,
    pub(crate) directory: bool,
    /// The number of a new caching holder.
    pub(crate) token: u64,
    pub(crate) patience: Option<Duration>,
    pub(crate) now: Moment,
}

/// An open that has joined its file.
pub(crate) struct Joined {
    pub(crate) file: Arc<FileState>,
    pub(crate) stream: Arc<StreamState>,
    pub(crate) caching: Option<(HolderId, Held)>,
    pub(crate) parent_lease: Option<LeaseKey>,
    pub(crate) posix: bool,
}

/// A name that is to be removed with the last open.
#[derive(Clone)]
pub(crate) struct Removal {
    pub(crate) share: Arc<Share>,
    pub(crate) path: VfsPath,
    pub(crate) id: FileKey,
    /// That of the open which said so.
    pub(crate) parent_lease: Option<LeaseKey>,
}

impl Member {
    /// The removal of its name.
    fn removal(&self, id: FileKey) -> Removal {
        Removal {
            share: Arc::clone(&self.share),
            path: self.path.clone(),
            id,
            parent_lease: self.parent_lease,
        }
    }
}

/// What an open leaves behind.
#[derive(Default)]
pub(crate) struct Left {
    /// It was the last open of this lease.
    pub(crate) lease_gone: Option<LeaseId>,
    /// The file is to be removed.
    pub(crate) remove: bool,
    /// This stream is to be removed, and [`FileTable::stream_removed`] to be called.
    pub(crate) remove_stream: Option<StreamName>,
}

/// See [`FileTable::claim`].
pub(crate) struct Claim<'t>(&'t FileTable, FileKey);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.by_id.lock().remove(&self.1);
    }
}

impl FileTable {
    /// Adds an open to its file (MS-FSA 2.1.5.1.2): delete-pending, share modes and caching rights are judged here, at
    /// once with being added, so that of two opens that exclude each other one is first. With the open come the notices
    /// that are due and need no answer.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub(crate) fn join(
        &self,
        namespace: &Namespace,
        id: FileKey,
        snapshot: Snapshot,
        member: Member,
        joining: Joining,
    ) -> Result<(Joined, Vec<caching::Notice>), Refusal> {
        let mut files = self.by_id.lock();
        if !namespace.is_current(snapshot, &member.share, &member.path, id) {
            return Err(Refusal::Again);
        }
        let file = files.entry(id).or_insert_with(|| Arc::new(FileState::new(id)));
        let file = Arc::clone(file);
        let mut state = file.state.lock();
        if state.claimed {
            return Err(Refusal::Again);
        }
        if let Some(refusal) = state.refused_by_removal(&file, &member, joining.now) {
            return Err(refusal);
        }
        let admitted = state.admit(&member, joining);
        match admitted {
            Ok(notices) => {
                let joined = state.add(&file, member, joining);
                Ok((joined, notices))
            }
            Err((status, mut contention)) => {
                state.show_caching();
                contention.seen = file.changes.load(Ordering::Acquire);
                drop(state);
                Err(Refusal::Contended { file, contention, status })
            }
        }
    }

    /// Adds an open that was there before the server was started again, with all that it had.
    pub(crate) fn restore(
        &self,
        id: FileKey,
        mut member: Member,
        caching: Option<Restored>,
        locks: Vec<(LockRange, bool)>,
    ) -> Joined {
        let mut files = self.by_id.lock();
        let file = Arc::clone(files.entry(id).or_insert_with(|| Arc::new(FileState::new(id))));
        let mut state = file.state.lock();
        let at = state.stream_entry(&member.stream);
        let entry = &mut state.streams[at];
        let held = caching.map(|c| (c.id, entry.caching.restore(c)));
        member.holder = caching.map(|c| c.id);
        entry.show();
        let stream = Arc::clone(&entry.stream);
        let (open, parent_lease, posix) = (member.open, member.parent_lease, member.posix);
        state.members.push(member);
        drop((state, files));
        stream.with_locks(|t| t.restore(open, locks));
        Joined { file, stream, caching: held, parent_lease, posix }
    }

    /// Takes an open out of its file, with its locks (MS-FSA 2.1.5.4). When it is true, the file is to be removed from
    /// the backend under [`FileState::removal`], and [`FileTable::removed`] to be called. Also whether its lease is gone.
    pub(crate) fn leave(&self, file: &Arc<FileState>, stream: &StreamState, open: u64) -> Left {
        let left = self.leave_members(file, open);
        // After that: what is no member gets no lock any more.
        stream.release_locks(open);
        file.has_changed();
        left
    }

    fn leave_members(&self, file: &Arc<FileState>, open: u64) -> Left {
        let mut files = self.by_id.lock();
        let mut state = file.state.lock();
        let Some(i) = state.members.iter().position(|m| m.open == open) else { return Left::default() };
        let member = state.members.swap_remove(i);
        let (lease_gone, remove_stream) = state.stop_caching(&member);
        let member_is_posix = member.posix;
        if member.delete_on_close && member.stream.is_none() && state.delete_pending.is_none() {
            state.delete_pending = Some(member.removal(file.id));
        }
        let remove = if member_is_posix && state.may_unlink() {
            state.removing = state.delete_pending.clone();
            true
        } else {
            FileTable::let_go(&mut files, file, &mut state)
        };
        Left { lease_gone, remove, remove_stream }
    }

    /// What follows when a member has left or a stream is removed: a file without either leaves the table. Whether it is
    /// to be removed first.
    fn let_go(files: &mut HashMap<FileKey, Arc<FileState>>, file: &FileState, state: &mut State) -> bool {
        // Its name is being removed: `removed` does the rest.
        if state.removing.is_some() {
            return false;
        }
        // A stream that is being removed has no member, and keeps its entry.
        if !state.members.is_empty() || !state.streams.is_empty() {
            return false;
        }
        if state.delete_pending.is_some() {
            state.removing = state.delete_pending.clone();
            return true;
        }
        files.remove(&file.id);
        false
    }

    /// The removal of a stream that [`FileTable::leave`] asked for is done, or has failed. Whether the file is to be
    /// removed now.
    pub(crate) fn stream_removed(&self, file: &Arc<FileState>, stream: &StreamState) -> bool {
        let mut files = self.by_id.lock();
        let mut state = file.state.lock();
        state.streams.retain(|e| !std::ptr::eq(&*e.stream, stream));
        let remove = FileTable::let_go(&mut files, file, &mut state);
        drop((state, files));
        file.has_changed();
        remove
    }

    /// The removal that [`FileTable::leave`] asked for is done, or has failed: the file may be opened again, if it is
    /// still there. Its other opens stay.
    pub(crate) fn removed(&self, file: &Arc<FileState>) {
        let mut files = self.by_id.lock();
        let mut state = file.state.lock();
        (state.removing, state.delete_pending) = (None, None);
        FileTable::let_go(&mut files, file, &mut state);
        drop((state, files));
        file.has_changed();
    }

    /// A file that is open.
    pub(crate) fn find(&self, id: FileKey) -> Option<Arc<FileState>> {
        self.by_id.lock().get(&id).cloned()
    }

    /// How many files are open.
    #[cfg(test)]
    pub(crate) fn open_files(&self) -> usize {
        self.by_id.lock().len()
    }

    /// Keeps a file from being opened while a rename replaces it; `None` when it is open.
    pub(crate) fn claim(&self, id: FileKey) -> Option<Claim<'_>> {
        match self.by_id.lock().entry(id) {
            Entry::Occupied(_) => None,
            Entry::Vacant(v) => {
                let file = FileState::new(id);
                file.state.lock().claimed = true;
                v.insert(Arc::new(file));
                Some(Claim(self, id))
            }
        }
    }

    /// Whether every open of a file has POSIX extensions.
    pub(crate) fn all_posix(&self, id: FileKey) -> bool {
        let files = self.by_id.lock();
        files.get(&id).is_some_and(|f| {
            let state = f.state.lock();
            !state.claimed && state.delete_pending.is_none() && state.members.iter().all(|m| m.posix)
        })
    }

    /// Whether an open in this mode could join a file, without joining it.
    ///
    /// # Errors
    /// The refusal that the open would get, with notices for holders of handle leases.
    pub(crate) fn admits(&self, id: FileKey, mode: ShareMode, now: Moment) -> Result<(), Refusal> {
        let files = self.by_id.lock();
        let Some(file) = files.get(&id) else { return Ok(()) };
        let state = file.state.lock();
        if state.members.iter().all(|m| m.mode.compatible(mode)) {
            return Ok(());
        }
        let unnamed = state.streams.iter().find(|e| e.name.is_none()).map(|e| Arc::clone(&e.stream));
        drop(state);
        // No open comes or goes in between: the table is locked.
        let sharing = Operation::Sharing { overwrites: false };
        let contention = unnamed.map(|s| file.contend(&s, None, sharing, now)).unwrap_or_default();
        let (file, status) = (Arc::clone(file), NtStatus::SHARING_VIOLATION);
        Err(Refusal::Contended { file, contention, status })
    }

    /// The open files of a share by their paths.
    pub(crate) fn open_paths(&self, share: &Arc<Share>) -> HashMap<VfsPath, Arc<FileState>> {
        let files = self.by_id.lock();
        let mut paths = HashMap::new();
        for file in files.values() {
            let state = file.state.lock();
            let members = state.members.iter().filter(|m| Arc::ptr_eq(&m.share, share));
            paths.extend(members.map(|m| (m.path.clone(), Arc::clone(file))));
        }
        paths
    }

    /// Whether anything below a directory is open or about to be removed.
    pub(crate) fn has_open_below(&self, share: &Arc<Share>, directory: &VfsPath) -> bool {
        let below = |s: &Arc<Share>, path: &VfsPath| {
            Arc::ptr_eq(s, share) && path != directory && path.starts_with(directory)
        };
        self.by_id.lock().values().any(|f| {
            let state = f.state.lock();
            // What is about to be removed is found by its path, and so holds its place too.
            state.members.iter().any(|m| below(&m.share, &m.path))
                || state.delete_pending.as_ref().is_some_and(|r| below(&r.share, &r.path))
        })
    }

    /// A rename has happened: its opens follow. A second name of the file stays what it is, and so does the same path
    /// in another share. `record` is called with the table locked.
    pub(crate) fn renamed(
        &self,
        share: &Arc<Share>,
        id: FileKey,
        from: &VfsPath,
        to: &VfsPath,
        record: impl FnOnce(),
    ) {
        let files = self.by_id.lock();
        record();
        if let Some(file) = files.get(&id) {
            let mut state = file.state.lock();
            let state = &mut *state;
            let members = state.members.iter_mut().map(|m| (&m.share, &mut m.path));
            let marked = state.delete_pending.iter_mut().map(|r| (&r.share, &mut r.path));
            for (s, path) in members.chain(marked) {
                if Arc::ptr_eq(s, share) && *path == *from {
                    *path = to.clone();
                }
            }
        }
    }
}

impl State {
    /// Whether a member may join: share modes first, then caching rights (MS-FSA 2.1.5.1.2.2, 2.1.5.1.2).
    fn admit(
        &mut self,
        member: &Member,
        joining: Joining,
    ) -> Result<Vec<caching::Notice>, (NtStatus, Contention)> {
        let by = match joining.wish {
            Wish::Lease(l) => Some(HolderId::Lease(l.id)),
            _ => None,
        };
        let overwrites = joining.overwrites;
        let compatible = self.members.iter().all(|m| match m.stream == member.stream {
            true => m.mode.compatible(member.mode),
            // MS-FSA 2.1.5.1.2.1: deleting the unnamed stream or the directory deletes all streams.
            false => {
                let spares = |a: &Member, b: &Member| a.stream.is_some() || b.mode.permits_deletion(a.mode);
                spares(m, member) && spares(member, m)
            }
        });
        let entry = self.streams.iter_mut().find(|e| e.name == member.stream);
        let Some(entry) = entry else {
            return if compatible {
                Ok(Vec::new())
            } else {
                Err((NtStatus::SHARING_VIOLATION, Contention::default()))
            };
        };
        let mut contend = |operation| entry.caching.contend(by, operation, joining.now);
        if !compatible {
            return Err((NtStatus::SHARING_VIOLATION, contend(Operation::Sharing { overwrites })));
        }
        if member.delete_on_close {
            // MS-FSA 2.1.5.1.2: handles that are kept open for later would keep the file.
            let contention = contend(Operation::Names);
            if contention.wait_until.is_some() {
                return Err((NtStatus::SHARING_VIOLATION, contention));
            }
        }
        let contention = match member.looks {
            Looks::AttributesOnly if !overwrites => return Ok(Vec::new()),
            Looks::SecurityToo if !overwrites => contend(Operation::OpenSecurity),
            _ => contend(Operation::Open { overwrites }),
        };
        match contention.wait_until {
            Some(_) => Err((NtStatus::SHARING_VIOLATION, contention)),
            None => Ok(contention.notices),
        }
    }

    /// Where a stream is among those that are open.
    fn stream_entry(&mut self, name: &Option<StreamName>) -> usize {
        self.streams.iter().position(|e| e.name == *name).unwrap_or_else(|| {
            let stream = Arc::new(StreamState::new(name.is_some()));
            self.streams.push(StreamEntry { name: name.clone(), stream, caching: Caching::default() });
            self.streams.len() - 1
        })
    }

    /// Adds a member that was admitted, and grants it what it asks for.
    fn add(&mut self, file: &Arc<FileState>, mut member: Member, joining: Joining) -> Joined {
        let at = self.stream_entry(&member.stream);
        let own = match joining.wish {
            Wish::Lease(l) => Some(HolderId::Lease(l.id)),
            _ => None,
        };
        let another = |m: &Member| own.is_none() || m.holder != own;
        let little = if own.is_some() { Looks::SecurityToo } else { Looks::AttributesOnly };
        let others = self.members.iter().any(|m| m.stream == member.stream && m.looks > little && another(m));
        let entry = &mut self.streams[at];
        let locked = entry.stream.lock_count.load(Ordering::Acquire) > 0;
        let situation = Situation { others, locked, directory: joining.directory };
        let caching =
            entry.caching.grant(member.open, joining.wish, situation, joining.token, joining.patience);
        entry.show();
        member.holder = caching.map(|(id, _)| id);
        let stream = Arc::clone(&entry.stream);
        let (parent_lease, posix) = (member.parent_lease, member.posix);
        self.members.push(member);
        Joined { file: Arc::clone(file), stream, caching, parent_lease, posix }
    }

    /// Whether the name goes before the last open does: every open has POSIX extensions.
    fn may_unlink(&self) -> bool {
        self.delete_pending.is_some()
            && self.removing.is_none()
            && !self.members.is_empty()
            && self.members.iter().all(|m| m.posix)
    }

    /// A member leaves its holder, and its stream if it was the last; the lease that is gone with it, and the name of the
    /// stream if that is to be removed.
    fn stop_caching(&mut self, member: &Member) -> (Option<LeaseId>, Option<StreamName>) {
        let Some(at) = self.streams.iter().position(|e| e.name == member.stream) else { return (None, None) };
        let entry = &mut self.streams[at];
        let gone = member.holder.filter(|id| entry.caching.leave(*id));
        entry.show();
        if member.delete_on_close && member.stream.is_some() {
            entry.stream.deleting.store(true, Ordering::Release);
        }
        let mut removed = None;
        if !self.members.iter().any(|m| m.stream == member.stream) {
            if entry.stream.is_deleting() {
                removed.clone_from(&entry.name);
            }
            if removed.is_none() {
                self.streams.swap_remove(at);
            }
        }
        let lease = match gone {
            Some(HolderId::Lease(id)) => Some(id),
            _ => None,
        };
        (lease, removed)
    }

    /// The stream of a member, if that has a name.
    fn named_stream(&self, open: u64) -> Option<&Arc<StreamState>> {
        let member = self.members.iter().find(|m| m.open == open && m.stream.is_some())?;
        self.streams.iter().find(|e| e.name == member.stream).map(|e| &e.stream)
    }

    fn show_caching(&self) {
        self.streams.iter().for_each(StreamEntry::show);
    }
}

impl StreamEntry {
    fn show(&self) {
        self.stream.cached_by.store(self.caching.summary(), Ordering::Release);
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
            owed: AtomicU32::new(0),
            changed_at: AtomicU64::new(0),
            folder: OnceLock::new(),
        }
    }

    /// The server begins to change data of the file.
    #[inline]
    pub(crate) fn note_change(&self, now: Moment) {
        self.changed_at.store(now.ns_since(Moment::START), Ordering::Relaxed);
    }

    /// Whether the server has begun to change data of the file within this time.
    pub(crate) fn has_changed_within(&self, time: Duration, now: Moment) -> bool {
        let at = self.changed_at.load(Ordering::Relaxed);
        at != 0 && Duration::from_nanos(now.ns_since(Moment::START).saturating_sub(at)) < time
    }

    /// A client caches the file: the first time, `watch` watches its folder.
    pub(crate) fn watch_folder(&self, watch: impl FnOnce() -> Option<Arc<WatchGuard>>) {
        if self.folder.get().is_none()
            && let Some(guard) = watch()
        {
            let _ = self.folder.set(guard);
        }
    }

    /// Data of the unnamed stream was changed by another program: what this takes from those who cache it.
    pub(crate) fn data_changed_outside(&self, now: Moment) -> Contention {
        let mut state = self.state.lock();
        let unnamed = state.streams.iter_mut().find(|e| e.name.is_none());
        let contention = unnamed.map(|e| e.caching.contend(None, Operation::Data, now)).unwrap_or_default();
        state.show_caching();
        contention
    }

    /// Completes when an open has left, a break has ended or a removal is done since `seen` changes.
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

    /// What waits for this file asks again.
    fn has_changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// What an operation of an open takes from the others of its stream (all streams for [`Operation::Names`]).
    pub(crate) fn contend(
        &self,
        stream: &StreamState,
        by: Option<HolderId>,
        operation: Operation,
        now: Moment,
    ) -> Contention {
        let mut state = self.state.lock();
        let mut all = Contention::default();
        for entry in &mut state.streams {
            if operation == Operation::Names || std::ptr::eq(&*entry.stream, stream) {
                let one = entry.caching.contend(by, operation, now);
                all.notices.extend(one.notices);
                all.wait_until = all.wait_until.max(one.wait_until);
            }
        }
        state.show_caching();
        all.seen = self.changes.load(Ordering::Acquire);
        all
    }

    /// A client answers a break; see [`Caching::acknowledge`].
    ///
    /// # Errors
    /// See [`caching::Refused`].
    pub(crate) fn acknowledge(
        &self,
        id: HolderId,
        kept: LeaseState,
        now: Moment,
    ) -> Result<Option<caching::Notice>, caching::Refused> {
        self.with_holder(id, |c| c.acknowledge(id, kept, now)).unwrap_or(Err(caching::Refused::NotBreaking))
    }

    /// The notice of a break in progress; see [`Caching::remind`].
    pub(crate) fn remind(&self, id: HolderId, now: Moment) -> Option<caching::Notice> {
        self.with_holder(id, |c| c.remind(id, now)).flatten()
    }

    /// A holder cannot be reached, or broke the rules: it has nothing any more.
    pub(crate) fn revoke(&self, id: HolderId) {
        self.with_holder(id, |c| c.revoke(id));
    }

    /// A holder's client is away: see [`Caching::suspend`].
    pub(crate) fn suspend_break(&self, id: HolderId, until: Moment) {
        let mut state = self.state.lock();
        if let Some(entry) = state.streams.iter_mut().find(|e| e.caching.held(id).is_some()) {
            entry.caching.suspend(id, until);
        }
    }

    /// What holders have lost that is not stored yet.
    pub(crate) fn unstored_losses(&self) -> Vec<Loss> {
        self.state.lock().streams.iter().flat_map(|e| e.caching.unstored_losses()).copied().collect()
    }

    /// See [`FileState::unstored_losses`].
    pub(crate) fn loss_is_stored(&self, loss: Loss) {
        self.state.lock().streams.iter_mut().for_each(|e| e.caching.loss_is_stored(loss));
    }

    /// What a holder has now.
    pub(crate) fn held(&self, id: HolderId) -> Option<Held> {
        self.state.lock().streams.iter().find_map(|e| e.caching.held(id))
    }

    fn with_holder<T>(&self, id: HolderId, f: impl FnOnce(&mut Caching) -> T) -> Option<T> {
        let mut state = self.state.lock();
        let entry = state.streams.iter_mut().find(|e| e.caching.held(id).is_some())?;
        let result = f(&mut entry.caching);
        entry.show();
        drop(state);
        self.has_changed();
        Some(result)
    }

    /// Asked with the table of locks locked: an open that is closed at the same time on another channel either is no
    /// member any more, and gets no lock, or gives back after this what it gets now.
    fn check_member(&self, open: u64) -> Result<(), LockRefusal> {
        let state = self.state.lock();
        if state.members.iter().any(|m| m.open == open) { Ok(()) } else { Err(LockRefusal::Closed) }
    }

    /// Every open of the file by one holder: the persistent ids.
    pub(crate) fn opens_of(&self, id: HolderId) -> Vec<u64> {
        self.state.lock().members.iter().filter(|m| m.holder == Some(id)).map(|m| m.open).collect()
    }

    /// All opens of the file.
    pub(crate) fn opens(&self) -> Vec<u64> {
        self.state.lock().members.iter().map(|m| m.open).collect()
    }

    /// Held while it is renamed.
    pub(crate) async fn naming(&self) -> MutexGuard<'_, ()> {
        self.naming.lock().await
    }

    /// The path under which an open knows it.
    pub(crate) fn path_of(&self, open: u64) -> VfsPath {
        let state = self.state.lock();
        state.members.iter().find(|m| m.open == open).map(|m| m.path.clone()).unwrap_or_default()
    }

    /// The share and path under which an open knows it.
    pub(crate) fn place_of(&self, open: u64) -> Option<(Arc<Share>, VfsPath)> {
        let state = self.state.lock();
        state.members.iter().find(|m| m.open == open).map(|m| (Arc::clone(&m.share), m.path.clone()))
    }

    /// The name of the stream that an open is of.
    pub(crate) fn stream_of(&self, open: u64) -> Option<StreamName> {
        self.state.lock().members.iter().find(|m| m.open == open)?.stream.clone()
    }

    /// Whether an open takes the file, or its stream, with it when it is closed.
    pub(crate) fn deletes_on_close(&self, open: u64) -> bool {
        self.state.lock().members.iter().any(|m| m.open == open && m.delete_on_close)
    }

    /// The file goes with its last open, under the name that this open knows it by.
    pub(crate) fn delete_with_last(&self, open: u64) {
        let mut state = self.state.lock();
        if let Some(member) = state.members.iter().find(|m| m.open == open) {
            state.delete_pending = Some(member.removal(self.id));
        }
    }

    /// Which file it is.
    pub(crate) fn id(&self) -> FileKey {
        self.id
    }

    /// Whether an open came through this share.
    pub(crate) fn is_of_share(&self, open: u64, share: &Arc<Share>) -> bool {
        let state = self.state.lock();
        state.members.iter().any(|m| m.open == open && Arc::ptr_eq(&m.share, share))
    }

    /// Whether an open knows the file by this path of a share, case apart.
    pub(crate) fn is_known_as(&self, open: u64, share: &Arc<Share>, path: &VfsPath) -> bool {
        let same = |m: &Member| Arc::ptr_eq(&m.share, share) && m.path.is_same_name(path);
        self.state.lock().members.iter().any(|m| m.open == open && same(m))
    }

    /// The name of the share that an open came through.
    pub(crate) fn share_of(&self, open: u64) -> String {
        let state = self.state.lock();
        state.members.iter().find(|m| m.open == open).map(|m| m.share.name.clone()).unwrap_or_default()
    }

    /// For who reads metadata of the file to store it again with a part changed (its security descriptor, its
    /// attributes, its length): of two at once the second builds upon what the first has stored.
    pub(crate) async fn metadata(&self) -> MutexGuard<'_, ()> {
        self.metadata.lock().await
    }

    /// Notes what has changed, to be published later.
    pub(crate) fn owe(&self, filter: CompletionFilter) {
        // Nearly always it is noted already: then the line stays shared by all workers.
        if self.owed.load(Ordering::Relaxed) & filter.bits() != filter.bits() {
            self.owed.fetch_or(filter.bits(), Ordering::Relaxed);
        }
    }

    /// Whether anything was noted.
    pub(crate) fn owes(&self) -> bool {
        self.owed.load(Ordering::Relaxed) != 0
    }

    /// What has changed since this was called last.
    pub(crate) fn take_owed(&self) -> CompletionFilter {
        CompletionFilter::from_bits_retain(self.owed.swap(0, Ordering::Relaxed))
    }

    /// Whether it goes when its last open does.
    pub(crate) fn is_delete_pending(&self) -> bool {
        self.state.lock().delete_pending.is_some()
    }

    /// What is to be removed, after [`FileTable::leave`] has said so.
    pub(crate) fn removal(&self) -> Option<Removal> {
        self.state.lock().removing.clone()
    }

    /// FileDispositionInformation: whether it goes with its last open (MS-FSA 2.1.5.15.3).
    pub(crate) fn set_delete_pending(&self, open: u64, pending: bool) {
        let mut state = self.state.lock();
        if state.removing.is_some() {
            return;
        }
        if let Some(stream) = state.named_stream(open) {
            return stream.deleting.store(pending, Ordering::Release);
        }
        let by = state.members.iter().find(|m| pending && m.open == open);
        let removal = by.map(|m| m.removal(self.id));
        state.delete_pending = removal;
    }

    /// The file is deleted with this open, if no other open has it. Of an open of a named stream: the stream is, and with
    /// `whole` the file too.
    pub(crate) fn delete_if_alone(&self, open: u64, whole: bool) {
        let mut state = self.state.lock();
        if let Some(stream) = state.named_stream(open) {
            let name = state.members.iter().find(|m| m.open == open).and_then(|m| m.stream.as_ref());
            if state.members.iter().filter(|m| m.stream.as_ref() == name).count() == 1 {
                stream.deleting.store(true, Ordering::Release);
            }
            if !whole {
                return;
            }
        }
        if let [m] = state.members.as_slice()
            && m.open == open
        {
            state.delete_pending = Some(m.removal(self.id));
        }
    }

    /// The name of one of its streams; `None` for the unnamed one.
    pub(crate) fn stream_name(&self, stream: &StreamState) -> Option<StreamName> {
        let state = self.state.lock();
        state.streams.iter().find(|e| std::ptr::eq(&*e.stream, stream)).and_then(|e| e.name.clone())
    }

    /// Whether a stream of this name is open or being removed.
    pub(crate) fn has_stream(&self, name: &StreamName) -> bool {
        self.state.lock().streams.iter().any(|e| e.name.as_ref() == Some(name))
    }

    /// A stream was renamed: its opens follow.
    pub(crate) fn stream_renamed(&self, stream: &StreamState, to: &StreamName) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(entry) = state.streams.iter_mut().find(|e| std::ptr::eq(&*e.stream, stream)) else { return };
        let from = entry.name.replace(to.clone());
        for member in state.members.iter_mut().filter(|m| m.stream == from) {
            member.stream.clone_from(&entry.name);
        }
    }

    /// FileDispositionInformationEx with FILE_DISPOSITION_ON_CLOSE: whether one open takes the file with it.
    pub(crate) fn set_delete_on_close(&self, open: u64, on: bool) {
        if let Some(m) = self.state.lock().members.iter_mut().find(|m| m.open == open) {
            m.delete_on_close = on;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
