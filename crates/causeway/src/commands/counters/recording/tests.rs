//! A replay returns the recorded values, in both file formats.

use std::sync::Arc;
use std::time::Duration;

use counters::requests::RequestResult;
use counters::{Class, Registry, Tally};
use env::Env;

use super::*;
use crate::config::Scratch;

/// Snapshots of a share with load, and of a session that starts later.
fn snapshots() -> Vec<Snapshot> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let env = Env::simulated(5);
        let registry = Registry::new(env.clone());
        let share = registry.server_shares.permanent("a \"b\" (c)", &["a \"b\" (c)"]);
        let tally = Tally::new(registry.clock(), vec![Arc::clone(&share)]);
        let (mut out, mut session) = (vec![registry.snapshot()], None);
        for i in 0..6u64 {
            for _ in 0..i * 7 {
                let begun = tally.begin(Class::Read, env.now(), 113, 0);
                env.sleep(Duration::from_millis(3)).await;
                tally.end(
                    begun,
                    RequestResult { payload: 4096, direct: i % 2 == 0, ..RequestResult::default() },
                );
            }
            env.sleep(Duration::from_millis(1234)).await;
            if i == 3 {
                session = Some(registry.sessions.open("0a", &["0a", "u", "c"]));
            }
            out.push(registry.snapshot());
        }
        drop(session);
        out
    })
}

fn record(path: &Path, selection: &Selection, snapshots: &[Snapshot]) {
    let mut recorder = Recorder::create(path, selection).expect("a file");
    snapshots.iter().for_each(|s| recorder.write(s).expect("written"));
    recorder.finish().expect("finished");
}

#[test]
fn json_holds_everything() {
    let (dir, all) = (Scratch::new("counters-json"), Selection::new(&[], None).expect("all"));
    let (path, snapshots) = (dir.0.join("r.ndjson"), snapshots());
    record(&path, &all, &snapshots);
    let wanted = series(&snapshots, &all);
    assert_eq!(load(&path, &all).expect("its own"), wanted);
    let busy = wanted.iter().find(|s| s.counter == "Read Requests/sec").expect("a share's");
    assert_eq!((busy.points.len(), busy.points[0].1), (6, Some(0.0)));
    assert!(busy.points[5].1.expect("a rate") > 20.0);
    let late = wanted.iter().find(|s| s.set == "SMB Server Sessions").expect("a session's");
    assert_eq!(late.points.iter().filter(|(_, v)| v.is_some()).count(), 2, "rates need two snapshots");

    // Truncated within the last line.
    let text = std::fs::read_to_string(&path).expect("text");
    std::fs::write(&path, &text[..text.len() - 20]).expect("cut");
    assert_eq!(load(&path, &all).expect("but for its end"), series(&snapshots[..6], &all));
    for (text, line) in
        [("{}\n", "line 1"), (&format!("{}\nx\n", text.lines().next().expect("one"))[..], "line 2")]
    {
        std::fs::write(&path, text).expect("written");
        assert!(load(&path, &all).expect_err("no recording").to_string().contains(line));
    }
}

#[test]
fn csv_holds_the_instances_of_its_beginning() {
    let (dir, all) = (Scratch::new("counters-csv"), Selection::new(&[], None).expect("all"));
    let (path, snapshots) = (dir.0.join("r.csv"), snapshots());
    record(&path, &all, &snapshots);
    let wanted: Vec<Series> =
        series(&snapshots, &all).into_iter().filter(|s| s.set != "SMB Server Sessions").collect();
    assert_eq!(load(&path, &all).expect("its own"), wanted);
    let text = std::fs::read_to_string(&path).expect("text");
    let header = text.lines().next().expect("a header");
    assert!(header.starts_with("\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\"));
    assert!(header.contains(r#"\SMB Server Shares(a ""b"" (c))\Avg. sec/Read""#), "{header}");
    assert_eq!(text.lines().count(), 7);

    let mut csv = super::csv::Writer::new(&all);
    snapshots.iter().for_each(|s| csv.write(&mut Vec::new(), s).expect("written"));
    assert_eq!(csv.late(), 1);

    for text in
        ["x\r\n", "\"a\",\"b\"\r\n", "\"(PDH-CSV 4.0)\",\"\\\\h\\s\\c\"\r\n\"01/01/2026 00:00:00.000\"\r\n"]
    {
        std::fs::write(&path, text).expect("written");
        load(&path, &all).expect_err(text);
    }
}

#[test]
fn a_selection_narrows_a_replay() {
    let (dir, all) = (Scratch::new("counters-select"), Selection::new(&[], None).expect("all"));
    let snapshots = snapshots();
    let one = Selection::new(&[r"\SMB Server Shares(a*)\Read Bytes/sec".to_owned()], None).expect("a path");
    for name in ["r.csv", "r.ndjson"] {
        let path = dir.0.join(name);
        record(&path, &all, &snapshots);
        let narrowed = load(&path, &one).expect("its own");
        assert_eq!(narrowed, series(&snapshots, &one));
        assert_eq!(narrowed.len(), 1);
    }
}
