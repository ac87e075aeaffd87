//! Joining disks, permanently removed disks, and the choice of voters. Disks that are removed from service are in
//! `leaving.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use disk::DiskError;

use super::{Form, Writer};
use crate::format::{EPOCHS_BYTES, state_size_bound};
use crate::metadata::absence;
use crate::metadata::encoded::Encoded;
use crate::metadata::members::{Member, Members};
use crate::metadata::store::{CommitError, Suspension};
use crate::metadata::voter::Voter;
use crate::state::OwnerAnswers;
use crate::{DiskNumber, Op, voters};

impl Writer {
    pub(in crate::metadata) async fn join(
        &mut self,
        member: Arc<Member>,
        ops: Vec<Op>,
    ) -> Result<(), CommitError> {
        let disk = member.number;
        self.unfit.remove(&disk);
        // Added before the state declares the disk present: a write with that state must find the member.
        self.shared.add_member(member);
        if let Err(e) = self.commit(ops).await {
            self.shared.remove_member(disk);
            return Err(e);
        }
        // Tasks that were woken by the new member may have read the state before the commit.
        self.shared.tell_changed();
        self.rechoose().await
    }

    /// Before the removal another disk becomes a voter, if there is one, so that a crash in between leaves as many
    /// voters as before. The record of the removal also removes the disk from the voters in force at that time: a
    /// voter that was dropped since the caller's check stays dropped.
    pub(in crate::metadata) async fn remove(&mut self, disk: DiskNumber) -> Result<(), CommitError> {
        let removal = |voters: &BTreeSet<DiskNumber>| {
            let mut voters = voters.clone();
            let ended = voters.remove(&disk).then_some(Op::Voters { voters });
            ended.into_iter().chain([Op::RemoveDisk { disk }]).collect::<Vec<_>>()
        };
        if self.shadow.voters.contains(&disk) {
            // A refused removal must not change anything.
            self.shadow.clone().apply_all(&removal(&self.shadow.voters))?;
            // The loop ends, as a disk that fails to become a voter is not tried again.
            while self.fill_up(Some(disk)).await? {}
        }
        self.commit(removal(&self.shadow.voters)).await
    }

    /// Chooses up to five voters in as many fault domains as possible. A new voter has a claim and a checkpoint
    /// before it counts.
    pub(in crate::metadata) async fn rechoose(&mut self) -> Result<(), CommitError> {
        self.running()?;
        self.fill_up(None).await?;
        let members = Arc::clone(&self.shared.members.read());
        let fits = self.fits(&members);
        while let Some((out, new)) = voters::apart(&self.shadow, &fits) {
            self.let_vote(&members, vec![new]).await?;
            if !self.shadow.voters.contains(&new) || !self.shadow.voters.contains(&out) {
                // The disk failed: the other disks are tried when a disk joins, or at the next opening.
                break;
            }
            let voters = self.shadow.voters.iter().copied().filter(|v| *v != out).collect();
            self.commit(vec![Op::Voters { voters }]).await?;
        }
        Ok(())
    }

    /// Adds voters until there are enough, not counting `leaving`. Returns whether it added any.
    async fn fill_up(&mut self, leaving: Option<DiskNumber>) -> Result<bool, CommitError> {
        let members = Arc::clone(&self.shared.members.read());
        let fits = self.fits(&members);
        let mut state = self.shadow.clone();
        state.voters.retain(|voter| Some(*voter) != leaving);
        let chosen = voters::choose(&state, |disk| Some(disk) != leaving && fits(disk));
        let joining: Vec<_> = chosen.difference(&state.voters).copied().collect();
        let has_any = !joining.is_empty();
        self.let_vote(&members, joining).await?;
        Ok(has_any)
    }

    /// Whether a disk's metadata area has space for twice the current state, and for all future openings.
    fn fits(&self, members: &Arc<Members>) -> impl Fn(DiskNumber) -> bool + use<> {
        let bound = state_size_bound(&self.shadow);
        let needed = bound.max(2 * (bound - EPOCHS_BYTES)) as u64;
        let (unfit, members) = (self.unfit.clone(), Arc::clone(members));
        move |disk| !unfit.contains(&disk) && members.get(disk).is_some_and(|m| Voter::room(m) > needed)
    }

    /// Makes disks voters. Each one gets a checkpoint, and a claim from the authority, before it counts. A disk that
    /// fails is removed.
    async fn let_vote(&mut self, members: &Members, joining: Vec<DiskNumber>) -> Result<(), CommitError> {
        let mut failed = Vec::new();
        for disk in joining {
            let Some(member) = members.get(disk) else { continue };
            let mut voter = Voter::new(Arc::clone(member), 0);
            let state = Encoded::new(&self.shadow);
            let put = voter.checkpoint(self.shadow.pool, &self.point, &state);
            if let Err(e) = put.write(&self.io, member).await {
                failed.push((disk, e));
                continue;
            }
            self.voters.insert(disk, voter);
            let voters = self.shadow.voters.iter().copied().chain([disk]).collect();
            self.commit(vec![Op::Voters { voters }]).await?;
        }
        for (disk, error) in failed {
            // Does not call `remove_from_service`, which would choose voters again.
            if self.shadow.is_present(disk) {
                self.configs.push(self.config());
                let ops = self.dropping(disk, &error)?;
                self.commit_tried(ops, Form::Record).await?;
            }
        }
        Ok(())
    }

    /// The operations for a disk whose metadata could not be written, applied to the shadow: the disk is removed from
    /// service. If it has the only current copy of some data, it stays in service, but is no voter. So does a disk
    /// with slabs of spaces, whose owners would have to be asked first; their I/O shows whether the disk works.
    pub(super) fn dropping(&mut self, disk: DiskNumber, error: &DiskError) -> Result<Vec<Op>, CommitError> {
        if !self.shadow.disks.contains_key(&disk) {
            // The disk failed in the record that removes it.
            return Ok(Vec::new());
        }
        let fenced = matches!(error, DiskError::Fenced { .. });
        if !fenced && !self.shadow.needs(disk) && !self.shadow.has_rows(disk) {
            return self.removal_ops(disk, absence(error), &OwnerAnswers::new());
        }
        self.unfit.insert(disk);
        let left: BTreeSet<_> = self.shadow.voters.iter().copied().filter(|v| *v != disk).collect();
        // The last voter is not dropped: `enough_left` suspends the pool.
        if left.is_empty() || left.len() == self.shadow.voters.len() {
            return Ok(Vec::new());
        }
        let op = Op::Voters { voters: left };
        self.shadow.apply(&op).map_err(|e| self.suspend(Suspension::Unaccountable(e)))?;
        Ok(vec![op])
    }

    /// Checks invariant 2.
    pub(super) fn enough_left(&self) -> Result<(), CommitError> {
        for (set, needed) in &self.configs {
            let left = set.iter().filter(|d| self.voters.contains_key(d)).count();
            if left < *needed || self.voters.is_empty() {
                let failed = self.failed.clone();
                if let Some((_, DiskError::Fenced { epoch, .. })) =
                    failed.iter().find(|(_, e)| matches!(e, DiskError::Fenced { .. }))
                {
                    return Err(self.suspend(Suspension::Fenced { epoch: epoch.0 }));
                }
                return Err(self.suspend(Suspension::TooFewVoters {
                    left,
                    needed: (*needed).max(1),
                    failed,
                }));
            }
        }
        Ok(())
    }
}
