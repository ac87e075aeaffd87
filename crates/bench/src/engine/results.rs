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
    /// How long was measured: without warm-up and cool-down, and less than asked if the run was stopped.
    pub elapsed: Duration,
    /// Each thread.
    pub threads: Vec<ThreadResults>,
    /// Each processor over the measured time, in the order of the system's.
    pub cpu: Vec<CpuTimes>,
    /// This process and those of `--pid`, over the measured time.
    pub processes: Vec<ProcessCpu>,
    /// How I/O was done.
    pub engine: String,
    /// I/Os that did not end within the time given them after the run.
    pub unfinished: u64,
    /// It was interrupted (SIGINT).
    pub stopped: bool,
}

/// The results of one thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadResults {
    /// Each of its targets.
    pub targets: Vec<TargetResults>,
    /// The objects of its waits.
    pub waits: WaitStats,
    /// I/Os that ended at any time of the run, failed ones too.
    pub done: u64,
    /// RDMA work requests posted for these.
    pub posted: Option<WorkRequests>,
}

/// The results of one thread on one target.
#[derive(Clone, Debug, Default)]
pub struct TargetResults {
    /// As given.
    pub path: String,
    /// Of the target, in bytes.
    pub size: u64,
    /// Reads.
    pub read: Tally,
    /// Writes.
    pub write: Tally,
    /// Open loop only: the latencies counted from when each I/O was really submitted.
    pub service: Latency,
    /// The effective distribution, in bytes.
    pub distribution: Vec<Range>,
    /// I/Os that moved less than a block, at any time of the run.
    pub short: u64,
    /// I/Os that failed, at any time of the run.
    pub errors: BTreeMap<Fault, u64>,
    /// Open loop only: I/Os that were due in the measured time and not done by its end.
    pub overdue: u64,
    /// With `--verify`.
    pub verified: Option<Verified>,
}

impl TargetResults {
    /// Reads and writes together.
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
    /// With all I/Os outstanding.
    pub wait: u64,
    /// With some outstanding, and more not due yet.
    pub throttle_wait: u64,
    /// With none outstanding and none due yet.
    pub throttle_sleep: u64,
    /// Looked for completions.
    pub lookaside: u64,
    /// How often a poll found this many completions; the last: that many or more.
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

    /// RDMA work requests of this end and the I/Os that they were posted for, warm-up and cool-down included.
    /// Nothing was in flight when they were counted, so that they are exact.
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

    /// The results of `--verify`, all threads together.
    pub fn verified(&self) -> Option<Verified> {
        let mut all = None;
        for v in self.targets().filter_map(|t| t.verified.as_ref()) {
            all.get_or_insert_with(Verified::default).merge(v);
        }
        all
    }
}
