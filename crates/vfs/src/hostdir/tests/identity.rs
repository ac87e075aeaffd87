//! Identities of files: stable, equal in every tree of one file system, never used twice.

use std::time::Duration;

use env::Ctx;

use super::{existing, open, path, tree};
use crate::{FileKey, OpenMode, Vfs};

#[tokio::test]
async fn a_tree_that_is_opened_again_has_the_same_identities() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("d")).expect("room");
    std::fs::write(dir.path().join("d/f"), "data").expect("room");
    let keys = async || {
        let vfs = tree(dir.path());
        let directory = existing(&*vfs, "d").await.node;
        let listed = directory.lookup(&Ctx::default(), "f").wait().await.expect("there").stat.id;
        let file = existing(&*vfs, "d\\f").await;
        assert_eq!((listed, file.stat.id), (file.node.id(), file.node.id()));
        assert_eq!(vfs.info().volume, file.node.id().volume);
        (directory.id(), file.node.id())
    };
    let first = keys().await;
    assert_ne!(first.0, first.1);
    assert_eq!(first, keys().await);
}

#[tokio::test]
async fn two_trees_of_one_file_system_agree() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["a", "b"] {
        std::fs::create_dir(dir.path().join(name)).expect("room");
    }
    std::fs::write(dir.path().join("a/f"), "data").expect("room");
    std::fs::hard_link(dir.path().join("a/f"), dir.path().join("b/g")).expect("hard links");
    let (above, a, b) = (tree(dir.path()), tree(&dir.path().join("a")), tree(&dir.path().join("b")));
    let key = existing(&*above, "a\\f").await.node.id();
    assert_eq!(existing(&*a, "f").await.node.id(), key);
    assert_eq!(existing(&*b, "g").await.node.id(), key);
}

#[tokio::test]
async fn a_file_with_the_number_of_a_removed_one_is_another() {
    let dir = tempfile::tempdir().expect("a directory");
    let vfs = tree(dir.path());
    let mut seen: Vec<FileKey> = Vec::new();
    for _ in 0..20 {
        let made = open(&*vfs, "f", OpenMode::Create).await.expect("room").node;
        let key = made.id();
        if seen.iter().any(|k| k.number() == key.number()) {
            assert!(!seen.contains(&key), "{key:?}");
            return;
        }
        seen.push(key);
        vfs.remove(&Ctx::default(), &path("f"), key).wait().await.expect("there");
        drop(made);
        // Waits until the pool has closed it, and for a tick of the kernel's clock, from which birth times are taken.
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("SKIPPED: this file system gave no inode number twice");
}
