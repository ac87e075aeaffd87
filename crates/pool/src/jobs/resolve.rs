//! Resolving everything that a crash left in doubt.

use std::sync::Arc;

use super::Progress;
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
            for key in keys {
                if progress.is_stopped() {
                    return result;
                }
                result = result.and(space.settle_doubts(key).await);
                progress.did(GROUP);
            }
        }
        result
    }
}
