//! OPLOCK_BREAK acknowledgements (MS-SMB2 3.3.5.22).

use std::sync::atomic::Ordering;

use smb_wire::msg::{
    LeaseBreakAcknowledgment, LeaseBreakFlags, LeaseState, OplockBreak, OplockLevel, is_lease_break,
};
use smb_wire::{Decode, NtStatus};

use crate::files::FileState;
use crate::files::caching::{AcknowledgeError, HolderId, LeaseId, level_of, state_of};
use crate::request::{Reply, Request};

/// Handles an OPLOCK_BREAK.
pub(crate) async fn handle(r: Request) -> Reply {
    let result = match is_lease_break(&r.message) {
        Ok(true) => lease(&r).await,
        Ok(false) => oplock(&r).await,
        Err(_) => Err(NtStatus::INVALID_PARAMETER),
    };
    result.into()
}

/// MS-SMB2 3.3.5.22.1.
async fn oplock(r: &Request) -> Result<Reply, NtStatus> {
    let q = OplockBreak::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let open = r.open(q.file_id)?;
    let f = open.file().ok_or(NtStatus::INVALID_OPLOCK_PROTOCOL)?;
    let holder = HolderId::Oplock(open.persistent);
    let had = f.file.held(holder).filter(|h| h.breaking).ok_or(NtStatus::INVALID_OPLOCK_PROTOCOL)?;
    let allowed = match level_of(had.state) {
        OplockLevel::BATCH => {
            matches!(q.oplock_level, OplockLevel::NONE | OplockLevel::LEVEL_II | OplockLevel::EXCLUSIVE)
        }
        _ => matches!(q.oplock_level, OplockLevel::NONE | OplockLevel::LEVEL_II),
    };
    if !allowed {
        f.file.revoke(holder);
        let is_lease = q.oplock_level == OplockLevel::LEASE;
        return Err(if is_lease { NtStatus::INVALID_PARAMETER } else { NtStatus::INVALID_OPLOCK_PROTOCOL });
    }
    let kept = match q.oplock_level {
        OplockLevel::LEVEL_II => state_of(OplockLevel::LEVEL_II),
        _ => LeaseState::empty(),
    };
    match f.file.acknowledge(holder, kept, r.server.env.moment()) {
        Ok(more) => {
            let level = if more.is_some() { OplockLevel::NONE } else { level_of(kept) };
            r.server.send_breaks(&f.file, more.as_slice());
            store_loss(r, &f.file).await;
            Ok(Reply::ok(&OplockBreak { oplock_level: level, file_id: open.id() }))
        }
        Err(AcknowledgeError::TooMuch) => {
            f.file.revoke(holder);
            Err(NtStatus::REQUEST_NOT_ACCEPTED)
        }
        Err(AcknowledgeError::NotBreaking) => Err(NtStatus::INVALID_OPLOCK_PROTOCOL),
    }
}

/// Stores the caching rights that remain after an acknowledgement. If that fails, the acknowledgement is answered with
/// success all the same: the client has lost the rights in any case. Until the next store the record has more rights
/// than the client, which is safe: after a restart the client gets the rights in the record, and no operation that
/// relies on their loss was carried out meanwhile ([`crate::Server::store_lost_caching`]).
async fn store_loss(r: &Request, file: &FileState) {
    if r.server.store_lost_caching(file).await.is_err() {
        tracing::warn!(
            "a client's loss of caching rights is not recorded: requests that wait for it fail until it is"
        );
    }
}

/// MS-SMB2 3.3.5.22.2.
async fn lease(r: &Request) -> Result<Reply, NtStatus> {
    let q = LeaseBreakAcknowledgment::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let id = LeaseId { client: r.facts.client_guid, key: q.lease_key };
    let leased = r.server.leases.find(id).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let holder = HolderId::Lease(id);
    for open in leased.file.opens_of(holder) {
        if let Some(open) = r.server.opens.find(open) {
            open.replayable.store(false, Ordering::Relaxed);
        }
    }
    match leased.file.acknowledge(holder, q.lease_state, r.server.env.moment()) {
        Ok(more) => {
            r.server.send_breaks(&leased.file, more.as_slice());
            store_loss(r, &leased.file).await;
            Ok(Reply::ok(&LeaseBreakAcknowledgment {
                flags: LeaseBreakFlags::empty(),
                lease_key: q.lease_key,
                lease_state: q.lease_state,
                lease_duration: 0,
            }))
        }
        Err(AcknowledgeError::TooMuch) => Err(NtStatus::REQUEST_NOT_ACCEPTED),
        Err(AcknowledgeError::NotBreaking) => Err(NtStatus::UNSUCCESSFUL),
    }
}
