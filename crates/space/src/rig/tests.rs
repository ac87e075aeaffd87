//! The rig behaves as the design requires of a coordinator, and the model of the bytes as it requires of a space.

mod bytes;
mod calls;
mod disks;

use std::sync::Arc;

use disk::DiskError;
use env::Io;
use parking_lot::Mutex;
use pool_seam::{
    Coordinator, CopyRegions, DiskNumber, JobId, JobOrder, JobReport, LogState, Membership, Owner, OwnerOp,
    OwnerStatus, RejoinState, Request, Resiliency, Row, RowNumber, SeamError, SpaceView,
};

use super::{Rig, SPACE, Setup};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };
const ROW: RowNumber = RowNumber(0);

/// An owner that returns the answers of a test, and keeps the newest view.
struct Answers {
    leaving: Vec<CopyRegions>,
    joining: RejoinState,
    rig: Rig,
    view: Mutex<Option<Arc<SpaceView>>>,
}

impl Owner for Answers {
    fn update(&self, view: Arc<SpaceView>) {
        *self.view.lock() = Some(view);
    }
    fn disk_leaving(&self, _: DiskNumber, _: Membership) -> Io<Result<Vec<CopyRegions>, SeamError>> {
        Io::Done(Ok(self.leaving.clone()))
    }
    fn disk_stays(&self, _: DiskNumber, _: Membership) {}
    fn disk_joining(&self, disk: DiskNumber, of: Membership) -> Io<Result<RejoinState, SeamError>> {
        assert!(self.rig.open_disk(disk, of).is_some(), "its mark can be read");
        Io::Done(Ok(self.joining.clone()))
    }
    fn run(&self, _: JobId, _: JobOrder) -> Io<Result<JobReport, SeamError>> {
        Io::Done(Ok(JobReport::default()))
    }
    fn stop(&self, _: JobId) {}
    fn resize(&self, _: u64, _: u64, _: bool) -> Io<Result<(), SeamError>> {
        Io::Done(Ok(()))
    }
    fn close(&self) -> Io<Result<LogState, SeamError>> {
        Io::Done(Ok(LogState::default()))
    }
    fn status(&self) -> OwnerStatus {
        OwnerStatus::default()
    }
}

/// An owner for `rig`; it lives as long as the test keeps it.
fn owner(rig: &Rig, leaving: Vec<CopyRegions>, joining: RejoinState) -> Arc<Answers> {
    let owner = Arc::new(Answers { leaving, joining, rig: rig.clone(), view: Mutex::default() });
    let weak = Arc::downgrade(&owner);
    rig.set_owner(weak);
    owner
}

fn rig(disks: usize, resiliency: Resiliency) -> Rig {
    Rig::new(&Setup::new(1, disks, resiliency))
}

async fn request(rig: &Rig, number: u64, ops: &[OwnerOp]) -> Result<Arc<SpaceView>, SeamError> {
    let epoch = rig.owner_id().epoch;
    rig.commit(Request { space: SPACE, epoch, number, ops: ops.to_vec() }).wait().await
}

/// A request with the next number.
async fn commit(rig: &Rig, ops: &[OwnerOp]) -> Result<Arc<SpaceView>, SeamError> {
    let number = rig.view_now().record.ownership.request + 1;
    request(rig, number, ops).await
}

/// A row that is ready.
async fn allocated(rig: &Rig) -> Row {
    let view = commit(rig, &[OwnerOp::Allocate { row: ROW }]).await.expect("room");
    let view = commit(rig, &[ready(&view)]).await.expect("it fits");
    view.record.rows.get(&ROW).expect("a row").clone()
}

/// All present disks have the blocks of the row.
fn ready(view: &SpaceView) -> OwnerOp {
    let row = row(view, ROW);
    let disks = row.slabs.iter().map(|copy| copy.place.disk);
    let written = disks.filter_map(|disk| Some((disk, view.membership(disk)?))).collect();
    OwnerOp::Ready { row: ROW, birth: row.birth, written }
}

fn row(view: &SpaceView, row: RowNumber) -> &Row {
    view.record.rows.get(&row).expect("a row")
}

fn gone() -> DiskError {
    DiskError::Gone { at: disk::IoRange::new(disk::Op::Write, 0, 4096) }
}
