use pool_seam::DiskNumber;

use super::*;
use crate::error::Disks;

const DEAD: RowNumber = RowNumber(1);
const OTHER: RowNumber = RowNumber(2);

fn why() -> SpaceError {
    SpaceError::Unavailable { row: DEAD, disks: Disks::new(DiskNumber(3), []) }
}

#[tokio::test]
async fn stuck_permits_are_waited_for_by_no_call() {
    let unplaced = Unplaced::default();
    unplaced.allow(8);
    let all = unplaced.acquire(DEAD, 100).await.unwrap();
    assert_eq!(all.num_permits(), 8, "more than all are all");
    let waits = unplaced.acquire(OTHER, 1);
    let fails = async { unplaced.failed(DEAD, all, &why()) };
    let (refused, ()) = tokio::join!(biased; waits, fails);
    assert_eq!(refused.err(), Some(why()));
    unplaced.count(5);
    assert_eq!((unplaced.free(), unplaced.is_stuck()), (3, true));
    assert_eq!(unplaced.acquire(DEAD, 1).await.err(), Some(why()));
    assert!(unplaced.acquire(OTHER, 3).await.is_ok(), "other rows go on");
    assert_eq!(unplaced.acquire(OTHER, 4).await.err(), Some(why()));
    unplaced.count(4);
    assert_eq!(unplaced.acquire(DEAD, 1).await.err(), Some(why()), "more than half would be stuck");
    unplaced.count(2);
    assert!(unplaced.acquire(DEAD, 2).await.is_ok());
    unplaced.count(0);
    assert_eq!((unplaced.free(), unplaced.is_stuck()), (8, false));
}
