//! Removes disks from service.

use std::collections::BTreeSet;

use pool_seam::Membership;

use super::{Form, Writer};
use crate::metadata::members::{MembershipToEnd, Removal};
use crate::metadata::store::{CommitError, Done, Suspension};
use crate::state::OwnerAnswers;
use crate::{Absence, DiskNumber, Op};

/// A disk to remove from service, and the answers of its spaces' owners, with the membership they refer to.
pub(in crate::metadata) struct AnsweredRemoval {
    pub(in crate::metadata) removal: Removal,
    pub(in crate::metadata) answers: Option<(Membership, OwnerAnswers)>,
}

impl Writer {
    /// Removes disks from service; each has its own result. A removed voter does not count among the remaining ones.
    /// [`CommitError::Needed`]: the disk stays, and nothing has changed.
    ///
    /// Disks that may be absent at the same time share a record. The others follow in later records, as if they had
    /// failed later.
    pub(in crate::metadata) async fn remove_from_service(
        &mut self,
        mut removals: Vec<(AnsweredRemoval, Done)>,
    ) {
        while !removals.is_empty() {
            let owned = self.owned().await;
            let (mut leaving, mut disks, mut done) = (Vec::new(), BTreeSet::new(), Vec::new());
            let mut later = Vec::new();
            for (answered, result) in std::mem::take(&mut removals) {
                match owned.clone().and_then(|()| self.may_remove(&answered.removal, &disks)) {
                    Ok(true) => {
                        disks.insert(answered.removal.disk);
                        leaving.push(answered);
                        done.push(result);
                    }
                    // The disk may be removable in a later record.
                    Ok(false) | Err(CommitError::Needed(_)) if !disks.is_empty() => {
                        later.push((answered, result));
                    }
                    decided => {
                        let _ = result.send(decided.map(drop)); // the caller may have been dropped
                    }
                }
            }
            if !leaving.is_empty() {
                let left = self.remove_together(leaving).await;
                for result in done {
                    let _ = result.send(left.clone());
                }
            }
            removals = later;
        }
    }

    /// Whether a disk may be removed from service together with the disks in `with`. `false`: it is no longer in
    /// service.
    fn may_remove(&self, removal: &Removal, with: &BTreeSet<DiskNumber>) -> Result<bool, CommitError> {
        let Removal { disk, membership, reason } = removal;
        let has_ended = membership.has_ended(self.shared.members.read().get(*disk));
        if has_ended || with.contains(disk) || !self.shadow.is_present(*disk) {
            return Ok(false);
        }
        let stays = |other: DiskNumber| other != *disk && !with.contains(&other);
        let needs = || self.shadow.has_alone(*disk, |other| stays(other) && self.shadow.is_present(other));
        let too_few = self.shadow.voters.iter().filter(|v| stays(**v)).count() < self.config().1;
        let is_needed = match reason {
            // The disk has not failed. The decision used the acknowledged state, which may be older than the shadow,
            // so it is checked again.
            Absence::ByCommand | Absence::Slow => too_few || needs(),
            // The disk's only copies may still be readable, and each failed write is reported to its caller.
            Absence::WriteFailed | Absence::FlushFailed => needs(),
            // The same applies to a failed I/O or check, which refers to a specific membership.
            Absence::Gone => matches!(membership, MembershipToEnd::OfMember(_)) && needs(),
            _ => false,
        };
        // Without all these voters the pool would stop; after each single removal it can choose another voter.
        let is_too_much = !with.is_empty() && too_few && self.shadow.voters.contains(disk);
        if is_needed || is_too_much { Err(CommitError::Needed(*disk)) } else { Ok(true) }
    }

    /// Removes disks in one record, after one record for each further voter among them (invariant 5). No record waits
    /// for any of these disks.
    async fn remove_together(&mut self, removals: Vec<AnsweredRemoval>) -> Result<(), CommitError> {
        let disks = removals.iter().map(|answered| answered.removal.disk);
        disks.clone().for_each(|disk| self.shared.remove_member(disk));
        let voters: Vec<_> = disks.filter(|disk| self.shadow.voters.contains(disk)).collect();
        self.configs.push(self.config());
        self.voters.retain(|disk, _| !voters.contains(disk));
        for disk in voters.iter().skip(1) {
            let left = self.shadow.voters.iter().copied().filter(|v| v != disk).collect();
            let op = Op::Voters { voters: left };
            self.shadow.apply(&op).map_err(|e| self.suspend(Suspension::Unaccountable(e)))?;
            self.enough_left()?;
            self.commit_tried(vec![op], Form::Record).await?;
            self.configs.push(self.config());
        }
        let mut ops = Vec::new();
        for AnsweredRemoval { removal: Removal { disk, reason, .. }, answers } in removals {
            // Answers that refer to another membership are invalid.
            let of = self.shadow.membership(disk);
            let answers = answers.filter(|(asked, _)| Some(*asked) == of).map(|(_, answers)| answers);
            ops.extend(self.removal_ops(disk, reason, &answers.unwrap_or_default())?);
        }
        self.enough_left()?;
        self.commit_tried(ops, Form::Record).await?;
        self.rechoose().await
    }

    /// The operations that remove a disk from service, applied to the shadow.
    pub(super) fn removal_ops(
        &mut self,
        disk: DiskNumber,
        reason: Absence,
        answers: &OwnerAnswers,
    ) -> Result<Vec<Op>, CommitError> {
        self.shared.remove_member(disk);
        // The last voter is not dropped: `enough_left` suspends the pool.
        if self.shadow.voters.iter().all(|v| *v == disk) {
            return Ok(Vec::new());
        }
        let ops = self.shadow.removal_ops(disk, reason, answers);
        for op in &ops {
            self.shadow.apply(op).map_err(|e| self.suspend(Suspension::Unaccountable(e)))?;
        }
        Ok(ops)
    }
}
