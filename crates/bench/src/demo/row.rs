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
    /// How I/O got there.
    pub transport: Transport,
    /// The transport, in the engine's words.
    pub engine: String,
    /// How long was measured.
    pub seconds: f64,
    /// I/Os that completed in that time.
    pub ios: u64,
    /// I/Os a second.
    pub iops: f64,
    /// 10^6 bytes a second.
    pub mb_per_s: f64,
    /// Of the latencies.
    pub mean_ms: f64,
    /// Of the latencies.
    pub p99_ms: f64,
    /// I/Os in flight on average, by Little's law.
    pub queue_depth: f64,
    /// Processor time of this process for an I/O.
    pub client_cpu_us: f64,
    /// Processor time of the server's process, where it is known.
    pub server_cpu_us: Option<f64>,
    /// Work requests that the client posted, with SMB Direct.
    pub work_requests: Option<PerIo>,
    /// What the pool and its disks did, if the data is on one.
    pub pool: Option<PoolCost>,
    /// I/Os that failed.
    pub errors: u64,
    /// The published results.
    pub published: &'static str,
    /// The parts that cannot be repeated here.
    pub lacks: &'static str,
}

/// Work requests for each I/O.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PerIo {
    /// All but receives.
    pub total: f64,
    /// Memory registrations.
    pub register: f64,
    /// Sends, those that only grant credits too.
    pub send: f64,
    /// Local invalidations.
    pub local_invalidate: f64,
    /// The totals over all phases of the run.
    pub counted: WorkRequests,
    /// The I/Os that it was counted over.
    pub ios: u64,
}

/// The reads of a pool's virtual disks, and what they cost on its disks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PoolCost {
    /// Of a read of a virtual disk, from the pool's entrance to its end.
    pub mean_ms: f64,
    /// Reads of disks for each.
    pub disk_reads: f64,
    /// Of a disk's read.
    pub disk_mean_ms: f64,
}

impl PoolCost {
    /// Of numbers of reads and the nanoseconds that they took, of the virtual disks and of the disks. `None` without reads.
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
    /// The row of `span`. `server`: the number of the server's process, if it is on this machine.
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
            // This process is the first.
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

/// One demonstration without remote invalidation and with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The demonstration's number.
    pub id: &'static str,
    /// Its description.
    pub demonstration: &'static str,
    /// Everything invalidated by the client.
    pub without: PerIo,
    /// Invalidated by the server's answers.
    pub with: PerIo,
    /// I/Os a second without it.
    pub iops_without: f64,
    /// I/Os a second with it.
    pub iops_with: f64,
}

/// The demonstrations that ran both ways.
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
