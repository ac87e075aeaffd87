//! srvsvc (MS-SRVS). Every user with a session may list the shares, and read the name and version of the server.
//! Administrators may list sessions, opens and tree connects.

mod sessions;

use std::sync::atomic::Ordering;

use smb_wire::WireError;
use smb_wire::msg::ShareFlags;
use smb_wire::rpc::pdu::FaultStatus;
use smb_wire::rpc::srvsvc::{self, Request, ServerInfo, ShareInfo, Win32, share_type};

use super::Context;
use crate::Server;
use crate::share::Share;

/// SV_TYPE_WORKSTATION, SV_TYPE_SERVER, SV_TYPE_NT, SV_TYPE_SERVER_NT (MS-SRVS 2.2.2.7).
const SERVER_TYPE: u32 = 0x0000_9003;

/// Executes a call; returns the stub of its response.
pub(super) fn execute(c: Context<'_>) -> Result<Vec<u8>, FaultStatus> {
    let request = Request::decode(c.opnum, c.stub).map_err(|_| FaultStatus::BAD_STUB_DATA)?;
    let mut out = Vec::new();
    answer(&c, &request, &mut out).map_err(|_| FaultStatus::PROTOCOL_ERROR)?;
    if let Request::Unknown(_) = request { Err(FaultStatus::OP_RANGE_ERROR) } else { Ok(out) }
}

fn answer(c: &Context<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
    match *request {
        Request::ShareEnum { level, resume_handle, .. } => share_enum(c.server, level, resume_handle, out),
        Request::ShareGetInfo { name, level } => {
            let share = name.to_string().ok().and_then(|n| c.server.share(&n));
            let shown = share.as_ref().map(|s| info(s));
            srvsvc::put_share_get_info(out, level, shown.as_ref().ok_or(Win32::NERR_NET_NAME_NOT_FOUND))
        }
        Request::ServerGetInfo { level } => {
            let info = ServerInfo {
                name: &c.server.config.name,
                comment: "",
                version_major: super::VERSION.0,
                version_minor: super::VERSION.1,
                server_type: SERVER_TYPE,
            };
            srvsvc::put_server_get_info(out, level, &info)
        }
        Request::SessionEnum { client, user, enumeration } => {
            sessions::sessions(c, client, user, enumeration, out)
        }
        Request::FileEnum { base_path, user, enumeration } => {
            sessions::files(c, base_path, user, enumeration, out)
        }
        Request::ConnectionEnum { qualifier, enumeration } => {
            sessions::connections(c, qualifier, enumeration, out)
        }
        Request::RemoteTimeOfDay => {
            let uptime = std::time::Duration::from_nanos(c.server.env.moment().ns_since(c.server.started));
            srvsvc::put_time_of_day(out, c.server.env.unix_time(), uptime);
            Ok(())
        }
        Request::NameValidate { name, name_type, flags } => {
            let valid = match flags {
                0 => name_type.validate(&name.to_string_lossy()),
                _ => Err(Win32::INVALID_PARAMETER),
            };
            srvsvc::put_status(out, false, valid.err().unwrap_or(Win32::SUCCESS));
            Ok(())
        }
        Request::NameCanonicalize { name, room, name_type, flags } => {
            let canonical = name_type.canonicalize(&name.to_string_lossy(), room, flags);
            srvsvc::put_canonical_name(out, room, canonical.as_deref().map_err(|e| *e));
            Ok(())
        }
        // The server is not configured through this interface, not even by administrators.
        Request::Change { with_parameter } => {
            srvsvc::put_status(out, with_parameter, Win32::ACCESS_DENIED);
            Ok(())
        }
        Request::Unknown(_) => Ok(()),
    }
}

fn share_enum(
    server: &Server,
    level: u32,
    resume_handle: Option<u32>,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let shares: Vec<_> = server.all_shares().into_iter().filter(|s| !s.hidden || s.vfs().is_none()).collect();
    let list: Vec<_> = shares.iter().map(|s| info(s)).collect();
    let known = srvsvc::is_share_enum_level(level);
    let status = if known { Win32::SUCCESS } else { Win32::INVALID_LEVEL };
    let total = if known { list.len() as u32 } else { 0 };
    // All of it goes in one answer: there is nothing to resume.
    srvsvc::put_share_enum(out, level, &list, total, resume_handle.map(|_| 0), status)
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
        // The path of a share on the server is not shown.
        path: "",
        flags: flags.bits(),
        security_descriptor: None,
    }
}
