//! The bounds of opens count disconnected ones too.

use super::*;

const FULL: NtStatus = NtStatus::TOO_MANY_OPENED_FILES;

impl Run {
    fn bounded(self, opens: usize, opens_per_user: usize) -> Run {
        Run { w: self.w.bounded(opens, opens_per_user), ..self }
    }
}

/// A disconnected open counts until its time is over; its client reconnects at the bound.
#[tokio::test(start_paused = true)]
async fn disconnected() {
    let run = Run::new().bounded(9, 2);
    let a = run.client(1);
    let first = a.create("f", How::CREATE, persistent(1, R)).await.expect("made");
    a.create("g", How::CREATE, persistent(2, R)).await.expect("made");
    a.lose_connection().await;
    let b = run.client(2);
    assert_eq!(b.create("h", How::CREATE, PLAIN).await.expect_err("two are disconnected"), FULL);
    let a = run.client(1);
    a.reconnect("f", first.id, persistent(1, R)).await.expect("it counts already");
    assert_eq!(b.create("h", How::CREATE, PLAIN).await.expect_err("as before"), FULL);
    run.w.server.env.sleep(Duration::from_secs(61)).await;
    let h = b.create("h", How::CREATE, PLAIN).await.expect("the time of g is over");
    assert_eq!(b.create("i", How::CREATE, PLAIN).await.expect_err("f is open"), FULL);
    b.w.close(h.id).await;
    b.create("i", How::CREATE, PLAIN).await.expect("h is closed");
}

/// The opens of the previous run are restored, also beyond the bounds, and count.
#[tokio::test(start_paused = true)]
async fn restored() {
    let run = Run::new();
    let a = run.client(1);
    for (n, path) in ["f", "g", "h"].into_iter().enumerate() {
        a.create(path, How::CREATE, persistent(n as u8, R)).await.expect("made");
    }
    let next = Run::on(run.journal.reopened(), Arc::clone(&run.vfs), 2).bounded(9, 2);
    assert_eq!(next.w.server.restore_opens().await, (3, 0));
    let b = next.client(2);
    assert_eq!(b.create("i", How::CREATE, PLAIN).await.expect_err("three are restored"), FULL);
    next.w.server.env.sleep(Duration::from_secs(61)).await;
    b.create("i", How::CREATE, PLAIN).await.expect("their time is over");
    b.create("j", How::CREATE, PLAIN).await.expect("their time is over");
    assert_eq!(b.create("k", How::CREATE, PLAIN).await.expect_err("two are the most"), FULL);
}
