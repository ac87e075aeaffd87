//! DiskSPD's text report.

use super::{Report, distribution, extra, size, text_profile, utc};
use crate::engine::{CpuShares, Latency, SpanResults, SystemInfo, Tally, TargetResults};
use crate::profile::{Profile, TimeSpan};

/// The percentiles of the latency table, with DiskSPD's names.
const PERCENTILES: [(f64, &str); 13] = [
    (25.0, "25th"),
    (50.0, "50th"),
    (75.0, "75th"),
    (90.0, "90th"),
    (95.0, "95th"),
    (99.0, "99th"),
    (99.9, "3-nines"),
    (99.99, "4-nines"),
    (99.999, "5-nines"),
    (99.9999, "6-nines"),
    (99.99999, "7-nines"),
    (99.999999, "8-nines"),
    (99.9999999, "9-nines"),
];

/// The report of a profile that is not run (`-Rptext`).
pub fn profile(profile: &Profile) -> String {
    text_profile::profile(profile)
}

/// The report of a run.
pub fn report(report: &Report<'_>) -> String {
    let mut out = text_profile::profile(report.profile);
    out.push_str(&system(report.system));
    for (n, span) in report.spans.iter().enumerate() {
        out.push_str(&format!("\nResults for timespan {}:\n{}\n", n + 1, "*".repeat(79)));
        let Some(asked) = report.profile.timespans.get(n) else { continue };
        results(&mut out, report, asked, span);
    }
    if report.spans.len() > 1 {
        totals(&mut out, report.spans);
    }
    out
}

fn system(system: &SystemInfo) -> String {
    let count = |name: &str, n: usize| format!("\t{name}:\t\t{n}\n");
    let mut out = format!("System information:\n\n\tcomputer name: {}\n", system.computer_name);
    let started = system.started.map(utc).unwrap_or_default();
    out.push_str(&format!("\tstart time: {started}\n\n"));
    out.push_str(&count("cpu count", system.processors.len()));
    out.push_str(&count("core count", system.distinct(|p| (p.group(), p.core)).len()));
    out.push_str(&count("group count", system.distinct(|p| p.group()).len()));
    out.push_str(&count("node count", system.distinct(|p| p.node).len()));
    out.push_str(&count("socket count", system.distinct(|p| p.socket).len()));
    out.push_str(&format!("\theterogeneous cores:\t{}\n\n", if system.heterogeneous { "y" } else { "n" }));
    out.push_str(&format!("\tactive power scheme:\t{}\n", system.governor));
    out
}

fn results(out: &mut String, report: &Report<'_>, asked: &TimeSpan, span: &SpanResults) {
    if span.elapsed.is_zero() {
        out.push_str("The test was interrupted before the measurements began. No results are displayed.\n");
        out.push_str(&extra::text(span));
        return;
    }
    let threads = if asked.thread_count > 0 { asked.thread_count as usize } else { span.threads.len() };
    out.push_str(&format!("\nactual test time:\t{:.2}s\n", span.elapsed.as_secs_f64()));
    out.push_str(&format!("thread count:\t\t{threads}\n"));
    if asked.pooled() {
        out.push_str(&format!("request count:\t\t{}\n", asked.request_count));
    }
    cpu(out, report.system, span);
    out.push_str(&distribution::effective(span));
    for (name, of) in [
        ("Total", TargetResults::total as fn(&TargetResults) -> Tally),
        ("Read", |t: &TargetResults| t.read.clone()),
        ("Write", |t: &TargetResults| t.write.clone()),
    ] {
        out.push_str(&format!("\n{name} IO\n"));
        section(out, asked, span, of);
    }
    if asked.measure_latency {
        percentiles(out, span);
    }
    if report.profile.verbose_stats {
        waits(out, span);
    }
    out.push_str(&extra::text(span));
}

fn cpu(out: &mut String, system: &SystemInfo, span: &SpanResults) {
    // A column is shown if there is more than one value, from the outermost level in.
    let columns = [
        (system.distinct(|p| p.socket).len() > 1, "Socket | ", 7),
        (system.distinct(|p| p.node).len() > 1, "Node | ", 5),
        (system.distinct(|p| p.group()).len() > 1, "Group | ", 6),
        (system.smt, "Core | ", 5),
        (system.heterogeneous, "Class | ", 5),
    ];
    let shown = || columns.iter().filter(|c| c.0);
    let heads: String = shown().map(|c| c.1).collect();
    let border = "-".repeat(heads.len() + 40);
    let blank = " ".repeat(heads.len());
    out.push_str(&format!("\n{heads}CPU |  Usage |  User  | Kernel |  Idle\n{border}\n"));
    let fastest = system.processors.iter().map(|p| p.class).max().unwrap_or(0);
    let shares: Vec<CpuShares> = span.cpu.iter().map(|c| c.shares()).collect();
    let row =
        |s: &CpuShares| format!("| {:6.2}%| {:6.2}%| {:6.2}%| {:6.2}%\n", s.usage, s.user, s.kernel, s.idle);
    for (p, share) in system.processors.iter().zip(&shares) {
        let values = [p.socket, p.node, p.group(), p.core, p.class];
        for ((_, head, width), value) in columns.iter().zip(values).filter(|(c, _)| c.0) {
            let mark = if *head != "Class | " {
                ""
            } else if p.class == fastest {
                "P"
            } else {
                " "
            };
            out.push_str(&format!("{value:width$}{mark}| "));
        }
        out.push_str(&format!("{:4}{}", p.in_group(), row(share)));
    }
    out.push_str(&format!("{border}\n{blank}avg.{}", row(&CpuShares::average(&shares))));
}

fn section(out: &mut String, asked: &TimeSpan, span: &SpanResults, of: fn(&TargetResults) -> Tally) {
    let (latency, deviation) = (asked.measure_latency, asked.iops_std_dev);
    let when = |on: bool, text: &'static str| if on { text } else { "" };
    out.push_str(&format!(
        "thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s {}{}{}|  file\n",
        when(latency, "|  AvgLat  "),
        when(deviation, "| IopsStdDev "),
        when(latency, "| LatStdDev "),
    ));
    let extra = [(latency, 11), (deviation, 13), (latency, 12)];
    let dashes: usize = extra.iter().filter(|e| e.0).map(|e| e.1).sum();
    let border = "-".repeat(66 + dashes + 12);
    out.push_str(&format!("{border}\n"));
    let seconds = span.elapsed.as_secs_f64();
    let mut all = Tally::default();
    let columns = |t: &Tally| {
        let mut columns = format!(
            "{:15} | {:12} | {:10.2} | {:10.2}",
            t.bytes,
            t.ios,
            t.bytes as f64 / 1024.0 / 1024.0 / seconds,
            t.ios as f64 / seconds
        );
        if latency {
            columns.push_str(&format!(" | {:8.3}", t.latency.mean_ms()));
        }
        if deviation {
            columns.push_str(&format!(" | {:10.2}", t.buckets.iops_stdev()));
        }
        match t.latency.count() {
            _ if !latency => {}
            0 => columns.push_str(" |       N/A"),
            _ => columns.push_str(&format!(" |  {:8.3}", t.latency.stdev_ms())),
        }
        columns
    };
    for (n, thread) in span.threads.iter().enumerate() {
        for target in &thread.targets {
            let tally = of(target);
            all.merge(&tally);
            let size = size::size(target.size);
            out.push_str(&format!("{n:6} | {} | {} ({size})\n", columns(&tally), target.path));
        }
    }
    out.push_str(&format!("{border}\ntotal:   {}\n", columns(&all)));
}

fn percentiles(out: &mut String, span: &SpanResults) {
    let mut paths: Vec<&str> = Vec::new();
    for target in span.targets() {
        if !paths.contains(&target.path.as_str()) {
            paths.push(&target.path);
        }
    }
    if paths.len() > 1 {
        for path in paths {
            out.push_str(&format!("\nLatency distribution: {path}\n"));
            chart(out, span.targets().filter(|t| t.path == path));
        }
    }
    out.push_str("\nTotal latency distribution:\n");
    chart(out, span.targets());
}

fn chart<'a>(out: &mut String, targets: impl Iterator<Item = &'a TargetResults>) {
    let (mut read, mut write, mut total) = (Latency::default(), Latency::default(), Latency::default());
    for target in targets {
        read.merge(&target.read.latency);
        write.merge(&target.write.latency);
        total.merge(&target.read.latency);
        total.merge(&target.write.latency);
    }
    out.push_str("  %-ile |  Read (ms) | Write (ms) | Total (ms)\n");
    out.push_str("----------------------------------------------\n");
    let mut row = |name: &str, of: &dyn Fn(&Latency) -> f64| {
        let cell = |l: &Latency| if l.count() == 0 { "N/A".to_owned() } else { format!("{:.3}", of(l)) };
        out.push_str(&format!(
            "{name:>7} | {:>10} | {:>10} | {:10.3}\n",
            cell(&read),
            cell(&write),
            of(&total)
        ));
    };
    row("min", &Latency::min_ms);
    for (percent, name) in PERCENTILES {
        row(name, &|l| l.percentile_ms(percent));
    }
    row("max", &Latency::max_ms);
}

fn waits(out: &mut String, span: &SpanResults) {
    out.push_str("\nWait Statistics\n");
    out.push_str(
        "thread | completion wait | throttle wait  -  sleep | lookaside | 0 - 7+ complete per lookaside\n",
    );
    out.push_str(&format!("{}\n", "-".repeat(95)));
    for (n, thread) in span.threads.iter().enumerate() {
        let w = &thread.waits;
        let completions: Vec<String> = w.completions.iter().map(u64::to_string).collect();
        out.push_str(&format!(
            "{n:6} | {:15} | {:13}  - {:6} | {:9} | {}\n",
            w.wait,
            w.throttle_wait,
            w.throttle_sleep,
            w.lookaside,
            completions.join(" ")
        ));
    }
}

fn totals(out: &mut String, spans: &[SpanResults]) {
    let border = "-".repeat(79);
    out.push_str(&format!("\n\nTotals:\n{}\n\n", "*".repeat(79)));
    out.push_str("type   |       bytes     |     I/Os     |    MiB/s   |  I/O per s\n");
    out.push_str(&format!("{border}\n"));
    let spans = || spans.iter().filter(|s| !s.elapsed.is_zero());
    let seconds: f64 = spans().map(|s| s.elapsed.as_secs_f64()).sum();
    let sum = |of: fn(&TargetResults) -> (u64, u64)| {
        spans().flat_map(SpanResults::targets).map(of).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    let write = sum(|t| (t.write.bytes, t.write.ios));
    let read = sum(|t| (t.read.bytes, t.read.ios));
    let row = |name: &str, (bytes, ios): (u64, u64)| {
        let (mib, per) = if seconds > 0.0 {
            (bytes as f64 / 1024.0 / 1024.0 / seconds, ios as f64 / seconds)
        } else {
            (0.0, 0.0)
        };
        format!("{name}  | {bytes:15} | {ios:12} | {mib:10.2} | {per:10.2}\n")
    };
    out.push_str(&row("write", write));
    out.push_str(&row("read ", read));
    out.push_str(&format!("{border}\n{}", row("total", (read.0 + write.0, read.1 + write.1))));
    out.push_str(&format!("\ntotal test time:\t{seconds:.2}s\n"));
}
