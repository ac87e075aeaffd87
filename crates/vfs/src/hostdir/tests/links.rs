//! Changes of names where some of them are symbolic links.

use std::os::unix::fs::symlink;

use super::*;

/// `file` with "data", and links to it, directly and by another link.
fn linked() -> (tempfile::TempDir, Arc<HostDir>) {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("d")).expect("room");
    std::fs::write(dir.path().join("file"), "data").expect("room");
    symlink("file", dir.path().join("link")).expect("a link");
    symlink("link", dir.path().join("chain")).expect("a link");
    symlink("../file", dir.path().join("d/up")).expect("a link");
    let vfs = tree(dir.path());
    (dir, vfs)
}

/// A link in the place of what it leads to would lead to itself, and the data be gone.
#[tokio::test]
async fn a_link_is_not_renamed_onto_its_target() {
    let (dir, vfs) = linked();
    let c = Ctx::default();
    let id = existing(&*vfs, "file").await.node.id();
    for (from, to) in [
        ("link", "file"),
        ("chain", "file"),
        ("chain", "link"),
        ("d\\up", "file"),
        ("file", "link"),
        ("link", "FILE"),
    ] {
        for replace in [false, true] {
            let done = vfs.rename(&c, &path(from), id, &path(to), replace).wait().await;
            assert_eq!(done, Err(VfsError::Exists), "{from} to {to}, {replace}");
        }
    }
    for name in ["file", "link", "chain", "d/up"] {
        assert_eq!(std::fs::read(dir.path().join(name)).expect("there"), b"data", "{name}");
    }
    // Another file is replaced by a link as by any file, and a link by another file.
    std::fs::write(dir.path().join("other"), "1").expect("room");
    vfs.rename(&c, &path("link"), id, &path("other"), true).wait().await.expect("another file");
    assert_eq!(std::fs::read(dir.path().join("other")).expect("there"), b"data");
    symlink("nowhere", dir.path().join("dangling")).expect("a link");
    vfs.rename(&c, &path("other"), id, &path("dangling"), true).wait().await.expect("a link to nothing");
    assert_eq!(std::fs::read(dir.path().join("dangling")).expect("there"), b"data");
}
