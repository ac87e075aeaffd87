//! Deletion of one of several names of a file, and while the file is open (MS-FSA 2.1.5.1, 2.1.5.5, 2.1.5.15.4).

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use env::{Ctx, Io};
use futures_util::future::poll_immediate;
use smb_wire::context::CreateRequestContext;
use smb_wire::fscc::{
    DispositionFlags, FileDispositionInformationEx, FileInfoClass, FileRenameInformation,
    FileStandardInformation, PosixCreateRequest,
};
use vfs::{FileKey, OpenRequest, Opened, Space, Vfs, VfsPath, VfsResult, VolumeInfo};

use super::notifying::hosted;
use super::renaming::link;
use super::*;

/// A backend that reports that a removal ends the opens of the file.
struct Destroying {
    inner: Arc<dyn Vfs>,
    info: VolumeInfo,
}

impl Vfs for Destroying {
    fn info(&self) -> &VolumeInfo {
        &self.info
    }

    fn space(&self, c: &Ctx) -> Io<VfsResult<Space>> {
        self.inner.space(c)
    }

    fn open(&self, c: &Ctx, request: OpenRequest) -> Io<VfsResult<Opened>> {
        self.inner.open(c, request)
    }

    fn remove(&self, c: &Ctx, path: &VfsPath, id: FileKey) -> Io<VfsResult<()>> {
        self.inner.remove(c, path, id)
    }

    fn rename(&self, c: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>> {
        self.inner.rename(c, from, id, to, replace)
    }

    fn link(&self, c: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>> {
        self.inner.link(c, from, id, to, replace)
    }
}

/// A share that keeps its files in memory or in a directory; its user has no POSIX extensions.
fn worlds(directory: &Path) -> [World; 2] {
    std::fs::set_permissions(directory, Permissions::from_mode(0o777)).expect("ours");
    [World::new(), hosted(World::new(), directory)].map(|mut w| {
        Arc::get_mut(&mut w.facts).expect("alone").posix = false;
        w
    })
}

async fn mark(w: &World, id: FileId, flags: DispositionFlags) {
    let mut buffer = Vec::new();
    FileDispositionInformationEx { flags }.encode(&mut buffer);
    assert_eq!(w.set(id, FileInfoClass::DISPOSITION_EX.0, &buffer).await, NtStatus::SUCCESS);
}

async fn standard(w: &World, id: FileId) -> (u32, bool) {
    let bytes = w.query(id, InfoType::FILE, FileInfoClass::STANDARD.0).await.expect("open");
    let standard = FileStandardInformation::decode(&bytes).expect("our own answer");
    (standard.number_of_links, standard.delete_pending)
}

/// A file with the names `a` and `b`.
async fn two_names(w: &World) {
    let id = w.create("a", How::CREATE).await;
    assert_eq!(link(w, id, "b", false).await, NtStatus::SUCCESS);
    w.close(id).await;
}

#[tokio::test]
async fn only_the_marked_name_is_deleted() {
    let directory = tempfile::tempdir().expect("a directory");
    for w in worlds(directory.path()) {
        two_names(&w).await;
        let (a, b) = (w.create("a", How::OPEN).await, w.create("b", How::OPEN).await);
        mark(&w, a, DispositionFlags::DELETE).await;
        assert_eq!((standard(&w, a).await, standard(&w, b).await), ((1, true), (1, false)));
        assert_eq!(w.try_create("a", How::OPEN).await, Err(NtStatus::DELETE_PENDING));
        assert!(w.exists("b").await, "this name is not marked");
        assert_eq!(link(&w, b, "c", false).await, NtStatus::SUCCESS);
        w.close(a).await;
        assert!(!w.exists("a").await && w.exists("b").await, "although the file is open");
        w.close(b).await;
        assert!(w.exists("b").await && w.exists("c").await);
        assert_eq!(w.server.files.open_files(), 0);
    }
}

#[tokio::test]
async fn both_names_are_deleted() {
    let directory = tempfile::tempdir().expect("a directory");
    let on_close = How { options: CreateOptions::DELETE_ON_CLOSE, ..How::OPEN };
    for w in worlds(directory.path()) {
        for how in [How::OPEN, on_close] {
            two_names(&w).await;
            let (a, b) = (w.create("a", how).await, w.create("b", how).await);
            if how.options.is_empty() {
                mark(&w, b, DispositionFlags::DELETE).await;
                mark(&w, a, DispositionFlags::DELETE).await;
                assert_eq!(standard(&w, a).await, (0, true));
            }
            w.close(a).await;
            assert!(!w.exists("a").await);
            w.close(b).await;
            assert!(!w.exists("b").await);
            assert_eq!(w.server.files.open_files(), 0);
        }
    }
}

#[tokio::test]
async fn posix_semantics() {
    let directory = tempfile::tempdir().expect("a directory");
    let posix = DispositionFlags::DELETE | DispositionFlags::POSIX_SEMANTICS;
    for w in worlds(directory.path()) {
        let first = w.create("f", How::CREATE).await;
        let (second, third) = (w.create("f", How::OPEN).await, w.create("f", How::OPEN).await);
        mark(&w, second, posix).await;
        assert_eq!(w.try_create("f", How::OPEN).await, Err(NtStatus::DELETE_PENDING));
        w.close(first).await;
        assert_eq!(w.try_create("f", How::OPEN).await, Err(NtStatus::DELETE_PENDING));
        w.close(second).await;
        assert!(!w.exists("f").await);
        // The name is free, and the open that remains is not concerned.
        let new = w.create("f", How::CREATE).await;
        assert_eq!(w.flush(third).await, NtStatus::SUCCESS);
        w.close(third).await;
        w.close(new).await;
        assert!(w.exists("f").await);
        assert_eq!(w.server.files.open_files(), 0);
        // Another mark replaces this one: the name stays until its last open is closed.
        let (first, second) = (w.create("f", How::OPEN).await, w.create("f", How::OPEN).await);
        mark(&w, first, posix).await;
        mark(&w, first, DispositionFlags::DELETE).await;
        w.close(first).await;
        assert_eq!(w.try_create("f", How::OPEN).await, Err(NtStatus::DELETE_PENDING));
        w.close(second).await;
        assert!(!w.exists("f").await);
    }
}

// A removal would end the other opens of the file: it waits until they are closed.
#[tokio::test]
async fn posix_semantics_where_a_removal_ends_opens() {
    let env = Env::simulated(7);
    let inner = RamFs::new(&env, RamOptions::default()).expect("address space");
    let info = VolumeInfo { removal_keeps_opens: false, ..inner.info().clone() };
    let w = World::on(env, ShareConfig::new("files", Arc::new(Destroying { inner, info })), None, 1);
    // The mode grants no other rights.
    let how = How { access: AccessMask::DELETE | AccessMask::READ_ATTRIBUTES, ..How::OPEN_IF };
    let posix = DispositionFlags::DELETE | DispositionFlags::POSIX_SEMANTICS;
    let (mut data, mut contexts) = (Vec::new(), CreateContextsBuf::new());
    PosixCreateRequest { mode: 0o644 }.encode(&mut data);
    contexts.request(&CreateRequestContext::Posix(&data)).expect("short");
    for (contexts, flags) in [(CreateContextsBuf::new(), posix), (contexts, DispositionFlags::DELETE)] {
        let open = async || {
            let reply = w.create_with("f", how, OplockLevel::NONE, &contexts).await;
            success::<CreateResponse<'_>>(&reply).expect("opened").file_id
        };
        let (first, second) = (open().await, open().await);
        mark(&w, first, flags).await;
        w.close(first).await;
        assert_eq!(w.try_create("f", how).await, Err(NtStatus::DELETE_PENDING));
        w.close(second).await;
        assert!(!w.exists("f").await);
    }
}

// One link may have several paths: the file stays until its last open is closed.
#[tokio::test]
async fn a_symbolic_link_to_the_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let [_, w] = worlds(directory.path());
    w.close(w.create("d", How::MKDIR).await).await;
    std::os::unix::fs::symlink("d", directory.path().join("l")).expect("ours");
    let on_close = How { options: CreateOptions::DELETE_ON_CLOSE, ..How::OPEN };
    for kind in [How::CREATE, How::MKDIR] {
        for how in [How::OPEN, on_close] {
            w.close(w.create("d\\f", kind).await).await;
            let (first, second) = (w.create("d\\f", how).await, w.create("l\\f", How::OPEN).await);
            if how.options.is_empty() {
                mark(&w, first, DispositionFlags::DELETE).await;
            }
            w.close(first).await;
            assert!(directory.path().join("d/f").exists(), "it is open");
            assert_eq!(w.try_create("l\\f", How::OPEN).await, Err(NtStatus::DELETE_PENDING));
            w.close(second).await;
            assert!(!directory.path().join("d/f").exists());
            assert_eq!(w.server.files.open_files(), 0);
        }
    }
}

// The new name would be removed in place of the one that was marked.
#[tokio::test]
async fn a_marked_name_is_not_replaced_by_another_of_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    for w in worlds(directory.path()) {
        two_names(&w).await;
        let (a, b) = (w.create("a", How::OPEN).await, w.create("b", How::OPEN).await);
        mark(&w, b, DispositionFlags::DELETE).await;
        let (name, mut bytes) = (Utf16Buf::from("b"), Vec::new());
        let q = FileRenameInformation { replace_if_exists: true, root_directory: 0, name: name.as_utf16() };
        q.encode(&mut bytes).expect("fits");
        assert_eq!(w.set(a, FileInfoClass::RENAME.0, &bytes).await, NtStatus::DELETE_PENDING);
        assert_eq!(link(&w, a, "b", true).await, NtStatus::DELETE_PENDING);
        w.close(b).await;
        assert!(w.exists("a").await && !w.exists("b").await);
        assert_eq!(w.set(a, FileInfoClass::RENAME.0, &bytes).await, NtStatus::SUCCESS);
        w.close(a).await;
        assert!(!w.exists("a").await && w.exists("b").await);
    }
}

// The file has one name when it is opened to be deleted, and gets another one before that.
#[tokio::test]
async fn a_name_is_added_before_the_other_is_deleted() {
    let w = World::new();
    w.close(w.create("a", How::CREATE).await).await;
    let on_close = How { options: CreateOptions::DELETE_ON_CLOSE, ..How::OPEN };
    let (a, other) = (w.create("a", on_close).await, w.create("a", How::OPEN).await);
    assert_eq!(link(&w, other, "b", false).await, NtStatus::SUCCESS);
    w.close(other).await;
    let b = w.create("b", How::OPEN).await;
    w.close(a).await;
    assert!(!w.exists("a").await && w.exists("b").await);
    w.close(b).await;
}

// A removal waits for a rename of the file that runs, and removes the new name.
#[tokio::test]
async fn a_removal_during_a_rename() {
    let w = World::new();
    let id = w.create("f", How { options: CreateOptions::DELETE_ON_CLOSE, ..How::CREATE }).await;
    let open = w.server.opens.find(id.persistent).expect("there");
    let (file, share) = (&open.file().expect("a file").file, w.server.share("files").expect("there"));
    let (from, to) = ["f", "g"].map(|name| VfsPath::parse(name).expect("legal")).into();
    let change = w.server.namespace.begin_rename(&share, file, false).await;
    let mut closing = Box::pin(w.close(id));
    for _ in 0..20 {
        assert!(poll_immediate(&mut closing).await.is_none());
        tokio::task::yield_now().await;
    }
    let vfs = share.vfs().expect("a disk");
    vfs.rename(&Ctx::default(), &from, file.id(), &to, false).wait().await.expect("renamed");
    change.renamed(&w.server.files, file.id(), &from, &to);
    drop(change);
    closing.await;
    assert!(!w.exists("g").await);
    assert_eq!(w.server.files.open_files(), 0);
}
