//! The coordinator's calls: `docs/0004-spaces.md`, section B.

use std::sync::Arc;

use env::Io;
use pool_seam::{
    Coordinator, DiskNumber, DiskReport, Finding, JobId, Membership, OwnerId, Progress, Request, SeamError,
    SpaceEpoch, SpaceView, Suspension, Turn, ViewVersion,
};

use super::metadata::Refusal;
use super::{Rig, State};

impl Coordinator for Rig {
    fn view(
        &self,
        owner: OwnerId,
        known: Option<ViewVersion>,
    ) -> Io<Result<Option<Arc<SpaceView>>, SeamError>> {
        let state = self.state.lock();
        let newest = state.current(owner.epoch).map(|()| state.metadata.view());
        Io::Done(newest.map(|view| Some(view).filter(|view| known != Some(view.version))))
    }

    fn commit(&self, request: Request) -> Io<Result<Arc<SpaceView>, SeamError>> {
        let rig = self.clone();
        Io::pending(async move {
            let is_reply_lost = rig.send().await?;
            let mut state = rig.state.lock();
            state.running(&rig, request.epoch)?;
            let result = state.carry_out(&rig, &request);
            if is_reply_lost { Err(SeamError::Unknown) } else { result }
        })
    }

    fn disk_failed(&self, owner: OwnerId, report: DiskReport) -> Io<Result<Arc<SpaceView>, SeamError>> {
        let rig = self.clone();
        Io::pending(async move {
            let is_reply_lost = rig.send().await?;
            {
                let mut state = rig.state.lock();
                state.running(&rig, owner.epoch)?;
                state.failed.push((report.disk, report.error));
            }
            let result = rig.remove_from_service(report.disk, report.membership).await;
            if is_reply_lost { Err(SeamError::Unknown) } else { result }
        })
    }

    fn turn(&self, owner: OwnerId, _: JobId, _: Progress) -> Io<Result<Turn, SeamError>> {
        Io::Done(self.state.lock().current(owner.epoch).map(|()| Turn::Go { pieces: 4 }))
    }

    fn report_finding(&self, _: OwnerId, finding: Finding) {
        self.state.lock().found.push(finding);
    }
}

impl Rig {
    /// Waits for the duration of a record, and simulates lost messages; returns whether the reply is lost.
    async fn send(&self) -> Result<bool, SeamError> {
        let faults = self.state.lock().faults;
        self.env.sleep(faults.delay).await;
        let is_lost = faults.lost > 0 && self.env.random_u64() % 1_000_000 < u64::from(faults.lost);
        let is_reply = is_lost && self.env.random_u64().is_multiple_of(2);
        if is_lost && !is_reply { Err(SeamError::Unknown) } else { Ok(is_reply) }
    }

    /// Removes a disk: records the stale regions that the owner states, and its absence, in one record. Without a
    /// statement within 10 s the disk is unaccounted. If the disk is needed after all, the owner is notified that it
    /// stays.
    pub(super) async fn remove_from_service(
        &self,
        disk: DiskNumber,
        of: Membership,
    ) -> Result<Arc<SpaceView>, SeamError> {
        let (owner, delay) = {
            let state = self.state.lock();
            if state.metadata.membership(disk) != Some(of) {
                return Ok(state.metadata.view());
            }
            if state.metadata.needs(disk) {
                return Err(SeamError::Needed(disk));
            }
            (state.owner(), state.faults.delay)
        };
        let stale = match &owner {
            Some(owner) => tokio::select! {
                biased;
                stale = owner.disk_leaving(disk, of).wait() => stale.ok(),
                () = self.env.sleep(std::time::Duration::from_secs(10)) => None,
            },
            None => None,
        };
        self.env.sleep(delay).await;
        let mut state = self.state.lock();
        state.running(self, state.metadata.owner().epoch)?;
        let is_needed = state.metadata.needs(disk);
        if state.metadata.membership(disk) == Some(of) {
            state.record(&self.machine, |metadata| match stale {
                _ if is_needed => {}
                Some(stale) => metadata.remove_from_service(disk, &stale),
                None => metadata.leave_unaccounted(disk),
            });
        }
        let view = state.metadata.view();
        drop(state);
        if !is_needed {
            return Ok(view);
        }
        if let Some(owner) = owner {
            owner.disk_stays(disk, of);
        }
        Err(SeamError::Needed(disk))
    }
}

impl State {
    /// Fails if the caller is deposed.
    fn current(&self, epoch: SpaceEpoch) -> Result<(), SeamError> {
        let newest = self.metadata.record.ownership.epoch;
        if epoch < newest { Err(SeamError::Deposed(newest)) } else { Ok(()) }
    }

    /// Fails if no records can be written for the caller.
    pub(super) fn running(&self, rig: &Rig, epoch: SpaceEpoch) -> Result<(), SeamError> {
        self.current(epoch)?;
        let no_power = Suspension::TooFewVoters { left: 0, needed: 1 };
        let suspended = self.faults.suspended.or((!rig.machine.is_on()).then_some(no_power));
        suspended.map_or(Ok(()), |why| Err(SeamError::Suspended(why)))
    }

    /// Applies all operations or none, exactly once. A refused request uses its number up.
    fn carry_out(&mut self, rig: &Rig, request: &Request) -> Result<Arc<SpaceView>, SeamError> {
        let done = self.metadata.record.ownership;
        if request.epoch == done.epoch && request.number <= done.request {
            return Ok(self.metadata.view());
        }
        let mut changed = self.metadata.clone();
        let result = match request.epoch == done.epoch && request.space == super::SPACE {
            true => request.ops.iter().try_for_each(|op| changed.apply(op)),
            false => Err(Refusal::Invalid),
        };
        self.record(&rig.machine, |metadata| {
            if result.is_ok() {
                changed.version = metadata.version;
                *metadata = changed;
            }
            metadata.record.ownership.request = done.request.max(request.number);
        });
        let view = self.metadata.view();
        result.map(|()| Arc::clone(&view)).map_err(|refusal| match refusal {
            Refusal::Invalid => SeamError::Invalid(view),
            Refusal::NoRoom(why) => SeamError::NoRoom(why),
        })
    }
}
