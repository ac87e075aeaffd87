//! CANCEL of requests that wait for breaks (MS-SMB2 3.3.5.16).

use smb_wire::msg::TreeDisconnectRequest;

use super::*;

/// A CREATE that waits ends at once, whether it may be replayed or not. It leaves no open and no share mode: the next
/// open that shares nothing waits for the break only.
#[tokio::test(start_paused = true)]
async fn a_create() {
    for ask in [PLAIN, persistent(2, RH)] {
        let run = Run::new();
        let (a, b) = (run.client(1), run.client(2));
        a.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
        let request = b.creating("f", How::OPEN, ask);
        let cancel = request.cancel.clone();
        let mut waiting = Box::pin(super::super::super::create::handle(request));
        assert!(poll_immediate(&mut waiting).await.is_none());
        cancel.cancel();
        assert_eq!(waiting.await.status, NtStatus::CANCELLED);
        assert_eq!((run.w.server.opens().len(), run.journal.len()), (1, 1));
        // The break goes on, and the same CREATE may be sent again.
        assert_eq!(a.acknowledge(a.broken().expect("a break")).await, NtStatus::SUCCESS);
        b.create("f", How::OPEN, ask).await.expect("opened");
    }
}

/// MS-SMB2 3.3.5.6, 3.3.5.8: the end of its session or tree connect ends a CREATE that waits.
#[tokio::test(start_paused = true)]
async fn a_create_without_a_tree() {
    for logs_off in [true, false] {
        for ask in [PLAIN, persistent(2, RH)] {
            let run = Run::new();
            let (a, b) = (run.client(1), run.client(2));
            a.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
            let request = b.creating("f", How::OPEN, ask);
            let mut waiting = Box::pin(super::super::super::create::handle(request));
            assert!(poll_immediate(&mut waiting).await.is_none());
            let start = run.w.server.env.moment();
            if logs_off {
                run.w.server.end_session(&b.w.session, SessionEnd::Disconnected).await;
            } else {
                let message = b.w.request(&TreeDisconnectRequest {}).message;
                let (server, tree) = (&b.w.server, &b.w.tree);
                let _ = super::super::super::tree::disconnect(server, &b.w.session, tree, &message);
            }
            assert_eq!(waiting.await.status, NtStatus::CANCELLED);
            assert_eq!(run.w.server.env.moment(), start, "at once");
            assert_eq!((run.w.server.opens().len(), run.journal.len()), (1, 1));
        }
    }
}

/// A rename and a deletion that wait for another client's handle leave the file as it was.
#[tokio::test(start_paused = true)]
async fn a_rename_or_deletion() {
    let (name, mut to) = (Utf16Buf::from("g"), Vec::new());
    let q = FileRenameInformation { replace_if_exists: false, root_directory: 0, name: name.as_utf16() };
    q.encode(&mut to).expect("fits");
    let mut mark = Vec::new();
    FileDispositionInformation { delete_pending: true }.encode(&mut mark);
    for (class, buffer) in [(FileInfoClass::RENAME, &to), (FileInfoClass::DISPOSITION, &mark)] {
        let run = Run::new();
        let (a, b) = (run.client(1), run.client(2));
        a.create("f", How::CREATE, persistent(1, RH)).await.expect("made");
        let opened = b.create("f", How::OPEN, PLAIN).await.expect("opened");
        let q = SetInfoRequest {
            info_type: InfoType::FILE,
            info_class: class.0,
            file_id: opened.id,
            buffer,
            ..SetInfoRequest::default()
        };
        let request = b.w.request(&q);
        let cancel = request.cancel.clone();
        let mut waiting = Box::pin(super::super::super::set_info::handle(request));
        assert!(poll_immediate(&mut waiting).await.is_none());
        cancel.cancel();
        assert_eq!(waiting.await.status, NtStatus::CANCELLED);
        b.w.close(opened.id).await;
        assert!(run.w.exists("f").await && !run.w.exists("g").await);
    }
}
