use super::*;

const SET: SetKey = SetKey { row: RowNumber(1), birth: 2, set: 0 };

fn take(active: &Active) -> Vec<Entry> {
    active.take(&mut RecordCapacity::new(16)).0
}

#[test]
fn an_overwrite_begins_when_the_entry_of_its_region_is_durable() {
    let active = Arc::<Active>::default();
    assert!(active.begin(SET, 4).is_none());
    let first = active.want(SET, 4);
    let second = active.want(SET, 8);
    assert_eq!(take(&active), [SET.entry(12)]);
    assert_eq!(
        (take(&active), active.begin(SET, 4).is_none()),
        (vec![], true),
        "a record has it, not durably"
    );
    first.is_durable();
    assert!(active.begin(SET, 4).is_some() && active.begin(SET, 8).is_none());
    second.is_durable();
    assert!(active.begin(SET, 8).is_some());
    let other = SetKey { birth: 3, ..SET };
    assert!(active.begin(other, 4).is_none(), "a row that was allocated anew");
    assert!(active.take(&mut RecordCapacity::new(0)).0.is_empty());
}

#[test]
fn a_region_stays_active_through_a_snapshot() {
    let active = Arc::<Active>::default();
    let waits = active.want(SET, 1);
    assert_eq!(active.snapshot(), [], "its entry was not appended");
    assert_eq!(take(&active), [SET.entry(1)]);
    assert_eq!(active.snapshot(), [SET.entry(1)], "its entry was, and the overwrite waits");
    waits.is_durable();
    drop(waits);
    for attempt in 0..2 {
        let entries = active.snapshot();
        assert_eq!(entries, [SET.entry(1)], "a completed overwrite is not confirmed; attempt {attempt}");
    }
    let completed = active.take_completed();
    active.not_confirmed(completed);
    assert_eq!(active.snapshot(), [SET.entry(1)], "the commit has failed");
    drop(active.take_completed());
    assert!(active.begin(SET, 1).is_some());
    assert_eq!(active.snapshot(), [SET.entry(1)], "another overwrite has completed since");
    drop(active.take_completed());
    assert_eq!(active.snapshot(), []);
    assert!(active.begin(SET, 1).is_none());
}
