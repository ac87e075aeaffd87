//! The faults of a pool.

use std::collections::BTreeMap;

use super::Level;
use crate::events::DamageKind;
use crate::jobs::{DelayReason, JobState};
use crate::supervision::outliers::Slowness;
use crate::{Absence, DiskNumber, MediaClass, SpaceId, State};

/// A snapshot of an open pool.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The pool's metadata.
    pub state: &'a State,
    /// Why the pool accepts no changes any more, if so.
    pub suspended: Option<String>,
    /// Whether the pool is open read-only, and so has no jobs.
    pub read_only: bool,
    /// Disks that stay in service after a failed I/O because they have the only copy of some data, with the last error.
    pub failing: BTreeMap<DiskNumber, String>,
    /// Damage found since the pool was opened.
    pub findings: BTreeMap<(DamageKind, DiskNumber), u64>,
    /// Disks that are much slower than their peers, or were removed because of it.
    pub slow: BTreeMap<DiskNumber, Slowness>,
    /// Spaces that cannot be opened, with the reason.
    pub not_open: BTreeMap<SpaceId, String>,
    /// Groups that a crash left in doubt, by space.
    pub in_doubt: BTreeMap<SpaceId, usize>,
    /// The background jobs.
    pub jobs: Vec<JobState>,
    /// The used percentage from which on a pool with thin spaces is reported as too full.
    pub warn_percent: u64,
}

/// The severity, with the numbers that the industry uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// No action is needed.
    Information = 4,
    /// Action is needed before the next failure.
    Warning = 5,
    /// A function is unavailable, or data is lost.
    Error = 6,
}

/// The object with the fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultObject {
    /// The whole pool.
    Pool,
    /// All disks of a fault domain.
    Domain(Level, String),
    /// A disk.
    Disk(DiskNumber),
    /// A space.
    Space(SpaceId),
}

/// A root cause with its consequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// The object with the fault.
    pub object: FaultObject,
    /// The severity, including all consequences.
    pub severity: Severity,
    /// The consequences, which end together with this fault.
    pub consequences: Vec<Fault>,
}

/// The kind of fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum FaultKind {
    /// All disks of a fault domain are absent.
    DomainAway { disks: Vec<DiskNumber> },
    /// A disk is out of service.
    Absent(Absence),
    /// A disk fails, and stays in service because it has the only current copy of some data.
    Failing { error: String },
    /// A disk is much slower than its peers.
    Slow(Slowness),
    /// A disk returned wrong data, or could not read it, and the data was repaired from other copies. Units of 4 KiB.
    Healed { units: u64 },
    /// Units of a space that no copy has; reading them fails.
    Lost {
        /// Units of 4 KiB.
        units: u64,
        /// There may be more: the number of recorded addresses is limited.
        at_least: bool,
        /// The lowest known address in the space; `None` if only its log has lost records.
        first: Option<u64>,
    },
    /// A retired disk still has data. `waits`: why no job moves it.
    Retired { left: u64, waits: Option<DelayReason> },
    /// A present disk has stale regions, which a job fills. `waits`: why the job does not run.
    Behind { bytes: u64, waits: Option<DelayReason> },
    /// A space survives the loss of fewer disks than it promises.
    Redundancy { left: usize, promised: usize },
    /// A part of a space has no disk that has its newest data: reading it fails.
    Unavailable,
    /// A space cannot be opened: all reads and writes fail.
    NotOpen { why: String },
    /// Parts of a space (groups of 2 MiB) are in doubt after a crash.
    InDoubt { groups: usize },
    /// The loss of one more disk with metadata would stop the pool.
    Metadata { voters: usize },
    /// More space is used than the threshold, and thin spaces may grow.
    Capacity { percent: u64, threshold: u64, media: MediaClass },
    /// Slabs of a space are on media outside its class.
    OtherMedia { bytes: u64 },
    /// There is no room for the unwritten part of a thin space: writes there fail.
    Full,
    /// The other disks have too little room to rebuild a lost disk; sizes in bytes, on disks of this class.
    NoReserve { needed: u64, free: u64, media: MediaClass },
    /// The pool accepts no changes.
    Suspended { why: String },
}

impl Fault {
    pub(super) fn new(object: FaultObject, severity: Severity, kind: FaultKind) -> Fault {
        Fault { kind, object, severity, consequences: Vec::new() }
    }

    /// Adds a consequence.
    pub(super) fn explains(&mut self, other: Fault) {
        self.severity = self.severity.max(other.severity);
        self.consequences.push(other);
    }
}
