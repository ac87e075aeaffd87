use super::super::fixture::{Counting, sample};
use super::*;

fn number(rows: &[Row], name: &str, key: &str) -> Option<f64> {
    let row = rows.iter().find(|r| r.name == name).expect("there is such a row");
    match &row.values.iter().find(|(k, _)| *k == key).expect("there is such a column").1 {
        Value::Number(n) => Some(*n),
        Value::None => None,
        Value::Text(t) => panic!("{t}"),
    }
}

#[test]
fn numbers_of_two_samples() {
    let mut c = Counting::new();
    c.reads("files", 5);
    let before = c.sample(10);
    c.reads("files", 20);
    c.reads("ram", 10);
    let now = c.sample(12);
    let v = View::new(Some(&before), &now);
    assert_eq!(v.interval_s, Some(2.0));
    for (share, iops) in [("files", 10.0), ("ram", 5.0), ("Total", 15.0)] {
        let get = |key| number(&v.shares, share, key);
        // A share that the first sample lacks has no rate; the total counts it from zero.
        let known = share != "ram";
        assert_eq!(get("iops"), known.then_some(iops), "{share}");
        assert_eq!(get("read_mb_per_s"), known.then_some(iops), "{share}");
        assert_eq!(get("read_ms"), known.then_some(2.0), "{share}");
        assert_eq!(get("rdma_percent"), known.then_some(100.0));
        assert_eq!(get("writes_per_s"), known.then_some(0.0));
    }
    let direct = |key| number(&v.smb_direct, "127.0.0.1:5445/127.0.0.1:40001", key);
    assert_eq!((direct("sends_per_s"), direct("receives_per_s")), (Some(15.0), Some(16.0)));
    assert_eq!((direct("stalls_per_s"), direct("stalls_send_credit_per_s")), (Some(3.0), Some(3.0)));
    assert_eq!(v.server.credit_stalls_per_s, Some(3.0));
    // Two times half a second of processor time within two seconds.
    assert_eq!(v.server.cpu_percent, Some(50.0));
    assert_eq!(number(&v.sessions, "alice@127.0.0.1 (DESK)", "iops"), Some(15.0));
    let s = v.sessions[0].session.as_ref().expect("a session");
    assert_eq!((s.channels.len(), &s.why_not_rdma), (2, &None));
}

#[test]
fn another_run_of_the_server_has_no_difference_to_the_first() {
    let mut c = Counting::new();
    let before = c.sample(10);
    c.reads("files", 1);
    let mut now = c.sample(12);
    now.server.pid += 1;
    let v = View::new(Some(&before), &now);
    assert_eq!((v.interval_s, v.server.cpu_percent), (None, None));
    assert_eq!(number(&v.shares, "files", "iops"), None);
    assert_eq!(number(&v.shares, "files", "open_files"), Some(1.0), "a value needs one sample");
    // The process id is the same, but the clock of the server has restarted.
    let v = View::new(Some(&c.sample(12)), &c.sample(3));
    assert_eq!(v.interval_s, None);
}

#[test]
fn a_session_without_counters_is_listed_all_the_same() {
    let v = View::new(Some(&sample(1)), &sample(2));
    assert_eq!(number(&v.sessions, "alice@127.0.0.1 (DESK)", "iops"), None);
    assert_eq!(number(&v.sessions, "alice@127.0.0.1 (DESK)", "opens"), Some(1.0));
}

#[test]
fn json_has_a_member_for_each_column() {
    let mut c = Counting::new();
    let before = c.sample(1);
    c.reads("files", 2);
    let json = serde_json::to_value(View::new(Some(&before), &c.sample(2))).expect("JSON");
    assert_eq!(json["shares"][0]["name"], "Total");
    assert_eq!((&json["shares"][0]["total"], &json["shares"][0]["iops"]), (&true.into(), &2.0.into()));
    assert_eq!(json["sessions"][0]["dialect"], "3.1.1");
    assert_eq!(json["sessions"][0]["session"]["channels"][1]["transport"], "rdma");
    for kind in KINDS {
        let tables =
            ["shares", "sessions", "smb_direct", "rdma", "pools", "virtual_disks", "physical_disks", "jobs"];
        let table = tables[kind as usize];
        for row in json[table].as_array().expect("an array") {
            assert!(kind.columns().iter().all(|c| row.get(c.key).is_some()), "{row}");
        }
    }
}
