//! Who owns a space: the next owner, and the end of a space.

use pool_seam::{NodeId, OwnerId, Ownership, SeamError};

use super::answers::seam_error;
use super::no_space;
use crate::state::SpaceOp;
use crate::{Op, Pool, SpaceId};

impl Pool {
    /// Gives a space to another owner: what the one before asks for from now on is refused. Errors:
    /// [`SeamError::Failed`]: there is no such space, or it has had all the owners that it can have before the pool is
    /// opened again. Otherwise as for a request.
    pub async fn hand_over(&self, space: SpaceId, node: NodeId) -> Result<OwnerId, SeamError> {
        let decide = move |s: &crate::State| {
            let epoch = s.spaces.get(&space).and_then(|record| record.ownership.epoch.next());
            let own = |epoch| SpaceOp::Own { ownership: Ownership { node, epoch, request: 0 } };
            (epoch.map(|epoch| Op::Space { space, op: own(epoch) }).into_iter().collect(), epoch)
        };
        let epoch = self.metadata().decide(decide).await.map_err(seam_error)?;
        Ok(OwnerId { space, node, epoch: epoch.ok_or_else(|| no_space(space))? })
    }

    /// Destroys a space and what is on it; its slabs are discarded afterwards. Its owner has ended, and no I/O of it is
    /// outstanding. Errors: as for a request; then the space is there.
    pub async fn destroy_space(&self, space: SpaceId) -> Result<(), SeamError> {
        let decide = move |s: &crate::State| {
            let is_there = s.spaces.contains_key(&space);
            (is_there.then_some(Op::Space { space, op: SpaceOp::Destroy }).into_iter().collect(), ())
        };
        self.decide(decide).await.map_err(seam_error)
    }
}
