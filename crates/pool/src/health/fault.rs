//! The faults of a pool.

use std::collections::BTreeMap;

use super::Level;
use crate::events::Found;
use crate::jobs::{JobState, Why};
use crate::supervision::standing::Slowness;
use crate::{Absence, DiskNumber, MediaClass, SpaceId, State};

/// A snapshot of an open pool.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// Its metadata.
    pub state: &'a State,
    /// Why it takes no changes any more.
    pub suspended: Option<String>,
    /// It is open for reading only: there are no jobs, by design.
    pub read_only: bool,
    /// Disks that are present although an I/O failed, with the last error: they have something that no other has.
    pub failing: BTreeMap<DiskNumber, String>,
    /// Damage found since the pool was opened.
    pub findings: BTreeMap<(Found, DiskNumber), u64>,
    /// Disks that are much slower than their peers, or left because of it.
    pub slow: BTreeMap<DiskNumber, Slowness>,
    /// Groups that a crash left in doubt, by space.
    pub in_doubt: BTreeMap<SpaceId, usize>,
    /// The background jobs.
    pub jobs: Vec<JobState>,
    /// From how many percent in use on a pool with thin spaces is too full.
    pub warn_percent: u64,
}

/// How bad it is; the field's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing has to be done.
    Information = 4,
    /// Something has to be done, before more fails.
    Warning = 5,
    /// Something does not work, or is lost.
    Error = 6,
}

/// Where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The whole pool.
    Pool,
    /// All disks of a fault domain.
    Domain(Level, String),
    /// A disk.
    Disk(DiskNumber),
    /// A space.
    Space(SpaceId),
}

/// One root cause, with what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// Where.
    pub place: Place,
    /// How bad it is, with all that follows from it.
    pub severity: Severity,
    /// The consequences, which end with this fault.
    pub consequences: Vec<Fault>,
}

/// The kind of fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum FaultKind {
    /// All disks of a fault domain are absent.
    DomainAway { disks: Vec<DiskNumber> },
    /// A disk takes no part.
    Absent(Absence),
    /// A disk fails, and stays in service because it has the only current copy of some data.
    Failing { error: String },
    /// A disk is much slower than its peers.
    Slow(Slowness),
    /// A disk returned wrong data, or could not read it; it was repaired from other copies. Units of 4 KiB.
    Healed { units: u64 },
    /// Units of a space that no copy has; reading them fails.
    Lost {
        /// Units of 4 KiB.
        units: u64,
        /// There may be more: not every one's address is remembered.
        at_least: bool,
        /// The lowest address in the space that is known; none where only its journal has lost something.
        first: Option<u64>,
    },
    /// A disk is to get nothing more, and still has some bytes. `waits`: why no job moves them.
    Retired { left: u64, waits: Option<Why> },
    /// A present disk lacks writes, which a job copies. `waits`: why the job does not work.
    Behind { bytes: u64, waits: Option<Why> },
    /// A space can lose fewer disks than it promises.
    Redundancy { left: usize, promised: usize },
    /// A part of a space has no disk that has its newest data: reading it fails.
    Unavailable,
    /// Parts of a space, groups of 2 MiB, are in doubt after a crash, and wait.
    InDoubt { groups: usize },
    /// One disk with metadata less, and the pool stops.
    Metadata { voters: usize },
    /// More than the threshold is in use, and thin spaces may grow.
    Capacity { percent: u64, threshold: u64, media: MediaClass },
    /// Slabs of a space lie on other media than its class has.
    OtherMedia { bytes: u64 },
    /// There is no room for what a thin space has not written yet: such a write fails.
    Full,
    /// A disk that fails could not be rebuilt on the others: in bytes, on the disks of this class.
    NoReserve { needed: u64, free: u64, media: MediaClass },
    /// The pool takes no changes.
    Suspended { why: String },
}

impl Fault {
    pub(super) fn new(place: Place, severity: Severity, kind: FaultKind) -> Fault {
        Fault { kind, place, severity, consequences: Vec::new() }
    }

    /// This follows from it.
    pub(super) fn explains(&mut self, other: Fault) {
        self.severity = self.severity.max(other.severity);
        self.consequences.push(other);
    }
}
