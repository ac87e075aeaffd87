//! The parts of a CREATE that concern other opens and later requests: caching rights, durability, replays, application
//! instances (MS-SMB2 3.3.5.9, "Oplock Acquisition" and 3.3.5.9.6 to 3.3.5.9.13).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smb_wire::context::create::name;
use smb_wire::context::{CreateContexts, DurableFlags, DurableResponseV2, Lease};
use smb_wire::fscc::PosixCreateResponse;
use smb_wire::msg::{
    Capabilities, CreateAction, CreateOptions, CreateRequest, CreateResponse, LeaseKey, LeaseState,
    OplockLevel,
};
use smb_wire::{AccessMask, Decode, HEADER_LEN, HeaderFlags, NtStatus};
use vfs::{FileKey, Kind, Stat};

use super::Plan;
use super::contexts::{self, DurableAnswer, Facts, RequestedContexts};
use crate::access;
use crate::commands::metadata::{basic, posix_created};
use crate::durable::{DURABLE_TIMEOUT, Durability, TIMEOUT_DEFAULT, TIMEOUT_MAX};
use crate::files::Refusal;
use crate::files::caching::{
    ACKNOWLEDGE_PERSISTENT_LEASE, ACKNOWLEDGE_PERSISTENT_OPLOCK, CachingRequest, HolderId, LeaseId,
    LeaseRequest, LeaseVersion, level_of,
};
use crate::open::{Created, FileOpen, Open, Owner};
use crate::replay::{CreateLookup, ReservedCreate};
use crate::request::{Reply, Request};

/// The oplock or lease that a request asks for.
///
/// # Errors
/// INVALID_PARAMETER for a lease of a version that the dialect does not have.
pub(super) fn caching_request(
    r: &Request,
    q: &CreateRequest<'_>,
    lease: Option<&Lease>,
) -> Result<CachingRequest, NtStatus> {
    let level = q.oplock_level;
    if level != OplockLevel::LEASE {
        return Ok(if level == OplockLevel::NONE {
            CachingRequest::Nothing
        } else {
            CachingRequest::Oplock(level)
        });
    }
    let Some(lease) = lease.filter(|_| r.facts.dialect >= 0x0210) else { return Ok(CachingRequest::Nothing) };
    let version = match lease.v2 {
        None => LeaseVersion::V1,
        Some(_) if r.facts.dialect < 0x0300 => return Err(NtStatus::INVALID_PARAMETER),
        Some(v2) => {
            use smb_wire::context::LeaseFlags;
            let has_parent = lease.flags.contains(LeaseFlags::PARENT_LEASE_KEY_SET);
            LeaseVersion::V2 { parent: has_parent.then_some(v2.parent_lease_key), epoch: v2.epoch }
        }
    };
    let id = LeaseId { client: r.facts.client_guid, key: lease.key };
    Ok(CachingRequest::Lease(LeaseRequest { id, state: lease.state, version }))
}

/// The lease on its directory that an open names.
pub(super) fn parent_lease(caching_request: CachingRequest) -> Option<LeaseKey> {
    match caching_request {
        CachingRequest::Lease(LeaseRequest { version: LeaseVersion::V2 { parent, .. }, .. }) => parent,
        _ => None,
    }
}

/// Whether a CREATE has a CreateGuid by which the client may replay it.
pub(crate) fn has_create_guid(r: &Request) -> bool {
    let named = |q: CreateRequest<'_>| q.contexts.raw().any(|c| c.is_ok_and(|c| c.name == name::DH2_Q));
    CreateRequest::decode(&r.message).is_ok_and(named)
}

/// The result of checking whether a CREATE with a CreateGuid is a replay.
pub(super) enum ReplayCheck {
    /// It was carried out before, and created this open.
    Completed(Arc<Open>),
    /// It was carried out before. Its client was disconnected, and the replay reconnects the client to this open.
    TakenOver(Arc<Open>),
    New(Option<ReservedCreate>),
}

impl Plan<'_> {
    /// The parameters that replays are compared with.
    pub(super) fn created(&self, action: CreateAction) -> Created {
        Created {
            client: self.r.facts.client_guid,
            create_guid: self.requested.durable_v2.map(|d| d.create_guid),
            app_instance: self.requested.app_instance,
            desired_access: self.q.desired_access.bits(),
            share_access: self.q.share_access.bits(),
            options: self.options().bits(),
            action,
            user: Some(self.r.session.user.sid),
        }
    }

    /// The effective CreateOptions: on a continuously available share every write is durable before it is answered
    /// (MS-SMB2 3.3.5.9).
    pub(super) fn options(&self) -> CreateOptions {
        let persistent = Capabilities::PERSISTENT_HANDLES.bits();
        let through = self.share.continuous && self.r.facts.server_capabilities & persistent != 0;
        self.q.create_options | if through { CreateOptions::WRITE_THROUGH } else { CreateOptions::empty() }
    }

    /// The oplock or lease to request on the file that was found. A directory has only leases of version 2, without
    /// write caching, if they were negotiated (MS-SMB2 3.3.5.9.8, 3.3.5.9.11; MS-FSA 2.1.5.18).
    pub(super) fn caching_request_for(&self, directory: bool) -> CachingRequest {
        let negotiated = self.r.facts.server_capabilities & Capabilities::DIRECTORY_LEASING.bits() != 0;
        match self.caching_request {
            CachingRequest::Lease(lease) if directory => match lease.version {
                LeaseVersion::V2 { .. } if negotiated => CachingRequest::Lease(LeaseRequest {
                    state: lease.state - LeaseState::WRITE_CACHING,
                    ..lease
                }),
                _ => CachingRequest::Nothing,
            },
            caching_request => caching_request,
        }
    }

    pub(super) fn wants_persistent(&self) -> bool {
        let persistent = Capabilities::PERSISTENT_HANDLES.bits();
        self.share.continuous
            && self.r.facts.server_capabilities & persistent != 0
            && self.requested.durable_v2.is_some_and(|d| d.flags.contains(DurableFlags::PERSISTENT))
    }

    /// How long the client may take to acknowledge a break: longer for a persistent open (MS-SMB2 3.3.4.6, 3.3.4.7).
    pub(super) fn acknowledge_timeout(&self) -> Option<Duration> {
        let lease = matches!(self.caching_request, CachingRequest::Lease(_));
        self.wants_persistent().then_some(if lease {
            ACKNOWLEDGE_PERSISTENT_LEASE
        } else {
            ACKNOWLEDGE_PERSISTENT_OPLOCK
        })
    }

    /// MS-SMB2 3.3.5.9: a replayed request is answered with the open that it created.
    pub(super) async fn find_replay(&self) -> Result<ReplayCheck, NtStatus> {
        let Some(durable) = self.requested.durable_v2 else { return Ok(ReplayCheck::New(None)) };
        let is_replay = self.r.header.flags.contains(HeaderFlags::REPLAY) && self.r.facts.dialect >= 0x0300;
        if is_replay
            && self.wants_persistent()
            && let Some(open) = self.r.server.find_persistent(durable.create_guid)
        {
            let taken = self.take_over(&open).await;
            self.share.count_reopen(Durability::Persistent, taken.is_ok());
            return taken.map(|()| ReplayCheck::TakenOver(open));
        }
        match self.r.server.reserve_create(self.r.facts.client_guid, durable.create_guid) {
            CreateLookup::New(reserved) => Ok(ReplayCheck::New(Some(reserved))),
            CreateLookup::Running if is_replay => Err(NtStatus::FILE_NOT_AVAILABLE),
            CreateLookup::Running => Err(NtStatus::DUPLICATE_OBJECTID),
            // MS-SMB2 3.3.5.9.10.
            CreateLookup::Completed(_) if !is_replay => Err(NtStatus::DUPLICATE_OBJECTID),
            CreateLookup::Completed(open) => self.check_replay(&open).map(|()| ReplayCheck::Completed(open)),
        }
    }

    /// MS-SMB2 3.3.5.9: a replayed CREATE finds the persistent open of a disconnected client, for example after the
    /// server's restart, and takes it over.
    async fn take_over(&self, open: &Arc<Open>) -> Result<(), NtStatus> {
        let here = open.file().is_some_and(|f| f.file.is_of_share(open.persistent, self.share));
        if open.created.user != Some(self.r.session.user.sid) || !here {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let asked = self.created(open.created.action);
        let facts = |c: &Created| (c.options, c.desired_access, c.share_access);
        if facts(&asked) != facts(&open.created) {
            return Err(NtStatus::CONTEXT_MISMATCH);
        }
        let owner = Owner { session: Arc::clone(&self.r.session), tree: Arc::clone(&self.r.tree) };
        if !open.reconnect(owner, self.r.server.opens.number()) {
            return Err(NtStatus::FILE_NOT_AVAILABLE);
        }
        if !self.r.session.add_open(open.persistent, &self.r.tree) {
            self.r.server.disconnect_or_close(open).await;
            return Err(NtStatus::FILE_CLOSED);
        }
        // The CREATE that created it may still be waiting for its record to be stored.
        if let Err(e) = self.r.server.store_open(open).await {
            if let Some(open) = self.r.server.release(open) {
                open.close().await;
            }
            return Err(e);
        }
        Ok(())
    }

    /// The answer to a client that has taken an open over, and the break that it missed.
    pub(super) async fn answer_taken_over(&self, open: &Arc<Open>) -> Result<Reply, NtStatus> {
        let reply = self.answer_replay(open).await;
        // It may have been closed meanwhile: by an administrator, or the end of the session.
        if !open.is_of_session(&self.r.session) {
            return Err(NtStatus::FILE_CLOSED);
        }
        if reply.is_err() {
            // The reconnect failed: the open is disconnected as before.
            self.r.session.remove_open(open.persistent);
            self.r.server.disconnect_or_close(open).await;
        }
        Ok(reply?.with_notice(self.r.server.missed_break(open)))
    }

    fn check_replay(&self, open: &Open) -> Result<(), NtStatus> {
        if open.created.user != Some(self.r.session.user.sid) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let held = match open.file().and_then(|f| f.holder) {
            Some(HolderId::Lease(id)) => Some(id),
            _ => None,
        };
        let directory = open.file().is_some_and(|f| f.node.kind() == Kind::Directory);
        let asked = if let CachingRequest::Lease(l) = self.caching_request_for(directory) {
            Some(l.id)
        } else {
            None
        };
        if held != asked {
            return Err(NtStatus::ACCESS_DENIED);
        }
        if !open.is_of_session(&self.r.session) {
            return Err(NtStatus::DUPLICATE_OBJECTID);
        }
        let persistent = open.durable.lock().durability == Durability::Persistent;
        let asks = self.requested.durable_v2.is_some_and(|d| d.flags.contains(DurableFlags::PERSISTENT));
        if persistent && !asks { Err(NtStatus::INVALID_PARAMETER) } else { Ok(()) }
    }

    /// The answer to a CREATE that was carried out before.
    pub(super) async fn answer_replay(&self, open: &Arc<Open>) -> Result<Reply, NtStatus> {
        let f = open.file().ok_or(NtStatus::INVALID_PARAMETER)?;
        let stat = f.stat(&self.r.ctx(), &self.r.server.env).await.map_err(crate::status::of_vfs)?;
        // The response has the oplock level of this request, not the granted one. A lease context has the open's
        // current lease state.
        let level = self.q.oplock_level;
        let durable = matches!(level, OplockLevel::BATCH | OplockLevel::LEASE)
            || open.durable.lock().durability == Durability::Persistent;
        let posix = posix_now(self.r, &self.requested, f, &stat).await?;
        let reply = answer(open, &stat, &self.requested, None, open.created.action, durable, posix);
        Ok(if level == OplockLevel::LEASE { reply } else { with_level(reply, level) })
    }

    /// MS-SMB2 3.3.5.9.13: an application that was moved to another machine takes its files from the old one.
    pub(super) async fn close_opens_of_app_instance(&self) -> Result<(), NtStatus> {
        let Some(instance) = self.requested.app_instance else { return Ok(()) };
        for open in self.r.server.opens.find_by_app_instance(instance.id) {
            let Some(old) = open.created.app_instance else { continue };
            let Some(f) = open.file() else { continue };
            let same_file = f.file.is_known_as(open.persistent, self.share, &self.path);
            if !same_file || open.created.client == self.r.facts.client_guid {
                continue;
            }
            let refused = match (old.version, instance.version) {
                (Some(had), Some(new)) => self.r.facts.dialect == 0x0311 && had >= new,
                (Some(_), None) => true,
                (None, _) => false,
            };
            if refused {
                return Err(NtStatus::FILE_FORCED_CLOSED);
            }
            let security = access::descriptor_now(self.r, &f.node).await?;
            let maximal = access::maximal(&self.r.session.user, security.as_deref());
            if maximal.contains(AccessMask::GENERIC_READ.map_generic())
                && let Some(open) = self.r.server.release(&open)
            {
                open.close().await;
            }
        }
        Ok(())
    }

    /// MS-SMB2 3.3.5.9 <301>: a file that a persistent open of an absent client has open is not available, unless that
    /// client caches the handle, which a break can end.
    pub(super) fn check_disconnected_opens(&self, id: FileKey) -> Result<(), Refusal> {
        let Some(file) = self.r.server.files.find(id) else { return Ok(()) };
        for open in file.opens().into_iter().filter_map(|o| self.r.server.opens.find(o)) {
            let absent = open.is_disconnected() && open.durable.lock().durability == Durability::Persistent;
            let held = open.file().and_then(|f| f.file.held(f.holder?));
            let caches = held.is_some_and(|h| h.state.contains(LeaseState::HANDLE_CACHING));
            if absent && !caches {
                return Err(Refusal::Status(NtStatus::FILE_NOT_AVAILABLE));
            }
        }
        Ok(())
    }

    /// Makes an open durable, as asked (MS-SMB2 3.3.5.9.6, 3.3.5.9.10).
    pub(super) fn make_durable(&self, open: &Open) {
        let Some(f) = open.file() else { return };
        let is_directory = f.node.kind() == Kind::Directory;
        let held = f.holder.and_then(|id| f.file.held(id));
        let caches_handle =
            !is_directory && held.is_some_and(|h| h.state.contains(LeaseState::HANDLE_CACHING));
        let mut durable = open.durable.lock();
        if let Some(asked) = self.requested.durable_v2 {
            durable.timeout = match Duration::from_millis(asked.timeout_ms.into()) {
                Duration::ZERO => TIMEOUT_DEFAULT,
                asked => asked.min(TIMEOUT_MAX),
            };
            if self.wants_persistent() {
                durable.durability = Durability::Persistent;
            } else if caches_handle {
                durable.durability = Durability::Durable;
            }
            let works = AccessMask::READ_DATA
                | AccessMask::EXECUTE
                | AccessMask::WRITE_DATA
                | AccessMask::APPEND_DATA
                | AccessMask::DELETE;
            let granted = AccessMask::from_bits_retain(open.access);
            let replayable =
                durable.durability == Durability::Persistent || (!is_directory && granted.intersects(works));
            open.replayable.store(replayable, Ordering::Relaxed);
        } else if self.requested.durable && caches_handle {
            durable.durability = Durability::Durable;
            durable.timeout = DURABLE_TIMEOUT;
        }
        open.counter.set_durability(durable.durability);
    }
}

/// The POSIX context of the response for a file that was opened before.
pub(super) async fn posix_now(
    r: &Request,
    requested: &RequestedContexts,
    f: &FileOpen,
    stat: &Stat,
) -> Result<Option<PosixCreateResponse>, NtStatus> {
    if requested.posix.is_none() {
        return Ok(None);
    }
    let security = access::descriptor_now(r, &f.node).await?;
    Ok(Some(posix_created(&r.session.user, stat, security.as_deref())))
}

/// The reply of a CREATE that resulted in `open`. `durable` says whether the reply has a durable handle's context.
pub(super) fn answer(
    open: &Open,
    stat: &Stat,
    requested: &RequestedContexts,
    maximal: Option<AccessMask>,
    action: CreateAction,
    durable: bool,
    posix: Option<PosixCreateResponse>,
) -> Reply {
    let b = basic(stat);
    let held = open.file().and_then(|f| f.holder.and_then(|id| Some((id, f.file.held(id)?))));
    let (oplock_level, lease) = match held {
        Some((HolderId::Lease(id), held)) => (OplockLevel::LEASE, Some((id, held))),
        Some((HolderId::Oplock(_), held)) => (level_of(held.state), None),
        None => (OplockLevel::NONE, None),
    };
    let facts = Facts {
        maximal,
        written: b.last_write_time,
        id: stat.id,
        lease,
        durable: if durable { durable_answer(open, requested) } else { None },
        posix,
        mac_listings: requested.aapl.is_some()
            && open.owner().is_some_and(|o| o.tree.mac_listings.load(Ordering::Relaxed)),
    };
    let contexts = contexts::answer(requested, &facts);
    let body = CreateResponse {
        oplock_level,
        create_action: action,
        creation_time: b.creation_time,
        last_access_time: b.last_access_time,
        last_write_time: b.last_write_time,
        change_time: b.change_time,
        allocation_size: stat.allocation,
        end_of_file: stat.size,
        file_attributes: b.file_attributes,
        file_id: open.id(),
        contexts: CreateContexts::from_bytes(contexts.as_contexts().as_bytes()),
        ..CreateResponse::default()
    };
    Reply::ok(&body).with(|extra| extra.file_id = Some(open.id()))
}

/// A CREATE response with another oplock level.
fn with_level(mut reply: Reply, level: OplockLevel) -> Reply {
    reply.message[HEADER_LEN + 2] = level.0;
    reply
}

fn durable_answer(open: &Open, requested: &RequestedContexts) -> Option<DurableAnswer> {
    let durable = *open.durable.lock();
    if durable.durability == Durability::No {
        return None;
    }
    if requested.durable_v2.is_none() {
        return requested.durable.then_some(DurableAnswer::V1);
    }
    let mut flags = DurableFlags::empty();
    flags.set(DurableFlags::PERSISTENT, durable.durability == Durability::Persistent);
    Some(DurableAnswer::V2(DurableResponseV2 { timeout_ms: durable.timeout.as_millis() as u32, flags }))
}
