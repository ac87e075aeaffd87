//! LOCK (MS-SMB2 3.3.5.14).
//!
//! A request that was carried out already ([`crate::open::LockSequences`]) is answered with success again.

use std::pin::pin;

use futures_util::future::{Either, select};
use smb_wire::msg::{Capabilities, LockElement, LockFlags, LockRequest, LockResponse};
use smb_wire::{AccessMask, Decode, NtStatus};
use vfs::Kind;

use crate::durable::Durability;
use crate::files::LockWait;
use crate::files::locks::{LockRange, LockRefusal};
use crate::open::{FileOpen, Open};
use crate::request::{Reply, Request};

/// STATUS_INVALID_LOCK_RANGE (MS-ERREF 2.3): the range ends beyond 2^64.
const INVALID_LOCK_RANGE: NtStatus = NtStatus(0xC000_01A1);

/// Locks in one request at most: they are taken in one atomic step.
const ELEMENTS_MAX: usize = 1024;

/// Handles a LOCK.
pub(crate) async fn handle(r: Request) -> Reply {
    run(&r).await.into()
}

async fn run(r: &Request) -> Result<Reply, NtStatus> {
    let q = LockRequest::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let open = r.open(q.file_id)?;
    let f = open.file().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    if f.node.kind() == Kind::Directory {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // MS-FSA 2.1.5.7: an open that neither reads nor writes has nothing to lock.
    if !AccessMask::from_bits_retain(open.access).intersects(AccessMask::READ_DATA | AccessMask::WRITE_DATA) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let verifies = verifies_sequences(r, &open);
    if verifies && is_repeated(r, &open, q.lock_sequence).await? {
        return Ok(Reply::ok(&LockResponse {}));
    }
    let elements: Vec<LockElement> = q.locks.iter().collect();
    if elements.len() > ELEMENTS_MAX {
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    }
    let first = elements.first().ok_or(NtStatus::INVALID_PARAMETER)?;
    // MS-SMB2 3.3.5.14: the first element decides whether the request locks or unlocks.
    let number = verifies.then_some(q.lock_sequence);
    if first.flags.contains(LockFlags::UNLOCK) {
        let unlocked = unlock(&open, f, &elements);
        store(r, &open, number.filter(|_| unlocked.is_ok()), || {}).await?;
        unlocked?;
    } else {
        let taken = lock(r, &open, f, &elements).await?;
        let undo = || {
            taken.iter().for_each(|(range, x)| f.stream.undo_lock(open.persistent, *range, *x));
            number.into_iter().for_each(|n| open.lock_sequences.lock().forget(n));
        };
        store(r, &open, number, undo).await?;
    }
    Ok(Reply::ok(&LockResponse {}))
}

/// Whether a request was carried out already. The state of the first one may not be stored yet: waits for it, and
/// stores it.
async fn is_repeated(r: &Request, open: &Open, number: u32) -> Result<bool, NtStatus> {
    let _one = open.locking.lock().await;
    if !open.lock_sequences.lock().is_repeated(number) {
        return Ok(false);
    }
    r.server.store_open(open).await?;
    Ok(true)
}

/// Records that a request was carried out, and stores the state of the open. If storing fails, the request fails. Locks
/// that it has taken are released, and a resent request is carried out. Ranges that it has unlocked stay unlocked, for
/// another open may have locked them since; such a request stays recorded, and a resent one only stores the state.
async fn store(r: &Request, open: &Open, number: Option<u32>, undo: impl FnOnce()) -> Result<(), NtStatus> {
    let _one = open.locking.lock().await;
    if let Some(number) = number {
        open.lock_sequences.lock().note(number);
    }
    let stored = r.server.store_open(open).await;
    if stored.is_err() {
        undo();
        // The failed record may have reached stable storage in part.
        let _ = r.server.store_open(open).await;
    }
    stored
}

/// A lock that a request has taken, and whether it is exclusive.
type Taken = (LockRange, bool);

/// MS-SMB2 3.3.5.14: whether a client may send LOCK requests again.
fn verifies_sequences(r: &Request, open: &Open) -> bool {
    let multichannel = Capabilities::MULTI_CHANNEL.bits();
    r.facts.dialect != 0x0202
        && (open.durable.lock().durability != Durability::No
            || (r.facts.dialect >= 0x0300 && r.facts.server_capabilities & multichannel != 0))
}

/// MS-SMB2 3.3.5.14.1: ranges unlocked before an element fails stay unlocked.
fn unlock(open: &Open, f: &FileOpen, elements: &[LockElement]) -> Result<(), NtStatus> {
    for e in elements {
        if e.flags != LockFlags::UNLOCK {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let range = LockRange::new(e.offset, e.length).ok_or(INVALID_LOCK_RANGE)?;
        if !f.stream.unlock(open.persistent, range) {
            return Err(NtStatus::RANGE_NOT_LOCKED);
        }
    }
    Ok(())
}

/// MS-SMB2 3.3.5.14.2: all or none; only a single lock may wait.
async fn lock(
    r: &Request,
    open: &Open,
    f: &FileOpen,
    elements: &[LockElement],
) -> Result<Vec<Taken>, NtStatus> {
    let mut wanted = Vec::with_capacity(elements.len());
    for e in elements {
        let at_once = e.flags.contains(LockFlags::FAIL_IMMEDIATELY);
        let exclusive = match e.flags & !LockFlags::FAIL_IMMEDIATELY {
            LockFlags::SHARED_LOCK => false,
            LockFlags::EXCLUSIVE_LOCK => true,
            _ => return Err(NtStatus::INVALID_PARAMETER),
        };
        if elements.len() > 1 && !at_once {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let range = LockRange::new(e.offset, e.length).ok_or(INVALID_LOCK_RANGE)?;
        wanted.push((range, exclusive, at_once));
    }
    // MS-FSA 2.1.5.8: breaks the caching of other opens.
    f.breaks_data_caching(&r.server);
    let owner = open.persistent;
    if let [(range, exclusive, false)] = wanted[..] {
        if let Some(wait) = f.stream.lock_or_wait(&f.file, owner, range, exclusive).map_err(refused)? {
            wait_for(r, wait).await?;
        }
        return Ok(vec![(range, exclusive)]);
    }
    for (i, (range, exclusive, _)) in wanted.iter().enumerate() {
        if let Err(e) = f.stream.try_lock(&f.file, owner, *range, *exclusive) {
            for (range, exclusive, _) in &wanted[..i] {
                f.stream.undo_lock(owner, *range, *exclusive);
            }
            return Err(refused(e));
        }
    }
    Ok(wanted.into_iter().map(|(range, exclusive, _)| (range, exclusive)).collect())
}

fn refused(e: LockRefusal) -> NtStatus {
    match e {
        LockRefusal::Conflict => NtStatus::LOCK_NOT_GRANTED,
        LockRefusal::TooMany => NtStatus::INSUFFICIENT_RESOURCES,
        LockRefusal::Closed => NtStatus::FILE_CLOSED,
    }
}

/// Waits for a lock that another open holds: the client gets an interim response (MS-SMB2 3.3.4.2), and may cancel.
async fn wait_for(r: &Request, mut wait: LockWait) -> Result<(), NtStatus> {
    r.pending.announce();
    let first = {
        let (granted, cancelled) = (pin!(wait.granted()), pin!(r.cancel.cancelled()));
        match select(granted, cancelled).await {
            Either::Left((granted, _)) => Some(granted),
            Either::Right(_) => None,
        }
    };
    let granted = match first {
        Some(granted) => granted,
        None if wait.withdraw() => return Err(NtStatus::CANCELLED),
        // The lock was granted at the same time: the CANCEL is too late.
        None => wait.granted().await,
    };
    // MS-SMB2 3.3.5.14.2: the open was closed meanwhile.
    if granted { Ok(()) } else { Err(NtStatus::RANGE_NOT_LOCKED) }
}
