//! The deadlines of I/O to disks.

use std::time::Duration;

use disk::Op;

use crate::HANGS;

/// How long an I/O may take. The default is for the disks of one machine, which may need seconds to recover a sector; a
/// cluster, which can read other copies, needs a result in less than a second.
///
/// An I/O of an owner fails over to other copies only when its disk is removed from service: that is what happens to a
/// disk with a later one, if the pool can continue without the disk. See also [`Deadlines::log`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// For owners' reads.
    pub reads: Duration,
    /// For owners' writes.
    pub writes: Duration,
    /// For owners' flushes and discards, whose time depends on the I/O before them.
    pub flushes: Duration,
    /// For metadata, after which an I/O has failed. Longer than a disk's own error recovery.
    pub metadata: Duration,
}

impl Deadlines {
    /// The minimum of those for owners: the supervision has to sleep in between.
    pub const LEAST: Duration = Duration::from_millis(100);

    /// The same deadline for each I/O of an owner.
    pub const fn data(each: Duration, metadata: Duration) -> Deadlines {
        Deadlines { reads: each, writes: each, flushes: each, metadata }
    }

    /// For an owner's I/O.
    pub fn of(&self, op: Op) -> Duration {
        match op {
            Op::Read => self.reads,
            Op::Write => self.writes,
            Op::Flush | Op::Discard | Op::Fence | Op::Check => self.flushes,
        }
    }

    /// For an I/O to a log, after which it has failed. Before that the disk is removed from service, if possible.
    pub fn log(&self) -> Duration {
        3 * self.reads.max(self.writes).max(self.flushes)
    }

    /// The shortest of those for owners.
    pub(crate) fn least(&self) -> Duration {
        self.reads.min(self.writes).min(self.flushes)
    }

    /// The same, with the minimum for owners' I/O.
    pub(crate) fn supervised(self) -> Deadlines {
        let Deadlines { reads, writes, flushes, metadata } = self;
        let [reads, writes, flushes] = [reads, writes, flushes].map(|each| each.max(Deadlines::LEAST));
        Deadlines { reads, writes, flushes, metadata }
    }
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines::data(HANGS, Duration::from_secs(30))
    }
}
