//! Owner, group and mode, and directories in the path that not every user may traverse.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use parking_lot::Mutex;

use super::*;
use crate::{CreateCheck, Parent, Posix};

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
}

/// A tree whose root every user may traverse.
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
        existing(&*tree, path).await.restricted_directories.iter().map(|p| p.mode).collect()
    };
    assert_eq!(modes("open\\shut\\deep\\f").await, [0o750]);
    assert_eq!(modes("OPEN\\SHUT\\deep").await, [0o750], "the names in another case");
    assert_eq!(modes("link\\f").await, [0o750], "a link is no other way");
    assert_eq!(modes("direct").await, [0o750]);
    assert_eq!(modes("open\\shut").await, [], "the file itself is judged by its mode");
    assert_eq!(modes("").await, []);
    // With a descriptor, only the descriptor counts.
    let shut = existing(&*tree, "open\\shut").await.node;
    if shut.set_security(&Ctx::default(), vec![1, 2, 3]).wait().await.is_ok() {
        assert_eq!(modes("link\\f").await, []);
    }
    chmod(dir.path(), 0o700);
    assert_eq!(modes("open").await, [0o700], "the root");
}

/// Records the modes of the parent and of the directories in its path.
#[derive(Default)]
struct Modes(Mutex<Option<(u32, Vec<u32>)>>);

impl CreateCheck for Modes {
    fn check(&self, parent: &Parent) -> Option<Vec<u8>> {
        let own = parent.stat.posix.expect("on a disk").mode;
        *self.0.lock() = Some((own, parent.restricted_directories.iter().map(|p| p.mode).collect()));
        None
    }
}

#[tokio::test]
async fn what_a_check_sees_of_the_parent() {
    let dir = scratch();
    std::fs::create_dir_all(dir.path().join("open/shut/deep")).expect("room");
    symlink("open/shut/deep", dir.path().join("link")).expect("room");
    chmod(&dir.path().join("open/shut"), 0o750);
    chmod(&dir.path().join("open/shut/deep"), 0o710);
    let tree = tree(dir.path());
    for (name, own, closed) in [
        ("new", 0o755, &[][..]),
        ("open\\shut\\new", 0o750, &[]),
        ("open\\shut\\deep\\new", 0o710, &[0o750]),
        ("OPEN\\Shut\\DEEP\\new", 0o710, &[0o750]),
        ("link\\new", 0o710, &[0o750]),
    ] {
        let check = Arc::new(Modes::default());
        let create_check = Some(Arc::clone(&check) as Arc<dyn CreateCheck>);
        let request = OpenRequest { create_check, ..request(name, OpenMode::OpenOrCreate, None) };
        let made = tree.open(&Ctx::default(), request).wait().await;
        assert_eq!(made.err(), Some(VfsError::Refused), "{name}");
        assert_eq!(check.0.lock().take(), Some((own, closed.to_vec())), "{name}");
    }
}
