//! The run as a whole: files, time spans, threads, the clock.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use env::Env;

use super::backend::{Backend, Lane, Setup, TargetLocation};
use super::cpu::{self, CpuTimes, ProcessCpu};
use super::create::{self, Fill};
use super::error::{OpenError, RunError};
use super::memory::Memory;
use super::random::Random;
use super::results::{SpanResults, ThreadResults};
use super::thread::{Gate, Ledgers, ThreadStart};
use super::worker::{LiveCounts, Timeline};
use super::{fabric, local, plan, smb, system};
use crate::profile::{Precreate, Profile, Target, TimeSpan};

/// The interval between calls of the observer.
const TICK: Duration = Duration::from_millis(100);

/// Opens the targets of a thread, on that thread.
pub type Open = fn(Setup) -> Result<Box<dyn Backend>, OpenError>;

/// The settings of a run in addition to its profile.
#[derive(Clone)]
pub struct Settings {
    /// The locations of remote targets, by their paths as given; other targets are local.
    pub places: HashMap<String, TargetLocation>,
    /// Stamp written sectors and check those that are read.
    pub verify: bool,
    /// Block devices may be overwritten.
    pub overwrite_devices: bool,
    /// New files are sparse: they occupy no space, and reads return zeros without disk I/O.
    pub sparse: bool,
    /// Processes whose processor time is reported in addition to our own.
    pub pids: Vec<u32>,
    /// Set it to end the run early; the measurement up to then is reported.
    pub stop: Arc<AtomicBool>,
    /// Overrides the measured time of each time span.
    pub measured: Option<Duration>,
    /// The function that opens targets: [`open`], except in tests.
    pub open: Open,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            places: HashMap::new(),
            verify: false,
            overwrite_devices: false,
            sparse: false,
            pids: Vec::new(),
            stop: Arc::default(),
            measured: None,
            open,
        }
    }
}

/// Opens local, remote and fabric targets.
///
/// # Errors
/// See [`OpenError`].
pub fn open(setup: Setup) -> Result<Box<dyn Backend>, OpenError> {
    let all = |of: fn(&TargetLocation) -> bool| setup.lanes.iter().all(|l| of(&l.place));
    if all(|p| matches!(p, TargetLocation::Local)) {
        local::open(setup)
    } else if all(|p| matches!(p, TargetLocation::Smb(_))) {
        Ok(Box::new(smb::Smb::open(setup)?))
    } else if all(|p| matches!(p, TargetLocation::Fabric(_))) {
        fabric::open(setup)
    } else {
        Err(OpenError::MixedPlaces)
    }
}

/// Receives the progress of a run.
pub trait Observer {
    /// `done` of `size` bytes of a new file are written.
    fn creating(&mut self, path: &str, done: u64, size: u64) {
        let _ = (path, done, size);
    }
    /// The measured part of a span begins, or, if `begins` is false, has ended.
    fn measures(&mut self, begins: bool) {
        let _ = begins;
    }
    /// Called about ten times per second.
    fn tick(&mut self, tick: &Tick) {
        let _ = tick;
    }
}

/// An observer that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

/// A phase of a time span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `-W`.
    WarmUp,
    /// `-d`.
    Measuring,
    /// `-C`.
    CoolDown,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    /// The index of the time span.
    pub span: usize,
    /// The current phase.
    pub phase: Phase,
    /// The time since the span began.
    pub elapsed: Duration,
    /// The duration of the span.
    pub total: Duration,
    /// I/Os so far, in all phases.
    pub ios: u64,
    /// Bytes of these I/Os.
    pub bytes: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// Dots of `-P`.
    pub dots: u64,
}

/// Runs a profile; returns the results of its time spans.
///
/// # Errors
/// See [`RunError`]. Failed I/Os are no error of the run: see [`SpanResults::errors`].
pub fn run(
    profile: &Profile,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Vec<SpanResults>, RunError> {
    let mut run = Run {
        profile,
        settings,
        env: Env::real(),
        created: HashSet::new(),
        ledgers: Arc::new(Ledgers::new(profile.timespans.first().map_or(0, |s| s.seed))),
    };
    let targets = profile.timespans.iter().flat_map(|s| &s.targets);
    let here = targets.filter(|t| matches!(run.place(t), TargetLocation::Local));
    let _claims = local::claim(here, settings.overwrite_devices)?;
    for (path, target, size) in precreated(profile) {
        run.create(&target, size, observer)?;
        run.created.insert(path);
    }
    let mut results = Vec::with_capacity(profile.timespans.len());
    for (number, span) in profile.timespans.iter().enumerate() {
        let result = run.span(number, span, observer)?;
        let stopped = result.stopped;
        results.push(result);
        if stopped {
            break;
        }
    }
    Ok(results)
}

/// The files that are created before the first time span, with their sizes.
fn precreated(profile: &Profile) -> Vec<(String, Target, u64)> {
    let Some(which) = profile.precreate else { return Vec::new() };
    let mut files: Vec<(String, Target, Vec<u64>)> = Vec::new();
    for target in profile.timespans.iter().flat_map(|s| &s.targets) {
        let size = target.create.unwrap_or(0);
        match files.iter_mut().find(|f| f.0 == target.path) {
            Some(file) => file.2.push(size),
            None => files.push((target.path.clone(), target.clone(), vec![size])),
        }
    }
    let chosen = files.into_iter().filter_map(|(path, target, sizes)| {
        let largest = sizes.iter().copied().max().filter(|s| *s > 0)?;
        let constant = match which {
            Precreate::UseMaxSize => true,
            Precreate::OnlyFilesWithConstantSizes => sizes.iter().all(|s| *s == largest),
            Precreate::OnlyFilesWithConstantOrZeroSizes => sizes.iter().all(|s| *s == largest || *s == 0),
        };
        constant.then_some((path, target, largest))
    });
    chosen.collect()
}

struct Run<'a> {
    profile: &'a Profile,
    settings: &'a Settings,
    env: Env,
    created: HashSet<String>,
    ledgers: Arc<Ledgers>,
}

/// Processor times at one point in time.
struct CpuSample {
    system: Vec<(u32, CpuTimes)>,
    processes: Vec<(u32, String, Duration)>,
}

impl Run<'_> {
    fn place(&self, target: &Target) -> TargetLocation {
        self.settings.places.get(&target.path).cloned().unwrap_or(TargetLocation::Local)
    }

    fn create(&mut self, target: &Target, size: u64, observer: &mut dyn Observer) -> Result<(), RunError> {
        let path = &target.path;
        let failed = |source| RunError::Create { path: path.clone(), source };
        let stamp = self.settings.verify.then(|| self.ledgers.seed());
        let fill = (!self.settings.sparse).then(|| Fill::new(&target.content, stamp));
        let stop = &self.settings.stop;
        let mut done = |done| {
            observer.creating(path, done, size);
            !stop.load(Ordering::Relaxed)
        };
        let written = match self.place(target) {
            TargetLocation::Smb(place) => smb::create(&place, size, target.create_if_missing, fill, done)?,
            TargetLocation::Fabric(place) => {
                Err(OpenError::KeepsNothing { place: place.to_string(), option: "-c" })?
            }
            TargetLocation::Local => {
                let large_enough = std::fs::metadata(path).is_ok_and(|m| m.len() >= size);
                if target.create_if_missing && large_enough {
                    return Ok(());
                }
                create::create(Path::new(path), size, fill, &mut done).map_err(failed)?
            }
        };
        if written {
            self.ledgers.stamped(path);
        }
        Ok(())
    }

    fn span(
        &mut self,
        number: usize,
        span: &TimeSpan,
        observer: &mut dyn Observer,
    ) -> Result<SpanResults, RunError> {
        for target in &span.targets {
            let size = target.create.unwrap_or(0);
            if size > 0 && !self.created.contains(&target.path) {
                self.create(target, size, observer)?;
            }
        }
        let mut random = Random::new(span.seed.into());
        let mut lanes = Vec::with_capacity(span.targets.len());
        for target in &span.targets {
            let source = Memory::source(&target.content, target.block, &mut random, target.large_pages);
            let large =
                |e: &std::io::Error| target.large_pages && e.kind() == std::io::ErrorKind::OutOfMemory;
            let source = source.map_err(|source| RunError::Source { large: large(&source), source });
            let source = Arc::new(source?);
            lanes.push((Lane { target: target.clone(), place: self.place(target), source }, Arc::default()));
        }
        let gate = Arc::new(Gate::default());
        let halt = Arc::new(AtomicBool::new(false));
        let (ready, readiness) = mpsc::channel();
        let mut threads: Vec<JoinHandle<Result<(ThreadResults, u64), RunError>>> = Vec::new();
        let mut live_counts = Vec::new();
        let mut failure = None;
        for plan in plan::threads(span, &system::allowed()) {
            let live = Arc::new(LiveCounts::default());
            let start = ThreadStart {
                env: self.env.clone(),
                lanes: plan.lanes.iter().map(|(n, weight)| (lanes[*n].clone(), *weight)).collect(),
                span: span.clone(),
                progress: self.profile.progress,
                verify: self.settings.verify,
                open: self.settings.open,
                ledgers: self.ledgers.clone(),
                live: live.clone(),
                halt: halt.clone(),
                gate: gate.clone(),
                ready: ready.clone(),
                plan,
            };
            let name = format!("bench-{}", start.plan.number);
            match Builder::new().name(name).spawn(move || start.run()) {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    failure = Some(RunError::Thread(e));
                    break;
                }
            }
            live_counts.push(live);
        }
        drop(ready);
        let mut engines: Vec<String> = Vec::new();
        let mut all_ready = failure.is_none();
        for _ in 0..threads.len() {
            // A thread that is not ready returns its error when it is joined.
            match readiness.recv() {
                Ok(Some(engine)) if !engines.contains(&engine) => engines.push(engine),
                Ok(Some(_)) => {}
                Ok(None) | Err(mpsc::RecvError) => all_ready = false,
            }
        }
        let mut result = SpanResults { engine: engines.join("; "), ..SpanResults::default() };
        if all_ready {
            let began = self.timed(number, span, &gate, &halt, &live_counts, observer, &mut result);
            failure = began.err();
        }
        if failure.is_some() || !all_ready {
            halt.store(true, Ordering::Relaxed);
            gate.abort();
        }
        for thread in threads {
            match thread.join() {
                Ok(Ok((found, unfinished))) => {
                    result.threads.push(found);
                    result.unfinished += unfinished;
                }
                Ok(Err(e)) => {
                    failure.get_or_insert(e);
                }
                Err(_) => {
                    failure.get_or_insert(RunError::Panicked);
                }
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        for target in result.threads.iter_mut().flat_map(|t| &mut t.targets) {
            target.read.buckets.end(result.elapsed);
            target.write.buckets.end(result.elapsed);
        }
        Ok(result)
    }

    /// Runs from the time when all threads are ready to the end of the cool-down.
    fn timed(
        &self,
        number: usize,
        span: &TimeSpan,
        gate: &Gate,
        halt: &AtomicBool,
        live_counts: &[Arc<LiveCounts>],
        observer: &mut dyn Observer,
        result: &mut SpanResults,
    ) -> Result<(), RunError> {
        self.sample()?; // reports a missing process before the run instead of after it
        let begin = self.env.now() + Duration::from_millis(1);
        let seconds = |n: u32| Duration::from_secs(n.into());
        let measure = begin + seconds(span.warmup_s);
        let measured = measure + self.settings.measured.unwrap_or(seconds(span.duration_s));
        let end = measured + seconds(span.cooldown_s);
        gate.go(Timeline { begin, measure, measured, end });
        let (mut before, mut after) = (None, None);
        let mut next_tick = begin;
        loop {
            let now = self.env.now();
            if self.settings.stop.load(Ordering::Relaxed) && !halt.swap(true, Ordering::Relaxed) {
                result.stopped = true;
            }
            let over = now >= end || halt.load(Ordering::Relaxed);
            if before.is_none() && now >= measure {
                before = Some((now, self.sample()?));
                observer.measures(true);
            }
            if before.is_some() && after.is_none() && (now >= measured || over) {
                after = Some((now, self.sample()?));
                observer.measures(false);
            }
            if now >= next_tick || over {
                observer.tick(&tick(number, now, begin, measure, measured, end, live_counts));
                next_tick = now + TICK;
            }
            if over {
                break;
            }
            let next = [measure, measured, end, next_tick].into_iter().filter(|t| *t > now).min();
            std::thread::sleep(next.unwrap_or(end).saturating_duration_since(now));
        }
        if let (Some((_, before)), Some((at, after))) = (before, after) {
            result.elapsed = at.min(measured).saturating_duration_since(measure);
            result.cpu = after.system.iter().zip(&before.system).map(|(a, b)| a.1.since(&b.1)).collect();
            let processes = after.processes.into_iter().zip(before.processes);
            let time = |((pid, name, a), (_, _, b)): ((u32, String, Duration), (u32, String, Duration))| {
                ProcessCpu { pid, name, cpu_s: a.saturating_sub(b).as_secs_f64() }
            };
            result.processes = processes.map(time).collect();
        }
        Ok(())
    }

    fn sample(&self) -> Result<CpuSample, RunError> {
        let mut processes = Vec::new();
        for pid in std::iter::once(std::process::id()).chain(self.settings.pids.iter().copied()) {
            let (name, time) = cpu::process(pid).map_err(|source| RunError::Process { pid, source })?;
            processes.push((pid, name, time));
        }
        Ok(CpuSample { system: cpu::system().unwrap_or_default(), processes })
    }
}

fn tick(
    span: usize,
    now: Instant,
    begin: Instant,
    measure: Instant,
    measured: Instant,
    end: Instant,
    live_counts: &[Arc<LiveCounts>],
) -> Tick {
    let phase = if now < measure {
        Phase::WarmUp
    } else if now < measured {
        Phase::Measuring
    } else {
        Phase::CoolDown
    };
    let sum =
        |of: fn(&LiveCounts) -> &AtomicU64| live_counts.iter().map(|l| of(l).load(Ordering::Relaxed)).sum();
    Tick {
        span,
        phase,
        elapsed: now.saturating_duration_since(begin),
        total: end - begin,
        ios: sum(|l| &l.ios),
        bytes: sum(|l| &l.bytes),
        errors: sum(|l| &l.errors),
        dots: sum(|l| &l.dots),
    }
}
