//! Journals that fail or are slow.

use super::*;

/// A CREATE that is not stored leaves nothing: no open, no lease, no file.
#[tokio::test(start_paused = true)]
async fn a_create() {
    let run = Run::new();
    let a = run.client(1);
    run.journal.fail(true);
    for path in ["f", "g:s"] {
        let failed = a.create(path, How::CREATE, persistent(1, RWH)).await;
        assert_eq!(failed.expect_err("not stored"), NtStatus::INSUFFICIENT_RESOURCES);
    }
    a.create("kept", How::CREATE, PLAIN).await.expect("not persistent");
    let failed = a.create("kept:s", How::CREATE, persistent(1, RWH)).await;
    assert_eq!(failed.expect_err("not stored"), NtStatus::INSUFFICIENT_RESOURCES);
    run.journal.fail(false);
    for path in ["f", "g", "kept:s"] {
        assert!(!a.w.exists(path).await, "{path}");
    }
    assert!(a.w.exists("kept").await);
    assert_eq!((run.w.server.opens().len(), run.w.server.files.open_files()), (1, 1));
    let made = a.create("f", How::CREATE, persistent(1, RWH)).await.expect("its CreateGuid is free");
    assert_eq!(made.state(), RWH);
}

/// A file that this CREATE made with its stream is removed with the stream, also where the CREATE failed before it
/// joined the file.
#[tokio::test(start_paused = true)]
async fn a_create_of_a_stream_with_its_file() {
    let run = Run::new();
    let a = run.client(1);
    a.create("f", How::CREATE, persistent(1, RH)).await.expect("made");
    // The lease's key names another file (MS-SMB2 3.3.5.9.8).
    let refused = a.create("g:s", How::CREATE, Ask { create: None, ..persistent(1, RH) }).await;
    assert_eq!(refused.expect_err("another file's"), NtStatus::INVALID_PARAMETER);
    assert!(!a.w.exists("g").await);
    a.w.create("h", How::CREATE).await;
    let refused = a.create("h:s", How::CREATE, Ask { create: None, ..persistent(1, RH) }).await;
    assert_eq!(refused.expect_err("another file's"), NtStatus::INVALID_PARAMETER);
    assert!(a.w.exists("h").await && !a.w.exists("h:s").await);
}

/// A CREATE is answered only after its record is stored.
#[tokio::test(start_paused = true)]
async fn a_create_waits_for_its_record() {
    let run = Run::new();
    let a = run.client(1);
    run.journal.hold(true);
    let mut making = a.create("f", How::CREATE, persistent(1, RWH));
    assert!(poll_immediate(&mut making).await.is_none());
    assert_eq!(run.restarted().await.1, 0);
    run.journal.hold(false);
    making.await.expect("stored");
    assert_eq!(run.restarted().await.1, 1);
}

/// A LOCK that is not stored acquires no lock, and is carried out when it is sent again (MS-SMB2 3.3.5.14).
#[tokio::test(start_paused = true)]
async fn a_lock() {
    let run = Run::new();
    let a = run.client(1);
    let made = a.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
    assert_eq!(a.lock(made.id, 0, 0x11, false).await, NtStatus::SUCCESS);
    run.journal.fail(true);
    assert_eq!(a.lock(made.id, 100, 0x21, false).await, NtStatus::INSUFFICIENT_RESOURCES);
    assert_eq!(run.w.server.opens()[0].locks, 1);
    run.journal.fail(false);
    let number = |id: FileId| run.journal.record(id.persistent).expect("stored").lock_sequences[1];
    assert_eq!(number(made.id), 0xFF);
    assert_eq!(a.lock(made.id, 100, 0x21, false).await, NtStatus::SUCCESS);
    assert_eq!((run.w.server.opens()[0].locks, number(made.id)), (2, 1));
    // An unlocked range stays unlocked; when the request is sent again, only its record is stored.
    run.journal.fail(true);
    assert_eq!(a.lock(made.id, 100, 0x22, true).await, NtStatus::INSUFFICIENT_RESOURCES);
    assert_eq!(a.lock(made.id, 100, 0x22, true).await, NtStatus::INSUFFICIENT_RESOURCES);
    run.journal.fail(false);
    assert_eq!(run.journal.record(made.id.persistent).expect("stored").locks.len(), 2);
    assert_eq!(a.lock(made.id, 100, 0x22, true).await, NtStatus::SUCCESS);
    assert_eq!(run.journal.record(made.id.persistent).expect("stored").locks, [(0, 10, true)]);
}

/// The same LOCK over another channel, while the first is being stored: both get the result of that.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_repeated_while_it_is_stored() {
    for fails in [false, true] {
        let run = Run::new();
        let a = run.client(1);
        let made = a.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
        run.journal.hold(true);
        let mut first = Box::pin(super::super::super::lock::handle(a.locking(made.id, 0, 0x11, false)));
        let mut second = Box::pin(super::super::super::lock::handle(a.locking(made.id, 0, 0x11, false)));
        assert!(poll_immediate(&mut first).await.is_none() && poll_immediate(&mut second).await.is_none());
        run.journal.fail(fails);
        run.journal.hold(false);
        let (first, second) = (first.await.status, second.await.status);
        let expected = if fails { NtStatus::INSUFFICIENT_RESOURCES } else { NtStatus::SUCCESS };
        assert_eq!((first, second), (expected, expected));
        assert_eq!(run.w.server.opens()[0].locks, usize::from(!fails));
    }
}

/// Some of an UNLOCK's ranges may be unlocked although it fails (MS-SMB2 3.3.5.14.1): that is stored too.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_fails_in_the_middle() {
    let run = Run::new();
    let a = run.client(1);
    let made = a.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
    assert_eq!(a.lock(made.id, 0, 0x11, false).await, NtStatus::SUCCESS);
    let mut bytes = Vec::new();
    for offset in [0, 50] {
        LockElement { offset, length: 10, flags: LockFlags::UNLOCK }.encode(&mut bytes);
    }
    let locks = LockElements::from_bytes(&bytes).expect("two elements");
    let q = LockRequest { lock_sequence: 0x12, file_id: made.id, locks };
    let reply = super::super::super::lock::handle(a.w.request(&q)).await;
    assert_eq!(reply.status, NtStatus::RANGE_NOT_LOCKED);
    assert_eq!(run.journal.record(made.id.persistent).expect("stored").locks, []);
}

/// A reduction of a lease that is not stored: the client's acknowledgement succeeds, the open that waits for it fails;
/// after a restart the client has the state of its record.
#[tokio::test(start_paused = true)]
async fn an_acknowledgement() {
    let run = Run::new();
    let (a, b) = (run.client(1), run.client(2));
    let made = a.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
    let mut waiting = b.create("f", How::OPEN, PLAIN);
    assert!(poll_immediate(&mut waiting).await.is_none());
    run.journal.fail(true);
    let broken = a.broken().expect("a break");
    assert_eq!(a.acknowledge(broken).await, NtStatus::SUCCESS);
    assert_eq!(waiting.await.expect_err("not stored"), NtStatus::INSUFFICIENT_RESOURCES);
    let (later, _) = run.restarted().await;
    let again = later.client(1).reconnect("f", made.id, persistent(1, RWH)).await.expect("its own");
    assert_eq!((again.state(), again.epoch()), (RWH, made.epoch()));

    run.journal.fail(false);
    b.create("f", How::OPEN, PLAIN).await.expect("stored by the one that relies on it");
    let (later, _) = run.restarted().await;
    let again = later.client(1).reconnect("f", made.id, persistent(1, RWH)).await.expect("its own");
    assert_eq!(again.state(), RH);
}

/// A CREATE that fails deletes no file that existed before.
#[tokio::test(start_paused = true)]
async fn a_deletion_at_close_that_is_not_stored() {
    let run = Run::new();
    let a = run.client(1);
    a.w.close(a.create("f", How::CREATE, PLAIN).await.expect("made").id).await;
    run.journal.fail(true);
    for how in [DELETE_ON_CLOSE.options, CreateOptions::empty()].map(|options| How { options, ..How::OPEN }) {
        a.create("f", how, persistent(1, RH)).await.expect_err("not stored");
    }
    run.journal.fail(false);
    assert!(a.w.exists("f").await);
}
