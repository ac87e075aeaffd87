//! File systems that are full or can do little: made in a mount namespace of a second process.

use std::process::Command;

use super::*;
use crate::conformance::{Subject, run_all};

/// Tells the second process where its file system is.
const MOUNTED: &str = "VFS_TEST_MOUNTED";

/// Runs the test `inner` of this binary with `file_system` mounted; false when that cannot be done here.
fn mounted(file_system: &str, options: &str, inner: &str) -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let script = "mount -t \"$1\" -o \"$2\" none \"$3\" || exit 77; exec \"$4\" --exact \"$5\" --nocapture";
    let this = std::env::current_exe().expect("a name");
    let run = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh", file_system, options])
        .args([dir.path(), &this])
        .arg(inner)
        .env(MOUNTED, dir.path())
        .output();
    match run {
        Ok(run) if run.status.success() => {
            let text = String::from_utf8_lossy(&run.stdout);
            assert!(text.contains("1 passed"), "{inner} was not run: {text}");
            true
        }
        Ok(run) if run.status.code() != Some(77) && run.status.code() != Some(1) => {
            panic!("{}\n{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr))
        }
        _ => {
            eprintln!("SKIPPED: {file_system} cannot be mounted here, so {inner} was not run");
            false
        }
    }
}

fn here() -> Option<std::path::PathBuf> {
    std::env::var_os(MOUNTED).map(Into::into)
}

#[test]
fn no_space() {
    mounted("tmpfs", "size=1m,nr_inodes=50", "hostdir::tests::faults::no_space_inner");
}

/// Run by [`no_space`] on a tmpfs of 1 MiB.
#[tokio::test]
async fn no_space_inner() {
    let Some(dir) = here() else { return };
    let (vfs, c) = (tree(&dir), Ctx::default());
    let f = open(&*vfs, "f", OpenMode::Create).await.expect("made").node;
    assert_eq!(f.write(&c, 0, payload(&vec![1; 2 << 20])).wait().await, Err(VfsError::NoSpace));
    assert_eq!(f.set_allocation(&c, 64 << 20).wait().await, Err(VfsError::NoSpace));
    let space = vfs.space(&c).wait().await.expect("known");
    assert_eq!((space.total, space.available), (1 << 20, 0));
    f.set_len(&c, 0).wait().await.expect("space again");
    f.write(&c, 0, payload(&vec![1; 100_000])).wait().await.expect("room");
    let full = loop {
        let name = format!("file{}", listed(&*vfs, "").await.len());
        match open(&*vfs, &name, OpenMode::Create).await {
            Ok(_) => {}
            Err(e) => break e,
        }
    };
    assert_eq!(full, VfsError::NoSpace);
    assert_eq!(read(&*f, 200_000).await, vec![1; 100_000]);
}

#[test]
fn without_attributes_and_holes() {
    mounted("ramfs", "mode=755", "hostdir::tests::faults::without_attributes_and_holes_inner");
}

/// Run by [`without_attributes_and_holes`] on ramfs: no `user.*` attributes, no fallocate, no SEEK_HOLE.
#[tokio::test]
async fn without_attributes_and_holes_inner() {
    let Some(dir) = here() else { return };
    {
        let (vfs, c) = (tree(&dir), Ctx::default());
        let mut wanted = request("f", OpenMode::Create, None);
        wanted.attributes = Attributes::HIDDEN;
        wanted.security = Some(vec![1, 2, 3]);
        let f = vfs.open(&c, wanted).wait().await.expect("made, without what cannot be kept");
        assert_eq!(f.stat.attributes, Attributes::ARCHIVE);
        assert_eq!(f.node.security(&c).wait().await, Ok(None));
        assert_eq!(f.node.set_security(&c, vec![1]).wait().await, Err(VfsError::Unsupported));
        let set = |a| crate::BasicChange { attributes: Some(a), ..Default::default() };
        assert_eq!(f.node.set_basic(&c, set(Attributes::ARCHIVE)).wait().await, Ok(()), "as it is");
        assert_eq!(f.node.set_basic(&c, set(Attributes::HIDDEN)).wait().await, Err(VfsError::Unsupported));
        vfs.remove(&c, &f.path, f.node.id()).wait().await.expect("there");
    }
    run_all(|| {
        let directory = tempfile::tempdir_in(&dir).expect("a directory");
        Subject {
            vfs: tree(directory.path()),
            arena: arena(),
            keeps_data: true,
            keeps_metadata: false,
            keeps_holes: false,
            links: true,
            keep: Box::new(directory),
        }
    })
    .await;
}
