use smb_wire::fscc::{FileDispositionInformation, FileInfoClass, FileRenameInformation};
use smb_wire::msg::CreateAction;

use super::*;

async fn rename(w: &World, id: FileId, to: &str, replace_if_exists: bool) -> NtStatus {
    let (name, mut bytes) = (Utf16Buf::from(to), Vec::new());
    let q = FileRenameInformation { replace_if_exists, root_directory: 0, name: name.as_utf16() };
    q.encode(&mut bytes).expect("fits");
    w.set(id, FileInfoClass::RENAME.0, &bytes).await
}

async fn dispose(w: &World, id: FileId) -> NtStatus {
    let mut bytes = Vec::new();
    FileDispositionInformation { delete_pending: true }.encode(&mut bytes);
    w.set(id, FileInfoClass::DISPOSITION.0, &bytes).await
}

async fn write(w: &World, id: FileId, bytes: &[u8]) {
    let open = w.server.opens.find(id.persistent).expect("open");
    let src = [IoBuf::from(bytes.to_vec())].into_iter().collect();
    open.file().expect("a file").node.write(&env::Ctx::default(), 0, src).wait().await.expect("room");
}

// MS-FSA 2.1.5.1.1, 2.1.5.1.2: the file is created with its stream; dispositions are about the stream.
#[tokio::test(start_paused = true)]
async fn creating() {
    let w = World::new();
    assert_eq!(w.try_create("f:s", How::OPEN).await, Err(NtStatus::OBJECT_NAME_NOT_FOUND));
    assert!(!w.exists("f").await);
    let made = w.try_create("f:S", How::CREATE).await.expect("with its file");
    assert_eq!(made.action, CreateAction::CREATED);
    assert!(w.exists("f").await);
    assert_eq!(w.try_create("F:s:$DATA", How::CREATE).await, Err(NtStatus::OBJECT_NAME_COLLISION));
    let overwrite = How { disposition: CreateDisposition::OVERWRITE, ..How::OPEN };
    let again = w.try_create("f:s", overwrite).await.expect("there");
    assert_eq!(again.action, CreateAction::OVERWRITTEN);
    let directory = How { options: CreateOptions::DIRECTORY_FILE, ..How::OPEN_IF };
    assert_eq!(w.try_create("f:new", directory).await, Err(NtStatus::NOT_A_DIRECTORY));
    w.create("d", How::MKDIR).await;
    assert_eq!(w.try_create("d::$DATA", How::OPEN).await, Err(NtStatus::FILE_IS_A_DIRECTORY));
    w.create("d::$INDEX_ALLOCATION", How::OPEN).await;
    w.create("d:s", How::CREATE).await;
}

// MS-FSA 2.1.5.1.2.2: share modes are per stream; 2.1.5.1.2.1: but deleting the unnamed stream deletes all.
#[tokio::test(start_paused = true)]
async fn share_modes() {
    let w = World::new();
    let alone = How { access: AccessMask::WRITE_DATA, share: ShareAccess::empty(), ..How::OPEN_IF };
    let s = w.create("f:s", alone).await;
    let t = w.create("f:t", alone).await;
    w.create("f", alone).await;
    assert_eq!(w.try_create("F:S", alone).await, Err(NtStatus::SHARING_VIOLATION));
    let delete = How { access: AccessMask::DELETE, ..How::OPEN };
    assert_eq!(w.try_create("f", delete).await, Err(NtStatus::SHARING_VIOLATION));
    w.close(s).await;
    let deleter = w.create("f:s", delete).await;
    w.close(deleter).await;
    w.close(t).await;

    let deleter = w.create("g", How { disposition: CreateDisposition::CREATE, ..delete }).await;
    assert_eq!(w.try_create("g:s", alone).await, Err(NtStatus::SHARING_VIOLATION), "the file may be deleted");
    w.close(deleter).await;
    w.create("g:t", alone).await;
}

// MS-FSA 2.1.5.4: a stream is deleted with its last open, without its file.
#[tokio::test(start_paused = true)]
async fn deleting() {
    let w = World::new();
    let file = w.create("f", How::CREATE).await;
    let kept = w.create("f:kept", How::CREATE).await;
    for on_close in [true, false] {
        let options = if on_close { CreateOptions::DELETE_ON_CLOSE } else { CreateOptions::empty() };
        let first = w.create("f:s", How { options, ..How::CREATE }).await;
        let second = w.create("f:s", How::OPEN).await;
        if !on_close {
            assert_eq!(dispose(&w, first).await, NtStatus::SUCCESS);
        }
        w.close(first).await;
        assert_eq!(w.try_create("f:s", How::OPEN).await, Err(NtStatus::DELETE_PENDING));
        assert!(w.exists("f").await, "the file is not going");
        w.close(second).await;
        assert!(!w.exists("f:s").await && w.exists("f:kept").await);
    }
    w.close(kept).await;
    w.close(file).await;
    assert_eq!(w.server.files.open_files(), 0);
}

/// The last open of a file may be that of a stream to be deleted: the file is deleted after it.
#[tokio::test(start_paused = true)]
async fn a_stream_and_its_file_at_once() {
    let w = World::new();
    let file = w.create("f", How::CREATE).await;
    let stream = w.create("f:s", How { options: CreateOptions::DELETE_ON_CLOSE, ..How::CREATE }).await;
    assert_eq!(dispose(&w, file).await, NtStatus::SUCCESS);
    assert_eq!(w.try_create("f:new", How::CREATE).await, Err(NtStatus::DELETE_PENDING));
    w.close(file).await;
    w.close(stream).await;
    assert!(!w.exists("f").await);
    assert_eq!(w.server.files.open_files(), 0);
}

#[tokio::test(start_paused = true)]
async fn overwriting_the_file_removes_its_streams() {
    let w = World::new();
    let s = w.create("f:s", How::CREATE).await;
    w.close(s).await;
    let _open = w.create("f:open", How::CREATE).await;
    let overwrite = How { disposition: CreateDisposition::OVERWRITE, ..How::OPEN };
    w.create("f:open", overwrite).await;
    assert!(w.exists("f:s").await, "a stream overwrites itself only");
    w.create("f", overwrite).await;
    assert!(!w.exists("f:s").await && w.exists("f:open").await);
}

// MS-FSA 2.1.5.15.12.1
#[tokio::test(start_paused = true)]
async fn renaming() {
    let w = World::new();
    let s = w.create("f:s", How::CREATE).await;
    write(&w, s, b"data").await;
    let full = w.create("f:full", How::CREATE).await;
    write(&w, full, b"data").await;
    w.close(full).await;
    assert_eq!(rename(&w, s, ":full", false).await, NtStatus::OBJECT_NAME_COLLISION);
    assert_eq!(rename(&w, s, ":full", true).await, NtStatus::INVALID_PARAMETER, "it is not empty");
    let empty = w.create("f:empty", How::CREATE).await;
    assert_eq!(rename(&w, s, ":empty", true).await, NtStatus::INVALID_PARAMETER, "it is open");
    w.close(empty).await;
    assert_eq!(rename(&w, s, ":Empty:$DATA", true).await, NtStatus::SUCCESS);
    assert!(!w.exists("f:s").await);
    for bad in [":", ":a:", ":a/b", ":a:b:c:d"] {
        assert_eq!(rename(&w, s, bad, true).await, NtStatus::INVALID_PARAMETER, "{bad}");
    }
    assert_eq!(rename(&w, s, ":a:$OTHER", true).await, NtStatus::OBJECT_TYPE_MISMATCH);
    assert_eq!(rename(&w, s, "g", true).await, NtStatus::SHARING_VIOLATION);
    // The open keeps its stream: it excludes other opens under the new name, and the new name is deleted.
    let alone = How { share: ShareAccess::READ, ..How::OPEN };
    assert_eq!(w.try_create("f:empty", alone).await, Err(NtStatus::SHARING_VIOLATION));
    assert_eq!(dispose(&w, s).await, NtStatus::SUCCESS);
    w.close(s).await;
    assert!(!w.exists("f:empty").await && w.exists("f:full").await);
    let full = w.create("f:full", How::OPEN).await;
    assert_eq!(rename(&w, full, "::$DATA", true).await, NtStatus::SUCCESS);
    assert!(!w.exists("f:full").await);
}

/// A stream of more than 1 KiB is in a file of its own. When that is missing the stream is damaged; access to it is not
/// denied, and it can be removed.
#[tokio::test]
async fn a_stream_whose_data_is_missing() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("ours");
    let w = super::notifying::hosted(World::new(), directory.path());
    let large = w.create("f:large", How::CREATE).await;
    write(&w, large, &[7; 5000]).await;
    w.close(large).await;
    std::fs::remove_dir_all(directory.path().join(".causeway-streams")).expect("the stream is there");
    assert_eq!(w.try_create("f:large", How::OPEN).await, Err(NtStatus::FILE_CORRUPT_ERROR));
    w.create("f", How::OPEN).await;
}
