//! FSCTL_GET_COMPRESSION, FSCTL_SET_COMPRESSION (MS-FSCC 2.3.17, 2.3.67; MS-FSA 2.1.5.10.9, 2.1.5.10.30).

use smb_wire::fscc::CompressionFormat as Format;
use smb_wire::msg::CompletionFilter;
use smb_wire::{AccessMask, NtStatus};

use super::{Output, changeable, require_any};
use crate::commands::metadata::compression_format;
use crate::open::{FileOpen, Open};
use crate::request::Request;
use crate::status;

pub(super) async fn get(r: &Request, f: &FileOpen, output_max: usize) -> Result<Output, NtStatus> {
    let stat = f.node.stat(&r.ctx()).wait().await.map_err(status::of_vfs)?;
    Output::whole(compression_format(&stat).0.to_le_bytes().to_vec(), output_max)
}

pub(super) async fn set(r: &Request, open: &Open, f: &FileOpen, input: &[u8]) -> Result<Output, NtStatus> {
    let format = input.first_chunk::<2>().ok_or(NtStatus::INVALID_PARAMETER)?;
    let format = Format(u16::from_le_bytes(*format));
    require_any(open, AccessMask::WRITE_DATA)?;
    if format > Format::LZNT1 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    changeable(f)?;
    let stat = f.node.stat(&r.ctx()).wait().await.map_err(status::of_vfs)?;
    if (format == Format::NONE) == (compression_format(&stat) == Format::NONE) {
        return Ok(Output::none());
    }
    f.node.set_compressed(&r.ctx(), format != Format::NONE).wait().await.map_err(status::of_vfs)?;
    r.server.modified(open, f, CompletionFilter::ATTRIBUTES);
    Ok(Output::none())
}
