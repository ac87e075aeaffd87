//! Renames of named streams (MS-FSA 2.1.5.15.12.1).

use smb_wire::{AccessMask, NtStatus, Utf16Le};
use vfs::{PathError, StreamPart};

use super::require;
use crate::open::{FileOpen, Open};
use crate::request::Request;
use crate::status;

/// Renames the stream that is open; `None` when the new name, which begins with no colon, is one for a file.
pub(super) async fn rename(
    r: &Request,
    open: &Open,
    f: &FileOpen,
    name: Utf16Le<'_>,
    replace: bool,
) -> Option<Result<(), NtStatus>> {
    // With POSIX extensions a colon is a character like others.
    let name = if f.posix { return None } else { name.to_string().ok()? };
    match name.starts_with(':') {
        true => Some(rename_to(r, open, f, &name, replace).await),
        // As Windows: an open stream prevents the rename of its file.
        false if f.stream.is_named() => Some(Err(NtStatus::SHARING_VIOLATION)),
        false => None,
    }
}

async fn rename_to(
    r: &Request,
    open: &Open,
    f: &FileOpen,
    name: &str,
    replace: bool,
) -> Result<(), NtStatus> {
    require(open, AccessMask::DELETE)?;
    let to = match StreamPart::parse(name) {
        Ok(StreamPart::Named(to)) => Some(to),
        Ok(StreamPart::Unnamed) => None,
        Ok(StreamPart::Directory) => return Err(NtStatus::OBJECT_TYPE_MISMATCH),
        Err(PathError::Stream) if name.matches(':').count() == 2 && !name.ends_with(':') => {
            return Err(NtStatus::OBJECT_TYPE_MISMATCH);
        }
        Ok(StreamPart::None) | Err(_) => return Err(NtStatus::INVALID_PARAMETER),
    };
    // The unnamed stream cannot be renamed: its data would have to be copied.
    let from = f.file.stream_name(&f.stream).ok_or(NtStatus::INVALID_PARAMETER)?;
    let _one = f.file.metadata().await;
    match &to {
        // MS-FSA 2.1.5.15.12.1: it has this name already, except for case.
        Some(to) if *to == from => return Ok(()),
        Some(to) if replace && f.file.has_stream(to) => return Err(NtStatus::INVALID_PARAMETER),
        _ => {}
    }
    f.node.rename_stream(&r.ctx(), &from, to.as_ref(), replace).wait().await.map_err(status::of_vfs)?;
    if let Some(to) = &to {
        f.file.stream_renamed(&f.stream, to);
    }
    r.server.store_opens_of(&f.file).await
}
