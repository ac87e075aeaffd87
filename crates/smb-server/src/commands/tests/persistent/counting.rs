//! Counters of durable, resilient and persistent opens.

use super::*;

/// A counter of the share.
fn counted(run: &Run, name: &str) -> f64 {
    let set = counters::find("SMB Server Shares")[0];
    let counter = set.counters().find(|c| c.name == name).expect("a counter of the set");
    let snapshot = run.w.server.registry().snapshot();
    let share = counters::sample::same(&snapshot, set, "files").expect("the share");
    counters::sample::value(set, counter, None, (&snapshot, share)).expect("a value")
}

/// Persistent opens count as durable too (MS-SMB2 3.3.5.9.10), and after a restart as before.
#[tokio::test(start_paused = true)]
async fn persistent_opens() {
    const DURABLE: &str = "Current Durable Open File Count";
    const PERSISTENT: &str = "% Persistent Handles";
    let run = Run::new();
    let a = run.client(1);
    let made = a.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
    a.create("g", How::CREATE, PLAIN).await.expect("made");
    assert_eq!((counted(&run, DURABLE), counted(&run, PERSISTENT)), (1.0, 50.0));

    let (run, _) = run.restarted().await;
    assert_eq!((counted(&run, DURABLE), counted(&run, PERSISTENT)), (1.0, 100.0));
    let a = run.client(1);
    a.reconnect("f", made.id, persistent(2, RWH)).await.expect_err("another CreateGuid");
    let again = a.reconnect("f", made.id, persistent(1, RWH)).await.expect("its own");
    a.lose_connection().await;
    let a = run.client(1);
    a.create("f", How::CREATE, Ask { replay: true, ..persistent(1, RWH) }).await.expect("its own");
    for (kind, reopened, failed) in [("Durable", 2.0, 1.0), ("Resilient", 0.0, 0.0), ("Persistent", 2.0, 1.0)]
    {
        assert_eq!(counted(&run, &format!("Total {kind} Handle Reopen Count")), reopened, "{kind}");
        assert_eq!(counted(&run, &format!("Total Failed {kind} Handle Reopen Count")), failed, "{kind}");
    }
    let open = run.w.server.opens.find(again.id.persistent).expect("reconnected");
    a.w.close(open.id()).await;
    drop(open);
    assert_eq!((counted(&run, DURABLE), counted(&run, PERSISTENT)), (0.0, 0.0));
}

/// A resilient open is not durable (MS-SMB2 3.3.5.15.9). A reconnect to an open that does not exist counts as durable.
#[tokio::test(start_paused = true)]
async fn resilient_opens() {
    let run = Run::new();
    let a = run.client(1);
    let made = a.create("f", How::CREATE, PLAIN).await.expect("made");
    assert_eq!(a.make_resilient(made.id, 10_000).await, NtStatus::SUCCESS);
    let now = (counted(&run, "% Resilient Handles"), counted(&run, "Current Durable Open File Count"));
    assert_eq!(now, (100.0, 0.0));
    a.lose_connection().await;
    let a = run.client(1);
    a.reclaim("f", made.id).await.expect("its own");
    a.reclaim("f", made.id).await.expect_err("it has a session");
    a.reclaim("f", FileId { persistent: 99, volatile: 99 }).await.expect_err("no such open");
    let total = |name: &str| counted(&run, &format!("Total {name} Handle Reopen Count"));
    assert_eq!((total("Resilient"), total("Failed Resilient")), (1.0, 1.0));
    assert_eq!((total("Durable"), total("Failed Durable")), (0.0, 1.0));
}
