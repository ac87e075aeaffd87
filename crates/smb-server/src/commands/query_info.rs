//! QUERY_INFO (MS-SMB2 3.3.5.20): files, file systems, security descriptors.

mod file;
mod filesystem;
mod quota;

use smb_wire::msg::{
    ErrorId, ErrorResponse, InfoType, QueryInfoRequest, QueryInfoResponse, RawErrorContext,
    SecurityInformation,
};
use smb_wire::{AccessMask, Decode, NtStatus};

use crate::access;
use crate::open::{FileOpen, Open};
use crate::request::{Reply, Request};

/// Handles a QUERY_INFO.
pub(crate) async fn handle(r: Request) -> Reply {
    run(&r).await.into()
}

/// The complete information, before it is cut to the client's buffer.
struct Answer {
    bytes: Vec<u8>,
    /// Bytes of the structure without its variable part: a client with a smaller buffer gets an error.
    fixed: usize,
    /// False if an entry was already left out.
    complete: bool,
}

impl Answer {
    /// A structure that may end in a name.
    fn structure(bytes: Vec<u8>, fixed: usize) -> Answer {
        Answer { bytes, fixed, complete: true }
    }
}

async fn run(r: &Request) -> Result<Reply, NtStatus> {
    let q = QueryInfoRequest::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    // MS-SMB2 3.3.5.20: more than one response may hold, or more than the credit charge covers.
    if q.output_buffer_length.max(q.input.len() as u32) > r.facts.max_transact() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    super::check_charge(r, q.output_buffer_length.max(q.input.len() as u32))?;
    let open = r.open(q.file_id)?;
    let output_max = q.output_buffer_length as usize;
    let answer = match q.info_type {
        InfoType::FILE => match open.file() {
            Some(f) => file::query(r, &open, f, &q).await?,
            None if open.pipe().is_some() => file::of_pipe(&open, &q)?,
            None => return Err(NtStatus::INVALID_DEVICE_REQUEST),
        },
        InfoType::FILESYSTEM => filesystem::query(r, &open, &q).await?,
        InfoType::SECURITY => {
            let f = open.file().ok_or(NtStatus::NOT_SUPPORTED)?;
            return security(r, &open, f, q.additional_information, output_max).await;
        }
        InfoType::QUOTA => return quota::query(r, &open, &q).await,
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    fit(r, answer, output_max).await
}

/// MS-SMB2 3.3.5.20.1: a buffer too small for the fixed part is an error. If only the name after it does not fit, the
/// reply has a warning and the part that fits.
async fn fit(r: &Request, answer: Answer, output_max: usize) -> Result<Reply, NtStatus> {
    let Answer { mut bytes, fixed, complete } = answer;
    if output_max < fixed {
        return Err(NtStatus::INFO_LENGTH_MISMATCH);
    }
    let fits = bytes.len() <= output_max;
    bytes.truncate(output_max);
    let status = if complete && fits { NtStatus::SUCCESS } else { NtStatus::BUFFER_OVERFLOW };
    let reply = Reply::with_status(status, &QueryInfoResponse { buffer: &bytes });
    Ok(reply.charged(&r.server.arena, bytes.len()).await)
}

/// MS-SMB2 3.3.5.20.3: returns the whole descriptor, or else its length.
async fn security(
    r: &Request,
    open: &Open,
    f: &FileOpen,
    parts: SecurityInformation,
    output_max: usize,
) -> Result<Reply, NtStatus> {
    let granted = AccessMask::from_bits_retain(open.access);
    if !granted.contains(access::needed_to_query(parts)) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let stored = access::descriptor_now(r, &f.node).await?;
    let mut bytes = Vec::new();
    access::effective(stored.as_deref()).encode_parts(parts, &mut bytes);
    if bytes.len() > output_max {
        let needed = (bytes.len() as u32).to_le_bytes();
        return Ok(too_small(r, &needed));
    }
    let reply = Reply::ok(&QueryInfoResponse { buffer: &bytes });
    Ok(reply.charged(&r.server.arena, bytes.len()).await)
}

/// BUFFER_TOO_SMALL with the length that is needed (MS-SMB2 2.2.2.2.2); dialect 3.1.1 wraps it in an error context.
fn too_small(r: &Request, needed: &[u8]) -> Reply {
    let mut context = Vec::new();
    let raw = RawErrorContext { id: ErrorId::DEFAULT, data: needed };
    let error = if r.facts.dialect < 0x0311 || raw.encode(&mut context, 0).is_err() {
        ErrorResponse { context_count: 0, data: needed }
    } else {
        ErrorResponse { context_count: 1, data: &context }
    };
    Reply::with_status(NtStatus::BUFFER_TOO_SMALL, &error)
}
