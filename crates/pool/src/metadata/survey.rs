//! Reading what a disk has of the metadata.

use std::sync::Arc;

use disk::{Disk, DiskError};

use super::io::DiskIo;
use super::replay::{History, Unusable, replay};
use crate::format::{Areas, BLOCK, Claim, Extent, FrameError, Kind, frame_size};
use crate::{DiskNumber, PoolId};

/// What a disk has of a pool's metadata.
pub(crate) struct Seen {
    /// The newest claim.
    pub(crate) claim: Option<Claim>,
    /// Epochs that may have been claimed beyond the newest claim that can be read: one for each damaged place.
    pub(crate) claims_damaged: u64,
    /// The newest state that it knows.
    pub(crate) history: Result<History, Unreadable>,
}

/// Why a disk has no say.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// What it has cannot be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// It cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Reads claim, checkpoints and journal of a disk.
pub(crate) async fn look(
    io: &DiskIo,
    disk: &Arc<dyn Disk>,
    areas: &Areas,
    pool: PoolId,
    number: DiskNumber,
) -> Seen {
    let (claim, claims_damaged) = newest_claim(io, disk, areas, pool, number).await;
    Seen { claim, claims_damaged, history: history(io, disk, areas, pool, number).await }
}

/// The newest claim on a disk, and how many of its places are damaged.
pub(crate) async fn newest_claim(
    io: &DiskIo,
    disk: &Arc<dyn Disk>,
    areas: &Areas,
    pool: PoolId,
    number: DiskNumber,
) -> (Option<Claim>, u64) {
    let (mut newest, mut damaged) = (None::<Claim>, 0);
    for place in 0..2 {
        match io.read(disk, areas.claim_place(place)).await.map(|bytes| Claim::decode(&bytes)) {
            Ok(Ok((found, on))) if found.pool == pool && on == number => {
                let newer = |c: &Claim| (c.epoch, c.sequence) < (found.epoch, found.sequence);
                if newest.as_ref().is_none_or(newer) {
                    newest = Some(found);
                }
            }
            Ok(Ok(_) | Err(FrameError::Blank | FrameError::Foreign)) => {}
            Ok(Err(FrameError::Damaged)) | Err(_) => damaged += 1,
        }
    }
    (newest, damaged)
}

async fn history(
    io: &DiskIo,
    disk: &Arc<dyn Disk>,
    areas: &Areas,
    pool: PoolId,
    number: DiskNumber,
) -> Result<History, Unreadable> {
    // An error on one checkpoint is as good as a damaged one: the other and the journal may do.
    let [a, b] = areas.checkpoints();
    let a = checkpoint(io, disk, a).await;
    let b = checkpoint(io, disk, b).await;
    let slots = match (a, b) {
        (Err(e), Err(_)) => return Err(e.into()),
        (a, b) => [a.unwrap_or_default(), b.unwrap_or_default()],
    };
    let ring = match slots.iter().all(Vec::is_empty) {
        true => Vec::new(),
        false => io.read(disk, areas.journal).await?,
    };
    Ok(replay(pool, number, [&slots[0], &slots[1]], &ring)?)
}

/// The bytes of a checkpoint: as many as its header says, if it has one.
async fn checkpoint(io: &DiskIo, disk: &Arc<dyn Disk>, area: Extent) -> Result<Vec<u8>, DiskError> {
    let first = Extent { length: BLOCK as u64, ..area };
    let head = io.read(disk, first).await?;
    match frame_size(&head, Kind::Checkpoint) {
        Ok(size) if size > BLOCK && size as u64 <= area.length => {
            io.read(disk, Extent { length: size as u64, ..area }).await
        }
        _ => Ok(head),
    }
}
