//! The writer's use of the pool's authority: updates of its value, and the right to write.

use std::time::Duration;

use disk::DiskError;

use super::super::store::{CommitError, Suspension};
use super::Writer;
use crate::DiskNumber;
use crate::authority::{self, AuthorityValue, CasError};

/// The delay between attempts to contact the authority.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

impl Writer {
    pub(in crate::metadata) async fn export(&mut self) -> Result<(), CommitError> {
        self.running()?;
        self.checkpoint().await;
        self.running()?;
        let value = AuthorityValue { coordinator: None, ..self.agreed.clone() };
        let given_up = authority::set(&*self.authority, self.revision, &value).await;
        if let Err(CasError::Conflict(_, now)) = given_up {
            return Err(self.shared.tenure.claimed_by(now.coordinator).into());
        }
        self.shared.suspend(Suspension::Exported);
        given_up.map(drop).map_err(|_| CommitError::Suspended(Suspension::Exported))
    }

    /// Updates the authority before a record that changes the voters or the absent disks. Returns a voter that could
    /// not store its claim. Blocks while the authority does not respond.
    pub(super) async fn agree(&mut self) -> Result<Option<(DiskNumber, DiskError)>, CommitError> {
        let absent = self.shadow.disks.keys().copied().filter(|d| !self.shadow.is_present(*d)).collect();
        let value = AuthorityValue { voters: self.shadow.voters.clone(), absent, ..self.agreed.clone() };
        while value != self.agreed {
            match authority::set(&*self.authority, self.revision, &value).await {
                Ok(revision) => (self.revision, self.agreed) = (revision, value.clone()),
                Err(CasError::Disk { disk, error }) => {
                    self.agreed = value;
                    self.agreed.voters.remove(&disk);
                    return Ok(Some((disk, error)));
                }
                // An earlier attempt has taken effect.
                Err(CasError::Conflict(revision, now)) if self.is_mine(&now) => {
                    (self.revision, self.agreed) = (revision, *now);
                }
                Err(CasError::Conflict(_, now)) => {
                    return Err(self.shared.tenure.claimed_by(now.coordinator).into());
                }
                Err(CasError::Unknown | CasError::Unreachable(_)) => {
                    self.io.env.sleep(RETRY_INTERVAL).await;
                    self.running()?;
                }
            }
        }
        Ok(None)
    }

    fn is_mine(&self, value: &AuthorityValue) -> bool {
        (value.epoch, value.incarnation) == (self.agreed.epoch, self.agreed.incarnation)
    }

    /// Checks invariant 0. If too many voters do not confirm the owner, these are handled as failed voters.
    pub(in crate::metadata) async fn owned(&mut self) -> Result<(), CommitError> {
        self.running()?;
        if self.shared.tenure.holds() {
            return Ok(());
        }
        let Err(why) = self.shared.tenure.confirm().await else { return Ok(()) };
        if let Suspension::NoLease { failed } = &why
            && !failed.is_empty()
        {
            let fails = |d: &DiskNumber| failed.iter().any(|(f, _)| f == d);
            let stay = |d: &&DiskNumber| self.voters.contains_key(d) && !fails(d);
            let now = self.config();
            if self
                .configs
                .iter()
                .chain([&now])
                .any(|(set, needed)| set.iter().filter(stay).count() < *needed)
            {
                self.configs.push(now);
                self.voters.retain(|d, _| !fails(d));
                self.failed.extend(failed.iter().copied());
                self.enough_left()?;
            }
        }
        Err(why.into())
    }

    /// [`Writer::owned`] in the middle of a long commit, whose operations are in the shadow with a sequence number. A
    /// temporary error would leave the shadow ahead of the state, so this waits until the pool's owner is known.
    pub(super) async fn regain(&mut self) -> Result<(), CommitError> {
        while self.owned().await.is_err() {
            self.running()?;
            self.io.env.sleep(RETRY_INTERVAL).await;
        }
        Ok(())
    }
}
