//! CHANGE_NOTIFY (MS-SMB2 3.3.5.19): not there yet. A server whose object store does not support it says so, and
//! clients poll.

use smb_wire::msg::ChangeNotifyRequest;
use smb_wire::{AccessMask, Decode, NtStatus};
use vfs::Kind;

use crate::request::{Reply, Request};

/// Handles a CHANGE_NOTIFY.
pub(crate) async fn handle(r: Request) -> Reply {
    Reply::error(run(&r))
}

fn run(r: &Request) -> NtStatus {
    let Ok(q) = ChangeNotifyRequest::decode(&r.message) else { return NtStatus::INVALID_PARAMETER };
    if q.output_buffer_length > r.facts.max_transact() {
        return NtStatus::INVALID_PARAMETER;
    }
    let open = match r.open(q.file_id) {
        Ok(open) => open,
        Err(status) => return status,
    };
    match open.file() {
        Some(f) if f.node.kind() == Kind::Directory => {
            // MS-SMB2 3.3.5.19: the open must be allowed to list the directory.
            match AccessMask::from_bits_retain(open.access).contains(AccessMask::READ_DATA) {
                true => NtStatus::NOT_SUPPORTED,
                false => NtStatus::ACCESS_DENIED,
            }
        }
        _ => NtStatus::INVALID_PARAMETER,
    }
}
