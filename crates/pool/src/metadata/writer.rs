//! The one task that changes the metadata: its requests, and records. Changes of the voters are in `disks.rs` and
//! `removal.rs`, the writer's side of the pool's authority in `owner.rs`. The invariants are the module's (`mod.rs`).

mod disks;
mod owner;
mod removal;
mod scrub;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use disk::DiskError;
use futures_util::future::join_all;
use tokio::sync::mpsc;

use super::encoded::Encoded;
use super::io::DiskIo;
use super::replay::Point;
use super::store::{CommitError, Decide, Done, Opening, Request, Shared, Suspension};
use super::voter::{Voter, VoterWrite};
use crate::authority::{AuthorityValue, Config, InForce, PoolAuthority, Quorum, Revision};
use crate::format::{encode_record, state_size_bound};
use crate::{DiskNumber, Op, State};
pub(super) use removal::AnsweredRemoval;

pub(crate) struct Writer {
    io: DiskIo,
    shared: Arc<Shared>,
    /// The state including every written record; [`Shared::state`] has the acknowledged records only.
    shadow: State,
    /// The point after the last written record.
    point: Point,
    /// The disks that get records: voters, and disks that are about to become voters.
    voters: BTreeMap<DiskNumber, Voter>,
    /// Disks removed by records that are written but not acknowledged.
    removed: Vec<DiskNumber>,
    /// The sets of voters in force since the last acknowledged commit.
    configs: Vec<Config>,
    /// Voters that failed, for the message of the suspension.
    failed: Vec<(DiskNumber, DiskError)>,
    /// Present disks whose metadata could not be written, and which stay because of their data. They cannot be voters
    /// until they join again.
    unfit: BTreeSet<DiskNumber>,
    authority: Arc<dyn PoolAuthority>,
    /// The authority's value and its revision.
    agreed: AuthorityValue,
    revision: Revision,
}

/// Whether a record may be written next, or a checkpoint must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Record,
    Checkpoint,
}

/// The most commits that share a record.
const BATCH: usize = 64;

impl Writer {
    pub(crate) fn new(io: DiskIo, shared: Arc<Shared>, opening: Opening) -> Writer {
        Writer {
            io,
            shared,
            shadow: opening.state,
            point: opening.point,
            voters: opening.voters.into_iter().map(|v| (v.member.number, v)).collect(),
            removed: Vec::new(),
            configs: Vec::new(),
            failed: Vec::new(),
            unfit: BTreeSet::new(),
            authority: opening.authority,
            agreed: opening.agreed,
            revision: opening.revision,
        }
    }

    /// Writes the first record of an epoch, or several if it drops several voters.
    pub(crate) async fn open(&mut self, mut ops: Vec<Op>, needed: usize) -> Result<(), CommitError> {
        self.configs.push((self.shadow.voters.clone(), needed));
        self.publish();
        let mut form = Form::Checkpoint;
        // If a loss is accepted, there are too few voters for intermediate records.
        let steps = if needed < self.shadow.needed_to_open() { Vec::new() } else { self.steps_to(&ops) };
        for voters in steps {
            let opened = ops.iter().position(|op| matches!(op, Op::Opened { .. }));
            let mut step: Vec<Op> = opened.map(|at| ops.remove(at)).into_iter().collect();
            step.push(Op::Voters { voters });
            self.commit_as(step, form).await?;
            form = Form::Record;
        }
        self.commit_as(ops, form).await
    }

    /// The sets of voters between the current one and that of the operations, one for each record (invariant 5).
    fn steps_to(&self, ops: &[Op]) -> Vec<BTreeSet<DiskNumber>> {
        let target = ops.iter().find_map(|op| match op {
            Op::Voters { voters } => Some(voters),
            _ => None,
        });
        let mut voters = self.shadow.voters.clone();
        let gone: Vec<_> = target.map_or(Vec::new(), |t| voters.difference(t).copied().collect());
        let mut steps = Vec::new();
        for disk in gone.iter().skip(1) {
            voters.remove(disk);
            steps.push(voters.clone());
        }
        steps
    }

    /// Serves requests until the last handle is dropped.
    pub(crate) async fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        let mut batch = Vec::new();
        while queue.recv_many(&mut batch, BATCH).await > 0 {
            let (mut commits, mut removals) = (Vec::new(), Vec::new());
            for request in batch.drain(..) {
                // Keeps the order of the requests: at most one of the two lists has entries.
                if !matches!(request, Request::Commit { .. }) {
                    self.commit_batch(std::mem::take(&mut commits)).await;
                }
                if !matches!(request, Request::Remove(_)) {
                    self.remove_from_service(std::mem::take(&mut removals)).await;
                }
                match request {
                    Request::Commit { decide, done } => commits.push((decide, done)),
                    Request::Remove(more) => removals.extend(more),
                    Request::Run(act) => act(&mut self).await,
                }
            }
            self.commit_batch(commits).await;
            self.remove_from_service(removals).await;
            if self.voters.values().any(Voter::is_filling) {
                self.checkpoint().await;
            }
        }
    }

    /// Commits several requests in one record, each with its own result.
    async fn commit_batch(&mut self, commits: Vec<(Decide, Done)>) {
        if commits.is_empty() {
            return;
        }
        let (mut all, mut asked) = (Vec::new(), Vec::new());
        let owned = self.owned().await;
        for (decide, done) in commits {
            let tried = owned.clone().and_then(|()| {
                let ops = decide(&self.shadow);
                self.try_on(&ops).map(|()| ops)
            });
            match tried {
                Ok(ops) => {
                    all.extend(ops);
                    asked.push(done);
                }
                Err(e) => {
                    let _ = done.send(Err(e));
                }
            }
        }
        if asked.is_empty() {
            return;
        }
        let result = self.commit_tried(all, Form::Record).await;
        for done in asked {
            let _ = done.send(result.clone());
        }
    }

    async fn commit(&mut self, ops: Vec<Op>) -> Result<(), CommitError> {
        self.commit_as(ops, Form::Record).await
    }

    async fn commit_as(&mut self, ops: Vec<Op>, form: Form) -> Result<(), CommitError> {
        self.owned().await?;
        self.try_on(&ops)?;
        self.commit_tried(ops, form).await
    }

    /// Writes operations that the shadow already contains. Retries until every remaining voter has all records.
    async fn commit_tried(&mut self, ops: Vec<Op>, form: Form) -> Result<(), CommitError> {
        let failed = self.put(ops, form).await?;
        self.drop_voters(failed).await
    }

    /// Drops failed voters, each with its own record (invariant 5), and retries until every remaining voter has all
    /// records.
    async fn drop_voters(&mut self, failed: Vec<(DiskNumber, DiskError)>) -> Result<(), CommitError> {
        let mut failed = VecDeque::from(failed);
        loop {
            for (disk, error) in &failed {
                if self.voters.remove(disk).is_some() {
                    self.failed.push((*disk, *error));
                }
            }
            let Some((disk, error)) = failed.pop_front() else { break };
            let ops = self.dropping(disk, &error)?;
            self.enough_left()?;
            failed.extend(self.put(ops, Form::Record).await?);
        }
        self.regain().await?;
        self.shared.set_state(self.shadow.clone());
        for disk in self.removed.drain(..) {
            self.shared.remove_member(disk);
        }
        self.configs.clear();
        self.voters.retain(|d, _| self.shadow.voters.contains(d));
        self.publish();
        Ok(())
    }

    /// Writes a checkpoint of the acknowledged state to every voter. Only the next commit waits for this.
    async fn checkpoint(&mut self) {
        if self.shared.tenure.confirm().await.is_err() {
            return;
        }
        self.configs.push(self.config());
        // An empty record, so that failures are handled as for any other record.
        let _ = self.commit_tried(Vec::new(), Form::Checkpoint).await;
    }

    /// Applies operations to the shadow: all or none.
    fn try_on(&mut self, ops: &[Op]) -> Result<(), CommitError> {
        if self.configs.is_empty() {
            self.configs.push(self.config());
        }
        let before = self.shadow.clone();
        self.shadow.apply_all(ops)?;
        let needed = state_size_bound(&self.shadow) as u64;
        if let Some((room, disk)) = self.smallest().filter(|(room, _)| *room < needed) {
            // Operations that do not enlarge it are always accepted.
            if needed > state_size_bound(&self.shared.state.read()) as u64 {
                self.shadow = before;
                return Err(CommitError::Full { disk, room, needed });
            }
        }
        Ok(())
    }

    /// Writes the next record, which the shadow contains, to all disks that get records. Returns the disks that
    /// failed.
    async fn put(&mut self, ops: Vec<Op>, form: Form) -> Result<Vec<(DiskNumber, DiskError)>, CommitError> {
        let (pool, before) = (self.shadow.pool, self.point);
        let body = encode_record(&ops);
        self.point = before.after(&body);
        self.configs.push(self.config());
        self.publish();
        let unclaimed = self.agree().await?;
        self.regain().await?;
        self.removed.extend(ops.iter().filter_map(|op| match op {
            Op::RemoveDisk { disk } => Some(*disk),
            _ => None,
        }));
        let mut state = None;
        let mut puts = Vec::new();
        for voter in self.voters.values_mut().filter(|v| unclaimed.is_none_or(|(d, _)| d != v.member.number))
        {
            let record = match form {
                Form::Record => voter.record(pool, &before, &body),
                Form::Checkpoint => None,
            };
            let put: VoterWrite = record.unwrap_or_else(|| {
                let state = state.get_or_insert_with(|| Encoded::new(&self.shadow));
                voter.checkpoint(pool, &self.point, state)
            });
            puts.push((Arc::clone(&voter.member), put));
        }
        let written = puts.into_iter().map(|(member, put)| {
            let io = self.io.clone();
            async move { put.write(&io, &member).await.err().map(|e| (member.number, e)) }
        });
        Ok(join_all(written).await.into_iter().flatten().chain(unclaimed).collect())
    }

    /// Publishes the sets of voters that an opening may find.
    fn publish(&self) {
        let members = Arc::clone(&self.shared.members.read());
        let now = self.configs.is_empty().then(|| self.config());
        self.authority
            .set_in_force(InForce { members, voters: self.configs.iter().cloned().chain(now).collect() });
    }

    /// The smallest room for the state among the disks that get records, and the disk with it.
    fn smallest(&self) -> Option<(u64, DiskNumber)> {
        self.voters.values().map(|v| (Voter::room(&v.member), v.member.number)).min()
    }

    fn config(&self) -> Config {
        let needed = match self.authority.quorum() {
            Quorum::Voters => self.shadow.quorum_to_continue(),
            Quorum::Register => 1,
        };
        (self.shadow.voters.clone(), needed)
    }

    fn running(&self) -> Result<(), CommitError> {
        self.shared.tenure.over().map_or(Ok(()), |why| Err(why.into()))
    }

    fn suspend(&self, why: Suspension) -> CommitError {
        self.shared.suspend(why.clone());
        why.into()
    }
}
