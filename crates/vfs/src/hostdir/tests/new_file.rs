//! New files become visible only with all of their metadata.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::CreateCheck;
use crate::hostdir::new_file::NewFileName;
use crate::hostdir::visible::TEMPORARY;

const SECURITY: &[u8] = &[7; 40];

fn furnished(name: &str, kind: Kind) -> OpenRequest {
    let create_check: Arc<dyn CreateCheck> = Arc::new(SECURITY.to_vec());
    OpenRequest { create_check: Some(create_check), ..request(name, OpenMode::Create, Some(kind)) }
}

/// A directory with extended attributes, which not every temporary directory supports.
fn scratch() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().expect("a directory");
    let kept = rustix::fs::setxattr(dir.path(), "user.test", b"1", rustix::fs::XattrFlags::empty());
    kept.is_ok().then_some(dir)
}

/// The files under a temporary name.
fn temporary(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).expect("there").map(|e| e.expect("read").file_name());
    names.filter_map(|n| n.into_string().ok()).filter(|n| n.starts_with(TEMPORARY)).collect()
}

/// One thread opens and another lists as fast as they can, while files and directories are created and removed, until
/// both have opened enough of them.
#[test]
fn nobody_meets_a_file_without_its_descriptor() {
    let Some(dir) = scratch() else { return };
    const ROUNDS_MIN: usize = 2000;
    const ROUNDS_MAX: usize = 50_000;
    const ENOUGH: usize = 100;
    let done = AtomicBool::new(false);
    let met = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let enough = || met.iter().all(|met| met.load(Ordering::Relaxed) >= ENOUGH);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("threads");
    thread::scope(|s| {
        let watch = |listing: bool| {
            let (done, dir, met) = (&done, dir.path(), &met[usize::from(listing)]);
            s.spawn(move || {
                let tree = tree(dir);
                runtime().block_on(async {
                    while !done.load(Ordering::Relaxed) {
                        if listing {
                            for name in listed(&*tree, "").await {
                                assert!(["file", "dir"].contains(&&*name), "{name}");
                            }
                        }
                        for name in ["file", "DIR"] {
                            let Ok(found) = open(&*tree, name, OpenMode::Open).await else { continue };
                            let security = found.node.security(&Ctx::default()).wait().await;
                            assert_eq!(security.expect("readable").as_deref(), Some(SECURITY), "{name}");
                            met.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            })
        };
        let watchers = [watch(false), watch(true)];
        let tree = tree(dir.path());
        runtime().block_on(async {
            for round in 0..ROUNDS_MAX {
                // A watcher ends early when it panics.
                if round >= ROUNDS_MIN && (enough() || watchers.iter().any(|w| w.is_finished())) {
                    break;
                }
                for (name, kind) in [("file", Kind::File), ("dir", Kind::Directory)] {
                    let c = Ctx::default();
                    let made = tree.open(&c, furnished(name, kind)).wait().await.expect("free");
                    assert!(made.created && made.stat.links == 1);
                    tree.remove(&c, &path(name), made.node.id()).wait().await.expect("there");
                }
            }
        });
        done.store(true, Ordering::Relaxed);
    });
    assert!(enough(), "too few files were met: {met:?}");
    assert!(temporary(dir.path()).is_empty());
}

/// If the file system has no unnamed files, a temporary name is used.
#[tokio::test]
async fn a_file_by_way_of_a_temporary_name() {
    let Some(dir) = scratch() else { return };
    let host = tree(dir.path());
    let directory = host.tree.directory(&[]).expect("the root");
    let by_name = |tree: &Arc<crate::hostdir::Tree>| {
        let fd = tree.create_as(&directory, &tree.temporary, Kind::File).expect("free");
        assert_eq!(temporary(dir.path()).len(), 1);
        fd
    };
    let fd = by_name(&host.tree);
    assert_eq!(listed(&*host, "").await, Vec::<String>::new(), "nobody sees it");
    let name = host.tree.temporary.clone();
    assert_eq!(refusal(&*host, &name).await, Some(VfsError::NotFound), "nor opens it");
    let new_name = NewFileName::Temporary(&host.tree.temporary);
    new_name.give_name(&directory, &fd, "f").expect("free");
    assert_eq!(listed(&*host, "").await, ["f"]);
    let fd = by_name(&host.tree);
    assert_eq!(new_name.give_name(&directory, &fd, "f"), Err(VfsError::Exists));
    new_name.discard(&directory);
    assert!(temporary(dir.path()).is_empty());
}

/// A file left by a crash prevents neither the next creation nor the removal of the directory.
#[tokio::test]
async fn after_a_crash() {
    let Some(dir) = scratch() else { return };
    let host = tree(dir.path());
    std::fs::create_dir_all(dir.path().join("d").join(&host.tree.temporary)).expect("room");
    std::fs::write(dir.path().join("d").join(format!("{TEMPORARY}of-another")), "").expect("room");
    let c = Ctx::default();
    let d = existing(&*host, "d").await.node;
    assert_eq!(d.is_empty(&c).wait().await, Ok(true));
    let made = host.open(&c, furnished("d\\new", Kind::Directory)).wait().await.expect("made");
    host.remove(&c, &path("d\\new"), made.node.id()).wait().await.expect("empty");
    host.remove(&c, &path("d"), d.id()).wait().await.expect("empty for clients");
    let f = open(&*host, "f", OpenMode::Create).await.expect("made").node;
    let hidden = path(&format!("{TEMPORARY}mine"));
    let renamed = host.rename(&c, &path("f"), f.id(), &hidden, false).wait().await;
    assert_eq!(renamed, Err(VfsError::AccessDenied), "no client hides a file");
}
