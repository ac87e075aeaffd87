//! The JSON report: one document.
//!
//! | member | what |
//! |---|---|
//! | `tool`, `version` | `causeway bench` and its version |
//! | `system` | this machine: name, start (seconds since 1970), governor, processors |
//! | `profile` | the requested run, as [`crate::profile::Profile`] |
//! | `mappings` | how options of SQLIO were translated |
//! | `warnings` | options accepted without effect |
//! | `timespans` | the results of each time span |
//!
//! A time span has `test_time_s`, `engine`, `stopped`, `cpu` (percent, by processor, in the order of
//! `system.processors`), `cpu_average`, `processes` (`cpu_s`, `us_per_io`), `read`, `write`, `total`,
//! `service` (open loop: latency measured from the actual submission), `short`, `unfinished`, `overdue`,
//! `errors` (`what`, `count`), `verified`, `work_requests` (RDMA: those of this end by kind, including
//! warm-up and cool-down; `ios`: the number of I/Os; `per_io`: per I/O, without receives), `iops_series`
//! (with `-D`) and `threads`, whose `targets` have the same members. A sum has `ios`, `bytes`, `iops`,
//! `mib_per_s`, `iops_stdev` (with `-D`) and `latency_ms` (with `-L`): `count`, `min`, `mean`, `stdev`, `max`
//! and percentiles `p25` to `p99.9999999`. The unit of a time is in the member's name; bytes are bytes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Report;
use super::extra::{sums, us_per_io};
use crate::engine::{
    Buckets, CpuShares, Fault, Latency, SpanResults, SystemInfo, Tally, TargetResults, Verified, WaitStats,
    WorkRequests,
};
use crate::profile::{Profile, Range};

/// The reported percentiles.
const PERCENTILES: [&str; 13] = [
    "25",
    "50",
    "75",
    "90",
    "95",
    "99",
    "99.9",
    "99.99",
    "99.999",
    "99.9999",
    "99.99999",
    "99.999999",
    "99.9999999",
];

#[derive(Serialize)]
struct Document<'a> {
    tool: &'static str,
    version: &'static str,
    system: &'a SystemInfo,
    profile: &'a Profile,
    mappings: &'a [String],
    warnings: &'a [String],
    timespans: Vec<Span>,
}

#[derive(Serialize)]
struct Span {
    test_time_s: f64,
    engine: String,
    stopped: bool,
    cpu: Vec<CpuShares>,
    cpu_average: CpuShares,
    processes: Vec<Process>,
    read: Sum,
    write: Sum,
    total: Sum,
    service: Option<Latencies>,
    short: u64,
    unfinished: u64,
    overdue: u64,
    errors: Vec<Error>,
    verified: Option<Verified>,
    work_requests: Option<Posted>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    iops_series: Vec<Sample>,
    threads: Vec<Thread>,
}

#[derive(Serialize)]
struct Posted {
    #[serde(flatten)]
    kinds: WorkRequests,
    ios: u64,
    per_io: Option<f64>,
}

#[derive(Serialize)]
struct Process {
    pid: u32,
    name: String,
    cpu_s: f64,
    us_per_io: Option<f64>,
}

#[derive(Serialize)]
struct Error {
    what: String,
    count: u64,
}

#[derive(Serialize)]
struct Thread {
    targets: Vec<Target>,
    waits: Waits,
}

#[derive(Serialize)]
struct Target {
    path: String,
    size: u64,
    read: Sum,
    write: Sum,
    total: Sum,
    service: Option<Latencies>,
    short: u64,
    overdue: u64,
    errors: Vec<Error>,
    verified: Option<Verified>,
    distribution: Vec<Range>,
}

#[derive(Serialize)]
struct Sum {
    ios: u64,
    bytes: u64,
    iops: f64,
    mib_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    iops_stdev: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<Latencies>,
}

#[derive(Serialize)]
struct Latencies {
    count: u64,
    min: f64,
    mean: f64,
    stdev: f64,
    max: f64,
    #[serde(flatten)]
    percentiles: BTreeMap<String, f64>,
}

#[derive(Serialize)]
struct Sample {
    end_ms: u64,
    read_iops: f64,
    write_iops: f64,
    read_max_ms: f64,
    write_max_ms: f64,
}

#[derive(Serialize)]
struct Waits {
    wait: u64,
    throttle_wait: u64,
    throttle_sleep: u64,
    completions: [u64; 8],
}

/// The report of a profile that is not run (`-Rpjson`).
///
/// # Errors
/// The serializer's error, which plain data does not cause.
pub fn profile(profile: &Profile) -> serde_json::Result<String> {
    serde_json::to_string_pretty(profile)
}

/// The report of a run.
///
/// # Errors
/// The serializer's error, which plain data does not cause.
pub fn report(report: &Report<'_>, mappings: &[String], warnings: &[String]) -> serde_json::Result<String> {
    let (tool, version) = ("causeway bench", env!("CARGO_PKG_VERSION"));
    let timespans = report.spans.iter().map(span).collect();
    let (system, profile) = (report.system, report.profile);
    serde_json::to_string_pretty(&Document { tool, version, system, profile, mappings, warnings, timespans })
}

fn span(span: &SpanResults) -> Span {
    let seconds = span.elapsed.as_secs_f64();
    let (mut read, mut write, mut service) = (Tally::default(), Tally::default(), Latency::default());
    for target in span.targets() {
        read.merge(&target.read);
        write.merge(&target.write);
        service.merge(&target.service);
    }
    let mut total = read.clone();
    total.merge(&write);
    let cpu: Vec<CpuShares> = span.cpu.iter().map(|c| c.shares()).collect();
    let extra = sums(span);
    let process = |p: &crate::engine::ProcessCpu| Process {
        pid: p.pid,
        name: p.name.clone(),
        cpu_s: p.cpu_s,
        us_per_io: us_per_io(p.cpu_s, span.ios()),
    };
    Span {
        test_time_s: seconds,
        engine: span.engine.clone(),
        stopped: span.stopped,
        cpu_average: CpuShares::average(&cpu),
        cpu,
        processes: span.processes.iter().map(process).collect(),
        iops_series: series(&read.buckets, &write.buckets),
        read: sum(&read, seconds),
        write: sum(&write, seconds),
        total: sum(&total, seconds),
        service: latencies(&service),
        short: extra.short,
        unfinished: span.unfinished,
        overdue: extra.overdue,
        errors: errors(&extra.errors),
        verified: span.verified(),
        work_requests: span.posted().map(|(kinds, ios)| Posted { kinds, ios, per_io: kinds.per_io(ios) }),
        threads: span.threads.iter().map(|t| thread(&t.targets, &t.waits, seconds)).collect(),
    }
}

fn thread(targets: &[TargetResults], waits: &WaitStats, seconds: f64) -> Thread {
    let target = |t: &TargetResults| Target {
        path: t.path.clone(),
        size: t.size,
        read: sum(&t.read, seconds),
        write: sum(&t.write, seconds),
        total: sum(&t.total(), seconds),
        service: latencies(&t.service),
        short: t.short,
        overdue: t.overdue,
        errors: errors(&t.errors),
        verified: t.verified.clone(),
        distribution: t.distribution.clone(),
    };
    let WaitStats { wait, throttle_wait, throttle_sleep, completions, .. } = *waits;
    let waits = Waits { wait, throttle_wait, throttle_sleep, completions };
    Thread { targets: targets.iter().map(target).collect(), waits }
}

fn errors(errors: &BTreeMap<Fault, u64>) -> Vec<Error> {
    errors.iter().map(|(fault, count)| Error { what: fault.to_string(), count: *count }).collect()
}

fn sum(t: &Tally, seconds: f64) -> Sum {
    let per = |n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
    Sum {
        ios: t.ios,
        bytes: t.bytes,
        iops: per(t.ios as f64),
        mib_per_s: per(t.bytes as f64 / 1024.0 / 1024.0),
        iops_stdev: (!t.buckets.all().is_empty()).then(|| t.buckets.iops_stdev()),
        latency_ms: latencies(&t.latency),
    }
}

fn latencies(l: &Latency) -> Option<Latencies> {
    if l.count() == 0 {
        return None;
    }
    let percentile = |text: &&str| (format!("p{text}"), l.percentile_ms(text.parse().unwrap_or(100.0)));
    Some(Latencies {
        count: l.count(),
        min: l.min_ms(),
        mean: l.mean_ms(),
        stdev: l.stdev_ms(),
        max: l.max_ms(),
        percentiles: PERCENTILES.iter().map(percentile).collect(),
    })
}

fn series(read: &Buckets, write: &Buckets) -> Vec<Sample> {
    let width = read.width().max(write.width());
    let count = read.all().len().max(write.all().len());
    let sample = |n: usize| {
        let at = |b: &Buckets| b.all().get(n).copied().unwrap_or_default();
        let per = |count: u64| count as f64 / width.as_secs_f64();
        let (r, w) = (at(read), at(write));
        Sample {
            end_ms: width.as_millis() as u64 * (n as u64 + 1),
            read_iops: per(r.count),
            write_iops: per(w.count),
            read_max_ms: r.max_ms,
            write_max_ms: w.max_ms,
        }
    };
    (0..count).map(sample).collect()
}
