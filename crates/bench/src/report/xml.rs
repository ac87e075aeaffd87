//! DiskSPD's XML report.

use super::extra::{sums, us_per_io};
use super::xml_writer::Writer;
use super::{Report, utc, xml_profile};
use crate::engine::{Bucket, Buckets, CpuShares, Latency, SpanResults, SystemInfo, TargetResults};
use crate::profile::{Profile, TimeSpan};

/// The report of a profile that is not run (`-Rpxml`).
pub fn profile(profile: &Profile) -> String {
    let mut w = Writer::new();
    xml_profile::profile(&mut w, profile);
    w.out
}

/// The report of a run.
pub fn report(report: &Report<'_>) -> String {
    let mut w = Writer::new();
    w.node("Results", |w| {
        system(w, report.system);
        xml_profile::profile(w, report.profile);
        for (asked, span) in report.profile.timespans.iter().zip(report.spans) {
            w.node("TimeSpan", |w| time_span(w, report, asked, span));
        }
    });
    w.out
}

fn system(w: &mut Writer, system: &SystemInfo) {
    w.node("System", |w| {
        w.leaf("ComputerName", &system.computer_name);
        w.node("Tool", |w| {
            w.leaf("Version", concat!("causeway ", env!("CARGO_PKG_VERSION")));
            w.leaf("VersionDate", "");
        });
        w.leaf("RunTime", system.started.map(utc).unwrap_or_default());
        w.empty("PowerScheme", &[("Name", system.governor.clone()), ("Guid", String::new())]);
        let heterogeneous = [("Heterogeneous", system.heterogeneous.to_string())];
        w.node_with("ProcessorTopology", &heterogeneous, |w| topology(w, system));
    });
}

fn topology(w: &mut Writer, system: &SystemInfo) {
    let mask = |of: &dyn Fn(&&crate::engine::Processor) -> bool, group: u32| {
        let bits = system.processors.iter().filter(|p| p.group() == group).filter(of);
        format!("0x{:x}", bits.fold(0u64, |m, p| m | 1 << p.in_group()))
    };
    let groups = system.distinct(|p| p.group());
    for &group in &groups {
        let count = system.processors.iter().filter(|p| p.group() == group).count().to_string();
        let attributes = [
            ("Group", group.to_string()),
            ("MaximumProcessors", count.clone()),
            ("ActiveProcessors", count),
            ("ActiveProcessorMask", mask(&|_| true, group)),
        ];
        w.empty("Group", &attributes);
    }
    for (name, of) in
        [("Node", (|p| p.node) as fn(&crate::engine::Processor) -> u32), ("Socket", |p| p.socket)]
    {
        for number in system.distinct(of) {
            w.node_with(name, &[(name, number.to_string())], |w| {
                for &group in &groups {
                    if system.processors.iter().any(|p| p.group() == group && of(p) == number) {
                        let mask = mask(&|p| of(p) == number, group);
                        w.empty("Group", &[("Group", group.to_string()), ("Mask", mask)]);
                    }
                }
            });
        }
    }
    for (group, core, class) in system.distinct(|p| (p.group(), p.core, p.class)) {
        let attributes = [
            ("Group", group.to_string()),
            ("Core", core.to_string()),
            ("Mask", mask(&|p| p.core == core, group)),
            ("EfficiencyClass", class.to_string()),
        ];
        w.empty("Core", &attributes);
    }
}

fn time_span(w: &mut Writer, report: &Report<'_>, asked: &TimeSpan, span: &SpanResults) {
    if span.elapsed.is_zero() {
        w.leaf("Error", "The test was interrupted before the measurements began. No results are displayed.");
        return;
    }
    let threads = if asked.thread_count > 0 { asked.thread_count as usize } else { span.threads.len() };
    w.leaf("TestTimeSeconds", format!("{:.2}", span.elapsed.as_secs_f64()));
    w.leaf("ThreadCount", threads);
    w.leaf("RequestCount", asked.request_count);
    w.leaf("ProcCount", report.system.processors.len());
    cpu(w, report.system, span);
    if asked.measure_latency {
        latency(w, span);
    }
    if asked.iops_std_dev {
        let (mut read, mut write) = (Buckets::default(), Buckets::default());
        for target in span.targets() {
            read.merge(&target.read.buckets);
            write.merge(&target.write.buckets);
        }
        iops(w, &read, &write, asked.bucket_ms);
    }
    for (number, thread) in span.threads.iter().enumerate() {
        w.node("Thread", |w| {
            w.leaf("Id", number);
            for target in &thread.targets {
                w.node("Target", |w| self::target(w, asked, target));
            }
            if report.profile.verbose_stats {
                let s = &thread.waits;
                w.node("WaitStatistics", |w| {
                    w.leaf("CompletionWait", s.wait);
                    w.leaf("ThrottleWait", s.throttle_wait);
                    w.leaf("ThrottleSleep", s.throttle_sleep);
                    w.leaf("Lookaside", s.lookaside);
                    let all: Vec<String> = s.completions.iter().map(u64::to_string).collect();
                    w.leaf("LookasideCompletion", all.join(" "));
                });
            }
        });
    }
    extra(w, span);
}

fn cpu(w: &mut Writer, system: &SystemInfo, span: &SpanResults) {
    let shares: Vec<CpuShares> = span.cpu.iter().map(|c| c.shares()).collect();
    let percentages = |w: &mut Writer, s: &CpuShares| {
        w.leaf("UsagePercent", format!("{:.2}", s.usage));
        w.leaf("UserPercent", format!("{:.2}", s.user));
        w.leaf("KernelPercent", format!("{:.2}", s.kernel));
        w.leaf("IdlePercent", format!("{:.2}", s.idle));
    };
    w.node("CpuUtilization", |w| {
        for (p, share) in system.processors.iter().zip(&shares) {
            w.node("CPU", |w| {
                w.leaf("Socket", p.socket);
                w.leaf("Node", p.node);
                w.leaf("Group", p.group());
                w.leaf("Core", p.core);
                w.leaf("EfficiencyClass", p.class);
                w.leaf("Id", p.in_group());
                percentages(w, share);
            });
        }
        w.node("Average", |w| percentages(w, &CpuShares::average(&shares)));
    });
}

fn ms(value: f64) -> String {
    format!("{value:.3}")
}

fn latency(w: &mut Writer, span: &SpanResults) {
    let (mut read, mut write, mut total) = (Latency::default(), Latency::default(), Latency::default());
    for target in span.targets() {
        read.merge(&target.read.latency);
        write.merge(&target.write.latency);
        total.merge(&target.read.latency);
        total.merge(&target.write.latency);
    }
    let attributes = [
        ("ReadHistoBuckets", read.distinct().to_string()),
        ("WriteHistoBuckets", write.distinct().to_string()),
        ("TotalHistoBuckets", total.distinct().to_string()),
    ];
    w.node_with("Latency", &attributes, |w| {
        for (l, average, deviation) in [
            (&read, "AverageReadMilliseconds", "ReadLatencyStdev"),
            (&write, "AverageWriteMilliseconds", "WriteLatencyStdev"),
            (&total, "AverageTotalMilliseconds", "LatencyStdev"),
        ] {
            if l.count() > 0 {
                w.leaf(average, ms(l.mean_ms()));
                w.leaf(deviation, ms(l.stdev_ms()));
            }
        }
        let mut bucket = |percentile: &str, of: &dyn Fn(&Latency) -> f64| {
            w.node("Bucket", |w| {
                w.leaf("Percentile", percentile);
                for (l, name) in [
                    (&read, "ReadMilliseconds"),
                    (&write, "WriteMilliseconds"),
                    (&total, "TotalMilliseconds"),
                ] {
                    if l.count() > 0 {
                        w.leaf(name, ms(of(l)));
                    }
                }
            });
        };
        bucket("0", &Latency::min_ms);
        for percent in 1..=99 {
            bucket(&percent.to_string(), &|l| l.percentile_ms(f64::from(percent)));
        }
        for text in ["99.9", "99.99", "99.999", "99.9999", "99.99999", "99.999999", "99.9999999"] {
            let percent = text.parse().unwrap_or(100.0);
            bucket(text, &|l| l.percentile_ms(percent));
        }
        bucket("100", &Latency::max_ms);
    });
}

fn iops(w: &mut Writer, read: &Buckets, write: &Buckets, width_ms: u32) {
    let mut total = Buckets::default();
    total.merge(read);
    total.merge(write);
    w.node("Iops", |w| {
        for (b, name) in [(read, "ReadIopsStdDev"), (write, "WriteIopsStdDev"), (&total, "IopsStdDev")] {
            if !b.all().is_empty() {
                w.leaf(name, ms(b.iops_stdev()));
            }
        }
        let seconds = f64::from(width_ms) / 1000.0;
        for n in 0..read.all().len().max(write.all().len()) {
            let at = |b: &Buckets| b.all().get(n).copied().unwrap_or_default();
            let (r, wr) = (at(read), at(write));
            let per = |count: u64| format!("{:.0}", count as f64 / seconds);
            let mut attributes = vec![
                ("SampleMillisecond", (u64::from(width_ms) * (n as u64 + 1)).to_string()),
                ("Read", per(r.count)),
                ("Write", per(wr.count)),
                ("Total", per(r.count + wr.count)),
            ];
            let names = [
                [
                    "ReadMinLatencyMilliseconds",
                    "ReadMaxLatencyMilliseconds",
                    "ReadAvgLatencyMilliseconds",
                    "ReadLatencyStdDev",
                ],
                [
                    "WriteMinLatencyMilliseconds",
                    "WriteMaxLatencyMilliseconds",
                    "WriteAvgLatencyMilliseconds",
                    "WriteLatencyStdDev",
                ],
            ];
            let values = |b: &Bucket| [ms(b.min_ms), ms(b.max_ms), ms(b.mean_ms()), ms(b.stdev_ms())];
            for (names, bucket) in names.into_iter().zip([&r, &wr]) {
                attributes.extend(names.into_iter().zip(values(bucket)));
            }
            w.empty("Bucket", &attributes);
        }
    });
}

fn target(w: &mut Writer, asked: &TimeSpan, target: &TargetResults) {
    let (read, write) = (&target.read, &target.write);
    w.leaf("Path", &target.path);
    w.leaf("BytesCount", read.bytes + write.bytes);
    w.leaf("FileSize", target.size);
    w.leaf("IOCount", read.ios + write.ios);
    w.leaf("ReadBytes", read.bytes);
    w.leaf("ReadCount", read.ios);
    w.leaf("WriteBytes", write.bytes);
    w.leaf("WriteCount", write.ios);
    if !target.distribution.is_empty() {
        w.node("Distribution", |w| {
            w.node("Absolute", |w| {
                let mut at = 0;
                for r in &target.distribution {
                    if r.start > at {
                        w.leaf_with("Range", &[("IO", "0".to_owned())], r.start - at);
                    }
                    w.leaf_with("Range", &[("IO", r.io_percent.to_string())], r.length);
                    at = r.start + r.length;
                }
            });
        });
    }
    if asked.measure_latency {
        let total = target.total().latency;
        for (l, average, deviation) in [
            (&read.latency, "AverageReadLatencyMilliseconds", "ReadLatencyStdev"),
            (&write.latency, "AverageWriteLatencyMilliseconds", "WriteLatencyStdev"),
            (&total, "AverageLatencyMilliseconds", "LatencyStdev"),
        ] {
            if l.count() > 0 {
                w.leaf(average, ms(l.mean_ms()));
                w.leaf(deviation, ms(l.stdev_ms()));
            }
        }
    }
    if asked.iops_std_dev {
        iops(w, &read.buckets, &write.buckets, asked.bucket_ms);
    }
}

/// `<Causeway>`: values for which DiskSPD has no element; omitted if there are none.
fn extra(w: &mut Writer, span: &SpanResults) {
    let (sums, verified) = (sums(span), span.verified());
    if span.engine.is_empty() && sums.errors.is_empty() && verified.is_none() && span.processes.is_empty() {
        return;
    }
    w.node("Causeway", |w| {
        w.leaf("Engine", &span.engine);
        w.leaf("Stopped", span.stopped);
        for (fault, count) in &sums.errors {
            w.leaf_with("Failed", &[("Count", count.to_string())], fault);
        }
        w.leaf("ShortCount", sums.short);
        w.leaf("UnfinishedCount", span.unfinished);
        w.leaf("OverdueCount", sums.overdue);
        if let Some(v) = verified {
            let attributes = [
                ("Sectors", v.sectors.to_string()),
                ("Unstamped", v.unstamped.to_string()),
                ("Raced", v.raced.to_string()),
                ("Deferred", v.deferred.to_string()),
                ("Mismatches", v.mismatches.to_string()),
            ];
            w.leaf_with("Verified", &attributes, v.first.map(|f| f.to_string()).unwrap_or_default());
        }
        for p in &span.processes {
            let mut attributes = vec![("Pid", p.pid.to_string()), ("CpuSeconds", format!("{:.2}", p.cpu_s))];
            if let Some(us) = us_per_io(p.cpu_s, span.ios()) {
                attributes.push(("MicrosecondsPerIO", format!("{us:.3}")));
            }
            w.leaf_with("Process", &attributes, &p.name);
        }
    });
}
