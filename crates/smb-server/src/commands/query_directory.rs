//! QUERY_DIRECTORY (MS-SMB2 3.3.5.18, MS-FSA 2.1.5.6.3).
//!
//! A CANCEL takes effect between two calls of the backend (3.3.5.16), and no entry is lost: if there are entries for
//! the response already, the request succeeds with these.

mod mac;
pub(crate) mod pattern;
mod posix;

use std::sync::atomic::Ordering;

use arena::Class;
use smb_wire::fscc::{
    DirectoryEntry, DirectoryList, FileInfoClass, Fits, MacAttributes, directory_fixed_len,
};
use smb_wire::msg::{QueryDirectoryFlags, QueryDirectoryRequest, QueryDirectoryResponse};
use smb_wire::{AccessMask, Decode, NtStatus, Utf16Buf};
use vfs::{DirEntry, Kind, VfsError, VfsPath};

use self::pattern::Pattern;
use super::metadata::{file_attributes, file_time};
use crate::access;
use crate::open::{Enumeration, FileOpen};
use crate::request::{Reply, Request};
use crate::status;

/// Entries asked of the backend at once.
const BATCH: usize = 256;

/// Handles a QUERY_DIRECTORY.
pub(crate) async fn handle(r: Request) -> Reply {
    run(&r).await.into()
}

async fn run(r: &Request) -> Result<Reply, NtStatus> {
    let q = QueryDirectoryRequest::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let open = r.open(q.file_id)?;
    let f = open.file().filter(|f| f.node.kind() == Kind::Directory).ok_or(NtStatus::INVALID_PARAMETER)?;
    // MS-SMB2 3.3.5.18: a directory that may not be listed.
    if !AccessMask::from_bits_retain(open.access).contains(AccessMask::READ_DATA) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // MS-SMB2 3.3.5.18 has MaxTransactSize here. Some clients ask for Windows' 8 MiB whatever was negotiated: they get
    // less, which is always valid.
    if q.output_buffer_length > r.facts.max_io.max(r.facts.max_transact()) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    super::check_charge(r, q.output_buffer_length)?;
    let class = FileInfoClass(q.info_class);
    let posix = class == FileInfoClass::POSIX && r.facts.posix;
    let fixed = if posix { Some(posix::FIXED) } else { directory_fixed_len(class) };
    let fixed = fixed.ok_or(NtStatus::INVALID_INFO_CLASS)?;
    if (q.output_buffer_length as usize) < fixed {
        return Err(NtStatus::INFO_LENGTH_MISMATCH);
    }
    let text = q.pattern.to_string().map_err(|_| NtStatus::OBJECT_NAME_INVALID)?;
    if text.contains(['\\', '/']) {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    // One at a time: a second query of this open waits for the first.
    let mut enumeration = f.enumeration.lock().await;
    let e = &mut *enumeration;
    prepare(e, &text, q.flags)?;
    let single = q.flags.contains(QueryDirectoryFlags::RETURN_SINGLE_ENTRY);
    let output_max = q.output_buffer_length.min(r.facts.max_transact()) as usize;
    // Allocated before the directory is read, to account for the entries that are built meanwhile.
    let memory = r.server.arena.alloc_sg(output_max, Class::Payload).await;
    let mac = class == FileInfoClass::ID_BOTH_DIRECTORY && r.tree.mac_listings.load(Ordering::Relaxed);
    let mac = mac.then(|| f.file.path_of(open.persistent));
    let out = match posix {
        true => posix::fill(r, f, e, output_max, single).await?,
        false => fill(r, f, e, class, output_max, single, mac.as_ref()).await?,
    };
    let reply = Reply::with_status(out.status, &QueryDirectoryResponse { buffer: &out.bytes });
    Ok(reply.charged_to(memory, &r.server.arena, out.bytes.len()))
}

/// Starts or continues (MS-FSA 2.1.5.6.3): REOPEN begins with a new pattern, RESTART_SCANS too if one is given. The
/// index of INDEX_SPECIFIED means nothing here, as on NTFS.
fn prepare(e: &mut Enumeration, text: &str, flags: QueryDirectoryFlags) -> Result<(), NtStatus> {
    let reopen = flags.contains(QueryDirectoryFlags::REOPEN) || e.pattern.is_none();
    let restart = flags.contains(QueryDirectoryFlags::RESTART_SCANS);
    if !reopen && !restart {
        return Ok(());
    }
    let pattern = match e.pattern.take() {
        Some(old) if !reopen && text.is_empty() => old,
        _ => Pattern::new(text).ok_or(NtStatus::OBJECT_NAME_INVALID)?,
    };
    *e = Enumeration { pattern: Some(pattern), ..Enumeration::default() };
    Ok(())
}

struct Listing {
    status: NtStatus,
    bytes: Vec<u8>,
}

async fn fill(
    r: &Request,
    f: &FileOpen,
    e: &mut Enumeration,
    class: FileInfoClass,
    output_max: usize,
    single: bool,
    mac: Option<&VfsPath>,
) -> Result<Listing, NtStatus> {
    let mut bytes = Vec::with_capacity(output_max.min(64 << 10));
    let mut list = DirectoryList::new(&mut bytes, class, output_max).ok_or(NtStatus::INVALID_INFO_CLASS)?;
    let short = shows_short_names(r, class);
    'full: while !e.waiting.is_empty() || more_for(r, f, e, !list.is_empty()).await? {
        while let Some(entry) = e.waiting.front() {
            let mac = match mac {
                Some(directory) => Some(mac::attributes(r, f, directory, entry).await),
                None => None,
            };
            if push(&mut list, entry, class, short, mac.as_ref())? == Fits::No {
                break 'full;
            }
            e.waiting.pop_front();
            e.reported = true;
            if single {
                break 'full;
            }
        }
    }
    if !list.is_empty() {
        return Ok(Listing { status: NtStatus::SUCCESS, bytes });
    }
    let Some(entry) = e.waiting.front() else {
        // MS-FSA 2.1.5.6.3: no entry matches at all, or there are no more.
        return Err(if e.reported { NtStatus::NO_MORE_FILES } else { NtStatus::NO_SUCH_FILE });
    };
    // MS-FSA 2.1.5.6.3: the first entry alone exceeds the buffer: the part of it that fits is returned.
    let mut bytes = Vec::new();
    if let Some(mut list) = DirectoryList::new(&mut bytes, class, usize::MAX) {
        push(&mut list, entry, class, short, None)?;
    }
    bytes.truncate(output_max);
    Ok(Listing { status: NtStatus::BUFFER_OVERFLOW, bytes })
}

/// Like [`more`]. If the response has entries already (`any`), a CANCEL counts as the end of the directory.
async fn more_for(r: &Request, f: &FileOpen, e: &mut Enumeration, any: bool) -> Result<bool, NtStatus> {
    match more(r, f, e).await {
        Err(NtStatus::CANCELLED) if any => Ok(false),
        found => found,
    }
}

/// Gets more matching entries; returns false if there are none.
///
/// # Errors
/// CANCELLED, before a call of the backend; the errors of the backend.
async fn more(r: &Request, f: &FileOpen, e: &mut Enumeration) -> Result<bool, NtStatus> {
    let ctx = r.ctx();
    let Some(pattern) = &e.pattern else { return Ok(false) };
    if !e.dots_done {
        e.dots_done = true;
        let stat = f.node.stat(&ctx).wait().await.map_err(status::of_vfs)?;
        for name in [".", ".."].into_iter().filter(|n| pattern.matches(n)) {
            e.waiting.push_back(DirEntry { name: name.to_owned(), stat });
        }
        if let Some(name) = pattern.literal().filter(|n| !matches!(*n, "." | "..")) {
            e.finished = true;
            match f.node.lookup(&ctx, name).wait().await {
                // With POSIX extensions, a name that differs in case does not match.
                Ok(entry) if f.posix && entry.name != name => {}
                Ok(entry) => e.waiting.extend(visible(r, f, vec![entry]).await?),
                Err(VfsError::NotFound | VfsError::InvalidName | VfsError::NameTooLong) => {}
                Err(error) => return Err(status::of_vfs(error)),
            }
        }
    }
    while e.waiting.is_empty() && !e.finished {
        if r.cancel.is_by_client() {
            return Err(NtStatus::CANCELLED);
        }
        let batch = f.node.list(&ctx, !e.begun, BATCH).wait().await.map_err(status::of_vfs)?;
        e.begun = true;
        e.finished = batch.is_empty();
        let matching = batch.into_iter().filter(|entry| pattern.matches(&entry.name)).collect();
        e.waiting.extend(visible(r, f, matching).await?);
        // A long directory without matches must not block the other connections of this worker.
        tokio::task::yield_now().await;
    }
    Ok(!e.waiting.is_empty())
}

/// The entries that the user sees: on a share with access-based enumeration, those that the user may read.
async fn visible(r: &Request, f: &FileOpen, entries: Vec<DirEntry>) -> Result<Vec<DirEntry>, NtStatus> {
    if !r.tree.share.protection.read().access_based_enumeration {
        return Ok(entries);
    }
    let names = entries.iter().map(|e| e.name.clone()).collect();
    let all = f.node.entry_security(&r.ctx(), names).wait().await.map_err(status::of_vfs)?;
    let shown = entries
        .into_iter()
        .zip(all)
        .filter_map(|(entry, security)| access::is_visible(r, security, &entry.stat).then_some(entry));
    Ok(shown.collect())
}

/// Whether an entry of a class has a short name, in a share where files can be opened by it.
fn shows_short_names(r: &Request, class: FileInfoClass) -> bool {
    use FileInfoClass as C;
    matches!(class, C::BOTH_DIRECTORY | C::ID_BOTH_DIRECTORY | C::ID_EXTD_BOTH_DIRECTORY)
        && r.tree.share.vfs().is_some_and(|vfs| vfs.info().short_names)
}

fn has_tag_field(class: FileInfoClass) -> bool {
    matches!(class, FileInfoClass::ID_EXTD_DIRECTORY | FileInfoClass::ID_EXTD_BOTH_DIRECTORY)
}

fn push(
    list: &mut DirectoryList<'_>,
    entry: &DirEntry,
    class: FileInfoClass,
    short: bool,
    mac: Option<&MacAttributes>,
) -> Result<Fits, NtStatus> {
    let s = &entry.stat;
    let name = Utf16Buf::from(entry.name.as_str());
    let dots = matches!(&*entry.name, "." | "..");
    let short = if short && !dots { vfs::short_name(&entry.name) } else { None };
    let short = Utf16Buf::from(short.as_deref().unwrap_or_default());
    let wire = DirectoryEntry {
        creation_time: file_time(s.created),
        last_access_time: file_time(s.accessed),
        last_write_time: file_time(s.written),
        change_time: file_time(s.changed),
        end_of_file: s.size,
        allocation_size: s.allocation,
        file_attributes: file_attributes(s),
        // MS-FSA 2.1.5.6.3: EaSize holds the reparse tag if the class has no field for the tag.
        ea_size: if s.reparse.tag == 0 || has_tag_field(class) { s.ea_size } else { s.reparse.tag },
        reparse_tag: s.reparse.tag,
        file_id: s.id.file,
        short_name: short.as_utf16(),
        name: name.as_utf16(),
        ..DirectoryEntry::default()
    };
    let pushed = match mac {
        Some(mac) => list.push_mac(&wire, mac),
        None => list.push(&wire),
    };
    pushed.map_err(|_| NtStatus::INTERNAL_ERROR)
}
