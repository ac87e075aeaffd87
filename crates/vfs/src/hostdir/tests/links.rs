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

/// A link that replaced its target would point to itself, and the data would be lost.
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

/// A hard link to a symbolic link is a hard link to its target.
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

/// A crash between the two steps of a replacing link leaves a temporary name. The next call works nevertheless, and
/// removes the name only if it refers to the same file.
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

/// Opens a link itself.
async fn itself(vfs: &dyn Vfs, path: VfsPath) -> VfsResult<Opened> {
    let rights = Rights { read: true, write: false };
    let request = OpenRequest { path, link: true, rights, ..request("", OpenMode::Open, None) };
    vfs.open(&Ctx::default(), request).wait().await
}

/// The target from the data of the reparse point (MS-FSCC 2.1.2.4): the text, and whether it is relative.
async fn target(opened: &Opened) -> (String, bool) {
    let point = opened.node.reparse_point(&Ctx::default()).wait().await.expect("readable").expect("a link");
    assert_eq!((point.tag, point.tag), (0xA000_000C, opened.stat.reparse.tag));
    let length = usize::from(u16::from_le_bytes([point.data[2], point.data[3]]));
    let units = point.data[12..12 + length].chunks(2).map(|c| u16::from_le_bytes([c[0], c[1]]));
    (String::from_utf16(&units.collect::<Vec<_>>()).expect("text"), point.data[8] == 1)
}

/// MS-FSA 2.1.5.1: with FILE_OPEN_REPARSE_POINT it is the link that is opened, moved and removed.
#[tokio::test]
async fn a_link_itself() {
    let (dir, vfs) = linked();
    let c = Ctx::default();
    symlink("nowhere/far", dir.path().join("dangling")).expect("a link");
    symlink("../outside", dir.path().join("out")).expect("a link");
    symlink("/etc/passwd", dir.path().join("absolute")).expect("a link");
    for (name, to, relative) in [
        ("link", "file", true),
        ("chain", "link", true),
        ("D\\UP", "..\\file", true),
        ("dangling", "nowhere\\far", true),
        ("out", "..\\outside", true),
        ("absolute", "/etc/passwd", false),
    ] {
        let opened = itself(&*vfs, path(name)).await.expect("there");
        assert_eq!(target(&opened).await, (to.to_owned(), relative), "{name}");
        assert_eq!((opened.stat.kind, opened.stat.size), (Kind::File, 0), "{name}");
        assert!(opened.stat.attributes.contains(Attributes::REPARSE_POINT), "{name}");
        assert_eq!(opened.node.stat(&c).wait().await.expect("there").id, opened.node.id());
        let denied = opened.node.set_len(&c, 0).wait().await;
        assert_eq!(denied, Err(VfsError::Unsupported), "{name}");
    }
    assert!(itself(&*vfs, path("file")).await.expect("there").stat.reparse.tag == 0, "no link");
    assert_eq!(refusal(&*vfs, "out").await, Some(VfsError::Escapes), "followed it is as ever");
    assert_ne!(
        itself(&*vfs, path("link")).await.expect("there").node.id(),
        existing(&*vfs, "link").await.node.id()
    );
    // A link to a directory is an empty directory.
    symlink("d", dir.path().join("folder")).expect("a link");
    let folder = itself(&*vfs, path("folder")).await.expect("there");
    assert_eq!((folder.stat.kind, folder.node.kind()), (Kind::Directory, Kind::Directory));
    assert_eq!(folder.node.is_empty(&c).wait().await, Ok(true));
    let exact = itself(&*vfs, VfsPath::parse_posix("folder").expect("legal")).await.expect("there");
    assert_eq!((exact.stat.kind, exact.node.id()), (Kind::File, folder.node.id()));
    vfs.remove(&c, &path("folder"), folder.node.id()).wait().await.expect("removed");
    // Moved and removed by its own identity.
    for name in ["link", "dangling", "out", "absolute"] {
        let id = itself(&*vfs, path(name)).await.expect("there").node.id();
        assert_eq!(
            vfs.link(&c, &path(name), id, &path("hard"), false).wait().await,
            Err(VfsError::Unsupported)
        );
        vfs.rename(&c, &path(name), id, &path("d\\moved"), false).wait().await.expect("moved");
        assert!(std::fs::symlink_metadata(dir.path().join("d/moved")).expect("there").is_symlink());
        assert_eq!(vfs.remove(&c, &path("file"), id).wait().await, Err(VfsError::Stale));
        vfs.remove(&c, &path("d\\moved"), id).wait().await.expect("removed");
        assert!(std::fs::symlink_metadata(dir.path().join("d/moved")).is_err());
    }
    assert_eq!(std::fs::read(dir.path().join("file")).expect("there"), b"data");
}

/// A listing by an exact path shows links; any other listing shows their targets.
#[tokio::test]
async fn links_in_listings() {
    let (dir, vfs) = linked();
    let c = Ctx::default();
    symlink("nowhere", dir.path().join("dangling")).expect("a link");
    symlink("..", dir.path().join("out")).expect("a link");
    let listed = async |path: VfsPath| {
        let request = OpenRequest { path, ..request("", OpenMode::Open, None) };
        let root = vfs.open(&c, request).wait().await.expect("there").node;
        let entries = root.list(&c, true, 100).wait().await.expect("listed");
        let mut names: Vec<_> = entries.into_iter().map(|e| (e.name, e.stat.reparse.tag != 0)).collect();
        names.sort();
        names
    };
    let names = |all: &[(&str, bool)]| all.iter().map(|(n, l)| ((*n).to_owned(), *l)).collect::<Vec<_>>();
    let followed = names(&[("chain", false), ("d", false), ("file", false), ("link", false)]);
    assert_eq!(listed(path("")).await, followed);
    let exact = VfsPath::parse_posix("").expect("the root");
    let all =
        [("chain", true), ("d", false), ("dangling", true), ("file", false), ("link", true), ("out", true)];
    assert_eq!(listed(exact).await, names(&all));
}

/// A link to a folder whose name clients cannot see: clients can open its files through the link.
#[tokio::test]
async fn a_link_to_a_folder_whose_name_is_no_text() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().expect("a directory");
    let target = std::ffi::OsStr::from_bytes(b"m\xFFsic");
    std::fs::create_dir(dir.path().join(target)).expect("room");
    std::fs::write(dir.path().join(target).join("f"), "data").expect("room");
    symlink(target, dir.path().join("music")).expect("a link");
    let vfs = tree(dir.path());
    assert_eq!(read(&*existing(&*vfs, "music\\f").await.node, 10).await, b"data");
    assert!(open(&*vfs, "music\\g", OpenMode::OpenOrCreate).await.expect("free").created);
}
