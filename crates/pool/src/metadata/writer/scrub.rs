//! Reads back the metadata on the voters: an open pool does not read it otherwise, so damage would be found only at the
//! next opening, perhaps on too many voters at once.

use std::collections::BTreeMap;

use super::{DiskNumber, Writer};
use crate::CommitError;
use crate::authority::CasError;

impl Writer {
    /// Reads back claims, checkpoints and journals of all voters, and rewrites damaged ones (claims through the
    /// authority). Returns the number of damaged places by disk. A disk that does not respond is skipped; its I/O
    /// error is handled elsewhere.
    pub(in crate::metadata) async fn scrub(&mut self) -> Result<BTreeMap<DiskNumber, u64>, CommitError> {
        self.running()?;
        let mut found = match self.authority.repair().await {
            Ok(found) => found,
            Err(CasError::Conflict(_, now)) => {
                return Err(self.shared.tenure.claimed_by(now.coordinator).into());
            }
            Err(CasError::Disk { disk, error }) => {
                self.configs.push(self.config());
                self.drop_voters(vec![(disk, error)]).await?;
                BTreeMap::from([(disk, 1)])
            }
            Err(CasError::Unknown | CasError::Unreachable(_)) => BTreeMap::new(),
        };
        for voter in self.voters.values() {
            let damaged = voter.damaged(&self.io, self.shadow.pool, &self.point).await.unwrap_or(0);
            if damaged > 0 {
                *found.entry(voter.member.number).or_default() += damaged;
            }
        }
        if !found.is_empty() {
            // Twice, because the two checkpoint slots are written in turn. A checkpoint also empties the journal.
            for _ in 0..2 {
                self.checkpoint().await;
                self.running()?;
            }
        }
        Ok(found)
    }
}
