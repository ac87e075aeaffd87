//! The coordinator's side of the seam: what an owner asks for, and how the coordinator answers.

use std::sync::Arc;

use disk::DiskError;
use env::Io;

use crate::{
    Absence, DiskNumber, Finding, JobId, LogState, LossRecord, MediaClass, Membership, OwnerId, RowNumber,
    ScrubRecord, SlabPlace, SpaceEpoch, SpaceId, SpaceView, ViewVersion,
};

/// The pool's coordinator, which alone writes the metadata.
///
/// Calls are repeated until they are answered: each names generation, birth, membership or the former size of what
/// it changes, so one that is late or comes twice does nothing to another. `docs/0004-spaces.md`, section B, has the table
/// of what is durable.
pub trait Coordinator: Send + Sync {
    /// The newest view, or `None` when `known` is that. Errors: never `Invalid`.
    fn view(
        &self,
        owner: OwnerId,
        known: Option<ViewVersion>,
    ) -> Io<Result<Option<Arc<SpaceView>>, SeamError>>;

    /// Carries out all operations in one durable record, exactly once, and returns a view that has them and every disk of
    /// their slabs. A number that is not higher than the last one done was carried out before: only the view is
    /// returned. Errors: `NoRoom` and `Invalid` use the number up: the same operations need another one.
    fn commit(&self, request: Request) -> Io<Result<Arc<SpaceView>, SeamError>>;

    /// An I/O of this membership failed or hangs: removes the disk from service. The view that is returned shows the
    /// disk without this membership, also when another call removed it before. Errors: [`SeamError::Needed`] if the
    /// disk has the only copy of something: the disk stays.
    fn disk_failed(&self, owner: OwnerId, report: DiskReport) -> Io<Result<Arc<SpaceView>, SeamError>>;

    /// Asks for the next turn of a running job, and reports what it has done since it began.
    fn turn(&self, owner: OwnerId, job: JobId, done: Progress) -> Io<Result<Turn, SeamError>>;

    /// Tells of damage that was found; does not wait, and may be lost. What nobody may forget is in the metadata
    /// ([`OwnerOp::Lost`]).
    fn found(&self, owner: OwnerId, finding: Finding);
}

/// An owner's right to acknowledge, which ends by itself when the coordinator cannot renew it.
pub trait Lease: Send + Sync {
    /// Whether a change may begin, or be acknowledged, now.
    fn holds(&self) -> bool;

    /// Waits until it does. Errors: [`SeamError::Deposed`], or [`SeamError::Suspended`] when it could not be renewed
    /// for long.
    fn hold(&self) -> Io<Result<(), SeamError>>;
}

/// Changes of the metadata that an owner asks for. Numbers grow within an epoch and are never used twice; one request is
/// outstanding at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The space.
    pub space: SpaceId,
    /// The owner's epoch.
    pub epoch: SpaceEpoch,
    /// The number, from 1.
    pub number: u64,
    /// The changes, in their order.
    pub ops: Vec<OwnerOp>,
}

/// A change of the metadata that an owner asks for. A copy of a row is named by its index and its generation, a row by its
/// birth, a disk by its membership.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of the fields, which are what their types and `docs/on-disk-format.md` say
pub enum OwnerOp {
    /// Slabs for a row; the coordinator chooses them. The row is *new* until `Ready` (rule 18).
    Allocate { row: RowNumber },
    /// The blocks of a new row are written, durably, on these disks, all that are present; its other copies have missed
    /// everything. Of a log it is known before which replicas have it.
    Ready { row: RowNumber, birth: u32, written: Vec<(DiskNumber, Membership)> },
    /// The row's slabs are free; it reads as zeros.
    Free { row: RowNumber, birth: u32 },
    /// A copy does not have the newest writes of these regions (rule 10). `seen` is the membership that its disk has in the
    /// owner's view, if it is present there: of a disk that has returned since, the owner sees first what it has.
    Missed { row: RowNumber, index: u8, generation: u32, regions: u64, seen: Option<Membership> },
    /// A copy has these regions again, durably (rule 14).
    NotMissed { row: RowNumber, index: u8, generation: u32, regions: u64, membership: Membership },
    /// The disk was set back: its copies have missed all that other copies have (rule 9).
    Stale { disk: DiskNumber, of: Membership },
    /// The log was read, and what the disk misses is recorded: its copies count again.
    Accounted { disk: DiskNumber, of: Membership },
    /// A slab begins to move. The coordinator chooses the place; if an order of its own named one ([`crate::JobOrder::Fill`]),
    /// on that disk or not at all.
    BeginMove { row: RowNumber, birth: u32, index: u8, to: Option<SlabPlace> },
    /// The moving slab has all that the old one has: it takes its place.
    EndMove { row: RowNumber, birth: u32 },
    /// The slab stays where it is.
    CancelMove { row: RowNumber, birth: u32 },
    /// The row gets the space's present resiliency. The coordinator chooses which copies stay, and the places of new ones, which
    /// have missed everything.
    Reshape { row: RowNumber, birth: u32 },
    /// A replica of the log on another disk, which has missed everything (rule 17).
    ReplaceLog { index: u8, generation: u32 },
    /// Another size of the space, in bytes.
    SetSize { from: u64, to: u64 },
    /// How far the reading of all copies is.
    Scrub(ScrubRecord),
    /// Known lost units.
    Lost(LossRecord),
    /// What the log must contain from now on (rule 20).
    Log(LogState),
}

/// A disk that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskReport {
    /// The disk.
    pub disk: DiskNumber,
    /// The membership that the I/O was of.
    pub of: Membership,
    /// What is recorded as the reason for its removal.
    pub reason: Absence,
    /// The error of the I/O.
    pub error: DiskError,
}

/// What a job has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub bytes: u64,
    /// Bytes there are, as far as is known.
    pub of: u64,
    /// Units repaired.
    pub healed: u64,
    /// Units found on no copy.
    pub lost: u64,
}

/// What a job may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum Turn {
    /// So many pieces, each of a region or less.
    Go { pieces: u8 },
    /// Nothing now: paused, clients need the disks, or a more urgent job runs. The coordinator answers when this changes,
    /// or with this after a moment; the owner asks again.
    Wait,
    /// Nothing more: the job ends after its outstanding pieces.
    Stop,
}

/// Why the coordinator did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeamError {
    /// The space has a newer owner, of this epoch: the caller must not acknowledge anything any more.
    #[error("the virtual disk has another owner, with epoch {}", .0.0)]
    Deposed(SpaceEpoch),
    /// The request does not fit the metadata, which is this now.
    #[error("the metadata has changed since the request was made")]
    Invalid(Arc<SpaceView>),
    /// The disk has the only copy of something, so it stays in service.
    #[error("disk {} has the only copy of some data", .0.0)]
    Needed(DiskNumber),
    /// No disks for new slabs.
    #[error("no room for another row: {0}")]
    NoRoom(NoPlace),
    /// The pool takes no changes now.
    #[error("the pool is suspended: {0}")]
    Suspended(Suspension),
    /// Another process coordinates the pool now: repeat the request there.
    #[error("the pool has another coordinator")]
    Moved,
    /// Of an owner: it could not do what it was asked to, for this reason. What it has done counts.
    #[error("{0}")]
    Failed(String),
    /// It may have been done or not: repeat the request with the same number.
    #[error("it is not known whether the request was carried out")]
    Unknown,
}

/// Why a pool takes no changes. It takes them again when the cause has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum Suspension {
    /// Too many of the disks with its metadata failed.
    #[error("{left} of its disks with metadata remain and {needed} are needed")]
    TooFewVoters { left: u16, needed: u16 },
    /// The lease has ended: it is not known whether another process has taken the pool.
    #[error("the lease of its owner has expired")]
    LeaseEnded,
    /// Another process has taken the pool, with this epoch.
    #[error("another process has taken the pool, with epoch {0}")]
    TakenOver(u64),
}

/// Why there is no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum NoPlace {
    /// The caller's: there is nothing to place.
    #[error("the pool has no virtual disk {}, or it has no such row", .0.0)]
    NoSuchRow(SpaceId),
    /// Fewer disks have room than the row needs. `media`: which disks count.
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
