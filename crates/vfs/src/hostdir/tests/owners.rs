//! Owner, group and mode, and the directories on the way that not everybody may pass.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;
use crate::Posix;

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
}

/// A tree whose root everybody may pass.
fn scratch() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    chmod(dir.path(), 0o755);
    dir
}

#[tokio::test]
async fn owner_group_and_mode() {
    let dir = scratch();
    std::fs::write(dir.path().join("f"), "").expect("room");
    chmod(&dir.path().join("f"), 0o640);
    let own = std::fs::metadata(dir.path()).expect("there");
    let tree = tree(dir.path());
    let want = Some(Posix { uid: own.uid(), gid: own.gid(), mode: 0o640 });
    let found = existing(&*tree, "f").await;
    assert_eq!(found.stat.posix, want);
    chmod(&dir.path().join("f"), 0o600);
    let now = found.node.stat(&Ctx::default()).wait().await.expect("open");
    assert_eq!(now.posix.map(|p| p.mode), Some(0o600), "while it is open too");
}

#[tokio::test]
async fn directories_that_not_everybody_may_pass() {
    let dir = scratch();
    std::fs::create_dir_all(dir.path().join("open/shut/deep")).expect("room");
    std::fs::write(dir.path().join("open/shut/deep/f"), "").expect("room");
    symlink("open/shut/deep", dir.path().join("link")).expect("room");
    symlink("open/shut/deep/f", dir.path().join("direct")).expect("room");
    chmod(&dir.path().join("open/shut"), 0o750);
    let tree = tree(dir.path());
    let modes = async |path: &str| -> Vec<u32> {
        existing(&*tree, path).await.closed.iter().map(|p| p.mode).collect()
    };
    assert_eq!(modes("open\\shut\\deep\\f").await, [0o750]);
    assert_eq!(modes("OPEN\\SHUT\\deep").await, [0o750], "the names in another case");
    assert_eq!(modes("link\\f").await, [0o750], "a link is no other way");
    assert_eq!(modes("direct").await, [0o750]);
    assert_eq!(modes("open\\shut").await, [], "the file itself is judged by its mode");
    assert_eq!(modes("").await, []);
    // With a descriptor, it is that which counts.
    let shut = existing(&*tree, "open\\shut").await.node;
    if shut.set_security(&Ctx::default(), vec![1, 2, 3]).wait().await.is_ok() {
        assert_eq!(modes("link\\f").await, []);
    }
    chmod(dir.path(), 0o700);
    assert_eq!(modes("open").await, [0o700], "the root");
}
