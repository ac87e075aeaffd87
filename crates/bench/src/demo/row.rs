//! A row of the table: the result of one run of a demonstration.

use serde::Serialize;

use super::{Demonstration, Transport};
use crate::engine::{SpanResults, Tally, WorkRequests};

/// The result of one demonstration over one transport.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The demonstration's number.
    pub id: &'static str,
    /// Its description.
    pub demonstration: &'static str,
    /// The transport of the I/O.
    pub transport: Transport,
    /// The transport as described by the engine.
    pub engine: String,
    /// The measured time, in seconds.
    pub seconds: f64,
    /// I/Os that completed in that time.
    pub ios: u64,
    /// I/Os per second.
    pub iops: f64,
    /// 10^6 bytes per second.
    pub mb_per_s: f64,
    /// Mean latency.
    pub mean_ms: f64,
    /// 99th percentile of the latency.
    pub p99_ms: f64,
    /// Average outstanding I/Os, by Little's law.
    pub queue_depth: f64,
    /// Processor time of this process per I/O.
    pub client_cpu_us: f64,
    /// Processor time of the server's process per I/O, if known.
    pub server_cpu_us: Option<f64>,
    /// Work requests that the client posted, for SMB Direct.
    pub work_requests: Option<PerIo>,
    /// The cost on the pool and its disks, if the data is on one.
    pub pool: Option<PoolCost>,
    /// I/Os that failed.
    pub errors: u64,
    /// The published results.
    pub published: &'static str,
    /// The parts that cannot be reproduced here.
    pub lacks: &'static str,
}

/// Work requests per I/O.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PerIo {
    /// All except receives.
    pub total: f64,
    /// Memory registrations.
    pub register: f64,
    /// Sends, including those that only grant credits.
    pub send: f64,
    /// Local invalidations.
    pub local_invalidate: f64,
    /// The totals over all phases of the run.
    pub counted: WorkRequests,
    /// The number of I/Os to which the totals belong.
    pub ios: u64,
}

/// The reads of a pool's virtual disks, and their cost on the disks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PoolCost {
    /// Mean latency of a read of a virtual disk, measured at the pool's interface.
    pub mean_ms: f64,
    /// Reads of disks per read of a virtual disk.
    pub disk_reads: f64,
    /// Mean latency of a disk's read.
    pub disk_mean_ms: f64,
}

impl PoolCost {
    /// Computed from the number of reads and their total nanoseconds, for the virtual disks and for the
    /// disks. Returns `None` without reads.
    pub fn new(pool: (u64, u64), disks: (u64, u64)) -> Option<PoolCost> {
        let mean_ms = |(n, ns): (u64, u64)| ns as f64 / n.max(1) as f64 / 1e6;
        (pool.0 > 0).then(|| PoolCost {
            mean_ms: mean_ms(pool),
            disk_reads: disks.0 as f64 / pool.0 as f64,
            disk_mean_ms: mean_ms(disks),
        })
    }
}

impl Row {
    /// The row for `span`. `server` is the process ID of the server, if it is on this machine.
    pub fn new(d: &Demonstration, transport: Transport, span: &SpanResults, server: Option<u32>) -> Row {
        let mut all = Tally::default();
        for target in span.targets() {
            all.merge(&target.total());
        }
        let seconds = span.elapsed.as_secs_f64();
        let rate = |n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
        let cpu = |pid: u32| {
            let used = span.processes.iter().find(|p| p.pid == pid)?.cpu_s;
            Some(if all.ios == 0 { 0.0 } else { used * 1e6 / all.ios as f64 })
        };
        let (iops, mean_ms) = (rate(all.ios as f64), all.latency.mean_ms());
        Row {
            id: d.id,
            demonstration: d.name,
            transport,
            engine: span.engine.clone(),
            seconds,
            ios: all.ios,
            iops,
            mb_per_s: rate(all.bytes as f64 / 1e6),
            mean_ms,
            p99_ms: all.latency.percentile_ms(99.0),
            queue_depth: iops * mean_ms / 1e3,
            // This process is the first in the list.
            client_cpu_us: span.processes.first().and_then(|p| cpu(p.pid)).unwrap_or(0.0),
            server_cpu_us: server.and_then(cpu),
            pool: None,
            work_requests: span.posted().map(|(counted, ios)| PerIo::new(counted, ios)),
            errors: span.errors(),
            published: d.published,
            lacks: d.lacks,
        }
    }
}

impl PerIo {
    fn new(counted: WorkRequests, ios: u64) -> PerIo {
        let each = |n: u64| if ios == 0 { 0.0 } else { n as f64 / ios as f64 };
        PerIo {
            total: each(counted.of_ios()),
            register: each(counted.register),
            send: each(counted.send),
            local_invalidate: each(counted.local_invalidate),
            counted,
            ios,
        }
    }
}

/// The results of a demonstration without and with remote invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The demonstration's number.
    pub id: &'static str,
    /// Its description.
    pub demonstration: &'static str,
    /// The client invalidates all memory.
    pub without: PerIo,
    /// The server's replies invalidate memory.
    pub with: PerIo,
    /// I/Os per second without remote invalidation.
    pub iops_without: f64,
    /// I/Os per second with remote invalidation.
    pub iops_with: f64,
}

/// The demonstrations that ran without and with remote invalidation.
pub fn comparisons(rows: &[Row]) -> Vec<Comparison> {
    let of = |row: &Row| Some((row.work_requests?, row.iops));
    let pair = |without: &Row| {
        let same = |r: &&Row| r.id == without.id && r.transport == Transport::Direct;
        let (with, iops_with) = of(rows.iter().find(same)?)?;
        let (fewer, iops_without) = of(without)?;
        Some(Comparison {
            id: without.id,
            demonstration: without.demonstration,
            without: fewer,
            with,
            iops_without,
            iops_with,
        })
    };
    rows.iter().filter(|r| r.transport == Transport::DirectWithout).filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::ALL;
    use super::*;
    use crate::engine::{ProcessCpu, TargetResults, ThreadResults};

    fn span(local_invalidate: u64) -> SpanResults {
        let mut read = Tally::new(true, None);
        for _ in 0..1000 {
            read.add(8192, Duration::from_millis(4), Duration::ZERO);
        }
        let posted = WorkRequests { register: 1200, send: 1200, local_invalidate, ..WorkRequests::default() };
        let target = TargetResults { read, ..TargetResults::default() };
        let thread = ThreadResults {
            targets: vec![target],
            done: 1200,
            posted: Some(posted),
            ..ThreadResults::default()
        };
        let cpu = |pid, cpu_s| ProcessCpu { pid, name: String::new(), cpu_s };
        SpanResults {
            elapsed: Duration::from_secs(2),
            threads: vec![thread],
            processes: vec![cpu(1, 0.05), cpu(2, 0.02)],
            ..SpanResults::default()
        }
    }

    #[test]
    fn a_row_is_computed() {
        let row = Row::new(&ALL[8], Transport::Direct, &span(0), Some(2));
        assert_eq!((row.ios, row.iops, row.mb_per_s), (1000, 500.0, 4.096));
        assert!((row.queue_depth - 2.0).abs() < 0.01 && (row.p99_ms - 4.0).abs() < 0.01, "{row:?}");
        assert_eq!((row.client_cpu_us, row.server_cpu_us), (50.0, Some(20.0)));
        assert_eq!(row.work_requests.map(|w| (w.total, w.ios)), Some((2.0, 1200)));
        let nothing = Row::new(&ALL[0], Transport::Tcp, &SpanResults::default(), Some(2));
        assert_eq!((nothing.iops, nothing.server_cpu_us, nothing.work_requests), (0.0, None, None));
    }

    #[test]
    fn what_a_pool_costs_is_for_each_of_its_reads() {
        let cost = PoolCost::new((10, 20_000_000), (15, 6_000_000)).expect("there were reads");
        assert_eq!((cost.mean_ms, cost.disk_reads, cost.disk_mean_ms), (2.0, 1.5, 0.4));
        assert_eq!(PoolCost::new((0, 0), (3, 9)), None);
    }

    #[test]
    fn three_become_two() {
        let d = &ALL[8];
        let rows = [(Transport::Tcp, 0), (Transport::Direct, 0), (Transport::DirectWithout, 1200)]
            .map(|(t, n)| Row::new(d, t, &span(n), None));
        let [c] = comparisons(&rows)[..] else { panic!("one") };
        assert_eq!((c.without.total, c.with.total), (3.0, 2.0));
        assert_eq!(comparisons(&rows[2..]), [], "there is nothing to compare with");
    }
}
