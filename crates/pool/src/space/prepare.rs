//! Making a group ready: resolved where it is in doubt, known where it is not.

use std::sync::Arc;

use super::{Space, SpaceError};
use crate::groups::{Group, GroupKey, GroupState};

impl Space {
    /// The group, with these regions ready; `None` when its row has no slabs.
    pub(crate) async fn ready(&self, key: GroupKey, regions: u64) -> Result<Option<Arc<Group>>, SpaceError> {
        loop {
            let group = self.inner.groups.get(key);
            if self.is_ready(&group, regions) {
                return Ok(Some(group));
            }
            let _one = group.preparing.lock().await;
            if self.is_ready(&group, regions) {
                drop(_one);
                return Ok(Some(group));
            }
            let Some(copies) = self.inner.copies(&self.path, key.row, key.column) else { return Ok(None) };
            if group.state.lock().flags.dead {
                continue;
            }
            self.inner.unavailable(key.row, &copies, regions)?;
            if self.inner.unresolved.of(key) != 0 {
                self.resolve(&group).await?;
            }
            self.load(&group).await?;
        }
    }

    /// Resolves and loads what can be of a group.
    pub(crate) async fn settle_doubts(&self, key: GroupKey) -> Result<(), SpaceError> {
        if let Some(striped) = self.striped() {
            return Box::pin(striped.settle()).await;
        }
        let group = self.inner.groups.get(key);
        let _one = group.preparing.lock().await;
        self.resolve(&group).await?;
        self.load(&group).await
    }

    /// Whether regions of a group are known and in no doubt. Changes only for the better, but for a failed
    /// write and a row that goes.
    pub(crate) fn is_ready(&self, group: &Group, regions: u64) -> bool {
        self.is_ready_now(group.key, &group.state.lock(), regions)
    }

    pub(super) fn is_ready_now(&self, key: GroupKey, state: &GroupState, regions: u64) -> bool {
        !state.flags.dead && state.unknown & regions == 0 && self.inner.unresolved.of(key) & regions == 0
    }
}
