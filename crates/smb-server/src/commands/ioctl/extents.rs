//! FSCTL_DUPLICATE_EXTENTS_TO_FILE (MS-SMB2 3.3.5.15.17, MS-FSA 2.1.5.10.4): files that share blocks.

use std::sync::Arc;

use smb_wire::ioctl::DuplicateExtents;
use smb_wire::{AccessMask, NtStatus};
use vfs::{Attributes, Data, Kind, ReadOptions, VfsError, VfsResult};

use super::{Output, require_any};
use crate::open::{FileOpen, Open};
use crate::request::Request;
use crate::status;

pub(super) async fn duplicate(
    r: &Request,
    open: &Arc<Open>,
    target: &FileOpen,
    input: &[u8],
) -> Result<Output, NtStatus> {
    let info = r.tree.share.vfs().map(|vfs| vfs.info()).filter(|info| info.reflinks);
    let info = info.ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    let d = DuplicateExtents::decode(input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    // MS-SMB2 3.3.5.15.17
    let from = r.session_open(d.source_file_id).ok_or(NtStatus::INVALID_HANDLE)?;
    let source = from.file().ok_or(NtStatus::INVALID_HANDLE)?;
    let cluster = u64::from(info.cluster);
    let aligned = [d.source_file_offset, d.target_file_offset, d.byte_count].iter().all(|n| n % cluster == 0);
    if !aligned {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if d.byte_count == 0 {
        return Ok(Output::none());
    }
    if target.node.kind() == Kind::Directory || source.node.kind() == Kind::Directory {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    require_any(open, AccessMask::WRITE_DATA)?;
    require_any(&from, AccessMask::READ_DATA).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let end = |at: u64| at.checked_add(d.byte_count).filter(|end| *end <= i64::MAX as u64);
    let source_end = end(d.source_file_offset).ok_or(NtStatus::INVALID_PARAMETER)?;
    end(d.target_file_offset).ok_or(NtStatus::INVALID_PARAMETER)?;
    let ctx = r.ctx();
    let stat = source.node.stat(&ctx).wait().await.map_err(status::of_vfs)?;
    let sparse = |s: &vfs::Stat| s.attributes.contains(Attributes::SPARSE_FILE);
    let targets = target.node.stat(&ctx).wait().await.map_err(status::of_vfs)?;
    if stat.size < source_end || (sparse(&stat) && !sparse(&targets)) {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    // Windows refuses overlapping ranges; the specification does not mention it.
    let apart = d.source_file_offset.abs_diff(d.target_file_offset) >= d.byte_count;
    if Arc::ptr_eq(&source.stream, &target.stream) && !apart {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    // The target's size stays, and byte-range locks are not checked (MS-FSA notes 91 and 92).
    let length = d.byte_count.min(targets.size.saturating_sub(d.target_file_offset));
    target.note_write(&r.server.env);
    let _change = target.changes_data(&r.server);
    let (from, to) = (d.source_file_offset, d.target_file_offset);
    let shared = length - length % cluster;
    if shared > 0 {
        match source.node.clone_to(&ctx, from, &target.node, to, shared).wait().await {
            Ok(()) => {}
            // The volumes differ.
            Err(VfsError::CrossDevice) => return Err(NtStatus::INVALID_PARAMETER),
            Err(e) => return Err(status::of_vfs(e)),
        }
    }
    let rest = (length - shared) as u32;
    if rest > 0 {
        copy(r, source, from + shared, target, to + shared, rest).await.map_err(status::of_vfs)?;
    }
    target.flush_if_write_through(&ctx).await.map_err(status::of_vfs)?;
    Ok(Output::none())
}

/// Copies the part of a cluster that the target ends in: less than a cluster cannot be shared.
async fn copy(
    r: &Request,
    source: &FileOpen,
    from: u64,
    target: &FileOpen,
    to: u64,
    length: u32,
) -> VfsResult<()> {
    let want = ReadOptions { length, arena: &r.server.arena, file_ok: false };
    match source.node.read(&r.ctx(), from, want).wait().await? {
        Data::Bufs(bytes) => target.node.write(&r.ctx(), to, bytes).wait().await.map(|_| ()),
        Data::File { .. } => Err(VfsError::Unsupported),
    }
}
