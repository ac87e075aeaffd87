//! Clients that do not reconnect, and clients that do not acknowledge: other clients' opens succeed only after the loss
//! is stored.

use super::*;

/// The timeout of a disconnected open.
#[tokio::test(start_paused = true)]
async fn an_open() {
    let run = Run::new();
    let (a, b) = (run.client(1), run.client(2));
    let made = a.create("f", How::CREATE, persistent(1, R)).await.expect("made");
    a.lose_connection().await;
    run.journal.hold(true);
    run.w.server.env.sleep(Duration::from_secs(61)).await;
    let early = b.create("f", How::OPEN, PLAIN).await;
    assert_eq!(early.expect_err("not stored yet"), NtStatus::FILE_NOT_AVAILABLE);
    let back = run.client(1).reconnect("f", made.id, persistent(1, R)).await;
    assert_eq!(back.expect_err("too late"), NtStatus::OBJECT_NAME_NOT_FOUND);
    run.journal.hold(false);
    tokio::task::yield_now().await;
    b.create("f", How::OPEN, PLAIN).await.expect("its time is over");
    assert_eq!(run.restarted().await.1, 0);
}

/// An end that cannot be stored: the open gets another timeout.
#[tokio::test(start_paused = true)]
async fn an_open_whose_end_is_not_stored() {
    let run = Run::new();
    let a = run.client(1);
    let made = a.create("f", How::CREATE, persistent(1, R)).await.expect("made");
    a.lose_connection().await;
    run.journal.fail(true);
    run.w.server.env.sleep(Duration::from_secs(61)).await;
    run.journal.fail(false);
    let a = run.client(1);
    let again = a.reconnect("f", made.id, persistent(1, R)).await.expect("still there");
    assert_eq!(a.lock(again.id, 0, 0x11, false).await, NtStatus::SUCCESS);
    assert_eq!(run.journal.record(made.id.persistent).expect("stored").locks.len(), 1);
    a.lose_connection().await;
    run.journal.fail(true);
    run.w.server.env.sleep(Duration::from_secs(61)).await;
    run.journal.fail(false);
    run.w.server.env.sleep(Duration::from_secs(61)).await;
    assert_eq!((run.w.server.opens().len(), run.journal.len()), (0, 0));
}

/// A reduction of a lease is stored: after a restart the leases of both clients are as before.
#[tokio::test(start_paused = true)]
async fn a_break_that_is_not_acknowledged() {
    let run = Run::new();
    let (a, b) = (run.client(1), run.client(2));
    let first = a.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
    let second = b.create("f", How::OPEN, persistent(2, RH)).await.expect("after 180 seconds");
    assert_eq!(second.state(), RH);
    assert!(a.broken().is_some());
    let (run, restored) = run.restarted().await;
    assert_eq!(restored, 2);
    let (a, b) = (run.client(1), run.client(2));
    let first = a.reconnect("f", first.id, persistent(1, RWH)).await.expect("its own");
    let second = b.reconnect("f", second.id, persistent(2, RH)).await.expect("its own");
    assert_eq!((first.state(), second.state()), (NONE, RH));
}

/// As above, but the other client's open is not persistent: the loss is stored before that client opens the file.
#[tokio::test(start_paused = true)]
async fn a_loss_is_stored_first() {
    let run = Run::new();
    let (a, b) = (run.client(1), run.client(2));
    let first = a.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
    let mut waiting = b.create("f", How::OPEN, PLAIN);
    assert!(poll_immediate(&mut waiting).await.is_none());
    run.journal.hold(true);
    run.w.server.env.sleep(Duration::from_secs(181)).await;
    assert!(poll_immediate(&mut waiting).await.is_none(), "the loss is being stored");
    run.journal.hold(false);
    waiting.await.expect("opened");
    let (run, _) = run.restarted().await;
    let again = run.client(1).reconnect("f", first.id, persistent(1, RWH)).await.expect("its own");
    assert_eq!(again.state(), NONE);
}

/// An application that was moved can open its files (MS-SMB2 3.3.5.9.13), once its former open cannot be reconnected.
#[tokio::test(start_paused = true)]
async fn an_application_that_was_moved() {
    let run = Run::new();
    let (a, b, c) = (run.client(1), run.client(2), run.client(3));
    let alone = How { share: ShareAccess::empty(), ..How::OPEN_IF };
    let ask = Ask { instance: Some(7), ..persistent(1, R) };
    let left = a.create("f", alone, ask).await.expect("made");
    let other = Ask { instance: Some(8), ..persistent(2, R) };
    a.create("g", alone, other).await.expect("another application's");
    a.lose_connection().await;
    run.journal.hold(true);
    let mut moved = b.create("f", alone, Ask { create: Some(3), lease: None, ..ask });
    assert!(poll_immediate(&mut moved).await.is_none(), "the end of the old open is being stored");
    run.journal.hold(false);
    moved.await.expect("taken");
    assert!(run.journal.record(left.id.persistent).is_none());
    let refused = c.create("g", alone, Ask { create: Some(4), lease: None, ..ask }).await;
    assert_eq!(refused.expect_err("not its own"), NtStatus::FILE_NOT_AVAILABLE);
    assert_eq!(run.restarted().await.1, 2);
}

/// MS-SMB2 3.3.5.9.13: where the old instance of the application has a version, only a newer one takes its file.
#[tokio::test(start_paused = true)]
async fn an_application_with_versions() {
    let run = Run::new();
    let (a, mut b) = (run.client(1), run.client(2));
    let alone = How { share: ShareAccess::empty(), ..How::OPEN_IF };
    let of = |version| Ask { instance: Some(7), version, ..PLAIN };
    let old = a.create("f", alone, of(Some((2, 5)))).await.expect("made");
    for version in [Some((2, 5)), Some((2, 4)), Some((1, 6)), None] {
        let refused = b.create("f", alone, of(version)).await.expect_err("not newer");
        assert_eq!(refused, NtStatus::FILE_FORCED_CLOSED, "{version:?}");
        assert_eq!(a.w.flush(old.id).await, NtStatus::SUCCESS, "the old open stays");
    }
    // A request without a version is refused in all dialects.
    Arc::make_mut(&mut b.w.facts).dialect = 0x0302;
    let refused = b.create("f", alone, of(None)).await.expect_err("no version");
    assert_eq!(refused, NtStatus::FILE_FORCED_CLOSED);
    Arc::make_mut(&mut b.w.facts).dialect = 0x0311;

    let newer = b.create("f", alone, of(Some((2, 6)))).await.expect("a higher low half");
    assert_eq!(a.w.flush(old.id).await, NtStatus::FILE_CLOSED);
    a.create("f", alone, of(Some((3, 0)))).await.expect("a higher high half");
    assert_eq!(b.w.flush(newer.id).await, NtStatus::FILE_CLOSED);
}

/// MS-SMB2 3.3.5.9.12: an open that has a session is refused. But the server may notice the end of the old connection
/// after the client has reconnected on a new one.
#[tokio::test(start_paused = true)]
async fn an_open_whose_client_is_back_before_its_connection_has_ended() {
    let run = Run::new();
    let (a, b) = (run.client(1), run.client(1));
    let made = a.create("f", How::CREATE, persistent(1, R)).await.expect("made");
    let refused = b.reconnect("f", made.id, persistent(1, R)).await;
    assert_eq!(refused.expect_err("it has a session"), NtStatus::OBJECT_NAME_NOT_FOUND);
    let ends = async {
        run.w.server.env.sleep(Duration::from_millis(200)).await;
        a.lose_connection().await;
    };
    let (back, ()) = futures_util::future::join(b.reconnect("f", made.id, persistent(1, R)), ends).await;
    back.expect("it has none any more");
}
