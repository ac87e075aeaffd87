//! The interface that owners call: their requests, and the coordinator's answers.

use std::sync::Arc;

use disk::DiskError;
use env::Io;

use crate::{
    Absence, DiskNumber, Finding, JobId, LogState, LossRecord, MediaClass, Membership, OwnerId, RowNumber,
    ScrubRecord, SlabPlace, SpaceEpoch, SpaceId, SpaceView, ViewVersion,
};

/// The pool's coordinator, the only writer of the metadata.
///
/// Callers repeat a call until it is answered. Each call names the generation, birth, membership or previous
/// size of its object, so a late or duplicate call changes no other object. `docs/0004-spaces.md`, section B,
/// has the table of what is durable.
pub trait Coordinator: Send + Sync {
    /// Returns the newest view, or `None` if its version is `known`. Errors: never `Invalid`.
    fn view(
        &self,
        owner: OwnerId,
        known: Option<ViewVersion>,
    ) -> Io<Result<Option<Arc<SpaceView>>, SeamError>>;

    /// Applies all operations in one durable record, exactly once. Returns a view that includes them and
    /// every disk of their slabs. If the number is not higher than the last one applied, the request was
    /// applied before and only the view is returned. Errors: `NoRoom` and `Invalid` use up the number: the
    /// same operations need a new one.
    fn commit(&self, request: Request) -> Io<Result<Arc<SpaceView>, SeamError>>;

    /// Reports that an I/O of this membership failed or hangs; the coordinator removes the disk from service.
    /// The returned view shows the disk without this membership, even if an earlier call removed it. Errors:
    /// [`SeamError::Needed`] if the disk has the only copy of some data; the disk then stays.
    fn disk_failed(&self, owner: OwnerId, report: DiskReport) -> Io<Result<Arc<SpaceView>, SeamError>>;

    /// Asks for the next turn of a running job, and reports its progress since its start.
    fn turn(&self, owner: OwnerId, job: JobId, done: Progress) -> Io<Result<Turn, SeamError>>;

    /// Reports damage; does not wait, and the report may be lost. Findings that must be durable are in the
    /// metadata ([`OwnerOp::Lost`]).
    fn report_finding(&self, owner: OwnerId, finding: Finding);
}

/// An owner's permission to acknowledge changes. It expires unless the coordinator renews it.
pub trait Lease: Send + Sync {
    /// Whether a change may begin or be acknowledged now.
    fn holds(&self) -> bool;

    /// Waits until the lease holds. Errors: [`SeamError::Deposed`], or [`SeamError::Suspended`] if it could
    /// not be renewed for a long time.
    fn hold(&self) -> Io<Result<(), SeamError>>;
}

/// Changes of the metadata that an owner requests. Numbers increase within an epoch and are never reused; an
/// owner has one request outstanding at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The space.
    pub space: SpaceId,
    /// The owner's epoch.
    pub epoch: SpaceEpoch,
    /// The number, from 1.
    pub number: u64,
    /// The changes, in order.
    pub ops: Vec<OwnerOp>,
}

/// A change of the metadata that an owner requests. A copy of a row is named by its index and generation, a
/// row by its birth, a disk by its membership.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are described by their types and `docs/on-disk-format.md`
pub enum OwnerOp {
    /// Allocates slabs for a row; the coordinator chooses them. The row is *new* until `Ready` (rule 18).
    Allocate { row: RowNumber },
    /// The blocks of a new row are durable on these disks, all of which are present; its other copies are
    /// stale in full. For a log, the replicas that have them are known beforehand.
    Ready { row: RowNumber, birth: u32, written: Vec<(DiskNumber, Membership)> },
    /// Frees the row's slabs; the row then reads as zeros.
    Free { row: RowNumber, birth: u32 },
    /// Marks these regions of a copy stale (rule 10). `membership` is the disk's membership in the owner's
    /// view, if it is present there. If the disk has rejoined since, the owner must first check what the disk
    /// has.
    MarkStale { row: RowNumber, index: u8, generation: u32, regions: u64, membership: Option<Membership> },
    /// These regions of a copy are current again, durably (rule 14).
    MarkCurrent { row: RowNumber, index: u8, generation: u32, regions: u64, membership: Membership },
    /// The disk's content was reset to an older state: its copies are stale wherever other copies exist (rule
    /// 9).
    MarkDiskStale { disk: DiskNumber, membership: Membership },
    /// The owner has read the log and recorded the disk's stale regions: the disk's copies are valid again.
    Accounted { disk: DiskNumber, membership: Membership },
    /// Begins to move a slab. The coordinator chooses the place. If its own order named one
    /// ([`crate::JobOrder::Fill`]), the slab moves to that disk or not at all.
    BeginMove { row: RowNumber, birth: u32, index: u8, to: Option<SlabPlace> },
    /// The new slab has all data of the old one and replaces it.
    EndMove { row: RowNumber, birth: u32 },
    /// Cancels the move: the old slab stays.
    CancelMove { row: RowNumber, birth: u32 },
    /// Gives the row the space's current resiliency. The coordinator chooses which copies stay and places new
    /// ones, which are stale in full.
    Reshape { row: RowNumber, birth: u32 },
    /// Replaces a log replica by one on another disk, which is stale in full (rule 17).
    ReplaceLog { index: u8, generation: u32 },
    /// Frees a replica of the log that the space's resiliency does not require any more. No write to it is in
    /// flight.
    FreeReplica { generation: u32 },
    /// Changes the size of the space, in bytes.
    SetSize { from: u64, to: u64 },
    /// The data of the addresses up to `to` is in rows of the current half, durably; so far, up to `from`.
    Converted { from: u64, to: u64 },
    /// The progress of a scrub (reading all copies).
    Scrub(ScrubRecord),
    /// Known lost units.
    Lost(LossRecord),
    /// The minimum content of the log from now on (rule 20).
    Log(LogState),
}

/// A disk that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskReport {
    /// The disk.
    pub disk: DiskNumber,
    /// The membership under which the I/O was issued.
    pub membership: Membership,
    /// The recorded reason for its removal.
    pub reason: Absence,
    /// The error of the I/O.
    pub error: DiskError,
}

/// The progress of a job since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub bytes: u64,
    /// Total bytes, as far as known.
    pub total: u64,
    /// Units repaired.
    pub healed: u64,
    /// Units with no good copy.
    pub lost: u64,
}

/// The coordinator's permission for the next step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum Turn {
    /// Process up to `pieces` pieces, each of at most one region.
    Go { pieces: u8 },
    /// Pause: the job is paused, clients need the disks, or a more urgent job runs. The coordinator answers
    /// when this changes, or with `Wait` after a short time; the owner then asks again.
    Wait,
    /// Stop after the outstanding pieces.
    Stop,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeamError {
    /// The space has a newer owner, with this epoch: the caller must not acknowledge any more changes.
    #[error("the virtual disk has another owner, with epoch {}", .0.0)]
    Deposed(SpaceEpoch),
    /// The request does not match the metadata. The current view is attached.
    #[error("the metadata has changed since the request was made")]
    Invalid(Arc<SpaceView>),
    /// The disk has the only copy of some data, so it stays in service.
    #[error("disk {} has the only copy of some data", .0.0)]
    Needed(DiskNumber),
    /// There are no disks for new slabs.
    #[error("no room for another row: {0}")]
    NoRoom(NoPlace),
    /// The pool accepts no changes at present.
    #[error("the pool is suspended: {0}")]
    Suspended(Suspension),
    /// Another process now coordinates the pool: repeat the request there.
    #[error("the pool has another coordinator")]
    Moved,
    /// From an owner: it could not complete the request, for this reason. Partial work remains.
    #[error("{0}")]
    Failed(String),
    /// The outcome is unknown: repeat the request with the same number.
    #[error("it is not known whether the request was carried out")]
    Unknown,
}

/// Why a pool accepts no changes. It accepts them again when the cause ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum Suspension {
    /// Too many of the disks with metadata failed.
    #[error("{left} of its disks with metadata remain and {needed} are needed")]
    TooFewVoters { left: u16, needed: u16 },
    /// The lease has expired: another process may have taken the pool.
    #[error("the lease of its owner has expired")]
    LeaseEnded,
    /// Another process has taken the pool, with this epoch.
    #[error("another process has taken the pool, with epoch {0}")]
    TakenOver(u64),
}

/// Why no slab can be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum NoPlace {
    /// Caller's error: there is no such row or space.
    #[error("the pool has no virtual disk {}, or it has no such row", .0.0)]
    NoSuchRow(SpaceId),
    /// Too few disks have room for the row. `media`: which disks count.
    #[error("{} and there are {disks}; add {} or make room", shortage(*.needed, *.media), .media.disks())]
    NoRoom { needed: usize, disks: usize, media: MediaClass },
}

/// `3 SSD disks with room are needed`.
fn shortage(count: usize, media: MediaClass) -> String {
    let disks = media.disks();
    match count {
        1 => format!("1 {} with room is needed", disks.trim_end_matches('s')),
        n => format!("{n} {disks} with room are needed"),
    }
}
