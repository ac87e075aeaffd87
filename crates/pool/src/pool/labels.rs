//! Labels on disks: reading, choosing between the two, writing.

use std::sync::Arc;

use disk::{Disk, DiskError};
use futures_util::future::join_all;

use crate::format::{Areas, Extent, FrameError, Label, LabelError};
use crate::metadata::{DiskIo, Member};
use crate::{Deadlines, PoolId};

/// A disk, and the label on it if it has one.
#[derive(Clone)]
pub struct FoundLabel {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The contents of its labels.
    pub label: Result<Label, LabelError>,
}

/// Reads the labels of disks, to find pools that could be opened. Writes nothing and reads no claims. Disks have the
/// default [`Deadlines`].
pub async fn scan(env: &env::Env, arena: &arena::Arena, disks: &[Arc<dyn Disk>]) -> Vec<FoundLabel> {
    scan_by(&DiskIo::new(env, arena, DiskIo::UNOWNED_EPOCH, Deadlines::default()), disks).await
}

pub(super) async fn scan_by(io: &DiskIo, disks: &[Arc<dyn Disk>]) -> Vec<FoundLabel> {
    let looked = disks.iter().map(async |disk| {
        let label = read(io, disk).await;
        FoundLabel { disk: Arc::clone(disk), label }
    });
    join_all(looked).await
}

/// Reads the newer one of the two labels. Errors: that of the first label; or that of the second, if the first is
/// only damaged and the second error is more specific.
pub(crate) async fn read(io: &DiskIo, disk: &Arc<dyn Disk>) -> Result<Label, LabelError> {
    let a = read_at(io, disk, Areas::LABEL_A).await;
    let b = read_at(io, disk, Areas::label_b(disk.info().geometry.size)).await;
    match (a, b) {
        // If the labels at the two ends of a disk belong to two disks or pools, a part of a disk was copied over
        // another. The first label is nearer to the copied part.
        (Ok(a), Ok(b)) if (a.pool, a.id) == (b.pool, b.id) && b.sequence > a.sequence => Ok(b),
        (Ok(a), _) => Ok(a),
        // A damaged label proves at least that there was one.
        (
            Err(a @ LabelError::Frame(FrameError::Damaged)),
            Err(LabelError::Frame(FrameError::Blank | FrameError::Foreign)),
        ) => Err(a),
        (Err(LabelError::Frame(_)), b) => b,
        (Err(a), Ok(b)) if !matches!(a, LabelError::Version(_)) => Ok(b),
        (Err(a), _) => Err(a),
    }
}

/// How many of a disk's labels differ from this one in pool, disk or sequence.
pub(crate) async fn damaged(
    io: &DiskIo,
    member: &Member,
    pool: PoolId,
    sequence: u64,
) -> Result<u64, DiskError> {
    let mut damaged = 0;
    for at in [member.areas.label_a, member.areas.label_b] {
        let found = io.read_back(&member.disk, at).await?.and_then(|bytes| Label::decode(&bytes).ok());
        let found = found.map(|label| (label.pool, label.id, label.sequence));
        damaged += u64::from(found != Some((pool, member.id, sequence)));
    }
    Ok(damaged)
}

async fn read_at(io: &DiskIo, disk: &Arc<dyn Disk>, at: Extent) -> Result<Label, LabelError> {
    if at.end() > disk.info().geometry.size {
        return Err(LabelError::Frame(FrameError::Blank));
    }
    match io.read(disk, at).await {
        Ok(bytes) => Label::decode(&bytes),
        Err(_) => Err(LabelError::Frame(FrameError::Damaged)),
    }
}

/// Writes both labels, one after the other, so that one is always intact.
pub(crate) async fn write(io: &DiskIo, disk: &Arc<dyn Disk>, label: &Label) -> Result<(), DiskError> {
    let bytes = label.encode();
    io.write_durably(disk, label.areas.label_a.offset, bytes.clone()).await?;
    io.write_durably(disk, label.areas.label_b.offset, bytes).await
}

/// Erases a disk's metadata: labels, claims, marks and checkpoints.
pub(crate) async fn wipe(io: &DiskIo, disk: &Arc<dyn Disk>, areas: &Areas) -> Result<(), DiskError> {
    // The erased area begins at byte 0, so that earlier partition tables and file systems are no longer recognised.
    let head = Extent { offset: 0, length: areas.checkpoint_0.offset };
    for at in [head, first_block(areas.checkpoint_0), first_block(areas.checkpoint_1), areas.label_b] {
        io.clear(disk, at).await?;
    }
    Ok(())
}

/// [`wipe`] for a disk that is removed from the pool. Its content is discarded, so that a file's space is freed; a
/// disk without discards keeps the old bytes.
pub(crate) async fn give_back(io: &DiskIo, disk: &Arc<dyn Disk>, areas: &Areas) -> Result<(), DiskError> {
    wipe(io, disk, areas).await?;
    let size = disk.info().geometry.size;
    let mut from = 0;
    while from < size {
        let length = DISCARD.min(size - from);
        if disk.discard(&io.ctx(false), from, length).wait().await.is_err() {
            break;
        }
        from += length;
    }
    Ok(())
}

/// Bytes of one discard, so that each completes within its deadline.
const DISCARD: u64 = 1 << 30;

/// How many bytes of the marks are checked: the slots of 16 spaces.
const MARKS: u64 = 16 * 2 * crate::UNIT;

/// Invalidates the checkpoints and claims of a returning disk: they are stale, whatever their numbers.
pub(crate) async fn invalidate_metadata(
    io: &DiskIo,
    disk: &Arc<dyn Disk>,
    areas: &Areas,
) -> Result<(), DiskError> {
    for at in [areas.claim, first_block(areas.checkpoint_0), first_block(areas.checkpoint_1)] {
        io.clear(disk, at).await?;
    }
    Ok(())
}

/// Whether a disk of a pool has only its label: no claim, no metadata, no marks. Spaces use the lowest free slots of
/// marks, so the first few suffice.
pub(crate) async fn is_unused(io: &DiskIo, disk: &Arc<dyn Disk>, areas: &Areas) -> bool {
    let marks = Extent::new(areas.marks.offset, MARKS.min(areas.marks.length));
    for at in [areas.claim, marks, first_block(areas.checkpoint_0), first_block(areas.checkpoint_1)] {
        let blank = io.read(disk, at).await.is_ok_and(|bytes| bytes.iter().all(|b| *b == 0));
        if !blank {
            return false;
        }
    }
    true
}

/// The pools in the labels, each once.
pub(crate) fn pools(found: &[FoundLabel]) -> Vec<(PoolId, String)> {
    let mut pools: Vec<(PoolId, String)> = Vec::new();
    for label in found.iter().filter_map(|f| f.label.as_ref().ok()) {
        if !pools.iter().any(|(id, _)| *id == label.pool) {
            pools.push((label.pool, label.pool_name.clone()));
        }
    }
    pools
}

fn first_block(area: Extent) -> Extent {
    Extent { length: crate::UNIT, ..area }
}
