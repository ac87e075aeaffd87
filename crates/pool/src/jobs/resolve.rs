//! Resolving everything that a crash left in doubt.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Progress, pieces};
use crate::{DataPath, GROUP, Space, SpaceError, SpaceId};

impl DataPath {
    /// Resolves every group in doubt whose newest data is on present disks; the others wait for their disks.
    ///
    /// # Errors
    /// The first; the job continues with the next group, and may be started again.
    pub async fn resolve_all(self: &Arc<DataPath>, progress: &Progress) -> Result<(), SpaceError> {
        let mut result = Ok(());
        for space in self.doubtful() {
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

    /// The number of groups in doubt, by space; spaces without any are omitted.
    pub fn in_doubt(self: &Arc<DataPath>) -> BTreeMap<SpaceId, usize> {
        let each = self.doubtful().into_iter().map(|s| (s.id(), s.unresolved_groups()));
        each.filter(|(_, groups)| *groups > 0).collect()
    }

    /// A parity space's doubts are unknown before its journal has been read, whether or not the space is in
    /// use.
    fn doubtful(self: &Arc<DataPath>) -> Vec<Space> {
        let striped = self.read(|s| {
            let of = s.spaces.iter().filter(|(_, record)| record.resiliency.is_parity());
            of.map(|(id, _)| *id).collect::<Vec<_>>()
        });
        striped.into_iter().for_each(|id| drop(self.space(id)));
        self.open_spaces()
    }
}
