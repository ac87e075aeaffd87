//! CHANGE_NOTIFY (MS-SMB2 3.3.5.19, MS-FSA 2.1.5.11).

use std::pin::pin;

use futures_util::future::{Either, select};
use smb_wire::fscc::Fits;
use smb_wire::fscc::notify::{Change, ChangeList, NotifyAction};
use smb_wire::msg::{ChangeNotifyFlags, ChangeNotifyRequest, ChangeNotifyResponse};
use smb_wire::{AccessMask, Decode, NtStatus, Utf16Buf};
use vfs::Kind;

use crate::namespace::{ChangeWait, ExternalChanges, Report, Scope};
use crate::open::GateGuard;
use crate::request::{Reply, Request};

/// Handles a CHANGE_NOTIFY.
pub(crate) async fn handle(r: Request) -> Reply {
    run(&r).await.into()
}

async fn run(r: &Request) -> Result<Reply, NtStatus> {
    let q = ChangeNotifyRequest::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let open = r.open(q.file_id)?;
    if q.output_buffer_length > r.facts.max_transact() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    super::check_charge(r, q.output_buffer_length)?;
    let f = open.file().filter(|f| f.node.kind() == Kind::Directory).ok_or(NtStatus::INVALID_PARAMETER)?;
    // FILE_LIST_DIRECTORY.
    if !AccessMask::from_bits_retain(open.access).contains(AccessMask::READ_DATA) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let output_max = q.output_buffer_length as usize;
    let scope = Scope {
        filter: q.completion_filter,
        tree: q.flags.contains(ChangeNotifyFlags::WATCH_TREE),
        buffer: output_max,
    };
    let share = &f.share;
    // Begins before the request waits: after the interim response the client may change the directory at once.
    let external_watch = match share.watches.has(open.persistent) {
        true => None,
        false => ExternalChanges::watch(&r.server, share, &f.file.path_of(open.persistent), scope.tree).await,
    };
    let mut waiting = {
        // A CLOSE waits for this guard and then ends the watch; after it no watch is started.
        let _gate_guard = GateGuard::new(&open).ok_or(NtStatus::FILE_CLOSED)?;
        // MS-FSA 2.1.5.11: a directory that is marked for deletion is not watched.
        if f.file.is_delete_pending(open.persistent) {
            return Err(NtStatus::DELETE_PENDING);
        }
        share.watches.request(open.persistent, f.file.path_of(open.persistent), scope, external_watch)
    };
    match waiting.ready() {
        Some(report) => answer(r, report, output_max).await,
        // A request that is not the last of its compound cannot wait (MS-SMB2 3.3.5.2.7).
        None if r.header.next_command != 0 => Err(NtStatus::INTERNAL_ERROR),
        None => answer(r, wait_for(r, waiting).await?, output_max).await,
    }
}

/// Waits for a change: the client gets an interim response (MS-SMB2 3.3.4.2), and may cancel.
async fn wait_for(r: &Request, mut waiting: ChangeWait<'_>) -> Result<Report, NtStatus> {
    r.pending.announce();
    let first = {
        let (report, cancelled) = (pin!(waiting.report()), pin!(r.cancel.cancelled()));
        match select(report, cancelled).await {
            Either::Left((report, _)) => Some(report),
            Either::Right(_) => None,
        }
    };
    match first {
        Some(report) => Ok(report),
        None if waiting.withdraw() => Err(NtStatus::CANCELLED),
        // The watch completed at the same time: the CANCEL is too late.
        None => Ok(waiting.report().await),
    }
}

async fn answer(r: &Request, report: Report, output_max: usize) -> Result<Reply, NtStatus> {
    let all = match report {
        Report::Events(events) => list(&events, output_max),
        Report::Overflow => None,
        Report::Ended(status) => return Err(status),
    };
    Ok(match all {
        Some(bytes) => {
            let reply = Reply::ok(&ChangeNotifyResponse { buffer: &bytes });
            reply.charged(&r.server.arena, bytes.len()).await
        }
        None => Reply::with_status(NtStatus::NOTIFY_ENUM_DIR, &ChangeNotifyResponse { buffer: &[] }),
    })
}

/// FILE_NOTIFY_INFORMATION of all events; `None` when there is no room for them (MS-FSA 2.1.5.11.1).
fn list(events: &[(NotifyAction, String)], output_max: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut list = ChangeList::new(&mut bytes, output_max);
    for (action, name) in events {
        let name = Utf16Buf::from(name.as_str());
        let fits = list.push(&Change { action: *action, name: name.as_utf16() });
        if !matches!(fits, Ok(Fits::Yes)) {
            return None;
        }
    }
    Some(bytes)
}
