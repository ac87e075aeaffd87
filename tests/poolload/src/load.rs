//! A closed loop with a fixed number of outstanding I/Os; each completed one is followed by the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arena::passes::{self, Counts as Passes};
use arena::{Class, SgMut};
use disk::sized;
use env::Ctx;
use pool::{SpaceId, UNIT};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{Value, json};
use space::blocks::ContentId;

use crate::Failure;
use crate::bench::{Bench, SOURCE, context};
use crate::devices::Counts;

/// The load on a space.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    write: bool,
    /// Random offsets if true; otherwise each I/O continues where the previous one of all tasks ended.
    random: bool,
    block: usize,
    depth: usize,
    /// Duration in seconds; 0: until stopped.
    pub seconds: f64,
    /// Uses only this many bytes at the beginning of the space; default: all.
    span: Option<u64>,
    /// How each write is made durable before it counts.
    #[serde(default)]
    sync: Sync,
}

/// See [`Load`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sync {
    #[default]
    None,
    /// The write is write-through.
    Through,
    /// A flush follows the write.
    Flush,
}

/// The result of a load; for writes, the flush at the end is included.
pub struct Outcome {
    seconds: f64,
    cpu: f64,
    block: usize,
    latencies: Vec<u32>,
    disks: Counts,
    passes: Passes,
}

/// The shared state of a load's tasks.
struct Shared {
    /// The next block in sequential order.
    next: AtomicU64,
    stop: AtomicBool,
}

/// A running load.
pub struct Running {
    load: Load,
    space: usize,
    began: Instant,
    cpu: f64,
    disks: Counts,
    passes: Passes,
    shared: Arc<Shared>,
    /// Each task returns the latencies of its I/Os.
    tasks: Vec<tokio::task::JoinHandle<Result<Vec<u32>, Failure>>>,
}

impl Load {
    /// Runs for the given time.
    pub async fn run(&self, bench: &Bench) -> Result<Outcome, Failure> {
        self.run_on(bench, 0).await
    }

    async fn run_on(&self, bench: &Bench, space: usize) -> Result<Outcome, Failure> {
        let running = self.start_on(bench, space)?;
        bench.env.sleep(Duration::from_secs_f64(self.seconds)).await;
        running.finish(bench).await
    }

    /// Runs the load on all spaces at the same time, each from its own thread and runtime, like the server's
    /// workers. Returns the total I/Os per second.
    pub async fn run_on_threads(&self, bench: &Arc<Bench>) -> Result<f64, Failure> {
        let (mut all, mut iops) = (Vec::new(), 0.0);
        for space in 0..bench.spaces.len() {
            let (load, bench, (done, result)) = (*self, Arc::clone(bench), tokio::sync::oneshot::channel());
            std::thread::Builder::new().name(format!("load-{space}")).spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let outcome = runtime.block_on(load.run_on(&bench, space));
                drop(done.send(outcome.map(|o| o.latencies.len() as f64 / o.seconds)));
                std::io::Result::Ok(())
            })?;
            all.push(result);
        }
        for result in all {
            iops += result.await??;
        }
        Ok(iops)
    }

    /// Starts the load, which runs until [`Running::finish`].
    pub fn start(&self, bench: &Bench) -> Result<Running, Failure> {
        self.start_on(bench, 0)
    }

    fn start_on(&self, bench: &Bench, space: usize) -> Result<Running, Failure> {
        let used = &bench.spaces[space];
        let size = self.span.unwrap_or(u64::MAX).min(used.info().geometry.size);
        let shared = Arc::new(Shared { next: AtomicU64::new(0), stop: AtomicBool::new(false) });
        let (disks, passes) = (bench.counts(), passes::counts());
        let mut tasks = Vec::new();
        for _ in 0..self.depth {
            let dst = bench.arena.try_alloc_sg(self.block, Class::Payload).ok_or("the depth is too much")?;
            let dst = sized(dst, self.block);
            let (load, space, env, shared, source) =
                (*self, Arc::clone(used), bench.env.clone(), Arc::clone(&shared), bench.source.clone());
            let mut random = bench.env.random_u64() | 1;
            tasks.push(tokio::spawn(async move {
                let through = context(load.sync == Sync::Through);
                let (mut dst, mut latencies): (SgMut, _) = (dst, Vec::with_capacity(1 << 16));
                while !shared.stop.load(Ordering::Relaxed) {
                    let chance = xorshift(&mut random);
                    let at = load.place(size, chance, &shared);
                    let began = env.now();
                    let result = if load.write {
                        // A buffer for each outstanding write, as in fio.
                        let buffers = load.depth.min(SOURCE / load.block);
                        let from = (chance >> 20) as usize % buffers * load.block;
                        let src = [source.slice(from..from + load.block)].into_iter().collect();
                        let written = space.write(&through, at, src).wait().await;
                        match load.sync {
                            Sync::Flush if written.is_ok() => space.flush(&through).wait().await,
                            _ => written,
                        }
                    } else {
                        let (result, back) = space.read(&through, at, dst).wait().await;
                        dst = back;
                        result
                    };
                    result?;
                    let took = (env.now() - began).as_micros();
                    latencies.push(u32::try_from(took).unwrap_or(u32::MAX));
                }
                Ok(latencies)
            }));
        }
        Ok(Running { load: *self, space, began: bench.env.now(), cpu: cpu(), disks, passes, shared, tasks })
    }

    /// The offset of the next I/O.
    fn place(&self, size: u64, chance: u64, shared: &Shared) -> u64 {
        let number = if self.random { chance >> 16 } else { shared.next.fetch_add(1, Ordering::Relaxed) };
        number % (size / self.block as u64) * self.block as u64
    }
}

impl Running {
    /// Waits for outstanding I/Os, flushes writes, and computes the result.
    pub async fn finish(self, bench: &Bench) -> Result<Outcome, Failure> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut latencies = Vec::new();
        for task in self.tasks {
            latencies.append(&mut task.await??);
        }
        if self.load.write {
            bench.spaces[self.space].flush(&Ctx::default()).wait().await?;
        }
        let (seconds, cpu) = ((bench.env.now() - self.began).as_secs_f64(), cpu() - self.cpu);
        let now = passes::counts();
        let passes = Passes { crc: now.crc - self.passes.crc, copy: now.copy - self.passes.copy, ..now };
        latencies.sort_unstable();
        let disks = bench.counts().each(self.disks, |a, b| a - b);
        Ok(Outcome { seconds, cpu, block: self.load.block, latencies, disks, passes })
    }
}

impl Outcome {
    /// The printed form.
    pub fn to_json(&self) -> Value {
        let ios = self.latencies.len() as f64;
        let bytes = ios * self.block as f64;
        let at = |share: f64| self.latencies.get((ios * share) as usize).copied().unwrap_or(0);
        json!({
            "ios": self.latencies.len(), "seconds": self.seconds, "cpu_s": self.cpu,
            "iops": ios / self.seconds, "bytes_per_second": bytes / self.seconds,
            "per_core": ios / self.cpu, "cpu_us": self.cpu / ios * 1e6,
            "p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999),
            "disks": self.disks, "disk_ios_per_io": (self.disks.reads + self.disks.writes) as f64 / ios,
            "crc_passes": self.passes.crc as f64 / bytes, "copy_passes": self.passes.copy as f64 / bytes,
        })
    }
}

/// The next number of xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled".
pub fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Processor time of this process so far, including system time, in seconds.
pub fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Processor time of the checksum of one unit that is not in the cache, in microseconds.
pub fn checksum_us(bench: &Bench) -> f64 {
    const TURNS: usize = 32;
    let unit = UNIT as usize;
    let (units, before) = (SOURCE / unit, cpu());
    let content = ContentId { space: SpaceId(1), birth: 1, content: 0 };
    let mut all = 0;
    for _ in 0..TURNS {
        for (n, bytes) in bench.source.chunks_exact(unit).enumerate() {
            all ^= content.checksum(n as u32, bytes);
        }
    }
    std::hint::black_box(all);
    (cpu() - before) / (TURNS * units) as f64 * 1e6
}
