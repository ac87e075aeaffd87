//! The interface that the coordinator calls: its requests to the owner of a space.

use std::sync::Arc;

use disk::DiskError;
use env::Io;

use crate::{
    DiskNumber, Finding, JobId, LogState, Membership, NoPlace, Progress, RowNumber, SeamError, SlabPlace,
    SpaceId, SpaceView,
};

/// The owner of a space: only it reads and writes the space's slabs and log.
pub trait Owner: Send + Sync {
    /// Passes a new view; does not wait. The owner ignores a view that is older than its own.
    fn update(&self, view: Arc<SpaceView>);

    /// The disk is leaving: the owner starts no more I/O to it. Returns the regions of its copies that may
    /// lack writes (rule 11); a repeated call returns the same or more. Errors: [`SeamError::Deposed`] if the
    /// space has another owner.
    fn disk_leaving(&self, disk: DiskNumber, of: Membership) -> Io<Result<Vec<CopyRegions>, SeamError>>;

    /// The disk stays in service: the owner resumes I/O to it.
    fn disk_stays(&self, disk: DiskNumber, of: Membership);

    /// The disk is about to join with this membership: the owner compares the disk's mark with the log (rule
    /// 9). Errors: [`SeamError::Deposed`] if the space has another owner.
    fn disk_joining(&self, disk: DiskNumber, of: Membership) -> Io<Result<RejoinState, SeamError>>;

    /// Runs a job to its end; a call with the number of a running job waits for that job. Errors: why the job
    /// did not finish; its partial work remains.
    fn run(&self, job: JobId, order: JobOrder) -> Io<Result<JobReport, SeamError>>;

    /// Ends a job after its outstanding pieces; its [`Owner::run`] call then returns.
    fn stop(&self, job: JobId);

    /// Changes the size of the space, in bytes. Shrinking requires `destroy`, or no data beyond `to`. Errors:
    /// [`SeamError::Invalid`] if the current size is not `from`, or if there is data beyond `to`.
    fn resize(&self, from: u64, to: u64, destroy: bool) -> Io<Result<(), SeamError>>;

    /// Ends the ownership: completes outstanding calls and makes everything durable, so that nothing needs
    /// replay. Errors: the log stays open, and the next owner replays it.
    fn close(&self) -> Io<Result<LogState, SeamError>>;

    /// The owner's statistics.
    fn status(&self) -> OwnerStatus;
}

/// Regions of a copy. The copy's index may change while this message is in transit, so its generation
/// identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRegions {
    /// The row.
    pub row: RowNumber,
    /// The generation of the copy.
    pub generation: u32,
    /// Bitmask of the regions.
    pub regions: u64,
}

/// The state of a space's data on a disk that rejoins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum RejoinState {
    /// It has everything before this log sequence, taken from its mark; regions that it lacks are recorded as
    /// stale.
    Proven { mark: u64 },
    /// Its content was reset to an older state: it is stale wherever other copies exist.
    RolledBack,
    /// Like [`RejoinState::RolledBack`], and these rows have no other copies.
    OnlyCopy(Vec<RowNumber>),
    /// Its mark or its replica of the log could not be read.
    Unreadable(DiskError),
}

/// The task of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// Copies the stale regions of a disk's slabs.
    Resync(DiskNumber),
    /// Moves these slabs, each a row and an index, to the given places, or to a place that the coordinator
    /// chooses when the move begins. The index after the last slab is that of a moving copy: its move is
    /// cancelled.
    Fill(Vec<(RowNumber, u8, Option<SlabPlace>)>),
    /// Gives all rows the space's current resiliency, and updates stale copies on present disks.
    Reshape,
    /// Reads all copies, starting with this row.
    Scrub(RowNumber),
    /// Resolves units whose content is undecided after a crash (rule 12).
    Resolve,
}

/// The result of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobReport {
    /// The work done.
    pub progress: Progress,
    /// Slabs, each a row and an index, that it could not process, and why.
    pub not_moved: Vec<(RowNumber, u8, NotMoved)>,
}

/// Why a slab was not moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMoved {
    /// No other disk can take it.
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
    /// Its disk is absent, and it has the only copy.
    #[error("the disk has the only copy of some data of virtual disk {}", .0.0)]
    OnlyCopy(SpaceId),
    /// The row keeps its number of copies for now: a copy that would be freed has data that the others lack,
    /// or two columns are on one disk.
    #[error("copies are not complete, or two columns of a row are on one disk")]
    Shape,
    /// The job was stopped, or it failed.
    #[error("parts of it are moved by another job, or could not be copied")]
    Unfinished,
}

/// Statistics of an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerStatus {
    /// One entry for each disk of the space in service.
    pub disks: Vec<PortStats>,
    /// The newest findings of damage.
    pub findings: Vec<Finding>,
    /// Groups whose checksum blocks are older than the log.
    pub dirty: u64,
    /// Units whose content is undecided after a crash and whose copies have not been compared yet.
    pub unverified: u64,
}

/// An owner's I/O to one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStats {
    /// The disk.
    pub disk: DiskNumber,
    /// The membership.
    pub membership: Membership,
    /// Outstanding calls.
    pub outstanding: u64,
    /// Completed writes that are not known to be durable yet.
    pub unflushed: u64,
}
