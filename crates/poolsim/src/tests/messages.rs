use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::Io;
use pool::Pool;
use pool_seam::{
    Coordinator, DiskReport, Finding, JobId, LogState, OwnerId, OwnerOp, Progress, Request, RowNumber,
    SeamError, SpaceEpoch, SpaceView, Turn, ViewVersion,
};

use crate::world::{World, mirror, virtual_time};

/// A connection that carries out every request, and loses every second reply.
struct Lossy {
    pool: Pool,
    calls: AtomicU64,
}

impl Coordinator for Lossy {
    fn view(
        &self,
        owner: OwnerId,
        known: Option<ViewVersion>,
    ) -> Io<Result<Option<Arc<SpaceView>>, SeamError>> {
        self.pool.view(owner, known)
    }
    fn commit(&self, request: Request) -> Io<Result<Arc<SpaceView>, SeamError>> {
        let (pool, is_lost) =
            (self.pool.clone(), self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2));
        Io::pending(async move {
            let result = pool.commit(request).wait().await;
            if is_lost { Err(SeamError::Unknown) } else { result }
        })
    }
    fn disk_failed(&self, owner: OwnerId, report: DiskReport) -> Io<Result<Arc<SpaceView>, SeamError>> {
        Coordinator::disk_failed(&self.pool, owner, report)
    }
    fn turn(&self, owner: OwnerId, job: JobId, done: Progress) -> Io<Result<Turn, SeamError>> {
        self.pool.turn(owner, job, done)
    }
    fn report_finding(&self, owner: OwnerId, finding: Finding) {
        self.pool.report_finding(owner, finding);
    }
}

/// Requests whose replies are lost are repeated, and are carried out once.
#[test]
fn lost_replies_change_nothing_twice() {
    virtual_time(async {
        let world = World::new(8, 3);
        let pool = world.create().await;
        let space = pool.create_space(mirror("vm")).await.expect("a space");
        let lossy = Arc::new(Lossy { pool: pool.clone(), calls: AtomicU64::new(0) });
        let owned = world.own_through(&pool, space, Arc::<Lossy>::clone(&lossy)).await.expect("an owner");
        for row in 0..4 {
            owned.write(row * 512..row * 512 + 1, 1).await.expect("a write");
        }
        owned.flush().await.expect("a flush");
        let (rows, slabs) = pool.read(|s| (s.spaces[&space].rows.len(), s.slabs_allocated()));
        assert_eq!((rows, slabs), (5, 10));
        let (done, calls) =
            (pool.read(|s| s.spaces[&space].ownership.request), lossy.calls.load(Ordering::Relaxed));
        assert!(calls == 2 * done, "{calls} calls for {done} requests");
    });
}

/// Concurrent requests, repeated ones and those of an earlier owner, with the real metadata.
#[test]
fn requests_count_once_and_in_their_epoch() {
    virtual_time(async {
        let world = World::new(9, 3);
        let pool = world.create().await;
        let space = pool.create_space(mirror("vm")).await.expect("a space");
        let owner = pool.owner(space).expect("an owner");
        let request = |epoch, number, row| Request {
            space,
            epoch,
            number,
            ops: vec![OwnerOp::Allocate { row: RowNumber(row) }],
        };
        let commit = |request| pool.commit(request).wait();
        let (a, b) = tokio::join!(commit(request(owner.epoch, 1, 0)), commit(request(owner.epoch, 1, 0)));
        let (a, b) = (a.expect("carried out"), b.expect("carried out before"));
        assert_eq!((a.record.rows.len(), &a), (2, &b));
        let taken = commit(request(owner.epoch, 2, 0)).await;
        assert!(matches!(taken, Err(SeamError::Invalid(view)) if view.record.ownership.request == 2));
        let beyond = commit(request(owner.epoch, 3, 99)).await;
        assert!(matches!(beyond, Err(SeamError::NoRoom(_))), "{beyond:?}");
        let unknown = commit(request(owner.epoch.next().expect("a handover"), 1, 1)).await;
        assert!(matches!(unknown, Err(SeamError::Failed(_))), "{unknown:?}");
        let used = pool.read(|s| s.slabs_allocated());

        // The next opening has another owner.
        drop((a, b));
        let earlier = owner.epoch;
        let pool = {
            drop(pool);
            world.open().await
        };
        let now = pool.owner(space).expect("an owner").epoch;
        assert_eq!(now, SpaceEpoch::first(2));
        let late = pool.commit(request(earlier, 4, 1)).wait().await;
        assert_eq!(late, Err(SeamError::Deposed(now)));
        let late = pool.view(OwnerId { epoch: earlier, ..owner }, None).wait().await;
        assert_eq!(late, Err(SeamError::Deposed(now)));
        assert_eq!(pool.read(|s| s.slabs_allocated()), used);
    });
}

/// A view is newer only if the space or one of its disks has changed.
#[test]
fn views_change_with_their_space_only() {
    virtual_time(async {
        let world = World::new(10, 3);
        let pool = world.create().await;
        let space = pool.create_space(mirror("a")).await.expect("a space");
        let owner = pool.owner(space).expect("an owner");
        let view = pool.view(owner, None).wait().await.expect("current").expect("a view");
        let other = pool.create_space(mirror("b")).await.expect("another space");
        pool.rename("other").await.expect("another name");
        assert_eq!(pool.view(owner, Some(view.version)).wait().await, Ok(None));
        let state = LogState { epoch: owner.epoch, sequence: 5, is_closed: false };
        let request = Request { space, epoch: owner.epoch, number: 1, ops: vec![OwnerOp::Log(state)] };
        let newer = pool.commit(request).wait().await.expect("carried out");
        assert!(newer.version > view.version && newer.record.log == state);
        let again = pool.view(owner, Some(view.version)).wait().await;
        assert_eq!(again, Ok(Some(Arc::clone(&newer))));
        // A disk that both spaces use.
        let disk = *newer.disks.keys().next().expect("a disk");
        pool.take_offline(disk).await.expect("it leaves");
        let without =
            pool.view(owner, Some(newer.version)).wait().await.expect("current").expect("a newer one");
        assert_eq!(without.membership(disk), None);
        assert_eq!(without.record.unaccounted.len(), 1, "no owner was asked");
        assert_ne!(pool.owner(other).expect("an owner").space, space);
    });
}
