//! The recent latencies of a disk's I/Os, for the comparison of disks in [`outliers`](super::outliers).

use std::time::Duration;

use disk::{DiskInfo, Media, Op};
use env::Moment;

use super::outliers::{RecentIo, SAMPLES};
use super::recent_latencies::RecentLatencies;

/// See the module.
pub(crate) struct Latencies {
    pub(crate) reads: RecentLatencies,
    writes: RecentLatencies,
    /// The longest I/O since the last check, in nanoseconds. Flushes do not count, because their duration depends on
    /// earlier writes.
    longest: u64,
    /// The longest I/O that began in a short queue.
    longest_short: u64,
}

impl Latencies {
    pub(crate) fn new() -> Latencies {
        Latencies {
            reads: RecentLatencies::new(),
            writes: RecentLatencies::new(),
            longest: 0,
            longest_short: 0,
        }
    }

    /// Adds an I/O that took this many nanoseconds; `short`: it began in a short queue.
    pub(crate) fn add(&mut self, op: Op, took: u64, short: bool, now: Moment) {
        if op != Op::Flush {
            self.longest = self.longest.max(took);
            if short {
                self.longest_short = self.longest_short.max(took);
            }
        }
        match op {
            Op::Read => self.reads.add(took, short, now),
            Op::Write => self.writes.add(took, short, now),
            Op::Flush | Op::Discard | Op::Fence | Op::Check => {}
        }
    }

    /// Adds the latencies of another space.
    pub(crate) fn add_all(&mut self, other: &mut Latencies, now: Moment) {
        self.reads.add_all(&mut other.reads, now);
        self.writes.add_all(&mut other.writes, now);
        self.longest = self.longest.max(other.longest);
        self.longest_short = self.longest_short.max(other.longest_short);
    }

    /// Resets the longest I/O; returns whether there was no recent I/O.
    pub(crate) fn begin_again(&mut self) -> bool {
        (self.longest, self.longest_short) = (0, 0);
        self.reads.count() + self.writes.count() == 0
    }

    /// Summarises the recent I/Os and the outstanding ones; each of these has its operation, its beginning, and
    /// whether the queue was short then.
    pub(crate) fn recent_io(
        &mut self,
        info: &DiskInfo,
        outstanding: impl Iterator<Item = (Op, Moment, bool)>,
        now: Moment,
    ) -> RecentIo {
        // An avoided or less preferred disk has few reads, so each of them counts.
        let (reads, writes) = (self.reads.latency(now, 1), self.writes.latency(now, SAMPLES));
        let (mut longest, mut longest_short) = (self.longest, self.longest_short);
        for (_, began, short) in outstanding.filter(|(op, ..)| *op != Op::Flush) {
            let age = now.ns_since(began);
            longest = longest.max(age);
            if short {
                longest_short = longest_short.max(age);
            }
        }
        RecentIo {
            media: info.media as u8,
            flash: matches!(info.media, Media::Scm | Media::Nvme | Media::Ssd),
            reads,
            writes,
            longest: Duration::from_nanos(longest),
            longest_short: Duration::from_nanos(longest_short),
        }
    }
}
