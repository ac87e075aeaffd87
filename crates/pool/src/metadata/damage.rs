//! Damaged parts of a voter's metadata.

use disk::DiskError;

use super::io::DiskIo;
use super::members::Member;
use super::replay::{Point, replay};
use crate::PoolId;
use crate::format::{BLOCK, Extent, Frame, FrameError, Kind, frame_size};

/// Counts the damaged places: checkpoints and the journal. `newest` is the slot of the newest checkpoint, `point` the
/// end of its journal. Unreadable parts count as damaged. Errors: the disk does not respond, or refuses this process.
pub(super) async fn count(
    io: &DiskIo,
    member: &Member,
    pool: PoolId,
    point: &Point,
    newest: usize,
) -> Result<u64, DiskError> {
    let read = |at| io.read_back(&member.disk, at);
    let (number, areas) = (member.number, &member.areas);
    let (mut damaged, mut slots) = (0, [Vec::new(), Vec::new()]);
    for (slot, area) in areas.checkpoints().into_iter().enumerate() {
        let head = read(Extent { length: BLOCK as u64, ..area }).await?;
        let length = match head.map(|head| frame_size(&head, Kind::Checkpoint)) {
            Some(Ok(size)) if size as u64 <= area.length => size as u64,
            // This slot never had a checkpoint.
            Some(Err(FrameError::Blank | FrameError::Foreign)) => continue,
            Some(Ok(_) | Err(FrameError::Damaged)) | None => {
                damaged += 1;
                continue;
            }
        };
        slots[slot] = read(Extent { length, ..area }).await?.unwrap_or_default();
        damaged += u64::from(Frame::parse(&slots[slot], Kind::Checkpoint).is_err());
    }
    let ring = read(areas.journal).await?;
    let found = replay(pool, number, [&slots[0], &slots[1]], &ring.unwrap_or_default(), Some(point));
    let leads = found.is_ok_and(|f| f.end.point == *point && f.end.slot == newest);
    Ok(damaged + u64::from(damaged == 0 && !leads))
}
