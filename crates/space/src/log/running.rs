//! The running log: [`SpaceLog`] is its handle, and one task (`task.rs`) does all its work.
//!
//! Invariants:
//! 1. A call takes effect before it returns; the returned future only waits. So a caller may stop waiting at any point.
//! 2. A caller is answered when the record is durable on all replicas that the coordinator has not removed, and at
//!    least one of them is complete. The caller must then check that the owner's lease holds (rule 4).
//! 3. The task ends when the handle is dropped and all callers are answered, or the ring has no room to answer them, or
//!    when another owner is found. Then all calls and waits fail.

mod open;
mod replica;
mod task;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use arena::Arena;
use disk::DiskError;
use env::{Env, Io, watch};
use futures_util::TryFutureExt;
use futures_util::future::UnwrapOrElse;
use parking_lot::Mutex;
use pool_seam::{DiskNumber, PoolId, SpaceId};
use smallvec::SmallVec;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{Notify, oneshot};

use super::commit::{Core, FlushSet, RecordCapacity};
use super::ring::Ring;
use super::snapshot::{Annex, Content, Parts, TooLarge};
pub use open::{OpenError, Opened, Required};
pub use replica::{Coordination, Deposed, FailureDecision, Replica};
use replica::{ReplicaState, RunningReplica};

/// The environment of a log: its process and its space.
#[derive(Clone)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct LogSettings {
    pub env: Env,
    /// Memory of reads.
    pub arena: Arena,
    pub pool: PoolId,
    pub space: SpaceId,
    pub epoch: u64,
    /// The timeout of a write or read of a replica.
    pub hang: Duration,
    pub coordination: Arc<dyn Coordination>,
    pub source: Arc<dyn EntrySource>,
}

/// The interface of the space for its log: section D, "Pull".
pub trait EntrySource: Send + Sync {
    /// Takes entries for record `sequence`, as many as fit: those that need no flush, and those of units all of whose
    /// disks `set` flushes. The space records that the record has them. The call does not wait, and the log holds no
    /// lock meanwhile.
    fn take(&self, sequence: u64, set: &FlushSet, capacity: &mut RecordCapacity) -> Taken;

    /// Makes the data of a record durable: flushes the disks of the set that have completed, unflushed writes. The call
    /// reports disks that fail, and they are removed when it returns. It returns the failed disks that cannot be
    /// removed because they are needed; callers that wait for them fail. Units that these may have lost are in doubt
    /// when this returns.
    fn flush(&self, set: FlushSet) -> Io<SmallVec<[DiskNumber; 1]>>;
}

/// Entries for a record.
#[derive(Debug, Default)]
pub struct Taken {
    /// The entries and their payload.
    pub content: Content,
    /// Further entries did not fit.
    pub has_rest: bool,
}

/// The progress of a log: section D, "Pull".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// All records up to this sequence are durable, and so is their data.
    pub confirmed: u64,
    /// All records up to this one are declared confirmed in a durable record.
    pub declared: u64,
    /// Half of the ring is used, or a joining replica waits for a checkpoint.
    pub is_checkpoint_due: bool,
    /// Waiting callers need a checkpoint: it makes room for their entries, or the replicas complete.
    pub is_full: bool,
}

/// Why a wait fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// See [`Deposed`].
    #[error(transparent)]
    Deposed(#[from] Deposed),
    /// The record is in the log, but the state of its units on the disk is unknown.
    #[error("disk {} could not be flushed", .0.0)]
    NotFlushed(DiskNumber),
    /// The log was closed, or its worker has ended.
    #[error("the log is closed")]
    Closed,
    /// The ring is full, and no checkpoint is possible any more.
    #[error("the log is full")]
    NoRoom,
    /// Too large for a snapshot, or for the annex; nothing was changed.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Another checkpoint is waiting already.
    #[error("another checkpoint is already waiting")]
    Busy,
    /// The place of a new replica could not be written.
    #[error("the new replica of the log could not be written: {0}")]
    NotFormatted(DiskError),
    /// The new replica was removed again; for a checkpoint: no complete replica has it.
    #[error("the replica of the log failed")]
    ReplicaFailed,
}

/// The future result of a call. Dropping it does not cancel the call.
pub type Wait<T> = UnwrapOrElse<oneshot::Receiver<Result<T, LogError>>, fn(RecvError) -> Result<T, LogError>>;

/// The other end of a [`Wait`]; its caller may have stopped waiting.
type Answer<T> = oneshot::Sender<Result<T, LogError>>;

fn call<T>() -> (Answer<T>, Wait<T>) {
    let (answer, result) = oneshot::channel();
    (answer, result.unwrap_or_else(|_| Err(LogError::Closed)))
}

/// A running log; see the module. Dropping it ends the log after all enqueued work is done.
pub struct SpaceLog {
    shared: Arc<Shared>,
}

struct Shared {
    settings: LogSettings,
    ring: Ring,
    state: Mutex<State>,
    /// Wakes the task.
    wake: Notify,
    /// Ends with the task.
    progress: watch::Receiver<Progress>,
}

struct State {
    core: Core<Answer<()>>,
    annex: Annex,
    replicas: Vec<Arc<RunningReplica>>,
    joins: Vec<Join>,
    checkpoint: Option<Checkpoint>,
    closing: Option<Closing>,
    ended: Option<LogError>,
}

/// A replica that joins when it is formatted.
struct Join {
    live: Arc<RunningReplica>,
    is_formatted: bool,
    done: Answer<()>,
}

/// A checkpoint that has not begun yet.
struct Checkpoint {
    parts: Box<dyn FnOnce((u64, u64)) -> Option<Parts> + Send>,
    done: Answer<()>,
}

/// The end of the log was requested, by `close` or by dropping the handle; the caller of `close` gets the last
/// sequence.
type Closing = Option<Answer<u64>>;

impl SpaceLog {
    /// Completes when all entries that need no flush and were waiting at the call are durable.
    pub fn durable(&self) -> Wait<()> {
        self.shared.wait(&mut self.shared.state.lock(), None)
    }

    /// Completes when all entries of units whose disks are in the set, and which were waiting at the call, are
    /// confirmed: they and their data are durable. Fails with [`LogError::NotFlushed`] if that is unknown for a disk of
    /// the set.
    pub fn flush(&self, set: FlushSet) -> Wait<()> {
        self.shared.wait(&mut self.shared.state.lock(), Some(set))
    }

    /// The progress of the log; the channel closes when the log has ended. When [`SpaceLog::flush`] completes, the
    /// progress includes its record.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.shared.progress.clone()
    }

    /// The current progress.
    pub fn reached(&self) -> Progress {
        self.shared.progress.get()
    }

    /// Waits until all records up to this sequence are declared confirmed in a durable record: begins one when they are
    /// confirmed.
    pub async fn wait_declared(&self, sequence: u64) -> Result<(), LogError> {
        while self.until(|progress| progress.confirmed >= sequence).await?.declared < sequence {
            self.durable().await?;
        }
        Ok(())
    }

    /// Puts a record into the annex, replacing the key's former one; completes when that is durable (rule 19). Fails
    /// with [`LogError::TooLarge`] without a change.
    pub fn annex_put(&self, key: u64, value: Vec<u8>) -> Wait<()> {
        self.annex(key, Some(value.into()))
    }

    /// Removes a key's record from the annex; completes when that is durable.
    pub fn annex_remove(&self, key: u64) -> Wait<()> {
        self.annex(key, None)
    }

    /// The records of the annex, including those that are not durable yet.
    pub fn annex_all(&self) -> Vec<(u64, Arc<[u8]>)> {
        let state = self.shared.state.lock();
        state.annex.records().iter().map(|(key, value)| (*key, Arc::clone(value))).collect()
    }

    /// Appends a snapshot, and moves the tail to it: steps 5 and 6 of a checkpoint. `parts` is called once, between
    /// two records, without a lock of the log. Its arguments are the confirmed sequence and the declared one;
    /// [`Progress`] has lower ones while no replica is complete. Its result must have at least the entries of all
    /// earlier records. The log adds annex records.
    ///
    /// Fails with [`LogError::TooLarge`], or with [`LogError::Busy`] if `parts` returns `None` or another checkpoint is
    /// waiting, before anything is appended.
    pub fn checkpoint_if(
        &self,
        parts: impl FnOnce((u64, u64)) -> Option<Parts> + Send + 'static,
    ) -> Wait<()> {
        let (done, wait) = call();
        let mut state = self.shared.state.lock();
        match state.ended.or(state.checkpoint.is_some().then_some(LogError::Busy)) {
            Some(error) => _ = done.send(Err(error)),
            None => state.checkpoint = Some(Checkpoint { parts: Box::new(parts), done }),
        }
        drop(state);
        self.shared.wake.notify_one();
        wait
    }

    /// Adds a replica (rule 17): zeroes its ring, writes all further records to it, and makes a checkpoint due.
    /// Completes when the replica is complete, after the next checkpoint.
    pub fn join(&self, replica: Replica) -> Wait<()> {
        let (done, wait) = call();
        let shared = Arc::clone(&self.shared);
        let live = Arc::new(RunningReplica::new(&shared.settings, &replica, 0, 0, false));
        let mut state = self.shared.state.lock();
        if let Some(error) = state.ended {
            _ = done.send(Err(error));
            return wait;
        }
        state.joins.push(Join { live: Arc::clone(&live), is_formatted: false, done });
        drop(state);
        self.shared.settings.env.spawn(async move {
            let formatted = live.format(&shared.settings, &replica, shared.ring).await;
            let mut state = shared.state.lock();
            let Some(at) = state.joins.iter().position(|join| Arc::ptr_eq(&join.live, &live)) else { return };
            match formatted {
                Ok(()) => state.joins[at].is_formatted = true,
                Err(error) => _ = state.joins.remove(at).done.send(Err(error)),
            }
            drop(state);
            shared.wake.notify_one();
        });
        wait
    }

    /// The coordinator is removing a replica's disk: no I/O to it begins any more, and records that need it wait until
    /// the removal is durable ([`SpaceLog::replica_removed`]) or was refused ([`SpaceLog::replica_stays`]).
    pub fn replica_leaving(&self, allocation: u32) {
        self.set_replica_state(allocation, ReplicaState::Leaving);
    }

    /// The removal is durable: calls no longer wait for the disk.
    pub fn replica_removed(&self, allocation: u32) {
        self.set_replica_state(allocation, ReplicaState::Removed);
    }

    /// The disk is not removed.
    pub fn replica_stays(&self, allocation: u32) {
        self.set_replica_state(allocation, ReplicaState::Active);
    }

    /// Waits until no write is in flight to a replica whose disk is being removed.
    pub async fn idle(&self, allocation: u32) {
        let all = self.shared.state.lock().replicas.clone();
        for live in all.iter().filter(|live| live.id.allocation == allocation) {
            live.is_idle().await;
        }
    }

    /// How many payload units fit a snapshot besides its entries.
    pub fn carries(&self) -> usize {
        super::snapshot::share(self.shared.ring) / crate::log::BLOCK / 2
    }

    /// Whether the log's task has ended, with or without an error.
    pub fn has_ended(&self) -> bool {
        self.shared.state.lock().ended.is_some()
    }

    /// Completes when a checkpoint is due; the log may be dropped meanwhile.
    pub fn checkpoint_due(&self) -> impl Future<Output = Result<(), LogError>> + Send + 'static {
        let mut progress = self.progress();
        async move {
            let due = progress.wait_for(|progress| progress.is_checkpoint_due).await;
            due.map(drop).map_err(|_| LogError::Closed)
        }
    }

    /// Completes when waiting callers need a checkpoint ([`Progress::is_full`]), or the log ends.
    pub async fn full(&self) {
        _ = self.progress().wait_for(|progress| progress.is_full).await;
    }

    /// Completes when no entries need room.
    pub async fn has_room(&self) -> Result<(), LogError> {
        self.until(|progress| !progress.is_full).await?;
        self.shared.state.lock().ended.map_or(Ok(()), Err)
    }

    /// Ends the log when all callers are answered, and the last confirmation is in a durable record. Returns the
    /// sequence of the last record: with the epoch it is the log state for the metadata.
    pub fn close(&self) -> Wait<u64> {
        let (done, wait) = call();
        self.shared.close(Some(done));
        wait
    }

    async fn until(&self, is_so: impl FnMut(&Progress) -> bool) -> Result<Progress, LogError> {
        let mut progress = self.progress();
        let found = progress.wait_for(is_so).await;
        found.map_err(|_| self.shared.state.lock().ended.unwrap_or(LogError::Closed))
    }

    fn annex(&self, key: u64, value: Option<Arc<[u8]>>) -> Wait<()> {
        let mut state = self.shared.state.lock();
        match state.annex.change(self.shared.ring, key, value) {
            Ok(()) => self.shared.wait(&mut state, None),
            Err(error) => {
                let (done, wait) = call();
                _ = done.send(Err(error.into()));
                wait
            }
        }
    }

    /// A removed replica never returns: its disk joins as a new one.
    fn set_replica_state(&self, allocation: u32, new_state: ReplicaState) {
        let state = self.shared.state.lock();
        let joining = state.joins.iter().map(|join| &join.live);
        for live in state.replicas.iter().chain(joining).filter(|live| live.id.allocation == allocation) {
            live.state.send_if_modified(|now| {
                let changes = *now != ReplicaState::Removed && *now != new_state;
                if changes {
                    *now = new_state;
                }
                changes
            });
        }
        drop(state);
        self.shared.wake.notify_one();
    }
}

impl Drop for SpaceLog {
    fn drop(&mut self) {
        self.shared.close(None);
    }
}

impl Shared {
    fn wait(&self, state: &mut State, flush: Option<FlushSet>) -> Wait<()> {
        let (done, wait) = call();
        match state.ended {
            Some(error) => _ = done.send(Err(error)),
            None => state.core.wait(done, flush),
        }
        self.wake.notify_one();
        wait
    }

    /// Only the first call's channel is notified of the end.
    fn close(&self, done: Closing) {
        let mut state = self.state.lock();
        if state.closing.is_none() {
            match state.ended {
                Some(error) => done.into_iter().for_each(|done| _ = done.send(Err(error))),
                None => state.closing = Some(done),
            }
        }
        state.core.finish();
        drop(state);
        self.wake.notify_one();
    }
}

impl State {
    /// Whether a complete replica exists.
    fn counts(&self) -> bool {
        self.replicas.iter().any(|live| live.counts())
    }

    fn is_checkpoint_due(&self) -> bool {
        let (used, blocks) = self.core.used();
        used > blocks / 2 || self.replicas.iter().any(|live| !live.counts() && !live.is_removed())
    }
}
