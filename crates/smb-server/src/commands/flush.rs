//! FLUSH (MS-SMB2 3.3.5.11). A CANCEL ends the request (3.3.5.16); the backend completes the flush that it has begun.

use std::pin::pin;

use futures_util::future::{Either, select};
use smb_wire::msg::{FlushRequest, FlushResponse};
use smb_wire::{AccessMask, Decode, NtStatus};

use crate::request::{Reply, Request};
use crate::status;

/// Handles a FLUSH.
pub(crate) async fn handle(r: Request) -> Reply {
    run(&r).await.into()
}

async fn run(r: &Request) -> Result<Reply, NtStatus> {
    let q = FlushRequest::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let open = r.open(q.file_id)?;
    if let Some(f) = open.file() {
        // MS-SMB2 3.3.5.11: a file needs the right to write or append, a directory the right to add a child.
        let writes = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
        if !AccessMask::from_bits_retain(open.access).intersects(writes) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let flush = f.node.flush(&r.ctx()).wait();
        match select(pin!(flush), pin!(r.cancel.cancelled_by_client())).await {
            Either::Left((flushed, _)) => flushed.map_err(status::of_vfs)?,
            Either::Right(_) => return Err(NtStatus::CANCELLED),
        }
        f.write_time.flush();
        r.server.publish_pending_changes(&open, f);
    }
    Ok(Reply::ok(&FlushResponse {}))
}
