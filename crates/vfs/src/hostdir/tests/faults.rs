//! File systems that are full or lack features, mounted in the mount namespace of a second process.

use std::process::Command;

use super::*;
use crate::conformance::{Subject, run_all};

/// The environment variable with the second process's mount point.
const MOUNTED: &str = "VFS_TEST_MOUNTED";

/// Runs the test `inner` of this binary with `file_system` mounted; false when that cannot be done here.
fn mounted(file_system: &str, options: &str, inner: &str) -> bool {
    prepared(&format!("mount -t {file_system} -o {options} none $D"), inner)
}

/// Runs the test `inner` of this binary after the shell has done `setup` with the directory `$D`; false when that
/// cannot be done here.
fn prepared(setup: &str, inner: &str) -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!("D=$1; ({setup}) || exit 77; exec \"$2\" --exact \"$3\" --nocapture");
    let this = std::env::current_exe().expect("a name");
    let run = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"])
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
            eprintln!("SKIPPED: `{setup}` cannot be done here, so {inner} was not run");
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

/// A disk of 32 MiB on which less than 1 MiB can be stored: writing to it succeeds, storing that fails.
const SMALLER_THAN_IT_SAYS: &str = "mount -t tmpfs -o size=1m none $D && truncate -s 32M $D/i \
    && mkfs.ext4 -q -O ^has_journal -N 16 -m 0 $D/i && mkdir $D/m && mount -o loop $D/i $D/m";

#[test]
fn what_cannot_be_stored() {
    prepared(SMALLER_THAN_IT_SAYS, "hostdir::tests::faults::what_cannot_be_stored_inner");
}

/// Run by [`what_cannot_be_stored`]. The system reports the failure once; later flushes must fail too.
#[tokio::test]
async fn what_cannot_be_stored_inner() {
    let Some(dir) = here() else { return };
    let (vfs, c) = (tree(&dir.join("m")), Ctx::default());
    let through = Ctx { flags: env::IoFlags { write_through: true, unbuffered: false }, ..Ctx::default() };
    let f = open(&*vfs, "f", OpenMode::Create).await.expect("made").node;
    f.write(&c, 0, payload(&vec![1; 4 << 20])).wait().await.expect("it goes to memory");
    let no = Err(VfsError::NoSpace);
    assert_eq!(f.flush(&c).wait().await, no);
    assert_eq!(f.flush(&c).wait().await, no, "as long as it is open");
    let other = existing(&*vfs, "f").await.node;
    drop(f);
    assert_eq!(other.flush(&c).wait().await, no);
    assert_eq!(other.write(&through, 0, payload(b"x")).wait().await, Err(VfsError::NoSpace));
    other.write(&c, 0, payload(b"x")).wait().await.expect("buffered writes promise nothing");
    drop(other);
    let again = existing(&*vfs, "f").await.node;
    again.set_len(&c, 0).wait().await.expect("room again");
    let flushed = again.flush(&c).wait().await;
    assert!(flushed.is_ok() || flushed == no, "what is written from now on decides, not what was lost");
}

#[test]
fn what_is_refused_at_close() {
    prepared(SMALLER_THAN_IT_SAYS, "hostdir::tests::faults::what_is_refused_at_close_inner");
}

/// Run by [`what_is_refused_at_close`]: simulates a network file system that reports a failed write only at close.
#[tokio::test]
async fn what_is_refused_at_close_inner() {
    let Some(dir) = here() else { return };
    let options = HostDirOptions { shared: true, ..Default::default() };
    let (vfs, c) = (HostDir::open(&dir.join("m"), options).expect("a directory"), Ctx::default());
    let reader = open(&*vfs, "f", OpenMode::Create).await.expect("made").node;
    let f = existing(&*vfs, "f").await.node;
    // The future of the write is dropped; the close waits for the write nevertheless.
    drop(f.write(&c, 0, payload(&vec![1; 4 << 20])));
    assert_eq!(reader.close(&c).wait().await, Ok(()), "nothing was written through it");
    assert_eq!(f.close(&c).wait().await, Err(VfsError::NoSpace));
    assert_eq!(f.close(&c).wait().await, Ok(()), "said once");
}

#[test]
fn another_file_system_with_the_number() {
    mounted("tmpfs", "size=1m", "hostdir::tests::faults::another_file_system_with_the_number_inner");
}

/// Run by [`another_file_system_with_the_number`]: state about an unmounted file system is not applied to the next one.
#[tokio::test]
async fn another_file_system_with_the_number_inner() {
    let Some(dir) = here() else { return };
    let (vfs, c, at) = (tree(&dir), Ctx::default(), dir.join("d"));
    std::fs::create_dir(&at).expect("room");
    let run = |program: &str, args: &[&str]| {
        let done = Command::new(program).args(args).arg(&at).status().expect("a program");
        assert!(done.success(), "{program} {args:?}");
        rustix::fs::stat(&at).expect("there").st_dev
    };
    let first = run("mount", &["-t", "tmpfs", "-o", "size=1m", "none"]);
    let f = open(&*vfs, "d\\f", OpenMode::Create).await.expect("made").node;
    let (volume, kept) = (f.id().volume, f.set_security(&c, vec![1]).wait().await);
    drop(f);
    run("umount", &[]);
    if run("mount", &["-t", "ramfs", "none"]) != first {
        return eprintln!("SKIPPED: the device number was not given again");
    }
    let f = open(&*vfs, "d\\f", OpenMode::Create).await.expect("made").node;
    assert_ne!(f.id().volume, volume);
    assert_eq!(f.security(&c).wait().await, Ok(None), "it has no place for one");
    assert_eq!(f.set_security(&c, vec![1]).wait().await, Err(VfsError::Unsupported), "the first: {kept:?}");
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
        wanted.create_check = Some(Arc::new(vec![1, 2, 3]));
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
            any_file: true,
            keep: Box::new(directory),
        }
    })
    .await;
}
