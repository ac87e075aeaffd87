//! `causeway bench demo`: every demonstration over every transport, and the work requests of each.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::client::TestServer;
use crate::program::{Scratch, causeway, until};

const IDS: [&str; 12] = [
    "S1-15",
    "S1-16",
    "S1-17",
    "S1-15-pool",
    "S1-16-pool",
    "S1-17-pool",
    "S3-18",
    "S3-19",
    "S3-20",
    "S3-21",
    "S3-22",
    "S3-23",
];

fn json(out: &str) -> Value {
    serde_json::from_str(out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

fn count(row: &Value, what: &str) -> u64 {
    let counted = &row["work_requests"]["counted"];
    counted[what].as_u64().unwrap_or_else(|| panic!("no {what}: {row}"))
}

/// Checks the work requests of a row: each I/O by RDMA needs a registration, and every I/O at least one Send. The
/// client invalidates the registrations that the server did not invalidate.
fn arithmetic_holds(row: &Value) {
    let id = row["id"].as_str().expect("text");
    let by_rdma = u64::from(!matches!(id, "S3-18" | "S3-19")); // I/O of 1 KiB is sent in messages
    let ios = row["work_requests"]["ios"].as_u64().expect("a number");
    assert!(ios >= row["ios"].as_u64().expect("a number"));
    let local = row["transport"] == "rdma-local-invalidate";
    assert_eq!(count(row, "register"), ios * by_rdma, "{row}");
    assert_eq!(count(row, "local_invalidate"), if local { ios } else { 0 }, "{row}");
    assert_eq!(count(row, "remote_invalidations"), if local { 0 } else { ios * by_rdma }, "{row}");
    let total = count(row, "register") + count(row, "send") + count(row, "local_invalidate");
    let shown = row["work_requests"]["total"].as_f64().expect("a number");
    assert!((shown - total as f64 / ios as f64).abs() < 1e-9, "{row}");
    // Each request is one message; the other messages grant credits.
    assert!(count(row, "send") >= ios, "{row}");
}

#[test]
fn all_rows_are_there_and_their_work_requests_add_up() {
    let run = causeway(&["bench", "demo", "--json", "--seconds", "0.1", "--threads", "1", "--size", "1"], "");
    assert_eq!(run.code, 0, "{run:?}");
    let report = json(&run.out);
    let rows = report["rows"].as_array().expect("rows");
    let mut expected = Vec::new();
    for id in IDS {
        expected.extend([(id, "tcp"), (id, "rdma")]);
        if matches!(id, "S3-20" | "S3-21") {
            expected.push((id, "rdma-local-invalidate"));
        }
    }
    let found: Vec<_> = rows
        .iter()
        .map(|r| (r["id"].as_str().expect("text"), r["transport"].as_str().expect("text")))
        .collect();
    assert_eq!(found, expected);
    for row in rows {
        let over = if row["transport"] == "tcp" { "SMB over TCP" } else { "SMB over SMB Direct" };
        assert!(row["engine"].as_str().is_some_and(|e| e.starts_with(over)), "{row}");
        for what in ["ios", "iops", "mb_per_s", "mean_ms", "p99_ms", "queue_depth"] {
            assert!(row[what].as_f64() > Some(0.0), "{what}: {row}");
        }
        assert!(row["server_cpu_us"].is_number() && row["errors"] == 0, "{row}");
        if row["id"].as_str().is_some_and(|id| id.ends_with("-pool")) {
            // A mirror reads one copy: the pool and its disks each take a part of the time.
            for what in ["mean_ms", "disk_reads", "disk_mean_ms"] {
                assert!(row["pool"][what].as_f64() > Some(0.0), "{what}: {row}");
            }
            // The two measurements do not start and end at the same moment, so a slow read at an edge is in only one of
            // them; and a tenth of a second has few reads.
            let twice = row["mean_ms"].as_f64().map(|ms| 2.0 * ms);
            assert!(row["pool"]["mean_ms"].as_f64() < twice, "{row}");
        } else {
            assert!(row["pool"].is_null(), "{row}");
        }
        assert!(
            row["published"]
                .as_str()
                .is_some_and(|p| p.ends_with('%') || p.contains("IOPS") || p.contains("MB/s"))
        );
        if row["transport"] == "tcp" {
            assert!(row["work_requests"].is_null(), "{row}");
        } else {
            arithmetic_holds(row);
        }
    }
    let compared = report["remote_invalidation"].as_array().expect("comparisons");
    assert_eq!(compared.len(), 2);
    for c in compared {
        assert_eq!(
            (&c["without"]["register"], &c["without"]["local_invalidate"]),
            (&1.0.into(), &1.0.into())
        );
        assert_eq!((&c["with"]["register"], &c["with"]["local_invalidate"]), (&1.0.into(), &0.0.into()));
    }
}

#[test]
fn one_table_at_the_end() {
    let run = causeway(&["bench", "demo", "--only", "s3-20", "--seconds", "0.1", "--threads", "1"], "");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(!run.out.contains('\x1b') && !run.err.contains('\x1b'), "this is no terminal: {run:?}");
    assert_eq!(run.out.matches("8 KiB random read, null  ").count(), 3, "{}", run.out);
    for part in
        ["on another machine", "835,688 IOPS", "Differences from the published", "local invalidate 1.00 ="]
    {
        assert!(run.out.contains(part), "{part}: {}", run.out);
    }
    assert_eq!(run.err.lines().count(), 3, "{}", run.err);
}

#[test]
fn words_are_checked() {
    for (words, says) in [
        (&["--only", "S9-99"][..], "S3-23"),
        (&["--seconds", "0"], "0.05 to"),
        (&["--threads", "0"], "1..=256"),
        (&["--full", "--size", "1"], "cannot be used with"),
        (&["--null", "smb://a@b/c"], "<TARGET|TARGET"),
        (&["smb://a@b/c", "--only", "S1-15-pool"], "needs the local server"),
    ] {
        let run = causeway(&[&["bench", "demo"], words].concat(), "");
        let any = says.split('|').any(|s| run.err.contains(s));
        assert!(run.code == 2 && any, "{words:?}: {run:?}");
    }
}

#[test]
fn files_without_room_are_refused_before_one_is_written() {
    let place = TestServer::new("bench-demo-room");
    let ram = place.url("ram");
    let said =
        place.fails(&["bench", "demo", &ram, "--full", "--only", "S1-15", "--threads", "2", "--quiet"]);
    for part in ["256 GiB", "are free:", "--sparse", "--directory", "--only S1-16"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(place.json(&["ls", &place.url("ram/")]), Value::Array(Vec::new()));
    // 256 files of 1 PiB do not fit on any disk.
    let dir = Scratch::new("demo-room");
    let parent = dir.path("");
    let size = (1u64 << 30).to_string();
    let words =
        ["bench", "demo", "--only", "S1-15", "--threads", "256", "--size", &size, "--directory", &parent];
    let run = causeway(&words, "");
    assert!(run.code == 1 && run.err.contains("are free:"), "{run:?}");
    assert_eq!(places(&dir), [""; 0]);
}

#[test]
fn the_sizes_that_were_shown_fit_where_they_are_sparse() {
    let dir = Scratch::new("demo-sparse");
    let (parent, ids) = (dir.path(""), ["S1-15", "S3-18"]);
    let mut words =
        vec!["bench", "demo", "--json", "--full", "--sparse", "--threads", "1", "--seconds", "0.1"];
    words.extend(["--only", "S1-15,S3-18", "--directory", &parent]);
    let run = causeway(&words, "");
    assert_eq!(run.code, 0, "{run:?}");
    let report = json(&run.out);
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|r| r["errors"] == 0 && r["ios"].as_u64() > Some(0)), "{report}");
    assert!(rows.iter().all(|r| ids.iter().any(|id| r["id"] == *id)) && report["sparse"] == true, "{report}");
    assert_eq!(places(&dir), [""; 0]);
}

#[test]
fn a_server_that_was_named_keeps_nothing() {
    let place = TestServer::new("bench-demo");
    let (target, pid) = (place.url("ram"), place.pid().to_string());
    let options =
        ["--seconds", "0.1", "--threads", "2", "--size", "1", "--only", "S1-16,S3-23", "--pid", &pid];
    let report = place.json(&[&["bench", "demo", &target], &options[..]].concat());
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|r| r["errors"] == 0 && r["server_cpu_us"].is_number()), "{report}");
    assert_eq!(place.json(&["ls", &place.url("ram/")]), Value::Array(Vec::new()));
}

/// A demonstration that runs longer than any test, and the process id of its server.
fn long_demo(dir: &Scratch) -> (Child, Pid) {
    let parent = dir.path("");
    let demo =
        ["bench", "demo", "--only", "S3-20", "--threads", "1", "--seconds", "600", "--directory", &parent];
    let child = Command::new(env!("CARGO_BIN_EXE_causeway"))
        .args(demo)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let pid = until("a server under load", || {
        let place = places(dir).pop().unwrap_or_default();
        let control = dir.path(&format!("{place}/control.sock"));
        let run = causeway(&["status", "--json", "--control", &control], "");
        let status: Value = serde_json::from_str(&run.out).ok()?;
        (status["totals"]["reads"].as_u64() > Some(0)).then(|| status["pid"].as_i64()).flatten()
    });
    (child, Pid::from_raw(pid as i32).expect("a process"))
}

/// The directories of servers.
fn places(dir: &Scratch) -> Vec<String> {
    let list = std::fs::read_dir(dir.path("")).expect("there");
    list.map(|e| e.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
}

#[test]
fn one_signal_ends_it_in_order() {
    let dir = Scratch::new("demo-stopped");
    let (mut child, server) = long_demo(&dir);
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    assert!(child.wait().expect("it ends").success());
    assert!(test_kill_process(server).is_err(), "the server has ended");
    assert_eq!(places(&dir), [""; 0]);
}

/// The server is stopped (SIGSTOP): it neither answers nor handles signals, so the first signal cannot end the run.
#[test]
fn a_second_signal_leaves_nothing_behind() {
    for second in [Signal::INT, Signal::TERM, Signal::HUP] {
        let dir = Scratch::new("demo-cut");
        let (mut child, server) = long_demo(&dir);
        kill_process(server, Signal::STOP).expect("it runs");
        let this = Pid::from_child(&child);
        kill_process(this, Signal::INT).expect("it runs");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let said = lines.map_while(Result::ok).find(|l| l.contains("second Ctrl-C"));
        assert!(said.is_some(), "that it was heard");
        kill_process(this, second).expect("it runs");
        assert_eq!(child.wait().expect("it ends").code(), Some(130), "{second:?}");
        assert!(test_kill_process(server).is_err(), "the server has ended");
        assert_eq!(places(&dir), [""; 0]);
    }
}
