//! Operations of several callers in one request to the coordinator.

use futures_util::future::join_all;
use pool_seam::{OwnerOp, ScrubRecord, Suspension};

use super::*;
use crate::rig::Faults;

fn scrub(began: u64) -> OwnerOp {
    OwnerOp::Scrub(ScrubRecord { began, ..ScrubRecord::default() })
}

/// The first caller's request is sent at once; callers that wait meanwhile share a request. If it is refused, only
/// the callers whose own operations conflict fail.
#[test]
fn callers_that_wait_share_a_request() {
    virtual_time(async {
        let world = World::new(&Setup::new(1, 3, MIRROR)).await;
        let (inner, size) = (&world.space.0, world.space.size());
        let requests = || world.rig.view_now().record.ownership.request;
        let before = requests();
        assert!(
            join_all((1..=10).map(|n| inner.commit_if_fits(vec![scrub(n)])))
                .await
                .iter()
                .all(|r| *r == Ok(true))
        );
        assert_eq!((requests() - before, world.rig.view_now().record.scrub.began), (2, 10));
        let grow = |from| vec![scrub(from), OwnerOp::SetSize { from, to: from + UNIT }];
        let calls = [vec![scrub(20)], vec![scrub(21)], grow(7), grow(size), grow(size), vec![scrub(22)]];
        let done = join_all(calls.map(|ops| inner.commit_if_fits(ops))).await;
        assert_eq!(done, [true, true, false, true, false, true].map(Ok));
        assert_eq!((world.space.size(), world.rig.view_now().record.scrub.began), (size + UNIT, 22));
        // The first caller's request, the shared one, and then one for each caller.
        assert_eq!(requests() - before, 2 + 2 + 5);
    });
}

/// A caller is dropped while its request has no answer: the next caller repeats that request first, with the same
/// number.
#[test]
fn a_dropped_request_is_completed() {
    virtual_time(async {
        let world = World::new(&Setup::new(2, 3, MIRROR)).await;
        let inner = &world.space.0;
        let suspend = |suspended| world.rig.faults(Faults { suspended, ..Faults::default() });
        suspend(Some(Suspension::LeaseEnded));
        let (first, second) = (inner.commit(vec![scrub(1)]), inner.commit(vec![scrub(2)]));
        let dropped = tokio::time::timeout(Duration::from_secs(3), async { tokio::join!(first, second) });
        assert!(dropped.await.is_err());
        assert_eq!(world.rig.view_now().record.scrub.began, 0);
        suspend(None);
        let size = world.space.size();
        inner.commit(vec![OwnerOp::SetSize { from: size, to: size + UNIT }]).await.unwrap();
        assert_eq!((world.space.size(), world.rig.view_now().record.scrub.began), (size + UNIT, 2));
    });
}
