//! FSCTL_VALIDATE_NEGOTIATE_INFO (MS-SMB2 3.3.5.15.12) and FSCTL_QUERY_NETWORK_INTERFACE_INFO (3.3.5.15.11).

use std::net::SocketAddr;

use smb_wire::NtStatus;
use smb_wire::ioctl::{
    InterfaceCapability, NetworkInterface, ValidateNegotiateRequest, ValidateNegotiateResponse,
    put_interfaces,
};
use smb_wire::msg::{Capabilities, Dialect, IoctlRequest, IoctlResponse, SecurityMode};

use super::Output;
use crate::request::{ConnectionFacts, Reply, Request};

/// The dialects that exist.
const DIALECTS: [u16; 5] = [0x0202, 0x0210, 0x0300, 0x0302, 0x0311];

/// Returns the negotiated values, for the client to compare. If the values that the client says it sent differ from
/// those received, the negotiation was tampered with: the connection ends without a reply.
pub(super) fn validate_negotiate(r: &Request, q: &IoctlRequest<'_>) -> Reply {
    let config = &r.server.config;
    let agreed = ValidateNegotiateRequest::decode(q.input)
        .is_ok_and(|v| agrees(&r.facts, &v, config.dialect_min, config.dialect_max));
    if !agreed || (q.max_output_response as usize) < ValidateNegotiateResponse::LEN {
        let why = "the negotiation that the client reports differs from the one that took place";
        return Reply::error(NtStatus::ACCESS_DENIED).with(|extra| extra.drop_connection = Some(why));
    }
    let mut output = Vec::new();
    ValidateNegotiateResponse {
        capabilities: Capabilities::from_bits_retain(r.facts.server_capabilities),
        guid: config.guid,
        security_mode: SecurityMode::from_bits_retain(r.facts.server_security_mode),
        dialect: Dialect(r.facts.dialect),
    }
    .encode(&mut output);
    Reply::ok(&IoctlResponse {
        ctl_code: q.ctl_code,
        file_id: q.file_id,
        output: &output,
        ..Default::default()
    })
}

/// Whether the values that the client says it sent are those that were received.
fn agrees(facts: &ConnectionFacts, v: &ValidateNegotiateRequest<'_>, min: u16, max: u16) -> bool {
    // MS-SMB2 3.3.5.15.12: 3.1.1 validates by its preauthentication hash; its clients never send this FSCTL.
    if facts.dialect == 0x0311 {
        return false;
    }
    let best =
        v.dialects.iter().map(|d| d.0).filter(|d| DIALECTS.contains(d) && (min..=max).contains(d)).max();
    best == Some(facts.dialect)
        && v.guid == facts.client_guid
        && v.capabilities.bits() == facts.client_capabilities
        && v.security_mode.bits() == facts.client_security_mode
}

/// The server's interfaces, for multichannel.
pub(super) fn interfaces(r: &Request, q: &IoctlRequest<'_>) -> Result<Output, NtStatus> {
    // MS-SMB2 3.3.5.15.11: the request must name no open.
    if !q.file_id.is_none() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // The FSCTL exists since SMB 3.0.
    if r.facts.dialect < 0x0300 {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    let list: Vec<NetworkInterface> = r
        .server
        .config
        .interfaces
        .list(r.facts.local)
        .into_iter()
        .map(|i| {
            let mut capability = InterfaceCapability::empty();
            capability.set(InterfaceCapability::RSS_CAPABLE, i.rss);
            capability.set(InterfaceCapability::RDMA_CAPABLE, i.rdma);
            NetworkInterface {
                if_index: i.index,
                capability,
                link_speed_bits_per_second: i.bits_per_second,
                address: Some(SocketAddr::new(i.address, 0)),
            }
        })
        .collect();
    let mut bytes = Vec::new();
    put_interfaces(&mut bytes, &list);
    Output::whole(bytes, q.max_output_response as usize)
}
