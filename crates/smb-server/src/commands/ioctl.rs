//! IOCTL (MS-SMB2 3.3.5.15): the FSCTLs, one file for each family.
//!
//! An FSCTL that is not here gets the status of a server without it: STATUS_INVALID_DEVICE_REQUEST on a disk share,
//! STATUS_FS_DRIVER_REQUIRED on IPC$ (3.3.5.15: "the underlying object store does not support it").

mod compression;
mod copychunk;
mod extents;
mod network;
mod pipe;
mod ranges;
pub(crate) mod reparse;
mod snapshots;

use std::sync::Arc;
use std::time::Duration;

use smb_wire::ioctl::ObjectIdBuffer;
use smb_wire::msg::{FsctlCode, IoctlFlags, IoctlRequest, IoctlResponse};
use smb_wire::{AccessMask, Decode, Guid, NtStatus};
use vfs::VolumeInfo;

use crate::durable::{Durability, RESILIENT_DEFAULT, TIMEOUT_MAX};
use crate::open::{FileOpen, GateGuard, Open};
use crate::request::{Reply, Request};

/// STATUS_FS_DRIVER_REQUIRED (MS-ERREF 2.3).
const FS_DRIVER_REQUIRED: NtStatus = NtStatus(0xC000_019C);

/// Handles an IOCTL.
pub(crate) async fn handle(r: Request) -> Reply {
    run(&r).await.into()
}

/// The result of an FSCTL: output, and a status that may be a warning.
struct Output {
    status: NtStatus,
    bytes: Vec<u8>,
}

impl Output {
    fn none() -> Output {
        Output::of(Vec::new())
    }

    fn of(bytes: Vec<u8>) -> Output {
        Output { status: NtStatus::SUCCESS, bytes }
    }

    /// Output that is returned whole or not at all: BUFFER_TOO_SMALL if it is longer than `output_max` bytes.
    fn whole(bytes: Vec<u8>, output_max: usize) -> Result<Output, NtStatus> {
        if bytes.len() > output_max { Err(NtStatus::BUFFER_TOO_SMALL) } else { Ok(Output::of(bytes)) }
    }
}

async fn run(r: &Request) -> Result<Reply, NtStatus> {
    let q = IoctlRequest::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    // MS-SMB2 3.3.5.15: only FSCTLs are allowed.
    if q.flags != IoctlFlags::IS_FSCTL {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let max = r.facts.max_transact() as usize;
    let response = u64::from(q.max_input_response) + u64::from(q.max_output_response);
    if q.input.len() > max || q.max_input_response as usize > max || q.max_output_response as usize > max {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let payload = response.max((q.input.len() + q.output.len()) as u64);
    super::check_charge(r, u32::try_from(payload).unwrap_or(u32::MAX))?;
    if q.ctl_code == FsctlCode::VALIDATE_NEGOTIATE_INFO {
        return Ok(network::validate_negotiate(r, &q));
    }
    let out = dispatch(r, &q).await?;
    let body =
        IoctlResponse { ctl_code: q.ctl_code, file_id: q.file_id, output: &out.bytes, ..Default::default() };
    Ok(Reply::with_status(out.status, &body).charged(&r.server.arena, out.bytes.len()).await)
}

async fn dispatch(r: &Request, q: &IoctlRequest<'_>) -> Result<Output, NtStatus> {
    use FsctlCode as F;
    let output_max = q.max_output_response as usize;
    match q.ctl_code {
        F::QUERY_NETWORK_INTERFACE_INFO => return network::interfaces(r, q),
        // MS-SMB2 3.3.5.15.2: this server is in no DFS namespace.
        F::DFS_GET_REFERRALS | F::DFS_GET_REFERRALS_EX => {
            return Err(if q.file_id.is_none() { FS_DRIVER_REQUIRED } else { NtStatus::INVALID_PARAMETER });
        }
        F::PIPE_WAIT => return pipe::wait(r, q),
        _ => {}
    }
    // MS-SMB2 3.3.5.15: all others need an open.
    let open = r.open(q.file_id)?;
    match (q.ctl_code, open.file()) {
        (F::PIPE_TRANSCEIVE, _) => pipe::transceive(r, &open, q).await,
        (F::PIPE_PEEK, _) => pipe::peek(&open, output_max),
        (_, None) => Err(FS_DRIVER_REQUIRED),
        (_, Some(f)) => of_file(r, q, &open, f, output_max).await,
    }
}

async fn of_file(
    r: &Request,
    q: &IoctlRequest<'_>,
    open: &Arc<Open>,
    f: &FileOpen,
    output_max: usize,
) -> Result<Output, NtStatus> {
    use FsctlCode as F;
    let _gate_guard = GateGuard::new(open).ok_or(NtStatus::FILE_CLOSED)?;
    match q.ctl_code {
        F::SRV_REQUEST_RESUME_KEY => copychunk::resume_key(open, output_max),
        F::SRV_COPYCHUNK => copychunk::copy(r, open, f, q, false).await,
        F::SRV_COPYCHUNK_WRITE => copychunk::copy(r, open, f, q, true).await,
        F::DUPLICATE_EXTENTS_TO_FILE => extents::duplicate(r, open, f, q.input).await,
        F::SET_SPARSE => ranges::set_sparse(r, open, f, q.input).await,
        F::SET_ZERO_DATA => ranges::zero(r, open, f, q.input).await,
        F::QUERY_ALLOCATED_RANGES => ranges::allocated(r, open, f, q.input, output_max).await,
        F::FILE_LEVEL_TRIM => ranges::trim(r, open, f, q.input, output_max).await,
        F::CREATE_OR_GET_OBJECT_ID => {
            let mut bytes = Vec::new();
            object_id(f).encode(&mut bytes);
            Output::whole(bytes, output_max)
        }
        F::GET_COMPRESSION => compression::get(r, f, output_max).await,
        F::SET_COMPRESSION => compression::set(r, open, f, q.input).await,
        F::SRV_ENUMERATE_SNAPSHOTS => snapshots::list(r, output_max).await,
        F::GET_REPARSE_POINT => reparse::get(r, f, output_max).await,
        F::SET_REPARSE_POINT => reparse::set(r, open, f, q.input).await,
        F::DELETE_REPARSE_POINT => reparse::delete(r, open, f, q.input).await,
        F::LMR_REQUEST_RESILIENCY => resiliency(r, open, q.input),
        _ => Err(NtStatus::INVALID_DEVICE_REQUEST),
    }
}

/// A stable identifier of the file: it is computed from the identity of the file and its volume.
fn object_id(f: &FileOpen) -> ObjectIdBuffer {
    let id = f.node.id();
    let (object, volume) = (Guid(id.file.to_le_bytes()), Guid(id.volume.to_le_bytes()));
    ObjectIdBuffer {
        object_id: object,
        birth_volume_id: volume,
        birth_object_id: object,
        domain_id: Guid::default(),
    }
}

/// MS-SMB2 3.3.5.15.9: the open survives the end of its connection, for the time that the client asks for.
fn resiliency(r: &Request, open: &Open, input: &[u8]) -> Result<Output, NtStatus> {
    if r.facts.dialect == 0x0202 {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    let timeout = input.first_chunk::<8>().ok_or(NtStatus::INVALID_PARAMETER)?;
    let ms = u32::from_le_bytes([timeout[0], timeout[1], timeout[2], timeout[3]]);
    let asked = Duration::from_millis(ms.into());
    if asked > TIMEOUT_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut durable = open.durable.lock();
    // A persistent handle is stronger than a resilient one.
    if durable.durability != Durability::Persistent {
        durable.durability = Durability::Resilient;
        open.counter.set_durability(durable.durability);
    }
    durable.timeout = if ms == 0 { RESILIENT_DEFAULT } else { asked };
    Ok(Output::none())
}

/// The volume's capabilities, if the open may change the volume.
///
/// # Errors
/// MEDIA_WRITE_PROTECTED.
fn changeable(f: &FileOpen) -> Result<&VolumeInfo, NtStatus> {
    let info = f.share.vfs().map(|vfs| vfs.info()).ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    if info.read_only { Err(NtStatus::MEDIA_WRITE_PROTECTED) } else { Ok(info) }
}

/// Checks that the open has at least one of these rights.
fn require_any(open: &Open, rights: AccessMask) -> Result<(), NtStatus> {
    if AccessMask::from_bits_retain(open.access).intersects(rights) {
        Ok(())
    } else {
        Err(NtStatus::ACCESS_DENIED)
    }
}
