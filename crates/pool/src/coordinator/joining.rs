//! A disk that returns to a pool: each owner compares the disk's mark with its log.

use std::sync::Arc;

use disk::Disk;
use pool_seam::{Membership, Returned};

use crate::pool::AdminError;
use crate::state::SpaceOp;
use crate::{DiskNumber, Op, Pool, Unsuitable};

impl Pool {
    /// The operations on spaces that follow that of the disk's return in its record. A space whose owner does not answer
    /// takes the disk for one that was set back; one without an owner reads the mark when it is opened. Errors:
    /// [`AdminError::Stale`], unless `accept_loss`: the disk was set back, and other disks lack some of what it has.
    /// [`Unsuitable::Disk`]: it could not be read.
    pub(crate) async fn ask_joining(
        &self,
        number: DiskNumber,
        of: Membership,
        disk: &Arc<dyn Disk>,
        accept_loss: bool,
    ) -> Result<Vec<Op>, AdminError> {
        let spaces = self.metadata().read(|s| s.spaces_on(number).collect::<Vec<_>>());
        let answers =
            self.metadata().owners().ask_joining(&self.metadata().env, number, of, disk, spaces).await;
        // The handle of a disk that is refused is closed.
        self.end_memberships();
        let mut ops = Vec::new();
        for (space, returned) in answers {
            let unaccounted =
                self.metadata().read(|s| s.spaces.get(&space)?.unaccounted.get(&number).copied());
            match returned {
                Some(Returned::Proven { .. }) if unaccounted.is_none() => continue,
                Some(Returned::OnlyCopy(_)) if !accept_loss => return Err(AdminError::Stale(number)),
                Some(Returned::Unreadable(error)) => return Err(Unsuitable::Disk(error).into()),
                Some(Returned::Proven { .. } | Returned::Behind | Returned::OnlyCopy(_)) | None => {}
            }
            // With all that others have missed, there is nothing left to account for.
            let accounted = unaccounted.map(|of| SpaceOp::Accounted { disk: number, of });
            let stale = SpaceOp::Stale { disk: number, of };
            ops.extend(accounted.into_iter().chain([stale]).map(|op| Op::Space { space, op }));
        }
        Ok(ops)
    }
}
