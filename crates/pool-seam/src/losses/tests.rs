use super::*;

fn at(units: std::ops::Range<u64>) -> BTreeSet<u64> {
    units.map(|u| u * UNIT).collect()
}

#[test]
fn each_unit_counts_once() {
    let one = LossRecord::default().with(&at(3..4));
    assert_eq!((one.units, one.is_open()), (1, false));
    let two = one.with(&at(3..5));
    assert_eq!((two.units, two.at.clone()), (2, at(3..5)));
    assert_eq!(two.with(&at(3..5)), two);
}

/// Beyond the recorded addresses, the count never decreases by itself and does not grow by units that may
/// have been counted already.
#[test]
fn more_than_there_is_room_for() {
    let many = LossRecord::default().with(&at(0..700));
    assert_eq!((many.units, many.at.len(), many.is_open()), (700, LOST_MAX, true));
    let again = many.with(&at(600..610));
    assert_eq!((again.units, again.at), (700, at(0..LOST_MAX as u64)));
}

#[test]
fn a_whole_reading_says_what_is_left() {
    let some = LossRecord::default().with(&at(0..4));
    let left = some.settled(&at(2..6), &at(0..3), 99);
    assert_eq!((left.units, left.at), (3, at(3..6)), "each is known, so no count is needed");
    assert_eq!(some.settled(&at(0..0), &at(0..4), 0), LossRecord::default());
    let many = LossRecord::default().with(&at(0..700));
    let left = many.settled(&at(0..0), &at(0..500), 200);
    assert_eq!((left.units, left.at), (200, at(500..512)));
    assert_eq!(many.settled(&at(0..0), &at(0..512), 0), LossRecord::default());
}
