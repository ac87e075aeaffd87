//! Previous versions: opens in a snapshot of the share (MS-SMB2 3.3.5.9.4), and their list (3.3.5.15.1).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use smb_wire::context::CreateRequestContext;
use smb_wire::fscc::FileInfoClass;
use smb_wire::ioctl::SnapshotArray;
use smb_wire::msg::{FsctlCode, IoctlFlags, IoctlRequest, IoctlResponse, ReadRequest, WriteRequest};
use vfs::SnapshotTime;

use super::*;
use crate::commands::ioctl;
use crate::commands::metadata::file_time;
use crate::connection::Outcome;

const OLD: &str = "@GMT-2015.10.31-19.40.30";
const NEW: &str = "@GMT-2020.02.29-00.00.00";

/// A share of `folder` with the file `f` ("now"), in two snapshots with another content. In the older one `linked` is a
/// hard link to the share's.
fn world_on(folder: &Path) -> World {
    let file = |path: &str, content: &str| std::fs::write(folder.join(path), content).expect("room");
    for snapshot in [OLD, NEW] {
        std::fs::create_dir_all(folder.join(".snapshots").join(snapshot).join("d")).expect("room");
        file(&format!(".snapshots/{snapshot}/f"), snapshot);
        file(&format!(".snapshots/{snapshot}/d/g"), snapshot);
    }
    std::fs::create_dir(folder.join(".snapshots/daily")).expect("room");
    file("f", "now");
    file("linked", "both");
    std::fs::hard_link(folder.join("linked"), folder.join(".snapshots").join(OLD).join("linked"))
        .expect("room");
    let all: Vec<_> = ["", "f", "linked", ".snapshots"].map(|name| folder.join(name)).into();
    let snapshots = [OLD, NEW].map(|s| folder.join(".snapshots").join(s));
    let below = snapshots.iter().flat_map(|s| ["", "f", "d", "d/g"].map(|name| s.join(name)));
    for path in all.into_iter().chain(below) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("ours");
    }
    let w = World::new();
    let options = vfs::HostDirOptions { snapshots: Some(".snapshots".into()), ..Default::default() };
    let vfs = vfs::HostDir::open(folder, options).expect("a directory");
    w.server.add_share(ShareConfig::new("disk", vfs)).expect("another name");
    let share = w.server.share("disk").expect("added");
    let tree = w.session.add_tree(2, |id| Tree::new(id, share, ALL.bits())).expect("the second");
    World { tree, ..w }
}

/// A CREATE with SMB2_CREATE_TIMEWARP_TOKEN.
async fn open_at(w: &World, token: &str, path: &str, how: How) -> Result<FileId, NtStatus> {
    let at = SnapshotTime::parse(token).expect("a token");
    let time = file_time(vfs::Timestamp { seconds: at.seconds(), nanoseconds: 0 });
    let mut contexts = CreateContextsBuf::new();
    contexts.request(&CreateRequestContext::Timewarp(time)).expect("short");
    let reply = w.create_with(path, how, OplockLevel::BATCH, &contexts).await;
    let created = success::<CreateResponse<'_>>(&reply)?;
    assert_eq!(created.oplock_level, OplockLevel::NONE);
    Ok(created.file_id)
}

async fn done(outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Reply(reply) => reply,
        Outcome::Pending(reply) => reply.await,
        _ => panic!("no RDMA, and no cancel"),
    }
}

async fn content(w: &World, file_id: FileId) -> String {
    let q = ReadRequest { length: 100, file_id, ..ReadRequest::default() };
    let reply = done(crate::commands::read::start(w.request(&q), true)).await;
    assert_eq!(reply.status, NtStatus::SUCCESS);
    let vfs::Data::Bufs(bytes) = &reply.payload else { panic!("a short read is no file") };
    String::from_utf8(arena::sg_to_vec(bytes)).expect("text")
}

async fn write(w: &World, file_id: FileId) -> NtStatus {
    let data_offset = WriteRequest::HEAD_LEN as u16;
    let q = WriteRequest { length: 1, data_offset, file_id, ..WriteRequest::default() };
    let r = w.request(&q);
    let mut message = r.message.to_vec();
    message.resize(WriteRequest::HEAD_LEN + 1, b'!');
    let whole = arena::Sg::from_iter([IoBuf::from(message)]);
    done(crate::commands::write::start(r, &whole, None)).await.status
}

/// (snapshots, returned, bytes of all names, names)
async fn list(w: &World, file_id: FileId, room: u32) -> Result<(u32, u32, u32, String), NtStatus> {
    let q = IoctlRequest {
        ctl_code: FsctlCode::SRV_ENUMERATE_SNAPSHOTS,
        file_id,
        max_output_response: room,
        flags: IoctlFlags::IS_FSCTL,
        ..IoctlRequest::default()
    };
    let reply = ioctl::handle(w.request(&q)).await;
    let answer = success::<IoctlResponse<'_>>(&reply)?;
    assert!(answer.output.len() <= room as usize);
    let a = SnapshotArray::decode(answer.output).expect("an array");
    Ok((a.number_of_snapshots, a.number_returned, a.array_size, a.names.to_string().expect("text")))
}

/// The access that the files' mode gives every user.
const READ_WRITE: How = How {
    access: AccessMask::READ_DATA.union(AccessMask::WRITE_DATA).union(AccessMask::READ_ATTRIBUTES),
    ..How::OPEN
};

// MS-SMB2 3.3.5.9.4
#[tokio::test]
async fn a_snapshot_is_opened_by_its_time() {
    let folder = tempfile::tempdir().expect("a directory");
    let w = world_on(folder.path());
    let now = w.create("f", READ_WRITE).await;
    let old = open_at(&w, OLD, "F", READ_WRITE).await.expect("there");
    let new = w.create(&format!("{NEW}\\f"), READ_WRITE).await;
    let below = w.create(&format!("d\\{OLD}\\g"), READ_WRITE).await;
    for (file, expected) in [(now, "now"), (old, OLD), (new, NEW), (below, OLD)] {
        assert_eq!(content(&w, file).await, expected);
    }
    let missing = NtStatus::OBJECT_NAME_NOT_FOUND;
    assert_eq!(open_at(&w, "@GMT-2015.10.31-19.40.31", "f", READ_WRITE).await, Err(missing));
    assert_eq!(open_at(&w, NEW, "linked", READ_WRITE).await, Err(missing));
    assert_eq!(w.try_create("@GMT-2015.10.31-19.40.31\\f", READ_WRITE).await, Err(missing));
    // The folder of a snapshot is no folder of the share.
    assert_eq!(w.try_create(&format!(".snapshots\\{OLD}"), READ_WRITE).await, Err(missing));
}

// MS-FSA 2.1.5.1, 2.1.5.3, 2.1.5.15: a volume that is read-only.
#[tokio::test]
async fn nothing_in_a_snapshot_changes() {
    use FileInfoClass as C;
    let folder = tempfile::tempdir().expect("a directory");
    let w = world_on(folder.path());
    let protected = NtStatus::MEDIA_WRITE_PROTECTED;
    let file = open_at(&w, OLD, "d\\g", READ_WRITE).await.expect("there");
    assert_eq!(write(&w, file).await, protected);
    for (class, bytes) in
        [(C::BASIC, 40), (C::RENAME, 40), (C::LINK, 40), (C::DISPOSITION, 1), (C::END_OF_FILE, 8)]
    {
        assert_eq!(w.set(file, class.0, &vec![1; bytes]).await, protected, "{class:?}");
    }
    assert_eq!(w.set(file, C::POSITION.0, &[0; 8]).await, NtStatus::SUCCESS);
    for disposition in [CreateDisposition::CREATE, CreateDisposition::OVERWRITE, CreateDisposition::SUPERSEDE]
    {
        let how = How { disposition, ..READ_WRITE };
        for name in ["f", "none"] {
            assert_eq!(open_at(&w, OLD, name, how).await, Err(protected), "{disposition:?}");
        }
    }
    let how = How { disposition: CreateDisposition::OPEN_IF, ..READ_WRITE };
    assert_eq!(open_at(&w, OLD, "none", how).await, Err(protected));
    w.close(file).await;
    let path = folder.path().join(".snapshots").join(OLD).join("d/g");
    assert_eq!(std::fs::read_to_string(path).expect("there"), OLD);
}

#[tokio::test]
async fn share_modes_of_a_file_and_its_versions_do_not_meet() {
    let folder = tempfile::tempdir().expect("a directory");
    let w = world_on(folder.path());
    let alone = How { share: ShareAccess::empty(), ..READ_WRITE };
    // One inode, with a name in the share and one in the snapshot.
    let now = w.create("linked", alone).await;
    let old = open_at(&w, OLD, "linked", alone).await.expect("another file");
    assert_eq!(open_at(&w, OLD, "linked", alone).await, Err(NtStatus::SHARING_VIOLATION));
    assert_eq!(content(&w, old).await, "both");
    assert_eq!(write(&w, now).await, NtStatus::SUCCESS);
    w.close(old).await;
    w.close(open_at(&w, OLD, "linked", alone).await.expect("closed before")).await;
}

#[tokio::test]
async fn a_folder_of_a_snapshot_is_listed() {
    let folder = tempfile::tempdir().expect("a directory");
    let w = world_on(folder.path());
    let how = How { access: AccessMask::READ_DATA, ..How::OPEN };
    let root = open_at(&w, OLD, "", how).await.expect("the root");
    let mut names = listing::query(&w, root, "*", Default::default(), 4096).await.expect("entries");
    names.sort();
    assert_eq!(names, [".", "..", "d", "f", "linked"]);
}

// MS-SMB2 2.2.32.2, 3.3.5.15.1
#[tokio::test]
async fn snapshots_are_listed() {
    let folder = tempfile::tempdir().expect("a directory");
    let w = world_on(folder.path());
    let file = w.create("f", READ_WRITE).await;
    let all = format!("{NEW}\0{OLD}\0\0");
    assert_eq!(list(&w, file, 15).await, Err(NtStatus::INVALID_PARAMETER));
    for room in [16, 113] {
        assert_eq!(list(&w, file, room).await, Ok((2, 0, 102, String::new())));
    }
    assert_eq!(list(&w, file, 114).await, Ok((2, 2, 102, all)));
    std::fs::remove_dir_all(folder.path().join(".snapshots")).expect("ours");
    assert_eq!(list(&w, file, 4096).await, Ok((0, 0, 2, String::new())));
    let ram = World::new();
    let file = ram.create("f", How::CREATE).await;
    assert_eq!(list(&ram, file, 4096).await, Ok((0, 0, 2, String::new())));
}
