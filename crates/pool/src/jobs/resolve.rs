//! Resolving everything that a crash left in doubt.

use std::sync::Arc;

use super::{Progress, pieces};
use crate::{DataPath, GROUP, SpaceError};

impl DataPath {
    /// Resolves every group in doubt whose newest data is here; the others wait for their disks.
    ///
    /// # Errors
    /// The first; the job goes on with the next group, and may be started again.
    pub async fn resolve_all(self: &Arc<DataPath>, progress: &Progress) -> Result<(), SpaceError> {
        let mut result = Ok(());
        for space in self.open_spaces() {
            let keys = space.groups_in_doubt();
            progress.expect(keys.len() as u64 * GROUP);
            let space = &space;
            let settled = pieces::each(keys, |key| async move {
                let Some(_turn) = progress.piece(GROUP).await else { return Ok(Ok(())) };
                let settled = space.settle_doubts(key).await;
                progress.did(GROUP);
                Ok(settled)
            });
            result = settled.await?.into_iter().fold(result, Result::and);
        }
        result
    }

    /// Groups that are in doubt.
    pub fn in_doubt(self: &Arc<DataPath>) -> usize {
        self.open_spaces().iter().map(crate::Space::unresolved_groups).sum()
    }
}
