//! Injected faults and their conditions.

use std::ops::Range;
use std::time::Duration;

use super::SlotId;
use crate::random::Random;
use crate::{DiskError, IoRange, Op, PowerCut};

/// A fault of some calls on one disk.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The operation that it applies to.
    pub op: Op,
    /// Which of these calls fail.
    pub when: When,
    /// The fault.
    pub fault: Fault,
    /// Only calls inside this range, in bytes; ignored for flushes.
    pub within: Range<u64>,
}

/// On which of its calls a [`Rule`] fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Only call number n, from 0.
    Nth(u64),
    /// Call number n and all later ones.
    From(u64),
    /// A random n of a million calls.
    Chance(u32),
}

/// The fault of a call. A fault that does not apply to the operation (a stale flush) has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with [`DiskError::Medium`]; arbitrary atomic units of a write take effect.
    Error,
    /// It fails with [`DiskError::Full`] and does nothing.
    Full,
    /// It fails with [`DiskError::Refused`] and does nothing.
    Refused(i32),
    /// A write, discard or flush reports success but does nothing.
    Lost,
    /// Only some atomic units of a write take effect; it reports success.
    Partial,
    /// A write or read accesses another offset.
    Misdirected,
    /// One bit of the data written or read is flipped. The next read is correct.
    Flipped,
    /// A read returns the contents at the last [`super::Machine::mark`] (zeros if there was none).
    Stale,
    /// A discard leaves arbitrary bytes; without this fault, zeros.
    Garbage,
    /// The call takes this much longer.
    Slow(Duration),
    /// The disk disappears during the call; see [`super::Machine::pull`].
    Vanish(PowerCut),
    /// The power of the whole machine fails during the call; see [`super::Machine::cut_at`].
    CutPower(PowerCut),
}

/// The number of calls that were not misuse, fenced or to a missing disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads started.
    pub reads: u64,
    /// Bytes requested by reads.
    pub read_bytes: u64,
    /// Writes started.
    pub writes: u64,
    /// Bytes of writes.
    pub written_bytes: u64,
    /// Flushes started.
    pub flushes: u64,
    /// Discards started.
    pub discards: u64,
}

/// A fault that fired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// The number of events before it.
    pub event: u64,
    /// The slot of the disk.
    pub slot: SlotId,
    /// The call.
    pub at: IoRange,
    /// The fault.
    pub fault: Fault,
}

/// A rule with its state.
#[derive(Clone)]
pub(super) struct ActiveRule {
    rule: Rule,
    seen: u64,
    random: Random,
}

impl Rule {
    /// A rule for the whole disk.
    pub fn new(op: Op, when: When, fault: Fault) -> Rule {
        Rule { op, when, fault, within: 0..u64::MAX }
    }

    /// Restricts the rule to calls in this range.
    pub fn within(self, range: Range<u64>) -> Rule {
        Rule { within: range, ..self }
    }
}

impl ActiveRule {
    pub(super) fn new(rule: Rule, random: Random) -> ActiveRule {
        ActiveRule { rule, seen: 0, random }
    }

    /// Whether its fault is a delay, which is evaluated before the call takes effect.
    pub(super) fn is_slow(&self) -> bool {
        matches!(self.rule.fault, Fault::Slow(_))
    }

    /// Returns the fault and random numbers for it, if the rule fires on this call.
    pub(super) fn fires(&mut self, at: IoRange) -> Option<(Fault, &mut Random)> {
        let rule = &self.rule;
        let inside = at.op == Op::Flush
            || (rule.within.start <= at.offset && at.offset + at.length <= rule.within.end);
        if rule.op != at.op || !inside {
            return None;
        }
        let n = self.seen;
        self.seen += 1;
        let fires = match rule.when {
            When::Nth(nth) => n == nth,
            When::From(first) => n >= first,
            When::Chance(of_million) => self.random.below(1_000_000) < u64::from(of_million),
        };
        fires.then_some((rule.fault, &mut self.random))
    }
}

impl Counts {
    pub(super) fn add(&mut self, at: IoRange) {
        match at.op {
            Op::Read => {
                self.reads += 1;
                self.read_bytes += at.length;
            }
            Op::Write => {
                self.writes += 1;
                self.written_bytes += at.length;
            }
            Op::Flush => self.flushes += 1,
            Op::Discard => self.discards += 1,
            Op::Fence | Op::Check => {}
        }
    }
}

impl Fault {
    /// The error that the caller sees, if it sees one.
    pub(super) fn error(self, at: IoRange) -> Option<DiskError> {
        match self {
            Fault::Error => Some(DiskError::Medium { at }),
            Fault::Full => Some(DiskError::Full { at }),
            Fault::Refused(errno) => Some(DiskError::Refused { at, errno }),
            Fault::Vanish(_) | Fault::CutPower(_) => Some(DiskError::Gone { at }),
            _ => None,
        }
    }
}
