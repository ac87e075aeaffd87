//! `causeway bench`: load with DiskSPD's options, on local files, files of servers and fabrics.
//!
//! DiskSPD's options are single letters with their value attached (`-b4K`); Causeway's have two dashes. Both may
//! be mixed in any order before the targets. `causeway bench demo` and `causeway bench listen` are separate
//! commands with their own options: see [`demo`] and [`listen`].

mod demo;
mod interrupt;
mod listen;
mod observer;
mod words;

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bench::engine::{self, Settings, SmbFile, SpanResults, SystemInfo, TargetLocation};
use bench::fabric::FabricAddress;
use bench::options::{self, ParseContext, Parsed};
use bench::profile::{Format, Profile};
use bench::report::{self, Report};
use clap::{Args, CommandFactory, Parser};
use env::Env;

use crate::failure::Failure;
use crate::output::{Output, complain};
use crate::remote::RemoteArgs;
use crate::url::Location;
pub(super) use demo::Report as DemoReport;
use observer::Progress;

/// See the module. [`run`] interprets these arguments.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(super) struct BenchArgs {
    /// Options and targets: see causeway bench --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS... TARGETS")]
    words: Vec<String>,
}

/// Generate I/O load on files, block devices, shares and fabrics, with DiskSPD's options
#[derive(Debug, Parser)]
#[command(name = "causeway bench", no_binary_name = true, after_help = options::USAGE)]
#[command(
    override_usage = "causeway bench [--OPTIONS] [-DISKSPD OPTIONS] TARGET...\n       causeway bench demo --help\n       causeway bench listen --help"
)]
struct Options {
    /// Interpret the options as SQLIO's, and print their DiskSPD equivalents
    #[arg(long)]
    sqlio: bool,
    /// Write a stamp into each sector, and check it on each read
    #[arg(long)]
    verify: bool,
    /// Allow writes to block devices among the targets; all data on them is lost
    #[arg(long)]
    overwrite_devices: bool,
    /// Also report the processor time of these processes, for example of the server
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Invalidate each registered buffer at the client instead of at the server (SMB2_CHANNEL_RDMA_V1)
    #[arg(long)]
    local_invalidate: bool,
    /// Sign only if the server requires it, like most other clients; without signing no MAC is computed
    #[arg(long)]
    unsigned: bool,
    /// Print JSON (-Rjson)
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) fn run(args: BenchArgs, out: Output) -> Result<(), Failure> {
    if args.words.first().is_some_and(|w| w == "demo") {
        return demo::run(&args.words[1..], out);
    }
    if args.words.first().is_some_and(|w| w == "listen") {
        return listen::run(&args.words[1..]);
    }
    let (ours, theirs) = words::split(args.words, &Options::command());
    if theirs.iter().any(|w| w == "-?") || (ours.is_empty() && theirs.is_empty()) {
        return help();
    }
    let options = match Options::try_parse_from(ours) {
        Ok(options) => options,
        Err(e) => e.exit(),
    };
    let env = Env::real();
    let context = ParseContext {
        read: &|path| std::fs::read_to_string(path),
        seed: env.unix_time().as_millis() as u32,
    };
    let mut parsed = if options.sqlio {
        options::sqlio::parse(&theirs, &context)
    } else {
        options::parse(&theirs, &context)
    }
    .map_err(|e| Failure::BenchOptions(Box::new(e)))?;
    if options.json || out.json {
        parsed.profile.format = Format::Json;
    }
    for warning in &parsed.warnings {
        complain(&format!("warning: {warning}"));
    }
    if parsed.profile.profile_only {
        return print(&profile(&parsed.profile)?);
    }
    if options.sqlio && parsed.profile.format == Format::Text {
        let lines: String = parsed.mappings.iter().map(|m| format!("{m}\n")).collect();
        print(&format!("SQLIO options and their DiskSPD equivalents:\n{lines}"))?;
    }
    let settings = Settings {
        places: places(&parsed.profile, &options)?,
        verify: options.verify,
        overwrite_devices: options.overwrite_devices,
        pids: options.pid.clone(),
        stop: interrupt::listen()?,
        ..Settings::default()
    };
    let system = SystemInfo::read(env.unix_time());
    let mut progress = Progress::new(&parsed.profile, options.quiet);
    let results = engine::run(&parsed.profile, &settings, &mut progress);
    progress.finish();
    let results = results.map_err(|e| Failure::Bench(Box::new(e)))?;
    print(&written(&parsed, &system, &results, options.sqlio)?)?;
    judge(&results)
}

fn help() -> Result<(), Failure> {
    print(&Options::command().render_help().to_string())
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

fn json(e: serde_json::Error) -> Failure {
    Failure::System(e.into())
}

fn profile(profile: &Profile) -> Result<String, Failure> {
    match profile.format {
        Format::Text => Ok(report::text::profile(profile)),
        Format::Xml => Ok(report::xml::profile(profile)),
        Format::Json => report::json::profile(profile).map_err(json),
    }
}

fn written(
    parsed: &Parsed,
    system: &SystemInfo,
    spans: &[SpanResults],
    sqlio: bool,
) -> Result<String, Failure> {
    let report = Report { profile: &parsed.profile, system, spans };
    match parsed.profile.format {
        Format::Json => report::json::report(&report, &parsed.mappings, &parsed.warnings).map_err(json),
        Format::Xml => Ok(report::xml::report(&report)),
        Format::Text => {
            let mut text = report::text::report(&report);
            for span in spans.iter().filter(|_| sqlio) {
                text.push('\n');
                text.push_str(&report::sqlio::summary(span));
            }
            Ok(text)
        }
    }
}

/// The targets on other machines. The password is requested once for each server.
fn places(profile: &Profile, of: &Options) -> Result<HashMap<String, TargetLocation>, Failure> {
    let mut places = HashMap::new();
    let mut known: Vec<(Location, smb_client::ConnectOptions)> = Vec::new();
    for target in profile.timespans.iter().flat_map(|s| &s.targets) {
        if !target.is_remote() || places.contains_key(&target.path) {
            continue;
        }
        if FabricAddress::is_meant(&target.path) {
            let place = target.path.parse().map_err(Failure::FabricAddress)?;
            places.insert(target.path.clone(), TargetLocation::Fabric(place));
            continue;
        }
        let at = Location::parse(&target.path)?;
        at.file_name()?;
        let same =
            |l: &Location| (&l.host, l.port, &l.user, &l.domain) == (&at.host, at.port, &at.user, &at.domain);
        let options = match known.iter().find(|k| same(&k.0)) {
            Some((_, options)) => options.clone(),
            None => {
                let mut options = of.remote.options(&at)?;
                options.remote_invalidation = !of.local_invalidate;
                options.require_signing = !of.unsigned;
                known.push((at.clone(), options.clone()));
                options
            }
        };
        let share = at.share()?.to_owned();
        let place = SmbFile { host: at.host.clone(), share, path: at.path.to_string(), options };
        places.insert(target.path.clone(), TargetLocation::Smb(Arc::new(place)));
    }
    Ok(places)
}

/// A run with I/O errors is a failure, although its results are printed.
fn judge(results: &[SpanResults]) -> Result<(), Failure> {
    let errors: u64 = results.iter().map(SpanResults::errors).sum();
    let mismatches = results.iter().filter_map(SpanResults::verified).map(|v| v.mismatches).sum();
    if errors > 0 || mismatches > 0 { Err(Failure::BenchWrong { errors, mismatches }) } else { Ok(()) }
}

/// The remaining time in seconds, for the display.
fn left(total: Duration, elapsed: Duration) -> u64 {
    total.saturating_sub(elapsed).as_secs()
}
