//! Joining the file that an open has found, while other requests change names: an open that lost the race against a
//! change retries, and a CREATE that fails removes what it has created.

use std::sync::Arc;

use smb_wire::msg::CreateOptions;
use smb_wire::{FileId, NtStatus};
use vfs::{Kind, OpenMode, Rights, VfsError};

use super::durable_handle::parent_lease;
use super::{JoinedOpen, OpenedFile, Plan};
use crate::breaks::LeasedFile;
use crate::commands::close::UnattachedOpen;
use crate::files::caching::CachingRequest;
use crate::files::share_mode::ShareMode;
use crate::files::{AccessClass, JoinOptions, Member, Refusal};
use crate::namespace::Snapshot;
use crate::open::{FileOpen, Open, OpenTarget, Owner, Sequence};
use crate::replay::ReservedCreate;
use crate::request::Reply;
use crate::server::OpenSlot;
use crate::status;

/// How often an open retries because its name changed meanwhile.
const ATTEMPTS: usize = 64;
/// After so many lost attempts, changes of names are blocked until the open has succeeded.
const ATTEMPTS_BEFORE_HOLD: usize = 4;

impl Plan<'_> {
    /// Retries until the open has joined its file, or is finally refused.
    pub(super) async fn open_with_retries(
        &self,
        reserved: Option<ReservedCreate>,
    ) -> Result<Reply, NtStatus> {
        // The second one is for the data of a stream, or for unbuffered I/O.
        let is_unbuffered = self.q.create_options.contains(CreateOptions::NO_INTERMEDIATE_BUFFERING);
        let descriptors = if self.stream.is_some() || is_unbuffered { 2 } else { 1 };
        let slot = self.r.server.take_open_slot(&self.r.session.user, descriptors)?;
        let mut races = 0;
        let mut removal_deadline = None;
        loop {
            match self.try_open(&slot).await {
                // MS-SMB2 3.3.5.16: cancelled during the backend's call. No other request has seen the open: it is
                // reverted.
                Ok(done) if self.r.cancel.is_by_client() => {
                    self.release_hold();
                    Plan::revert(done.open, &done.found).await;
                    return Err(NtStatus::CANCELLED);
                }
                Ok(done) => {
                    self.release_hold();
                    return self.finish(done, reserved).await;
                }
                Err(Refusal::Retry) if races < ATTEMPTS => {
                    self.back_off(races).await;
                    races += 1;
                }
                Err(Refusal::Retry) => return Err(NtStatus::SHARING_VIOLATION),
                Err(Refusal::Status(s)) => {
                    self.release_hold();
                    return Ok(self.refused(s).await);
                }
                Err(Refusal::Contended { file, mut contention, status }) => {
                    self.release_hold();
                    self.r.server.send_breaks(&file, &contention.notices);
                    if status == NtStatus::DELETE_PENDING {
                        // One deadline for all attempts: the wait for the file's removal ends however often the file
                        // changes.
                        removal_deadline = removal_deadline.or(contention.wait_until);
                        contention.wait_until =
                            removal_deadline.filter(|until| self.r.server.env.moment() < *until);
                    }
                    if contention.wait_until.is_none() {
                        return Err(status);
                    }
                    self.r.wait_for_breaks(&file, &contention).await?;
                }
            }
        }
    }

    /// Finds or creates the file and joins it.
    async fn try_open(&self, slot: &Arc<OpenSlot>) -> Result<JoinedOpen, Refusal> {
        let snapshot = self.r.server.namespace.snapshot();
        let found = match self.open().await {
            // The backend may have found a stream whose file was being removed.
            Err(_) if self.stream.is_some() && self.has_changed_since(snapshot) => {
                return Err(Refusal::Retry);
            }
            opened => opened.map_err(Refusal::Status)?.ok_or(Refusal::Retry)?,
        };
        match self.create_open(&found, snapshot, slot) {
            Err(Refusal::Retry) if found.opened.created => self.create_open_of_new_file(found, slot).await,
            Err(e) => {
                if found.opened.created {
                    self.remove_created(&found).await;
                }
                Err(e)
            }
            Ok(open) => Ok(JoinedOpen { open, found }),
        }
    }

    fn has_changed_since(&self, snapshot: Snapshot) -> bool {
        !self.r.server.namespace.is_name_current(snapshot, self.share, &self.path)
    }

    /// Joins the file, which checks share modes, and creates the open.
    fn create_open(
        &self,
        found: &OpenedFile,
        snapshot: Snapshot,
        slot: &Arc<OpenSlot>,
    ) -> Result<UnattachedOpen, Refusal> {
        let (server, opens) = (&self.r.server, &self.r.server.opens);
        let (id, persistent) = (found.opened.node.id(), opens.persistent_id());
        if self.share.continuous {
            self.check_disconnected_opens(id)?;
        }
        let access = found.granted | self.implied();
        let directory = found.opened.stat.kind == Kind::Directory;
        let caching_request = self.caching_request_for(directory);
        let member = Member {
            open: persistent,
            stream: found.opened.stream.clone(),
            // Overwriting counts as an open for writing.
            mode: ShareMode { access, share: self.q.share_access },
            access_class: AccessClass::of(access),
            holder: None,
            parent_lease: parent_lease(self.caching_request),
            posix: self.requested.posix.is_some(),
            share: Arc::clone(self.share),
            path: found.opened.path.clone(),
            only_link: found.opened.stat.links <= 1,
            delete_on_close: self.q.create_options.contains(CreateOptions::DELETE_ON_CLOSE),
        };
        let join_options = JoinOptions {
            caching_request,
            overwrites: self.overwrites(),
            directory,
            token: opens.number(),
            acknowledge_timeout: self.acknowledge_timeout(),
            now: server.env.moment(),
        };
        let is_this = |leased: &LeasedFile| {
            leased.file.id() == id && leased.file.stream_name(&leased.stream) == self.stream
        };
        // A lease key names one file, even if no lease is granted.
        if let CachingRequest::Lease(l) = self.caching_request
            && server.leases.find(l.id).is_some_and(|leased| !is_this(&leased))
        {
            return Err(Refusal::Status(NtStatus::INVALID_PARAMETER));
        }
        let join = || server.files.join_file(&server.namespace, id, snapshot, member, join_options);
        let (joined, notices) = match caching_request {
            CachingRequest::Lease(l) => server.leases.join_lease(
                l.id,
                is_this,
                || Refusal::Status(NtStatus::INVALID_PARAMETER),
                || {
                    let (joined, notices) = join()?;
                    let leased =
                        LeasedFile { file: Arc::clone(&joined.file), stream: Arc::clone(&joined.stream) };
                    Ok(((joined, notices), leased))
                },
            ),
            _ => join(),
        }?;
        server.send_breaks(&joined.file, &notices);
        let node = Arc::clone(&found.opened.node);
        let target = OpenTarget::File(FileOpen::new(node, Arc::clone(self.share), joined, self.options()));
        let owner = Owner { session: Arc::clone(&self.r.session), tree: Arc::clone(&self.r.tree) };
        let sequence = Sequence::new(self.r.header.channel_sequence());
        let access = found.granted.bits();
        let created = self.created(self.action(found.opened.created || found.resumed));
        let id = FileId { persistent, volatile: opens.number() };
        let open = Open::new(id, owner, access, target, sequence, created, Arc::clone(slot));
        Ok(UnattachedOpen::new(server, Arc::new(open)))
    }

    /// Joins a file that this CREATE has created while names changed: it is not created twice, and not mistaken for one
    /// that existed before.
    async fn create_open_of_new_file(
        &self,
        mut found: OpenedFile,
        slot: &Arc<OpenSlot>,
    ) -> Result<JoinedOpen, Refusal> {
        let rights = Rights { read: false, write: false };
        for attempt in 0..ATTEMPTS {
            let snapshot = self.r.server.namespace.snapshot();
            let request = self.own_request(OpenMode::Open, None, rights);
            match self.vfs.open(&self.r.ctx(), request).wait().await {
                Ok(o) if o.node.id() == found.opened.node.id() => found.opened.path = o.path,
                // It has been moved away or deleted by now.
                Ok(_) | Err(VfsError::NotFound | VfsError::PathNotFound) => return Err(Refusal::Retry),
                Err(e) => {
                    self.remove_created(&found).await;
                    return Err(Refusal::Status(status::of_vfs(e)));
                }
            }
            match self.create_open(&found, snapshot, slot) {
                Err(Refusal::Retry) => self.back_off(attempt).await,
                Err(e) => {
                    self.remove_created(&found).await;
                    return Err(e);
                }
                Ok(open) => return Ok(JoinedOpen { open, found }),
            }
        }
        // A retry of this CREATE would find its own file.
        self.remove_created(&found).await;
        Err(Refusal::Status(NtStatus::SHARING_VIOLATION))
    }

    /// An attempt lost the race against a change of names: backs off, and later blocks changes of names.
    async fn back_off(&self, attempt: usize) {
        let (namespace, share) = (&self.r.server.namespace, self.share);
        if self.hold.lock().is_some() {
            return;
        }
        if attempt < ATTEMPTS_BEFORE_HOLD {
            namespace.wait_for_directory_renames(share).await;
        } else {
            let hold = namespace.hold(share).await;
            *self.hold.lock() = Some(hold);
        }
    }

    /// Names may change again.
    fn release_hold(&self) {
        *self.hold.lock() = None;
    }

    /// Removes the file or stream that this CREATE has created and cannot open: a CREATE that fails leaves nothing
    /// behind. It stays if another open has joined it by now.
    pub(super) async fn remove_created(&self, found: &OpenedFile) {
        self.release_hold();
        let (path, id) = (&found.opened.path, found.opened.node.id());
        if let Some(name) = &self.stream {
            let opened = self.r.server.files.find(id).is_some_and(|file| file.has_stream(name));
            if !opened && let Err(e) = found.opened.node.remove_stream(&self.r.ctx(), name).wait().await {
                tracing::debug!(path = ?path.to_string(), stream = ?name, "a stream could not be removed after a failed CREATE: {e}");
            }
            if !found.made_file {
                return;
            }
        }
        let mut change = self.r.server.namespace.begin_change(self.share).await;
        let Ok(_claim) = self.r.server.files.claim(id) else { return };
        change.touch(path, id);
        if let Err(e) = self.vfs.remove(&self.r.ctx(), path, id).wait().await {
            tracing::debug!(path = ?path.to_string(), "a file could not be removed after a failed CREATE: {e}");
        }
        // Dropped before the claim: an open that called the backend before this must not join afterwards.
        drop(change);
    }

    /// Closes an open that is reported to no client, and removes what its CREATE has created, but nothing that existed
    /// before.
    pub(super) async fn revert(unattached: UnattachedOpen, found: &OpenedFile) {
        let open = unattached.get();
        if let Some(f) = open.file() {
            match found.opened.created {
                true => f.file.delete_if_alone(open.persistent, found.made_file),
                false => f.file.set_delete_on_close(open.persistent, false),
            }
        }
        unattached.close().await;
    }
}
