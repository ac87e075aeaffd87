//! A disk that returns to a pool: each owner compares the disk's mark with its log.
//!
//! A space without an owner reads the mark when it is opened. An owner that was opening its space when the disk joined
//! may have read the marks before: it is not linked, and the next one reads them.

use std::sync::Arc;

use disk::Disk;
use pool_seam::{Membership, RejoinState};

use crate::pool::AdminError;
use crate::state::SpaceOp;
use crate::{DiskNumber, Op, Pool, Unsuitable};

/// A disk that is about to join. When this is dropped, the disk has joined, or was refused.
pub(crate) struct JoiningDisk<'p>(&'p Pool);

impl Drop for JoiningDisk<'_> {
    fn drop(&mut self) {
        self.0.metadata().owners().end_joining();
        // Closes the handles of a refused disk.
        self.0.end_memberships();
    }
}

impl Pool {
    /// The operations on spaces in the record of the disk's return; the record must be durable before the result is
    /// dropped. If a space's owner does not answer, the disk counts as rolled back. Errors: [`AdminError::Stale`],
    /// unless `accept_loss`: the disk was rolled back, and has data that other disks lack. [`Unsuitable::Disk`]: the
    /// disk could not be read.
    pub(crate) async fn ask_about_joining(
        &self,
        number: DiskNumber,
        of: Membership,
        disk: &Arc<dyn Disk>,
        accept_loss: bool,
    ) -> Result<(Vec<Op>, JoiningDisk<'_>), AdminError> {
        let owners = self.metadata().owners();
        owners.begin_joining(number, of, disk);
        let joining = JoiningDisk(self);
        let spaces = self.metadata().read(|s| s.spaces_on(number).collect::<Vec<_>>());
        let answers = owners.ask_about_joining(&self.metadata().env, number, of, spaces).await;
        let mut ops = Vec::new();
        for (space, returned) in answers {
            let unaccounted =
                self.metadata().read(|s| s.spaces.get(&space)?.unaccounted.get(&number).copied());
            match returned {
                Some(RejoinState::Proven { .. }) if unaccounted.is_none() => continue,
                Some(RejoinState::OnlyCopy(_)) if !accept_loss => return Err(AdminError::Stale(number)),
                Some(RejoinState::Unreadable(error)) => return Err(Unsuitable::Disk(error).into()),
                Some(RejoinState::Proven { .. } | RejoinState::RolledBack | RejoinState::OnlyCopy(_))
                | None => {}
            }
            // All regions that other disks have are stale now, so the disk is accounted for.
            let accounted = unaccounted.map(|of| SpaceOp::Accounted { disk: number, membership: of });
            let stale = SpaceOp::MarkDiskStale { disk: number, membership: of };
            ops.extend(accounted.into_iter().chain([stale]).map(|op| Op::Space { space, op }));
        }
        Ok((ops, joining))
    }
}
