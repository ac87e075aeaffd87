//! How a disk answers: what is under way on it, how long I/Os took lately, and an end to waiting for one that has left.
//!
//! Parts: [`spread`] counts latencies, [`budget`] says how many reads may be hedged, [`standing`] compares disks with their peers (all three without clock
//! or I/O), [`watch`] acts on it.
//!
//! Invariants:
//! 1. An I/O is under way until its driver is done with it, whether or not somebody still waits: its buffers are the driver's until then.
//! 2. Nobody stops waiting for an I/O of a disk before its leaving is durable ([`Pulse::abandon`]): a write that arrives late arrives at a disk that takes no part,
//!    and comes back only when nothing is under way on it any more ([`Pulse::is_writing`]).

pub(crate) mod budget;
mod spread;
pub mod standing;
pub(crate) mod watch;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use disk::{DiskError, DiskInfo, Media, Op, Place};
use env::{BoxFuture, Env, Io};
use parking_lot::Mutex;

use spread::Spread;
use standing::Look;
use watch::Watch;

/// A read is not hedged before so long: timers are good to a millisecond, and what answers sooner is well.
pub const HEDGE_LEAST: Duration = Duration::from_millis(5);

/// A read is hedged after so long at the latest, also when little is known of the disk: a disk with a head and a long queue answers within it.
pub const HEDGE_MOST: Duration = Duration::from_millis(100);

/// Nor after more than so many times the median: when each fiftieth read is slow, the percentile is that of the slow ones. How many are hedged is bounded
/// by the [`budget`].
const HEDGE_MEDIANS: u32 = 10;

/// Reads without which there is no 99th percentile, and no other disk is preferred for its latency.
const KNOWN: u64 = 100;

/// Differences below this are no reason to prefer a disk.
const ALIKE: Duration = Duration::from_micros(20);

/// A slow disk gets a read after so long without one, to see whether it still is.
const TRIAL: Duration = Duration::from_secs(5);

/// Reads after which the 99th percentile is looked at again.
const REVIEW: u64 = 64;

/// See the module. One for each time that a disk takes part.
pub(crate) struct Pulse {
    env: Env,
    watch: Arc<Watch>,
    began: Instant,
    in_flight: AtomicU32,
    /// Reads that ended, in all.
    reads: AtomicU64,
    /// Reads of users.
    user_reads: AtomicU64,
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
    reads: Spread,
    writes: Spread,
    /// The longest I/O since the last look, but for flushes: how long they take depends on what was written before.
    longest: Duration,
    under_way: Vec<Option<UnderWay>>,
    free: Vec<u32>,
    writing: u32,
}

impl State {
    fn oldest(&self) -> Option<Instant> {
        self.under_way.iter().flatten().filter(|u| u.waiter.is_some()).map(|u| u.began).min()
    }
}

struct UnderWay {
    began: Instant,
    op: Op,
    /// Who waits. Without anybody nobody knows whether it has ended.
    waiter: Option<Waker>,
}

/// An I/O under way.
pub(crate) struct Ticket {
    pulse: Arc<Pulse>,
    slot: u32,
    began: Instant,
    at: Place,
}

/// Counts an I/O of data in [`Pulse::in_flight`] until it is dropped.
pub(crate) struct Busy(Arc<Pulse>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The wait for an I/O: what it gave, or `None` when its disk has left and nobody waits any more.
pub(crate) struct Followed<T: Send + 'static> {
    io: Option<Io<T>>,
    ticket: Option<Ticket>,
    /// Until its driver is done with it.
    busy: Option<Busy>,
    /// It was looked at before, and had not ended.
    waited: bool,
}

impl Pulse {
    pub(crate) fn new(env: &Env, watch: &Arc<Watch>) -> Arc<Pulse> {
        Arc::new(Pulse {
            env: env.clone(),
            watch: Arc::clone(watch),
            began: env.now(),
            in_flight: AtomicU32::new(0),
            reads: AtomicU64::new(0),
            user_reads: AtomicU64::new(0),
            typical: AtomicU64::new(0),
            last_read: AtomicU64::new(0),
            hedge: AtomicU64::new(HEDGE_MOST.as_nanos() as u64),
            slow: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            state: Mutex::new(State {
                reads: Spread::new(standing::SPAN),
                writes: Spread::new(standing::SPAN),
                longest: Duration::ZERO,
                under_way: Vec::new(),
                free: Vec::new(),
                writing: 0,
            }),
        })
    }

    /// Starts an I/O and follows it; one of a disk that has left is not started: its `answer` is what nobody waits for.
    pub(crate) fn follow<T: Send + 'static>(
        self: &Arc<Pulse>,
        at: Place,
        start: impl FnOnce() -> Io<T>,
    ) -> Followed<T> {
        if self.abandoned.load(Ordering::Acquire) {
            return Followed { io: None, ticket: None, busy: None, waited: false };
        }
        let ticket = self.begin(at);
        Followed { io: Some(start()), ticket: Some(ticket), busy: None, waited: false }
    }

    fn begin(self: &Arc<Pulse>, at: Place) -> Ticket {
        let began = self.env.now();
        if at.op == Op::Read {
            // Not only at its end: one that hangs is not to look as if nobody had asked for long.
            self.note_read(began);
        }
        let mut state = self.state.lock();
        state.writing += u32::from(at.op != Op::Read);
        let new = Some(UnderWay { began, op: at.op, waiter: None });
        let slot = match state.free.pop() {
            Some(slot) => {
                state.under_way[slot as usize] = new;
                slot
            }
            None => {
                state.under_way.push(new);
                state.under_way.len() as u32 - 1
            }
        };
        drop(state);
        // After it is there to be seen: the task looks for it once more when it ends.
        self.watch.wake(&self.env);
        Ticket { pulse: Arc::clone(self), slot, began, at }
    }

    /// How many I/Os of data somebody waits for, and reads that nobody waits for any more: they are in the queue all the same.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// An I/O of data in the queue.
    pub(crate) fn busy(self: &Arc<Pulse>) -> Busy {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.under_way.len() == state.free.len()
    }

    /// Whether something is under way that changes the disk.
    pub(crate) fn is_writing(&self) -> bool {
        self.state.lock().writing > 0
    }

    /// A user's read is under way.
    pub(crate) fn count_user_read(&self) {
        self.user_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads of users, in all.
    pub(crate) fn user_reads(&self) -> u64 {
        self.user_reads.load(Ordering::Relaxed)
    }

    /// What a read takes now, as far as the last ones tell; `None` when they are too few. It halves with each second without one, so that nobody is
    /// avoided for ever.
    pub(crate) fn typical(&self, now: Instant) -> Option<Duration> {
        if self.reads.load(Ordering::Relaxed) < KNOWN {
            return None;
        }
        let idle = self.since_read(now).as_secs().min(63);
        Some(Duration::from_nanos(self.typical.load(Ordering::Relaxed) >> idle).max(ALIKE))
    }

    fn since_read(&self, now: Instant) -> Duration {
        let last = self.began + Duration::from_nanos(self.last_read.load(Ordering::Relaxed));
        now.saturating_duration_since(last)
    }

    /// After how long a read is hedged: the 99th percentile of its reads of the last five to ten seconds, within bounds.
    pub(crate) fn hedge_after(&self) -> Duration {
        Duration::from_nanos(self.hedge.load(Ordering::Relaxed))
    }

    /// Whether others are read instead, if there are others.
    pub(crate) fn is_avoided(&self, now: Instant) -> bool {
        self.slow.load(Ordering::Relaxed) && self.since_read(now) < TRIAL
    }

    /// It is an outlier, or no more.
    pub(crate) fn set_slow(&self, slow: bool) {
        if slow && !self.slow.swap(true, Ordering::Relaxed) {
            // The first trial comes after a while.
            self.note_read(self.env.now());
        } else if !slow {
            self.slow.store(false, Ordering::Relaxed);
        }
    }

    fn note_read(&self, now: Instant) {
        let since = now.saturating_duration_since(self.began).as_nanos();
        self.last_read.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When the oldest I/O began that somebody waits for.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.state.lock().oldest()
    }

    /// Has those look again who wait for an I/O that began so long ago: it may have ended.
    pub(crate) fn nudge(&self, before: Instant) {
        let wake: Vec<Waker> = {
            let state = self.state.lock();
            let old = state.under_way.iter().flatten().filter(|u| u.began <= before);
            old.filter_map(|u| u.waiter.clone()).collect()
        };
        wake.into_iter().for_each(Waker::wake);
    }

    /// What it did lately; what is the longest is counted anew from here.
    pub(crate) fn look(&self, info: &DiskInfo, now: Instant) -> Look {
        let mut state = self.state.lock();
        state.reads.roll(now);
        state.writes.roll(now);
        let asked = state.under_way.iter().flatten().filter(|u| u.waiter.is_some() && u.op != Op::Flush);
        let age = asked.map(|u| now.saturating_duration_since(u.began)).max().unwrap_or_default();
        let median = |s: &Spread| s.percentile(50).filter(|_| s.count() >= standing::SAMPLES);
        // One that is avoided has few reads: then its moving average.
        let average = Duration::from_nanos(self.typical.load(Ordering::Relaxed));
        let known = self.reads.load(Ordering::Relaxed) >= KNOWN && state.reads.count() > 0;
        let reads = median(&state.reads).or_else(|| known.then_some(average));
        Look {
            media: info.media as u8,
            flash: matches!(info.media, Media::Scm | Media::Nvme | Media::Ssd),
            reads,
            writes: median(&state.writes),
            longest: std::mem::take(&mut state.longest).max(age),
        }
    }

    /// Its leaving is durable: nobody waits for it any more. What is under way goes on, and is counted until it ends.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        let wake: Vec<Waker> = {
            let mut state = self.state.lock();
            state.under_way.iter_mut().flatten().filter_map(|u| u.waiter.take()).collect()
        };
        wake.into_iter().for_each(Waker::wake);
    }
}

impl Ticket {
    /// The I/O is done.
    fn done(&self) {
        let pulse = &self.pulse;
        let now = pulse.env.now();
        let took = now.saturating_duration_since(self.began);
        let mut state = pulse.state.lock();
        if self.at.op != Op::Flush {
            state.longest = state.longest.max(took);
        }
        match self.at.op {
            Op::Read => {
                state.reads.add(took, now);
                let reads = pulse.reads.fetch_add(1, Ordering::Relaxed) + 1;
                let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX / 16);
                let before = pulse.typical.load(Ordering::Relaxed);
                let typical = if reads == 1 { ns } else { before - before / 16 + ns / 16 };
                pulse.typical.store(typical, Ordering::Relaxed);
                pulse.note_read(now);
                if reads.is_multiple_of(REVIEW) {
                    let known = state.reads.count() >= KNOWN;
                    let of = |percent| state.reads.percentile(percent).filter(|_| known);
                    let after = match (of(99), of(50)) {
                        (Some(most), Some(median)) => most.min(median * HEDGE_MEDIANS),
                        _ => HEDGE_MOST,
                    };
                    let after = after.clamp(HEDGE_LEAST, HEDGE_MOST).as_nanos() as u64;
                    pulse.hedge.store(after, Ordering::Relaxed);
                }
            }
            Op::Write => state.writes.add(took, now),
            // How long they take depends on what was written before.
            Op::Flush | Op::Discard | Op::Fence => {}
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.pulse.state.lock();
        state.writing -= u32::from(self.at.op != Op::Read);
        state.under_way[self.slot as usize] = None;
        state.free.push(self.slot);
    }
}

impl<T: Send + 'static> Followed<T> {
    /// Counts in [`Pulse::in_flight`] until its driver is done with it, whether or not somebody waits.
    pub(crate) fn counted(mut self, busy: Busy) -> Followed<T> {
        self.busy = self.io.is_some().then_some(busy);
        self
    }

    /// What it gave, or the error of a disk that has left.
    pub(crate) async fn wait(self, at: Place) -> Result<T, DiskError> {
        self.await.ok_or(DiskError::Timeout { at })
    }

    /// Waits until it has ended, or until `deadline`: whether it has. The result is there for who waits next.
    pub(crate) async fn ends_before(&mut self, deadline: Instant, env: &Env) -> bool {
        let mut sleep = std::pin::pin!(env.sleep_until(deadline));
        std::future::poll_fn(|context| {
            if let Poll::Ready(result) = Pin::new(&mut *self).poll(context) {
                self.io = result.map(Io::Done);
                return Poll::Ready(true);
            }
            sleep.as_mut().poll(context).map(|()| false)
        })
        .await
    }

    /// When it began; `None`: it is over, or never did.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.ticket.as_ref().map(|t| t.began)
    }

    /// Its driver goes on; so it stays under way.
    fn leave_alone(&mut self) {
        if let (Some(Io::Pending(io)), Some(ticket)) = (self.io.take(), self.ticket.take()) {
            keep(io, ticket, self.busy.take());
        }
    }
}

/// Holds the ticket, and its place in the queue, until the I/O is done.
fn keep<T: Send + 'static>(io: BoxFuture<T>, ticket: Ticket, busy: Option<Busy>) {
    let env = ticket.pulse.env.clone();
    if let Some(mine) = &mut ticket.pulse.state.lock().under_way[ticket.slot as usize] {
        // The task is woken when it has ended, and by nothing else.
        mine.waiter = Some(Waker::noop().clone());
    }
    env.spawn_if_running(async move {
        drop(io.await);
        drop(busy);
        ticket.done();
    });
}

impl<T: Send + 'static> Future for Followed<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        let (result, known) = match this.io.take() {
            None => return Poll::Ready(None),
            Some(Io::Done(result)) => (result, true),
            Some(Io::Pending(mut io)) => match io.as_mut().poll(context) {
                // One that had ended before anybody looked tells nothing about its disk.
                Poll::Ready(result) => (result, this.waited),
                Poll::Pending => {
                    this.io = Some(Io::Pending(io));
                    this.waited = true;
                    let Some(ticket) = &this.ticket else { return Poll::Ready(None) };
                    {
                        let mut state = ticket.pulse.state.lock();
                        let waiter = state.under_way[ticket.slot as usize].as_mut().map(|u| &mut u.waiter);
                        if let Some(waiter) = waiter
                            && !waiter.as_ref().is_some_and(|w| w.will_wake(context.waker()))
                        {
                            *waiter = Some(context.waker().clone());
                        }
                    }
                    // After the waker is there: whoever abandons it after this look wakes it.
                    if ticket.pulse.abandoned.load(Ordering::Acquire) {
                        this.leave_alone();
                        return Poll::Ready(None);
                    }
                    return Poll::Pending;
                }
            },
        };
        this.busy = None;
        if let Some(ticket) = this.ticket.take().filter(|_| known) {
            ticket.done();
        }
        Poll::Ready(Some(result))
    }
}

/// Nothing of it is pinned in place: the future is in a box of its own.
impl<T: Send + 'static> Unpin for Followed<T> {}

impl<T: Send + 'static> Drop for Followed<T> {
    fn drop(&mut self) {
        self.leave_alone();
    }
}

#[cfg(test)]
mod tests {
    use disk::Disk;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn info(env: &Env) -> DiskInfo {
        let machine = disk::sim::Machine::new(env, 1);
        let slot = machine.add(&disk::MemoryOptions::new("disk", 1 << 20));
        machine.open(slot).expect("it is there").info().clone()
    }

    fn follow(pulse: &Arc<Pulse>, env: &Env, op: Op, takes: Duration) -> Followed<()> {
        let env = env.clone();
        pulse.follow(Place::whole(op), || Io::Pending(Box::pin(async move { env.sleep(takes).await })))
    }

    async fn known() -> (Env, Arc<Pulse>) {
        let env = Env::simulated(1);
        let pulse = Pulse::new(&env, &Watch::new());
        for _ in 0..KNOWN {
            follow(&pulse, &env, Op::Read, 4 * MS).await;
        }
        (env, pulse)
    }

    #[test]
    fn a_disk_that_hangs_does_not_become_the_preferred_one() {
        crate::simulation::in_virtual_time(async {
            let (env, pulse) = known().await;
            pulse.set_slow(true);
            env.sleep(TRIAL).await;
            assert!(!pulse.is_avoided(env.now()), "one may try it");
            let mut trial = follow(&pulse, &env, Op::Read, 100 * TRIAL);
            assert!(pulse.is_avoided(env.now()), "no other one beside it");
            let typical = pulse.typical(env.now());
            assert!(typical >= Some(3 * MS), "{typical:?}");
            assert!(!trial.ends_before(env.now() + TRIAL, &env).await);
            assert!(!pulse.is_avoided(env.now()));
        });
    }

    #[test]
    fn who_loses_a_race_stays_in_the_queue() {
        crate::simulation::in_virtual_time(async {
            let (env, pulse) = known().await;
            let mut read = follow(&pulse, &env, Op::Read, 1000 * MS).counted(pulse.busy());
            assert!(!read.ends_before(env.now() + MS, &env).await);
            drop(read);
            assert_eq!(pulse.in_flight(), 1);
            env.sleep(1000 * MS).await;
            assert_eq!((pulse.in_flight(), pulse.is_idle()), (0, true));
            let read = follow(&pulse, &env, Op::Read, MS).counted(pulse.busy());
            assert_eq!((pulse.in_flight(), read.await, pulse.in_flight()), (1, Some(()), 0));
        });
    }

    #[test]
    fn a_flush_of_seconds_makes_no_outlier_and_yet_hangs() {
        crate::simulation::in_virtual_time(async {
            let (env, pulse) = known().await;
            let info = info(&env);
            pulse.look(&info, env.now());
            let began = env.now();
            let mut flush = follow(&pulse, &env, Op::Flush, 5000 * MS);
            assert!(!flush.ends_before(began + 4000 * MS, &env).await);
            assert_eq!((pulse.look(&info, env.now()).longest, pulse.oldest()), (Duration::ZERO, Some(began)));
            flush.await;
            assert_eq!(pulse.look(&info, env.now()).longest, Duration::ZERO);
            let mut write = follow(&pulse, &env, Op::Write, 5000 * MS);
            assert!(!write.ends_before(env.now() + 4000 * MS, &env).await);
            assert_eq!(pulse.look(&info, env.now()).longest, 4000 * MS);
            write.await;
            assert_eq!(pulse.look(&info, env.now()).longest, 5000 * MS);
        });
    }
}
