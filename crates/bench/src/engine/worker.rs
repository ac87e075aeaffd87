//! A thread of a run: keeps I/Os outstanding and counts completions.
//!
//! Invariants: a slot is either in one free list or has an outstanding I/O. I/Os that complete outside the
//! measured time do not count as performance, but failures, short I/Os and mismatches always count.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use env::Env;

use super::backend::{Backend, Completion, Fault, Io, Payload};
use super::error::RunError;
use super::offsets::{Kind, Offsets};
use super::pace::{Next, Pace};
use super::random::Random;
use super::results::{TargetResults, ThreadResults, WaitStats};
use super::verify::Ledger;

/// The longest wait: how often a thread checks whether it must stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for I/Os that are outstanding at the end.
const DRAIN: Duration = Duration::from_secs(60);
/// The pause of a target after an I/O failed.
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum consecutive failures.
const FAILURES_MAX: u32 = 1000;
/// The alignment of data in the source for unbuffered writes, in bytes.
const ALIGN: usize = 512;

/// The times of a run's phases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    pub begin: Instant,
    pub measure: Instant,
    pub measured: Instant,
    pub end: Instant,
}

/// The progress of a running thread, for other threads.
#[derive(Debug, Default)]
pub(super) struct LiveCounts {
    pub ios: AtomicU64,
    pub bytes: AtomicU64,
    pub errors: AtomicU64,
    pub dots: AtomicU64,
}

/// A target in use by a thread.
pub(super) struct WorkLane {
    pub offsets: Offsets,
    pub pace: Pace,
    pub block: u32,
    /// Its weight in a pool; 0: the lane has its own slots.
    pub weight: u64,
    pub writes: Writes,
    pub ledger: Option<Arc<Ledger>>,
    pub results: TargetResults,
    pub free: VecDeque<usize>,
    pub failures: u32,
    pub paused_until: Option<Instant>,
}

/// The data of writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Writes {
    /// From the source, which has this many bytes.
    Source { bytes: usize, aligned: bool },
    /// Random numbers, generated for each write.
    Random,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    lane: usize,
    kind: Option<Kind>,
    offset: u64,
    intended: Option<Instant>,
    submitted: Option<Instant>,
    last: Option<u64>,
    snapshot: Vec<u32>,
}

/// See the module.
pub(super) struct Worker {
    pub env: Env,
    pub backend: Box<dyn Backend>,
    pub lanes: Vec<WorkLane>,
    pub random: Random,
    pub timeline: Timeline,
    pub stop: Arc<AtomicBool>,
    pub live: Arc<LiveCounts>,
    /// The number of I/Os for each dot; 0: no dots.
    pub progress: u32,
    /// Free slots not assigned to a lane (`-F` with `-O`).
    pub pool: VecDeque<usize>,
    pub slots: usize,
}

/// The mutable state of a worker.
struct State {
    slots: Vec<Slot>,
    in_flight: usize,
    waits: WaitStats,
    done: u64,
}

impl Worker {
    /// Runs until the end of the timeline or until stopped.
    pub(super) fn run(mut self) -> Result<(ThreadResults, u64), RunError> {
        let mut state = State {
            slots: vec![Slot::default(); self.slots],
            in_flight: 0,
            waits: WaitStats::default(),
            done: 0,
        };
        let mut completions = Vec::new();
        loop {
            let now = self.env.now();
            if now >= self.timeline.end || self.stop.load(Ordering::Relaxed) {
                break;
            }
            let due = self.issue(&mut state, now);
            let limit = self.timeline.end.min(now + STOP_CHECK_INTERVAL);
            let until = due.map_or(limit, |d| d.min(limit));
            match (state.in_flight, due) {
                (0, _) => state.waits.throttle_sleep += 1,
                (_, Some(_)) => state.waits.throttle_wait += 1,
                (_, None) => state.waits.wait += 1,
            }
            self.complete(&mut state, until, &mut completions)?;
            state.waits.lookaside += 1;
            state.waits.completions[completions.len().min(7)] += 1;
        }
        for lane in &mut self.lanes {
            lane.results.overdue += lane.pace.behind(self.timeline.measured);
        }
        self.drain(&mut state, &mut completions)?;
        let posted = self.backend.posted();
        let targets = self.lanes.into_iter().map(|l| l.results).collect();
        let results = ThreadResults { targets, waits: state.waits, done: state.done, posted };
        Ok((results, state.in_flight as u64))
    }

    fn drain(&mut self, state: &mut State, completions: &mut Vec<Completion>) -> Result<(), RunError> {
        let give_up = self.env.now() + DRAIN;
        while state.in_flight > 0 && self.env.now() < give_up {
            let until = (self.env.now() + STOP_CHECK_INTERVAL).min(give_up);
            self.complete(state, until, completions)?;
        }
        Ok(())
    }

    /// Starts all I/Os that may start. Returns when the next one may start, if slots are free.
    fn issue(&mut self, state: &mut State, now: Instant) -> Option<Instant> {
        while let Some(slot) = self.pool.pop_front() {
            let lane = self.pick();
            if let Some(paused_until) = self.lanes[lane].paused_until.filter(|r| *r > now) {
                self.pool.push_front(slot);
                return Some(paused_until);
            }
            self.start(state, slot, lane, None);
        }
        let mut earliest: Option<Instant> = None;
        for lane in 0..self.lanes.len() {
            while let Some(slot) = self.lanes[lane].free.pop_front() {
                let next = match self.lanes[lane].paused_until.filter(|r| *r > now) {
                    Some(paused_until) => Next::Wait(paused_until),
                    None => self.lanes[lane].pace.next(now),
                };
                match next {
                    Next::Due(intended) => self.start(state, slot, lane, intended),
                    Next::Wait(time) => {
                        self.lanes[lane].free.push_front(slot);
                        earliest = Some(earliest.map_or(time, |e| e.min(time)));
                        break;
                    }
                }
            }
        }
        earliest
    }

    /// Chooses a target of the pool by weight.
    fn pick(&mut self) -> usize {
        let all = self.lanes.iter().map(|l| l.weight).sum();
        let mut dice = self.random.below(all);
        for (n, lane) in self.lanes.iter().enumerate() {
            if dice < lane.weight {
                return n;
            }
            dice -= lane.weight;
        }
        0
    }

    fn start(&mut self, state: &mut State, number: usize, at: usize, intended: Option<Instant>) {
        let (lane, slot) = (&mut self.lanes[at], &mut state.slots[number]);
        let (offset, mut kind) = lane.offsets.next(&mut self.random, &mut slot.last);
        let length = lane.block;
        let mut payload = Payload::Buffer;
        if kind == Kind::Write {
            match (&lane.ledger, lane.writes) {
                (Some(ledger), _) => {
                    if !ledger.begin_write(offset, &mut self.backend.buffer(number)[..length as usize]) {
                        kind = Kind::Read;
                        lane.results.verified.get_or_insert_default().deferred += 1;
                    }
                }
                (None, Writes::Random) => {
                    self.random.fill(&mut self.backend.buffer(number)[..length as usize]);
                }
                (None, Writes::Source { bytes, aligned }) => {
                    let room = bytes.saturating_sub(length as usize);
                    let at = if room == 0 { 0 } else { self.random.below(room as u64 + 1) as usize };
                    payload = Payload::Source(if aligned { at - at % ALIGN } else { at });
                }
            }
        }
        if let (Kind::Read, Some(ledger)) = (kind, &lane.ledger) {
            ledger.begin_read(offset, length as usize, &mut slot.snapshot);
        }
        let now = self.env.now();
        lane.pace.started(now);
        (slot.lane, slot.kind, slot.offset) = (at, Some(kind), offset);
        (slot.intended, slot.submitted) = (intended, Some(now));
        state.in_flight += 1;
        self.backend.submit(&Io { slot: number, lane: at, kind, offset, length, payload });
    }

    fn complete(
        &mut self,
        state: &mut State,
        until: Instant,
        completions: &mut Vec<Completion>,
    ) -> Result<(), RunError> {
        completions.clear();
        self.backend.complete(until, completions).map_err(RunError::Wait)?;
        if completions.is_empty() {
            return Ok(());
        }
        let now = self.env.now();
        let (mut bytes, mut errors) = (0, 0);
        for completion in completions.iter() {
            state.in_flight -= 1;
            match completion.result {
                Ok(n) => bytes += u64::from(n),
                Err(_) => errors += 1,
            }
            self.finish(state, completion, now)?;
        }
        let count = completions.len() as u64;
        self.live.ios.fetch_add(count - errors, Ordering::Relaxed);
        self.live.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.live.errors.fetch_add(errors, Ordering::Relaxed);
        if let Some(before) = state.done.checked_div(self.progress.into()) {
            let after = (state.done + count) / u64::from(self.progress);
            self.live.dots.fetch_add(after - before, Ordering::Relaxed);
        }
        state.done += count;
        Ok(())
    }

    fn finish(&mut self, state: &mut State, completion: &Completion, now: Instant) -> Result<(), RunError> {
        let slot = &mut state.slots[completion.slot];
        let kind = slot.kind.take().expect("an I/O completes once");
        let lane = &mut self.lanes[slot.lane];
        let length = lane.block as usize;
        match (&lane.ledger, kind) {
            (Some(ledger), Kind::Write) => {
                let whole = completion.result == Ok(lane.block);
                ledger.end_write(slot.offset, length, whole);
            }
            (Some(ledger), Kind::Read) => {
                if let Ok(moved) = completion.result {
                    let bytes = self.backend.data(completion.slot, moved as usize);
                    let verified = lane.results.verified.get_or_insert_default();
                    ledger.end_read(slot.offset, &bytes, &slot.snapshot, verified);
                }
            }
            (None, _) => {}
        }
        match completion.result {
            Ok(moved) => {
                (lane.failures, lane.paused_until) = (0, None);
                lane.results.short += u64::from(moved < lane.block);
                let at = completion.at.unwrap_or(now);
                let submitted = slot.submitted.unwrap_or(at);
                let t = &self.timeline;
                if at >= t.measure && at < t.measured {
                    let latency = at.saturating_duration_since(slot.intended.unwrap_or(submitted));
                    let tally = match kind {
                        Kind::Read => &mut lane.results.read,
                        Kind::Write => &mut lane.results.write,
                    };
                    tally.add(moved.into(), latency, at - t.measure);
                    lane.results.service.add(at.saturating_duration_since(submitted));
                } else if at >= t.measured && slot.intended.is_some_and(|i| i < t.measured) {
                    lane.results.overdue += 1;
                }
            }
            Err(fault) => self.failed(slot.lane, fault, now)?,
        }
        Self::release(&mut self.pool, &mut self.lanes, slot.lane, completion.slot);
        Ok(())
    }

    fn failed(&mut self, at: usize, fault: Fault, now: Instant) -> Result<(), RunError> {
        let lane = &mut self.lanes[at];
        *lane.results.errors.entry(fault).or_default() += 1;
        lane.failures += 1;
        lane.paused_until = Some(now + PAUSE);
        if lane.failures >= FAILURES_MAX {
            let path = lane.results.path.clone();
            return Err(RunError::Failing { path, count: lane.failures, fault });
        }
        Ok(())
    }

    fn release(pool: &mut VecDeque<usize>, lanes: &mut [WorkLane], lane: usize, slot: usize) {
        if lanes[lane].weight > 0 {
            pool.push_back(slot);
        } else {
            lanes[lane].free.push_back(slot);
        }
    }
}
