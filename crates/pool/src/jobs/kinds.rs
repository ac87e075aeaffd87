//! The kinds of jobs, and their reported state.

use std::fmt;
use std::time::Duration;

use pool_seam::{JobId, NotMoved};

use crate::{DiskNumber, SpaceId};

/// The kinds of jobs, the more urgent ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Resolves regions in doubt after a crash.
    Resolve,
    /// Fills the stale regions of a disk.
    Resync,
    /// Rebuilds the copies of a lost disk on others.
    Rebuild,
    /// Moves all data of a disk to others.
    Drain,
    /// Changes the number of copies of rows, or copies their data to rows of another shape.
    Reshape,
    /// Reads every copy, on request.
    Repair,
    /// Moves data from full disks to empty ones.
    Rebalance,
    /// Reads every copy, periodically.
    Scrub,
}

/// The object of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The whole pool.
    Pool,
    /// A disk.
    Disk(DiskNumber),
    /// A space.
    Space(SpaceId),
}

/// The result of moving everything off a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvacuationResult {
    /// The number of slabs that have moved.
    pub moved: usize,
    /// The number of slabs still on the disk.
    pub remaining: usize,
    /// The reason why one of these slabs is still there.
    pub why: Option<NotMoved>,
}

/// There is no job of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no job {}", .0.0)]
pub struct NoSuchJob(pub JobId);

/// Why a job does not run at full speed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum DelayReason {
    /// Paused by command.
    Paused,
    /// Clients need the disks. `p99`: the 99th percentile of their latencies in the last interval, if it is known.
    Paced { p99: Option<Duration>, target: Duration },
    /// A more urgent job works.
    AfterJob(Kind, JobId),
    /// Disks with the required data are absent.
    DisksAbsent(Vec<DiskNumber>),
    /// The job failed, and will be retried.
    Failed(String),
    /// The job is incomplete, and continues soon.
    Incomplete(String),
    /// The job ends after the outstanding pieces.
    Stopping,
}

/// The visible state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobState {
    /// Its number.
    pub id: JobId,
    /// Its kind.
    pub kind: Kind,
    /// Its object.
    pub subject: Subject,
    /// The time since the job began.
    pub elapsed: Duration,
    /// The number of bytes done.
    pub done: u64,
    /// The total number of bytes, as far as known.
    pub total: u64,
    /// The rate in bytes per second.
    pub rate: u64,
    /// The remaining time, at the current rate.
    pub eta: Option<Duration>,
    /// Why the job does not run at full speed, if it does not.
    pub why: Option<DelayReason>,
}

impl Kind {
    /// Its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Resolve => "Resolve",
            Kind::Resync => "Resync",
            Kind::Rebuild => "Rebuild",
            Kind::Drain => "Drain",
            Kind::Reshape => "Reshape",
            Kind::Repair => "Repair",
            Kind::Rebalance => "Rebalance",
            Kind::Scrub => "Scrub",
        }
    }

    /// The urgency: the lower, the more urgent. Equally urgent jobs share the disks.
    pub(super) fn urgency(self) -> u8 {
        match self {
            Kind::Resolve | Kind::Resync | Kind::Rebuild => 0,
            Kind::Drain | Kind::Reshape | Kind::Repair => 1,
            Kind::Rebalance => 2,
            Kind::Scrub => 3,
        }
    }
}

impl fmt::Display for DelayReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DelayReason::Paused => f.write_str("paused by command"),
            DelayReason::Paced { p99: Some(p99), target } => {
                let (p99, target) = (p99.as_millis(), target.as_millis());
                write!(f, "paced: 99th percentile of client latency is {p99} ms, target {target} ms")
            }
            DelayReason::Paced { p99: None, target } => {
                write!(f, "paced: slow start while clients are active, target {} ms", target.as_millis())
            }
            DelayReason::AfterJob(kind, id) => write!(f, "waits for job {} ({})", id.0, kind.name()),
            DelayReason::DisksAbsent(disks) => {
                let list: Vec<_> = disks.iter().map(|d| d.0.to_string()).collect();
                match disks.len() {
                    0 => f.write_str("too few disks are usable"),
                    1 => write!(f, "disk {} is absent", list.join(", ")),
                    _ => write!(f, "disks {} are absent", list.join(", ")),
                }
            }
            DelayReason::Failed(error) => write!(f, "failed, will be retried: {error}"),
            DelayReason::Incomplete(why) => write!(f, "incomplete, continues soon: {why}"),
            DelayReason::Stopping => f.write_str("stopping"),
        }
    }
}
