//! The transfer of a space to the next owner, and its destruction.

use pool_seam::{NodeId, OwnerId, Ownership, SeamError};

use super::answers::seam_error;
use super::no_space;
use crate::state::SpaceOp;
use crate::{Op, Pool, SpaceId};

impl Pool {
    /// Gives a space to another owner: requests of the previous one are refused from now on. Errors:
    /// [`SeamError::Failed`]: there is no such space, or the number of its owners since the pool was opened is at its
    /// limit. Otherwise as for a request.
    pub async fn hand_over(&self, space: SpaceId, node: NodeId) -> Result<OwnerId, SeamError> {
        let decide = move |s: &crate::State| {
            let epoch = s.spaces.get(&space).and_then(|record| record.ownership.epoch.next());
            let own = |epoch| SpaceOp::Own { ownership: Ownership { node, epoch, request: 0 } };
            (epoch.map(|epoch| Op::Space { space, op: own(epoch) }).into_iter().collect(), epoch)
        };
        let epoch = self.metadata().decide(decide).await.map_err(seam_error)?;
        Ok(OwnerId { space, node, epoch: epoch.ok_or_else(|| no_space(space))? })
    }

    /// Destroys a space and its data; its slabs are discarded afterwards. Its owner must have ended, without
    /// outstanding I/O. Errors: as for a request; then the space still exists.
    pub async fn destroy_space(&self, space: SpaceId) -> Result<(), SeamError> {
        let decide = move |s: &crate::State| {
            let is_there = s.spaces.contains_key(&space);
            (is_there.then_some(Op::Space { space, op: SpaceOp::Destroy }).into_iter().collect(), ())
        };
        self.decide(decide).await.map_err(seam_error)
    }
}
