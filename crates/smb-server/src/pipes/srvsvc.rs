//! srvsvc (MS-SRVS): what is shared here, and who the server is. Everybody who has a session may ask.

use std::sync::atomic::Ordering;

use smb_wire::WireError;
use smb_wire::msg::ShareFlags;
use smb_wire::rpc::pdu::FaultStatus;
use smb_wire::rpc::srvsvc::{self, Request, ServerInfo, ShareInfo, Win32, share_type};

use crate::Server;
use crate::share::Share;

/// SV_TYPE_WORKSTATION, SV_TYPE_SERVER, SV_TYPE_NT, SV_TYPE_SERVER_NT (MS-SRVS 2.2.2.7).
const SERVER_TYPE: u32 = 0x0000_9003;

/// Executes a call; its answer's stub.
pub(super) fn execute(server: &Server, opnum: u16, stub: &[u8]) -> Result<Vec<u8>, FaultStatus> {
    let request = Request::decode(opnum, stub).map_err(|_| FaultStatus::BAD_STUB_DATA)?;
    let mut out = Vec::new();
    answer(server, &request, &mut out).map_err(|_| FaultStatus::PROTOCOL_ERROR)?;
    if let Request::Unknown(_) = request { Err(FaultStatus::OP_RANGE_ERROR) } else { Ok(out) }
}

fn answer(server: &Server, request: &Request<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
    match *request {
        Request::ShareEnum { level, resume_handle, .. } => {
            let shares: Vec<_> =
                server.all_shares().into_iter().filter(|s| !s.hidden || s.vfs().is_none()).collect();
            let list: Vec<_> = shares.iter().map(|s| info(s)).collect();
            let known = srvsvc::is_share_enum_level(level);
            let status = if known { Win32::SUCCESS } else { Win32::INVALID_LEVEL };
            let total = if known { list.len() as u32 } else { 0 };
            // All of it goes in one answer: there is nothing to resume.
            srvsvc::put_share_enum(out, level, &list, total, resume_handle.map(|_| 0), status)
        }
        Request::ShareGetInfo { name, level } => {
            let share = name.to_string().ok().and_then(|n| server.share(&n));
            let shown = share.as_ref().map(|s| info(s));
            srvsvc::put_share_get_info(out, level, shown.as_ref().ok_or(Win32::NERR_NET_NAME_NOT_FOUND))
        }
        Request::ServerGetInfo { level } => {
            let info = ServerInfo {
                name: &server.config.name,
                comment: "",
                version_major: super::VERSION.0,
                version_minor: super::VERSION.1,
                server_type: SERVER_TYPE,
            };
            srvsvc::put_server_get_info(out, level, &info)
        }
        Request::Unknown(_) => Ok(()),
    }
}

fn info(s: &Share) -> ShareInfo<'_> {
    let mut flags = ShareFlags::empty();
    flags.set(ShareFlags::ENCRYPT_DATA, s.encrypt);
    ShareInfo {
        name: &s.name,
        share_type: if s.vfs().is_some() { share_type::DISK } else { share_type::IPC | share_type::SPECIAL },
        remark: &s.comment,
        max_uses: u32::MAX,
        current_uses: s.users.load(Ordering::Relaxed) as u32,
        // Where it lies on the server is nobody's business.
        path: "",
        flags: flags.bits(),
        security_descriptor: None,
    }
}
