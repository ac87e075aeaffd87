//! How a CREATE is answered when its file, or its stream, is marked for deletion or being removed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use env::Moment;
use smb_wire::NtStatus;

use super::caching::Contention;
use super::{FileState, Member, Refusal, State, StreamEntry};

/// How long an open waits for the removal of the file that it found. In MS-FSA a CLOSE removes the file at once.
pub(super) const REMOVAL_WAIT: Duration = Duration::from_secs(5);

impl State {
    /// DELETE_PENDING while other opens keep what is marked for deletion; a wait while it is being removed; `None` when
    /// neither is so.
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
        // The last open has been closed, or the removal has begun without that: it ends soon.
        let seen = file.changes.load(Ordering::Acquire);
        let wait_until = Some(now.after(REMOVAL_WAIT));
        let contention = Contention { notices: Vec::new(), seen, wait_until };
        Some(Refusal::Contended { file: Arc::clone(file), contention, status })
    }
}
