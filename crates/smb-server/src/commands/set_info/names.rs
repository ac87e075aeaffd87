//! Renames and hard links (MS-FSA 2.1.5.15.11, 2.1.5.15.6).

use std::sync::Arc;

use smb_wire::fscc::{FileLinkInformation, FileRenameInformation, FileRenameInformationEx, RenameFlags};
use smb_wire::msg::CompletionFilter;
use smb_wire::{AccessMask, NtStatus, ShareAccess, Utf16Le, WireError};
use vfs::{Attributes, FileKey, Kind, OpenRequest, Opened, VfsError, VfsPath};

use super::{require, streams};
use crate::access;
use crate::files::caching::Operation;
use crate::files::share_mode::ShareMode;
use crate::files::{Claim, FileState, Refusal};
use crate::namespace::{Event, EventKind};
use crate::open::{FileOpen, Open};
use crate::request::Request;
use crate::status;

/// Smallest lengths of the structures, in bytes: MS-FSCC 2.4.42.2 and 2.4.28.2 with their alignment.
const NAME_STRUCTURE_MIN: usize = 24;
/// How often the new name is checked again because another request created it meanwhile.
const ATTEMPTS: usize = 16;

struct Target {
    path: VfsPath,
    replace: bool,
    replace_read_only: bool,
}

pub(super) async fn rename(r: &Request, open: &Open, f: &FileOpen, buffer: &[u8]) -> Result<(), NtStatus> {
    let q = decoded(buffer, FileRenameInformation::decode)?;
    if let Some(renamed) = streams::rename(r, open, f, q.name, q.replace_if_exists).await {
        return renamed;
    }
    let path = target(f, q.root_directory, q.name)?;
    rename_to(r, open, f, Target { path, replace: q.replace_if_exists, replace_read_only: false }).await
}

pub(super) async fn rename_ex(r: &Request, open: &Open, f: &FileOpen, buffer: &[u8]) -> Result<(), NtStatus> {
    let q = decoded(buffer, FileRenameInformationEx::decode)?;
    let replace = q.flags.contains(RenameFlags::REPLACE_IF_EXISTS);
    if let Some(renamed) = streams::rename(r, open, f, q.name, replace).await {
        return renamed;
    }
    let path = target(f, q.root_directory, q.name)?;
    let replace_read_only = q.flags.contains(RenameFlags::IGNORE_READONLY_ATTRIBUTE);
    rename_to(r, open, f, Target { path, replace, replace_read_only }).await
}

pub(super) async fn link(r: &Request, open: &Open, f: &FileOpen, buffer: &[u8]) -> Result<(), NtStatus> {
    let q = decoded(buffer, FileLinkInformation::decode)?;
    let to = Target {
        path: target(f, q.root_directory, q.name)?,
        replace: q.replace_if_exists,
        replace_read_only: false,
    };
    if f.node.kind() == Kind::Directory {
        return Err(NtStatus::FILE_IS_A_DIRECTORY);
    }
    // Windows asks for no right on the open of the file (FILE_LINK_INFORMATION: "no specific access rights"): the new
    // name grants no more rights to the file than its descriptor does. The rights needed are those to the folder.
    writable_tree(r)?;
    loop {
        match try_link(r, open, f, &to).await {
            Ok(()) => return Ok(()),
            Err(refusal) => wait_for_handles(r, refusal).await?,
        }
    }
}

async fn try_link(r: &Request, open: &Open, f: &FileOpen, to: &Target) -> Result<(), Refusal> {
    let vfs = r.tree.share.vfs().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    check_folder(r, &to.path, false).await?;
    // With POSIX extensions a cached handle does not prevent a second name. The Linux client, which caches the handle
    // of a file that it has closed, would have to acknowledge a break in the middle of the compound that creates the
    // link.
    if !f.posix {
        r.contend(f, Operation::Names).await?;
    }
    let mut change = r.server.namespace.begin_change(&r.tree.share).await;
    change.touch(&to.path, f.node.id());
    // Checked again: from here on names cannot change.
    let folder = check_folder(r, &to.path, false).await?;
    // MS-FSA 2.1.5.15.7, MS-FSCC 2.4.28: no name is linked to one that is deleted.
    if f.file.is_delete_pending(open.persistent) {
        return Err(NtStatus::ACCESS_DENIED.into());
    }
    for _ in 0..ATTEMPTS {
        let from = f.file.path_of(open.persistent);
        let replaced = check_replaced(r, f, &from, to, folder).await?;
        match vfs.link(&r.ctx(), &from, f.node.id(), &to.path, to.replace && replaced.is_there()).wait().await
        {
            Err(VfsError::Exists) if to.replace && !replaced.is_there() => {}
            Err(e) => return Err(status::of_vfs(e).into()),
            Ok(()) => {
                f.file.linked();
                let event_kind = match replaced {
                    Replaced::Another { .. } => EventKind::Replaced,
                    Replaced::Nothing | Replaced::Itself => EventKind::Added(Kind::File),
                };
                r.server.publish(&r.tree.share, &Event { path: &to.path, event_kind, origin: f.origin() });
                return Ok(());
            }
        }
    }
    Err(NtStatus::ACCESS_DENIED.into())
}

fn decoded<'a, T>(
    buffer: &'a [u8],
    decode: impl FnOnce(&'a [u8]) -> Result<T, WireError>,
) -> Result<T, NtStatus> {
    if buffer.len() < NAME_STRUCTURE_MIN {
        return Err(NtStatus::INFO_LENGTH_MISMATCH);
    }
    decode(buffer).map_err(|_| NtStatus::INVALID_PARAMETER)
}

/// The new path, from the share's root. Some clients put a backslash in front.
fn target(f: &FileOpen, root_directory: u64, name: Utf16Le<'_>) -> Result<VfsPath, NtStatus> {
    // MS-FSCC 2.4.42.2: zero over the network.
    if root_directory != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let name = name.to_string().map_err(|_| NtStatus::OBJECT_NAME_INVALID)?;
    let name = name.strip_prefix('\\').unwrap_or(&name);
    let parsed = if f.posix { VfsPath::parse_posix(name) } else { VfsPath::parse(name) };
    let path = parsed.map_err(status::of_path)?;
    if path.is_root() { Err(NtStatus::OBJECT_NAME_INVALID) } else { Ok(path) }
}

/// Checks that the user may write to the share.
fn writable_tree(r: &Request) -> Result<(), NtStatus> {
    let ceiling = AccessMask::from_bits_retain(r.tree.maximal_access);
    if ceiling.contains(AccessMask::WRITE_DATA) { Ok(()) } else { Err(NtStatus::ACCESS_DENIED) }
}

async fn rename_to(r: &Request, open: &Open, f: &FileOpen, to: Target) -> Result<(), NtStatus> {
    require(open, AccessMask::DELETE)?;
    writable_tree(r)?;
    loop {
        match try_rename(r, open, f, &to).await {
            Ok(()) => return r.server.store_opens_of(&f.file).await,
            Err(refusal) => wait_for_handles(r, refusal).await?,
        }
    }
}

async fn try_rename(r: &Request, open: &Open, f: &FileOpen, to: &Target) -> Result<(), Refusal> {
    let share = &r.tree.share;
    let vfs = share.vfs().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    let directory = f.node.kind() == Kind::Directory;
    let from = f.file.path_of(open.persistent);
    // The root is not renamed, and no directory is moved into itself.
    if from.is_root() || (directory && to.path.starts_with(&from) && to.path != from) {
        return Err(NtStatus::ACCESS_DENIED.into());
    }
    let (files, id) = (&r.server.files, f.node.id());
    r.contend(f, Operation::Names).await?;
    let mut change = r.server.namespace.begin_rename(share, &f.file, directory).await;
    let from = f.file.path_of(open.persistent);
    change.touch(&from, id);
    change.touch(&to.path, id);
    let folder = check_folder(r, &to.path, directory).await?;
    if f.file.is_delete_pending(open.persistent) {
        return Err(NtStatus::DELETE_PENDING.into());
    }
    // MS-FSA 2.1.5.15.11: a directory with opens below it is not renamed.
    if directory && let Err(open) = change.hold_directory(files, &from, &to.path) {
        drop(change);
        return Err(break_handles(r, open));
    }
    for _ in 0..ATTEMPTS {
        let replaced = check_replaced(r, f, &from, to, folder).await?;
        // After a crash during the rename, persistent opens are restored by the one path or the other.
        f.file.set_renamed_to(Some(to.path.clone()));
        let renamed = match r.server.store_opens_of(&f.file).await {
            Ok(()) => {
                Ok(vfs.rename(&r.ctx(), &from, id, &to.path, to.replace && replaced.is_there()).wait().await)
            }
            Err(status) => Err(status),
        };
        f.file.set_renamed_to(None);
        match renamed? {
            // Created in the meantime: checked like one that existed before.
            Err(VfsError::Exists) if to.replace && !replaced.is_there() => {}
            // A directory is never replaced.
            Err(VfsError::IsDirectory | VfsError::NotEmpty | VfsError::NotDirectory) => break,
            Err(e) => return Err(status::of_vfs(e).into()),
            Ok(()) => {
                // Immediately after the rename: no other operation may run before the paths are updated.
                change.renamed(files, id, &from, &to.path);
                let stored = stored_path(r, id, &to.path).await;
                change.renamed(files, id, &to.path, &stored);
                publish_rename(r, f, &from, &stored, matches!(replaced, Replaced::Another { .. }));
                return Ok(());
            }
        }
    }
    Err(NtStatus::ACCESS_DENIED.into())
}

fn publish_rename(r: &Request, f: &FileOpen, from: &VfsPath, to: &VfsPath, replaced: bool) {
    let kind = f.node.kind();
    let event_kind = EventKind::Renamed { to, kind, replaced };
    r.server.publish(&r.tree.share, &Event { path: from, event_kind, origin: f.origin() });
    // MS-FSA 2.1.5.15.12: sets FILE_ATTRIBUTE_ARCHIVE, which is reported to watches when the file is closed.
    if kind == Kind::File {
        f.file.add_pending_change(CompletionFilter::ATTRIBUTES);
    }
}

/// The path of a file that was just renamed, as the backend stores it: the folders on the path may have a different
/// case than in the client's request, and opens below a folder are found by their path.
async fn stored_path(r: &Request, id: FileKey, path: &VfsPath) -> VfsPath {
    match find(r, path, path.is_exact()).await {
        Ok(opened) if opened.node.id() == id => opened.path,
        _ => path.clone(),
    }
}

/// The file that already has the new name.
enum Replaced<'t> {
    Nothing,
    /// The file that is renamed: the same name in another case, which is no collision for the backend, or another hard
    /// link, which is one.
    Itself,
    /// A file that may be replaced, and is not opened until that is done.
    Another {
        /// `None` when all its opens have POSIX extensions: these stay open, and only the name moves to the other file.
        _claim: Option<Claim<'t>>,
    },
}

impl Replaced<'_> {
    fn is_there(&self) -> bool {
        !matches!(self, Replaced::Nothing)
    }
}

/// Waits until clients have closed handles that they only cache, because of which a name was refused; any other refusal
/// is final. The caller must not hold a `Change`: other requests wait for that.
async fn wait_for_handles(r: &Request, refusal: Refusal) -> Result<(), NtStatus> {
    match refusal {
        Refusal::Retry => Ok(()),
        Refusal::Status(s) => Err(s),
        Refusal::Contended { file, contention, status } => {
            r.server.send_breaks(&file, &contention.notices);
            if contention.wait_until.is_none() {
                r.server.store_lost_caching(&file).await?;
                return Err(status);
            }
            r.wait_for_breaks(&file, &contention).await
        }
    }
}

/// MS-FSA 2.1.4.2: files below a directory that is to be renamed are open. Breaks the caching of their handles; the
/// refusal is final when they stay open. As for [`wait_for_handles`], the caller must not hold a `Change`.
fn break_handles(r: &Request, open: Vec<Arc<FileState>>) -> Refusal {
    let now = r.server.env.moment();
    let mut refusal = Refusal::Status(NtStatus::ACCESS_DENIED);
    for file in open {
        let mut contention = file.contend(None, None, Operation::Names, now);
        r.server.send_breaks(&file, &std::mem::take(&mut contention.notices));
        if contention.wait_until.is_some() {
            refusal = Refusal::Contended { file, contention, status: NtStatus::ACCESS_DENIED };
        }
    }
    refusal
}

/// Checks that the user may create a child in the folder of the new name. Returns the user's maximal access to the
/// folder.
async fn check_folder(r: &Request, path: &VfsPath, directory: bool) -> Result<AccessMask, Refusal> {
    let status = Refusal::Status;
    let folder = path.parent().ok_or(status(NtStatus::OBJECT_NAME_INVALID))?;
    let needed = if directory { AccessMask::APPEND_DATA } else { AccessMask::WRITE_DATA };
    match find(r, &folder, false).await {
        Ok(found) if found.stat.kind == Kind::Directory => {
            access::check_traversal(r, &found).map_err(status)?;
            // The target of a reparse point is elsewhere.
            if found.stat.attributes.contains(Attributes::REPARSE_POINT) {
                return Err(status(NtStatus::DIRECTORY_IS_A_REPARSE_POINT));
            }
            let descriptor = access::descriptor(r, &found.node, &found.stat).await.map_err(status)?;
            let allowed = access::maximal(&r.session.user, descriptor.as_deref());
            if !allowed.contains(needed) {
                return Err(status(NtStatus::ACCESS_DENIED));
            }
            // MS-FSA 2.1.5.15.12: the folder is open during the rename, to add an entry. As in <185> it is not shared for
            // DELETE, which prevents its removal.
            let held = ShareMode { access: needed, share: ShareAccess::READ | ShareAccess::WRITE };
            r.server.files.admits(found.node.id(), held, r.server.env.moment())?;
            Ok(allowed)
        }
        Ok(_) | Err(VfsError::NotFound | VfsError::NotDirectory) => {
            Err(status(NtStatus::OBJECT_PATH_NOT_FOUND))
        }
        Err(e) => Err(status(crate::status::of_vfs(e))),
    }
}

/// Checks the file that already has the new name (MS-FSA 2.1.5.15.11). The renamed file itself in another case is
/// allowed. A directory, a read-only file or an open file is not replaced; a handle that a client only caches is
/// closed first. The claim prevents opens until the file is replaced. `folder` is the user's access to the folder: the
/// right to delete its children includes the right to replace them. `from` is the renamed file's own name.
async fn check_replaced<'r>(
    r: &'r Request,
    f: &FileOpen,
    from: &VfsPath,
    to: &Target,
    folder: AccessMask,
) -> Result<Replaced<'r>, Refusal> {
    let (path, node, stat) = match find(r, &to.path, to.path.is_exact()).await {
        Ok(found) => (found.path, found.node, found.stat),
        Err(VfsError::NotFound) => return Ok(Replaced::Nothing),
        Err(e) => return Err(status::of_vfs(e).into()),
    };
    if node.id() == f.node.id() {
        // Its other name may be the one that is marked for deletion (its own is not): a close would remove the new name.
        if to.replace && path != *from && f.file.deleted_names() > 0 {
            return Err(NtStatus::DELETE_PENDING.into());
        }
        return Ok(Replaced::Itself);
    }
    if !to.replace {
        return Err(NtStatus::OBJECT_NAME_COLLISION.into());
    }
    let read_only = stat.attributes.contains(Attributes::READONLY) && !to.replace_read_only;
    let denied = NtStatus::ACCESS_DENIED;
    if stat.kind == Kind::Directory || read_only {
        return Err(denied.into());
    }
    let descriptor = access::descriptor(r, &node, &stat).await?;
    let allowed = access::maximal(&r.session.user, descriptor.as_deref());
    if !allowed.contains(AccessMask::DELETE) && !folder.contains(AccessMask::DELETE_CHILD) {
        return Err(denied.into());
    }
    match r.server.files.claim(node.id()) {
        Ok(claim) => Ok(Replaced::Another { _claim: Some(claim) }),
        Err(_) if f.posix && r.server.files.all_posix(node.id()) => Ok(Replaced::Another { _claim: None }),
        Err(file) => {
            let contention = file.contend(None, None, Operation::Names, r.server.env.moment());
            Err(Refusal::Contended { file, contention, status: denied })
        }
    }
}

/// Opens the file at a path, or with `link` the backend's symbolic link itself.
async fn find(r: &Request, path: &VfsPath, link: bool) -> Result<Opened, VfsError> {
    let vfs = r.tree.share.vfs().ok_or(VfsError::Unsupported)?;
    let request = OpenRequest { link, ..OpenRequest::for_metadata(path.clone()) };
    vfs.open(&r.ctx(), request).wait().await
}
