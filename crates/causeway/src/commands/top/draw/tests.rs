use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::fixture::{Counting, session};
use super::*;

fn state() -> State {
    State::new(Duration::from_secs(1))
}

/// Two samples with load on two shares.
fn samples() -> (Sample, Sample) {
    let mut c = Counting::new();
    c.reads("files", 1);
    c.reads("a", 1);
    let before = c.sample(10);
    c.reads("files", 20);
    c.reads("a", 4);
    (before, c.sample(12))
}

fn drawn(before: Option<&Sample>, now: Option<&Sample>, state: &mut State, w: u16, h: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(w, h)).expect("a backend that cannot fail");
    terminal.draw(|f| frame(before, now, state, f.area(), f.buffer_mut())).expect("drawn");
    text(terminal.backend().buffer())
}

fn press(state: &mut State, keys: &str) {
    for c in keys.chars() {
        state.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
    }
}

#[test]
fn a_screen_of_80_by_24_has_it_all() {
    let (before, now) = samples();
    let shown = drawn(Some(&before), Some(&now), &mut state(), 80, 24);
    let expected = "\
FILER  causeway 1.2.3  up 00:00:12           2026-11-21 15:50:00 UTC  over 2.0 s
CPU 50% of a core  Memory 3 MiB/1 GiB  Connections 2  Credit stalls/s 3

1 Shares (2) ▲           IOPS  Reads Writes RdMB/s WrMB/s  Rd ms  Wr ms  Queue›
Total                      12     12      0     12      0      2      0  0.024
a                           2      2      0      2      0      2      0  0.004
files                      10     10      0     10      0      2      0  0.020

2 Sessions (1)           IOPS RdMB/s WrMB/s  Rd ms  Wr ms  Queue  RDMA%  Files›
alice@127.0.0.1 (DESK)     12     12      0      2      0  0.024    100      1
  ├ TCP        127.0.0.1:40000  credits 510 free, 2 in use
  └ SMB Direct 127.0.0.1:40001  credits 510 free, 2 in use

3 SMB Direct (1)        Sends  Recvs  RRdMB  RWrMB   Regs RemInv Stalls StCred›
Total                      12     13     12      0      0      0      3      3
127.0.0.1:40001            12     13     12      0      0      0      3      3

4 RDMA Activity (0)    Active InMB/s  OutMB  InFrm OutFrm RReads RWrite Errors›
  none now




quit   1-8 table   sort: name   pause   +- 1 s   ←→↑↓ scroll   help
";
    assert_eq!(shown, expected);
}

#[test]
fn every_size_is_drawn_within_it() {
    let (before, now) = samples();
    for (w, h) in [(1, 1), (39, 10), (40, 9), (40, 10), (80, 24), (81, 25), (140, 40), (300, 100)] {
        for keys in ["", "2", "3s", "4S", "h", "2h"] {
            let mut s = state();
            press(&mut s, keys);
            s.tables[s.focus].column = 99;
            s.tables[s.focus].line = 99;
            let shown = drawn(Some(&before), Some(&now), &mut s, w, h);
            assert!(shown.lines().count() <= h.into(), "{w}x{h} {keys}");
            if (w, h) < (40, 10) || h < 10 {
                continue;
            }
            if !s.help {
                assert!(s.tables[s.focus].column < KINDS[s.focus].columns().len(), "it was taken back");
            }
        }
    }
}

#[test]
fn the_order_is_the_chosen_columns() {
    let (before, now) = samples();
    let order = |s: &mut State| {
        let shown = drawn(Some(&before), Some(&now), s, 80, 24);
        let at = |name: &str| shown.lines().position(|l| l.starts_with(name)).expect("it is listed");
        (at("Total"), at("a "), at("files"))
    };
    let mut s = state();
    let (total, a, files) = order(&mut s);
    assert!(total < a && a < files);
    press(&mut s, "s");
    let (total, a, files) = order(&mut s);
    assert!(total < files && files < a, "most IOPS first");
}

#[test]
fn the_table_in_focus_gets_the_lines() {
    let (before, mut now) = samples();
    now.sessions = (1..=40).map(|i| session(i, &["tcp"])).collect();
    let sessions = |s: &mut State| {
        let shown = drawn(Some(&before), Some(&now), s, 80, 24);
        shown.lines().filter(|l| l.starts_with("alice@") || l.contains("TCP")).count()
    };
    let mut s = state();
    let few = sessions(&mut s);
    press(&mut s, "2");
    let many = sessions(&mut s);
    assert!(few >= 1 && many > few, "{few} {many}");
    s.tables[1].line = 9999;
    let shown = drawn(Some(&before), Some(&now), &mut s, 80, 24);
    assert_eq!(shown.matches("more lines").count(), 1, "only the shares have more: {shown}");
    for (wants, focus, height) in [([3, 100, 2, 2], 1, 24), ([9, 9, 9, 9], 3, 12), ([1, 1, 1, 1], 0, 6)] {
        let heights = share_out(&wants, focus, height);
        assert!(heights.iter().sum::<u16>() + 3 <= height, "{heights:?}");
        assert!(heights.iter().zip(&wants).all(|(h, w)| h <= w));
        assert!(heights[focus] >= 3.min(wants[focus]), "{heights:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_said_with_the_cure_over_the_old_numbers() {
    let (before, now) = samples();
    let mut s = state();
    s.lost = Some("no server answers on /run/x: is it running? systemctl status causeway".to_owned());
    s.lost_s = 5;
    let shown = drawn(None, None, &mut s, 80, 24);
    let in_a_line = shown.replace('\n', " ");
    assert!(shown.contains("is it running?") && in_a_line.contains("trying again every 1 s"), "{shown}");
    let shown = drawn(Some(&before), Some(&now), &mut s, 80, 24);
    assert!(shown.contains("is it running?") && shown.contains("FILER") && shown.contains("5"), "{shown}");
    s.lost = None;
    assert!(!drawn(Some(&before), Some(&now), &mut s, 80, 24).contains("is it running?"));
}

#[test]
fn help_defines_each_column_of_the_table_in_focus() {
    let (before, now) = samples();
    for (i, kind) in KINDS.iter().enumerate() {
        let mut s = state();
        (s.focus, s.help) = (i, true);
        let shown = drawn(Some(&before), Some(&now), &mut s, 400, 60);
        for column in kind.columns() {
            let (name, definition) = column.meaning(kind.set());
            assert!(shown.contains(column.title) && shown.contains(name) && shown.contains(definition));
        }
    }
    // On a small screen the help can be scrolled, but not beyond its end.
    let mut s = state();
    (s.help, s.help_line) = (true, 999);
    let shown = drawn(Some(&before), Some(&now), &mut s, 80, 24);
    assert!(shown.contains("Tree connects now") && !shown.contains("more lines"), "{shown}");
}

#[test]
fn once_prints_all_columns_and_rows() {
    let (before, now) = samples();
    let text = whole(&before, &now, &mut state());
    for kind in KINDS {
        assert!(kind.columns().iter().all(|c| text.contains(c.title)), "{text}");
    }
    assert!(text.contains("SMB Direct 127.0.0.1:40001") && text.contains("none now"), "{text}");
    assert!(!text.contains('›') && !text.contains("more lines"), "{text}");
}

#[test]
fn names_from_clients_do_not_reach_the_terminal_as_they_are() {
    let (before, mut now) = samples();
    now.sessions[0].user = "evil\u{1b}[2J\nx".to_owned();
    let text = whole(&before, &now, &mut state());
    assert!(!text.contains('\u{1b}') && text.contains("evil"), "{text}");
}

/// The counters of a disk: 98 % of the reads took 1 ms, 2 % took 100 ms.
fn disk(name: &str, reads: u64) -> counters::InstanceSnapshot {
    let latencies = [(1_000_000, reads * 98 / 100), (100_000_000, reads * 2 / 100)].into();
    counters::InstanceSnapshot {
        instance: name.to_owned(),
        labels: std::collections::BTreeMap::new(),
        values: super::super::columns::Kind::Disks
            .set()
            .metrics()
            .map(|m| (m.name.to_owned(), if m.name == "reads" { reads } else { 0 }))
            .collect(),
        latencies: [("read_latency_ns".to_owned(), latencies)].into(),
    }
}

#[test]
fn storage_is_a_page_of_its_own_and_its_total_has_percentiles_too() {
    let (mut before, mut now) = samples();
    for (sample, reads) in [(&mut before, [100, 0]), (&mut now, [300, 200])] {
        let set = sample.counters.sets.iter_mut().find(|s| s.set == "PhysicalDisk").expect("the set");
        set.instances = vec![disk("tank/0", reads[0]), disk("tank/1", reads[1])];
    }
    let mut s = state();
    press(&mut s, "7");
    let shown = drawn(Some(&before), Some(&now), &mut s, 80, 24);
    let expected = "\
5 Pools (0)              IOPS RdMB/s WrMB/s Rd p50 Rd p99 Wr p50 Wr p99  Queue›
  none now

6 Virtual disks (0)      IOPS RdMB/s WrMB/s Rd p50 Rd p99 Wr p50 Wr p99  Queue›
  none now

7 Disks (2) ▲            IOPS RdMB/s WrMB/s Rd p50 Rd p99 Wr p50 Wr p99  Queue›
Total                     200      0      0  1.016  96.47      -      -      0
tank/0                    100      0      0  1.016  96.47      -      -      0
tank/1                    100      0      0  1.016  96.47      -      -      0
";
    assert!(shown.contains(expected), "{shown}");
}
