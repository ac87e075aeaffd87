//! The owner's side of the seam: what the coordinator asks the owner of a space for.

use std::sync::Arc;

use disk::DiskError;
use env::Io;

use crate::{
    DiskNumber, Finding, JobId, LogState, Membership, NoPlace, Progress, RowNumber, SeamError, SlabPlace,
    SpaceId, SpaceView,
};

/// The owner of a space, which alone reads and writes the space's slabs and log.
pub trait Owner: Send + Sync {
    /// A new view; does not wait. One that is older than the owner's is ignored.
    fn update(&self, view: Arc<SpaceView>);

    /// The disk is leaving: no I/O to it begins from now on. Returns the regions of its copies that the disk
    /// may lack (rule 11); a repeated call returns the same or more. Errors: [`SeamError::Deposed`]: the space has
    /// another owner.
    fn leaving(&self, disk: DiskNumber, of: Membership) -> Io<Result<Vec<CopyRegions>, SeamError>>;

    /// The disk does not leave after all: I/O to it goes on.
    fn stays(&self, disk: DiskNumber, of: Membership);

    /// The disk is about to join with this membership: compares its mark with the log (rule 9). Errors:
    /// [`SeamError::Deposed`]: the space has another owner.
    fn joining(&self, disk: DiskNumber, of: Membership) -> Io<Result<Returned, SeamError>>;

    /// Runs a job to its end; a call with the number of a running one joins it. Errors: what kept the job from its end.
    /// What it has done counts.
    fn run(&self, job: JobId, order: JobOrder) -> Io<Result<JobReport, SeamError>>;

    /// Ends a job after its outstanding pieces; its call of [`Owner::run`] returns then.
    fn stop(&self, job: JobId);

    /// Another size of the space, in bytes. Shrinking needs that nothing is written beyond `to`, or `destroy`. Errors:
    /// [`SeamError::Invalid`]: the space has another size than `from`, or data beyond `to`.
    fn resize(&self, from: u64, to: u64, destroy: bool) -> Io<Result<(), SeamError>>;

    /// Ends the ownership: outstanding calls complete, everything is durable, and nothing has to be replayed. Errors:
    /// the log stays open, and the next owner replays it.
    fn close(&self) -> Io<Result<LogState, SeamError>>;

    /// What the owner has counted.
    fn status(&self) -> OwnerStatus;
}

/// Regions of a copy. Its index may change while this is on its way, so its allocation names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRegions {
    /// The row.
    pub row: RowNumber,
    /// The allocation of the copy.
    pub generation: u32,
    /// The regions, by bit.
    pub regions: u64,
}

/// What a disk that returns has of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum Returned {
    /// Everything before this sequence of the log, that of its mark; what it lacks is recorded as missed.
    Proven { mark: u64 },
    /// It was set back: what other copies have counts as missed on it.
    Behind,
    /// As [`Returned::Behind`], and no other copies have these rows.
    OnlyCopy(Vec<RowNumber>),
    /// Its mark or its replica of the log could not be read.
    Unreadable(DiskError),
}

/// What a job is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// Copies the missed regions of a disk's slabs.
    Resync(DiskNumber),
    /// Moves these slabs, each a row and an index, to these places; without one, to a place that the coordinator chooses
    /// when the move begins. The index after the last slab is that of a moving copy: its move is given up.
    Fill(Vec<(RowNumber, u8, Option<SlabPlace>)>),
    /// Gives all rows the space's present resiliency, and copies what present disks have missed.
    Reshape,
    /// Reads all copies, from this row on.
    Scrub(RowNumber),
    /// Decides units that a crash has left open (rule 12).
    Resolve,
}

/// The end of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobReport {
    /// What it has done.
    pub progress: Progress,
    /// Slabs, each a row and an index, that it could not do, and why.
    pub left: Vec<(RowNumber, u8, Stays)>,
}

/// Why a slab stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    /// There is no other disk for it.
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
    /// Its disk is absent, and it has the only copy.
    #[error("the disk has the only copy of some data of virtual disk {}", .0.0)]
    OnlyCopy(SpaceId),
    /// The row keeps its number of copies for now: a copy that would be freed has something that the others do not have, or
    /// two columns are on one disk.
    #[error("copies are not complete, or two columns of a row are on one disk")]
    Shape,
    /// The job was stopped, or something failed meanwhile.
    #[error("parts of it are moved by another job, or could not be copied")]
    Unfinished,
}

/// What an owner has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerStatus {
    /// One for each disk of the space that is in service.
    pub disks: Vec<PortStats>,
    /// The newest findings of damage.
    pub findings: Vec<Finding>,
    /// Groups whose checksum blocks are older than the log.
    pub dirty: u64,
    /// Units that a crash has left open, and disks have not been compared about yet.
    pub unverified: u64,
}

/// An owner's I/O to one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStats {
    /// The disk.
    pub disk: DiskNumber,
    /// The membership.
    pub of: Membership,
    /// Calls that are outstanding.
    pub outstanding: u64,
    /// Writes that completed and are not durable yet, as far as is known.
    pub unflushed: u64,
}
