//! POSIX extensions: owner, group and mode; case-sensitive names; names that are removed while a file is open.

use smb_wire::context::{CreateContextsBuf, CreateRequestContext, CreateResponseContext};
use smb_wire::fscc::{
    DispositionFlags, FileDispositionInformationEx, FileInfoClass, FileRenameInformation, FsInfoClass,
    FsPosixInformation, PosixCreateRequest, PosixCreateResponse, PosixDirectoryEntries, PosixInformation,
};
use smb_wire::msg::{QueryDirectoryRequest, QueryDirectoryResponse, SecurityInformation};
use smb_wire::security::{Ace, AceFlags, AceType, AclBuf, ControlFlags, SecurityDescriptorBuf};

use super::*;
use crate::access::nfs;

/// A world whose share is a directory, and whose connection has the extensions.
fn world_on(dir: &std::path::Path) -> World {
    let w = World::new();
    let vfs = vfs::HostDir::open(dir, vfs::HostDirOptions::default()).expect("a directory");
    w.server.add_share(ShareConfig::new("disk", vfs)).expect("another name");
    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("ours");
    let (session, _) = World::connect(&w.server, 77, user(1000));
    let share = w.server.share("disk").expect("added");
    let tree = session.add_tree(2, |id| Tree::new(id, share, ALL.bits())).expect("the second");
    World { server: Arc::clone(&w.server), facts: Arc::clone(&w.facts), session, tree }
}

/// An open to read.
const READ: How = How { access: AccessMask::READ_DATA.union(AccessMask::READ_ATTRIBUTES), ..How::OPEN };

/// Opens with the context; returns the context of the answer.
async fn open(
    w: &World,
    path: &str,
    how: How,
    mode: u32,
) -> Result<(FileId, Option<PosixCreateResponse>), NtStatus> {
    let (mut data, mut contexts) = (Vec::new(), CreateContextsBuf::new());
    PosixCreateRequest { mode }.encode(&mut data);
    contexts.request(&CreateRequestContext::Posix(&data)).expect("short");
    let reply = w.create_with(path, how, OplockLevel::NONE, &contexts).await;
    let a = success::<CreateResponse<'_>>(&reply)?;
    let posix = a.contexts.responses().map(|c| c.expect("ours")).find_map(|c| match c {
        CreateResponseContext::Posix(bytes) => Some(PosixCreateResponse::decode(bytes).expect("ours")),
        _ => None,
    });
    Ok((a.file_id, posix))
}

async fn made(w: &World, path: &str) -> FileId {
    open(w, path, How::CREATE, 0o644).await.unwrap_or_else(|s| panic!("{path}: {s}")).0
}

async fn names(w: &World) -> Vec<(String, u32)> {
    let (root, _) = open(w, "", READ, 0).await.expect("there");
    let pattern = Utf16Buf::from("*");
    let q = QueryDirectoryRequest {
        info_class: FileInfoClass::POSIX.0,
        file_id: root,
        output_buffer_length: 65_536,
        pattern: pattern.as_utf16(),
        ..QueryDirectoryRequest::default()
    };
    let reply = super::super::query_directory::handle(w.request(&q)).await;
    let listed = success::<QueryDirectoryResponse<'_>>(&reply).expect("listed");
    let mut names: Vec<_> = PosixDirectoryEntries::new(listed.buffer)
        .map(|e| e.expect("ours"))
        .map(|e| (e.name.to_string().expect("UTF-16"), e.information.created.mode))
        .filter(|(name, _)| !name.starts_with('.'))
        .collect();
    names.sort();
    w.close(root).await;
    names
}

#[tokio::test]
async fn modes_and_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let w = world_on(dir.path());
    for (name, how, mode, seen) in [
        ("File", How::CREATE, 0o100_640, 0o640),
        ("file", How::CREATE, 0o600, 0o600),
        ("a:b?", How::CREATE, 0o755, 0o755),
        ("folder", How::MKDIR, 0o700, 0o10_700),
    ] {
        let (id, posix) = open(&w, name, how, mode).await.unwrap_or_else(|s| panic!("{name}: {s}"));
        let posix = posix.expect("the context is answered");
        assert_eq!((posix.mode, posix.owner), (seen, w.session.user.sid), "{name}");
        let class = FileInfoClass::POSIX.0;
        let bytes = w.query(id, InfoType::FILE, class).await.expect("known");
        assert_eq!(PosixInformation::decode(&bytes).expect("ours").created, posix);
        w.close(id).await;
    }
    let listed = [("File", 0o640), ("a:b?", 0o755), ("file", 0o600), ("folder", 0o10_700)];
    assert_eq!(names(&w).await, listed.map(|(n, m)| (n.to_owned(), m)));
    assert_eq!(open(&w, "FILE", How::OPEN, 0).await.err(), Some(NtStatus::OBJECT_NAME_NOT_FOUND));
    assert!(w.exists("FILE").await, "without the context case does not count");
    assert!(w.exists("a\u{f022}b\u{f025}").await, "without it the name has other characters");
    let (root, _) = open(&w, "", READ, 0).await.expect("there");
    let bytes = w.query(root, InfoType::FILESYSTEM, FsInfoClass::POSIX.0).await.expect("known");
    assert!(FsPosixInformation::decode(&bytes).expect("ours").total_blocks > 0);
}

/// Linux' chmod: a list with nothing but the mode.
#[tokio::test]
async fn a_mode_that_is_set_decides() {
    let dir = tempfile::tempdir().expect("a directory");
    let w = world_on(dir.path());
    let (id, _) = open(&w, "f", How::CREATE, 0o600).await.expect("free");
    let (session, _) = World::connect(&w.server, 78, user(1001));
    let tree = session.add_tree(2, |id| Tree::new(id, Arc::clone(&w.tree.share), ALL.bits())).expect("fits");
    let other = World { server: Arc::clone(&w.server), facts: Arc::clone(&w.facts), session, tree };
    assert_eq!(other.try_create("f", READ).await.err(), Some(NtStatus::ACCESS_DENIED));
    let mut dacl = AclBuf::new();
    let (none, mode) = (AccessMask::empty(), nfs::mode(0o100_644));
    dacl.push(&Ace::new(AceType::ACCESS_ALLOWED, AceFlags::empty(), none, mode)).expect("one");
    let d = SecurityDescriptorBuf {
        control: ControlFlags::DACL_PRESENT,
        dacl: Some(dacl),
        ..SecurityDescriptorBuf::default()
    };
    let mut buffer = Vec::new();
    d.encode(&mut buffer);
    let q = SetInfoRequest {
        info_type: InfoType::SECURITY,
        file_id: id,
        additional_information: SecurityInformation::DACL,
        buffer: &buffer,
        ..SetInfoRequest::default()
    };
    assert_eq!(super::super::set_info::handle(w.request(&q)).await.status, NtStatus::SUCCESS);
    let (_, posix) =
        open(&w, "f", How { access: AccessMask::READ_ATTRIBUTES, ..How::OPEN }, 0).await.expect("there");
    assert_eq!(posix.expect("answered").mode, 0o644);
    other.try_create("f", READ).await.expect("others may read");
}

#[tokio::test]
async fn only_where_it_was_negotiated() {
    let mut w = World::new();
    Arc::get_mut(&mut w.facts).expect("alone").posix = false;
    let (id, posix) = open(&w, "f", How::CREATE, 0o600).await.expect("an ordinary file");
    assert_eq!(posix, None);
    assert_eq!(w.query(id, InfoType::FILE, FileInfoClass::POSIX.0).await, Err(NtStatus::INVALID_INFO_CLASS));
    assert_eq!(open(&w, "a:b:c", How::CREATE, 0o600).await.err(), Some(NtStatus::OBJECT_NAME_INVALID));
}

async fn unlink(w: &World, path: &str) {
    let (id, _) = open(w, path, How { access: AccessMask::DELETE, ..How::OPEN }, 0).await.expect("there");
    let mut buffer = Vec::new();
    FileDispositionInformationEx { flags: DispositionFlags::DELETE }.encode(&mut buffer);
    assert_eq!(w.set(id, FileInfoClass::DISPOSITION_EX.0, &buffer).await, NtStatus::SUCCESS);
    w.close(id).await;
}

#[tokio::test]
async fn a_name_goes_while_the_file_is_open() {
    let dir = tempfile::tempdir().expect("a directory");
    let w = world_on(dir.path());
    let first = made(&w, "f").await;
    unlink(&w, "f").await;
    assert!(!dir.path().join("f").exists());
    // The name is free; closing the old file does not remove the new one.
    let second = made(&w, "f").await;
    w.close(first).await;
    w.close(second).await;
    assert!(dir.path().join("f").exists());
    assert_eq!(w.server.files.open_files(), 0);
    // An open without the extensions keeps the name.
    let plain = w.create("f", READ).await;
    unlink(&w, "f").await;
    assert_eq!(open(&w, "f", READ, 0).await.err(), Some(NtStatus::DELETE_PENDING));
    w.close(plain).await;
    assert!(!dir.path().join("f").exists());
}

#[tokio::test]
async fn a_rename_replaces_an_open_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let w = world_on(dir.path());
    let mut buffer = Vec::new();
    let name = Utf16Buf::from("onto");
    let q = FileRenameInformation { replace_if_exists: true, name: name.as_utf16(), ..Default::default() };
    q.encode(&mut buffer).expect("short");
    let (from, onto) = (made(&w, "from").await, made(&w, "onto").await);
    assert_eq!(w.set(from, FileInfoClass::RENAME.0, &buffer).await, NtStatus::SUCCESS);
    w.close(onto).await;
    w.close(from).await;
    assert_eq!(names(&w).await, [("onto".to_owned(), 0o644)]);
    // A file that is open without the extensions is not replaced.
    let (from, onto) = (made(&w, "from").await, w.create("onto", READ).await);
    assert_eq!(w.set(from, FileInfoClass::RENAME.0, &buffer).await, NtStatus::ACCESS_DENIED);
    w.close(onto).await;
}

/// A symbolic link of the host: a Linux client sees the link and its target path, other clients see the target file.
#[tokio::test]
async fn links_of_the_host() {
    use smb_wire::msg::{CreateOptions, ErrorResponse, SymlinkError};
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().expect("a directory");
    let w = world_on(dir.path());
    std::fs::write(dir.path().join("file"), "data").expect("room");
    for (to, name) in [("file", "link"), ("../out/side", "dangling"), ("/etc/passwd", "absolute")] {
        symlink(to, dir.path().join(name)).expect("room");
        // MS-SMB2 2.2.2.2.1: the target's text is sent to the client unchanged.
        let (mut data, mut contexts) = (Vec::new(), CreateContextsBuf::new());
        PosixCreateRequest { mode: 0 }.encode(&mut data);
        contexts.request(&CreateRequestContext::Posix(&data)).expect("short");
        let reply = w.create_with(name, READ, OplockLevel::NONE, &contexts).await;
        assert_eq!(reply.status, NtStatus::STOPPED_ON_SYMLINK, "{name}");
        let error = ErrorResponse::decode(&reply.message).expect("ours");
        let context = error.contexts().next().expect("one").expect("ours");
        let link = SymlinkError::decode(context.data).expect("ours").link;
        assert_eq!(link.substitute_name.to_string().as_deref(), Ok(to), "{name}");
        assert_eq!(link.relative, !to.starts_with('/'), "{name}");
    }
    let listed = [("absolute", 0o20_777), ("dangling", 0o20_777), ("file", 0o644), ("link", 0o20_777)];
    let names = names(&w).await;
    assert_eq!(names.iter().map(|(n, _)| &**n).collect::<Vec<_>>(), listed.map(|(n, _)| n));
    for ((name, mode), (_, wanted)) in names.iter().zip(listed).filter(|((n, _), _)| n != "file") {
        assert_eq!(*mode, wanted, "{name}");
    }
    // Without the extensions, and without FILE_OPEN_REPARSE_POINT, the server follows links that stay inside the share.
    assert!(w.exists("link").await);
    let inside = w.create("link", READ).await;
    let itself = How { options: CreateOptions::OPEN_REPARSE_POINT, ..READ };
    let link = w.create("link", itself).await;
    let number = async |id| w.query(id, InfoType::FILE, FileInfoClass::INTERNAL.0).await.expect("known");
    assert_ne!(number(inside).await, number(link).await);
    assert_eq!(w.try_create("absolute", READ).await.err(), Some(NtStatus::ACCESS_DENIED));
    assert_eq!(w.try_create("dangling", READ).await.err(), Some(NtStatus::ACCESS_DENIED));
    w.close(inside).await;
    w.close(link).await;
    // The link is removed, not the file. A user who may delete in the folder may delete a link.
    let access = AccessMask::DELETE | AccessMask::READ_ATTRIBUTES;
    let how = How { access, options: itself.options | CreateOptions::DELETE_ON_CLOSE, ..READ };
    for name in ["link", "dangling", "absolute"] {
        w.close(w.create(name, how).await).await;
        assert!(std::fs::symlink_metadata(dir.path().join(name)).is_err(), "{name}");
    }
    assert_eq!(std::fs::read(dir.path().join("file")).expect("there"), b"data");
}
