//! The members of an open file: whether one more may join, and the caching rights that it gets.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smb_wire::NtStatus;
use vfs::StreamName;

use super::caching::{
    self, Caching, CachingRequest, Contention, GrantConditions, HolderId, LeaseId, Operation,
};
use super::locks::LockRefusal;
use super::{AccessClass, FileState, JoinOptions, JoinedMember, Member, State, StreamEntry, StreamState};

impl State {
    /// Whether a member may join: share modes first, then caching rights (MS-FSA 2.1.5.1.2.2, 2.1.5.1.2).
    pub(super) fn admit(
        &mut self,
        member: &Member,
        join_options: JoinOptions,
    ) -> Result<Vec<caching::Notice>, (NtStatus, Contention)> {
        let by = match join_options.caching_request {
            CachingRequest::Lease(l) => Some(HolderId::Lease(l.id)),
            _ => None,
        };
        let overwrites = join_options.overwrites;
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
        let mut contend = |operation| entry.caching.contend(by, operation, join_options.now);
        if !compatible {
            return Err((NtStatus::SHARING_VIOLATION, contend(Operation::Sharing { overwrites })));
        }
        if member.delete_on_close {
            // MS-FSA 2.1.5.1.2: cached handles would prevent the deletion.
            let contention = contend(Operation::Names);
            if contention.wait_until.is_some() {
                return Err((NtStatus::SHARING_VIOLATION, contention));
            }
        }
        let contention = match member.access_class {
            AccessClass::AttributesOnly if !overwrites => return Ok(Vec::new()),
            AccessClass::AttributesAndSecurity if !overwrites => contend(Operation::OpenSecurity),
            _ => contend(Operation::Open { overwrites }),
        };
        match contention.wait_until {
            Some(_) => Err((NtStatus::SHARING_VIOLATION, contention)),
            None => Ok(contention.notices),
        }
    }

    /// The index of a stream among the open ones; adds it if it is not there.
    pub(super) fn stream_entry(&mut self, name: &Option<StreamName>) -> usize {
        self.streams.iter().position(|e| e.name == *name).unwrap_or_else(|| {
            let stream = Arc::new(StreamState::new(name.is_some()));
            self.streams.push(StreamEntry { name: name.clone(), stream, caching: Caching::default() });
            self.streams.len() - 1
        })
    }

    /// Adds a member that was admitted, and grants it the caching rights that it requests.
    pub(super) fn add(
        &mut self,
        file: &Arc<FileState>,
        mut member: Member,
        join_options: JoinOptions,
    ) -> JoinedMember {
        let at = self.stream_entry(&member.stream);
        let own = match join_options.caching_request {
            CachingRequest::Lease(l) => Some(HolderId::Lease(l.id)),
            _ => None,
        };
        let another = |m: &Member| own.is_none() || m.holder != own;
        let little =
            if own.is_some() { AccessClass::AttributesAndSecurity } else { AccessClass::AttributesOnly };
        let others =
            self.members.iter().any(|m| m.stream == member.stream && m.access_class > little && another(m));
        let entry = &mut self.streams[at];
        let locked = entry.stream.lock_count.load(Ordering::Acquire) > 0;
        let conditions = GrantConditions { others, locked, directory: join_options.directory };
        let caching = entry.caching.grant(
            member.open,
            join_options.caching_request,
            conditions,
            join_options.token,
            join_options.acknowledge_timeout,
        );
        entry.show();
        member.holder = caching.map(|(id, _)| id);
        let stream = Arc::clone(&entry.stream);
        let (parent_lease, posix) = (member.parent_lease, member.posix);
        self.members.push(member);
        JoinedMember { file: Arc::clone(file), stream, caching, parent_lease, posix }
    }

    /// Removes a member from its holder, and its stream if it was the stream's last. Returns the lease that this ends,
    /// and the name of the stream if that is to be removed from the file.
    pub(super) fn stop_caching(&mut self, member: &Member) -> (Option<LeaseId>, Option<StreamName>) {
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
    pub(super) fn named_stream(&self, open: u64) -> Option<&Arc<StreamState>> {
        let member = self.members.iter().find(|m| m.open == open && m.stream.is_some())?;
        self.streams.iter().find(|e| e.name == member.stream).map(|e| &e.stream)
    }

    pub(super) fn show_caching(&self) {
        self.streams.iter().for_each(StreamEntry::show);
    }
}

impl StreamEntry {
    pub(super) fn show(&self) {
        self.stream.cached_by.store(self.caching.summary(), Ordering::Release);
    }
}

impl FileState {
    /// Called with the table of locks locked. If the open is being closed on another channel, it either is no longer a
    /// member and gets no lock, or its close later releases the lock that it gets now.
    pub(super) fn check_member(&self, open: u64) -> Result<(), LockRefusal> {
        let state = self.state.lock();
        if state.members.iter().any(|m| m.open == open) { Ok(()) } else { Err(LockRefusal::Closed) }
    }

    /// The persistent ids of the opens of one holder.
    pub(crate) fn opens_of(&self, id: HolderId) -> Vec<u64> {
        self.state.lock().members.iter().filter(|m| m.holder == Some(id)).map(|m| m.open).collect()
    }

    /// All opens of the file.
    pub(crate) fn opens(&self) -> Vec<u64> {
        self.state.lock().members.iter().map(|m| m.open).collect()
    }
}
