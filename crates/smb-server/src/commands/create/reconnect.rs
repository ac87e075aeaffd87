//! A client reconnects to a durable open (MS-SMB2 3.3.5.9.7, 3.3.5.9.12).

use std::sync::Arc;
use std::time::Duration;

use smb_wire::NtStatus;
use smb_wire::context::DurableFlags;
use smb_wire::msg::{CreateAction, CreateRequest, LeaseState, OplockLevel};
use vfs::VfsPath;

use super::contexts::{Reconnect, RequestedContexts};
use super::durable_handle;
use crate::durable::Durability;
use crate::files::caching::{HolderId, LeaseVersion, level_of};
use crate::open::{FileOpen, Open, Owner};
use crate::request::{Reply, Request};
use crate::status;

/// How long a reconnect waits for the end of the client's previous connection.
const OWNER_END_WAIT: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(5);

pub(super) async fn run(
    r: &Request,
    q: &CreateRequest<'_>,
    path: &VfsPath,
    wanted: Reconnect,
    contexts: &RequestedContexts,
) -> Result<Reply, NtStatus> {
    let open = find(r, wanted);
    let durability = open
        .as_ref()
        .map(|open| open.durable.lock().durability)
        .filter(|durability| *durability != Durability::No);
    let reopened = match open {
        Some(open) => reopen(r, q, path, wanted, contexts, open).await,
        None => Err(NtStatus::OBJECT_NAME_NOT_FOUND),
    };
    r.tree.share.count_reopen(durability.unwrap_or(named_kind(wanted)), reopened.is_ok());
    reopened
}

/// The kind of handle that a reconnect context asks for.
fn named_kind(wanted: Reconnect) -> Durability {
    match wanted {
        Reconnect::V2(q) if q.flags.contains(DurableFlags::PERSISTENT) => Durability::Persistent,
        _ => Durability::Durable,
    }
}

async fn reopen(
    r: &Request,
    q: &CreateRequest<'_>,
    path: &VfsPath,
    wanted: Reconnect,
    contexts: &RequestedContexts,
    open: Arc<Open>,
) -> Result<Reply, NtStatus> {
    const NOT_FOUND: NtStatus = NtStatus::OBJECT_NAME_NOT_FOUND;
    let f = open.file().ok_or(NOT_FOUND)?;
    wait_until_disconnected(r, &open).await;
    check(r, q, path, wanted, contexts, &open, f)?;
    if open.created.user != Some(r.session.user.sid) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let owner = Owner { session: Arc::clone(&r.session), tree: Arc::clone(&r.tree) };
    if !open.reconnect(owner, r.server.opens.number()) {
        return Err(NOT_FOUND);
    }
    if !r.session.add_open(open.persistent, &r.tree) {
        // The session has ended meanwhile: the open is disconnected as before.
        r.server.disconnect_or_close(&open).await;
        return Err(NOT_FOUND);
    }
    match answer(r, contexts, &open, f).await {
        // It may have been closed meanwhile: by an administrator, or the end of the session.
        Ok(_) if !open.is_of_session(&r.session) => Err(NOT_FOUND),
        Ok(reply) => Ok(reply.with_notice(r.server.missed_break(&open))),
        Err(s) => {
            // The reconnect failed: the open is disconnected as before.
            r.session.remove_open(open.persistent);
            r.server.disconnect_or_close(&open).await;
            Err(s)
        }
    }
}

/// The server may notice the end of the client's old connection after its new one: waits until the open has no owner,
/// for [`OWNER_END_WAIT`] at most. (Both sections refuse an open that has a session, and clients treat that as final.)
async fn wait_until_disconnected(r: &Request, open: &Open) {
    let env = &r.server.env;
    let deadline = env.moment().after(OWNER_END_WAIT);
    let is_own = open.created.user == Some(r.session.user.sid) && !open.is_of_session(&r.session);
    while is_own && open.survives_disconnect() && open.owner().is_some() && env.moment() < deadline {
        env.sleep(POLL).await;
    }
}

async fn answer(
    r: &Request,
    contexts: &RequestedContexts,
    open: &Open,
    f: &FileOpen,
) -> Result<Reply, NtStatus> {
    let stat = f.stat(&r.ctx(), &r.server.env).await.map_err(status::of_vfs)?;
    let posix = durable_handle::posix_now(r, contexts, f, &stat).await?;
    Ok(durable_handle::answer(open, &stat, contexts, None, CreateAction::OPENED, false, posix))
}

fn find(r: &Request, wanted: Reconnect) -> Option<Arc<Open>> {
    match wanted {
        Reconnect::V1(id) => r.server.opens.find(id.persistent),
        Reconnect::V2(q) => r.server.opens.find(q.file_id.persistent).or_else(|| {
            let persistent = q.flags.contains(DurableFlags::PERSISTENT) && r.tree.share.continuous;
            persistent.then(|| r.server.find_persistent(q.create_guid))?
        }),
    }
}

/// The conditions of both sections, in their order.
fn check(
    r: &Request,
    q: &CreateRequest<'_>,
    path: &VfsPath,
    wanted: Reconnect,
    contexts: &RequestedContexts,
    open: &Open,
    f: &FileOpen,
) -> Result<(), NtStatus> {
    const NOT_FOUND: NtStatus = NtStatus::OBJECT_NAME_NOT_FOUND;
    let durability = open.durable.lock().durability;
    let lease = match f.holder {
        Some(HolderId::Lease(id)) => f.file.held(HolderId::Lease(id)).map(|held| (id, held)),
        _ => None,
    };
    if !f.file.is_of_share(open.persistent, &r.tree.share) {
        return Err(NOT_FOUND);
    }
    if lease.is_some() && open.created.client != r.facts.client_guid {
        return Err(NOT_FOUND);
    }
    if let Reconnect::V2(d) = wanted {
        let persistent = d.flags.contains(DurableFlags::PERSISTENT);
        if open.created.create_guid.unwrap_or_default() != d.create_guid
            || (durability == Durability::Persistent && !persistent)
        {
            return Err(NOT_FOUND);
        }
        if durability != Durability::Persistent && persistent {
            return Err(NtStatus::INVALID_PARAMETER);
        }
    }
    if durability == Durability::No || !open.is_disconnected() {
        return Err(NOT_FOUND);
    }
    let asked = contexts.lease.filter(|_| q.oplock_level == OplockLevel::LEASE || contexts.lease.is_some());
    match (lease, asked) {
        (None, None) => {
            let batch = f.holder.and_then(|id| f.file.held(id)).map(|h| level_of(h.state));
            if durability == Durability::Durable && batch != Some(OplockLevel::BATCH) {
                return Err(NOT_FOUND);
            }
        }
        (Some((id, held)), Some(asked)) => {
            let v2 = matches!(held.version, LeaseVersion::V2 { .. });
            if asked.key != id.key || v2 != asked.v2.is_some() {
                return Err(NOT_FOUND);
            }
            if durability == Durability::Durable && !held.state.contains(LeaseState::HANDLE_CACHING) {
                return Err(NOT_FOUND);
            }
            if !f.file.is_known_as(open.persistent, &r.tree.share, path) {
                return Err(NtStatus::INVALID_PARAMETER);
            }
        }
        _ => return Err(NOT_FOUND),
    }
    Ok(())
}
