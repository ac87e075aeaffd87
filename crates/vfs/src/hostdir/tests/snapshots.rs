//! Snapshots in a folder.

use std::os::unix::fs::symlink;
use std::path::Path;

use env::Ctx;

use super::tree;
use crate::{HostDir, HostDirOptions, OpenMode, OpenRequest, Opened, Rights, SnapshotTime, Vfs, VfsError};

const TOKEN: &str = "@GMT-2015.10.31-19.40.30";

fn at(token: &str) -> SnapshotTime {
    SnapshotTime::parse(token).expect("a token")
}

/// Opens a file to read.
async fn opened(vfs: &dyn Vfs, name: &str) -> Opened {
    let request = OpenRequest {
        rights: Rights { read: true, write: false },
        ..OpenRequest::for_metadata(super::path(name))
    };
    vfs.open(&Ctx::default(), request).wait().await.expect("there")
}

fn with_snapshots(root: &Path, folder: impl Into<std::path::PathBuf>) -> std::sync::Arc<HostDir> {
    let options = HostDirOptions { snapshots: Some(folder.into()), ..Default::default() };
    HostDir::open(root, options).expect("a directory")
}

#[tokio::test]
async fn found_by_a_relative_and_an_absolute_path() {
    let dir = tempfile::tempdir().expect("a directory");
    let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
    for folder in [root.join("snapshots"), outside.clone()] {
        std::fs::create_dir_all(folder.join(TOKEN)).expect("room");
        std::fs::create_dir(folder.join("@GMT-2015.10.31")).expect("room");
        std::fs::write(folder.join(TOKEN).join("f"), "old").expect("room");
    }
    let c = Ctx::default();
    for vfs in [with_snapshots(&root, "snapshots"), with_snapshots(&root, &*outside)] {
        assert!(vfs.info().snapshots);
        assert_eq!(vfs.snapshots(&c).wait().await, Ok(vec![at(TOKEN)]));
        let snapshot = vfs.snapshot(&c, at(TOKEN)).wait().await.expect("there");
        assert!(snapshot.info().read_only);
        assert_eq!(opened(&*snapshot, "f").await.stat.size, 3);
        assert_eq!(super::open(&*snapshot, "g", OpenMode::Create).await.err(), Some(VfsError::ReadOnly));
        assert_eq!(snapshot.snapshots(&c).wait().await, Ok(Vec::new()));
    }
    let vfs = with_snapshots(&root, "none");
    assert_eq!(vfs.snapshots(&c).wait().await, Ok(Vec::new()));
    assert_eq!(vfs.snapshot(&c, at(TOKEN)).wait().await.err(), Some(VfsError::NotFound));
    let without = tree(&root);
    assert_eq!(without.snapshot(&c, at(TOKEN)).wait().await.err(), Some(VfsError::NotFound));
}

#[tokio::test]
async fn links_stay_in_the_folder_of_snapshots() {
    let dir = tempfile::tempdir().expect("a directory");
    let folder = dir.path().join("snapshots");
    std::fs::create_dir_all(folder.join("1/snapshot")).expect("room");
    std::fs::write(folder.join("1/snapshot/f"), "old").expect("room");
    symlink("1/snapshot", folder.join(TOKEN)).expect("room");
    let out = "@GMT-2020.01.01-00.00.00";
    symlink(dir.path(), folder.join(out)).expect("room");
    let (c, vfs) = (Ctx::default(), with_snapshots(dir.path(), "snapshots"));
    let snapshot = vfs.snapshot(&c, at(TOKEN)).wait().await.expect("there");
    assert_eq!(opened(&*snapshot, "f").await.stat.size, 3);
    assert_eq!(vfs.snapshot(&c, at(out)).wait().await.err(), Some(VfsError::Escapes));
}

#[tokio::test]
async fn a_hard_link_in_a_snapshot_is_another_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("snapshots").join(TOKEN);
    std::fs::create_dir_all(&copy).expect("room");
    std::fs::write(dir.path().join("f"), "data").expect("room");
    std::fs::hard_link(dir.path().join("f"), copy.join("f")).expect("hard links");
    let vfs = with_snapshots(dir.path(), "snapshots");
    let snapshot = vfs.snapshot(&Ctx::default(), at(TOKEN)).wait().await.expect("there");
    let (now, old) = (opened(&*vfs, "f").await, opened(&*snapshot, "f").await);
    assert_ne!(now.node.id(), old.node.id());
    assert_eq!(old.node.id().volume, snapshot.info().volume);
    let again = vfs.snapshot(&Ctx::default(), at(TOKEN)).wait().await.expect("there");
    assert_eq!(opened(&*again, "f").await.node.id(), old.node.id());
}
