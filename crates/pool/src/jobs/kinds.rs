//! The kinds of jobs, and their reported state.

use std::fmt;
use std::time::Duration;

use pool_seam::{JobId, Stays};

use crate::{DiskNumber, SpaceId};

/// The kinds of jobs, the more urgent ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Resolves regions in doubt after a crash.
    Resolve,
    /// Copies missed writes to a disk.
    Resync,
    /// Rebuilds the copies of a lost disk on others.
    Rebuild,
    /// Moves what a disk has to others.
    Drain,
    /// Gives rows another number of copies.
    Reshape,
    /// Reads every copy, on request.
    Repair,
    /// Moves data from full disks to empty ones.
    Rebalance,
    /// Reads every copy, from time to time.
    Scrub,
}

/// Of what a job is.
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
pub struct Evacuated {
    /// Slabs that have moved.
    pub moved: usize,
    /// Slabs that are still there.
    pub left: usize,
    /// Why, of one of them.
    pub why: Option<Stays>,
}

/// There is no job of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no job {}", .0.0)]
pub struct NoJob(pub JobId);

/// Why a job does not go at full speed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum Why {
    /// Paused by command.
    Paused,
    /// Clients need the disks. `p99`: of their latencies in the last interval, if it is known.
    Paced { p99: Option<Duration>, target: Duration },
    /// A more urgent one works.
    After(Kind, JobId),
    /// Disks with the required data are absent.
    Away(Vec<DiskNumber>),
    /// It failed, and tries again.
    Failed(String),
    /// It is not done, and continues in a moment.
    Soon(String),
    /// It ends after the outstanding pieces.
    Stopping,
}

/// A job as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobState {
    /// Its number.
    pub id: JobId,
    /// Its kind.
    pub kind: Kind,
    /// Of what.
    pub subject: Subject,
    /// Since it began.
    pub elapsed: Duration,
    /// Bytes done.
    pub done: u64,
    /// Bytes there are, as far as is known.
    pub total: u64,
    /// Bytes a second.
    pub rate: u64,
    /// The remaining time, at the present rate.
    pub eta: Option<Duration>,
    /// Why it does not go at full speed.
    pub why: Option<Why>,
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

    /// The lower the more urgent; those that are equally urgent share.
    pub(super) fn urgency(self) -> u8 {
        match self {
            Kind::Resolve | Kind::Resync | Kind::Rebuild => 0,
            Kind::Drain | Kind::Reshape | Kind::Repair => 1,
            Kind::Rebalance => 2,
            Kind::Scrub => 3,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Paused => f.write_str("paused by command"),
            Why::Paced { p99: Some(p99), target } => {
                let (p99, target) = (p99.as_millis(), target.as_millis());
                write!(f, "paced: clients' 99th percentile is {p99} ms, target {target} ms")
            }
            Why::Paced { p99: None, target } => {
                write!(f, "paced: slow start beside clients, target {} ms", target.as_millis())
            }
            Why::After(kind, id) => write!(f, "waits for job {} ({})", id.0, kind.name()),
            Why::Away(disks) => {
                let list: Vec<_> = disks.iter().map(|d| d.0.to_string()).collect();
                match disks.len() {
                    0 => f.write_str("too few disks can be used now"),
                    1 => write!(f, "disk {} is away", list.join(", ")),
                    _ => write!(f, "disks {} are away", list.join(", ")),
                }
            }
            Why::Failed(error) => write!(f, "failed, and tries again: {error}"),
            Why::Soon(why) => write!(f, "continues in a moment: {why}"),
            Why::Stopping => f.write_str("ends"),
        }
    }
}
