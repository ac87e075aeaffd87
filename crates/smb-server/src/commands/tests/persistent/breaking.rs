//! Breaks of leases whose clients are disconnected (MS-SMB2 3.3.4.7).

use super::*;

/// The timer of a break does not run while its client is disconnected; the break is sent to the client after the reply
/// to its reconnect.
#[tokio::test(start_paused = true)]
async fn while_the_client_is_away() {
    let ask = Ask { timeout_ms: 300_000, ..persistent(1, RWH) };
    // The break is sent before the client disconnects, or cannot be sent.
    for before in [true, false] {
        let run = Run::new();
        let (a, b) = (run.client(1), run.client(2));
        let made = a.create("f", How::CREATE, ask).await.expect("made");
        if !before {
            a.lose_connection().await;
        }
        let mut waiting = b.create("f", How::OPEN, PLAIN);
        assert!(poll_immediate(&mut waiting).await.is_none());
        if before {
            run.w.server.env.sleep(Duration::from_secs(100)).await;
            a.lose_connection().await;
        }
        run.w.server.env.sleep(Duration::from_secs(250)).await;
        assert!(poll_immediate(&mut waiting).await.is_none());
        let a = run.client(1);
        let again = a.reconnect("f", made.id, ask).await.expect("within its time");
        assert_eq!(again.state(), RWH);
        assert!(again.lease.expect("a lease").flags.contains(LeaseFlags::BREAK_IN_PROGRESS));
        let broken = lease_break(again.then.expect("behind the reply"));
        assert_eq!((broken.current_lease_state, broken.new_lease_state), (RWH, RH));
        assert!(a.broken().is_none(), "once");
        run.w.server.env.sleep(Duration::from_secs(100)).await;
        assert!(poll_immediate(&mut waiting).await.is_none(), "the timer has begun again");
        assert_eq!(a.acknowledge(broken).await, NtStatus::SUCCESS);
        waiting.await.expect("opened");
    }
}

/// A client that reconnects and does not acknowledge loses the lease after the timeout.
#[tokio::test(start_paused = true)]
async fn the_timer_begins_with_the_reconnect() {
    let run = Run::new();
    let (a, b) = (run.client(1), run.client(2));
    let made = a.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
    a.lose_connection().await;
    let mut waiting = b.create("f", How::OPEN, PLAIN);
    assert!(poll_immediate(&mut waiting).await.is_none());
    run.w.server.env.sleep(Duration::from_secs(30)).await;
    let taken = run.client(1).create("f", How::CREATE, Ask { replay: true, ..persistent(1, RWH) }).await;
    assert!(taken.expect("taken over").then.is_some());
    run.w.server.env.sleep(Duration::from_secs(179)).await;
    assert!(poll_immediate(&mut waiting).await.is_none());
    run.w.server.env.sleep(Duration::from_secs(2)).await;
    waiting.await.expect("opened");
    assert_eq!(run.journal.record(made.id.persistent).map(|r| r.caching.is_some()), Some(true));
}

/// A client that does not reconnect: its opens are closed at their timeout, and the other client continues.
#[tokio::test(start_paused = true)]
async fn the_client_does_not_come_back() {
    let run = Run::new();
    let (a, b) = (run.client(1), run.client(2));
    a.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
    a.lose_connection().await;
    let begun = run.w.server.env.now();
    b.create("f", How::OPEN, PLAIN).await.expect("opened");
    assert!((run.w.server.env.now() - begun).as_secs() <= 60);
    assert_eq!(run.restarted().await.1, 0);
}
