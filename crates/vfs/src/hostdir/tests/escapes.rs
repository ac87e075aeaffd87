//! No path leads out of the tree, whatever its links point to, even while another process changes them.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A tree with a secret file outside it.
struct Prison {
    _keep: tempfile::TempDir,
    inside: PathBuf,
    outside: PathBuf,
    vfs: Arc<HostDir>,
}

fn prison() -> Prison {
    let keep = tempfile::tempdir().expect("a directory");
    let (inside, outside) = (keep.path().join("inside"), keep.path().join("outside"));
    std::fs::create_dir(&inside).expect("room");
    std::fs::create_dir(&outside).expect("room");
    std::fs::write(outside.join("secret"), "outside").expect("room");
    let vfs = tree(&inside);
    Prison { _keep: keep, inside, outside, vfs }
}

#[tokio::test]
async fn links_that_lead_out() {
    let p = prison();
    symlink(p.outside.join("secret"), p.inside.join("absolute")).expect("a link");
    symlink("../outside/secret", p.inside.join("relative")).expect("a link");
    symlink("../outside", p.inside.join("directory")).expect("a link");
    symlink("relative", p.inside.join("indirect")).expect("a link");
    symlink("/proc/self/cwd", p.inside.join("magic")).expect("a link");
    symlink("../inside/file", p.inside.join("back")).expect("a link");
    std::fs::create_dir(p.inside.join("sub")).expect("room");
    symlink("../../outside/secret", p.inside.join("sub/up")).expect("a link");
    std::fs::write(p.inside.join("file"), "inside").expect("room");
    let out =
        ["absolute", "relative", "directory", "indirect", "magic", "back", "sub\\up", "directory\\secret"];
    for name in out {
        for mode in [OpenMode::Open, OpenMode::OpenOrCreate] {
            assert_eq!(open(&*p.vfs, name, mode).await.err(), Some(VfsError::Escapes), "{name}");
        }
        let upper = name.to_uppercase();
        assert_eq!(refusal(&*p.vfs, &upper).await, Some(VfsError::Escapes), "{upper}");
    }
    let (c, file) = (Ctx::default(), existing(&*p.vfs, "file").await);
    let made = open(&*p.vfs, "directory\\new", OpenMode::Create).await;
    assert_eq!(made.err(), Some(VfsError::Escapes));
    let id = file.node.id();
    for to in ["directory\\f", "DIRECTORY\\secret"] {
        assert_eq!(p.vfs.rename(&c, &path("file"), id, &path(to), true).wait().await, Err(VfsError::Escapes));
        assert_eq!(p.vfs.link(&c, &path("file"), id, &path(to), true).wait().await, Err(VfsError::Escapes));
    }
    assert_eq!(p.vfs.remove(&c, &path("directory\\secret"), id).wait().await, Err(VfsError::Escapes));
    assert_eq!(listed(&*p.vfs, "").await, ["file", "sub"]);
    assert_eq!(listed(&*p.vfs, "sub").await, [""; 0]);
    let left: Vec<_> = std::fs::read_dir(&p.outside).expect("there").collect();
    assert_eq!(left.len(), 1, "nothing was made outside");
}

#[tokio::test]
async fn links_that_stay_inside() {
    let p = prison();
    std::fs::create_dir_all(p.inside.join("a/b")).expect("room");
    std::fs::write(p.inside.join("a/file"), "inside").expect("room");
    symlink("a", p.inside.join("to directory")).expect("a link");
    symlink("../file", p.inside.join("a/b/to file")).expect("a link");
    symlink("nowhere", p.inside.join("dangling")).expect("a link");
    symlink("loop", p.inside.join("loop")).expect("a link");
    let file = existing(&*p.vfs, "a\\file").await;
    for name in ["to directory\\file", "a\\b\\to file", "TO DIRECTORY\\B\\TO FILE"] {
        let opened = existing(&*p.vfs, name).await;
        assert_eq!(opened.node.id(), file.node.id(), "{name}");
        assert_eq!(read(&*opened.node, 10).await, b"inside");
    }
    assert_eq!(listed(&*p.vfs, "").await, ["a", "to directory"]);
    assert_eq!(listed(&*p.vfs, "to directory\\b").await, ["to file"]);
    let b = existing(&*p.vfs, "a\\b").await.node;
    let entry = b.lookup(&Ctx::default(), "TO FILE").wait().await.expect("there");
    assert_eq!((entry.stat.id, entry.stat.size), (file.node.id(), 6));
    assert_eq!(refusal(&*p.vfs, "dangling").await, Some(VfsError::NotFound));
    assert_eq!(refusal(&*p.vfs, "loop").await, Some(VfsError::Escapes));
    for mode in [OpenMode::Create, OpenMode::OpenOrCreate] {
        let made = open(&*p.vfs, "dangling", mode).await;
        assert_eq!(made.err(), Some(VfsError::AccessDenied), "not made where it leads");
    }
    // Removing the name of a link removes the link.
    let c = Ctx::default();
    let linked = existing(&*p.vfs, "to directory").await;
    p.vfs.remove(&c, &path("to directory"), linked.node.id()).wait().await.expect("a link");
    assert_eq!(listed(&*p.vfs, "a").await, ["b", "file"]);
    p.vfs.remove(&c, &path("a\\b\\to file"), file.node.id()).wait().await.expect("a link");
    assert_eq!(read(&*file.node, 10).await, b"inside");
    assert_eq!(listed(&*p.vfs, "a").await, ["b", "file"]);
}

/// Opens and removes files while another thread repeatedly exchanges a directory with a link that leads out of the
/// tree.
#[tokio::test]
async fn a_race_with_a_link() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let p = prison();
    std::fs::create_dir(p.inside.join("d")).expect("room");
    std::fs::write(p.inside.join("d/secret"), "inside").expect("room");
    symlink(&p.outside, p.inside.join("trap")).expect("a link");
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = std::thread::spawn({
        let (stop, inside) = (Arc::clone(&stop), p.inside.clone());
        move || {
            let mut swaps = 0u32;
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, inside.join("d"), CWD, inside.join("trap"), RenameFlags::EXCHANGE)
                    .expect("an exchange");
                swaps += 1;
            }
            swaps
        }
    });
    let (c, mut inside, mut refused) = (Ctx::default(), 0, 0);
    for i in 0..4000 {
        match open(&*p.vfs, "D\\Secret", OpenMode::Open).await {
            Ok(opened) => {
                assert_eq!(read(&*opened.node, 10).await, b"inside");
                inside += 1;
                // A removal that loses the race is refused, and never removes the other file.
                if i % 10 == 0 {
                    let other = crate::FileKey { file: 1, ..opened.node.id() };
                    assert!(p.vfs.remove(&c, &path("d\\secret"), other).wait().await.is_err());
                }
            }
            Err(VfsError::Escapes | VfsError::NotFound | VfsError::PathNotFound | VfsError::Busy) => {
                refused += 1
            }
            Err(e) => panic!("{e}"),
        }
        if let Ok(made) = open(&*p.vfs, &format!("d\\new{i}"), OpenMode::Create).await {
            made.node.write(&c, 0, payload(b"x")).wait().await.expect("room");
        }
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = swapper.join().expect("no panic");
    assert!(swaps > 100 && inside > 0 && refused > 0, "{swaps} swaps, {inside} inside, {refused} refused");
    let left: Vec<_> =
        std::fs::read_dir(&p.outside).expect("there").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(left, ["secret"], "nothing was made outside");
    assert_eq!(std::fs::read(p.outside.join("secret")).expect("there"), b"outside");
}
