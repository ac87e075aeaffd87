use super::*;

#[test]
fn epochs_of_spaces_grow_with_every_owner() {
    let first = SpaceEpoch::first(7);
    let second = first.next().expect("a handover");
    assert!(first < second && second < SpaceEpoch::first(8));
    assert_eq!((first.pool_epoch(), second.pool_epoch()), (7, 7));
    let last = SpaceEpoch(SpaceEpoch::first(8).0 - 1);
    assert_eq!(last.next(), None, "the next number is that of the pool's next opening");
}

#[test]
fn views_of_a_new_coordinator_are_newer() {
    let version = |pool_epoch, number| ViewVersion { pool_epoch, number };
    assert!(version(1, 9) < version(2, 0) && version(2, 0) < version(2, 1));
}
