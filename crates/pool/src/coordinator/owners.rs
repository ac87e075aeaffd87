//! The linked owners of spaces, and the questions to them when a disk is removed or joins.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use disk::Disk;
use env::Env;
use futures_util::future::{Either, join_all, select};
use parking_lot::Mutex;
use pool_seam::{Membership, Owner, OwnerId, RejoinState, SpaceEpoch, SpaceView};
use tokio::sync::Notify;

use super::freed::Discarding;
use crate::state::OwnerAnswers;
use crate::{DiskNumber, SpaceId};

/// How long an owner may take to state the stale regions of a disk that is being removed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Default)]
pub(crate) struct Owners {
    linked: Mutex<BTreeMap<SpaceId, LinkedOwner>>,
    leaving: Mutex<BTreeMap<DiskNumber, OpenRounds>>,
    /// Notified when the removal of a disk is complete or cancelled.
    removal_ended: Notify,
    /// The disk that is about to join with a membership, for owners that read its mark.
    joining: Mutex<Option<Joining>>,
    /// Freed slabs that are being discarded.
    pub(super) discarding: Arc<Discarding>,
}

struct LinkedOwner {
    epoch: SpaceEpoch,
    /// The linked owner; `None` while it is opening its space, and cannot be asked yet.
    owner: Option<Weak<dyn Owner>>,
    /// A disk has joined during the opening, perhaps after the owner has read the marks: the owner is not linked.
    is_overtaken: bool,
}

/// The rounds of questions about a disk whose removal is in progress, and the owners that were asked.
#[derive(Default)]
struct OpenRounds {
    count: usize,
    asked: Vec<Arc<dyn Owner>>,
}

struct Joining {
    number: DiskNumber,
    of: Membership,
    disk: Arc<dyn Disk>,
}

/// The opening of a space by an owner. If it is dropped before the owner is linked, the space has no owner.
#[must_use]
pub struct SpaceOpening {
    owners: Arc<Owners>,
    owner: OwnerId,
}

/// A round of questions about a disk whose removal is in progress. While it exists, no new slab is placed on the
/// disk.
pub(crate) struct RemovalRound {
    owners: Arc<Owners>,
    disk: DiskNumber,
    of: Membership,
    pub(crate) answers: OwnerAnswers,
}

impl Owners {
    /// Links an owner that has opened its space. Returns `false` if a disk has joined meanwhile: another owner has to
    /// open it.
    pub(super) fn link(&self, owner: OwnerId, link: Weak<dyn Owner>) -> bool {
        let mut linked = self.linked.lock();
        let present = linked.get(&owner.space);
        if present.is_some_and(|present| present.epoch == owner.epoch && present.is_overtaken) {
            return false;
        }
        if present.is_none_or(|present| present.epoch <= owner.epoch) {
            linked.insert(
                owner.space,
                LinkedOwner { epoch: owner.epoch, owner: Some(link), is_overtaken: false },
            );
        }
        true
    }

    pub(super) fn register_opening(self: &Arc<Owners>, owner: OwnerId) -> SpaceOpening {
        let mut linked = self.linked.lock();
        let is_overtaken = self.joining.lock().is_some();
        let newest = linked.get(&owner.space).map_or(SpaceEpoch::default(), |linked| linked.epoch);
        if owner.epoch >= newest {
            linked.insert(owner.space, LinkedOwner { epoch: owner.epoch, owner: None, is_overtaken });
        }
        SpaceOpening { owners: Arc::clone(self), owner }
    }

    /// Whether the removal of a disk is in progress, so that no new slab may be placed there.
    pub(crate) fn is_leaving(&self, disk: DiskNumber) -> bool {
        self.leaving.lock().contains_key(&disk)
    }

    /// Waits until the removal of the disk is complete or cancelled.
    pub(super) async fn removal_ended(&self, disk: DiskNumber) {
        loop {
            let mut decided = std::pin::pin!(self.removal_ended.notified());
            decided.as_mut().enable();
            if !self.is_leaving(disk) {
                return;
            }
            decided.await;
        }
    }

    /// Sends each owner the new view of its space.
    pub(crate) fn update(&self, views: Vec<Arc<SpaceView>>) {
        for view in views {
            if let Some(owner) = self.of(view.space) {
                owner.update(view);
            }
        }
    }

    /// Asks the owners of these spaces for the regions that may be stale on the disk. An owner that does not reply in
    /// time has no answer in the result.
    pub(crate) async fn ask_about_removal(
        self: &Arc<Owners>,
        env: &Env,
        disk: DiskNumber,
        of: Membership,
        spaces: impl FnOnce() -> Vec<SpaceId>,
    ) -> RemovalRound {
        self.leaving.lock().entry(disk).or_default().count += 1;
        let mut round = RemovalRound { owners: Arc::clone(self), disk, of, answers: OwnerAnswers::new() };
        let owners: Vec<_> =
            spaces().into_iter().filter_map(|space| Some((space, self.of(space)?))).collect();
        if let Some(rounds) = self.leaving.lock().get_mut(&disk) {
            let new =
                owners.iter().filter(|(_, owner)| !rounds.asked.iter().any(|of| Arc::ptr_eq(of, owner)));
            let new: Vec<_> = new.map(|(_, owner)| Arc::clone(owner)).collect();
            rounds.asked.extend(new);
        }
        let answers = owners.into_iter().map(|(space, owner)| async move {
            let answer = std::pin::pin!(async { owner.disk_leaving(disk, of).wait().await.ok() });
            match select(answer, Box::pin(env.sleep(ANSWER_TIMEOUT))).await {
                Either::Left((answer, _)) => Some((space, answer?)),
                Either::Right(_) => None,
            }
        });
        round.answers = join_all(answers).await.into_iter().flatten().collect();
        round
    }

    /// Registers a disk that is about to join, until [`Owners::end_joining`]. One disk joins at a time.
    pub(super) fn begin_joining(&self, number: DiskNumber, of: Membership, disk: &Arc<dyn Disk>) {
        *self.joining.lock() = Some(Joining { number, of, disk: Arc::clone(disk) });
        let mut linked = self.linked.lock();
        linked.values_mut().filter(|of| of.owner.is_none()).for_each(|of| of.is_overtaken = true);
    }

    /// The disk has joined, or was refused.
    pub(super) fn end_joining(&self) {
        *self.joining.lock() = None;
    }

    /// Asks the owners of these spaces for the state of the disk that is about to join. The answer of an owner that
    /// does not reply in time is `None`. Spaces without an owner, or whose owner is still opening them, have no
    /// answer.
    pub(crate) async fn ask_about_joining(
        &self,
        env: &Env,
        disk: DiskNumber,
        of: Membership,
        spaces: Vec<SpaceId>,
    ) -> Vec<(SpaceId, Option<RejoinState>)> {
        let owners = spaces.into_iter().filter_map(|space| Some((space, self.of(space)?)));
        let answers = owners.map(|(space, owner)| async move {
            let answer = std::pin::pin!(async { owner.disk_joining(disk, of).wait().await.ok() });
            match select(answer, Box::pin(env.sleep(ANSWER_TIMEOUT))).await {
                Either::Left((answer, _)) => (space, answer),
                Either::Right(_) => (space, None),
            }
        });
        join_all(answers).await
    }

    /// The disk that is about to join with this membership.
    pub(crate) fn joining(&self, disk: DiskNumber, of: Membership) -> Option<Arc<dyn Disk>> {
        let joining = self.joining.lock();
        let joining = joining.as_ref().filter(|joining| (joining.number, joining.of) == (disk, of))?;
        Some(Arc::clone(&joining.disk))
    }

    /// All linked owners.
    pub(super) fn all(&self) -> Vec<(SpaceId, Arc<dyn Owner>)> {
        let linked = self.linked.lock();
        let of =
            |(space, linked): (&SpaceId, &LinkedOwner)| Some((*space, linked.owner.as_ref()?.upgrade()?));
        linked.iter().filter_map(of).collect()
    }

    pub(super) fn of(&self, space: SpaceId) -> Option<Arc<dyn Owner>> {
        self.linked.lock().get(&space)?.owner.as_ref()?.upgrade()
    }
}

impl Drop for SpaceOpening {
    fn drop(&mut self) {
        let OwnerId { space, epoch, .. } = self.owner;
        let mut linked = self.owners.linked.lock();
        if linked.get(&space).is_some_and(|linked| linked.epoch == epoch && linked.owner.is_none()) {
            linked.remove(&space);
        }
    }
}

impl RemovalRound {
    /// Notifies the owners that the disk stays in service, unless another round is running: their answers must stay
    /// valid until the end of that round.
    pub(crate) fn notify_disk_stays(&self) {
        // Under the lock: a round that begins meanwhile asks the owners afterwards.
        let leaving = self.owners.leaving.lock();
        if let Some(rounds) = leaving.get(&self.disk).filter(|rounds| rounds.count == 1) {
            rounds.asked.iter().for_each(|owner| owner.disk_stays(self.disk, self.of));
        }
    }
}

impl Drop for RemovalRound {
    fn drop(&mut self) {
        let mut leaving = self.owners.leaving.lock();
        if let Some(rounds) = leaving.get_mut(&self.disk) {
            rounds.count -= 1;
            if rounds.count == 0 {
                leaving.remove(&self.disk);
                self.owners.removal_ended.notify_waiters();
            }
        }
    }
}
