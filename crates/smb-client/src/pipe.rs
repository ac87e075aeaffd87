//! Remote procedure calls over named pipes of IPC$: the list of shares (MS-SRVS 3.1.4.8).

use arena::sg_to_vec;
use smb_wire::msg::FsctlCode;
use smb_wire::rpc::SyntaxId;
use smb_wire::rpc::pdu::{
    self, BindAck, ContextResult, Pdu, PduFlags, PduType, put_bind, put_request, response_stub,
};
use smb_wire::rpc::srvsvc::{OP_SHARE_ENUM, ShareEnumResponse, Win32, put_share_enum_request, share_type};
use smb_wire::{NtStatus, WireError};

use crate::{File, OpenOptions, RequestError, ShareType, Tree};

/// A share as the server lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its name.
    pub name: String,
    /// The administrator's comment.
    pub comment: String,
    /// Disk, pipe or printer.
    pub kind: ShareType,
    /// Administrative: hidden from users' listings.
    pub special: bool,
}

/// Maximum fragment length in bytes.
const FRAGMENT: u16 = 4280;
/// Maximum length of a response in bytes.
const ANSWER_MAX: usize = 16 << 20;
const CALL: u32 = 1;

/// Lists the shares with NetrShareEnum, level 1.
pub(crate) async fn shares(tree: &Tree, host: &str) -> Result<Vec<Share>, RequestError> {
    let pipe = tree.open("srvsvc", OpenOptions::write()).await?;
    let mut bind = Vec::new();
    put_bind(&mut bind, CALL, FRAGMENT, SyntaxId::SRVSVC).map_err(RequestError::Unencodable)?;
    let answer = transceive(&pipe, &bind).await?;
    let ack = Pdu::decode(&answer)?;
    let accepted = ack.pdu_type == PduType::BIND_ACK
        && BindAck::decode(ack.body)?
            .results()
            .next()
            .is_some_and(|r| r.result == ContextResult::ACCEPTED.result);
    if !accepted {
        return Err(RequestError::Status(NtStatus::NOT_SUPPORTED));
    }
    let (mut stub, mut request) = (Vec::new(), Vec::new());
    put_share_enum_request(&mut stub, &format!(r"\\{host}"), 1, None).map_err(RequestError::Unencodable)?;
    put_request(&mut request, CALL, 0, OP_SHARE_ENUM, &stub).map_err(RequestError::Unencodable)?;
    let answer = transceive(&pipe, &request).await?;
    let stub = joined(&answer)?;
    let response = ShareEnumResponse::decode(&stub)?;
    if response.status != Win32::SUCCESS {
        return Err(RequestError::Status(NtStatus::ACCESS_DENIED));
    }
    let list = response
        .shares()
        .map(|s| s.map(|s| share(s.name.to_string_lossy(), s.share_type, s.remark.to_string_lossy())));
    let list = list.collect::<Result<Vec<_>, _>>()?;
    pipe.close().await?;
    Ok(list)
}

fn share(name: String, kind: u32, comment: String) -> Share {
    // MS-SRVS 2.2.2.4: the low 16 bits are the kind.
    let shown = match kind & 0xFFFF {
        share_type::DISK => ShareType::DISK,
        share_type::PRINT => ShareType::PRINT,
        _ => ShareType::PIPE,
    };
    Share { name, comment, kind: shown, special: kind & share_type::SPECIAL != 0 }
}

/// Writes a request to the pipe and reads until the response is complete.
async fn transceive(pipe: &File, request: &[u8]) -> Result<Vec<u8>, RequestError> {
    let id = pipe.inner.id;
    let most = u32::from(FRAGMENT);
    let mut answer = pipe.tree().fsctl(FsctlCode::PIPE_TRANSCEIVE, id, request, most).await?;
    while !is_whole(&answer)? {
        let more = sg_to_vec(&pipe.submit_read(0, most).await?);
        if more.is_empty() {
            return Err(RequestError::Status(NtStatus::PIPE_BROKEN));
        }
        answer.extend_from_slice(&more);
        if answer.len() > ANSWER_MAX {
            return Err(WireError::TooLarge { what: "RPC answer", len: answer.len(), max: ANSWER_MAX }.into());
        }
    }
    Ok(answer)
}

/// Splits a response into PDUs; ignores an incomplete one at the end.
fn fragments(bytes: &[u8]) -> impl Iterator<Item = Result<Pdu<'_>, WireError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = rest.get(8..10).map(|l| usize::from(u16::from_le_bytes([l[0], l[1]])))?;
        let (one, after) = rest.split_at_checked(length.max(pdu::PDU_HEADER_LEN))?;
        rest = after;
        Some(Pdu::decode(one))
    })
}

fn is_whole(answer: &[u8]) -> Result<bool, WireError> {
    for fragment in fragments(answer) {
        if fragment?.flags.contains(PduFlags::LAST_FRAG) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Concatenates the stubs of a response's fragments.
fn joined(answer: &[u8]) -> Result<Vec<u8>, RequestError> {
    let mut stub = Vec::new();
    for fragment in fragments(answer) {
        let fragment = fragment?;
        if fragment.pdu_type != PduType::RESPONSE {
            return Err(RequestError::Status(NtStatus::NOT_SUPPORTED));
        }
        stub.extend_from_slice(response_stub(&fragment)?);
    }
    Ok(stub)
}
