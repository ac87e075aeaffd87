//! Reads back the metadata on the voters: while a pool is open it is not read otherwise, so damage would be
//! found only at the next opening, and then on too many of them at once.

use std::collections::BTreeMap;

use disk::DiskError;
use futures_util::future::join_all;

use super::{DiskNumber, Writer};
use crate::CommitError;

impl Writer {
    /// Reads claims, checkpoints and journals of all voters, and writes damaged ones again; returns the
    /// number of damaged places of each disk. A disk that does not answer is skipped; its I/O error is
    /// handled elsewhere.
    pub(super) async fn scrub(&mut self) -> Result<BTreeMap<DiskNumber, u64>, CommitError> {
        self.running()?;
        let mut found = BTreeMap::new();
        for voter in self.voters.values() {
            let damaged = voter.damaged(&self.io, &self.claim, &self.point).await.unwrap_or(0);
            if damaged > 0 {
                found.insert(voter.member.number, damaged);
            }
        }
        if !found.is_empty() {
            // There are two places of each, and they take turns. A checkpoint also empties the journal.
            for _ in 0..2 {
                self.claim_anew(&found).await?;
                self.checkpoint().await;
                self.running()?;
            }
        }
        Ok(found)
    }

    /// Writes the claim of some voters again. A disk that fails that is removed from service.
    async fn claim_anew(&mut self, whose: &BTreeMap<DiskNumber, u64>) -> Result<(), CommitError> {
        let (io, claim) = (self.io.clone(), self.claim.clone());
        let voters = self.voters.iter_mut().filter(|(number, _)| whose.contains_key(number));
        let written = voters.map(async |(number, voter)| {
            let error = voter.put_claim(&io, &claim).await.err()?;
            Some((*number, error))
        });
        let failed: Vec<(DiskNumber, DiskError)> = join_all(written).await.into_iter().flatten().collect();
        self.configs.push(self.config());
        self.go_on_without(failed).await
    }
}
