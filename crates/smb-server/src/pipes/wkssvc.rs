//! wkssvc (MS-WKST): name, domain and version of this machine.

use smb_wire::rpc::pdu::FaultStatus;
use smb_wire::rpc::wkssvc::{Request, WorkstationInfo, put_wksta_get_info};

use crate::Server;

/// Executes a call; returns the stub of its response.
pub(super) fn execute(server: &Server, opnum: u16, stub: &[u8]) -> Result<Vec<u8>, FaultStatus> {
    match Request::decode(opnum, stub).map_err(|_| FaultStatus::BAD_STUB_DATA)? {
        Request::WkstaGetInfo { level } => {
            let info = WorkstationInfo {
                computer_name: &server.config.name,
                domain: super::WORKGROUP,
                version_major: super::VERSION.0,
                version_minor: super::VERSION.1,
            };
            let mut out = Vec::new();
            put_wksta_get_info(&mut out, level, &info).map_err(|_| FaultStatus::PROTOCOL_ERROR)?;
            Ok(out)
        }
        Request::Unknown(_) => Err(FaultStatus::OP_RANGE_ERROR),
    }
}
