//! The deadlines of I/O to disks.

use std::time::Duration;

use disk::Op;

use crate::HANG_TIMEOUT;

/// How long an I/O may take. The defaults are for disks of one machine, which may need seconds to recover a sector. A
/// cluster can read other copies, and needs a result in less than a second.
///
/// An owner's I/O fails over to other copies only when its disk is removed from service. The pool removes a disk with
/// an I/O beyond its deadline, if it can continue without the disk. See also [`Deadlines::log`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// The deadline of owners' reads.
    pub reads: Duration,
    /// The deadline of owners' writes.
    pub writes: Duration,
    /// The deadline of owners' flushes and discards, whose duration depends on the I/O before them.
    pub flushes: Duration,
    /// The deadline of metadata I/O, which fails then. It is longer than a disk's own error recovery.
    pub metadata: Duration,
}

impl Deadlines {
    /// The minimum of the deadlines for owners: the supervision sleeps between its checks.
    pub const LEAST: Duration = Duration::from_millis(100);

    /// The same deadline for each I/O of an owner.
    pub const fn data(each: Duration, metadata: Duration) -> Deadlines {
        Deadlines { reads: each, writes: each, flushes: each, metadata }
    }

    /// The deadline of an owner's I/O.
    pub fn of(&self, op: Op) -> Duration {
        match op {
            Op::Read => self.reads,
            Op::Write => self.writes,
            Op::Flush | Op::Discard | Op::Fence | Op::Check => self.flushes,
        }
    }

    /// The deadline of an I/O to a log, which fails then. Before that the disk is removed from service, if possible.
    pub fn log(&self) -> Duration {
        3 * self.reads.max(self.writes).max(self.flushes)
    }

    /// The shortest deadline for owners.
    pub(crate) fn least(&self) -> Duration {
        self.reads.min(self.writes).min(self.flushes)
    }

    /// The deadlines, with those for owners raised to at least [`Deadlines::LEAST`].
    pub(crate) fn supervised(self) -> Deadlines {
        let Deadlines { reads, writes, flushes, metadata } = self;
        let [reads, writes, flushes] = [reads, writes, flushes].map(|each| each.max(Deadlines::LEAST));
        Deadlines { reads, writes, flushes, metadata }
    }
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines::data(HANG_TIMEOUT, Duration::from_secs(30))
    }
}
