//! Ranges of a file: sparse, zero, allocated, trim (MS-FSCC 2.3, MS-FSA 2.1.5.10).

use smb_wire::ioctl::{AllocatedRange, FileLevelTrim, TrimResponse, ZeroData, sparse_requested};
use smb_wire::msg::CompletionFilter;
use smb_wire::{AccessMask, NtStatus};
use vfs::{Attributes, Kind};

use super::{Output, require_any};
use crate::open::{FileOpen, Open};
use crate::request::Request;
use crate::status;

/// The most ranges in one trim.
const TRIM_RANGES_MAX: usize = 4096;

/// Returns INVALID_PARAMETER for a position that does not fit a signed number.
fn signed(n: u64) -> Result<u64, NtStatus> {
    if n > i64::MAX as u64 { Err(NtStatus::INVALID_PARAMETER) } else { Ok(n) }
}

fn file_only(f: &FileOpen) -> Result<(), NtStatus> {
    if f.node.kind() == Kind::Directory { Err(NtStatus::INVALID_PARAMETER) } else { Ok(()) }
}

/// FSCTL_SET_SPARSE (MS-FSA 2.1.5.10.39).
pub(super) async fn set_sparse(
    r: &Request,
    open: &Open,
    f: &FileOpen,
    input: &[u8],
) -> Result<Output, NtStatus> {
    file_only(f)?;
    require_any(open, AccessMask::WRITE_DATA | AccessMask::APPEND_DATA | AccessMask::WRITE_ATTRIBUTES)?;
    f.node.set_sparse(&r.ctx(), sparse_requested(input)).wait().await.map_err(status::of_vfs)?;
    r.server.modified(open, f, CompletionFilter::ATTRIBUTES);
    Ok(Output::none())
}

/// FSCTL_SET_ZERO_DATA (MS-FSA 2.1.5.10.40): never past the end of file.
pub(super) async fn zero(r: &Request, open: &Open, f: &FileOpen, input: &[u8]) -> Result<Output, NtStatus> {
    let z = ZeroData::decode(input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    file_only(f)?;
    require_any(open, AccessMask::WRITE_DATA)?;
    let (from, to) = (signed(z.file_offset)?, signed(z.beyond_final_zero)?);
    if from > to {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    f.stream.check_io(open.persistent, from, to - from, true)?;
    let size = f.node.stat(&r.ctx()).wait().await.map_err(status::of_vfs)?.size;
    let to = to.min(size);
    if from < to {
        f.note_write(&r.server.env);
        let _change = f.changes_data(&r.server);
        f.node.zero(&r.ctx(), from..to).wait().await.map_err(status::of_vfs)?;
        f.flush_if_write_through(&r.ctx()).await.map_err(status::of_vfs)?;
    }
    Ok(Output::none())
}

/// FSCTL_QUERY_ALLOCATED_RANGES (MS-FSA 2.1.5.10.22).
pub(super) async fn allocated(
    r: &Request,
    open: &Open,
    f: &FileOpen,
    input: &[u8],
    output_max: usize,
) -> Result<Output, NtStatus> {
    let asked = AllocatedRange::decode(input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    file_only(f)?;
    require_any(open, AccessMask::READ_DATA)?;
    let from = signed(asked.file_offset)?;
    let to =
        signed(asked.file_offset.checked_add(signed(asked.length)?).ok_or(NtStatus::INVALID_PARAMETER)?)?;
    if from == to {
        return Ok(Output::none());
    }
    let fits = output_max / AllocatedRange::LEN;
    let stat = f.node.stat(&r.ctx()).wait().await.map_err(status::of_vfs)?;
    let list = if stat.attributes.contains(Attributes::SPARSE_FILE) {
        // One more than fits, to detect whether there are more.
        f.node.allocated(&r.ctx(), from..to, fits + 1).wait().await.map_err(status::of_vfs)?
    } else {
        // MS-FSA 2.1.5.10.22: a file that is not sparse is allocated from end to end.
        let whole = from..to.min(stat.size);
        if whole.is_empty() { Vec::new() } else { vec![whole] }
    };
    if fits == 0 && !list.is_empty() {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let mut bytes = Vec::new();
    for range in list.iter().take(fits) {
        AllocatedRange { file_offset: range.start, length: range.end - range.start }.encode(&mut bytes);
    }
    let status = if list.len() > fits { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
    Ok(Output { status, bytes })
}

/// FSCTL_FILE_LEVEL_TRIM (MS-FSA 2.1.5.10.5): the trimmed ranges read as zeros from then on.
pub(super) async fn trim(
    r: &Request,
    open: &Open,
    f: &FileOpen,
    input: &[u8],
    output_max: usize,
) -> Result<Output, NtStatus> {
    let t = FileLevelTrim::decode(input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    file_only(f)?;
    require_any(open, AccessMask::WRITE_DATA)?;
    if t.key != 0 || t.ranges.is_empty() || t.ranges.len() > TRIM_RANGES_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut done = 0;
    let stat = f.node.stat(&r.ctx()).wait().await.map_err(status::of_vfs)?;
    if stat.attributes.contains(Attributes::COMPRESSED) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let size = stat.size;
    let _change = f.changes_data(&r.server);
    for range in t.ranges.iter() {
        let to = range.offset.checked_add(range.length).ok_or(NtStatus::INVALID_PARAMETER)?.min(size);
        f.stream.check_io(open.persistent, range.offset, range.length, true)?;
        if range.offset < to {
            f.note_write(&r.server.env);
            f.node.zero(&r.ctx(), range.offset..to).wait().await.map_err(status::of_vfs)?;
        }
        done += 1;
    }
    f.flush_if_write_through(&r.ctx()).await.map_err(status::of_vfs)?;
    let mut bytes = Vec::new();
    if output_max >= TrimResponse::LEN {
        TrimResponse { num_ranges_processed: done }.encode(&mut bytes);
    }
    Ok(Output::of(bytes))
}
