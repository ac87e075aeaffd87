//! The pool's coordinator: serves the requests of the owners of spaces (`docs/0004-spaces.md`, section B).
//!
//! A [`Pool`] is the [`Coordinator`] of its spaces. A request becomes operations of one record, chosen by the
//! metadata's writer for the state that precedes the record; views are updated when a record is acknowledged.
//!
//! Invariants:
//! 1. The view that a call returns has every record that was acknowledged before; its owner gets the same one.
//! 2. Once owners are asked about a disk whose removal is in progress, no new slab is chosen there.
//! 3. A disk with slabs of spaces is removed by a record that has, for each of these spaces, the owner's answer, or
//!    marks the disk as unaccounted.

mod answers;
mod freed;
mod handover;
mod jobs;
mod joining;
mod lease;
mod owners;
mod views;

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use disk::{Disk, DiskError};
use env::Io;
use futures_util::future::select;
use pool_seam::{
    Coordinator, DiskReport, Finding, JobId, Membership, Owner, OwnerId, Ownership, Progress, Request,
    SeamError, SpaceView, Suspension, Turn, ViewVersion,
};

pub(crate) use jobs::Orders;
pub use lease::PoolLease;
pub(crate) use owners::Owners;
pub use owners::SpaceOpening;
pub(crate) use views::Views;

use crate::metadata::MembershipToEnd;
use crate::state::{Refusal, RequestOutcome, SpaceOp, carry_out};
use crate::{
    Absence, CommitError, DiskNumber, NoPlace, Op, Pool, RowNumber, SpaceId, SpaceRecord, placement,
};
use answers::seam_error;

/// How long a request for slabs, or the pool's export, waits for discards that are in progress.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a space was not created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateSpaceError {
    /// An invalid shape, a name in use, or a pool that accepts no changes.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// There is no room for its log, or all slots of marks are taken.
    #[error(transparent)]
    NoRoom(#[from] NoPlace),
}

impl Pool {
    /// Creates a space. Its log has slabs, and is not written by any owner yet. Only the shape in `record` is used:
    /// the pool sets owner, slot and rows.
    pub async fn create_space(&self, record: SpaceRecord) -> Result<SpaceId, CreateSpaceError> {
        let decide = move |s: &crate::State| {
            let space = SpaceId(s.next_space);
            let planned = s.new_space(record).ok_or(NoPlace::NoSuchRow(space)).and_then(|record| {
                let slabs = placement::log_row(s, &record, |_| true)?;
                let log = SpaceOp::Allocate { row: RowNumber::LOG, first: s.next_generation, slabs };
                Ok([SpaceOp::Create { record: Box::new(record) }, log].map(|op| Op::Space { space, op }))
            });
            match planned {
                Ok(ops) => (ops.to_vec(), Ok(space)),
                Err(why) => (Vec::new(), Err(why)),
            }
        };
        Ok(self.decide(decide).await??)
    }

    /// The current owner of a space.
    pub fn owner(&self, space: SpaceId) -> Option<OwnerId> {
        let Ownership { node, epoch, .. } =
            self.metadata().read(|s| Some(s.spaces.get(&space)?.ownership))?;
        Some(OwnerId { space, node, epoch })
    }

    /// Registers that an owner is opening its space, until the owner is linked or the result is dropped.
    pub fn register_opening(&self, owner: OwnerId) -> SpaceOpening {
        self.metadata().owners().register_opening(owner)
    }

    /// Links an owner: the pool calls it when disks of its space are removed or join, and when its view changes.
    /// Returns `false` if a disk has joined during the opening and may have been rolled back: another owner has to
    /// open the space.
    #[must_use]
    pub fn link(&self, owner: OwnerId, link: Weak<dyn Owner>) -> bool {
        let is_linked = self.metadata().owners().link(owner, link);
        // Sends the changes since the space was opened.
        let view = self.metadata().view(owner.space);
        self.metadata().owners().update(view.into_iter().collect());
        is_linked
    }

    /// The disk with this membership, which it may be about to join with.
    pub(crate) fn member_disk(&self, disk: DiskNumber, of: Membership) -> Option<Arc<dyn Disk>> {
        let is_now = self.metadata().read(|s| s.membership(disk)) == Some(of);
        match self.members().get(disk).filter(|_| is_now) {
            Some(member) => Some(Arc::clone(&member.disk)),
            None => self.metadata().owners().joining(disk, of),
        }
    }

    /// The right to acknowledge, for owners in this process.
    pub fn lease(&self) -> PoolLease {
        PoolLease(Arc::clone(self.metadata().tenure()))
    }

    fn newest_view(&self, owner: OwnerId) -> Result<Arc<SpaceView>, SeamError> {
        let view = self.metadata().view(owner.space).ok_or_else(|| no_space(owner.space))?;
        let newest = view.record.ownership.epoch;
        if owner.epoch < newest { Err(SeamError::Deposed(newest)) } else { Ok(view) }
    }

    /// Carries out a request. If there is no room while freed slabs are being discarded, waits for the discards
    /// first.
    async fn carry_out(&self, request: Request) -> Result<Arc<SpaceView>, SeamError> {
        let (env, discarding) = (&self.metadata().env, &self.metadata().owners().discarding);
        let deadline = env.now() + DISCARD_TIMEOUT;
        loop {
            let may_wait = env.now() < deadline;
            if let Some(view) = self.carry_out_now(request.clone(), may_wait).await? {
                return Ok(view);
            }
            select(pin!(discarding.some_end()), pin!(env.sleep(DISCARD_TIMEOUT))).await;
        }
    }

    /// [`Pool::carry_out`] without waiting. Returns `None` if `may_wait`, and discards in progress may make room.
    async fn carry_out_now(
        &self,
        request: Request,
        may_wait: bool,
    ) -> Result<Option<Arc<SpaceView>>, SeamError> {
        let (space, epoch) = (request.space, request.epoch);
        let (owners, asked) = (Arc::clone(self.metadata().owners()), request.clone());
        let decide = move |s: &crate::State| {
            let mut outcome = carry_out(s, &asked, |disk| !owners.is_leaving(disk));
            let has_no_room =
                matches!(outcome, RequestOutcome::Record { refused: Some(Refusal::NoRoom(_)), .. });
            if may_wait && has_no_room && !owners.discarding.is_empty() {
                return (Vec::new(), None);
            }
            let ops = match &mut outcome {
                RequestOutcome::Record { ops, .. } => std::mem::take(ops),
                _ => Vec::new(),
            };
            (ops, Some(outcome))
        };
        let outcome = match self.decide(decide).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return Ok(None),
            Err(full @ CommitError::Full { .. }) => {
                // The metadata has no room for the operations. The request's number is used nevertheless.
                let nothing = Request { ops: Vec::new(), ..request };
                Box::pin(self.carry_out(nothing)).await?;
                return Err(SeamError::Failed(full.to_string()));
            }
            Err(error) => return Err(seam_error(error)),
        };
        let view = self.metadata().view(space).ok_or_else(|| no_space(space));
        match outcome {
            RequestOutcome::DoneBefore | RequestOutcome::Record { refused: None, .. } => view.map(Some),
            RequestOutcome::Record { refused: Some(Refusal::Invalid), .. } => Err(SeamError::Invalid(view?)),
            RequestOutcome::Record { refused: Some(Refusal::NoRoom(why)), .. } => Err(SeamError::NoRoom(why)),
            RequestOutcome::Deposed(epoch) => Err(SeamError::Deposed(epoch)),
            RequestOutcome::Unknown => {
                Err(SeamError::Failed(format!("virtual disk {} has no owner of epoch {}", space.0, epoch.0)))
            }
        }
    }

    async fn remove_failed(&self, owner: OwnerId, report: DiskReport) -> Result<Arc<SpaceView>, SeamError> {
        self.newest_view(owner)?;
        if let DiskError::Fenced { epoch, .. } = report.error {
            // The disk is healthy: another process owns the pool.
            return Err(SeamError::Suspended(Suspension::TakenOver(epoch.0)));
        }
        // Read before the memberships are compared: if the disk returns in between, this is the member that failed.
        let member = self.members().get(report.disk).cloned();
        if self.metadata().read(|s| s.membership(report.disk)) != Some(report.membership) {
            return self.newest_view(owner);
        }
        let is_late = matches!(report.error, DiskError::Timeout { .. });
        if is_late && self.metadata().owners().is_leaving(report.disk) {
            // The call did not begin, or was abandoned, because the disk's removal is in progress: the disk is not
            // slow.
            self.metadata().owners().removal_ended(report.disk).await;
            let is_member = self.metadata().read(|s| s.membership(report.disk)) == Some(report.membership);
            return if is_member { Err(SeamError::Needed(report.disk)) } else { self.newest_view(owner) };
        }
        let membership = member.map_or(MembershipToEnd::AlreadyEnding, MembershipToEnd::OfMember);
        let reason = if is_late { Absence::Slow } else { report.reason };
        match self.metadata().remove_from_service(report.disk, membership, reason).await {
            Ok(()) => self.newest_view(owner),
            Err(error) => {
                let needed = matches!(error, CommitError::Needed(_));
                // A timeout means only that the disk is slow, or that the call did not begin because of the removal in
                // progress.
                if needed && !matches!(report.error, DiskError::Timeout { .. }) {
                    self.events().fails(report.disk, &report.error);
                }
                Err(seam_error(error))
            }
        }
    }
}

impl Coordinator for Pool {
    fn view(
        &self,
        owner: OwnerId,
        known: Option<ViewVersion>,
    ) -> Io<Result<Option<Arc<SpaceView>>, SeamError>> {
        Io::Done(self.newest_view(owner).map(|view| Some(view).filter(|view| known != Some(view.version))))
    }

    fn commit(&self, request: Request) -> Io<Result<Arc<SpaceView>, SeamError>> {
        let pool = self.clone();
        Io::pending(async move { pool.carry_out(request).await })
    }

    fn disk_failed(&self, owner: OwnerId, report: DiskReport) -> Io<Result<Arc<SpaceView>, SeamError>> {
        let pool = self.clone();
        Io::pending(async move { pool.remove_failed(owner, report).await })
    }

    fn turn(&self, owner: OwnerId, job: JobId, done: Progress) -> Io<Result<Turn, SeamError>> {
        match self.newest_view(owner) {
            Ok(_) => self.next_turn(job, done).map(Ok),
            Err(error) => Io::Done(Err(error)),
        }
    }

    fn report_finding(&self, _: OwnerId, finding: Finding) {
        self.events().add(finding);
    }
}

fn no_space(space: SpaceId) -> SeamError {
    SeamError::Failed(format!("the pool has no virtual disk {}", space.0))
}
