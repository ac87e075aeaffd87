//! Breaks of caching rights by operations on an open file, and their acknowledgements.

use std::sync::atomic::Ordering;

use env::Moment;
use smb_wire::msg::LeaseState;

use super::caching::{self, Caching, Contention, HolderId, HolderState, Loss, Operation};
use super::{FileState, StreamState};

impl FileState {
    /// Another program changed data of the unnamed stream: breaks the rights of its holders.
    pub(crate) fn data_changed_externally(&self, now: Moment) -> Contention {
        let mut state = self.state.lock();
        let unnamed = state.streams.iter_mut().find(|e| e.name.is_none());
        let contention = unnamed.map(|e| e.caching.contend(None, Operation::Data, now)).unwrap_or_default();
        state.show_caching();
        contention
    }

    /// Breaks the rights of other holders of a stream (`None`: of all streams) that conflict with an operation.
    pub(crate) fn contend(
        &self,
        stream: Option<&StreamState>,
        by: Option<HolderId>,
        operation: Operation,
        now: Moment,
    ) -> Contention {
        let mut state = self.state.lock();
        let mut all = Contention::default();
        for entry in &mut state.streams {
            if stream.is_none_or(|stream| std::ptr::eq(&*entry.stream, stream)) {
                let one = entry.caching.contend(by, operation, now);
                all.notices.extend(one.notices);
                all.wait_until = all.wait_until.max(one.wait_until);
            }
        }
        state.show_caching();
        all.seen = self.changes.load(Ordering::Acquire);
        all
    }

    /// A client acknowledges a break; see [`Caching::acknowledge`].
    ///
    /// # Errors
    /// See [`caching::AcknowledgeError`].
    pub(crate) fn acknowledge(
        &self,
        id: HolderId,
        kept: LeaseState,
        now: Moment,
    ) -> Result<Option<caching::Notice>, caching::AcknowledgeError> {
        self.with_holder(id, |c| c.acknowledge(id, kept, now))
            .unwrap_or(Err(caching::AcknowledgeError::NotBreaking))
    }

    /// The notice of a break in progress; see [`Caching::resend_notice`].
    pub(crate) fn resend_notice(&self, id: HolderId, now: Moment) -> Option<caching::Notice> {
        self.with_holder(id, |c| c.resend_notice(id, now)).flatten()
    }

    /// A holder's client cannot be reached, or its acknowledgement was invalid: it loses all its rights.
    pub(crate) fn revoke(&self, id: HolderId) {
        self.with_holder(id, |c| c.revoke(id));
    }

    /// A holder's client is disconnected: see [`Caching::suspend`].
    pub(crate) fn suspend_break(&self, id: HolderId, until: Moment) {
        let mut state = self.state.lock();
        if let Some(entry) = state.streams.iter_mut().find(|e| e.caching.held(id).is_some()) {
            entry.caching.suspend(id, until);
        }
    }

    /// The losses of holders that are not stored yet.
    pub(crate) fn unstored_losses(&self) -> Vec<Loss> {
        self.state.lock().streams.iter().flat_map(|e| e.caching.unstored_losses()).copied().collect()
    }

    /// See [`FileState::unstored_losses`].
    pub(crate) fn loss_is_stored(&self, loss: Loss) {
        self.state.lock().streams.iter_mut().for_each(|e| e.caching.loss_is_stored(loss));
    }

    /// The current state of a holder.
    pub(crate) fn held(&self, id: HolderId) -> Option<HolderState> {
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
}
