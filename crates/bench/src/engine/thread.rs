//! Starts a thread of a run: sets its processor, opens its targets, allocates slots, and waits for the
//! timeline.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use env::Env;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

use super::backend::{Backend, Lane, Setup, TargetLocation};
use super::error::{OpenError, RunError};
use super::local;
use super::offsets::Offsets;
use super::pace::Pace;
use super::plan::ThreadPlan;
use super::random::Random;
use super::results::{TargetResults, ThreadResults};
use super::run::Open;
use super::tally::{Latency, Tally};
use super::verify::{Ledger, SECTOR, VERIFY_MAX};
use super::worker::{LiveCounts, Timeline, WorkLane, Worker, Writes};
use crate::profile::{CacheMode, Content, Target, TimeSpan};

/// A barrier at which threads wait until all are ready.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
enum GateState {
    #[default]
    Closed,
    Go(Timeline),
    Abort,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    pub(super) fn go(&self, timeline: Timeline) {
        *lock(&self.state) = GateState::Go(timeline);
        self.changed.notify_all();
    }

    pub(super) fn abort(&self) {
        *lock(&self.state) = GateState::Abort;
        self.changed.notify_all();
    }

    fn wait(&self) -> Option<Timeline> {
        let mut state = lock(&self.state);
        loop {
            match *state {
                GateState::Closed => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                GateState::Go(timeline) => return Some(timeline),
                GateState::Abort => return None,
            }
        }
    }
}

/// The ledgers of all targets of a run, by path.
pub(super) struct Ledgers {
    seed: u32,
    ledgers: Mutex<HashMap<String, Entry>>,
}

enum Entry {
    /// Created by this run but not opened yet.
    Stamped,
    Open(Arc<Ledger>),
}

impl Ledgers {
    pub(super) fn new(seed: u32) -> Ledgers {
        Ledgers { seed, ledgers: Mutex::default() }
    }

    pub(super) fn seed(&self) -> u32 {
        self.seed
    }

    /// Records that the file was just created.
    pub(super) fn stamped(&self, path: &str) {
        lock(&self.ledgers).insert(path.to_owned(), Entry::Stamped);
    }

    fn of(&self, path: &str, size: u64) -> Arc<Ledger> {
        let mut ledgers = lock(&self.ledgers);
        let entry = ledgers.remove(path);
        let ledger = match entry {
            Some(Entry::Open(ledger)) => ledger,
            other => Arc::new(Ledger::new(path, size, self.seed, other.is_some())),
        };
        ledgers.insert(path.to_owned(), Entry::Open(ledger.clone()));
        ledger
    }
}

/// The data with which a thread starts.
pub(super) struct ThreadStart {
    pub env: Env,
    pub plan: ThreadPlan,
    /// Its targets, each with its shared offset and its weight in a pool.
    pub lanes: Vec<((Lane, Arc<AtomicU64>), u64)>,
    pub span: TimeSpan,
    pub progress: u32,
    pub verify: bool,
    pub open: Open,
    pub ledgers: Arc<Ledgers>,
    pub live: Arc<LiveCounts>,
    pub halt: Arc<AtomicBool>,
    pub gate: Arc<Gate>,
    /// Receives the I/O method when the thread is ready, or `None` if it will never be.
    pub ready: mpsc::Sender<Option<String>>,
}

/// Reports at the thread's end that it will not become ready. If it did become ready, the report is ignored.
struct Announce(mpsc::Sender<Option<String>>);

impl Drop for Announce {
    fn drop(&mut self) {
        let _ = self.0.send(None);
    }
}

impl ThreadStart {
    pub(super) fn run(self) -> Result<(ThreadResults, u64), RunError> {
        let _announce = Announce(self.ready.clone());
        let halt = self.halt.clone();
        let result = self.begin();
        if result.is_err() {
            halt.store(true, Ordering::Relaxed);
        }
        result
    }

    fn begin(self) -> Result<(ThreadResults, u64), RunError> {
        self.settle()?;
        // Each thread has its own seed, so that a run is reproducible.
        let mut random = Random::new(u64::from(self.span.seed) + u64::from(self.plan.number));
        for ((lane, _), _) in &self.lanes {
            check_sectors(lane, self.verify)?;
        }
        let (slots, shares) = self.slots();
        let lanes = self.lanes.iter().map(|((lane, _), _)| lane.clone()).collect();
        let backend = (self.open)(Setup { lanes, slots: slots.clone(), verify: self.verify })?;
        let mut offsets = Vec::with_capacity(self.lanes.len());
        for (n, ((lane, shared), _)) in self.lanes.iter().enumerate() {
            offsets.push(self.offsets(&*backend, n, &lane.target, shared, &mut random)?);
        }
        let ledgers = self.open_ledgers(&*backend)?;
        let pool = if self.span.pooled() { (0..slots.len()).collect() } else { VecDeque::new() };
        // The receiver is gone only if the run was abandoned, which the gate also reports.
        let _ = self.ready.send(Some(backend.describe()));
        let Some(timeline) = self.gate.wait() else { return Ok((ThreadResults::default(), 0)) };
        let mut lanes = Vec::with_capacity(self.lanes.len());
        for (n, (offsets, ledger)) in offsets.into_iter().zip(ledgers).enumerate() {
            let ((lane, _), weight) = &self.lanes[n];
            let free = shares.get(n).cloned().unwrap_or_default();
            let results = self.results(&lane.target, &offsets, backend.size(n));
            let writes = self.writes(lane);
            let pace = Pace::new(&lane.target, timeline.begin);
            let (block, weight, failures, paused_until) = (lane.target.block, *weight, 0, None);
            lanes.push(WorkLane {
                offsets,
                pace,
                block,
                weight,
                writes,
                ledger,
                results,
                free,
                failures,
                paused_until,
            });
        }
        let worker = Worker {
            env: self.env,
            backend,
            lanes,
            random,
            timeline,
            stop: self.halt,
            live: self.live,
            progress: self.progress,
            pool,
            slots: slots.len(),
        };
        worker.run()
    }

    /// Sets the processor and the timer slack.
    fn settle(&self) -> Result<(), OpenError> {
        if let Some(affinity) = self.plan.affinity {
            let (group, processor) = (affinity.group, affinity.processor);
            let number = usize::from(group) * 64 + usize::from(processor);
            let failed = |source| OpenError::Affinity { group, processor, source };
            if processor > 63 || number >= CpuSet::MAX_CPU {
                return Err(failed(std::io::ErrorKind::InvalidInput.into()));
            }
            let mut set = CpuSet::new();
            set.set(number);
            sched_setaffinity(None, &set).map_err(|e| failed(e.into()))?;
        }
        // The default slack of 50 µs would add latency in an open loop. A failure is ignored.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        Ok(())
    }

    /// The capacity of each slot, and the slots of each target.
    fn slots(&self) -> (Vec<u32>, Vec<VecDeque<usize>>) {
        let targets = self.lanes.iter().map(|((lane, _), _)| &lane.target);
        if self.span.pooled() {
            let room = targets.map(|t| t.block).max().unwrap_or(0);
            return (vec![room; self.span.request_count as usize], Vec::new());
        }
        let (mut rooms, mut shares) = (Vec::new(), Vec::new());
        for target in targets {
            let first = rooms.len();
            rooms.resize(first + target.outstanding as usize, target.block);
            shares.push((first..rooms.len()).collect());
        }
        (rooms, shares)
    }

    fn offsets(
        &self,
        backend: &dyn Backend,
        lane: usize,
        target: &Target,
        shared: &Arc<AtomicU64>,
        random: &mut Random,
    ) -> Result<Offsets, OpenError> {
        let size = backend.size(lane);
        let relative = self.plan.relative;
        Offsets::new(target, size, relative, shared, random).map_err(|_| OpenError::TooSmall {
            path: target.path.clone(),
            size,
            base: target.base,
            block: target.block,
            thread: relative,
            stride: target.thread_stride,
        })
    }

    fn open_ledgers(&self, backend: &dyn Backend) -> Result<Vec<Option<Arc<Ledger>>>, OpenError> {
        let mut ledgers = Vec::with_capacity(self.lanes.len());
        for (n, ((lane, _), _)) in self.lanes.iter().enumerate() {
            let (target, size) = (&lane.target, backend.size(n));
            let range = if target.max_size == 0 { size } else { size.min(target.max_size) };
            if self.verify && range > VERIFY_MAX {
                return Err(OpenError::VerifyTooLarge { path: target.path.clone(), size });
            }
            ledgers.push(self.verify.then(|| self.ledgers.of(&target.path, size)));
        }
        Ok(ledgers)
    }

    fn results(&self, target: &Target, offsets: &Offsets, size: u64) -> TargetResults {
        let span = &self.span;
        let width = Duration::from_millis(span.bucket_ms.into());
        let count = (u64::from(span.duration_s) * 1000).div_ceil(u64::from(span.bucket_ms.max(1)));
        let buckets = span.iops_std_dev.then_some((count as usize, width));
        let open_loop = target.rate.is_some() && span.measure_latency;
        TargetResults {
            path: target.path.clone(),
            size,
            read: Tally::new(span.measure_latency, buckets),
            write: Tally::new(span.measure_latency, buckets),
            service: if open_loop { Latency::on() } else { Latency::default() },
            distribution: offsets.effective(),
            verified: self.verify.then(Default::default),
            ..TargetResults::default()
        }
    }

    fn writes(&self, lane: &Lane) -> Writes {
        // As in DiskSPD, -Zr does not affect targets that write zeros or from a buffer.
        if self.span.random_write_data && lane.target.content == Content::Sequential {
            return Writes::Random;
        }
        let aligned = lane.target.cache == CacheMode::Unbuffered;
        Writes::Source { bytes: lane.source.bytes().len(), aligned }
    }
}

fn check_sectors(lane: &Lane, verify: bool) -> Result<(), OpenError> {
    let t = &lane.target;
    if verify && !is_made_of(t, SECTOR) {
        return Err(OpenError::NotVerifiable { path: t.path.clone() });
    }
    if t.cache != CacheMode::Unbuffered || !matches!(lane.place, TargetLocation::Local) {
        return Ok(());
    }
    let sector =
        local::sector(&t.path).map_err(|source| OpenError::Local { path: t.path.clone(), source })?;
    if is_made_of(t, sector) { Ok(()) } else { Err(OpenError::NotSectors { path: t.path.clone(), sector }) }
}

/// Whether all I/O of a target begins and ends at multiples of `sector` bytes.
fn is_made_of(t: &Target, sector: u64) -> bool {
    let sectors = |n: u64| n.is_multiple_of(sector);
    let whole = sectors(t.block.into()) && sectors(t.alignment()) && sectors(t.base);
    let parts = t.distribution.iter().flat_map(|d| &d.ranges).all(|r| sectors(r.start));
    let absolute = t.distribution.as_ref().is_none_or(|d| d.unit == crate::profile::Unit::Percent) || parts;
    whole && sectors(t.thread_stride) && absolute
}
