//! Reading the metadata on a disk.

use std::sync::Arc;

use disk::{Disk, DiskError};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::io::DiskIo;
use super::replay::{History, HistoryEnd, Unusable, newer_slot, replay};
use crate::authority::newest_claim;
use crate::format::{Areas, BLOCK, Claim, Extent, Kind, frame_size};
use crate::{DiskNumber, PoolId};

/// The contents of a disk's metadata.
pub(crate) struct DiskMetadata {
    pub(crate) claim: Option<Claim>,
    /// The number of damaged claims. Each may have been a claim of a higher epoch than the newest claim that can be
    /// read.
    pub(crate) claims_damaged: u64,
    /// The end of the disk's newest history.
    pub(crate) history: Result<HistoryEnd, Unreadable>,
}

/// Why a disk's metadata is not used.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// Its contents cannot be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// It cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Reads several disks, and keeps only the newest of their states, which may be large.
pub(crate) struct Survey {
    newest: Mutex<Option<History>>,
    /// Limits the concurrent reads, because each keeps its data in memory.
    reading: Semaphore,
}

/// Disks whose checkpoints and journals are read at a time.
const READS_AT_ONCE: usize = 2;

impl Survey {
    pub(crate) fn new() -> Survey {
        Survey { newest: Mutex::new(None), reading: Semaphore::new(READS_AT_ONCE) }
    }

    /// Reads the claim, the checkpoints and the journal of a disk.
    pub(crate) async fn read_disk(
        &self,
        io: &DiskIo,
        disk: &Arc<dyn Disk>,
        areas: &Areas,
        pool: PoolId,
        number: DiskNumber,
    ) -> DiskMetadata {
        let (claim, claims_damaged) = newest_claim(io, disk, areas, pool, number).await;
        let _one = self.reading.acquire().await;
        let history = self.history(io, disk, areas, pool, number).await;
        DiskMetadata { claim, claims_damaged, history }
    }

    /// The newest history of all disks that were read.
    pub(crate) fn newest(self) -> Option<History> {
        self.newest.into_inner()
    }

    async fn history(
        &self,
        io: &DiskIo,
        disk: &Arc<dyn Disk>,
        areas: &Areas,
        pool: PoolId,
        number: DiskNumber,
    ) -> Result<HistoryEnd, Unreadable> {
        // A read error of one checkpoint counts as damage: the other one and the journal may suffice.
        let [a, b] = areas.checkpoints().map(|c| Extent { length: BLOCK as u64, ..c });
        let mut slots = match (io.read(disk, a).await, io.read(disk, b).await) {
            (Err(e), Err(_)) => return Err(e.into()),
            (a, b) => [a.unwrap_or_default(), b.unwrap_or_default()],
        };
        // Most disks of a large pool never had metadata: their journal is not read.
        let ring = match slots.iter().any(|head| frame_size(head, Kind::Checkpoint).is_ok()) {
            true => io.read(disk, areas.journal).await?,
            false => Vec::new(),
        };
        let newer = newer_slot([&slots[0], &slots[1]]);
        let failed = fill(io, disk, areas, &mut slots, newer).await.err();
        if failed.is_none() {
            match self.replay(pool, number, &slots, &ring) {
                Err(Unusable::None | Unusable::Checkpoints) => {}
                result => return Ok(result?),
            }
        }
        // The newer checkpoint is damaged or missing: reads the older one, too.
        match (failed, fill(io, disk, areas, &mut slots, newer ^ 1).await) {
            (Some(e), Err(_)) => Err(e.into()),
            _ => Ok(self.replay(pool, number, &slots, &ring)?),
        }
    }

    fn replay(
        &self,
        pool: PoolId,
        number: DiskNumber,
        slots: &[Vec<u8>; 2],
        ring: &[u8],
    ) -> Result<HistoryEnd, Unusable> {
        let mut newest = self.newest.lock();
        let known = newest.as_ref().map(|n| &n.point);
        let found = replay(pool, number, [&slots[0], &slots[1]], ring, known)?;
        let point = found.end.point;
        if let Some(state) = found.state
            && newest.as_ref().is_none_or(|n| n.point < point)
        {
            *newest = Some(History { state, point });
        }
        Ok(found.end)
    }
}

/// Reads the whole checkpoint whose header is in a slot, with the length in the header, if it is a checkpoint. The slot
/// is empty after an error.
async fn fill(
    io: &DiskIo,
    disk: &Arc<dyn Disk>,
    areas: &Areas,
    slots: &mut [Vec<u8>; 2],
    slot: usize,
) -> Result<(), DiskError> {
    let area = areas.checkpoints()[slot];
    let size = frame_size(&slots[slot], Kind::Checkpoint).ok().filter(|s| *s as u64 <= area.length);
    if let Some(size) = size.filter(|s| *s > BLOCK) {
        let length = size as u64;
        slots[slot] = Vec::new();
        slots[slot] = io.read(disk, Extent { length, ..area }).await?;
    }
    Ok(())
}
