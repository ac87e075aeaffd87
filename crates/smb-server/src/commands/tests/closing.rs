use smb_wire::fscc::{FileDispositionInformation, FileInfoClass};

use super::*;

fn disposition(delete_pending: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    FileDispositionInformation { delete_pending }.encode(&mut bytes);
    bytes
}

const DISPOSITION: u8 = FileInfoClass::DISPOSITION.0;

// MS-FSA 2.1.5.4: with the last open; nobody joins meanwhile.
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
    // Delete-on-close is not checked when it is asked for; it fails when it is due.
    let on_close =
        How { options: CreateOptions::DELETE_ON_CLOSE | CreateOptions::DIRECTORY_FILE, ..How::OPEN };
    let d = w.create("d", on_close).await;
    w.close(d).await;
    assert!(w.exists("d\\f").await);
}

#[tokio::test(start_paused = true)]
async fn closing_twice() {
    let w = World::new();
    let file_id = w.create("f", How::CREATE).await;
    w.close(file_id).await;
    let again = CloseRequest { file_id, ..CloseRequest::default() };
    assert_eq!(crate::commands::close::handle(w.request(&again)).await.status, NtStatus::FILE_CLOSED);
}
