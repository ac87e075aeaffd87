//! `causeway counters`: performance counters, in the style of Windows's Get-Counter, typeperf and relog.

mod csv;
mod plot;
mod recording;
mod select;
mod series;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use counters::Snapshot;
use env::Env;

use super::ControlArgs;
use crate::control::client::ControlClient;
use crate::failure::Failure;
use crate::output::Output;
use recording::{Recorder, load};
use select::Selection;
pub(super) use series::Series;
use series::series;
pub(super) use table::{Definition, Sample};

#[derive(Debug, Args)]
pub(super) struct CountersArgs {
    #[command(flatten)]
    control: ControlArgs,
    /// Sets, such as "SMB Server Shares" or smb-direct, or paths, such as '\SMB Server Shares(*)\Read Bytes/sec'
    /// [default: all]
    #[arg(value_name = "SET")]
    sets: Vec<String>,
    /// Show only this instance; * matches any characters
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Take samples until Ctrl-C, one every SECONDS (0.05 to 86400) [default without a number: 1]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    watch: Option<f64>,
    /// Stop after this number of samples
    #[arg(long, value_name = "SAMPLES")]
    count: Option<u64>,
    /// Write samples to a file until Ctrl-C: a .csv file in the layout of typeperf, else one line of JSON for each
    /// sample
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<PathBuf>,
    /// Show a recording instead of a running server
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Draw charts on the terminal, or with --plot=FILE into a file (.svg or .html)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = drawing)]
    plot: Option<PathBuf>,
    /// Explain each counter; needs no running server
    #[arg(long)]
    definitions: bool,
}

/// A file that can be drawn to.
fn drawing(text: &str) -> Result<PathBuf, &'static str> {
    match text == "-" || text.ends_with(".svg") || text.ends_with(".html") {
        true => Ok(PathBuf::from(text)),
        false => Err("name a file that ends in .svg or .html"),
    }
}

/// Default seconds between two samples, as in typeperf.
const INTERVAL_S: f64 = 1.0;
/// Seconds between two samples at least and at most.
const INTERVAL_RANGE_S: std::ops::RangeInclusive<f64> = 0.05..=86_400.0;
/// Samples of a plot without --count and --watch.
const PLOT_SAMPLES: u64 = 30;

pub(super) async fn run(args: CountersArgs, out: Output) -> Result<(), Failure> {
    let selection = Selection::new(&args.sets, args.instance.as_deref())
        .ok_or(Failure::Usage("unknown set or counter: see causeway counters --definitions"))?;
    if args.definitions {
        return table::definitions(&selection, out);
    }
    if let Some(file) = &args.replay {
        return show(&args, out, load(file, &selection)?);
    }
    let interval = args.watch.unwrap_or(INTERVAL_S);
    if !INTERVAL_RANGE_S.contains(&interval) {
        return Err(Failure::Usage("--watch takes 0.05 to 86400 seconds"));
    }
    let source = Source {
        client: args.control.client(),
        env: Env::real(),
        interval: Duration::from_secs_f64(interval),
        left: match (args.count, args.watch.is_some() || args.record.is_some()) {
            (Some(n), _) => n,
            (None, true) => u64::MAX,
            (None, false) if args.plot.is_some() => PLOT_SAMPLES,
            (None, false) => 1,
        },
    };
    match (&args.record, &args.plot) {
        (Some(file), _) => record(source, Recorder::create(file, &selection)?).await,
        (None, Some(_)) => {
            let mut snapshots = Vec::new();
            source
                .each(|s| {
                    snapshots.push(s.clone());
                    Ok(())
                })
                .await?;
            show(&args, out, series(&snapshots, &selection))
        }
        (None, None) => watch(source, &selection, out, args.watch.is_some()).await,
    }
}

/// Repeated requests to a running server.
struct Source {
    client: ControlClient,
    env: Env,
    interval: Duration,
    /// Remaining samples; each needs the snapshot before it.
    left: u64,
}

impl Source {
    /// Passes each snapshot to `take` until all samples are taken or Ctrl-C.
    async fn each(mut self, mut take: impl FnMut(&Snapshot) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut due = self.env.now();
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        loop {
            take(&self.client.get("/v1/counters").await?)?;
            if self.left == 0 {
                return Ok(());
            }
            self.left -= 1;
            due += self.interval;
            tokio::select! {
                () = self.env.sleep_until(due) => {}
                _ = &mut interrupted => return Ok(()),
            }
        }
    }
}

async fn watch(source: Source, selection: &Selection, out: Output, clear: bool) -> Result<(), Failure> {
    let mut last: Option<Snapshot> = None;
    source
        .each(|snapshot| {
            if let Some(before) = &last {
                table::sample(selection, before, snapshot, out, clear)?;
            }
            last = Some(snapshot.clone());
            Ok(())
        })
        .await
}

async fn record(source: Source, mut recorder: Recorder<'_>) -> Result<(), Failure> {
    source.each(|snapshot| recorder.write(snapshot)).await?;
    recorder.finish()
}

/// Prints or draws a recording.
fn show(args: &CountersArgs, out: Output, series: Vec<Series>) -> Result<(), Failure> {
    match &args.plot {
        Some(file) if file.as_os_str() != "-" => std::fs::write(file, plot::file(file, &series))
            .map_err(|source| Failure::Local { path: file.clone(), source }),
        drawn => table::recording(&series, drawn.is_some(), out),
    }
}
