//! Injected faults and their conditions.

use std::ops::Range;
use std::time::Duration;

use super::SlotId;
use crate::random::Random;
use crate::{DiskError, Op, Place, PowerCut};

/// One thing that goes wrong with some calls on one disk.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The calls it is about.
    pub op: Op,
    /// Which of them.
    pub when: When,
    /// Their fault.
    pub what: Fault,
    /// Only calls that lie in this range, in bytes; flushes always do.
    pub within: Range<u64>,
}

/// Which calls a [`Rule`] fires on, of those that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Number so-and-so only; the next is 0.
    Nth(u64),
    /// That and all after it.
    From(u64),
    /// This many of a million, at random.
    Chance(u32),
}

/// The fault of a call. One that does not apply to a call (a stale flush) has no effect on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with [`DiskError::Medium`]; of a write, any atomic units arrive.
    Error,
    /// It fails with [`DiskError::Full`] and does nothing.
    Full,
    /// It fails with [`DiskError::Refused`] and does nothing.
    Refused(i32),
    /// A write, discard or flush says that it was done, and was not.
    Lost,
    /// Only some atomic units of a write arrive; it says that all did.
    Partial,
    /// A write arrives, or a read reads, at another place.
    Misdirected,
    /// One bit of the data written or read is wrong. The next read is right again.
    Flipped,
    /// A read gives what was there at the last [`super::Machine::mark`] (zeros if there was none).
    Stale,
    /// A discard leaves arbitrary bytes; without it, zeros.
    Garbage,
    /// It takes so much longer.
    Slow(Duration),
    /// The disk disappears during the call; see [`super::Machine::pull`].
    Vanish(PowerCut),
    /// The power of the whole machine fails during the call; see [`super::Machine::cut_at`].
    CutPower(PowerCut),
}

/// How many calls there were that were not misuse, fenced or to a disk that was gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads begun.
    pub reads: u64,
    /// Bytes that they asked for.
    pub read_bytes: u64,
    /// Writes begun.
    pub writes: u64,
    /// Bytes that they brought.
    pub written_bytes: u64,
    /// Flushes begun.
    pub flushes: u64,
    /// Discards begun.
    pub discards: u64,
}

/// A fault that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// How many events there had been.
    pub event: u64,
    /// Where.
    pub slot: SlotId,
    /// To which call.
    pub at: Place,
    /// The fault.
    pub fault: Fault,
}

/// A rule at work.
#[derive(Clone)]
pub(super) struct Active {
    rule: Rule,
    seen: u64,
    random: Random,
}

impl Rule {
    /// A rule for the whole disk.
    pub fn new(op: Op, when: When, what: Fault) -> Rule {
        Rule { op, when, what, within: 0..u64::MAX }
    }

    /// The same for calls in this range only.
    pub fn within(self, range: Range<u64>) -> Rule {
        Rule { within: range, ..self }
    }
}

impl Active {
    pub(super) fn new(rule: Rule, random: Random) -> Active {
        Active { rule, seen: 0, random }
    }

    /// Whether it is one that fires before the call takes time.
    pub(super) fn is_slow(&self) -> bool {
        matches!(self.rule.what, Fault::Slow(_))
    }

    /// The fault, with the random numbers for it, if the rule fires on this call.
    pub(super) fn fires(&mut self, at: Place) -> Option<(Fault, &mut Random)> {
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
        fires.then_some((rule.what, &mut self.random))
    }
}

impl Counts {
    pub(super) fn add(&mut self, at: Place) {
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
    pub(super) fn error(self, at: Place) -> Option<DiskError> {
        match self {
            Fault::Error => Some(DiskError::Medium { at }),
            Fault::Full => Some(DiskError::Full { at }),
            Fault::Refused(errno) => Some(DiskError::Refused { at, errno }),
            Fault::Vanish(_) | Fault::CutPower(_) => Some(DiskError::Gone { at }),
            _ => None,
        }
    }
}
