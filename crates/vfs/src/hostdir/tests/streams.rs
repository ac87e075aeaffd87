//! The storage of named streams, and their state after a crash or another program's changes.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use env::Ctx;
use rustix::fs::{Mode, OFlags, XattrFlags};

use super::{existing, listed, open, path, payload, read, refusal, request, tree};
use crate::hostdir::streams::{KEPT, store::Store};
use crate::{HostDir, HostDirOptions, Node, OpenMode, StreamName, Vfs, VfsError, VfsResult};

/// Too long for a record.
const LARGE: [u8; 5000] = [7; 5000];
const STORE: &str = ".causeway-streams";
const PREFIX: &str = "user.causeway.stream.";
const SINCE: &str = "user.causeway.orphan-since";

fn name(text: &str) -> StreamName {
    StreamName::new(text).expect("a legal name")
}

async fn stream(vfs: &dyn Vfs, file: &str, stream: &str, mode: OpenMode) -> VfsResult<Arc<dyn Node>> {
    let request = crate::OpenRequest { stream: Some(name(stream)), ..request(file, mode, None) };
    Ok(vfs.open(&Ctx::default(), request).wait().await?.node)
}

async fn put(vfs: &dyn Vfs, file: &str, at: &str, bytes: &[u8]) -> Arc<dyn Node> {
    let node = stream(vfs, file, at, OpenMode::OpenOrCreate).await.expect("room");
    node.write(&Ctx::default(), 0, payload(bytes)).wait().await.expect("room");
    node
}

async fn expect(vfs: &dyn Vfs, file: &str, at: &str, bytes: &[u8]) {
    let node = stream(vfs, file, at, OpenMode::Open).await.unwrap_or_else(|e| panic!("{file}:{at}: {e}"));
    assert_eq!(read(&*node, 100_000).await, bytes, "{file}:{at}");
}

/// A directory on a file system with `user.*` attributes.
fn directory() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().expect("a directory");
    if rustix::fs::setxattr(dir.path(), "user.try", b"1", XattrFlags::empty()).is_err() {
        eprintln!("SKIPPED: no extended attributes here");
        return None;
    }
    Some(dir)
}

/// The sidecars.
fn sidecars(dir: &Path) -> Vec<PathBuf> {
    let Ok(all) = std::fs::read_dir(dir.join(STORE)) else { return Vec::new() };
    all.map(|e| e.expect("an entry").path()).collect()
}

/// The attributes of streams.
fn records(file: &Path) -> Vec<String> {
    let mut names = vec![0; 4096];
    let n = rustix::fs::listxattr(file, &mut names[..]).expect("attributes");
    let all = names[..n].split(|b| *b == 0).map(|n| String::from_utf8_lossy(n).into_owned());
    all.filter(|n| n.starts_with(PREFIX)).collect()
}

/// Collects orphans like a start of the server. `None` if the system does not let this process find them.
fn collect(dir: &Path, vfs: &HostDir) -> Option<usize> {
    let top = rustix::fs::open(dir, OFlags::PATH, Mode::empty()).expect("there");
    let store =
        Store::open(top.as_fd(), vfs.tree.info.volume, false).expect("it opens").expect("there is one");
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: orphans are not found without CAP_DAC_READ_SEARCH");
        return None;
    }
    Some(store.collect(Duration::ZERO))
}

#[tokio::test]
async fn small_ones_are_attributes_and_large_ones_hidden_files() {
    let Some(dir) = directory() else { return };
    let vfs = tree(dir.path());
    put(&*vfs, "f", "small", b"[ZoneTransfer]\r\nZoneId=3").await;
    assert!(!dir.path().join(STORE).exists(), "no directory for small streams");
    put(&*vfs, "f", "large", &LARGE).await;
    assert_eq!(records(&dir.path().join("f")).len(), 2);
    assert_eq!(sidecars(dir.path()).len(), 1);
    assert_eq!(std::fs::read(&sidecars(dir.path())[0]).expect("there"), LARGE);
    assert_eq!(listed(&*vfs, "").await, ["f"]);
    for hidden in [STORE, ".Causeway-Streams"] {
        assert_eq!(refusal(&*vfs, hidden).await, Some(VfsError::NotFound));
        assert_eq!(refusal(&*vfs, &format!("{hidden}\\x")).await, Some(VfsError::PathNotFound));
        assert!(open(&*vfs, hidden, OpenMode::OpenOrCreate).await.is_err());
        let (f, c) = (existing(&*vfs, "f").await.node, Ctx::default());
        assert!(vfs.rename(&c, &path("f"), f.id(), &path(hidden), true).wait().await.is_err());
        assert!(vfs.remove(&c, &path(hidden), f.id()).wait().await.is_err());
        assert!(vfs.link(&c, &path("f"), f.id(), &path(&format!("{hidden}\\x")), true).wait().await.is_err());
        let root = existing(&*vfs, "").await.node;
        assert_eq!(root.lookup(&c, hidden).wait().await.err(), Some(VfsError::NotFound));
    }
    drop(vfs);
    let vfs = tree(dir.path());
    expect(&*vfs, "F", "Small", b"[ZoneTransfer]\r\nZoneId=3").await;
    expect(&*vfs, "F", "Large", &LARGE).await;
}

#[tokio::test]
async fn removed_with_the_file_and_kept_with_its_other_name() {
    let Some(dir) = directory() else { return };
    let (vfs, c) = (tree(dir.path()), Ctx::default());
    put(&*vfs, "f", "large", &LARGE).await;
    let file = existing(&*vfs, "f").await.node;
    vfs.link(&c, &path("f"), file.id(), &path("g"), false).wait().await.expect("hard links");
    vfs.remove(&c, &path("f"), file.id()).wait().await.expect("there");
    expect(&*vfs, "g", "large", &LARGE).await;
    vfs.remove(&c, &path("g"), file.id()).wait().await.expect("there");
    assert_eq!(sidecars(dir.path()).len(), 0);
    for replaced in ["f", "d"] {
        put(&*vfs, replaced, "large", &LARGE).await;
    }
    let by = open(&*vfs, "by", OpenMode::Create).await.expect("room").node;
    vfs.rename(&c, &path("by"), by.id(), &path("f"), true).wait().await.expect("over it");
    assert_eq!(sidecars(dir.path()).len(), 1);
    vfs.link(&c, &path("f"), by.id(), &path("d"), true).wait().await.expect("over it");
    assert_eq!(sidecars(dir.path()).len(), 0);
}

/// Another program renames the file; two trees of one file system show it.
#[tokio::test]
async fn streams_follow_a_file_between_shares() {
    let Some(dir) = directory() else { return };
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    std::fs::create_dir(&a).expect("room");
    std::fs::create_dir(&b).expect("room");
    let (in_a, in_b, above) = (tree(&a), tree(&b), tree(dir.path()));
    put(&*in_a, "f", "small", b"small").await;
    put(&*in_a, "f", "large", &LARGE).await;
    std::fs::rename(a.join("f"), b.join("g")).expect("one file system");
    for (vfs, at) in [(&in_b, "g"), (&above, "b\\g")] {
        expect(&**vfs, at, "small", b"small").await;
        expect(&**vfs, at, "large", &LARGE).await;
    }
    assert_eq!(
        listed(&*above, "a").await,
        Vec::<String>::new(),
        "the directory of streams is hidden there too"
    );
    let g = existing(&*in_b, "g").await.node;
    in_b.remove(&Ctx::default(), &path("g"), g.id()).wait().await.expect("there");
    assert_eq!(sidecars(&a).len(), 0);
}

/// Writers in two trees lose nothing, while the stream moves to a sidecar.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_trees_write_one_stream() {
    let Some(dir) = directory() else { return };
    let trees = [tree(dir.path()), tree(dir.path())];
    put(&*trees[0], "f", "s", b"").await;
    let mut writes = Vec::new();
    for i in 0..100u64 {
        let node = stream(&*trees[i as usize % 2], "f", "s", OpenMode::Open).await.expect("there");
        writes.push(tokio::spawn(async move {
            node.write(&Ctx::default(), i * 20, payload(&[i as u8; 20])).wait().await.expect("room")
        }));
    }
    for write in writes {
        write.await.expect("no panic");
    }
    let all: Vec<u8> = (0..100u8).flat_map(|i| [i; 20]).collect();
    expect(&*trees[0], "f", "s", &all).await;
    expect(&*trees[1], "f", "s", &all).await;
}

/// Every state that a crash can leave, and a file that another program removed.
#[tokio::test]
async fn orphans_are_collected_and_nothing_else() {
    let Some(dir) = directory() else { return };
    let vfs = tree(dir.path());
    for file in ["kept", "removed", "unnamed", "before"] {
        put(&*vfs, file, "s", &LARGE).await;
    }
    put(&*vfs, "before", "t", b"small").await;
    std::fs::create_dir(dir.path().join("d")).expect("room");
    put(&*vfs, "d", "s", &LARGE).await;
    assert_eq!(sidecars(dir.path()).len(), 5);
    std::fs::write(dir.path().join(STORE).join("something else"), "x").expect("room");
    assert!(collect(dir.path(), &vfs).unwrap_or(0) == 0);

    // A crash after the record was removed, before the sidecar was.
    for record in records(&dir.path().join("unnamed")) {
        rustix::fs::removexattr(dir.path().join("unnamed"), record).expect("there");
    }
    // A crash after the sidecar was made, before the record named it: the record still has the data.
    let inline = [&[2, 0, 0, 0, 1, 0][..], b"sdata"].concat();
    let at = dir.path().join("before");
    for record in records(&at) {
        let mut value = [0; 100];
        let n = rustix::fs::getxattr(&at, &record, &mut value[..]).expect("there");
        if value[..n].get(6) == Some(&b's') && value[2] == 1 {
            rustix::fs::setxattr(&at, &record, &inline, XattrFlags::REPLACE).expect("room");
        }
    }
    std::fs::remove_file(dir.path().join("removed")).expect("there");
    let Some(removed) = collect(dir.path(), &vfs) else { return };
    assert_eq!(removed, 3);
    assert_eq!(sidecars(dir.path()).len(), 3);
    expect(&*vfs, "kept", "s", &LARGE).await;
    expect(&*vfs, "d", "s", &LARGE).await;
    expect(&*vfs, "before", "s", b"data").await;
    expect(&*vfs, "before", "t", b"small").await;
    put(&*vfs, "before", "s", &LARGE).await;
    expect(&*vfs, "before", "s", &LARGE).await;
}

/// Opening the tree collects orphans automatically.
#[tokio::test]
async fn a_start_collects() {
    let Some(dir) = directory() else { return };
    let vfs = tree(dir.path());
    put(&*vfs, "f", "s", &LARGE).await;
    if collect(dir.path(), &vfs).is_none() {
        return;
    }
    std::fs::remove_file(dir.path().join("f")).expect("there");
    drop(vfs);
    let since = |sidecar: &Path| {
        let mut value = [0; 8];
        rustix::fs::getxattr(sidecar, SINCE, &mut value[..]).map(|_| u64::from_le_bytes(value)).ok()
    };
    for start in 0..2 {
        let _vfs = tree(dir.path());
        let is_done = || match (start, sidecars(dir.path()).pop()) {
            (0, Some(sidecar)) => since(&sidecar).is_some(),
            (_, sidecar) => sidecar.is_none(),
        };
        for _ in 0..3000 {
            if is_done() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(is_done(), "start {start}");
        if let Some(sidecar) = sidecars(dir.path()).pop() {
            // The first start that finds no file keeps it for a day.
            let before = (since(&sidecar).expect("there") - 24 * 3600).to_le_bytes();
            rustix::fs::setxattr(&sidecar, SINCE, &before, XattrFlags::REPLACE).expect("room");
        }
    }
}

/// Copies a file with its attributes, as another program does.
fn copy_file(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("room");
    let mut names = vec![0; 4096];
    let n = rustix::fs::listxattr(from, &mut names[..]).expect("attributes");
    for attribute in names[..n].split(|b| *b == 0).filter(|n| n.starts_with(b"user.causeway.")) {
        let mut value = [0; 4096];
        let n = rustix::fs::getxattr(from, attribute, &mut value[..]).expect("there");
        rustix::fs::setxattr(to, attribute, &value[..n], XattrFlags::empty()).expect("room");
    }
}

/// Copies a share with its attributes, as a backup does.
fn copy_share(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join(STORE)).expect("room");
    for entry in std::fs::read_dir(from).expect("there").map(|e| e.expect("an entry")) {
        if entry.file_type().expect("a type").is_file() {
            copy_file(&entry.path(), &to.join(entry.file_name()));
        }
    }
    for sidecar in sidecars(from) {
        copy_file(&sidecar, &to.join(STORE).join(sidecar.file_name().expect("a name")));
    }
}

/// A copy made by another program gets a copy of the large streams when they are used.
#[tokio::test]
async fn a_copy_with_attributes() {
    let Some(dir) = directory() else { return };
    let (vfs, c) = (tree(dir.path()), Ctx::default());
    put(&*vfs, "f", "small", b"small").await;
    put(&*vfs, "f", "large", &LARGE).await;
    if collect(dir.path(), &vfs).is_none() {
        return;
    }
    for to in ["copy", "unused", "listed"] {
        copy_file(&dir.path().join("f"), &dir.path().join(to));
    }
    expect(&*vfs, "copy", "small", b"small").await;
    expect(&*vfs, "copy", "large", &LARGE).await;
    put(&*vfs, "copy", "large", b"changed").await;
    let listed = existing(&*vfs, "listed").await.node.streams(&c).wait().await.expect("a list");
    assert_eq!(listed.iter().map(|s| s.size).max(), Some(LARGE.len() as u64), "{listed:?}");
    // Removing the stream of a copy leaves the original's.
    existing(&*vfs, "unused").await.node.remove_stream(&c, &name("large")).wait().await.expect("there");
    expect(&*vfs, "f", "large", &LARGE).await;
    std::fs::remove_file(dir.path().join("f")).expect("there");
    assert_eq!(sidecars(dir.path()).len(), 2, "`listed` has no sidecar of its own yet");
    assert_eq!(collect(dir.path(), &vfs), Some(0), "a copy names that of the original");
    assert!(
        read(&*stream(&*vfs, "copy", "large", OpenMode::Open).await.expect("there"), 7).await == b"changed"
    );
    expect(&*vfs, "listed", "large", &LARGE).await;
}

/// The copy of a file by another user gets no streams: its owner may not be allowed to read the original any more.
#[tokio::test]
async fn a_copy_of_another_user_has_no_large_streams() {
    let Some(dir) = directory() else { return };
    let vfs = tree(dir.path());
    put(&*vfs, "f", "large", &LARGE).await;
    if collect(dir.path(), &vfs).is_none() {
        return;
    }
    copy_file(&dir.path().join("f"), &dir.path().join("copy"));
    std::os::unix::fs::chown(dir.path().join("copy"), Some(12_345), None).expect("we may");
    assert_eq!(stream(&*vfs, "copy", "large", OpenMode::Open).await.err(), Some(VfsError::Damaged));
    expect(&*vfs, "f", "large", &LARGE).await;
}

/// A restored share has all streams: after a start, and of files that are restored while the server runs.
#[tokio::test]
async fn a_restored_share_has_its_streams() {
    let Some(dir) = directory() else { return };
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("share")).expect("room");
    let vfs = tree(&at("share"));
    for file in ["f", "g", "in place"] {
        put(&*vfs, file, "large", &LARGE).await;
    }
    if collect(&at("share"), &vfs).is_none() {
        return;
    }
    drop(vfs);
    copy_share(&at("share"), &at("backup"));
    std::fs::remove_dir_all(at("share")).expect("there");
    std::fs::rename(at("backup"), at("share")).expect("there");
    let later = at("later");
    std::fs::rename(at("share/g"), &later).expect("there");
    let vfs = tree(&at("share"));
    // The file is restored after its sidecar.
    let top = rustix::fs::open(at("share"), OFlags::PATH, Mode::empty()).expect("there");
    let store =
        Store::open(top.as_fd(), vfs.tree.info.volume, false).expect("it opens").expect("there is one");
    assert_eq!(store.collect(KEPT), 0);
    copy_file(&later, &at("share/g"));
    for file in ["f", "g"] {
        expect(&*vfs, file, "large", &LARGE).await;
    }
    // A file that is replaced by a copy of itself, as rsync does, and not opened before the next start.
    copy_file(&at("share/in place"), &at("share/new"));
    std::fs::rename(at("share/new"), at("share/in place")).expect("there");
    std::fs::remove_file(&later).expect("there");
    assert_eq!(collect(&at("share"), &vfs), Some(1), "`g` was opened before a start, and has a copy");
    expect(&*vfs, "in place", "large", &LARGE).await;
    assert_eq!(sidecars(&at("share")).len(), 3);
}

#[tokio::test]
async fn a_read_only_tree_shows_streams() {
    let Some(dir) = directory() else { return };
    let vfs = tree(dir.path());
    put(&*vfs, "f", "small", b"small").await;
    put(&*vfs, "f", "large", &LARGE).await;
    drop(vfs);
    let options = HostDirOptions { read_only: true, ..Default::default() };
    let (vfs, c, no) =
        (HostDir::open(dir.path(), options).expect("a directory"), Ctx::default(), VfsError::ReadOnly);
    assert_eq!(stream(&*vfs, "f", "small", OpenMode::OpenOrCreate).await.err(), Some(no));
    for (at, bytes) in [("small", &b"small"[..]), ("large", &LARGE)] {
        let mut reader = request("f", OpenMode::Open, None);
        reader.rights.write = false;
        reader.stream = Some(name(at));
        let node = vfs.open(&c, reader).wait().await.expect("there").node;
        assert_eq!(read(&*node, 100_000).await, bytes);
        assert_eq!(node.write(&c, 0, payload(b"x")).wait().await, Err(no));
        assert_eq!(node.set_len(&c, 0).wait().await, Err(no));
        assert_eq!(node.remove_stream(&c, &name(at)).wait().await, Err(no));
        assert_eq!(node.rename_stream(&c, &name(at), None, true).wait().await, Err(no));
    }
}
