//! Joining the file that an open has found, while other requests change names: an open that lost the race against a
//! change retries, and a CREATE that fails removes what it has created.

use std::sync::Arc;

use smb_wire::msg::CreateOptions;
use smb_wire::{FileId, NtStatus};
use vfs::{Kind, OpenMode, Rights, VfsError};

use super::keep::parent_lease;
use super::{Done, Found, Plan};
use crate::breaks::LeasedFile;
use crate::commands::close::UnattachedOpen;
use crate::files::caching::CachingRequest;
use crate::files::share_mode::ShareMode;
use crate::files::{AccessClass, Joining, Member, Refusal};
use crate::namespace::Snapshot;
use crate::open::{FileOpen, Open, OpenTarget, Owner, Sequence};
use crate::replay::Reserved;
use crate::request::Reply;
use crate::server::OpenSlot;
use crate::status;

/// How often an open retries because its name changed meanwhile.
const ATTEMPTS: usize = 64;
/// After so many lost attempts, changes of names are blocked until the open has succeeded.
const PATIENCE: usize = 4;

impl Plan<'_> {
    /// Retries until the open has joined its file, or is finally refused.
    pub(super) async fn carry_out(&self, reserved: Option<Reserved>) -> Result<Reply, NtStatus> {
        let slot = self.r.server.take_open_slot(&self.r.session.user)?;
        let mut races = 0;
        let mut removal_deadline = None;
        loop {
            match self.attempt(&slot).await {
                // MS-SMB2 3.3.5.16: cancelled during the backend's call. No other request has seen the open: it is
                // reverted.
                Ok(done) if self.r.cancel.is_by_client() => {
                    self.release();
                    Plan::give_up(done.open, &done.found).await;
                    return Err(NtStatus::CANCELLED);
                }
                Ok(done) => {
                    self.release();
                    return self.finish(done, reserved).await;
                }
                Err(Refusal::Again) if races < ATTEMPTS => {
                    self.lost(races).await;
                    races += 1;
                }
                Err(Refusal::Again) => return Err(NtStatus::SHARING_VIOLATION),
                Err(Refusal::Status(s)) => {
                    self.release();
                    return Ok(self.refused(s).await);
                }
                Err(Refusal::Contended { file, mut contention, status }) => {
                    self.release();
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
    async fn attempt(&self, slot: &Arc<OpenSlot>) -> Result<Done, Refusal> {
        let snapshot = self.r.server.namespace.snapshot();
        let found = match self.open().await {
            // The backend may have found a stream whose file was being removed.
            Err(_) if self.stream.is_some() && self.has_changed_since(snapshot) => {
                return Err(Refusal::Again);
            }
            opened => opened.map_err(Refusal::Status)?.ok_or(Refusal::Again)?,
        };
        match self.join(&found, snapshot, slot) {
            Err(Refusal::Again) if found.opened.created => self.join_created(found, slot).await,
            Err(e) => {
                if found.opened.created {
                    self.undo(&found).await;
                }
                Err(e)
            }
            Ok(open) => Ok(Done { open, found }),
        }
    }

    fn has_changed_since(&self, snapshot: Snapshot) -> bool {
        !self.r.server.namespace.is_name_current(snapshot, self.share, &self.path)
    }

    /// Joins the file, which checks share modes, and creates the open.
    fn join(
        &self,
        found: &Found,
        snapshot: Snapshot,
        slot: &Arc<OpenSlot>,
    ) -> Result<UnattachedOpen, Refusal> {
        let (server, opens) = (&self.r.server, &self.r.server.opens);
        let (id, persistent) = (found.opened.node.id(), opens.persistent_id());
        if self.share.continuous {
            self.check_absent(id)?;
        }
        let access = found.granted | self.implied();
        let directory = found.opened.stat.kind == Kind::Directory;
        let wish = self.wish_for(directory);
        let member = Member {
            open: persistent,
            stream: found.opened.stream.clone(),
            // Overwriting counts as an open for writing.
            mode: ShareMode { access, share: self.q.share_access },
            looks: AccessClass::of(access),
            holder: None,
            parent_lease: parent_lease(self.wish),
            posix: self.wanted.posix.is_some(),
            share: Arc::clone(self.share),
            path: found.opened.path.clone(),
            sole: found.opened.stat.links <= 1,
            delete_on_close: self.q.create_options.contains(CreateOptions::DELETE_ON_CLOSE),
        };
        let joining = Joining {
            wish,
            overwrites: self.overwrites(),
            directory,
            token: opens.number(),
            patience: self.patience(),
            now: server.env.moment(),
        };
        let is_this = |leased: &LeasedFile| {
            leased.file.id() == id && leased.file.stream_name(&leased.stream) == self.stream
        };
        // A lease key names one file, even if no lease is granted.
        if let CachingRequest::Lease(l) = self.wish
            && server.leases.find(l.id).is_some_and(|leased| !is_this(&leased))
        {
            return Err(Refusal::Status(NtStatus::INVALID_PARAMETER));
        }
        let join = || server.files.join(&server.namespace, id, snapshot, member, joining);
        let (joined, notices) = match wish {
            CachingRequest::Lease(l) => server.leases.join(
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
    async fn join_created(&self, mut found: Found, slot: &Arc<OpenSlot>) -> Result<Done, Refusal> {
        let rights = Rights { read: false, write: false };
        for attempt in 0..ATTEMPTS {
            let snapshot = self.r.server.namespace.snapshot();
            let request = self.own_request(OpenMode::Open, None, rights);
            match self.vfs.open(&self.r.ctx(), request).wait().await {
                Ok(o) if o.node.id() == found.opened.node.id() => found.opened.path = o.path,
                // It has been moved away or deleted by now.
                Ok(_) | Err(VfsError::NotFound | VfsError::PathNotFound) => return Err(Refusal::Again),
                Err(e) => {
                    self.undo(&found).await;
                    return Err(Refusal::Status(status::of_vfs(e)));
                }
            }
            match self.join(&found, snapshot, slot) {
                Err(Refusal::Again) => self.lost(attempt).await,
                Err(e) => {
                    self.undo(&found).await;
                    return Err(e);
                }
                Ok(open) => return Ok(Done { open, found }),
            }
        }
        // A retry of this CREATE would find its own file.
        self.undo(&found).await;
        Err(Refusal::Status(NtStatus::SHARING_VIOLATION))
    }

    /// An attempt lost the race against a change of names: backs off, and later blocks changes of names.
    async fn lost(&self, attempt: usize) {
        let (namespace, share) = (&self.r.server.namespace, self.share);
        if self.hold.lock().is_some() {
            return;
        }
        if attempt < PATIENCE {
            namespace.settled(share).await;
        } else {
            let hold = namespace.hold(share).await;
            *self.hold.lock() = Some(hold);
        }
    }

    /// Names may change again.
    fn release(&self) {
        *self.hold.lock() = None;
    }

    /// Removes the file or stream that this CREATE has created and cannot open: a CREATE that fails leaves nothing
    /// behind. It stays if another open has joined it by now.
    pub(super) async fn undo(&self, found: &Found) {
        self.release();
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
    pub(super) async fn give_up(loose: UnattachedOpen, found: &Found) {
        let open = loose.get();
        if let Some(f) = open.file() {
            match found.opened.created {
                true => f.file.delete_if_alone(open.persistent, found.made_file),
                false => f.file.set_delete_on_close(open.persistent, false),
            }
        }
        loose.close().await;
    }
}
