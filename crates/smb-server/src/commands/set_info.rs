//! SET_INFO (MS-SMB2 3.3.5.21).

mod basic;
mod names;
mod streams;

use std::sync::atomic::Ordering;

use smb_wire::fscc::{
    DispositionFlags, FileAllocationInformation, FileDispositionInformation, FileDispositionInformationEx,
    FileEndOfFileInformation, FileInfoClass, FileModeInformation, FilePositionInformation,
};
use smb_wire::msg::{
    CompletionFilter, CreateOptions, InfoType, SecurityInformation, SetInfoRequest, SetInfoResponse,
};
use smb_wire::{AccessMask, Decode, NtStatus, WireError};
use vfs::{Attributes, Kind};

use super::create::read_attributes;
use crate::access;
use crate::files::Mark;
use crate::files::caching::Operation;
use crate::open::{FileOpen, GateGuard, Open};
use crate::request::{Reply, Request};
use crate::status;

/// Checks the access right that a class needs (MS-FSA 2.1.5.15).
fn require(open: &Open, needed: AccessMask) -> Result<(), NtStatus> {
    if AccessMask::from_bits_retain(open.access).contains(needed) {
        Ok(())
    } else {
        Err(NtStatus::ACCESS_DENIED)
    }
}

/// The status for a fixed-size structure in a buffer that is too short.
fn short<T>(decoded: Result<T, WireError>) -> Result<T, NtStatus> {
    decoded.map_err(|_| NtStatus::INFO_LENGTH_MISMATCH)
}

/// Handles a SET_INFO.
pub(crate) async fn handle(r: Request) -> Reply {
    if !changes_names(&r) {
        return run(&r).await.into();
    }
    // In a task of its own: once the backend has renamed, the paths of the file's opens must be updated, even if the
    // connection ends.
    let env = r.server.env.clone();
    env.run_polled_first(async move { run(&r).await.into() }).await
}

fn changes_names(r: &Request) -> bool {
    use FileInfoClass as C;
    SetInfoRequest::decode(&r.message).is_ok_and(|q| {
        q.info_type == InfoType::FILE
            && matches!(FileInfoClass(q.info_class), C::RENAME | C::RENAME_EX | C::LINK)
    })
}

async fn run(r: &Request) -> Result<Reply, NtStatus> {
    let q = SetInfoRequest::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    // MS-SMB2 3.3.5.21: more than one request may hold, or more than the credit charge covers.
    if q.buffer.len() > r.facts.max_transact() as usize {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    super::check_charge(r, q.buffer.len() as u32)?;
    let open = r.open(q.file_id)?;
    let _gate_guard =
        open.file().is_some().then(|| GateGuard::new(&open).ok_or(NtStatus::FILE_CLOSED)).transpose()?;
    match q.info_type {
        InfoType::FILE => match open.file() {
            Some(f) => file(r, &open, f, &q).await?,
            None => of_pipe(&q)?,
        },
        InfoType::SECURITY => {
            let f = open.file().ok_or(NtStatus::NOT_SUPPORTED)?;
            check_volume(f)?;
            security(r, &open, f, q.additional_information, q.buffer).await?;
        }
        // Label, quota defaults and object id of the volume are set on the server, not by its clients.
        InfoType::FILESYSTEM => return Err(NtStatus::ACCESS_DENIED),
        // MS-SMB2 3.3.5.21.4
        InfoType::QUOTA if !r.session.user.is_administrator() => return Err(NtStatus::ACCESS_DENIED),
        InfoType::QUOTA => return Err(NtStatus::NOT_SUPPORTED),
        _ => return Err(NtStatus::INVALID_PARAMETER),
    }
    Ok(Reply::ok(&SetInfoResponse {}))
}

/// Nothing changes in a snapshot, which is a read-only volume (MS-FSA 2.1.5.15, 2.1.5.17).
fn check_volume(f: &FileOpen) -> Result<(), NtStatus> {
    if f.share.is_snapshot { Err(NtStatus::MEDIA_WRITE_PROTECTED) } else { Ok(()) }
}

async fn file(r: &Request, open: &Open, f: &FileOpen, q: &SetInfoRequest<'_>) -> Result<(), NtStatus> {
    use FileInfoClass as C;
    let ctx = r.ctx();
    let class = FileInfoClass(q.info_class);
    // Position and mode are state of the open, not of the file.
    if !matches!(class, C::POSITION | C::MODE) {
        check_volume(f)?;
    }
    match class {
        C::BASIC => basic::set(r, open, f, q.buffer).await,
        C::RENAME => names::rename(r, open, f, q.buffer).await,
        C::RENAME_EX => names::rename_ex(r, open, f, q.buffer).await,
        C::LINK => names::link(r, open, f, q.buffer).await,
        C::DISPOSITION => {
            let d = short(FileDispositionInformation::decode(q.buffer))?;
            dispose(r, open, f, d.delete_pending).await
        }
        C::DISPOSITION_EX => disposition_ex(r, open, f, q.buffer).await,
        C::END_OF_FILE => {
            let size = short(FileEndOfFileInformation::decode(q.buffer))?.end_of_file;
            resizable(open, f, size)?;
            let _change = f.changes_data(&r.server);
            f.node.set_len(&ctx, size).wait().await.map_err(status::of_vfs)?;
            f.write_time.change();
            r.server.modified(open, f, CompletionFilter::SIZE | CompletionFilter::LAST_WRITE);
            f.flush_if_write_through(&ctx).await.map_err(status::of_vfs)
        }
        C::ALLOCATION => {
            let size = short(FileAllocationInformation::decode(q.buffer))?.allocation_size;
            resizable(open, f, size)?;
            let _change = f.changes_data(&r.server);
            f.node.set_allocation(&ctx, size).wait().await.map_err(status::of_vfs)?;
            f.write_time.change();
            r.server.modified(open, f, CompletionFilter::SIZE);
            f.flush_if_write_through(&ctx).await.map_err(status::of_vfs)
        }
        C::POSITION => {
            let position = short(FilePositionInformation::decode(q.buffer))?.current_byte_offset;
            // MS-FSA 2.1.5.15.11: a signed number that is not negative.
            if position > i64::MAX as u64 {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            f.position.store(position, Ordering::Relaxed);
            Ok(())
        }
        C::MODE => {
            let mode = short(FileModeInformation::decode(q.buffer))?.mode;
            set_mode(f, mode)
        }
        C::FULL_EA => {
            require(open, AccessMask::WRITE_EA)?;
            let set = read_attributes(q.buffer)?;
            f.node.set_extended_attributes(&ctx, set).wait().await.map_err(status::of_vfs)?;
            r.server.modified(open, f, CompletionFilter::EA);
            Ok(())
        }
        // MS-FSA 2.1.5.15.16: needs SeManageVolumePrivilege, which no user has over the network.
        C::VALID_DATA_LENGTH => Err(NtStatus::PRIVILEGE_NOT_HELD),
        C::SHORT_NAME | C::OBJECT_ID | C::QUOTA | C::REPARSE_POINT => Err(NtStatus::NOT_SUPPORTED),
        C::PIPE | C::PIPE_REMOTE => Err(NtStatus::INVALID_PARAMETER),
        _ => Err(NtStatus::INVALID_INFO_CLASS),
    }
}

/// Whether an open may change its file's size to `size`.
fn resizable(open: &Open, f: &FileOpen, size: u64) -> Result<(), NtStatus> {
    require(open, AccessMask::WRITE_DATA)?;
    // MS-FSA 2.1.5.15.4: only files have a size, which is a non-negative signed number.
    if f.node.kind() == Kind::Directory || size > i64::MAX as u64 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(())
}

/// FileModeInformation (MS-FSA 2.1.5.15.9): the modes that may be changed after the open.
fn set_mode(f: &FileOpen, mode: CreateOptions) -> Result<(), NtStatus> {
    let (alert, no_alert) = (CreateOptions::SYNCHRONOUS_IO_ALERT, CreateOptions::SYNCHRONOUS_IO_NONALERT);
    let settable = CreateOptions::WRITE_THROUGH | CreateOptions::SEQUENTIAL_ONLY | alert | no_alert;
    if !settable.contains(mode) || mode.contains(alert | no_alert) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let kept = f.mode.load(Ordering::Relaxed) & !settable.bits();
    f.mode.store(kept | mode.bits(), Ordering::Relaxed);
    Ok(())
}

/// FileDispositionInformationEx (MS-FSA 2.1.5.15.4).
async fn disposition_ex(r: &Request, open: &Open, f: &FileOpen, buffer: &[u8]) -> Result<(), NtStatus> {
    let flags = short(FileDispositionInformationEx::decode(buffer))?.flags;
    let delete = flags.contains(DispositionFlags::DELETE);
    let ignore_read_only = flags.contains(DispositionFlags::IGNORE_READONLY_ATTRIBUTE);
    let only_link = may_dispose(r, open, f, delete, ignore_read_only).await?;
    if delete {
        r.contend(f, Operation::Names).await?;
    }
    if flags.contains(DispositionFlags::ON_CLOSE) {
        f.file.set_delete_on_close(open.persistent, delete);
    } else {
        // Other opens are to remain usable.
        let posix = flags.contains(DispositionFlags::POSIX_SEMANTICS) && f.share.removal_keeps_opens();
        set_delete_pending(open, f, delete.then_some(Mark { posix, only_link }));
    }
    r.server.store_opens_of(&f.file).await
}

/// FileDispositionInformation (MS-FSA 2.1.5.15.3).
async fn dispose(r: &Request, open: &Open, f: &FileOpen, delete: bool) -> Result<(), NtStatus> {
    let only_link = may_dispose(r, open, f, delete, false).await?;
    if delete {
        r.contend(f, Operation::Names).await?;
    }
    set_delete_pending(open, f, delete.then_some(Mark { posix: false, only_link }));
    r.server.store_opens_of(&f.file).await
}

fn set_delete_pending(open: &Open, f: &FileOpen, mark: Option<Mark>) {
    f.file.set_delete_pending(open.persistent, mark);
    if mark.is_some()
        && f.node.kind() == Kind::Directory
        && let Some((share, path)) = f.file.place_of(open.persistent)
    {
        share.watches.delete_pending(&path);
    }
}

/// Checks that a file may be marked for deletion, or unmarked (MS-FSA 2.1.5.15.3). Returns whether a file to be marked
/// has only one name.
async fn may_dispose(
    r: &Request,
    open: &Open,
    f: &FileOpen,
    delete: bool,
    ignore_read_only: bool,
) -> Result<bool, NtStatus> {
    require(open, AccessMask::DELETE)?;
    let mut only_link = false;
    if delete {
        let ctx = r.ctx();
        let removal = r.tree.share.vfs().is_none_or(|vfs| vfs.info().removal);
        if !removal || f.file.path_of(open.persistent).is_root() && !f.stream.is_named() {
            return Err(NtStatus::CANNOT_DELETE);
        }
        // The deletion itself is later, and its failure is reported to no client.
        f.node.may_change(&ctx).wait().await.map_err(status::of_vfs)?;
        let stat = f.node.stat(&ctx).wait().await.map_err(status::of_vfs)?;
        if stat.attributes.contains(Attributes::READONLY) && !ignore_read_only {
            return Err(NtStatus::CANNOT_DELETE);
        }
        if stat.kind == Kind::Directory && !f.node.is_empty(&ctx).wait().await.map_err(status::of_vfs)? {
            return Err(NtStatus::DIRECTORY_NOT_EMPTY);
        }
        only_link = stat.links <= 1;
    }
    Ok(only_link)
}

/// MS-SMB2 3.3.5.21.3, MS-FSA 2.1.5.17.
async fn security(
    r: &Request,
    open: &Open,
    f: &FileOpen,
    parts: SecurityInformation,
    sent: &[u8],
) -> Result<(), NtStatus> {
    require(open, access::needed_to_set(parts))?;
    // MS-SMB2 3.3.5.21.3: unknown parts are ignored; if no known part is set, the descriptor stays unchanged.
    if !parts.intersects(access::STORED_PARTS) {
        return Ok(());
    }
    let ctx = r.ctx();
    let _one = f.file.metadata().await;
    let stored = access::descriptor_now(r, &f.node).await?;
    let new = access::changed(&r.session.user, stored.as_deref(), parts, sent)?;
    let new = if f.posix { access::unix::changed(&r.session.user, new, f.node.kind()) } else { new };
    f.node.set_security(&ctx, new).wait().await.map_err(status::of_vfs)?;
    r.server.modified(open, f, CompletionFilter::SECURITY);
    Ok(())
}

/// Only the mode of a pipe can be set, and only to one value.
fn of_pipe(q: &SetInfoRequest<'_>) -> Result<(), NtStatus> {
    match FileInfoClass(q.info_class) {
        FileInfoClass::PIPE => Ok(()),
        _ => Err(NtStatus::NOT_SUPPORTED),
    }
}
