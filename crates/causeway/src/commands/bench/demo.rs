//! `causeway bench demo`: well-known demonstrations of SMB Direct, one after the other, with a table that is
//! repainted as they run.
//!
//! Without a target it starts a server on loopback and stops it at the end. This local server is a separate process, so
//! that the processor time of each side is known. With a target it uses that server, and removes its files at the end.

mod place;
mod pool;
mod screen;
mod server;
mod table;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bench::demo::{ALL, Demonstration, FULL_THREADS, Row, Transport, Volume};
use bench::engine::{self, Settings, TargetLocation};
use clap::Parser;
use smb_client::TransportChoice;

use super::interrupt;
use crate::failure::Failure;
use crate::output::{Output, complain, human_bytes};
use crate::remote::RemoteArgs;
use place::Places;
use pool::PoolPlan;
use screen::{Screen, Watch};
pub(super) use server::leave;
pub(in crate::commands) use table::Report;

/// The shortest measurement, in seconds.
const SECONDS_MIN: f64 = 0.05;
const SECONDS_MAX: f64 = 86_400.0;
/// If all files together have at least this size in bytes, the time to write them is printed first.
const LONG_TO_WRITE: u64 = 64 << 30;
/// The assumed write rate of a disk for that time, in bytes per second.
const RATE: u64 = 1_000_000_000;

/// Repeat well-known demonstrations of SMB Direct, over TCP and over SMB Direct, and show the published figures
/// beside the results
#[derive(Debug, Parser)]
#[command(name = "causeway bench demo", no_binary_name = true)]
#[command(override_usage = "causeway bench demo [OPTIONS] [TARGET]")]
pub(super) struct DemoArgs {
    /// Directory of a share to use instead of a local server: smb://user@host/share/directory; --transport auto
    /// measures both transports
    target: Option<String>,
    /// Directory of a share whose I/O completes without a disk, for the demonstrations that used such a volume
    /// [default: TARGET]
    #[arg(long, value_name = "TARGET", requires = "target")]
    null: Option<String>,
    /// Seconds to measure each demonstration [default: 2; with --full 60]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Seconds that each demonstration runs before it is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    warmup: u32,
    /// Number of threads; each has its own connection and file [default: one for each processor, at most 16;
    /// with --full 16]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Size of each file, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    size: u64,
    /// Use the original sizes: 16 files of 128 GiB
    #[arg(long, conflicts_with = "size")]
    full: bool,
    /// Create sparse files: they take no disk space, and reads need no disk I/O
    #[arg(long)]
    sparse: bool,
    /// Run only these demonstrations, by number (S3-20)
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', value_parser = known)]
    only: Vec<String>,
    /// Directory for the files of the local server [default: the temporary directory]
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "target")]
    directory: Option<PathBuf>,
    /// Process id of the target's server, if it runs on this machine; shows its processor time
    #[arg(long, value_name = "PID", requires = "target")]
    pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

fn seconds(text: &str) -> Result<f64, String> {
    let n: f64 = text.parse().map_err(|_| "a number of seconds is needed".to_owned())?;
    let range = SECONDS_MIN..=SECONDS_MAX;
    if range.contains(&n) { Ok(n) } else { Err(format!("{SECONDS_MIN} to {SECONDS_MAX} seconds")) }
}

fn known(text: &str) -> Result<String, String> {
    let all = || ALL.iter().map(|d| d.id);
    match all().find(|id| id.eq_ignore_ascii_case(text)) {
        Some(id) => Ok(id.to_owned()),
        None => Err(format!("the demonstrations are {}", all().collect::<Vec<_>>().join(", "))),
    }
}

/// Runs the demonstrations and prints the report.
///
/// # Errors
/// See [`Failure`]; [`Failure::BenchWrong`] where an I/O failed.
pub(super) fn run(words: &[String], out: Output) -> Result<(), Failure> {
    let args = match DemoArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(e) => e.exit(),
    };
    let stop = interrupt::listen()?;
    let shown = args.shown();
    if shown.is_empty() {
        return Err(Failure::Usage("a demonstration with a pool needs the local server: omit TARGET"));
    }
    let places = Places::new(&args, &shown)?;
    let bytes = args.storage_bytes(&shown) + args.pool_plan(&shown).map_or(0, |plan| plan.written());
    if bytes >= LONG_TO_WRITE && !args.quiet {
        let minutes = bytes / (60 * RATE);
        complain(&format!(
            "writing {} of files first takes {minutes} minutes at 1 GB/s, longer on a slower disk: --sparse avoids that",
            human_bytes(bytes)
        ));
    }
    let plan: Vec<(&Demonstration, Transport)> = shown
        .iter()
        .flat_map(|d| d.transports().iter().map(move |t| (*d, *t)))
        .filter(|(_, t)| args.wants(*t))
        .collect();
    let mut screen = Screen::new(args.quiet);
    let mut rows: Vec<Row> = Vec::with_capacity(plan.len());
    let mut failure = None;
    for (n, (d, transport)) in plan.iter().enumerate() {
        let what = format!("{} of {}: {} over {}", n + 1, plan.len(), d.name, transport.name());
        let (paths, smb) = places.of(d, *transport, args.threads());
        let profile = d.profile(&paths, d.size(args.small()), args.measured().as_secs() as u32, args.warmup);
        let settings = Settings {
            places: paths
                .into_iter()
                .zip(smb.into_iter().map(|p| TargetLocation::Smb(Arc::new(p))))
                .collect::<HashMap<_, _>>(),
            pids: places.server_pid().into_iter().collect(),
            stop: stop.clone(),
            measured: Some(args.measured()),
            sparse: args.sparse,
            ..Settings::default()
        };
        let mut run = || {
            let reads = || places.pool_reads(d);
            let mut watch = Watch::new(&mut screen, &rows, &what, &reads);
            let spans = engine::run(&profile, &settings, &mut watch);
            let spans = spans.map_err(|e| Failure::Bench(Box::new(e)))?;
            Ok((spans, watch.pool_cost()?))
        };
        match run() {
            Ok((spans, pool)) => {
                let row = |s| Row { pool, ..Row::new(d, *transport, s, places.server_pid()) };
                rows.extend(spans.iter().map(row));
            }
            Err(e) => failure = Some(e),
        }
        if failure.is_some() || stop.load(Ordering::Relaxed) {
            break;
        }
        if let Some(row) = rows.last() {
            screen.done(&what, row);
        }
    }
    screen.clear();
    let left = places.remove();
    if let Some(failure) = failure {
        return Err(failure);
    }
    left?;
    let report = Report::new(&args, &rows, plan.len());
    report.print(Output { json: out.json || args.json })?;
    let errors: u64 = rows.iter().map(|r| r.errors).sum();
    if errors > 0 { Err(Failure::BenchWrong { errors, mismatches: 0 }) } else { Ok(()) }
}

impl DemoArgs {
    fn shown(&self) -> Vec<&'static Demonstration> {
        let wanted = |d: &&Demonstration| self.only.is_empty() || self.only.iter().any(|id| id == d.id);
        // Only the local server has a pool.
        ALL.iter().filter(|d| wanted(d) && (d.volume != Volume::Pool || self.target.is_none())).collect()
    }

    fn wants(&self, transport: Transport) -> bool {
        match self.remote.transport() {
            TransportChoice::Auto => true,
            TransportChoice::Tcp => !transport.is_direct(),
            TransportChoice::Rdma => transport.is_direct(),
        }
    }

    fn measured(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(if self.full { 60.0 } else { 2.0 }))
    }

    fn threads(&self) -> u32 {
        let processors =
            || std::thread::available_parallelism().map_or(1, |n| n.get().min(FULL_THREADS as usize));
        self.threads.unwrap_or_else(|| if self.full { FULL_THREADS } else { processors() as u32 })
    }

    /// Size of a file in bytes; `None`: the original size.
    fn small(&self) -> Option<u64> {
        (!self.full).then_some(self.size << 20)
    }

    /// Bytes that the files on storage take.
    fn storage_bytes(&self, shown: &[&Demonstration]) -> u64 {
        let written = |&size: &u64| if self.sparse { 0 } else { size };
        self.sizes(shown, Volume::Storage).iter().map(written).sum::<u64>() * u64::from(self.threads())
    }

    /// The pool for the virtual disks, if the demonstrations use any.
    fn pool_plan(&self, shown: &[&Demonstration]) -> Option<PoolPlan> {
        let sizes = self.sizes(shown, Volume::Pool);
        (!sizes.is_empty()).then(|| PoolPlan::new(&sizes, self.threads(), self.sparse))
    }

    /// Bytes of a thread's files on a volume.
    fn sizes(&self, shown: &[&Demonstration], volume: Volume) -> Vec<u64> {
        let on_it = shown.iter().filter(|d| d.volume == volume);
        let files: BTreeMap<_, _> = on_it.map(|d| (d.file(1), d.size(self.small()))).collect();
        files.into_values().collect()
    }
}
