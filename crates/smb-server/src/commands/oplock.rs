//! OPLOCK_BREAK acknowledgments (MS-SMB2 3.3.5.22). No oplock or lease is ever granted (see `files`), so none is being
//! broken, and every acknowledgment is out of place.

use smb_wire::msg::{LeaseBreakAcknowledgment, OplockBreak, OplockLevel, is_lease_break};
use smb_wire::{Decode, NtStatus};

use crate::request::{Reply, Request};

/// Handles an OPLOCK_BREAK.
pub(crate) async fn handle(r: Request) -> Reply {
    Reply::error(run(&r))
}

fn run(r: &Request) -> NtStatus {
    let Ok(is_lease) = is_lease_break(&r.message) else { return NtStatus::INVALID_PARAMETER };
    if is_lease {
        // MS-SMB2 3.3.5.22.2: no lease table of this client.
        return match LeaseBreakAcknowledgment::decode(&r.message) {
            Ok(_) => NtStatus::OBJECT_NAME_NOT_FOUND,
            Err(_) => NtStatus::INVALID_PARAMETER,
        };
    }
    let Ok(q) = OplockBreak::decode(&r.message) else { return NtStatus::INVALID_PARAMETER };
    if let Err(status) = r.open(q.file_id) {
        return status;
    }
    // MS-SMB2 3.3.5.22.1: a lease is not acknowledged this way, and the state is not "breaking".
    if q.oplock_level == OplockLevel::LEASE {
        NtStatus::INVALID_PARAMETER
    } else {
        NtStatus::INVALID_OPLOCK_PROTOCOL
    }
}
