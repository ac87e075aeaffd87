use smb_wire::fscc::{FileDispositionInformation, FileInfoClass};

use super::*;
use crate::open::GateGuard;

fn disposition(delete_pending: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    FileDispositionInformation { delete_pending }.encode(&mut bytes);
    bytes
}

const DISPOSITION: u8 = FileInfoClass::DISPOSITION.0;

// MS-FSA 2.1.5.5: with the last open; no open is added in between.
#[tokio::test(start_paused = true)]
async fn delete_on_close() {
    let w = World::new();
    let on_close = How { options: CreateOptions::DELETE_ON_CLOSE, ..How::CREATE };
    let first = w.create("f", on_close).await;
    let second = w.create("f", How::OPEN).await;
    w.close(first).await;
    assert_eq!(w.try_create("f", How::OPEN).await, Err(NtStatus::DELETE_PENDING));
    assert_eq!(w.flush(second).await, NtStatus::SUCCESS);
    w.close(second).await;
    assert!(!w.exists("f").await);
    w.create("f", How::CREATE).await;
}

// MS-FSA 2.1.5.15.3
#[tokio::test(start_paused = true)]
async fn disposition_can_be_taken_back() {
    let w = World::new();
    let f = w.create("f", How::CREATE).await;
    assert_eq!(w.set(f, DISPOSITION, &disposition(true)).await, NtStatus::SUCCESS);
    assert_eq!(w.try_create("f", How::OPEN).await, Err(NtStatus::DELETE_PENDING));
    assert_eq!(w.set(f, DISPOSITION, &disposition(false)).await, NtStatus::SUCCESS);
    w.close(f).await;
    assert!(w.exists("f").await);
}

#[tokio::test(start_paused = true)]
async fn a_filled_directory_stays() {
    let w = World::new();
    let d = w.create("d", How::MKDIR).await;
    let f = w.create("d\\f", How::CREATE).await;
    w.close(f).await;
    assert_eq!(w.set(d, DISPOSITION, &disposition(true)).await, NtStatus::DIRECTORY_NOT_EMPTY);
    w.close(d).await;
    // Delete-on-close is not checked when it is requested; it fails when it is due.
    let on_close =
        How { options: CreateOptions::DELETE_ON_CLOSE | CreateOptions::DIRECTORY_FILE, ..How::OPEN };
    let d = w.create("d", on_close).await;
    w.close(d).await;
    assert!(w.exists("d\\f").await);
}

// MS-FSA 2.1.5.1: a directory that is marked for deletion gets no files, or its deletion would be lost.
#[tokio::test(start_paused = true)]
async fn a_directory_that_is_marked_gets_no_files() {
    let w = World::new();
    let d = w.create("d", How::MKDIR).await;
    assert_eq!(w.set(d, DISPOSITION, &disposition(true)).await, NtStatus::SUCCESS);
    assert_eq!(w.try_create("d\\f", How::CREATE).await, Err(NtStatus::DELETE_PENDING));
    assert_eq!(w.try_create("d\\e", How::MKDIR).await, Err(NtStatus::DELETE_PENDING));
    assert_eq!(w.set(d, DISPOSITION, &disposition(false)).await, NtStatus::SUCCESS);
    w.create("d\\f", How::CREATE).await;
    assert_eq!(w.set(d, DISPOSITION, &disposition(true)).await, NtStatus::DIRECTORY_NOT_EMPTY);
}

// Pending writes of an open complete before its locks and share mode are released, and none is done after.
#[tokio::test(start_paused = true)]
async fn closing_waits_for_what_is_being_written() {
    let w = World::new();
    let id = w.create("f", How::CREATE).await;
    let open = w.server.opens.get(id).expect("just made");
    let writing = GateGuard::new(&open).expect("not closed");
    let mut closing = std::pin::pin!(w.close(id));
    assert!(futures_util::poll!(closing.as_mut()).is_pending());
    assert!(GateGuard::new(&open).is_none(), "nothing begins any more");
    assert_eq!(w.server.files.open_files(), 1, "it still has its place");
    drop(writing);
    closing.await;
    assert_eq!(w.server.files.open_files(), 0);
}

#[tokio::test(start_paused = true)]
async fn closing_twice() {
    let w = World::new();
    let file_id = w.create("f", How::CREATE).await;
    w.close(file_id).await;
    let again = CloseRequest { file_id, ..CloseRequest::default() };
    assert_eq!(crate::commands::close::handle(w.request(&again)).await.status, NtStatus::FILE_CLOSED);
}

/// The environment variable with the second process's disk.
const DISK: &str = "SMB_SERVER_TEST_DISK";

/// Runs the test `inner` of this binary in a mount namespace of its own, after the shell has done `setup` in the
/// directory `$1`. The test finds the file system `$1/m` in [`DISK`].
fn on_a_disk(setup: &str, inner: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let script =
        format!("({setup}) || exit 77; exec \"$2\" --exact commands::tests::closing::{inner} --nocapture");
    let this = std::env::current_exe().expect("a name");
    let run = std::process::Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"])
        .args([dir.path(), &this])
        .env(DISK, dir.path().join("m"))
        .output();
    match run {
        Ok(run) if run.status.success() => {
            assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"));
        }
        Ok(run) if run.status.code() != Some(77) && run.status.code() != Some(1) => {
            panic!("{}\n{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr))
        }
        _ => eprintln!("SKIPPED: no disk can be made and mounted here"),
    }
}

/// A file system became read-only while it is shared: nothing can be deleted from it, and the client learns that.
#[test]
fn a_disk_becomes_read_only() {
    let setup = "mount -t tmpfs none $1 && mkdir $1/m && mount -t tmpfs -o mode=777 none $1/m";
    on_a_disk(setup, "a_disk_becomes_read_only_inner");
}

/// Run by [`a_disk_becomes_read_only`].
#[tokio::test]
async fn a_disk_becomes_read_only_inner() {
    let Some(disk) = std::env::var_os(DISK) else { return };
    let w = super::notifying::hosted(World::new(), disk.as_ref());
    w.close(w.create("f", How::CREATE).await).await;
    let deleting = How { access: AccessMask::DELETE | AccessMask::READ_ATTRIBUTES, ..How::OPEN };
    let f = w.create("f", deleting).await;
    let remount = std::process::Command::new("mount").args(["-o", "remount,ro"]).arg(&disk).status();
    assert!(remount.expect("there is mount").success());
    let status = w.set(f, FileInfoClass::DISPOSITION.0, &[1]).await;
    assert_eq!(status, NtStatus::MEDIA_WRITE_PROTECTED);
    let on_close = How { options: CreateOptions::DELETE_ON_CLOSE, ..deleting };
    assert_eq!(w.try_create("f", on_close).await, Err(NtStatus::CANNOT_DELETE));
    w.close(f).await;
    assert!(w.exists("f").await);
}

/// On a file system that reports a failed write only at close, CLOSE reports it to the client (MS-SMB2 3.3.5.10). A
/// second process mounts a disk that has less free space than it reports.
#[test]
fn what_is_not_stored_is_told_at_close() {
    let setup = "mount -t tmpfs -o size=1m none $1 && truncate -s 32M $1/i \
        && mkfs.ext4 -q -O ^has_journal -N 16 -m 0 $1/i && mkdir $1/m && mount -o loop $1/i $1/m \
        && chmod 777 $1/m";
    on_a_disk(setup, "what_is_not_stored_inner");
}

/// Run by [`what_is_not_stored_is_told_at_close`].
#[tokio::test]
async fn what_is_not_stored_inner() {
    let Some(disk) = std::env::var_os(DISK) else { return };
    let options = vfs::HostDirOptions { shared: true, ..Default::default() };
    let vfs = vfs::HostDir::open(disk.as_ref(), options).expect("mounted");
    let w = World::new();
    w.server.add_share(ShareConfig::new("disk", vfs)).expect("another name");
    let share = w.server.share("disk").expect("added");
    let tree = w.session.add_tree(2, |id| Tree::new(id, share, ALL.bits())).expect("the second");
    let w = World { tree, ..w };
    let file_id = w.create("f", How::CREATE).await;
    let open = w.server.opens.all().pop().expect("the only one");
    let data = [IoBuf::from(vec![1; 4 << 20])].into_iter().collect();
    let written = open.file().expect("a file").node.write(&env::Ctx::default(), 0, data).wait().await;
    assert_eq!(written, Ok(4 << 20), "it goes to memory");
    drop(open);
    let close = || w.request(&CloseRequest { file_id, ..CloseRequest::default() });
    assert_eq!(crate::commands::close::handle(close()).await.status, NtStatus::DISK_FULL);
    assert_eq!(crate::commands::close::handle(close()).await.status, NtStatus::FILE_CLOSED, "all the same");
}
