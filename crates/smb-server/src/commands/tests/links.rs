//! Deletion of one of several names of a file, and while the file is open (MS-FSA 2.1.5.1, 2.1.5.5, 2.1.5.15.4).

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use smb_wire::fscc::{
    DispositionFlags, FileDispositionInformationEx, FileInfoClass, FileStandardInformation,
};

use super::notifying::hosted;
use super::renaming::link;
use super::*;

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
