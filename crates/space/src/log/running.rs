//! The log that runs: [`SpaceLog`] is its handle, and one task (`task.rs`) does all its work.
//!
//! Invariants:
//! 1. Every call enqueues all that it owns before it returns; what it returns only waits. So a caller that stops
//!    waiting, at any point, changes nothing.
//! 2. An answer is given when the record is durable on all replicas that the coordinator does not know as left out,
//!    and at least one of them counts. Whether the owner's lease holds is the caller's to check then (rule 4).
//! 3. The task ends when the handle is dropped and all is done, or when another owner is found. Then every call
//!    fails, and so does every wait.

mod open;
mod replica;
mod task;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arena::{Arena, Sg};
use env::{Env, Io};
use parking_lot::Mutex;
use pool_seam::{DiskNumber, PoolId, SpaceId};
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use super::commit::{Appended, Batch, Class, Core, FlushSet};
use super::entry::{ANNEX_BYTES_MAX, Change, Entry};
use super::ring::{Point, Ring};
use super::snapshot::{Content, Kept, Parts, TooLarge};
pub use open::{OpenError, Opened, Required};
pub use replica::{Coordination, Deposed, Replica, Verdict};
use replica::{Live, Standing, Writer};

/// What a log needs of its process and its space.
#[derive(Clone)]
pub struct LogSettings {
    /// Time, chance and tasks.
    pub env: Env,
    /// Memory of reads.
    pub arena: Arena,
    /// The pool.
    pub pool: PoolId,
    /// The space.
    pub space: SpaceId,
    /// The owner's epoch of the space.
    pub epoch: u64,
    /// A write or read of a replica that takes longer has failed.
    pub hang: Duration,
    /// The coordinator.
    pub coordination: Arc<dyn Coordination>,
    /// The space's disks.
    pub disks: Arc<dyn DirtyDisks>,
}

/// The space's disks, as stage 2 of a commit knows them.
pub trait DirtyDisks: Send + Sync {
    /// Makes the data of record `sequence` durable: flushes the disks of the set that have completed, unflushed writes.
    /// Disks that fail are reported by this call, and removed when it returns.
    fn flush(&self, sequence: u64, set: FlushSet) -> Io<Flushed>;
}

/// The result of a flush.
#[derive(Debug, Default)]
pub struct Flushed {
    /// Disks that could not be flushed and are needed: commits on them fail with their name.
    pub failed: SmallVec<[DiskNumber; 1]>,
    /// `doubt` entries for all that these disks may have lost.
    pub doubt: Vec<Entry>,
}

/// Entries to append, at most an eighth of the ring with their payload.
#[derive(Debug)]
pub struct Append {
    /// The entries and their payload.
    pub content: Content,
    /// What is waited for.
    pub class: Class,
}

/// Entries that are not appended, given back.
#[derive(Debug)]
pub struct Refused {
    /// The entries.
    pub append: Append,
    /// `None` if too many wait already: a quarter of the ring.
    pub error: Option<LogError>,
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
    /// The space put too much into a snapshot.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Another checkpoint waits already.
    #[error("another checkpoint waits already")]
    Busy,
    /// The new replica could not be written, or left again.
    #[error("the new replica of the log failed")]
    ReplicaFailed,
}

/// Why a record is not put into the annex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnexError {
    /// All records would be too large.
    #[error("the annex is full: {0}")]
    Full(TooLarge),
    /// The value has more than [`ANNEX_BYTES_MAX`] bytes.
    #[error("{0} bytes are more than a record of the annex may have")]
    TooLong(usize),
    /// Too many entries wait; try again.
    #[error("too many entries wait for the log")]
    Busy,
    /// The log has ended.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// A checkpoint that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpointed {
    /// The new tail: the snapshot's first record.
    pub tail: Point,
}

/// How full a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Blocks of records.
    pub used: u64,
    /// Blocks of the ring.
    pub blocks: u64,
    /// Half of the ring is used, or a replica waits to count: a checkpoint is due. A commit that is a part of it must
    /// not be waited for without end: if three quarters are used, only the checkpoint makes room.
    pub is_checkpoint_due: bool,
}

/// The result of a call, to wait for. Dropping it changes nothing.
#[must_use = "the result is not known before"]
#[derive(Debug)]
pub struct Wait<T>(oneshot::Receiver<Result<T, LogError>>);

/// The other end of a [`Wait`].
#[derive(Debug)]
struct Answer<T>(oneshot::Sender<Result<T, LogError>>);

/// A running log; see the module. Dropping it ends the log when all that was enqueued is done.
pub struct SpaceLog {
    shared: Arc<Shared>,
}

struct Shared {
    writer: Writer,
    ring: Ring,
    disks: Arc<dyn DirtyDisks>,
    state: Mutex<State>,
    /// The task has something to do.
    wake: Notify,
    /// [`Usage::is_checkpoint_due`] may have changed.
    due: Notify,
}

struct State {
    core: Core<Content, Waiter>,
    kept: Kept,
    replicas: Vec<Arc<Live>>,
    joins: VecDeque<(Replica, Answer<()>)>,
    checkpoint: Option<Checkpoint>,
    closing: Option<Closing>,
    ended: Option<LogError>,
}

/// A checkpoint that was not begun yet.
struct Checkpoint {
    parts: Box<dyn FnOnce() -> Parts + Send>,
    done: Answer<Checkpointed>,
}

/// The handle is gone; the receiver gets the last sequence.
type Closing = Option<Answer<u64>>;

/// Receives the result of an append; `None` for what the log appends by itself.
type Waiter = Option<Answer<Appended>>;

impl SpaceLog {
    /// Appends entries; resolves when their record is durable or confirmed, as their class says.
    ///
    /// # Errors
    /// The entries, if too many wait or the log has ended. The wait fails as [`LogError`] says.
    ///
    /// # Panics
    /// If the entries are more than an eighth of the ring, or the payload is not theirs.
    pub fn append(&self, append: Append) -> Result<Wait<Appended>, Refused> {
        let mut state = self.shared.state.lock();
        self.shared.append(&mut state, append)
    }

    /// The most that one [`Append`] may have is what [`Core::takes`] says; this is in blocks.
    pub fn append_max(&self) -> u64 {
        self.shared.ring.record_max()
    }

    /// Puts a record into the annex, in place of the key's former one; resolves when that is durable (rule 19).
    ///
    /// # Errors
    /// [`AnnexError`]; then nothing is changed.
    pub fn annex_put(&self, key: u64, value: Vec<u8>) -> Result<Wait<Appended>, AnnexError> {
        if value.len() > ANNEX_BYTES_MAX {
            return Err(AnnexError::TooLong(value.len()));
        }
        self.annex(Change::AnnexPut { key, value })
    }

    /// Removes a key's record from the annex; resolves when that is durable.
    ///
    /// # Errors
    /// [`AnnexError`]; then nothing is changed.
    pub fn annex_remove(&self, key: u64) -> Result<Wait<Appended>, AnnexError> {
        self.annex(Change::AnnexRemove { key })
    }

    /// The records of the annex, those included whose durability is still waited for.
    pub fn annex_all(&self) -> Vec<(u64, Arc<[u8]>)> {
        let state = self.shared.state.lock();
        state.kept.annex().iter().map(|(key, value)| (*key, Arc::clone(value))).collect()
    }

    /// Appends a snapshot, and moves the tail to it: steps 5 and 6 of a checkpoint. `parts` is called once, between two
    /// records, without a lock of the log: what it returns has at least the entries of all records before, and may have
    /// enqueued ones. The log adds annex records and disk marks.
    ///
    /// The wait fails with [`LogError::TooLarge`] or [`LogError::Busy`] before anything is appended.
    pub fn checkpoint(&self, parts: impl FnOnce() -> Parts + Send + 'static) -> Wait<Checkpointed> {
        let (done, wait) = Wait::new();
        let mut state = self.shared.state.lock();
        match state.ended.or(state.checkpoint.is_some().then_some(LogError::Busy)) {
            Some(error) => done.give(Err(error)),
            None => state.checkpoint = Some(Checkpoint { parts: Box::new(parts), done }),
        }
        drop(state);
        self.shared.wake.notify_one();
        wait
    }

    /// Adds a replica (rule 17): makes its ring zeros, writes all records to it from now on, and a checkpoint is due.
    /// Resolves when it counts, after the next checkpoint.
    pub fn join(&self, replica: Replica) -> Wait<()> {
        let (done, wait) = Wait::new();
        let shared = Arc::clone(&self.shared);
        self.shared.writer.env.spawn(async move {
            let formatted = replica.format(&shared.writer, shared.ring).await;
            let mut state = shared.state.lock();
            match (state.ended, formatted) {
                (Some(error), _) => done.give(Err(error)),
                (None, Err(_)) => done.give(Err(LogError::ReplicaFailed)),
                (None, Ok(())) => state.joins.push_back((replica, done)),
            }
            drop(state);
            shared.wake.notify_one();
        });
        wait
    }

    /// The coordinator removes a replica's disk: no I/O to it begins any more, and records that need one wait until the
    /// replica has [`left`](SpaceLog::left), or [`stays`](SpaceLog::stays).
    pub fn leaving(&self, index: u8) {
        self.stand(index, Standing::Leaving);
    }

    /// The removal is durable: waits for the disk end.
    pub fn left(&self, index: u8) {
        self.stand(index, Standing::Left);
    }

    /// The disk is not removed after all.
    pub fn stays(&self, index: u8) {
        self.stand(index, Standing::In);
    }

    /// How full the log is.
    pub fn usage(&self) -> Usage {
        self.shared.state.lock().usage()
    }

    /// Resolves when a checkpoint is due.
    pub async fn checkpoint_due(&self) {
        loop {
            let mut due = std::pin::pin!(self.shared.due.notified());
            due.as_mut().enable();
            if self.usage().is_checkpoint_due {
                return;
            }
            due.await;
        }
    }

    /// Ends the log when all that was enqueued is confirmed and a durable record says so. Resolves to the sequence of
    /// the last record: with the epoch it is the log state for the metadata.
    pub fn close(self) -> Wait<u64> {
        let (done, wait) = Wait::new();
        self.shared.close(Some(done));
        wait
    }

    fn annex(&self, change: Change) -> Result<Wait<Appended>, AnnexError> {
        let entry = Entry::from(change);
        let mut state = self.shared.state.lock();
        state.kept.admits(self.shared.ring, &entry).map_err(AnnexError::Full)?;
        let content = Content { entries: vec![entry], payload: Sg::new() };
        let append = Append { content, class: Class::Early };
        self.shared
            .append(&mut state, append)
            .map_err(|refused| refused.error.map_or(AnnexError::Busy, AnnexError::Log))
    }

    /// A replica that has left does not return: its disk joins as a new one.
    fn stand(&self, index: u8, standing: Standing) {
        let state = self.shared.state.lock();
        for live in state.replicas.iter().filter(|live| live.id.index == index) {
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
    fn append(&self, state: &mut State, append: Append) -> Result<Wait<Appended>, Refused> {
        if state.ended.is_some() {
            return Err(Refused { append, error: state.ended });
        }
        let Append { content, class } = append;
        let size = content.size();
        debug_assert_eq!(content.entries.iter().flat_map(Entry::payload).count(), size.units);
        if !state.core.has_room(&class, size) {
            return Err(Refused { append: Append { content, class }, error: None });
        }
        content.entries.iter().for_each(|entry| state.kept.apply(entry));
        let (done, wait) = Wait::new();
        state.core.enqueue(Batch { class, size, content, waiter: Some(done) });
        self.wake.notify_one();
        Ok(wait)
    }

    /// The first call says who learns of the end.
    fn close(&self, done: Closing) {
        let mut state = self.state.lock();
        if state.closing.is_none() {
            match state.ended {
                Some(error) => done.into_iter().for_each(|done| done.give(Err(error))),
                None => state.closing = Some(done),
            }
        }
        state.core.finish();
        drop(state);
        self.wake.notify_one();
    }
}

impl State {
    fn usage(&self) -> Usage {
        let (used, blocks) = self.core.used();
        let joins = self.replicas.iter().any(|live| !live.counts() && !live.has_left());
        Usage { used, blocks, is_checkpoint_due: used > blocks / 2 || joins }
    }
}

impl<T> Wait<T> {
    fn new() -> (Answer<T>, Wait<T>) {
        let (answer, wait) = oneshot::channel();
        (Answer(answer), Wait(wait))
    }
}

impl<T> Answer<T> {
    /// Gives the result to a caller that may have stopped waiting.
    fn give(self, result: Result<T, LogError>) {
        drop(self.0.send(result).err());
    }
}

impl<T> Future for Wait<T> {
    type Output = Result<T, LogError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|result| result.unwrap_or(Err(LogError::Closed)))
    }
}
