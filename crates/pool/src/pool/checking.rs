//! Checks that the disks are still those that were opened: another program can remove, truncate or overwrite a file,
//! while reads and writes continue without errors.

use std::sync::Arc;

use disk::{DiskError, IoRange, Op};
use futures_util::future::join_all;

use super::{Pool, labels};
use crate::format::{Areas, FrameError, LabelError};
use crate::metadata::{MembershipToEnd, Removal};
use crate::{Absence, CommitError, DiskNumber, Member};

impl Pool {
    /// Checks every disk of a pool whose spaces have owners, and its labels, once. A disk that is not the opened one
    /// is removed from service. If it has the only copy of some data, it stays and counts as failing. Errors: the
    /// metadata cannot be changed.
    pub async fn check_disks(&self) -> Result<(), CommitError> {
        let members = self.members();
        let looks = members.iter().map(async |member| match self.check(member).await {
            Ok(()) => {
                self.events().disk_found(member.number);
                None
            }
            Err(error) => Some((member, error)),
        });
        let failed = join_all(looks).await.into_iter().flatten();
        // A fenced disk is healthy: another process owns the pool.
        let failed: Vec<_> = failed.filter(|(_, e)| !matches!(e, DiskError::Fenced { .. })).collect();
        let removal = |(member, _): &(&Arc<Member>, DiskError)| Removal {
            disk: member.number,
            membership: MembershipToEnd::OfMember(Arc::clone(member)),
            reason: Absence::Gone,
        };
        let left = self.metadata().remove_all_from_service(failed.iter().map(removal).collect()).await;
        for ((member, error), left) in failed.iter().zip(left) {
            self.failed_check(member.number, error, left)?;
        }
        Ok(())
    }

    async fn check(&self, member: &Arc<Member>) -> Result<(), DiskError> {
        let io = &self.inner.io;
        member.disk.check(&io.ctx(false)).wait().await?;
        let foreign = match labels::read(io, &member.disk).await {
            Ok(label) => (label.pool, label.id, label.number) != (self.id(), member.id, member.number),
            Err(LabelError::Frame(FrameError::Blank | FrameError::Foreign)) => true,
            // Scrubs find and repair damage, and other I/O detects a disk that does not respond.
            Err(_) => false,
        };
        let is_in_service =
            || self.members().get(member.number).is_some_and(|present| Arc::ptr_eq(present, member));
        match foreign && is_in_service() {
            true => Err(DiskError::Gone {
                at: IoRange::new(Op::Check, Areas::LABEL_A.offset, Areas::LABEL_A.length),
            }),
            false => Ok(()),
        }
    }

    fn failed_check(
        &self,
        disk: DiskNumber,
        error: &DiskError,
        left: Result<(), CommitError>,
    ) -> Result<(), CommitError> {
        match left {
            Ok(()) => {
                tracing::warn!(disk = disk.0, %error, "a disk was replaced or changed after it was opened, and was removed from service");
                Ok(())
            }
            Err(CommitError::Needed(_)) => {
                self.events().fails(disk, error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
