//! The table of open files: opens join their file and leave it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use env::Moment;
use smb_wire::NtStatus;
use vfs::{FileKey, StreamName, VfsPath};

use super::caching::{self, Operation, RestoredHolder};
use super::locks::LockRange;
use super::share_mode::ShareMode;
use super::{
    CloseActions, FileState, FileTable, JoinOptions, JoinedMember, Member, Refusal, State, StreamState,
};
use crate::namespace::{Namespace, Snapshot};
use crate::share::Share;

/// See [`FileTable::claim`].
pub(crate) struct Claim<'t>(&'t FileTable, FileKey);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.by_id.lock().remove(&self.1);
    }
}

/// See [`FileTable::claim_stream`].
pub(crate) struct StreamClaim<'t> {
    table: &'t FileTable,
    file: Arc<FileState>,
    stream: Arc<StreamState>,
}

impl Drop for StreamClaim<'_> {
    fn drop(&mut self) {
        self.table.stream_ended(&self.file, &self.stream, None);
    }
}

impl FileTable {
    /// Adds an open to its file (MS-FSA 2.1.5.1.2): delete-pending, share modes and caching rights are checked in the
    /// same atomic step, so that one of two conflicting opens is refused. Returns the open with the notices to send
    /// that need no acknowledgement.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub(crate) fn join_file(
        &self,
        namespace: &Namespace,
        id: FileKey,
        snapshot: Snapshot,
        member: Member,
        join_options: JoinOptions,
    ) -> Result<(JoinedMember, Vec<caching::Notice>), Refusal> {
        let mut files = self.by_id.lock();
        if !namespace.is_current(snapshot, &member.share, &member.path, id) {
            return Err(Refusal::Retry);
        }
        let file = files.entry(id).or_insert_with(|| Arc::new(FileState::new(id)));
        let file = Arc::clone(file);
        let mut state = file.state.lock();
        if state.claimed {
            return Err(Refusal::Retry);
        }
        if let Some(refusal) = state.refused_by_removal(&file, &member, join_options.now) {
            return Err(refusal);
        }
        let admitted = state.admit(&member, join_options);
        match admitted {
            Ok(notices) => {
                let joined = state.add(&file, member, join_options);
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

    /// Restores an open from before the server's restart, with its caching rights and locks.
    pub(crate) fn restore(
        &self,
        id: FileKey,
        mut member: Member,
        caching: Option<RestoredHolder>,
        locks: Vec<(LockRange, bool)>,
    ) -> JoinedMember {
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
        JoinedMember { file, stream, caching: held, parent_lease, posix }
    }

    /// Removes an open and its locks from its file (MS-FSA 2.1.5.5). If [`CloseActions::remove`] is set, the caller
    /// removes each name in [`FileState::removal`] from the backend, and then calls [`FileTable::removed`].
    pub(crate) fn leave_file(&self, file: &Arc<FileState>, stream: &StreamState, open: u64) -> CloseActions {
        let left = self.leave_members(file, open);
        // After the removal: an open that is no member gets no lock any more.
        stream.release_locks(open);
        file.has_changed();
        left
    }

    fn leave_members(&self, file: &Arc<FileState>, open: u64) -> CloseActions {
        let mut files = self.by_id.lock();
        let mut state = file.state.lock();
        let Some(i) = state.members.iter().position(|m| m.open == open) else {
            return CloseActions::default();
        };
        let member = state.members.swap_remove(i);
        let (ended_lease, remove_stream) = state.stop_caching(&member);
        let marks = member.delete_on_close && member.stream.is_none();
        if marks && !state.removals.iter().any(|r| r.is_same_link(&member)) {
            state.removals.push(member.removal(file.id));
        }
        let remove = state.start_removals(open, Some(&member));
        FileTable::forget_if_unused(&mut files, file, &state);
        CloseActions { ended_lease, remove, remove_stream }
    }

    /// Called when a member has left, or a stream or name is removed: removes a file without members, streams and
    /// removals from the table. A stream that is being removed has no member, and keeps its entry.
    fn forget_if_unused(files: &mut HashMap<FileKey, Arc<FileState>>, file: &FileState, state: &State) {
        if state.members.is_empty() && state.streams.is_empty() && state.removals.is_empty() {
            files.remove(&file.id);
        }
    }

    /// Called when the removal of a stream that [`FileTable::leave_file`] requested has completed or failed. `open` is
    /// the open that was closed: it may now have names to remove, see [`FileState::removal`].
    pub(crate) fn stream_removed(&self, file: &Arc<FileState>, stream: &StreamState, open: u64) {
        self.stream_ended(file, stream, Some(open));
    }

    fn stream_ended(&self, file: &Arc<FileState>, stream: &StreamState, closed: Option<u64>) {
        let mut files = self.by_id.lock();
        let mut state = file.state.lock();
        state.streams.retain(|e| !std::ptr::eq(&*e.stream, stream));
        if let Some(open) = closed {
            state.start_removals(open, None);
        }
        FileTable::forget_if_unused(&mut files, file, &state);
        drop((state, files));
        file.has_changed();
    }

    /// Called when the removal of a name for this open has completed or failed: the file may be opened again, if it
    /// still has a name. Its other opens stay members.
    pub(crate) fn removed(&self, file: &Arc<FileState>, open: u64) {
        let mut files = self.by_id.lock();
        let mut state = file.state.lock();
        state.end_removal(open);
        FileTable::forget_if_unused(&mut files, file, &state);
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

    /// Prevents opens of a file while a rename replaces it.
    ///
    /// # Errors
    /// The file, if it is open.
    pub(crate) fn claim(&self, id: FileKey) -> Result<Claim<'_>, Arc<FileState>> {
        match self.by_id.lock().entry(id) {
            Entry::Occupied(present) => Err(Arc::clone(present.get())),
            Entry::Vacant(v) => {
                let file = FileState::new(id);
                file.state.lock().claimed = true;
                v.insert(Arc::new(file));
                Ok(Claim(self, id))
            }
        }
    }

    /// Prevents opens of a stream while it is removed from a file that is open; they wait. `None` if the stream is open.
    pub(crate) fn claim_stream(&self, file: &Arc<FileState>, name: &StreamName) -> Option<StreamClaim<'_>> {
        let mut state = file.state.lock();
        let name = Some(name.clone());
        if state.streams.iter().any(|e| e.name == name) {
            return None;
        }
        let at = state.stream_entry(&name);
        let stream = Arc::clone(&state.streams[at].stream);
        stream.deleting.store(true, Ordering::Release);
        Some(StreamClaim { table: self, file: Arc::clone(file), stream })
    }

    /// Whether every open of a file has POSIX extensions.
    pub(crate) fn all_posix(&self, id: FileKey) -> bool {
        let files = self.by_id.lock();
        files.get(&id).is_some_and(|f| {
            let state = f.state.lock();
            !state.claimed && state.removals.is_empty() && state.members.iter().all(|m| m.posix)
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
        // No open joins or leaves in between: the table is locked.
        let sharing = Operation::Sharing { overwrites: false };
        let contention = unnamed.map(|s| file.contend(Some(&s), None, sharing, now)).unwrap_or_default();
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

    /// The files below a directory that are open or about to be removed.
    pub(crate) fn open_below(&self, share: &Arc<Share>, directory: &VfsPath) -> Vec<Arc<FileState>> {
        let below = |s: &Arc<Share>, path: &VfsPath| {
            Arc::ptr_eq(s, share) && path != directory && path.starts_with(directory)
        };
        let files = self.by_id.lock();
        let is_below = |f: &&Arc<FileState>| {
            let state = f.state.lock();
            // A file that is about to be removed is found by its path, so it blocks the rename too.
            state.members.iter().any(|m| below(&m.share, &m.path))
                || state.removals.iter().any(|r| below(&r.share, &r.path))
        };
        files.values().filter(is_below).cloned().collect()
    }

    /// A rename has happened: updates the paths of the opens. Another hard link of the file keeps its name, and so does
    /// the same path in another share. A mark of the name that is replaced ends. `record` is called with the table locked.
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
            // Its other name that was marked for deletion is replaced: the new name is not removed instead.
            if from != to {
                state.removals.retain(|r| !Arc::ptr_eq(&r.share, share) || r.path != *to);
            }
            let members = state.members.iter_mut().map(|m| (&m.share, &mut m.path));
            let marked = state.removals.iter_mut().map(|r| (&r.share, &mut r.path));
            for (s, path) in members.chain(marked) {
                if Arc::ptr_eq(s, share) && *path == *from {
                    *path = to.clone();
                }
            }
        }
    }
}
