//! Listings of class 100 (SMB 3.1.1 POSIX extensions): with owner, group and mode of each entry; names are
//! case-sensitive.

use smb_wire::NtStatus;
use smb_wire::Utf16Buf;
use smb_wire::fscc::{Fits, ListBuilder, PosixDirectoryEntry};
use vfs::DirEntry;

use super::{BATCH, Listing, more_for};
use crate::access;
use crate::commands::metadata::posix;
use crate::open::{Enumeration, FileOpen};
use crate::request::Request;
use crate::status;

/// Smallest buffer for an entry, in bytes: its fixed part with the shortest owner and group.
pub(super) const FIXED: usize = 8 + 80 + 2 * 8 + 4;

/// Like [`super::fill`].
pub(super) async fn fill(
    r: &Request,
    f: &FileOpen,
    e: &mut Enumeration,
    output_max: usize,
    single: bool,
) -> Result<Listing, NtStatus> {
    let mut bytes = Vec::with_capacity(output_max.min(64 << 10));
    let mut list = ListBuilder::new(&mut bytes, output_max, 8);
    let mut any = false;
    'full: while !e.waiting.is_empty() || more_for(r, f, e, any).await? {
        let count = e.waiting.len().min(if single { 1 } else { BATCH });
        let descriptors = descriptors(r, f, e.waiting.iter().take(count)).await?;
        for descriptor in descriptors {
            let Some(entry) = e.waiting.front() else { break };
            if push(r, &mut list, entry, descriptor.as_deref())? == Fits::No {
                break 'full;
            }
            e.waiting.pop_front();
            (any, e.reported) = (true, true);
            if single {
                break 'full;
            }
        }
    }
    if any {
        return Ok(Listing { status: NtStatus::SUCCESS, bytes });
    }
    let Some(entry) = e.waiting.front() else {
        return Err(if e.reported { NtStatus::NO_MORE_FILES } else { NtStatus::NO_SUCH_FILE });
    };
    // The first entry alone exceeds the buffer: the part of it that fits is returned.
    let descriptor = descriptors(r, f, std::iter::once(entry)).await?.pop().flatten();
    let mut bytes = Vec::new();
    push(r, &mut ListBuilder::new(&mut bytes, usize::MAX, 8), entry, descriptor.as_deref())?;
    bytes.truncate(output_max);
    Ok(Listing { status: NtStatus::BUFFER_OVERFLOW, bytes })
}

/// The effective descriptors of entries. The entry `..` is shown with this directory's descriptor, as its metadata is.
async fn descriptors<'e>(
    r: &Request,
    f: &FileOpen,
    entries: impl Iterator<Item = &'e DirEntry> + Clone,
) -> Result<Vec<Option<Vec<u8>>>, NtStatus> {
    let is_dots = |e: &DirEntry| matches!(&*e.name, "." | "..");
    let own = if entries.clone().any(is_dots) { access::descriptor_now(r, &f.node).await? } else { None };
    let names: Vec<String> = entries.clone().filter(|e| !is_dots(e)).map(|e| e.name.clone()).collect();
    let found = match names.is_empty() {
        true => Vec::new(),
        false => f.node.entry_security(&r.ctx(), names).wait().await.map_err(status::of_vfs)?,
    };
    let mut found = found.into_iter();
    Ok(entries
        .map(|e| match is_dots(e) {
            true => own.clone(),
            false => access::of_entry(r, found.next().unwrap_or(Ok(None)), &e.stat),
        })
        .collect())
}

fn push(
    r: &Request,
    list: &mut ListBuilder<'_>,
    entry: &DirEntry,
    descriptor: Option<&[u8]>,
) -> Result<Fits, NtStatus> {
    let name = Utf16Buf::from(&*match &*entry.name {
        "." | ".." => entry.name.as_str().into(),
        name => vfs::posix_name(name),
    });
    let information = posix(&r.session.user, &entry.stat, descriptor);
    let wire = PosixDirectoryEntry { information, name: name.as_utf16() };
    wire.push(list).map_err(|_| NtStatus::INTERNAL_ERROR)
}
