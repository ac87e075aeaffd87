//! Errors of a pool as a whole, by blame, with the action that helps.

use std::path::PathBuf;

use disk::DiskError;
use disk::qualify::mebibytes;

use crate::authority::CasError;
use crate::format::{Claimant, Feature, LabelError};
use crate::{CommitError, DiskNumber, InvalidOp, PoolId};

/// Why a disk cannot be one of a pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum Unsuitable {
    /// See `docs/0001-pool.md`.
    #[error("a power cut could tear a 4 KiB write: the disk guarantees {0} bytes")]
    Tears(u32),
    /// Its blocks are larger than a unit.
    #[error("its blocks have {0} bytes, more than 4 KiB")]
    Blocks(u32),
    /// It is too small: sizes in bytes.
    #[error("it has {}; the least is {}", mebibytes(*.size), mebibytes(*.least))]
    Small { size: u64, least: u64 },
    /// It has no lasting identity: another disk could be at the same path later.
    #[error("it has no identity of its own, neither a world wide name nor a serial number")]
    NoIdentity,
    /// It was given twice.
    #[error("it was given twice")]
    Twice,
    /// It is in use.
    #[error("it is disk {} of the pool '{name}'; erase it first if that pool is no longer needed", .number.0)]
    InPool { name: String, pool: PoolId, number: DiskNumber },
    /// It may be in use: where a pool's label stands is one that this program cannot read, or that is damaged.
    #[error("it has a pool's label that cannot be used: {0}; it can be used only if that label is erased")]
    Label(LabelError),
    /// It was a disk of this pool, did not answer, and a write from then may still arrive.
    #[error(
        "a write from its earlier time in this pool has not ended; try again, and if it never ends, reset or reconnect the disk and restart the server"
    )]
    StillWriting,
    /// It failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Why a pool could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum CreateError {
    /// No disks were given.
    #[error("a pool needs at least one disk")]
    NoDisks,
    /// The slab size is not one.
    #[error("a slab has a power of two bytes from 2 MiB to 1 GiB, not {}", mebibytes(*.0))]
    SlabBytes(u64),
    /// One of the disks will not do.
    #[error("{}: {why}", .path.display())]
    Disk { path: PathBuf, why: Unsuitable },
    /// The authority did not accept the new owner.
    #[error(transparent)]
    Authority(#[from] CasError),
    /// The metadata could not be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// Why a pool could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum OpenError {
    /// None of the disks is one of the pool. `unreadable`: disks with something like a label.
    #[error("no disk of {} is here{}", .pool.map_or("a pool".into(), |p| format!("pool {p}")), seen(.unreadable))]
    NoPool { pool: Option<PoolId>, unreadable: Vec<(PathBuf, LabelError)> },
    /// The caller's: disks of several pools, and none was named.
    #[error("the disks are of {} pools ({}); say which", .0.len(), .0.iter().map(|(id, name)| format!("{name} {id}")).collect::<Vec<_>>().join(", "))]
    SeveralPools(Vec<(PoolId, String)>),
    /// The same label on two devices: one is a copy of the other.
    #[error("{} and {} both have the label of disk {} of the pool: one is a copy; remove it", .a.display(), .b.display(), .disk.0)]
    Copied { disk: DiskNumber, a: PathBuf, b: PathBuf },
    /// A newer version has written what this one cannot read.
    #[error("disk {} uses {} which this version does not know; use a newer one", .disk.0, names(.features))]
    Features { disk: DiskNumber, features: Vec<Feature> },
    /// A newer version has written what this one can only read.
    #[error("disk {} uses {} which this version can only read; open the pool read-only", .disk.0, names(.features))]
    ReadOnlyFeatures { disk: DiskNumber, features: Vec<Feature> },
    /// The device is smaller than when it was added, when it `had` more bytes, and the others are too few without it.
    #[error("disk {} has become shorter: it has {size} bytes and had {had}, so it cannot be used, and without it there are too few disks", .disk.0)]
    Shrunk { disk: DiskNumber, size: u64, had: u64 },
    /// None of the disks can say what the pool is.
    #[error("none of the {disks} disks that are here has usable metadata; bring the others")]
    NoMetadata { disks: usize },
    /// A missing disk may be newer than the present ones. `stale`: spaces with slabs on absent disks.
    #[error(
        "{seen} of {voters} disks with metadata are here and {needed} are needed, because the others may be newer; bring back {}, or accept the \
         loss of what only they have: {} may be stale",
        disks(.missing), spaces(.stale)
    )]
    TooFewVoters {
        seen: usize,
        voters: usize,
        needed: usize,
        missing: Vec<(DiskNumber, String)>,
        stale: Vec<String>,
    },
    /// It has another owner.
    #[error(
        "{} holds it: process {}, since {since_unix_s} s after 1970; export it there, or use force if that machine is certainly off",
        .by.host, .by.process
    )]
    Held { by: Claimant, since_unix_s: u64 },
    /// A disk cannot guarantee that the current owner of the pool no longer writes to it.
    #[error("disk {} cannot refuse writes of the pool's current owner: {error}; remove the disk, or stop its other user", .disk.0)]
    NotFenced { disk: DiskNumber, error: DiskError },
    /// Another server claimed it at the same moment.
    #[error("{} claimed it at the same time; try again when it is free", .by.host)]
    Raced { by: Claimant },
    /// Parts of the pool were used without each other.
    #[error(
        "{} used without the rest of the pool, after the loss of the other disks was accepted; open the pool without {}, or \
         accept the loss of the writes made there since",
        were(.0), if .0.len() == 1 { "it" } else { "them" }
    )]
    Diverged(Vec<DiskNumber>),
    /// The authority does not answer.
    #[error(transparent)]
    Authority(#[from] CasError),
    /// The claim or the first record could not be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The metadata contradicts itself.
    #[error("the metadata contradicts itself: {0}")]
    Contradiction(#[from] InvalidOp),
}

/// Why a disk could not be added, returned or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum AdminError {
    /// The disk will not do.
    #[error(transparent)]
    Unsuitable(#[from] Unsuitable),
    /// It is no disk of this pool.
    #[error("it is no disk of this pool: {0}")]
    NotOurs(LabelError),
    /// Its label is of another pool, or of a disk that this pool does not have.
    #[error("it is disk {} of pool {pool}, not one of this pool's", .number.0)]
    Stranger { pool: PoolId, number: DiskNumber },
    /// It never left.
    #[error("disk {} is in service already", .0.0)]
    Present(DiskNumber),
    /// It left because it did not answer, and a write from before that may still arrive.
    #[error("a write to disk {} from before its removal has not ended; try again, and if it never ends, reset or reconnect the disk and restart the server", .0.0)]
    StillWriting(DiskNumber),
    /// It has the only copy of something, and that may be old.
    #[error("disk {} has the only copy of some data, and that copy is stale; accept the loss to use it", .0.0)]
    Stale(DiskNumber),
    /// The pool was opened with it and without the present disks: it has another history, with writes made
    /// since.
    #[error("disk {} was used without the other disks, and the writes made then are only on it; accept the loss of those to use it", .0.0)]
    Diverged(DiskNumber),
    /// See [`CommitError`].
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// It was removed from the pool, but its labels could not be erased.
    #[error("disk {} has left the pool, but its labels could not be erased: {error}", .disk.0)]
    NotErased { disk: DiskNumber, error: DiskError },
}

/// `disk 1 was`, `disks 1, 2 were`.
fn were(disks: &[DiskNumber]) -> String {
    let list = disks.iter().map(|d| d.0.to_string()).collect::<Vec<_>>().join(", ");
    if disks.len() == 1 { format!("disk {list} was") } else { format!("disks {list} were") }
}

fn names(features: &[Feature]) -> String {
    features.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn disks(missing: &[(DiskNumber, String)]) -> String {
    if missing.is_empty() {
        return "the others".to_owned();
    }
    missing.iter().map(|(d, name)| format!("disk {} ({name})", d.0)).collect::<Vec<_>>().join(", ")
}

fn spaces(stale: &[String]) -> String {
    if stale.is_empty() { "no known virtual disk".into() } else { stale.join(", ") }
}

fn seen(unreadable: &[(PathBuf, LabelError)]) -> String {
    unreadable.iter().map(|(path, why)| format!("; {}: {why}", path.display())).collect()
}
