//! Information that a client sees: times, names, sizes.

use std::time::Duration;

use smb_wire::FileTime;
use smb_wire::fscc::{FileBasicInformation, FileInfoClass};
use smb_wire::ioctl::ZeroData;
use smb_wire::msg::{CloseFlags, CloseResponse, FsctlCode, IoctlFlags, IoctlRequest, QueryDirectoryRequest};

use super::*;

async fn basic(w: &World, file_id: FileId) -> FileBasicInformation {
    let bytes = w.query(file_id, InfoType::FILE, FileInfoClass::BASIC.0).await.expect("information");
    FileBasicInformation::decode(&bytes).expect("well-formed")
}

/// Changes data without changing the size.
async fn write(w: &World, file_id: FileId) {
    let mut input = Vec::new();
    ZeroData { file_offset: 0, beyond_final_zero: 10 }.encode(&mut input);
    let q = IoctlRequest {
        ctl_code: FsctlCode::SET_ZERO_DATA,
        file_id,
        input: &input,
        flags: IoctlFlags::IS_FSCTL,
        ..Default::default()
    };
    assert_eq!(crate::commands::ioctl::handle(w.request(&q)).await.status, NtStatus::SUCCESS);
}

async fn close(w: &World, file_id: FileId) -> FileTime {
    let q = CloseRequest { flags: CloseFlags::POSTQUERY_ATTRIB, file_id };
    let reply = crate::commands::close::handle(w.request(&q)).await;
    success::<CloseResponse>(&reply).expect("closed").last_write_time
}

/// A file of some bytes that was closed 100 seconds ago.
async fn file() -> (World, FileId) {
    let w = World::new();
    let f = w.create("f", How::CREATE).await;
    assert_eq!(w.set(f, FileInfoClass::END_OF_FILE.0, &100_u64.to_le_bytes()).await, NtStatus::SUCCESS);
    w.close(f).await;
    tokio::time::advance(Duration::from_secs(100)).await;
    let f = w.create("f", How::OPEN).await;
    (w, f)
}

fn seconds_after(t: FileTime, seconds: u64) -> FileTime {
    FileTime(t.0 + seconds * 10_000_000)
}

// MS-FSA 2.1.4.17: the first write becomes visible after two seconds, later ones when the file is closed.
#[tokio::test(start_paused = true)]
async fn writes_show_late() {
    let (w, f) = file().await;
    let before = basic(&w, f).await.last_write_time;
    write(&w, f).await;
    assert_eq!(basic(&w, f).await.last_write_time, before);
    tokio::time::advance(Duration::from_secs(3)).await;
    let first = seconds_after(before, 100);
    assert_eq!(basic(&w, f).await.last_write_time, first);
    write(&w, f).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(basic(&w, f).await.last_write_time, first);
    let closed = seconds_after(before, 108);
    assert_eq!(close(&w, f).await, closed);
    let again = w.create("f", How::OPEN).await;
    assert_eq!(basic(&w, again).await.last_write_time, closed);
}

// FLUSH and SET_INFO make a write visible at once; closing then changes no time.
#[tokio::test(start_paused = true)]
async fn writes_show_when_they_are_flushed() {
    let nothing = [0; 40];
    for by_flush in [true, false] {
        let (w, f) = file().await;
        let before = basic(&w, f).await.last_write_time;
        write(&w, f).await;
        let status =
            if by_flush { w.flush(f).await } else { w.set(f, FileInfoClass::BASIC.0, &nothing).await };
        assert_eq!(status, NtStatus::SUCCESS);
        assert_eq!(basic(&w, f).await.last_write_time, seconds_after(before, 100));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(close(&w, f).await, seconds_after(before, 100));
    }
}

// MS-FSA 2.1.5.15.2: a time that was set is not changed by writes through the same open, and stays.
#[tokio::test(start_paused = true)]
async fn times_that_were_set_stay() {
    let (w, f) = file().await;
    let time = FileTime::from_unix(-5, 700);
    let mut b = Vec::new();
    let set = FileBasicInformation { last_write_time: time, change_time: time, ..Default::default() };
    set.encode(&mut b);
    assert_eq!(w.set(f, FileInfoClass::BASIC.0, &b).await, NtStatus::SUCCESS);
    write(&w, f).await;
    assert_eq!(basic(&w, f).await.last_write_time, time);
    assert_eq!(close(&w, f).await, time);
    let again = basic(&w, w.create("f", How::OPEN).await).await;
    assert_eq!((again.last_write_time, again.change_time), (time, time));
}

// MS-FSA 2.1.5.12.5: an 8.3 name is its own alternate name; others have one where the backend opens files by it.
#[tokio::test]
async fn alternate_names() {
    let w = World::new();
    let short = w.create("short.txt", How::CREATE).await;
    let name: Vec<u8> = "short.txt".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let answer = w.query(short, InfoType::FILE, FileInfoClass::ALTERNATE_NAME.0).await.expect("a name");
    assert_eq!((&answer[..4], &answer[4..]), (&18_u32.to_le_bytes()[..], &*name));
    for path in ["a long name.text", ""] {
        let long = w.create(path, How::OPEN_IF).await;
        let refused = w.query(long, InfoType::FILE, FileInfoClass::ALTERNATE_NAME.0).await;
        assert_eq!(refused, Err(NtStatus::OBJECT_NAME_NOT_FOUND), "{path:?}");
    }
}

// A volume without quotas has an index of them that can be opened.
#[tokio::test]
async fn the_index_of_quotas() {
    let w = World::new();
    let index = w.create("$Extend\\$Quota:$Q:$INDEX_ALLOCATION", How::OPEN).await;
    assert_eq!(
        w.query(index, InfoType::FILE, FileInfoClass::BASIC.0).await,
        Err(NtStatus::INVALID_DEVICE_REQUEST)
    );
    w.close(index).await;
}

// MS-SMB2 2.2.4: MaxTransactSize. A QUERY_DIRECTORY may request as much as a READ, and gets no more than
// MaxTransactSize.
#[tokio::test]
async fn no_more_than_a_mebibyte() {
    let w = World::new();
    let f = w.create("f", How::CREATE).await;
    let too_long = vec![0; (1 << 20) + 1];
    assert_eq!(w.set(f, FileInfoClass::FULL_EA.0, &too_long).await, NtStatus::INVALID_PARAMETER);
    let d = w.create("", How::OPEN).await;
    let pattern = Utf16Buf::from("*");
    for (room, status) in [
        (1 << 20, NtStatus::SUCCESS),
        ((1 << 20) + 1, NtStatus::NO_MORE_FILES),
        (u32::MAX, NtStatus::INVALID_PARAMETER),
    ] {
        let q = QueryDirectoryRequest {
            info_class: FileInfoClass::NAMES.0,
            file_id: d,
            pattern: pattern.as_utf16(),
            output_buffer_length: room,
            ..Default::default()
        };
        assert_eq!(crate::commands::query_directory::handle(w.request(&q)).await.status, status, "{room}");
    }
}
