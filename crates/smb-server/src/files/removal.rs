//! Files and streams that are marked for deletion, or being removed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use env::Moment;
use smb_wire::NtStatus;
use smb_wire::msg::LeaseKey;
use vfs::{FileKey, VfsPath};

use super::caching::Contention;
use super::{FileState, Member, Refusal, State, StreamEntry};
use crate::share::Share;

/// How long an open waits while the file that it found is being removed. In MS-FSA a CLOSE removes the file at once.
pub(super) const REMOVAL_WAIT: Duration = Duration::from_secs(5);

/// A name that is to be removed at the last close.
#[derive(Clone)]
pub(crate) struct Removal {
    pub(crate) share: Arc<Share>,
    pub(crate) path: VfsPath,
    pub(crate) id: FileKey,
    /// The parent lease of the open that marked it.
    pub(crate) parent_lease: Option<LeaseKey>,
}

impl Member {
    /// The removal of the member's name.
    pub(super) fn removal(&self, id: FileKey) -> Removal {
        Removal {
            share: Arc::clone(&self.share),
            path: self.path.clone(),
            id,
            parent_lease: self.parent_lease,
        }
    }
}

impl State {
    /// The refusal of a CREATE: DELETE_PENDING while other opens of a file marked for deletion exist; a wait while it
    /// is being removed; `None` in other cases.
    pub(super) fn refused_by_removal(
        &self,
        file: &Arc<FileState>,
        member: &Member,
        now: Moment,
    ) -> Option<Refusal> {
        let marked = self.delete_pending.is_some();
        let deleting = |e: &StreamEntry| e.name == member.stream && e.stream.is_deleting();
        if !marked && !self.streams.iter().any(deleting) {
            return None;
        }
        let status = NtStatus::DELETE_PENDING;
        let opened = self.members.iter().any(|m| marked || m.stream == member.stream);
        if opened && self.removing.is_none() {
            return Some(Refusal::Status(status));
        }
        // The last open was closed, or a removal with POSIX semantics has begun: the removal completes soon.
        let seen = file.changes.load(Ordering::Acquire);
        let wait_until = Some(now.after(REMOVAL_WAIT));
        let contention = Contention { notices: Vec::new(), seen, wait_until };
        Some(Refusal::Contended { file: Arc::clone(file), contention, status })
    }
}

impl FileState {
    /// Whether the file is removed at its last close.
    pub(crate) fn is_delete_pending(&self) -> bool {
        self.state.lock().delete_pending.is_some()
    }

    /// The name to remove, after [`FileTable::leave`] has requested it.
    pub(crate) fn removal(&self) -> Option<Removal> {
        self.state.lock().removing.clone()
    }

    /// Whether closing this open deletes the file or its stream.
    pub(crate) fn deletes_on_close(&self, open: u64) -> bool {
        self.state.lock().members.iter().any(|m| m.open == open && m.delete_on_close)
    }

    /// Marks the file for deletion at the last close, under the path of this open.
    pub(crate) fn delete_with_last(&self, open: u64) {
        let mut state = self.state.lock();
        if let Some(member) = state.members.iter().find(|m| m.open == open) {
            state.delete_pending = Some(member.removal(self.id));
        }
    }

    /// FileDispositionInformation: sets whether it is removed at the last close (MS-FSA 2.1.5.15.3).
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

    /// The file is deleted when this open is closed, if it has no other open. For an open of a named stream: deletes
    /// the stream, and with `whole` the file too.
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

    /// FileDispositionInformationEx with FILE_DISPOSITION_ON_CLOSE: sets whether closing one open deletes the file.
    pub(crate) fn set_delete_on_close(&self, open: u64, on: bool) {
        if let Some(m) = self.state.lock().members.iter_mut().find(|m| m.open == open) {
            m.delete_on_close = on;
        }
    }
}
