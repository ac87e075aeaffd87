//! The jobs of a pool: their order, pauses, and rate.
//!
//! Invariants:
//! 1. A job waits while it is paused, and while a more urgent one ([`Kind`]) runs; a job that is paused or
//!    waits for something else delays no other.
//! 2. There is one job of a kind and a subject at a time.
//! 3. A pause applies to a kind and a subject: a later job for the same is paused too. It exists until the board is
//!    dropped, or a job of this kind and subject is stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use env::{Env, watch};
use parking_lot::Mutex;

use super::JobId;
use super::Progress;
use super::kinds::{DelayReason, JobState, Kind, NoSuchJob, Subject};
use super::pacer::{Answer, Client, Load, Pacer, Pacing};

/// See the module.
pub struct Board {
    env: Env,
    /// Whether there is a job. If there is none, client latencies are not recorded, so that clients pay nothing for
    /// it.
    watching: AtomicBool,
    inner: Mutex<Inner>,
    changes: watch::Sender<u64>,
}

struct Inner {
    jobs: BTreeMap<JobId, Entry>,
    paused: BTreeSet<(Kind, Subject)>,
    stopping: bool,
    pacer: Pacer,
}

struct Entry {
    kind: Kind,
    subject: Subject,
    began: Instant,
    progress: Arc<Progress>,
    /// The job waits for an external event.
    idle: bool,
}

/// A running job; it ends on drop.
pub struct Job {
    board: Arc<Board>,
    id: JobId,
    progress: Arc<Progress>,
}

/// A client's I/O; it ends on drop.
pub struct ClientIo {
    board: Arc<Board>,
    client: Client,
}

/// Why a piece may not begin, and when to ask again: at `until`, or when the board changes.
pub(super) struct Waiting {
    pub(super) why: DelayReason,
    pub(super) until: Option<Instant>,
}

/// Waits for the next change of the board.
pub(super) struct Changed(watch::Receiver<u64>);

/// Ids of jobs, unique over all pools of the process.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Board {
    /// Creates an empty board.
    pub fn new(env: Env, pacing: Pacing) -> Arc<Board> {
        let inner = Inner {
            jobs: BTreeMap::new(),
            paused: BTreeSet::new(),
            stopping: false,
            pacer: Pacer::new(pacing),
        };
        let (inner, changes) = (Mutex::new(inner), watch::Sender::new(0));
        Arc::new(Board { env, watching: AtomicBool::new(false), inner, changes })
    }

    /// Changes the pacing.
    pub fn set_pacing(&self, pacing: Pacing) {
        self.inner.lock().pacer.set_pacing(pacing);
        self.wake();
    }

    /// Lists a job, which delays no other job before it requests its first piece. Returns `None` if this kind and
    /// subject already has a job, or all jobs are stopping.
    pub fn begin(self: &Arc<Board>, kind: Kind, subject: Subject) -> Option<Job> {
        let mut inner = self.inner.lock();
        let is_there = inner.jobs.values().any(|j| (j.kind, j.subject) == (kind, subject));
        if is_there || inner.stopping {
            return None;
        }
        let id = JobId(NEXT.fetch_add(1, Ordering::Relaxed));
        let progress = Arc::new(Progress::of(self, id, kind));
        let (began, job) = (self.env.now(), Arc::clone(&progress));
        if inner.jobs.is_empty() {
            inner.pacer.restart();
            self.watching.store(true, Ordering::Relaxed);
        }
        inner.jobs.insert(id, Entry { kind, subject, began, progress, idle: false });
        drop(inner);
        self.wake();
        Some(Job { board: Arc::clone(self), id, progress: job })
    }

    /// All jobs, by number.
    pub fn list(&self) -> Vec<JobState> {
        let now = self.env.now();
        let inner = self.inner.lock();
        let state = |(id, job): (&JobId, &Entry)| {
            let (done, total) = job.progress.bytes();
            let is_paused = inner.paused.contains(&(job.kind, job.subject));
            let rate = job.progress.rate(now);
            let left = total.saturating_sub(done);
            let goes = rate > 0 && !is_paused && !job.idle;
            JobState {
                id: *id,
                kind: job.kind,
                subject: job.subject,
                elapsed: now.saturating_duration_since(job.began),
                done,
                total,
                rate,
                eta: goes.then(|| Duration::from_secs(left.div_ceil(rate.max(1)))),
                why: if is_paused { Some(DelayReason::Paused) } else { job.progress.why() },
            }
        };
        inner.jobs.iter().map(state).collect()
    }

    /// Pauses a job, and later jobs for the same subject, until it is resumed. Outstanding pieces complete.
    pub fn pause(&self, id: JobId) -> Result<(), NoSuchJob> {
        self.with(id, |inner, what| {
            inner.paused.insert(what);
        })
    }

    /// Resumes a job.
    pub fn resume(&self, id: JobId) -> Result<(), NoSuchJob> {
        self.with(id, |inner, what| {
            inner.paused.remove(&what);
        })
    }

    /// Ends a job after its outstanding pieces, and ends the pause of its kind and subject. Completed work is kept.
    pub fn stop(&self, id: JobId) -> Result<(), NoSuchJob> {
        let progress = self.inner.lock().jobs.get(&id).map(|j| Arc::clone(&j.progress));
        // Stopped before the pause ends, so that the job cannot continue.
        progress.ok_or(NoSuchJob(id))?.stop();
        self.with(id, |inner, what| {
            inner.paused.remove(&what);
        })
        // The job may have ended meanwhile.
        .or(Ok(()))
    }

    /// Stops all jobs, accepts no more, and returns when the last has ended.
    pub async fn stop_all(&self) {
        let mut changes = self.changes.subscribe();
        let all: Vec<_> = {
            let mut inner = self.inner.lock();
            inner.stopping = true;
            inner.jobs.values().map(|j| Arc::clone(&j.progress)).collect()
        };
        all.iter().for_each(|p| p.stop());
        while !self.inner.lock().jobs.is_empty() {
            let _ = changes.changed().await;
        }
    }

    /// The clients' latencies in the last interval.
    pub fn load(&self) -> Load {
        self.inner.lock().pacer.load()
    }

    /// Records that a client's I/O begins. `timed`: its latency counts (that of a flush does not, because it depends
    /// on the disk alone). Returns `None` if no job runs: the I/O is not recorded.
    pub fn client(self: &Arc<Board>, timed: bool) -> Option<ClientIo> {
        self.watching.load(Ordering::Relaxed).then(|| {
            let client = self.inner.lock().pacer.client_begins(timed, self.env.now());
            ClientIo { board: Arc::clone(self), client }
        })
    }

    pub(super) fn now(&self) -> Instant {
        self.env.now()
    }

    pub(super) fn wake(&self) {
        self.changes.send_modify(|n| *n += 1);
    }

    pub(super) fn changed(&self) -> Changed {
        Changed(self.changes.subscribe())
    }

    /// Returns how many of a job's next pieces of `bytes` each may begin, up to `most`; these count as begun. Also
    /// returns the reason why the job is throttled, if it is.
    pub(super) fn ask(
        &self,
        id: JobId,
        kind: Kind,
        bytes: u64,
        most: u8,
    ) -> Result<(u8, Option<DelayReason>), Waiting> {
        let mut inner = self.inner.lock();
        if let Some(why) = inner.blocked(id, kind) {
            return Err(Waiting { why, until: None });
        }
        let now = self.env.now();
        let answer = inner.pacer.ask(bytes, now);
        let Load { p99, held_back } = inner.pacer.load();
        let paced = DelayReason::Paced { p99, target: inner.pacer.pacing().target };
        if let Answer::Wait(until) = answer {
            return Err(Waiting { why: paced, until: Some(until) });
        }
        let more = (1..most).take_while(|_| inner.pacer.ask(bytes, now) == Answer::Go).count();
        Ok((1 + more as u8, held_back.then_some(paced)))
    }

    /// Records that `count` pieces have ended; together they had `less` bytes fewer than announced.
    pub(super) fn pieces_end(&self, count: u8, less: u64) {
        if count > 0 {
            self.inner.lock().pacer.pieces_end(count.into(), less);
            self.wake();
        }
    }

    /// The number of pieces of all jobs that may be outstanding.
    pub(super) fn at_once(&self) -> usize {
        self.inner.lock().pacer.pacing().at_once
    }

    pub(super) fn idle(&self, id: JobId, idle: bool) {
        if let Some(job) = self.inner.lock().jobs.get_mut(&id) {
            job.idle = idle;
        }
        self.wake();
    }

    fn with(&self, id: JobId, f: impl FnOnce(&mut Inner, (Kind, Subject))) -> Result<(), NoSuchJob> {
        let mut inner = self.inner.lock();
        let what = inner.jobs.get(&id).map(|j| (j.kind, j.subject)).ok_or(NoSuchJob(id))?;
        f(&mut inner, what);
        drop(inner);
        self.wake();
        Ok(())
    }
}

impl Inner {
    /// Why a job may not run at all now.
    fn blocked(&self, id: JobId, kind: Kind) -> Option<DelayReason> {
        let is_paused = |j: &Entry| self.paused.contains(&(j.kind, j.subject));
        if self.jobs.get(&id).is_some_and(is_paused) {
            return Some(DelayReason::Paused);
        }
        let works = |j: &&Entry| !j.idle && !is_paused(j) && j.kind.urgency() < kind.urgency();
        let mut before = self.jobs.iter().filter(|(_, j)| works(j));
        before.next().map(|(id, j)| DelayReason::AfterJob(j.kind, *id))
    }
}

impl Changed {
    /// Waits for a change, or until this time.
    pub(super) async fn or_at(mut self, board: &Board, until: Option<Instant>) {
        let changed = std::pin::pin!(self.0.changed());
        match until {
            None => drop(changed.await),
            Some(until) => {
                let sleep = std::pin::pin!(board.env.sleep_until(until));
                futures_util::future::select(changed, sleep).await;
            }
        }
    }
}

impl Job {
    /// Its number.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The context of a job.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }
}

impl std::ops::Deref for Job {
    type Target = Progress;
    fn deref(&self) -> &Progress {
        &self.progress
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let gone = {
            let mut inner = self.board.inner.lock();
            let gone = inner.jobs.remove(&self.id);
            self.board.watching.store(!inner.jobs.is_empty(), Ordering::Relaxed);
            gone
        };
        drop(gone);
        self.board.wake();
    }
}

impl Drop for ClientIo {
    fn drop(&mut self) {
        self.board.inner.lock().pacer.client_ends(self.client, self.board.env.now());
    }
}

#[cfg(test)]
mod tests;
