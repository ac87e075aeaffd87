//! Changes of names where some of them are symbolic links.

use std::os::unix::fs::symlink;

use super::*;
use crate::hostdir::visible::TEMPORARY;

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

/// A second name of a link is one of the file that it leads to.
#[tokio::test]
async fn a_link_to_a_link_is_one_to_the_file() {
    let (dir, vfs) = linked();
    let c = Ctx::default();
    let file = existing(&*vfs, "file").await;
    vfs.link(&c, &path("chain"), file.node.id(), &path("d\\second"), false).wait().await.expect("free");
    assert!(std::fs::symlink_metadata(dir.path().join("d/second")).expect("there").is_file());
    assert_eq!(existing(&*vfs, "d\\second").await.stat.links, 2);
    vfs.link(&c, &path("link"), file.node.id(), &path("link"), true).wait().await.expect("in its own place");
    assert!(std::fs::symlink_metadata(dir.path().join("link")).expect("there").is_file());
    assert_eq!(std::fs::read(dir.path().join("link")).expect("there"), b"data");
    symlink("d", dir.path().join("to directory")).expect("a link");
    let id = existing(&*vfs, "d").await.node.id();
    let linked = vfs.link(&c, &path("to directory"), id, &path("x"), false).wait().await;
    assert_eq!(linked, Err(VfsError::IsDirectory));
}

/// What a crash left between the two steps of a replacing link is no obstacle, nor is it taken for rubbish unseen.
#[tokio::test]
async fn names_left_by_a_crash() {
    use std::os::unix::fs::MetadataExt;
    let (dir, vfs) = linked();
    let (c, at) = (Ctx::default(), |name: &str| dir.path().join(name));
    std::fs::write(at("old"), "old").expect("room");
    let number = |name: &str| std::fs::metadata(at(name)).expect("there").ino();
    let beside = |n| format!("{TEMPORARY}link-{:016x}-{:016x}-{n}", number("file"), number("."));
    std::fs::write(at(&beside(0)), "somebody's").expect("room");
    std::fs::hard_link(at("file"), at(&beside(1))).expect("a name");
    let id = existing(&*vfs, "file").await.node.id();
    vfs.link(&c, &path("file"), id, &path("old"), true).wait().await.expect("replaced");
    assert_eq!(std::fs::read(at("old")).expect("there"), b"data");
    assert_eq!(std::fs::read(at(&beside(0))).expect("not ours"), b"somebody's");
    assert!(!at(&beside(1)).exists());
}
