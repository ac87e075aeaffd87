//! Reads back labels and metadata, which an open pool does not read otherwise.

use std::collections::BTreeMap;

use super::{Pool, labels};
use crate::{CommitError, DiskNumber};

impl Pool {
    /// Reads the labels of all disks, and the metadata on those that have it, and rewrites damaged ones; returns the
    /// number of damaged places by disk. Disks that do not respond are skipped. Errors: the pool accepts no changes.
    pub async fn scrub_metadata(&self) -> Result<BTreeMap<DiskNumber, u64>, CommitError> {
        let inner = &self.inner;
        // Prevents that another task writes labels.
        let _admin = inner.admin.lock().await;
        let mut found = inner.changing()?.scrub().await?;
        let mut ops = Vec::new();
        for member in self.members().iter() {
            let number = member.number;
            let known = self.read(|s| s.disks.get(&number).map(|r| r.label_sequence));
            let Some(sequence) = known else { continue };
            let damaged = labels::damaged(&inner.io, member, inner.id, sequence).await.unwrap_or(0);
            if damaged > 0 {
                *found.entry(number).or_default() += damaged;
                ops.extend(self.relabel_one(member, sequence).await?);
            }
        }
        if !ops.is_empty() {
            inner.changing()?.commit(ops).await?;
        }
        Ok(found)
    }
}
