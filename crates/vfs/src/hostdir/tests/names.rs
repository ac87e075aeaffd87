//! Names that are valid only on Linux, and names that other programs change.

use std::os::unix::ffi::OsStrExt;

use super::*;

#[tokio::test]
async fn names_that_windows_cannot_have() {
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, c) = (tree(dir.path()), Ctx::default());
    for name in ["a:b", "what?", "end.", "tab\there"] {
        std::fs::write(dir.path().join(name), name).expect("room");
    }
    let hidden = std::ffi::OsStr::from_bytes(b"not UTF-8 \xff");
    std::fs::write(dir.path().join(hidden), "").expect("room");
    let shown = ["a\u{f022}b", "end\u{f029}", "tab\u{f009}here", "what\u{f025}"];
    assert_eq!(listed(&*vfs, "").await, shown);
    for (name, content) in shown.into_iter().zip(["a:b", "end.", "tab\there", "what?"]) {
        let opened = existing(&*vfs, &name.to_uppercase()).await;
        assert_eq!(opened.path.name(), Some(name));
        assert_eq!(read(&*opened.node, 100).await, content.as_bytes());
        vfs.remove(&c, &path(name), opened.node.id()).wait().await.expect("there");
    }
    assert_eq!(listed(&*vfs, "").await, [""; 0]);
    let root = existing(&*vfs, "").await;
    assert_eq!(root.node.is_empty(&c).wait().await, Ok(false), "it could not be removed");
}

/// Exact paths: names that differ in case only are two names, and other opens find the one with the same case.
#[tokio::test]
async fn exact_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, c) = (tree(dir.path()), Ctx::default());
    let exact = |text: &str, mode| {
        let path = VfsPath::parse_posix(text).expect("legal");
        vfs.open(&c, OpenRequest { path, ..request("", mode, None) }).wait()
    };
    let error = |opened: VfsResult<Opened>| opened.err();
    for name in ["Case", "case", "a:b"] {
        assert!(exact(name, OpenMode::Create).await.expect("free").created, "{name}");
        assert_eq!(error(exact(name, OpenMode::Create).await), Some(VfsError::Exists));
    }
    assert_eq!(listed(&*vfs, "").await, ["Case", "a\u{f022}b", "case"]);
    assert_eq!(error(exact("CASE", OpenMode::Open).await), Some(VfsError::NotFound));
    assert_eq!(existing(&*vfs, "case").await.path.name(), Some("case"));
    assert_eq!(existing(&*vfs, "CASE").await.path.name(), Some("Case"));
    std::fs::create_dir(dir.path().join("Folder")).expect("room");
    assert_eq!(error(exact("folder\\x", OpenMode::Create).await), Some(VfsError::PathNotFound));
    // A rename replaces a file of exactly the same name only.
    let from = existing(&*vfs, "a\u{f022}b").await;
    let (old, new) = (from.path.clone(), VfsPath::parse_posix("CASE").expect("legal"));
    vfs.rename(&c, &old, from.node.id(), &new, true).wait().await.expect("free");
    assert_eq!(listed(&*vfs, "").await, ["CASE", "Case", "Folder", "case"]);
}

/// A file is found by its short name, unless it shares that with another.
#[tokio::test]
async fn short_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, long) = (tree(dir.path()), "A long name.text");
    let short = crate::short_name(long).expect("long");
    assert_eq!(refusal(&*vfs, &short).await, Some(VfsError::NotFound));
    std::fs::create_dir(dir.path().join(long)).expect("room");
    std::fs::write(dir.path().join(long).join("f"), "").expect("room");
    assert_eq!(existing(&*vfs, &short).await.path.name(), Some(long));
    let below = existing(&*vfs, &format!("{}\\f", short.to_lowercase())).await;
    assert_eq!(below.path.to_string(), format!("{long}\\f"));
    let root = existing(&*vfs, "").await;
    let entry = root.node.lookup(&Ctx::default(), &short).wait().await.expect("found");
    assert_eq!(entry.name, long);
    // Names that differ in case only have the same one.
    std::fs::write(dir.path().join("a long name.text"), "").expect("room");
    assert_eq!(refusal(&*vfs, &short).await, Some(VfsError::NotFound));
}

/// Lookups without regard to case stay correct while other programs change the directory.
#[tokio::test]
async fn others_change_the_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let vfs = tree(dir.path());
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("First"), "").expect("room");
    assert_eq!(existing(&*vfs, "FIRST").await.path.name(), Some("First"));
    std::fs::write(file("Second"), "").expect("room");
    assert_eq!(existing(&*vfs, "SECOND").await.path.name(), Some("Second"));
    std::fs::rename(file("Second"), file("Third")).expect("free");
    assert_eq!(refusal(&*vfs, "SECOND").await, Some(VfsError::NotFound));
    assert_eq!(existing(&*vfs, "THIRD").await.path.name(), Some("Third"));
    std::fs::remove_file(file("First")).expect("there");
    let made = open(&*vfs, "FIRST", OpenMode::Create).await.expect("free again");
    assert_eq!(made.path.name(), Some("FIRST"));
    // The directory itself is replaced.
    std::fs::create_dir(file("d")).expect("room");
    std::fs::write(file("d/Old"), "").expect("room");
    existing(&*vfs, "D\\OLD").await;
    std::fs::rename(file("d"), file("gone")).expect("free");
    std::fs::create_dir(file("d")).expect("room");
    std::fs::write(file("d/New"), "").expect("room");
    assert_eq!(refusal(&*vfs, "D\\OLD").await, Some(VfsError::NotFound));
    existing(&*vfs, "D\\NEW").await;
    existing(&*vfs, "GONE\\OLD").await;
    std::fs::remove_dir_all(file("gone")).expect("there");
    assert_eq!(refusal(&*vfs, "GONE\\OLD").await, Some(VfsError::PathNotFound));
}

/// More changes than inotify queues.
#[tokio::test]
async fn news_are_lost() {
    let queue = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").ok();
    let Some(queue) = queue.and_then(|n| n.trim().parse::<usize>().ok()).filter(|n| *n <= 100_000) else {
        return eprintln!("SKIPPED: the queue of inotify is too long to fill");
    };
    let dir = tempfile::tempdir().expect("a directory");
    let vfs = tree(dir.path());
    std::fs::write(dir.path().join("Before"), "").expect("room");
    existing(&*vfs, "BEFORE").await;
    let (a, b) = (dir.path().join("Before"), dir.path().join("Meanwhile"));
    for _ in 0..queue / 4 + 1 {
        std::fs::rename(&a, &b).expect("free");
        std::fs::rename(&b, &a).expect("free");
    }
    std::fs::rename(&a, dir.path().join("After")).expect("free");
    assert_eq!(existing(&*vfs, "AFTER").await.path.name(), Some("After"));
    assert_eq!(refusal(&*vfs, "BEFORE").await, Some(VfsError::NotFound));
    std::fs::rename(dir.path().join("After"), &b).expect("free");
    assert_eq!(existing(&*vfs, "meanWHILE").await.path.name(), Some("Meanwhile"));
}

/// More directories than the cache can hold.
#[tokio::test]
async fn many_directories() {
    let dir = tempfile::tempdir().expect("a directory");
    let vfs = tree(dir.path());
    for i in 0..300 {
        std::fs::create_dir(dir.path().join(format!("Dir{i}"))).expect("room");
        std::fs::write(dir.path().join(format!("Dir{i}/File")), "").expect("room");
    }
    for _ in 0..2 {
        for i in 0..300 {
            let opened = existing(&*vfs, &format!("DIR{i}\\FILE")).await;
            assert_eq!(opened.path.to_string(), format!("Dir{i}\\File"));
        }
    }
}

/// Names that differ in case only, created by other programs: a lookup finds the exact one, otherwise always the same
/// one.
#[tokio::test]
async fn names_that_differ_in_case_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, c) = (tree(dir.path()), Ctx::default());
    for name in ["name", "NAME", "Name"] {
        std::fs::write(dir.path().join(name), name).expect("room");
    }
    for name in ["name", "NAME", "Name"] {
        assert_eq!(read(&*existing(&*vfs, name).await.node, 10).await, name.as_bytes());
    }
    assert_eq!(read(&*existing(&*vfs, "nAmE").await.node, 10).await, b"NAME");
    assert_eq!(open(&*vfs, "nAmE", OpenMode::Create).await.err(), Some(VfsError::Exists));
    let id = existing(&*vfs, "NAME").await.node.id();
    assert_eq!(vfs.remove(&c, &path("name"), id).wait().await, Err(VfsError::Stale));
    vfs.remove(&c, &path("nAmE"), id).wait().await.expect("the one it means");
    assert_eq!(read(&*existing(&*vfs, "nAmE").await.node, 10).await, b"Name");
    assert_eq!(listed(&*vfs, "").await, ["Name", "name"]);
}
