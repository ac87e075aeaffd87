//! The results of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use super::backend::{Fault, WorkRequests};
use super::cpu::{CpuTimes, ProcessCpu};
use super::tally::{Latency, Tally};
use super::verify::Verified;
use crate::profile::Range;

/// The results of one time span.
#[derive(Clone, Debug, Default)]
pub struct SpanResults {
    /// The measured time: without warm-up and cool-down, and shorter than requested if the run was stopped.
    pub elapsed: Duration,
    /// The results of each thread.
    pub threads: Vec<ThreadResults>,
    /// The times of each processor in the measured time, in the system's order.
    pub cpu: Vec<CpuTimes>,
    /// This process and those of `--pid`, in the measured time.
    pub processes: Vec<ProcessCpu>,
    /// The I/O method.
    pub engine: String,
    /// I/Os that did not complete within the time limit after the run.
    pub unfinished: u64,
    /// Whether the run was interrupted (SIGINT).
    pub stopped: bool,
}

/// The results of one thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadResults {
    /// The results of each of its targets.
    pub targets: Vec<TargetResults>,
    /// Statistics of its waits.
    pub waits: WaitStats,
    /// I/Os that completed at any time of the run, including failed ones.
    pub done: u64,
    /// RDMA work requests posted for these I/Os.
    pub posted: Option<WorkRequests>,
}

/// The results of one thread on one target.
#[derive(Clone, Debug, Default)]
pub struct TargetResults {
    /// The path as given.
    pub path: String,
    /// The size of the target, in bytes.
    pub size: u64,
    /// Reads.
    pub read: Tally,
    /// Writes.
    pub write: Tally,
    /// Open loop only: latencies measured from the actual submission of each I/O.
    pub service: Latency,
    /// The effective distribution, in bytes.
    pub distribution: Vec<Range>,
    /// I/Os that transferred less than a block, at any time of the run.
    pub short: u64,
    /// I/Os that failed, at any time of the run.
    pub errors: BTreeMap<Fault, u64>,
    /// Open loop only: I/Os that were due in the measured time but not completed by its end.
    pub overdue: u64,
    /// The result of `--verify`.
    pub verified: Option<Verified>,
}

impl TargetResults {
    /// The sum of reads and writes.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        total.merge(&self.read);
        total.merge(&self.write);
        total
    }
}

/// How often a thread waited, in DiskSPD's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitStats {
    /// Waits with all I/Os outstanding.
    pub wait: u64,
    /// Waits with some I/Os outstanding and more not due yet.
    pub throttle_wait: u64,
    /// Waits with no I/O outstanding and none due yet.
    pub throttle_sleep: u64,
    /// Polls for completions without waiting.
    pub lookaside: u64,
    /// How often a poll returned this many completions; the last entry: that many or more.
    pub completions: [u64; 8],
}

impl SpanResults {
    /// All results of all threads.
    pub fn targets(&self) -> impl Iterator<Item = &TargetResults> {
        self.threads.iter().flat_map(|t| &t.targets)
    }

    /// I/Os that completed in the measured time.
    pub fn ios(&self) -> u64 {
        self.targets().map(|t| t.read.ios + t.write.ios).sum()
    }

    /// I/Os that failed.
    pub fn errors(&self) -> u64 {
        self.targets().flat_map(|t| t.errors.values()).sum()
    }

    /// RDMA work requests of this end and the number of I/Os for which they were posted, including warm-up
    /// and cool-down. The numbers are exact: no I/O was outstanding when they were read.
    pub fn posted(&self) -> Option<(WorkRequests, u64)> {
        let mut all = None;
        for t in &self.threads {
            if let Some(posted) = &t.posted {
                let (sum, ios) = all.get_or_insert((WorkRequests::default(), 0));
                sum.merge(posted);
                *ios += t.done;
            }
        }
        all
    }

    /// The results of `--verify`, summed over all threads.
    pub fn verified(&self) -> Option<Verified> {
        let mut all = None;
        for v in self.targets().filter_map(|t| t.verified.as_ref()) {
            all.get_or_insert_with(Verified::default).merge(v);
        }
        all
    }
}
