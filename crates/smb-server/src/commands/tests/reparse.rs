//! Reparse points: FSCTLs, and the answer to a CREATE with a reparse point in its path.

use smb_wire::FileAttributes;
use smb_wire::fscc::{
    DirectoryEntries, FileAttributeTagInformation, FileInfoClass, FileSystemAttributes,
    FsAttributeInformation, FsInfoClass,
};
use smb_wire::ioctl::{ReparseBuffer, ReparseTag, SymlinkReparse};
use smb_wire::msg::{
    ErrorId, ErrorResponse, FsctlCode, IoctlFlags, IoctlRequest, IoctlResponse, QueryDirectoryRequest,
    QueryDirectoryResponse, SymlinkError,
};

use super::*;

const POINT: How = How { options: CreateOptions::OPEN_REPARSE_POINT, ..How::OPEN };

async fn fsctl(w: &World, file_id: FileId, code: FsctlCode, input: &[u8], room: u32) -> (NtStatus, Vec<u8>) {
    let q = IoctlRequest {
        ctl_code: code,
        file_id,
        input,
        max_output_response: room,
        flags: IoctlFlags::IS_FSCTL,
        ..IoctlRequest::default()
    };
    let reply = crate::commands::ioctl::handle(w.request(&q)).await;
    let output = match success::<IoctlResponse<'_>>(&reply) {
        Ok(a) => a.output.to_vec(),
        Err(_) => Vec::new(),
    };
    (reply.status, output)
}

async fn set(w: &World, file: FileId, input: &[u8]) -> NtStatus {
    fsctl(w, file, FsctlCode::SET_REPARSE_POINT, input, 0).await.0
}

async fn delete(w: &World, file: FileId, input: &[u8]) -> NtStatus {
    fsctl(w, file, FsctlCode::DELETE_REPARSE_POINT, input, 0).await.0
}

async fn get(w: &World, file: FileId) -> (NtStatus, Vec<u8>) {
    fsctl(w, file, FsctlCode::GET_REPARSE_POINT, &[], 65_536).await
}

fn point(tag: u32, guid: u8, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    ReparseBuffer { tag: ReparseTag(tag), guid: Guid([guid; 16]), data }.encode(&mut out).expect("short");
    out
}

fn link(target: &str) -> Vec<u8> {
    let name = Utf16Buf::from(target);
    let mut data = Vec::new();
    let link =
        SymlinkReparse { substitute_name: name.as_utf16(), print_name: name.as_utf16(), relative: true };
    link.encode(&mut data).expect("short");
    point(ReparseTag::SYMLINK.0, 0, &data)
}

/// A new file or directory with this reparse point.
async fn made(w: &World, path: &str, how: How, buffer: &[u8]) {
    let id = w.create(path, how).await;
    assert_eq!(set(w, id, buffer).await, NtStatus::SUCCESS, "{path}");
    w.close(id).await;
}

/// The length of the unparsed path in bytes, and the target, of a CREATE that stops at a link.
async fn stopped(w: &World, path: &str, how: How) -> (u16, String) {
    let reply = w.create_with(path, how, OplockLevel::NONE, &CreateContextsBuf::new()).await;
    assert_eq!(reply.status, NtStatus::STOPPED_ON_SYMLINK, "{path}");
    let error = ErrorResponse::decode(&reply.message).expect("ours");
    let mut data = error.data;
    if w.facts.dialect >= 0x0311 {
        let contexts: Vec<_> = error.contexts().map(|c| c.expect("ours")).collect();
        let [context] = contexts[..] else { panic!("{contexts:?}") };
        assert_eq!(context.id, ErrorId::DEFAULT);
        data = context.data;
    }
    let symlink = SymlinkError::decode(data).expect("ours");
    assert!(symlink.link.relative);
    (symlink.unparsed_path_length, symlink.link.substitute_name.to_string().expect("UTF-16"))
}

async fn refusal(w: &World, path: &str, how: How) -> Option<NtStatus> {
    w.try_create(path, how).await.err()
}

// MS-FSA 2.1.5.10.37, 2.1.5.10.14, 2.1.5.10.3
#[tokio::test]
async fn set_get_delete() {
    let w = World::new();
    let file = w.create("f", How::CREATE).await;
    assert_eq!(get(&w, file).await.0, NtStatus::NOT_A_REPARSE_POINT);
    assert_eq!(delete(&w, file, &point(0x8000_0014, 0, &[])).await, NtStatus::NOT_A_REPARSE_POINT);
    let first = point(0x8000_0014, 0, b"some data");
    assert_eq!(set(&w, file, &first).await, NtStatus::SUCCESS);
    assert_eq!(get(&w, file).await, (NtStatus::SUCCESS, first));
    // A reparse point with the same tag replaces it; one with another tag does not.
    let second = point(0x8000_0014, 0, b"other");
    assert_eq!(set(&w, file, &second).await, NtStatus::SUCCESS);
    assert_eq!(set(&w, file, &point(0x8000_0024, 0, &[])).await, NtStatus::IO_REPARSE_TAG_MISMATCH);
    assert_eq!(delete(&w, file, &point(0x8000_0024, 0, &[])).await, NtStatus::IO_REPARSE_TAG_MISMATCH);
    // MS-FSCC 2.3.28: as much as fits the buffer, and at least the header.
    let code = FsctlCode::GET_REPARSE_POINT;
    assert_eq!(fsctl(&w, file, code, &[], 7).await.0, NtStatus::BUFFER_TOO_SMALL);
    let some = (NtStatus::BUFFER_OVERFLOW, second[..10].to_vec());
    assert_eq!(fsctl(&w, file, code, &[], 10).await, some);
    assert_eq!(delete(&w, file, &second).await, NtStatus::IO_REPARSE_DATA_INVALID, "with data");
    assert_eq!(delete(&w, file, &point(0x8000_0014, 0, &[])).await, NtStatus::SUCCESS);
    assert_eq!(get(&w, file).await.0, NtStatus::NOT_A_REPARSE_POINT);
}

// MS-FSCC 2.1.2.3
#[tokio::test]
async fn a_tag_of_another_owner_has_its_guid() {
    let w = World::new();
    let file = w.create("f", How::CREATE).await;
    let mine = point(0x0000_1234, 7, b"data");
    assert_eq!(set(&w, file, &mine).await, NtStatus::SUCCESS);
    assert_eq!(get(&w, file).await, (NtStatus::SUCCESS, mine));
    assert_eq!(set(&w, file, &point(0x1234, 8, &[])).await, NtStatus::REPARSE_ATTRIBUTE_CONFLICT);
    assert_eq!(delete(&w, file, &point(0x1234, 8, &[])).await, NtStatus::REPARSE_ATTRIBUTE_CONFLICT);
    assert_eq!(delete(&w, file, &point(0x1234, 0, &[])).await, NtStatus::IO_REPARSE_DATA_INVALID);
    let code = FsctlCode::GET_REPARSE_POINT;
    assert_eq!(fsctl(&w, file, code, &[], 23).await.0, NtStatus::BUFFER_TOO_SMALL);
    assert_eq!(delete(&w, file, &point(0x1234, 7, &[])).await, NtStatus::SUCCESS);
}

// MS-FSA 2.1.5.10.37, MS-FSCC 2.3.82
#[tokio::test]
async fn what_is_no_reparse_point() {
    let w = World::new();
    let file = w.create("f", How::CREATE).await;
    assert_eq!(set(&w, file, &[]).await, NtStatus::INVALID_BUFFER_SIZE);
    let good = point(0x8000_0014, 0, b"data");
    let longer = [&good[..], &[0]].concat();
    let guid = point(0x1234, 7, b"data");
    let large = point(0x8000_0014, 0, &vec![0; 16_377]);
    for bad in [&good[..7], &good[..11], &longer, &guid[..23], &guid[..27], &large] {
        assert_eq!(set(&w, file, bad).await, NtStatus::IO_REPARSE_DATA_INVALID, "{} bytes", bad.len());
    }
    assert_eq!(set(&w, file, &point(0x8000_0014, 0, &vec![0; 16_376])).await, NtStatus::SUCCESS);
    assert_eq!(delete(&w, file, &point(0x8000_0014, 0, &[])).await, NtStatus::SUCCESS);
    for reserved in 0..3 {
        let buffer = point(reserved, 7, &[]);
        assert_eq!(set(&w, file, &buffer).await, NtStatus::IO_REPARSE_DATA_INVALID);
        assert_eq!(delete(&w, file, &buffer).await, NtStatus::IO_REPARSE_TAG_INVALID);
    }
    let mount = point(ReparseTag::MOUNT_POINT.0, 0, &[]);
    assert_eq!(set(&w, file, &mount).await, NtStatus::NOT_A_DIRECTORY);
    let broken = point(ReparseTag::SYMLINK.0, 0, b"no link");
    assert_eq!(set(&w, file, &broken).await, NtStatus::IO_REPARSE_DATA_INVALID);
    // A link has no data, a directory no entries.
    let size = 1u64.to_le_bytes();
    assert_eq!(w.set(file, FileInfoClass::END_OF_FILE.0, &size).await, NtStatus::SUCCESS);
    assert_eq!(set(&w, file, &link("to")).await, NtStatus::IO_REPARSE_DATA_INVALID);
    let directory = w.create("d", How::MKDIR).await;
    w.close(w.create("d\\f", How::CREATE).await).await;
    assert_eq!(set(&w, directory, &mount).await, NtStatus::DIRECTORY_NOT_EMPTY);
    // Rights.
    let reader = w.create("f", How { access: AccessMask::READ_DATA, ..How::OPEN }).await;
    assert_eq!(set(&w, reader, &good).await, NtStatus::ACCESS_DENIED);
    assert_eq!(delete(&w, reader, &good).await, NtStatus::ACCESS_DENIED);
}

// MS-SMB2 3.3.5.9, 2.2.2.2.1, 2.2.2.1
#[tokio::test]
async fn a_link_stops_a_create() {
    let mut w = World::new();
    w.close(w.create("d", How::MKDIR).await).await;
    made(&w, "d\\file", How::CREATE, &link("..\\target")).await;
    made(&w, "d\\folder", How::MKDIR, &link("elsewhere")).await;
    for dialect in [0x0311, 0x0302, 0x0202] {
        Arc::get_mut(&mut w.facts).expect("nothing else has it").dialect = dialect;
        for how in [How::OPEN, How::OPEN_IF, How::CREATE] {
            assert_eq!(stopped(&w, "d\\file", how).await, (0, "..\\target".into()));
            assert_eq!(stopped(&w, "D\\FOLDER", how).await, (0, "elsewhere".into()));
            // A link within the path: the length of the rest of the path, the separator included.
            assert_eq!(stopped(&w, "d\\folder\\a\\ž.doc", how).await, (16, "elsewhere".into()));
            assert_eq!(stopped(&w, "d\\folder\\b", how).await, (4, "elsewhere".into()));
            assert_eq!(stopped(&w, "d\\file\\b", how).await, (4, "..\\target".into()));
        }
        assert_eq!(stopped(&w, "d\\file:stream", How::OPEN).await, (0, "..\\target".into()));
        assert_eq!(stopped(&w, "d\\file:stream", How::OPEN_IF).await, (0, "..\\target".into()));
        let directory = How { options: CreateOptions::DIRECTORY_FILE, ..How::OPEN };
        assert_eq!(stopped(&w, "d\\folder", directory).await, (0, "elsewhere".into()));
    }
    // The point itself.
    let open = |path| w.create(path, POINT);
    for path in ["d\\file", "d\\folder"] {
        w.close(open(path).await).await;
    }
    let how = How { disposition: CreateDisposition::CREATE, ..POINT };
    assert_eq!(refusal(&w, "d\\file", how).await, Some(NtStatus::OBJECT_NAME_COLLISION));
    assert_eq!(stopped(&w, "d\\folder\\b", how).await, (4, "elsewhere".into()));
    // Paths without a link fail as usual.
    assert_eq!(refusal(&w, "d\\none", How::OPEN).await, Some(NtStatus::OBJECT_NAME_NOT_FOUND));
    assert_eq!(refusal(&w, "none\\a\\b", How::OPEN).await, Some(NtStatus::OBJECT_PATH_NOT_FOUND));
    assert_eq!(refusal(&w, "d", How::CREATE).await, Some(NtStatus::OBJECT_NAME_COLLISION));
    // Removed by name, like every file.
    let how = How { options: POINT.options | CreateOptions::DELETE_ON_CLOSE, ..POINT };
    w.close(w.create("d\\file", how).await).await;
    assert!(!w.exists("d\\file").await);
}

// MS-FSA 2.1.5.1.2
#[tokio::test]
async fn other_tags_are_not_handled() {
    let w = World::new();
    made(&w, "file", How::CREATE, &point(0x8000_0024, 0, &[])).await;
    made(&w, "folder", How::MKDIR, &point(ReparseTag::MOUNT_POINT.0, 0, b"data")).await;
    for path in ["file", "folder", "folder\\f", "folder\\a\\b", "file\\f"] {
        for how in [How::OPEN, How::OPEN_IF, How::CREATE] {
            assert_eq!(refusal(&w, path, how).await, Some(NtStatus::IO_REPARSE_TAG_NOT_HANDLED), "{path}");
        }
    }
    w.close(w.create("file", POINT).await).await;
}

// MS-FSCC 2.4.6, 2.6, 2.5.1; MS-FSA 2.1.5.6.3
#[tokio::test]
async fn what_is_shown() {
    let w = World::new();
    let buffer = link("target");
    made(&w, "f", How::CREATE, &buffer).await;
    let tag = ReparseTag::SYMLINK.0;
    let reply = w.create_with("f", POINT, OplockLevel::NONE, &CreateContextsBuf::new()).await;
    let open = success::<CreateResponse<'_>>(&reply).expect("opened");
    let wanted = FileAttributes::REPARSE_POINT | FileAttributes::ARCHIVE;
    assert_eq!(open.file_attributes, wanted);
    let bytes = w.query(open.file_id, InfoType::FILE, FileInfoClass::ATTRIBUTE_TAG.0).await.expect("known");
    let shown = FileAttributeTagInformation::decode(&bytes).expect("ours");
    assert_eq!((shown.file_attributes, shown.reparse_tag), (wanted, tag));
    let bytes = w.query(open.file_id, InfoType::FILESYSTEM, FsInfoClass::ATTRIBUTE.0).await.expect("known");
    let volume = FsAttributeInformation::decode(&bytes).expect("ours").attributes;
    assert!(volume.contains(FileSystemAttributes::SUPPORTS_REPARSE_POINTS));
    let root = w.create("", How { access: AccessMask::READ_DATA, ..How::OPEN }).await;
    for class in [
        FileInfoClass::FULL_DIRECTORY,
        FileInfoClass::BOTH_DIRECTORY,
        FileInfoClass::ID_FULL_DIRECTORY,
        FileInfoClass::ID_BOTH_DIRECTORY,
        FileInfoClass::ID_EXTD_DIRECTORY,
        FileInfoClass::ID_EXTD_BOTH_DIRECTORY,
    ] {
        let pattern = Utf16Buf::from("f");
        let q = QueryDirectoryRequest {
            info_class: class.0,
            file_id: root,
            output_buffer_length: 4096,
            pattern: pattern.as_utf16(),
            flags: smb_wire::msg::QueryDirectoryFlags::REOPEN,
            ..QueryDirectoryRequest::default()
        };
        let reply = crate::commands::query_directory::handle(w.request(&q)).await;
        let listed = success::<QueryDirectoryResponse<'_>>(&reply).expect("listed");
        let entry = DirectoryEntries::new(listed.buffer, class).expect("known").next().expect("one");
        let entry = entry.expect("ours");
        let extended = [FileInfoClass::ID_EXTD_DIRECTORY, FileInfoClass::ID_EXTD_BOTH_DIRECTORY];
        let shown = if extended.contains(&class) { entry.reparse_tag } else { entry.ea_size };
        assert_eq!((entry.file_attributes, shown), (wanted, tag), "{class:?}");
    }
    // Setting attributes keeps it.
    let basic = [&[0; 32][..], &FileAttributes::HIDDEN.bits().to_le_bytes(), &[0; 4]].concat();
    assert_eq!(w.set(open.file_id, FileInfoClass::BASIC.0, &basic).await, NtStatus::SUCCESS);
    assert_eq!(get(&w, open.file_id).await, (NtStatus::SUCCESS, buffer));
}

// MS-FSA 2.1.5.15.11
#[tokio::test]
async fn nothing_is_moved_into_a_reparse_point() {
    let w = World::new();
    made(&w, "folder", How::MKDIR, &link("elsewhere")).await;
    let file = w.create("f", How::CREATE).await;
    let name: Vec<u8> = "folder\\f".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let buffer = [&[0; 16][..], &(name.len() as u32).to_le_bytes(), &name].concat();
    let status = w.set(file, FileInfoClass::RENAME.0, &buffer).await;
    assert_eq!(status, NtStatus::DIRECTORY_IS_A_REPARSE_POINT);
}
