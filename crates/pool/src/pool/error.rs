//! Errors of a pool as a whole, by cause, with the remedy.

use std::path::PathBuf;

use disk::DiskError;
use disk::qualify::mebibytes;

use crate::authority::CasError;
use crate::format::{Claimant, Feature, LabelError};
use crate::{CommitError, DiskNumber, InvalidOp, PoolId};

/// Why a disk is unsuitable for a pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum Unsuitable {
    /// A power cut may tear a write: see `docs/0001-pool.md`.
    #[error("a power cut could tear a 4 KiB write: the disk writes only {0} bytes atomically")]
    Tears(u32),
    /// The disk's blocks are larger than a unit.
    #[error("its blocks have {0} bytes, more than 4 KiB")]
    Blocks(u32),
    /// The disk is too small: sizes in bytes.
    #[error("its size is {}, the minimum is {}", mebibytes(*.size), mebibytes(*.least))]
    Small { size: u64, least: u64 },
    /// The disk has no stable identity: another disk could be at the same path later.
    #[error("it has no unique identity: neither a world wide name nor a serial number")]
    NoIdentity,
    /// The disk was given twice.
    #[error("it is named twice")]
    Twice,
    /// The disk belongs to a pool.
    #[error("it is disk {} of the pool '{name}'; erase it first if that pool is no longer needed", .number.0)]
    InPool { name: String, pool: PoolId, number: DiskNumber },
    /// The disk may belong to a pool: it has a pool's label that is damaged, or that this program cannot read.
    #[error(
        "it has a pool's label that this program cannot use: {0}; the disk can be used only if that label is erased"
    )]
    Label(LabelError),
    /// The disk did not respond when it was in this pool, and an old write may still take effect.
    #[error(
        "a write from before its removal has not completed; try again. If it does not complete, reset or reconnect the disk and restart the server"
    )]
    StillWriting,
    /// I/O to the disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Why a pool could not be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum CreateError {
    /// No disks were given.
    #[error("a pool needs at least one disk")]
    NoDisks,
    /// The slab size is invalid.
    #[error("the slab size must be a power of two from 2 MiB to 1 GiB, not {}", mebibytes(*.0))]
    SlabBytes(u64),
    /// One of the disks is unsuitable.
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
    /// None of the disks belongs to the pool. `unreadable`: disks with an unusable label.
    #[error("no disk of {} was found{}", .pool.map_or("a pool".into(), |p| format!("pool {p}")), seen(.unreadable))]
    NoPool { pool: Option<PoolId>, unreadable: Vec<(PathBuf, LabelError)> },
    /// The caller selected no pool, and the disks belong to several.
    #[error("the disks belong to {} pools ({}); name one of the pools", .0.len(), .0.iter().map(|(id, name)| format!("{name} {id}")).collect::<Vec<_>>().join(", "))]
    SeveralPools(Vec<(PoolId, String)>),
    /// The same label on two devices: one is a copy of the other.
    #[error("{} and {} both have the label of disk {} of the pool: one of them is a copy; remove the copy", .a.display(), .b.display(), .disk.0)]
    Copied { disk: DiskNumber, a: PathBuf, b: PathBuf },
    /// A newer version has written features that this one cannot read.
    #[error("disk {} uses {}, which this version does not support; use a newer version", .disk.0, names(.features))]
    Features { disk: DiskNumber, features: Vec<Feature> },
    /// A newer version has written features that this one can only read.
    #[error("disk {} uses {}, which this version can only read; open the pool read-only", .disk.0, names(.features))]
    ReadOnlyFeatures { disk: DiskNumber, features: Vec<Feature> },
    /// The device has become smaller since it was added, when it `had` more bytes. Without it, too few disks are
    /// present.
    #[error("disk {} has become shorter ({size} bytes instead of {had}) and cannot be used; without it, too few disks are present", .disk.0)]
    Shrunk { disk: DiskNumber, size: u64, had: u64 },
    /// None of the disks has usable metadata.
    #[error("none of the {disks} disks that were found has usable metadata; connect the other disks")]
    NoMetadata { disks: usize },
    /// A missing disk may be newer than the present ones. `stale`: spaces with slabs on absent disks.
    #[error(
        "{seen} of {voters} disks with metadata are present and {needed} are needed, because the others may have newer data; \
         missing: {}; virtual disks that may be stale without them: {}",
        disks(.missing), spaces(.stale)
    )]
    TooFewVoters {
        seen: usize,
        voters: usize,
        needed: usize,
        missing: Vec<(DiskNumber, String)>,
        stale: Vec<String>,
    },
    /// The pool has another owner.
    #[error(
        "process {} on the machine {} owns it, since Unix time {since_unix_s}; export it there, or take it by force if that machine is off",
        .by.process, .by.host
    )]
    Held { by: Claimant, since_unix_s: u64 },
    /// A disk cannot guarantee that the current owner of the pool no longer writes to it.
    #[error("disk {} cannot refuse writes of the pool's current owner: {error}; remove the disk, or stop the other program that uses it", .disk.0)]
    NotFenced { disk: DiskNumber, error: DiskError },
    /// Another server claimed the pool at the same moment.
    #[error("the machine {} claimed it at the same time; try again when that machine has released it", .by.host)]
    Raced { by: Claimant },
    /// Parts of the pool were used separately.
    #[error(
        "{} used without the rest of the pool, after the loss of the other disks was accepted; open the pool without {}, or \
         accept the loss of the writes made there since then",
        were(.0), if .0.len() == 1 { "it" } else { "them" }
    )]
    Diverged(Vec<DiskNumber>),
    /// The authority does not respond.
    #[error(transparent)]
    Authority(#[from] CasError),
    /// The claim or the first record could not be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The metadata is inconsistent.
    #[error("the metadata contradicts itself: {0}")]
    Contradiction(#[from] InvalidOp),
}

/// Why a disk could not be added, returned or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum AdminError {
    /// The disk is unsuitable.
    #[error(transparent)]
    Unsuitable(#[from] Unsuitable),
    /// The disk does not belong to this pool.
    #[error("it is not a disk of this pool: {0}")]
    NotOurs(LabelError),
    /// The disk's label is of another pool, or of a disk that this pool does not have.
    #[error("it is disk {} of the pool {pool}, not of this pool", .number.0)]
    Stranger { pool: PoolId, number: DiskNumber },
    /// The disk is in service.
    #[error("disk {} is already in service", .0.0)]
    Present(DiskNumber),
    /// The disk was removed because it did not respond, and an earlier write may still take effect.
    #[error("a write to disk {} from before its removal has not completed; try again. If it does not complete, reset or reconnect the disk and restart the server", .0.0)]
    StillWriting(DiskNumber),
    /// The disk has the only copy of some data, which may be stale.
    #[error("disk {} has the only copy of some data, and that copy is stale; accept the loss of newer data to use it", .0.0)]
    Stale(DiskNumber),
    /// The pool was opened with this disk and without the present ones. The disk has another history, with writes
    /// made since.
    #[error("disk {} was used without the other disks, and the writes made then are only on it; accept the loss of these writes to use it", .0.0)]
    Diverged(DiskNumber),
    /// See [`CommitError`].
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The disk was removed from the pool, but its labels could not be erased.
    #[error("disk {} was removed from the pool, but its labels could not be erased: {error}", .disk.0)]
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
        return "unknown".to_owned();
    }
    missing.iter().map(|(d, name)| format!("disk {} ({name})", d.0)).collect::<Vec<_>>().join(", ")
}

fn spaces(stale: &[String]) -> String {
    if stale.is_empty() { "none known".into() } else { stale.join(", ") }
}

fn seen(unreadable: &[(PathBuf, LabelError)]) -> String {
    unreadable.iter().map(|(path, why)| format!("; {}: {why}", path.display())).collect()
}
