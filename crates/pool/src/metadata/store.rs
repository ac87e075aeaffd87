//! The handle on the metadata, for the rest of the pool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::DiskError;
use env::{Env, watch};
use futures_util::future::{BoxFuture, join_all};
use parking_lot::RwLock;
use pool_seam::{Membership, SpaceView};
use tokio::sync::{mpsc, oneshot};

use super::io::DiskIo;
use super::members::{Member, Members, Removal};
use super::replay::Point;
use super::voter::Voter;
use super::writer::{AnsweredRemoval, Writer};
use crate::authority::{AuthorityValue, PoolAuthority, Revision, Tenure};
use crate::coordinator::{Owners, Views};
use crate::format::Claimant;
use crate::metadata::MembershipToEnd;
use crate::supervision::Supervision;
use crate::{Absence, DiskNumber, InvalidOp, Op, SpaceId, State};

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum CommitError {
    /// The caller's error: the state does not allow it. Nothing has changed.
    #[error(transparent)]
    Invalid(#[from] InvalidOp),
    /// The metadata would not fit into the checkpoints of the smallest voter: sizes in bytes. Nothing has changed.
    #[error(
        "the pool's metadata is full: it needs {needed} bytes, and disk {} has {room}; use larger disks or larger slabs",
        .disk.0
    )]
    Full { disk: DiskNumber, room: u64, needed: u64 },
    /// The caller's error: without the disk too few disks with metadata would remain, and the pool would stop, or the
    /// only copy of some data would be lost. Nothing has changed.
    #[error("without disk {}, too few disks with metadata would remain, or the only copy of some data would be lost; add a disk first", .0.0)]
    Needed(DiskNumber),
    /// The pool is open for reading only. Nothing has changed.
    #[error("the pool is open for reading only")]
    ReadOnly,
    /// The pool accepts no changes any more. Whether this change took effect is known only after the pool is opened
    /// again.
    #[error("the pool is suspended: {0}")]
    Suspended(#[from] Suspension),
}

/// Why a pool accepts no changes any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum Suspension {
    /// Too many of the disks with its metadata failed.
    #[error(
        "{left} of its disks with metadata remain and {needed} are needed; {}; it opens again when enough of them are connected",
        failures(.failed)
    )]
    TooFewVoters { left: usize, needed: usize, failed: Vec<(DiskNumber, DiskError)> },
    /// Another process has claimed the pool by force.
    #[error("process {} on the machine {} has taken the pool by force", .by.process, .by.host)]
    Claimed { by: Claimant },
    /// Another process has taken the pool, and fences its disks against this one.
    #[error(
        "another process has taken the pool by force (epoch {epoch}), and the disks refuse writes of this one"
    )]
    Fenced { epoch: u64 },
    /// This process could not confirm that it owns the pool, so its lease has expired; the pool resumes by itself.
    /// `failed`: the disks that failed.
    #[error(
        "its disks do not confirm that this process still owns the pool{}; the pool resumes when they do",
        if .failed.is_empty() { String::new() } else { format!(": {}", failures(.failed)) }
    )]
    NoLease { failed: Vec<(DiskNumber, DiskError)> },
    /// The removal of a failed disk could not be recorded.
    #[error("the failure of a disk could not be recorded: {0}")]
    Unaccountable(InvalidOp),
    /// The pool has been exported.
    #[error("the pool has been exported")]
    Exported,
    /// The pool was suspended, and its waiting calls have failed: see [`crate::Pool::abandon`].
    #[error("the pool was closed while it was suspended")]
    Abandoned,
    /// The writer task has ended.
    #[error("the task that writes its metadata has ended")]
    Ended,
}

fn failures(failed: &[(DiskNumber, DiskError)]) -> String {
    let each = failed.iter().map(|(d, e)| format!("disk {}: {e}", d.0));
    each.collect::<Vec<_>>().join("; ")
}

/// Shared by the handle and the writer.
pub(crate) struct Shared {
    pub(crate) state: RwLock<State>,
    pub(crate) members: RwLock<Arc<Members>>,
    pub(crate) tenure: Arc<Tenure>,
    /// Counts changes of the state and of the members; changed while these are locked.
    version: AtomicU64,
    pub(crate) owners: Arc<Owners>,
    supervision: Arc<Supervision>,
    views: Views,
}

/// See the module. The writer ends with the last handle.
#[derive(Clone)]
pub(crate) struct Metadata {
    pub(crate) env: Env,
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
}

/// Chooses the operations of a record for the state that precedes it.
pub(crate) type Decide = Box<dyn FnOnce(&State) -> Vec<Op> + Send>;

pub(crate) type Done = oneshot::Sender<Result<(), CommitError>>;

pub(crate) type WriterTask = Box<dyn for<'a> FnOnce(&'a mut Writer) -> BoxFuture<'a, ()> + Send>;

pub(crate) enum Request {
    /// Operations to commit. Several commits share a record.
    Commit { decide: Decide, done: Done },
    /// Disks to remove from service. Those of several requests share a record, too.
    Remove(Vec<(AnsweredRemoval, Done)>),
    /// Any other work, between two records.
    Run(WriterTask),
}

/// The input of an opening: the state is chosen, and the claim is durable on the voters.
pub(crate) struct Opening {
    pub(crate) state: State,
    /// The first point of the new epoch: with the newest sequence, and chain 0.
    pub(crate) point: Point,
    pub(crate) ops: Vec<Op>,
    pub(crate) voters: Vec<Voter>,
    /// How many of the state's voters must be among `voters`.
    pub(crate) needed: usize,
    pub(crate) members: Members,
    pub(crate) authority: Arc<dyn PoolAuthority>,
    pub(crate) revision: Revision,
    pub(crate) agreed: AuthorityValue,
}

/// The most requests that wait for the writer.
const QUEUE: usize = 256;

impl Metadata {
    /// Makes the first record of a new epoch durable, as a checkpoint on every voter, and starts the writer.
    pub(crate) async fn open(io: DiskIo, opening: Opening) -> Result<Metadata, CommitError> {
        let me = (opening.point.epoch, opening.point.incarnation);
        let tenure = Tenure::new(&io.env, Arc::clone(&opening.authority), me);
        let supervision = Supervision::new(&io.env, tenure.epoch(), io.deadlines);
        let shared = Shared::new(opening.state.clone(), opening.members.clone(), tenure, supervision);
        let (requests, queue) = mpsc::channel(QUEUE);
        let (ops, needed) = (opening.ops.clone(), opening.needed);
        let mut writer = Writer::new(io.clone(), Arc::clone(&shared), opening);
        writer.open(ops, needed).await?;
        io.env.spawn(writer.run(queue));
        Ok(Metadata { env: io.env, shared, requests })
    }

    /// Reads the state. `f` must be short and must not wait: commits wait for it.
    pub(crate) fn read<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&self.shared.state.read())
    }

    /// Increases with each change of the state or of the members, before the change is visible to callers.
    pub(crate) fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    /// The disks in service at this moment.
    pub(crate) fn members(&self) -> Arc<Members> {
        Arc::clone(&self.shared.members.read())
    }

    /// Changes whenever a disk is removed or joins, or the pool is suspended.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.tenure.changed.subscribe()
    }

    /// Why nothing can be changed any more.
    pub(crate) fn suspended(&self) -> Option<Suspension> {
        self.shared.tenure.suspended()
    }

    /// The right to write and to acknowledge.
    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        &self.shared.tenure
    }

    /// Commits `ops`, all or none. Durable on return; the commit continues if the future is dropped.
    pub(crate) async fn commit(&self, ops: Vec<Op>) -> Result<(), CommitError> {
        self.decide(move |_| (ops, ())).await
    }

    /// [`Metadata::commit`] with operations that `decide` chooses for the state that precedes the record. Also
    /// returns the second result of `decide`.
    pub(crate) async fn decide<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&State) -> (Vec<Op>, T) + Send + 'static,
    ) -> Result<T, CommitError> {
        let (chosen, choice) = oneshot::channel();
        let decide = move |s: &State| {
            let (ops, choice) = decide(s);
            let _ = chosen.send(choice); // the caller may have been dropped
            ops
        };
        self.ask(|done| Request::Commit { decide: Box::new(decide), done }).await?;
        choice.await.map_err(|_| Suspension::Ended.into())
    }

    /// The newest view of a space with an owner.
    pub(crate) fn view(&self, space: SpaceId) -> Option<Arc<SpaceView>> {
        self.shared.views.get(space, || {
            let state = self.shared.state.read();
            (state.clone(), self.version())
        })
    }

    /// The owners of spaces.
    pub(crate) fn owners(&self) -> &Arc<Owners> {
        &self.shared.owners
    }

    /// The disks as owners use them.
    pub(crate) fn supervision(&self) -> &Arc<Supervision> {
        &self.shared.supervision
    }

    /// Removes a disk from service, and marks the regions stale that the owners of spaces state. Does nothing if the
    /// disk is absent already, or has another membership.
    pub(crate) async fn remove_from_service(
        &self,
        disk: DiskNumber,
        membership: MembershipToEnd,
        reason: Absence,
    ) -> Result<(), CommitError> {
        let mut left = self.remove_all_from_service(vec![Removal { disk, membership, reason }]).await;
        left.remove(0)
    }

    /// [`Metadata::remove_from_service`] for several disks, such as those of a node that does not respond. They share a
    /// record, as far as they may be absent together. Returns the result of each.
    pub(crate) async fn remove_all_from_service(
        &self,
        removals: Vec<Removal>,
    ) -> Vec<Result<(), CommitError>> {
        let (mut leaving, mut has_ended) = (Vec::new(), Vec::new());
        for removal in removals {
            let of = self.read(|s| s.membership(removal.disk).filter(|_| s.has_rows(removal.disk)));
            // Checked after the membership was read: it may be that of a disk that has returned.
            has_ended.push(removal.membership.has_ended(self.members().get(removal.disk)));
            if has_ended.last() == Some(&false) {
                leaving.push((removal, of));
            }
        }
        let mut left = Vec::new();
        if !leaving.is_empty() {
            // The owners that were asked must be notified of the result, even if the caller stops waiting.
            let metadata = self.clone();
            left = self.env.run(async move { metadata.remove_after_asking_owners(leaving).await }).await;
        }
        let mut left = left.into_iter();
        has_ended.iter().map(|ended| if *ended { None } else { left.next() }.unwrap_or(Ok(()))).collect()
    }

    /// Asks the owners of spaces first, about each disk with a membership.
    async fn remove_after_asking_owners(
        &self,
        leaving: Vec<(Removal, Option<Membership>)>,
    ) -> Vec<Result<(), CommitError>> {
        let rounds = leaving.iter().map(async |(removal, of)| {
            let (disk, of) = (removal.disk, (*of)?);
            let spaces = || self.read(|s| s.spaces_on(disk).collect());
            Some((disk, of, self.shared.owners.ask_about_removal(&self.env, disk, of, spaces).await))
        });
        let mut rounds = join_all(rounds).await;
        let (mut removals, mut results) = (Vec::new(), Vec::new());
        for ((removal, _), round) in leaving.into_iter().zip(&mut rounds) {
            let answers = round.as_mut().map(|(_, of, round)| (*of, std::mem::take(&mut round.answers)));
            let (done, result) = oneshot::channel();
            removals.push((AnsweredRemoval { removal, answers }, done));
            results.push(result);
        }
        let ended = || CommitError::Suspended(self.shared.tenure.over().unwrap_or(Suspension::Ended));
        // If the writer has ended, the request and `done` are dropped.
        let _ = self.requests.send(Request::Remove(removals)).await;
        let left = join_all(results).await.into_iter().map(|left| left.unwrap_or_else(|_| Err(ended())));
        let left = left.collect();
        for (disk, of, round) in rounds.into_iter().flatten() {
            if self.read(|s| s.membership(disk)) == Some(of) {
                round.notify_disk_stays();
            }
        }
        left
    }

    /// Puts a disk into service, with the record `ops`.
    pub(crate) async fn join(&self, member: Arc<Member>, ops: Vec<Op>) -> Result<(), CommitError> {
        self.change(move |writer| Box::pin(writer.join(member, ops))).await
    }

    /// Removes a disk from the pool for good.
    pub(crate) async fn remove(&self, disk: DiskNumber) -> Result<(), CommitError> {
        self.change(move |writer| Box::pin(writer.remove(disk))).await
    }

    /// Adds missing voters.
    pub(crate) async fn rechoose(&self) -> Result<(), CommitError> {
        self.change(|writer| Box::pin(writer.rechoose())).await
    }

    /// Writes a checkpoint, releases the claim, and accepts no more changes.
    pub(crate) async fn export(&self) -> Result<(), CommitError> {
        self.change(|writer| Box::pin(writer.export())).await
    }

    /// Reads back the metadata on the voters, and rewrites damaged places; returns their number by disk.
    pub(crate) async fn scrub(&self) -> Result<BTreeMap<DiskNumber, u64>, CommitError> {
        self.act(|writer| Box::pin(writer.scrub())).await
    }

    /// Runs a change in the writer, if this process still owns the pool.
    async fn change(
        &self,
        change: impl for<'a> FnOnce(&'a mut Writer) -> BoxFuture<'a, Result<(), CommitError>> + Send + 'static,
    ) -> Result<(), CommitError> {
        self.act(|writer| {
            Box::pin(async move {
                writer.owned().await?;
                change(writer).await
            })
        })
        .await
    }

    async fn act<T: Send + 'static>(
        &self,
        act: impl for<'a> FnOnce(&'a mut Writer) -> BoxFuture<'a, Result<T, CommitError>> + Send + 'static,
    ) -> Result<T, CommitError> {
        self.ask(|done| {
            Request::Run(Box::new(|writer| {
                Box::pin(async move {
                    let _ = done.send(act(writer).await); // the caller may have been dropped
                })
            }))
        })
        .await
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, CommitError>>) -> Request,
    ) -> Result<T, CommitError> {
        let (done, answer) = oneshot::channel();
        let ended = || CommitError::Suspended(self.shared.tenure.over().unwrap_or(Suspension::Ended));
        self.requests.send(request(done)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

impl Shared {
    fn new(
        state: State,
        members: Members,
        tenure: Arc<Tenure>,
        supervision: Arc<Supervision>,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            state: RwLock::new(state),
            members: RwLock::new(Arc::new(members)),
            version: AtomicU64::new(0),
            owners: Arc::default(),
            supervision,
            views: Views::new(tenure.epoch()),
            tenure,
        })
    }

    /// Publishes an acknowledged state.
    pub(crate) fn set_state(&self, new: State) {
        let shown = new.clone();
        let (old, version) = {
            let mut state = self.state.write();
            let version = self.version.fetch_add(1, Ordering::AcqRel) + 1;
            (std::mem::replace(&mut *state, new), version)
        };
        // Dropped without the lock, because this may free a large state.
        drop(old);
        self.owners.update(self.views.follow(&shown, version));
        // First, so that owners stop waiting.
        self.supervision
            .keep(|disk, of| shown.membership(disk) == Some(of) || self.owners.joining(disk, of).is_some());
    }

    pub(crate) fn remove_member(&self, disk: DiskNumber) {
        self.change_members(|m| m.without(disk));
    }

    pub(crate) fn add_member(&self, member: Arc<Member>) {
        self.change_members(|m| m.with(member));
    }

    pub(crate) fn suspend(&self, why: Suspension) {
        self.tenure.suspend(why);
    }

    fn change_members(&self, f: impl FnOnce(&Members) -> Members) {
        {
            let mut members = self.members.write();
            *members = Arc::new(f(&members));
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        self.tell_changed();
    }

    /// Wakes the tasks that wait for a change ([`Metadata::changes`]).
    pub(crate) fn tell_changed(&self) {
        self.tenure.changed.send_modify(|n| *n += 1);
    }
}
