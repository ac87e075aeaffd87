//! IOCTL (MS-SMB2 3.3.5.15).

use smb_wire::NtStatus;

use crate::request::{Reply, Request};

/// Handles an IOCTL.
pub(crate) async fn handle(_r: Request) -> Reply {
    Reply::error(NtStatus::NOT_SUPPORTED)
}
