use std::fs;

use super::*;
use crate::config::Scratch;

fn happening(pool: &str, n: u64) -> Happening {
    Happening::new(EventKind::DiskAdded, pool, format!("disk {n}"), "it is new".to_owned())
}

fn events(directory: Option<&Path>) -> Events {
    Events::open(directory, &Env::simulated(1)).expect("a thread")
}

fn numbers(events: &Events, query: EventQuery) -> Vec<u64> {
    events.list(&query).iter().map(|e| e.number).collect()
}

fn all(events: &Events) -> Vec<u64> {
    numbers(events, EventQuery::default())
}

fn query(after: Option<u64>, pool: Option<&str>, limit: Option<usize>) -> EventQuery {
    EventQuery { after, pool: pool.map(str::to_owned), limit }
}

#[test]
fn the_newest_events_are_kept_and_listed() {
    let events = events(None);
    (1..=EVENTS_MAX as u64 + 10)
        .for_each(|n| events.record(happening(if n % 2 == 0 { "even" } else { "odd" }, n)));
    let kept = all(&events);
    assert_eq!((kept.len(), kept[0], kept[EVENTS_MAX - 1]), (EVENTS_MAX, 11, 1034));
    assert!(kept.is_sorted());
    assert_eq!(numbers(&events, query(None, None, Some(2))), [1033, 1034], "the newest");
    assert_eq!(numbers(&events, query(Some(20), None, Some(2))), [21, 22], "those that come after it");
    assert_eq!(numbers(&events, query(Some(1030), Some("even"), None)), [1032, 1034]);
    assert_eq!(numbers(&events, query(None, Some("even"), Some(1))), [1034]);
    assert_eq!(numbers(&events, query(Some(1034), None, None)), [0; 0]);
    assert_eq!(numbers(&events, query(Some(1035), None, Some(1))), [11], "a number of a run before this one");
    assert_eq!(numbers(&events, query(None, None, Some(0))), [0; 0]);
    assert_eq!((events.knows("odd"), events.knows("tank")), (true, false));
}

#[test]
fn they_go_on_after_a_restart() {
    let dir = Scratch::new("events-restart");
    let place = dir.0.join("state");
    let first = events(Some(&place));
    (1..=3).for_each(|n| first.record(happening("tank", n)));
    let told = first.list(&EventQuery::default());
    first.stop();
    first.record(happening("tank", 4));
    assert_eq!(all(&first), [1, 2, 3, 4]);
    let second = events(Some(&place));
    assert_eq!(second.list(&EventQuery::default()), told);
    second.record(happening("tank", 4));
    assert_eq!(all(&second), [1, 2, 3, 4]);
    second.stop();
    assert_eq!(all(&events(Some(&place))), [1, 2, 3, 4]);
}

#[test]
fn a_torn_line_and_garbage_take_nothing_else_with_them() {
    let dir = Scratch::new("events-torn");
    let path = dir.0.join("events.jsonl");
    let first = events(Some(&dir.0));
    (1..=3).for_each(|n| first.record(happening("tank", n)));
    first.stop();
    let mut bytes = fs::read(&path).expect("it is there");
    bytes.truncate(bytes.len() - 20);
    fs::write(&path, [b"\x00\xff\n{\"number\":99}\n\n", &bytes[..]].concat()).expect("written");
    let second = events(Some(&dir.0));
    assert_eq!(all(&second), [1, 2]);
    second.record(happening("tank", 3));
    second.stop();
    assert_eq!(all(&events(Some(&dir.0))), [1, 2, 3], "it has a line of its own");
    fs::write(&path, vec![b'x'; 5 << 20]).expect("written");
    assert_eq!(all(&events(Some(&dir.0))), [0; 0]);
}

#[test]
fn the_files_are_bounded_and_have_all_that_memory_has() {
    let dir = Scratch::new("events-bound");
    let length = |name: &str| fs::metadata(dir.0.join(name)).map_or(0, |m| m.len());
    let (mut file, _) = EventFile::open(&dir.0);
    let event = |number| Event { number, time_unix_s: 1, what: happening("tank", number) };
    (1..=20_000).for_each(|n| file.append(&event(n)));
    assert!(length("events.jsonl") < (1 << 20) && length("events.jsonl.1") < (1 << 20) + 1000);
    let kept = all(&events(Some(&dir.0)));
    assert_eq!((kept.len(), kept[0], kept[EVENTS_MAX - 1]), (EVENTS_MAX, 20_001 - EVENTS_MAX as u64, 20_000));
}

#[test]
fn an_unwritable_directory_keeps_events_in_memory() {
    let dir = Scratch::new("events-refused");
    let place = dir.0.join("state");
    fs::write(&place, "a file is in the way").expect("written");
    let first = events(Some(&place));
    first.record(happening("tank", 1));
    assert_eq!(all(&first), [1]);
    // Once the obstacle is removed, events are written again.
    first.stop();
    let (mut file, _) = EventFile::open(&place);
    let event = |number| Event { number, time_unix_s: 1, what: happening("tank", number) };
    file.append(&event(1));
    fs::remove_file(&place).expect("removed");
    file.append(&event(2));
    assert_eq!(all(&events(Some(&place))), [2]);
}

#[test]
fn uncleared_faults() {
    let events = events(None);
    let fault = |kind, id: &str, severity| {
        let fault_id = Some(id.to_owned());
        let what = Happening { fault_id, perceived_severity: severity, ..happening("tank", 1) };
        events.record(Happening { kind, ..what });
    };
    fault(EventKind::FaultRaised, "a", 5);
    fault(EventKind::FaultRaised, "b", 5);
    fault(EventKind::FaultCleared, "a", 4);
    fault(EventKind::FaultCleared, "b", 4);
    fault(EventKind::FaultRaised, "b", 6);
    let open: Vec<_> =
        events.open_faults().into_iter().map(|(id, e)| (id, e.what.perceived_severity)).collect();
    assert_eq!(open, [("b".to_owned(), 6)]);
}
