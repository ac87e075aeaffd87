use smb_wire::fscc::{FileInfoClass, FileLinkInformation, FileRenameInformation};

use super::*;

async fn rename(w: &World, id: FileId, to: &str, replace_if_exists: bool) -> NtStatus {
    let (name, mut bytes) = (Utf16Buf::from(to), Vec::new());
    let q = FileRenameInformation { replace_if_exists, root_directory: 0, name: name.as_utf16() };
    q.encode(&mut bytes).expect("fits");
    w.set(id, FileInfoClass::RENAME.0, &bytes).await
}

pub(super) async fn link(w: &World, id: FileId, to: &str, replace_if_exists: bool) -> NtStatus {
    let (name, mut bytes) = (Utf16Buf::from(to), Vec::new());
    let q = FileLinkInformation { replace_if_exists, root_directory: 0, name: name.as_utf16() };
    q.encode(&mut bytes).expect("fits");
    w.set(id, FileInfoClass::LINK.0, &bytes).await
}

fn paths(w: &World) -> Vec<String> {
    let mut opens = w.server.opens.all();
    opens.sort_by_key(|o| o.persistent);
    opens.iter().filter_map(|o| Some(o.file()?.file.path_of(o.persistent).to_string())).collect()
}

// MS-FSA 2.1.5.15.11
#[tokio::test(start_paused = true)]
async fn onto_something() {
    let w = World::new();
    let a = w.create("a", How::CREATE).await;
    let b = w.create("b", How::CREATE).await;
    w.create("d", How::MKDIR).await;
    assert_eq!(rename(&w, a, "b", false).await, NtStatus::OBJECT_NAME_COLLISION);
    assert_eq!(rename(&w, a, "b", true).await, NtStatus::ACCESS_DENIED, "it is open");
    assert_eq!(rename(&w, a, "d", true).await, NtStatus::ACCESS_DENIED, "a directory");
    assert_eq!(rename(&w, a, "x\\y", true).await, NtStatus::OBJECT_PATH_NOT_FOUND);
    w.close(b).await;
    assert_eq!(rename(&w, a, "b", true).await, NtStatus::SUCCESS);
    assert!(!w.exists("a").await);
    assert_eq!(rename(&w, a, "B", false).await, NtStatus::SUCCESS, "case only");
    let reader = w.create("b", How { access: AccessMask::READ_DATA, ..How::OPEN }).await;
    assert_eq!(rename(&w, reader, "c", false).await, NtStatus::ACCESS_DENIED);
}

// Another name of the same file is replaced like any other name: when the client requests it (MS-FSA 2.1.5.15.6,
// 2.1.5.15.11).
#[tokio::test(start_paused = true)]
async fn onto_another_of_its_names() {
    let w = World::new();
    let f = w.create("f", How::CREATE).await;
    assert_eq!(link(&w, f, "g", false).await, NtStatus::SUCCESS);
    assert_eq!(link(&w, f, "G", false).await, NtStatus::OBJECT_NAME_COLLISION);
    assert_eq!(rename(&w, f, "g", false).await, NtStatus::OBJECT_NAME_COLLISION);
    assert!(w.exists("f").await && w.exists("g").await);
    assert_eq!(rename(&w, f, "F", false).await, NtStatus::SUCCESS, "case only");
    assert_eq!(rename(&w, f, "g", true).await, NtStatus::SUCCESS);
    assert!(!w.exists("f").await && w.exists("g").await);
}

// MS-FSA 2.1.5.15.12 <185>: a rename opens the new folder to add an entry, and shares it for reading and writing.
#[tokio::test(start_paused = true)]
async fn into_a_folder_that_is_open() {
    let w = World::new();
    let made = w.create("d", How::MKDIR).await;
    w.close(made).await;
    let (file, folder) = (w.create("f", How::CREATE).await, w.create("g", How::MKDIR).await);
    let (success, violation) = (NtStatus::SUCCESS, NtStatus::SHARING_VIOLATION);
    for (access, share, outcome) in [
        (AccessMask::READ_DATA, SHARE_ALL, success),
        (AccessMask::READ_DATA, ShareAccess::READ | ShareAccess::WRITE, success),
        (AccessMask::READ_DATA, ShareAccess::READ | ShareAccess::DELETE, violation),
        (AccessMask::READ_DATA, ShareAccess::empty(), violation),
        (AccessMask::READ_ATTRIBUTES, ShareAccess::empty(), success),
        (AccessMask::DELETE, SHARE_ALL, violation),
    ] {
        let how = How { access, share, options: CreateOptions::DIRECTORY_FILE, ..How::OPEN };
        let open = w.create("d", how).await;
        for (id, name) in [(file, "f"), (folder, "g")] {
            let renamed = rename(&w, id, &format!("d\\{name}"), false).await;
            assert_eq!(renamed, outcome, "{name}, {access:?}, {share:?}");
            if renamed == success {
                assert_eq!(rename(&w, id, name, false).await, success, "back");
            }
        }
        w.close(open).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_directory_with_open_children_stays() {
    let w = World::new();
    let d = w.create("d", How::MKDIR).await;
    let f = w.create("d\\f", How::CREATE).await;
    assert_eq!(rename(&w, d, "e", false).await, NtStatus::ACCESS_DENIED);
    assert_eq!(rename(&w, d, "d\\g", false).await, NtStatus::ACCESS_DENIED, "into itself");
    w.close(f).await;
    assert_eq!(rename(&w, d, "e", false).await, NtStatus::SUCCESS);
    assert!(w.exists("e\\f").await);
    assert_eq!(paths(&w), ["e"]);
}

// Delete-on-close deletes the file that was opened, under its name at the close.
#[tokio::test(start_paused = true)]
async fn delete_on_close_follows_a_rename() {
    let w = World::new();
    let f = w.create("f", How { options: CreateOptions::DELETE_ON_CLOSE, ..How::CREATE }).await;
    assert_eq!(rename(&w, f, "g", false).await, NtStatus::SUCCESS);
    let new = w.create("f", How::CREATE).await;
    w.close(new).await;
    w.close(f).await;
    assert!(w.exists("f").await && !w.exists("g").await);
}

// Opens below a directory prevent its rename, in whatever case the client wrote its name.
#[tokio::test(start_paused = true)]
async fn a_new_path_is_kept_as_it_is_stored() {
    let w = World::new();
    let d = w.create("dir", How::MKDIR).await;
    w.close(d).await;
    let f = w.create("f", How::CREATE).await;
    assert_eq!(rename(&w, f, "DIR\\new", false).await, NtStatus::SUCCESS);
    assert_eq!(paths(&w), ["dir\\new"]);
    let d = w.create("dir", How::OPEN).await;
    assert_eq!(rename(&w, d, "e", false).await, NtStatus::ACCESS_DENIED);
}
