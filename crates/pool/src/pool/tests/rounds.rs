use std::sync::{Arc, Weak};

use env::Io;
use parking_lot::Mutex;
use pool_seam::{
    CopyRegions, JobId, JobOrder, JobReport, LogState, Membership, Owner, OwnerStatus, RejoinState,
    SeamError, SpaceView,
};

use super::*;
use crate::Absence;
use crate::metadata::MembershipToEnd;

/// An owner that states no stale regions, and records the disks that are removed.
#[derive(Default)]
struct Recorder(Mutex<Vec<(DiskNumber, Membership)>>);

impl Owner for Recorder {
    fn update(&self, _: Arc<SpaceView>) {}
    fn disk_leaving(&self, disk: DiskNumber, of: Membership) -> Io<Result<Vec<CopyRegions>, SeamError>> {
        self.0.lock().push((disk, of));
        Io::Done(Ok(Vec::new()))
    }
    fn disk_stays(&self, _: DiskNumber, _: Membership) {}
    fn disk_joining(&self, _: DiskNumber, _: Membership) -> Io<Result<RejoinState, SeamError>> {
        Io::Done(Ok(RejoinState::Proven { mark: 0 }))
    }
    fn run(&self, _: JobId, _: JobOrder) -> Io<Result<JobReport, SeamError>> {
        Io::Done(Err(SeamError::Moved))
    }
    fn stop(&self, _: JobId) {}
    fn resize(&self, _: u64, _: u64, _: bool) -> Io<Result<(), SeamError>> {
        Io::Done(Err(SeamError::Moved))
    }
    fn close(&self) -> Io<Result<LogState, SeamError>> {
        Io::Done(Err(SeamError::Moved))
    }
    fn status(&self) -> OwnerStatus {
        OwnerStatus::default()
    }
}

/// A failure in an earlier membership must not cause questions to owners about the returned disk.
#[tokio::test(start_paused = true)]
async fn a_late_failure_does_not_disturb_a_disk_that_has_returned() {
    let w = World::new(3);
    let pool = w.create().await;
    let space = make(&pool, mirror("vm")).await;
    allocate(&pool, space, [0, 1], 0).await;
    let recorder = Arc::new(Recorder::default());
    let link: Arc<dyn Owner> = Arc::<Recorder>::clone(&recorder);
    assert!(pool.link(pool.owner(space).unwrap(), Arc::downgrade(&link) as Weak<dyn Owner>));
    let disk = DiskNumber(0);
    let old = Arc::clone(pool.members().get(disk).unwrap());
    pool.take_offline(disk).await.unwrap();
    pool.return_disk(w.disk(0), false).await.unwrap();
    assert_eq!(std::mem::take(&mut *recorder.0.lock()), [(disk, Membership(1))]);
    pool.metadata()
        .remove_from_service(disk, MembershipToEnd::OfMember(old), Absence::WriteFailed)
        .await
        .unwrap();
    assert_eq!(pool.read(|s| s.membership(disk)), Some(Membership(2)));
    assert_eq!(*recorder.0.lock(), []);
}
