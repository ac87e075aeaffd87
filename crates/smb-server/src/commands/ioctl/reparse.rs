//! Reparse points (MS-FSCC 2.1.2): what a file or an empty directory stands for. The backend stores them; the server
//! interprets only symbolic links (`create::reparse`).
//!
//! Every user who may write a file's attributes may make it a reparse point, also a symbolic link: the server never
//! follows one, so no privilege is needed (MS-FSA 2.1.5.10.37, HasCreateSymbolicLinkAccess). Extended attributes and a
//! reparse point may be on one file, against MS-FSA 2.1.5.10.37: Windows 10 allows it, and files of Linux have both.

use smb_wire::ioctl::{ReparseBuffer, ReparseTag, SymlinkReparse};
use smb_wire::msg::CompletionFilter;
use smb_wire::{AccessMask, Guid, NtStatus};
use vfs::{Attributes, BasicChange, Kind, ReparsePoint};

use super::{Output, changeable, require_any};
use crate::open::{FileOpen, Open};
use crate::request::Request;
use crate::status;

/// FSCTL_GET_REPARSE_POINT (MS-FSA 2.1.5.10.14).
pub(super) async fn get(r: &Request, f: &FileOpen, output_max: usize) -> Result<Output, NtStatus> {
    let point = current(r, f).await?.ok_or(NtStatus::NOT_A_REPARSE_POINT)?;
    let buffer = buffer(&point);
    if output_max < ReparseBuffer::fixed_len(buffer.tag) {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let mut bytes = Vec::with_capacity(buffer.len());
    buffer.encode(&mut bytes).map_err(|_| NtStatus::INTERNAL_ERROR)?;
    // MS-FSCC 2.3.28: as much of the data as fits the buffer.
    let status = if bytes.len() > output_max { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
    bytes.truncate(output_max);
    Ok(Output { status, bytes })
}

/// FSCTL_SET_REPARSE_POINT (MS-FSA 2.1.5.10.37, MS-SMB2 3.3.5.15.13).
pub(super) async fn set(r: &Request, open: &Open, f: &FileOpen, input: &[u8]) -> Result<Output, NtStatus> {
    may_change(open, f)?;
    let sent = parse(input)?;
    // MS-FSCC 2.3.82.
    if sent.tag.is_reserved() {
        return Err(NtStatus::IO_REPARSE_DATA_INVALID);
    }
    let kind = f.node.kind();
    if sent.tag == ReparseTag::MOUNT_POINT && kind != Kind::Directory {
        return Err(NtStatus::NOT_A_DIRECTORY);
    }
    // NTFS does not store a symbolic link with a malformed target.
    if sent.tag == ReparseTag::SYMLINK && SymlinkReparse::decode(sent.data).is_err() {
        return Err(NtStatus::IO_REPARSE_DATA_INVALID);
    }
    let _one = f.file.metadata().await;
    let ctx = r.ctx();
    if kind == Kind::Directory && !f.node.is_empty(&ctx).wait().await.map_err(status::of_vfs)? {
        return Err(NtStatus::DIRECTORY_NOT_EMPTY);
    }
    let stat = f.node.stat(&ctx).wait().await.map_err(status::of_vfs)?;
    if kind == Kind::File && sent.tag == ReparseTag::SYMLINK && stat.size > 0 {
        return Err(NtStatus::IO_REPARSE_DATA_INVALID);
    }
    if let Some(there) = current(r, f).await? {
        same_owner(&there, &sent)?;
    }
    let guid = (!sent.tag.is_microsoft()).then_some(sent.guid.0);
    let point = ReparsePoint { tag: sent.tag.0, guid, data: sent.data.to_vec() };
    f.node.set_reparse_point(&ctx, Some(point)).wait().await.map_err(status::of_vfs)?;
    changed(r, open, f, stat.attributes).await
}

/// FSCTL_DELETE_REPARSE_POINT (MS-FSA 2.1.5.10.3).
pub(super) async fn delete(r: &Request, open: &Open, f: &FileOpen, input: &[u8]) -> Result<Output, NtStatus> {
    may_change(open, f)?;
    let sent = parse(input)?;
    if sent.tag.is_reserved() {
        return Err(NtStatus::IO_REPARSE_TAG_INVALID);
    }
    // MS-FSCC 2.3.6.
    if !sent.data.is_empty() || (!sent.tag.is_microsoft() && sent.guid == Guid::default()) {
        return Err(NtStatus::IO_REPARSE_DATA_INVALID);
    }
    let _one = f.file.metadata().await;
    let there = current(r, f).await?.ok_or(NtStatus::NOT_A_REPARSE_POINT)?;
    same_owner(&there, &sent)?;
    let stat = f.node.stat(&r.ctx()).wait().await.map_err(status::of_vfs)?;
    f.node.set_reparse_point(&r.ctx(), None).wait().await.map_err(status::of_vfs)?;
    changed(r, open, f, stat.attributes).await
}

fn may_change(open: &Open, f: &FileOpen) -> Result<(), NtStatus> {
    require_any(open, AccessMask::WRITE_DATA | AccessMask::WRITE_ATTRIBUTES)?;
    if changeable(f)?.reparse_points { Ok(()) } else { Err(NtStatus::INVALID_DEVICE_REQUEST) }
}

/// Decodes a buffer, which must have exactly the length that its tag implies.
fn parse(input: &[u8]) -> Result<ReparseBuffer<'_>, NtStatus> {
    // Windows returns this status for an empty buffer.
    if input.is_empty() {
        return Err(NtStatus::INVALID_BUFFER_SIZE);
    }
    match ReparseBuffer::decode(input) {
        Ok(b) if b.len() == input.len() && input.len() <= ReparsePoint::DATA_MAX => Ok(b),
        _ => Err(NtStatus::IO_REPARSE_DATA_INVALID),
    }
}

fn same_owner(there: &ReparsePoint, sent: &ReparseBuffer<'_>) -> Result<(), NtStatus> {
    if there.tag != sent.tag.0 {
        return Err(NtStatus::IO_REPARSE_TAG_MISMATCH);
    }
    if there.guid.is_some_and(|guid| guid != sent.guid.0) {
        return Err(NtStatus::REPARSE_ATTRIBUTE_CONFLICT);
    }
    Ok(())
}

async fn current(r: &Request, f: &FileOpen) -> Result<Option<ReparsePoint>, NtStatus> {
    f.node.reparse_point(&r.ctx()).wait().await.map_err(status::of_vfs)
}

fn buffer(point: &ReparsePoint) -> ReparseBuffer<'_> {
    let guid = Guid(point.guid.unwrap_or_default());
    ReparseBuffer { tag: ReparseTag(point.tag), guid, data: &point.data }
}

/// After a reparse point was set or deleted: sets FILE_ATTRIBUTE_ARCHIVE and notifies the watches.
async fn changed(r: &Request, open: &Open, f: &FileOpen, attributes: Attributes) -> Result<Output, NtStatus> {
    let with_archive = attributes | Attributes::ARCHIVE;
    if f.node.kind() == Kind::File && with_archive != attributes {
        let change = BasicChange { attributes: Some(with_archive), ..BasicChange::default() };
        f.node.set_basic(&r.ctx(), change).wait().await.map_err(status::of_vfs)?;
    }
    r.server.modified(open, f, CompletionFilter::ATTRIBUTES);
    Ok(Output::none())
}
