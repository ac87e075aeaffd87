//! The log that runs: [`SpaceLog`] is its handle, and one task (`task.rs`) does all its work.
//!
//! Invariants:
//! 1. A call has its effect before it returns; what it returns only waits. So a caller that stops waiting, at any
//!    point, changes nothing.
//! 2. An answer is given when the record is durable on all replicas that the coordinator does not know as left out,
//!    and at least one of them counts. Whether the owner's lease holds is the caller's to check then (rule 4).
//! 3. The task ends when the handle is dropped and all callers have their answer, when the ring has no room for that
//!    then, or when another owner is found. Then every call fails, and so does every wait.

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

use super::commit::{Core, FlushSet, Room};
use super::ring::Ring;
use super::snapshot::{Annex, Content, Parts, TooLarge};
pub use open::{OpenError, Opened, Required};
pub use replica::{Coordination, Deposed, Replica, Verdict};
use replica::{Live, Standing};

/// What a log needs of its process and its space.
#[derive(Clone)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct LogSettings {
    pub env: Env,
    /// Memory of reads.
    pub arena: Arena,
    pub pool: PoolId,
    pub space: SpaceId,
    pub epoch: u64,
    /// A write or read of a replica that takes longer has failed.
    pub hang: Duration,
    pub coordination: Arc<dyn Coordination>,
    pub source: Arc<dyn Source>,
}

/// The space, as its log knows it: section D, "Pull".
pub trait Source: Send + Sync {
    /// Entries for record `sequence`, as many as have room: those that need no flush, and those of units all of whose
    /// disks `set` flushes. The space notes that the record has them. The call does not wait, and the log holds no
    /// lock meanwhile.
    fn take(&self, sequence: u64, set: &FlushSet, room: &mut Room) -> Taken;

    /// Makes the data of a record durable: flushes the disks of the set that have completed, unflushed writes.
    /// Disks that fail are reported by this call, and removed when it returns. Those of them that are needed are the
    /// result: their callers fail with the disk's name. What they may have lost is in doubt when this returns.
    fn flush(&self, set: FlushSet) -> Io<SmallVec<[DiskNumber; 1]>>;
}

/// Entries for a record.
#[derive(Debug, Default)]
pub struct Taken {
    /// The entries and their payload.
    pub content: Content,
    /// Others had no room.
    pub has_rest: bool,
}

/// How far a log is: section D, "Pull".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// All records up to this sequence are durable, and so is their data.
    pub confirmed: u64,
    /// A durable record says so of all up to this one.
    pub said: u64,
    /// Half of the ring is used, or a replica waits to count.
    pub is_checkpoint_due: bool,
    /// What has to be written waits for room, which only a checkpoint makes.
    pub is_full: bool,
}

/// Why a wait fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// See [`Deposed`].
    #[error(transparent)]
    Deposed(#[from] Deposed),
    /// The record is in the log, but what the disk has of its units is unknown.
    #[error("disk {} could not be flushed", .0.0)]
    NotFlushed(DiskNumber),
    /// The log was closed, or its worker has ended.
    #[error("the log is closed")]
    Closed,
    /// The ring is full, and no checkpoint can come any more.
    #[error("the log has no room")]
    NoRoom,
    /// Too much for a snapshot, or for the annex; nothing is changed.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Another checkpoint waits already.
    #[error("another checkpoint waits already")]
    Busy,
    /// The place of a new replica could not be written.
    #[error("the new replica of the log could not be written: {0}")]
    NotFormatted(DiskError),
    /// The new replica left again; of a checkpoint: no replica that counts has it.
    #[error("the replica of the log failed")]
    ReplicaFailed,
}

/// The result of a call, to wait for. Dropping it changes nothing.
pub type Wait<T> = UnwrapOrElse<oneshot::Receiver<Result<T, LogError>>, fn(RecvError) -> Result<T, LogError>>;

/// The other end of a [`Wait`]; its caller may have stopped waiting.
type Answer<T> = oneshot::Sender<Result<T, LogError>>;

fn call<T>() -> (Answer<T>, Wait<T>) {
    let (answer, result) = oneshot::channel();
    (answer, result.unwrap_or_else(|_| Err(LogError::Closed)))
}

/// A running log; see the module. Dropping it ends the log when all that was enqueued is done.
pub struct SpaceLog {
    shared: Arc<Shared>,
}

struct Shared {
    settings: LogSettings,
    ring: Ring,
    state: Mutex<State>,
    /// The task has something to do.
    wake: Notify,
    /// Ends with the task.
    progress: watch::Receiver<Progress>,
}

struct State {
    core: Core<Answer<()>>,
    annex: Annex,
    replicas: Vec<Arc<Live>>,
    joins: Vec<Join>,
    checkpoint: Option<Checkpoint>,
    closing: Option<Closing>,
    ended: Option<LogError>,
}

/// A replica that joins when it is formatted.
struct Join {
    live: Arc<Live>,
    is_formatted: bool,
    done: Answer<()>,
}

/// A checkpoint that was not begun yet.
struct Checkpoint {
    parts: Box<dyn FnOnce() -> Option<Parts> + Send>,
    done: Answer<()>,
}

/// The handle is gone; the receiver gets the last sequence.
type Closing = Option<Answer<u64>>;

impl SpaceLog {
    /// Resolves when all entries that need no flush, and waited when this was called, are durable.
    pub fn durable(&self) -> Wait<()> {
        self.shared.wait(&mut self.shared.state.lock(), None)
    }

    /// Resolves when all entries of units whose disks are in the set, and which waited when this was called, are
    /// confirmed: durable, and their data too. Fails with [`LogError::NotFlushed`] if that is unknown of a disk of the
    /// set.
    pub fn flush(&self, set: FlushSet) -> Wait<()> {
        self.shared.wait(&mut self.shared.state.lock(), Some(set))
    }

    /// How far the log is; the channel closes when the log has ended. A caller of [`SpaceLog::flush`] finds its record
    /// confirmed there.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.shared.progress.clone()
    }

    /// The same now.
    pub fn reached(&self) -> Progress {
        self.shared.progress.get()
    }

    /// Waits until a durable record says that all up to this sequence are confirmed: begins one when they are.
    pub async fn said(&self, sequence: u64) -> Result<(), LogError> {
        while self.until(|progress| progress.confirmed >= sequence).await?.said < sequence {
            self.durable().await?;
        }
        Ok(())
    }

    /// Puts a record into the annex, in place of the key's former one; resolves when that is durable (rule 19). Fails
    /// with [`LogError::TooLarge`] before anything is changed.
    pub fn annex_put(&self, key: u64, value: Vec<u8>) -> Wait<()> {
        self.annex(key, Some(value.into()))
    }

    /// Removes a key's record from the annex; resolves when that is durable.
    pub fn annex_remove(&self, key: u64) -> Wait<()> {
        self.annex(key, None)
    }

    /// The records of the annex, those included whose durability is still waited for.
    pub fn annex_all(&self) -> Vec<(u64, Arc<[u8]>)> {
        let state = self.shared.state.lock();
        state.annex.records().iter().map(|(key, value)| (*key, Arc::clone(value))).collect()
    }

    /// Appends a snapshot, and moves the tail to it: steps 5 and 6 of a checkpoint. `parts` is called once, between two
    /// records, without a lock of the log: what it returns has at least the entries of all records before. The log adds
    /// annex records.
    ///
    /// The wait fails with [`LogError::TooLarge`], or with [`LogError::Busy`] if `parts` has none or another checkpoint
    /// waits, before anything is appended.
    pub fn checkpoint_if(&self, parts: impl FnOnce() -> Option<Parts> + Send + 'static) -> Wait<()> {
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

    /// Adds a replica (rule 17): makes its ring zeros, writes all records to it from now on, and a checkpoint is due.
    /// Resolves when it counts, after the next checkpoint.
    pub fn join(&self, replica: Replica) -> Wait<()> {
        let (done, wait) = call();
        let shared = Arc::clone(&self.shared);
        let live = Arc::new(Live::new(&shared.settings, &replica, 0, 0, false));
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

    /// The coordinator removes a replica's disk: no I/O to it begins any more, and records that need one wait until the
    /// replica has [`left`](SpaceLog::left), or [`stays`](SpaceLog::stays).
    pub fn leaving(&self, allocation: u32) {
        self.stand(allocation, Standing::Leaving);
    }

    /// The removal is durable: waits for the disk end.
    pub fn left(&self, allocation: u32) {
        self.stand(allocation, Standing::Left);
    }

    /// The disk is not removed after all.
    pub fn stays(&self, allocation: u32) {
        self.stand(allocation, Standing::In);
    }

    /// Waits until no write is on its way to a replica that is leaving.
    pub async fn idle(&self, allocation: u32) {
        let all = self.shared.state.lock().replicas.clone();
        for live in all.iter().filter(|live| live.id.allocation == allocation) {
            live.is_idle().await;
        }
    }

    /// How many units a snapshot has room for beside their entries.
    pub fn carries(&self) -> usize {
        super::snapshot::share(self.shared.ring) / crate::log::BLOCK / 2
    }

    /// Whether its worker has ended, well or not.
    pub fn has_ended(&self) -> bool {
        self.shared.state.lock().ended.is_some()
    }

    /// Resolves when a checkpoint is due; the log may be dropped meanwhile.
    pub fn checkpoint_due(&self) -> impl Future<Output = Result<(), LogError>> + Send + 'static {
        let mut progress = self.progress();
        async move {
            let due = progress.wait_for(|progress| progress.is_checkpoint_due).await;
            due.map(drop).map_err(|_| LogError::Closed)
        }
    }

    /// Resolves when what has to be written waits for room, or the log ends.
    pub async fn full(&self) {
        _ = self.progress().wait_for(|progress| progress.is_full).await;
    }

    /// Resolves when nothing waits for room.
    pub async fn has_room(&self) -> Result<(), LogError> {
        self.until(|progress| !progress.is_full).await?;
        self.shared.state.lock().ended.map_or(Ok(()), Err)
    }

    /// Ends the log when all callers have their answer, and a durable record says what is confirmed. Resolves to the sequence of
    /// the last record: with the epoch it is the log state for the metadata.
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

    /// A replica that has left does not return: its disk joins as a new one.
    fn stand(&self, allocation: u32, standing: Standing) {
        let state = self.shared.state.lock();
        let joining = state.joins.iter().map(|join| &join.live);
        for live in state.replicas.iter().chain(joining).filter(|live| live.id.allocation == allocation) {
            live.standing.send_if_modified(|now| {
                let changes = *now != Standing::Left && *now != standing;
                if changes {
                    *now = standing;
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

    /// The first call says who learns of the end.
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
    /// Whether a replica counts.
    fn counts(&self) -> bool {
        self.replicas.iter().any(|live| live.counts())
    }

    fn is_checkpoint_due(&self) -> bool {
        let (used, blocks) = self.core.used();
        used > blocks / 2 || self.replicas.iter().any(|live| !live.counts() && !live.has_left())
    }
}
