//! Tests the arithmetic of each kind of counter, and the snapshots of a registry.

use std::sync::Arc;
use std::time::Duration;

use env::Env;

use super::*;
use crate::requests::RequestResult;
use crate::{Class, Registry, Tally, find};

fn counter(set: &Set, name: &str) -> &'static Counter {
    set.counters().find(|c| c.name == name).expect("a counter of the set")
}

#[tokio::test(start_paused = true)]
async fn as_windows_computes_it() {
    let env = Env::simulated(3);
    let registry = Registry::new(env.clone());
    let share = registry.server_shares.permanent("files", &["files"]);
    let tally = Tally::new(registry.clock(), vec![Arc::clone(&share)]);
    let before = registry.snapshot();
    // Two READs of 4 and 12 ms, then one that stays in progress; over 100 ms.
    for ms in [4, 12] {
        let begun = tally.begin(Class::Read, env.now(), 100, 0);
        env.sleep(Duration::from_millis(ms)).await;
        tally.end(begun, RequestResult { payload: 8192, ..RequestResult::default() });
    }
    env.sleep(Duration::from_millis(34)).await;
    tally.begin(Class::Read, env.now(), 100, 0);
    env.sleep(Duration::from_millis(50)).await;
    let after = registry.snapshot();

    let set = find("SMB Server Shares")[0];
    let (old, new) = (same(&before, set, "files").expect("it"), same(&after, set, "files").expect("it"));
    let get = |name| value(set, counter(set, name), Some((&before, old)), (&after, new)).expect(name);
    let close = |name, wanted: f64| {
        let got = get(name);
        assert!((got - wanted).abs() < 1e-6 * wanted.max(1.0), "{name}: {got}, not {wanted}");
    };
    close("Read Requests/sec", 30.0);
    close("Data Requests/sec", 30.0);
    close("Read Bytes/sec", 163_840.0);
    close("Avg. sec/Read", 0.008);
    close("Avg. Bytes/Read", 8192.0);
    close("Avg. sec/Write", 0.0);
    close("Avg. Read Queue Length", 0.66); // (4 + 12 + 50) / 100
    close("Current Data Queue Length", 1.0);
    close("Current Pending Requests", 1.0);
    close("Received Bytes/sec", 3000.0);
    // A single snapshot has values but no rates.
    assert_eq!(value(set, counter(set, "Read Requests/sec"), None, (&after, new)), None);
    assert_eq!(value(set, counter(set, "Current Data Queue Length"), None, (&after, new)), Some(1.0));
    assert_eq!(value(set, counter(set, "Read Requests/sec"), Some((&after, new)), (&after, new)), None);
}

#[test]
fn percentages() {
    use crate::requests::{FILES_OPEN, RESILIENT_OPEN};
    let registry = Registry::new(Env::simulated(3));
    let share = registry.server_shares.permanent("files", &["files"]);
    let set = find("SMB Server Shares")[0];
    let resilient = || {
        let now = registry.snapshot();
        let of = same(&now, set, "files").expect("it");
        value(set, counter(set, "% Resilient Handles"), None, (&now, of))
    };
    assert_eq!(resilient(), Some(0.0), "of none");
    share.add(FILES_OPEN, 4);
    share.add(RESILIENT_OPEN, 1);
    assert_eq!(resilient(), Some(25.0));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_json_and_back() {
    let registry = Registry::new(Env::simulated(4));
    let _session = registry.sessions.open("00ab", &["00ab", "alice", "10.0.0.1"]);
    let snapshot = registry.snapshot();
    let json = serde_json::to_string(&snapshot).expect("numbers and text");
    assert_eq!(serde_json::from_str::<crate::Snapshot>(&json).expect("its own"), snapshot);
    let set = find("SMB Server Sessions")[0];
    assert_eq!(snapshot.of(set)[0].labels["user"], "alice");
    assert_eq!(snapshot.value(set, "00ab", "read_requests"), Some(0));
    assert_eq!(snapshot.value(set, "00ab", "nonsense"), None);
}
