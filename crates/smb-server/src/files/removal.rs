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

/// A name that is marked for deletion (MS-FSA 2.1.1.4, Link.IsDeleted): the path of the open that marked it.
#[derive(Clone)]
pub(crate) struct Removal {
    pub(crate) share: Arc<Share>,
    pub(crate) path: VfsPath,
    pub(crate) id: FileKey,
    /// The parent lease of the open that marked it.
    pub(crate) parent_lease: Option<LeaseKey>,
    /// The file had no other name when it was marked: see [`Removal::is_of`].
    only_link: bool,
    /// With POSIX semantics, the open that marked it: the name is removed when that is closed, even if other opens
    /// remain.
    posix_open: Option<u64>,
    /// The open whose close removes it, once that has begun.
    running_for: Option<u64>,
}

/// How [`FileState::set_delete_pending`] marks a name.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    /// FILE_DISPOSITION_POSIX_SEMANTICS.
    pub(crate) posix: bool,
    /// The file has no other name.
    pub(crate) only_link: bool,
}

impl Removal {
    /// Whether an open has this share and path.
    pub(super) fn is_by(&self, member: &Member) -> bool {
        Arc::ptr_eq(&self.share, &member.share) && self.path == member.path
    }

    /// Whether an open may have opened the file by this name. One link may have several paths: in shares that overlap,
    /// through a symbolic link to a directory, in another case, as another form of a virtual disk. So the paths matter
    /// only if the file has several links.
    pub(super) fn is_of(&self, member: &Member) -> bool {
        self.only_link || !Arc::ptr_eq(&self.share, &member.share) || self.path == member.path
    }

    /// Whether this is certainly the name of an open, so that an open may replace or end the mark.
    pub(super) fn is_same_link(&self, member: &Member) -> bool {
        self.only_link && member.only_link || self.is_by(member)
    }

    fn is_running(&self) -> bool {
        self.running_for.is_some()
    }
}

impl Member {
    /// The removal of the member's name.
    pub(super) fn removal(&self, id: FileKey) -> Removal {
        Removal {
            share: Arc::clone(&self.share),
            path: self.path.clone(),
            id,
            parent_lease: self.parent_lease,
            only_link: self.only_link,
            posix_open: None,
            running_for: None,
        }
    }
}

impl State {
    /// Starts the removals that waited only for the close of this open. `closing` is the open if it has just left,
    /// `None` if its stream was removed since. Returns whether any removal was started.
    pub(super) fn start_removals(&mut self, open: u64, closing: Option<&Member>) -> bool {
        let State { members, streams, removals, .. } = self;
        // A stream without a member is being removed. Its removal must end before the file's last name is removed.
        let may_end_file = !members.is_empty() || streams.is_empty();
        let mut any = false;
        for removal in removals.iter_mut().filter(|r| !r.is_running()) {
            let mut others = members.iter().filter(|m| removal.is_of(m)).peekable();
            let start = match others.peek() {
                None => may_end_file,
                Some(_) => closing.is_some_and(|closing| {
                    let has_posix_extensions = closing.posix
                        && removal.share.removal_keeps_opens()
                        && removal.is_of(closing)
                        && others.all(|m| m.posix);
                    removal.posix_open == Some(open) || has_posix_extensions
                }),
            };
            if start {
                removal.running_for = Some(open);
                any = true;
            }
        }
        any
    }

    /// Marks the name of an open, if it is not being removed already.
    fn mark(&mut self, removal: Removal, member: usize) {
        let member = &self.members[member];
        if !self.removals.iter().any(|r| r.is_same_link(member) && r.is_running()) {
            self.removals.retain(|r| !r.is_same_link(member));
            self.removals.push(removal);
        }
    }

    /// One of the removals that run for this open has ended.
    pub(super) fn end_removal(&mut self, open: u64) {
        if let Some(ended) = self.removals.iter().position(|r| r.running_for == Some(open)) {
            self.removals.remove(ended);
        }
    }

    fn member(&self, open: u64) -> Option<usize> {
        self.members.iter().position(|m| m.open == open)
    }

    /// The refusal of a CREATE: DELETE_PENDING while other opens of a name marked for deletion exist (MS-FSA 2.1.5.1,
    /// Link.IsDeleted and Stream.IsDeleted); a wait while it is being removed; `None` in other cases.
    pub(super) fn refused_by_removal(
        &self,
        file: &Arc<FileState>,
        member: &Member,
        now: Moment,
    ) -> Option<Refusal> {
        let status = NtStatus::DELETE_PENDING;
        let deleting = |e: &StreamEntry| e.name == member.stream && e.stream.is_deleting();
        let in_use = match self.removals.iter().find(|r| r.is_of(member)) {
            Some(removal) => !removal.is_running() && self.members.iter().any(|m| removal.is_of(m)),
            None if self.streams.iter().any(deleting) => {
                self.members.iter().any(|m| m.stream == member.stream)
            }
            None => return None,
        };
        if in_use {
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
    /// Whether the name by which a file was opened is marked for deletion.
    pub(crate) fn is_delete_pending(&self, open: u64) -> bool {
        let state = self.state.lock();
        state.member(open).is_some_and(|m| state.removals.iter().any(|r| r.is_of(&state.members[m])))
    }

    /// Whether this share and path of an open are marked for deletion. [`FileState::is_delete_pending`] is also true if
    /// only another path is marked that may be the same link: a restored open must not mark its own path then.
    pub(crate) fn is_path_marked(&self, open: u64) -> bool {
        let state = self.state.lock();
        state.member(open).is_some_and(|m| state.removals.iter().any(|r| r.is_by(&state.members[m])))
    }

    /// The file has got another name.
    pub(crate) fn linked(&self) {
        let mut state = self.state.lock();
        state.members.iter_mut().for_each(|m| m.only_link = false);
        state.removals.iter_mut().for_each(|r| r.only_link = false);
    }

    /// How many of its names are marked for deletion. A directory has one name.
    pub(crate) fn deleted_names(&self) -> usize {
        self.state.lock().removals.len()
    }

    /// A name to remove for an open that was closed, after [`FileTable::leave_file`] has requested it; call
    /// [`FileTable::removed`] then.
    pub(crate) fn removal(&self, open: u64) -> Option<Removal> {
        self.state.lock().removals.iter().find(|r| r.running_for == Some(open)).cloned()
    }

    /// Whether closing this open deletes the file or its stream.
    pub(crate) fn deletes_on_close(&self, open: u64) -> bool {
        self.state.lock().members.iter().any(|m| m.open == open && m.delete_on_close)
    }

    /// Marks the name of this open for deletion at its last close.
    pub(crate) fn delete_with_last(&self, open: u64) {
        let mut state = self.state.lock();
        if let Some(member) = state.member(open) {
            let removal = state.members[member].removal(self.id);
            state.mark(removal, member);
        }
    }

    /// FileDispositionInformation: sets whether the name of this open is removed at its last close, or with
    /// [`Mark::posix`] at the close of this open (MS-FSA 2.1.5.15.3, 2.1.5.15.4). `None` ends the mark.
    pub(crate) fn set_delete_pending(&self, open: u64, mark: Option<Mark>) {
        let mut state = self.state.lock();
        let Some(member) = state.member(open) else { return };
        if let Some(stream) = state.named_stream(open) {
            return stream.deleting.store(mark.is_some(), Ordering::Release);
        }
        if let Some(Mark { posix, only_link }) = mark {
            let posix_open = posix.then_some(open);
            state.members[member].only_link = only_link;
            let removal = Removal { posix_open, ..state.members[member].removal(self.id) };
            state.mark(removal, member);
        } else {
            let State { members, removals, .. } = &mut *state;
            removals.retain(|r| r.is_running() || !r.is_same_link(&members[member]));
        }
    }

    /// The name of this open is removed when it is closed, if no other open has it. For an open of a named stream:
    /// deletes the stream, and with `whole` the name too.
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
        if let Some(member) = state.member(open) {
            let removal = state.members[member].removal(self.id);
            if state.members.iter().filter(|m| removal.is_of(m)).count() == 1 {
                state.mark(removal, member);
            }
        }
    }

    /// FileDispositionInformationEx with FILE_DISPOSITION_ON_CLOSE: sets whether closing one open deletes the file.
    pub(crate) fn set_delete_on_close(&self, open: u64, on: bool) {
        if let Some(m) = self.state.lock().members.iter_mut().find(|m| m.open == open) {
            m.delete_on_close = on;
        }
    }
}
