//! The I/O of a disk: outstanding I/Os, recent latencies, and an end to the wait for a removed disk.
//!
//! Parts: [`watch`] compares disks with their peers and acts on the result.
//! [`followed`] is the wait for one I/O. [`told`] starts data I/Os that complete by callback, and [`landing`]
//! is the wait for such a read; [`hedger`] notifies the waiter of a slow read, so that it can read another
//! copy.
//!
//! Invariants:
//! 1. An I/O is outstanding until its driver completes it, whether or not a caller still waits: its buffers
//!    belong to the driver until then.
//! 2. I/O to a member disk is never abandoned before the disk's removal is durable ([`Pulse::abandon`]): a
//!    late write reaches a disk that is not in service. The disk returns only when no write is outstanding on
//!    it any more ([`Pulse::is_writing`]).

mod followed;
mod hedger;
mod landing;
#[cfg(test)]
mod tests;
mod told;
pub(crate) mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use disk::{DiskError, DiskInfo, Op, Place};
use env::{Ctx, Env, Io, Moment};
use parking_lot::Mutex;

pub(crate) use followed::Followed;
use followed::{Ticket, UnderWay, Waiter};
pub(crate) use landing::{Came, Waits};
use watch::Watch;

use crate::authority::Tenure;
use crate::supervision::hedge::{HEDGE_LEAST, HEDGE_MOST, KNOWN, TRIAL, hedge_after};
use crate::supervision::latencies::Latencies;
use crate::supervision::standing::{self, Look};

/// Differences below this are no reason to prefer a disk.
const ALIKE: Duration = Duration::from_micros(20);

/// Reads after which the 99th percentile is looked at again.
const REVIEW: u64 = 64;

/// See the module. One for each membership of a disk.
pub(crate) struct Pulse {
    env: Env,
    watch: Arc<Watch>,
    tenure: Arc<Tenure>,
    began: Moment,
    in_flight: AtomicU32,
    /// Reads that ended, in all.
    reads: AtomicU64,
    /// Reads of users.
    user_reads: AtomicU64,
    /// Reads that were late, so that another copy was read.
    hedged: AtomicU64,
    /// Their latency lately, in nanoseconds: a moving average of 16.
    typical: AtomicU64,
    /// When the last one began or ended, in nanoseconds since `began`.
    last_read: AtomicU64,
    /// After how long a read is hedged, in nanoseconds.
    hedge: AtomicU64,
    slow: AtomicBool,
    abandoned: AtomicBool,
    state: Mutex<State>,
}

struct State {
    latencies: Latencies,
    under_way: Vec<Option<UnderWay>>,
    free: Vec<u32>,
    writing: u32,
}

impl State {
    fn oldest(&self) -> Option<Moment> {
        self.under_way.iter().flatten().filter(|u| u.waiter.is_some()).map(|u| u.began).min()
    }

    fn add(&mut self, mut new: UnderWay) -> u32 {
        self.writing += u32::from(new.at.op != Op::Read);
        new.short = self.under_way.len() - self.free.len() < standing::SHORT;
        match self.free.pop() {
            Some(slot) => {
                self.under_way[slot as usize] = Some(new);
                slot
            }
            None => {
                self.under_way.push(Some(new));
                self.under_way.len() as u32 - 1
            }
        }
    }

    fn remove(&mut self, slot: u32) -> Option<UnderWay> {
        let old = self.under_way[slot as usize].take()?;
        self.writing -= u32::from(old.at.op != Op::Read);
        self.free.push(slot);
        Some(old)
    }
}

impl Pulse {
    pub(crate) fn new(env: &Env, watch: &Arc<Watch>, tenure: &Arc<Tenure>) -> Arc<Pulse> {
        Arc::new(Pulse {
            env: env.clone(),
            watch: Arc::clone(watch),
            tenure: Arc::clone(tenure),
            began: env.moment(),
            in_flight: AtomicU32::new(0),
            reads: AtomicU64::new(0),
            user_reads: AtomicU64::new(0),
            hedged: AtomicU64::new(0),
            typical: AtomicU64::new(0),
            last_read: AtomicU64::new(0),
            hedge: AtomicU64::new(HEDGE_MOST.as_nanos() as u64),
            slow: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            state: Mutex::new(State {
                latencies: Latencies::new(),
                under_way: Vec::new(),
                free: Vec::new(),
                writing: 0,
            }),
        })
    }

    /// Starts an I/O and follows it. On a disk that was removed the I/O is not started, and the wait ends at
    /// once.
    pub(crate) fn follow<T: Send + 'static>(
        self: &Arc<Pulse>,
        at: Place,
        start: impl FnOnce() -> Io<T>,
    ) -> Followed<T> {
        self.follow_any(self.env.moment(), at, false, start)
    }

    /// The same for data, with the caller's reading of the clock. Counts in [`Pulse::in_flight`] until the
    /// driver completes it, whether or not a caller waits.
    pub(crate) fn follow_data<T: Send + 'static>(
        self: &Arc<Pulse>,
        now: Moment,
        at: Place,
        start: impl FnOnce() -> Io<T>,
    ) -> Followed<T> {
        self.follow_any(now, at, true, start)
    }

    fn follow_any<T: Send + 'static>(
        self: &Arc<Pulse>,
        began: Moment,
        at: Place,
        counted: bool,
        start: impl FnOnce() -> Io<T>,
    ) -> Followed<T> {
        if self.abandoned.load(Ordering::Acquire) {
            return Followed::of_none();
        }
        let slot = self.begin(UnderWay { began, at, counted, short: false, waiter: None, due: None });
        Followed::new(start(), Ticket::new(self, slot))
    }

    /// Waits until this process owns the pool, so that a write may begin.
    ///
    /// # Errors
    /// [`DiskError::Fenced`]: it does not.
    pub(crate) async fn may_write(&self, c: &Ctx, at: Place) -> Result<(), DiskError> {
        if self.tenure.holds() {
            return Ok(());
        }
        Box::pin(self.tenure.hold()).await.map_err(|_| DiskError::Fenced { at, had: c.epoch, epoch: c.epoch })
    }

    pub(crate) fn now(&self) -> Moment {
        self.env.moment()
    }

    /// Registers an outstanding I/O; returns its slot.
    fn begin(self: &Arc<Pulse>, new: UnderWay) -> u32 {
        if new.at.op == Op::Read {
            // Also at its start: a disk with a hung read must not look as if it had not been read for long.
            self.note_read(new.began);
        }
        let mut state = self.state.lock();
        if new.counted {
            // Changed under the lock only.
            self.in_flight.store(self.in_flight() + 1, Ordering::Relaxed);
        }
        let slot = state.add(new);
        drop(state);
        // After it is there to be seen: the task looks for it once more when it ends.
        self.watch.wake(&self.env);
        slot
    }

    fn remove(&self, state: &mut State, slot: u32) -> Option<UnderWay> {
        let old = state.remove(slot)?;
        if old.counted {
            self.in_flight.store(self.in_flight() - 1, Ordering::Relaxed);
        }
        Some(old)
    }

    /// An I/O has completed; returns its waiter.
    fn done(&self, slot: u32) -> Option<Waiter> {
        let now = self.env.moment();
        let mut state = self.state.lock();
        let old = self.remove(&mut state, slot)?;
        self.ended(&mut state, &old, now.ns_since(old.began), now);
        old.waiter
    }

    /// An I/O that took this many nanoseconds has ended.
    fn ended(&self, state: &mut State, io: &UnderWay, took: u64, now: Moment) {
        state.latencies.add(io.at.op, took, io.short, now);
        match io.at.op {
            Op::Read => {
                let reads = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
                let before = self.typical.load(Ordering::Relaxed);
                let typical = if reads == 1 { took } else { before - before / 16 + took / 16 };
                self.typical.store(typical, Ordering::Relaxed);
                self.note_read(now);
                if reads.is_multiple_of(REVIEW) {
                    let after = hedge_after(&state.latencies.reads).as_nanos() as u64;
                    self.hedge.store(after, Ordering::Relaxed);
                }
            }
            Op::Write | Op::Flush | Op::Discard | Op::Fence | Op::Check => {}
        }
    }

    /// The number of outstanding data I/Os, including abandoned ones, which are in the queue all the same.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether no I/O is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.under_way.len() == state.free.len()
    }

    /// Whether I/O that changes the disk is outstanding.
    pub(crate) fn is_writing(&self) -> bool {
        self.state.lock().writing > 0
    }

    /// A user's read is outstanding.
    pub(crate) fn count_user_read(&self) {
        self.user_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads of users, in all.
    pub(crate) fn user_reads(&self) -> u64 {
        self.user_reads.load(Ordering::Relaxed)
    }

    /// A read was late, and another copy is read.
    pub(crate) fn count_hedged(&self) {
        self.hedged.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads that were late, so that another copy was read.
    pub(crate) fn hedged(&self) -> u64 {
        self.hedged.load(Ordering::Relaxed)
    }

    /// The present duration of a read, as far as the last reads show; `None` if they are too few. It halves
    /// with each second without a read, so that no disk is avoided for ever.
    pub(crate) fn typical(&self, now: Moment) -> Option<Duration> {
        if self.reads.load(Ordering::Relaxed) < KNOWN {
            return None;
        }
        let idle = (self.since_read(now) / 1_000_000_000).min(63);
        Some(Duration::from_nanos(self.typical.load(Ordering::Relaxed) >> idle).max(ALIKE))
    }

    /// Nanoseconds.
    fn since_read(&self, now: Moment) -> u64 {
        now.ns_since(self.began).saturating_sub(self.last_read.load(Ordering::Relaxed))
    }

    /// After how long a read is hedged: the 99th percentile of its reads of the last five to ten seconds,
    /// within bounds.
    pub(crate) fn hedge_after(&self) -> Duration {
        Duration::from_nanos(self.hedge.load(Ordering::Relaxed))
    }

    /// Whether others are read instead, if there are others.
    pub(crate) fn is_avoided(&self, now: Moment) -> bool {
        self.slow.load(Ordering::Relaxed) && Duration::from_nanos(self.since_read(now)) < TRIAL
    }

    /// It is an outlier, or no more.
    pub(crate) fn set_slow(&self, slow: bool) {
        if slow && !self.slow.swap(true, Ordering::Relaxed) {
            // The first trial comes after a while.
            self.note_read(self.env.moment());
        } else if !slow {
            self.slow.store(false, Ordering::Relaxed);
        }
    }

    fn note_read(&self, now: Moment) {
        self.last_read.store(now.ns_since(self.began), Ordering::Relaxed);
    }

    /// The start of the oldest I/O with a waiter.
    pub(crate) fn oldest(&self) -> Option<Moment> {
        self.state.lock().oldest()
    }

    /// Wakes the waiters of I/Os that began by then, to check for completion.
    pub(crate) fn nudge(&self, since: Moment) {
        let wake: Vec<Waker> = {
            let state = self.state.lock();
            let old = state.under_way.iter().flatten().filter(|u| u.began <= since);
            old.filter_map(|u| u.waiter.as_ref()?.waker().cloned()).collect()
        };
        wake.into_iter().for_each(Waker::wake);
    }

    /// Notifies the waiters of reads that have taken too long by now; returns when the next read will have.
    fn wake_due(&self, now: Moment) -> Option<Moment> {
        let (mut late, mut next) = (Vec::new(), None::<Moment>);
        for u in self.state.lock().under_way.iter_mut().flatten() {
            let Some(due) = u.due else { continue };
            if due > now {
                next = Some(next.map_or(due, |n| n.min(due)));
            } else {
                u.due = None;
                if let Some(Waiter::Reads(landing)) = &u.waiter {
                    late.push(Arc::clone(landing));
                }
            }
        }
        late.into_iter().for_each(|landing| landing.is_late());
        next
    }

    /// Its recent I/O; the longest is measured again from here.
    pub(crate) fn look(&self, info: &DiskInfo, now: Moment) -> Look {
        let mut state = self.state.lock();
        let State { latencies, under_way, .. } = &mut *state;
        let waited = under_way.iter().flatten().filter(|u| u.waiter.is_some());
        latencies.look(info, waited.map(|u| (u.at.op, u.began, u.short)), now)
    }

    /// Its removal is durable: its I/O is no longer awaited. Outstanding I/O continues, and is counted until
    /// it completes.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        let waiters: Vec<(Waiter, Place)> = {
            let mut state = self.state.lock();
            state.under_way.iter_mut().flatten().filter_map(|u| Some((u.waiter.take()?, u.at))).collect()
        };
        for (waiter, at) in waiters {
            match waiter {
                Waiter::Looks(waker) => waker.wake(),
                Waiter::Told(who, which) => who.told(which, Err(DiskError::Timeout { at })),
                Waiter::Reads(landing) => landing.ends(None),
            }
        }
    }
}
