use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::{HostDir, HostDirOptions, Vfs};

fn path(text: &str) -> VfsPath {
    VfsPath::parse(text).expect("legal")
}

struct Seen(mpsc::Receiver<TreeChange>);

impl Seen {
    fn on(vfs: &HostDir, at: &str, tree: bool) -> (Seen, crate::WatchGuard) {
        let (send, receive) = mpsc::channel();
        let report: ReportChange = Arc::new(move |change| {
            let _ = send.send(change);
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let guard = runtime.block_on(vfs.watch(&path(at), tree, &report).wait()).expect("there is inotify");
        (Seen(receive), guard)
    }

    /// The next change that is not one of metadata or data.
    fn next(&self) -> TreeChange {
        loop {
            match self.0.recv_timeout(Duration::from_secs(20)).expect("something happens") {
                TreeChange::Data(_) | TreeChange::Metadata(_) => {}
                change => return change,
            }
        }
    }
}

#[test]
fn another_program_changes_a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let vfs = HostDir::open(dir.path(), HostDirOptions::default()).expect("opens");
    std::fs::create_dir(dir.path().join("Sub")).expect("made");
    let (seen, guard) = Seen::on(&vfs, "sub", false);
    let at = dir.path().join("Sub");
    std::fs::write(at.join("f"), "x").expect("written");
    assert_eq!(seen.next(), TreeChange::Added(path("sub\\f"), Kind::File));
    std::fs::rename(at.join("f"), at.join("g")).expect("renamed");
    let (from, to, kind) = (path("sub\\f"), path("sub\\g"), Kind::File);
    assert_eq!(seen.next(), TreeChange::Renamed { from, to, kind });
    std::fs::rename(at.join("g"), dir.path().join("g")).expect("moved out");
    assert_eq!(seen.next(), TreeChange::Removed(path("sub\\g"), Kind::File));
    std::fs::create_dir_all(at.join("d\\e")).expect("a name that clients see otherwise");
    assert!(matches!(seen.next(), TreeChange::Added(_, Kind::Directory)));
    drop(guard);
    assert!(seen.0.recv_timeout(Duration::from_secs(20)).is_err(), "the report is dropped");
}

/// A file created without a name and named later is reported with its final name only.
#[test]
fn a_file_without_a_name() {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    let dir = tempfile::tempdir().expect("a directory");
    let vfs = HostDir::open(dir.path(), HostDirOptions::default()).expect("opens");
    let (seen, _guard) = Seen::on(&vfs, "", false);
    let flags = OFlags::TMPFILE.bits() as i32;
    let file = std::fs::File::options().write(true).custom_flags(flags).open(dir.path());
    let mut file = file.expect("a file system with O_TMPFILE");
    file.write_all(b"x").expect("written");
    let proc = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(
        rustix::fs::CWD,
        proc,
        rustix::fs::CWD,
        dir.path().join("named"),
        rustix::fs::AtFlags::SYMLINK_FOLLOW,
    )
    .expect("linked");
    file.write_all(b"y").expect("written");
    std::fs::write(dir.path().join("#17"), "").expect("a file that looks alike");
    let mut paths = Vec::new();
    while let Ok(change) = seen.0.recv_timeout(Duration::from_millis(500)) {
        match change {
            TreeChange::Added(path, _) | TreeChange::Data(path) | TreeChange::Metadata(path) => {
                paths.push(path)
            }
            other => panic!("{other:?}"),
        }
    }
    paths.dedup();
    assert_eq!(paths, [path("named"), path("#17")]);
}

#[test]
fn a_tree_grows() {
    let dir = tempfile::tempdir().expect("a directory");
    let vfs = HostDir::open(dir.path(), HostDirOptions::default()).expect("opens");
    let (seen, _guard) = Seen::on(&vfs, "", true);
    std::fs::create_dir(dir.path().join("a")).expect("made");
    std::fs::write(dir.path().join("a/f"), "").expect("written");
    assert_eq!(seen.next(), TreeChange::Added(path("a"), Kind::Directory));
    assert_eq!(seen.next(), TreeChange::Added(path("a\\f"), Kind::File));
    while seen.0.recv_timeout(Duration::from_millis(200)).is_ok() {}
    std::fs::rename(dir.path().join("a"), dir.path().join("b")).expect("renamed");
    std::fs::write(dir.path().join("b/g"), "").expect("written");
    let (from, to, kind) = (path("a"), path("b"), Kind::Directory);
    assert_eq!(seen.next(), TreeChange::Renamed { from, to, kind });
    assert_eq!(seen.next(), TreeChange::Added(path("b\\g"), Kind::File));
}
