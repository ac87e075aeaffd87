//! Detects disks that are outliers among their peers: a core without clock or I/O, called once a span.
//!
//! A disk has points. A span in which its I/Os took far longer than its peers', by median and by mean, adds one. A
//! span with a single I/O of seconds adds several. A normal span removes one, and a span without I/O changes nothing.
//! A disk becomes slow with [`SLOW_POINTS`] points that a long queue does not explain, and stays slow until it has no
//! points. So one abnormal span is no proof, and one normal span does not end the state. With [`REMOVAL_POINTS`] such
//! points the disk should be removed from service.
//!
//! Both median and mean, because either alone has false positives: one I/O of a second dominates the mean of a hundred,
//! and where I/Os complete in bursts (a rate limit, a draining cache), a few more waiting I/Os shift the median.
//!
//! The latency in a long queue says little about the disk: under a closed-loop load, the whole queue waits at the
//! disk with slightly more work. So only I/Os that began in a short queue (at most [`SHORT_QUEUE`]) count. If there are
//! none, the disk may just be busy: the fault is reported only after a minute, reads do not avoid the disk, and it
//! stays in service.
//!
//! A delay common to all peers is not the disk's fault: a disk is compared with its peers, and if half of the
//! disks of a medium have an I/O of seconds in the same span (a controller reset, a paused machine) none of
//! them gets points for it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::DiskNumber;

/// The interval of a measurement; a fault is detected after three intervals.
pub const SPAN: Duration = Duration::from_secs(5);

/// The limit of a disk's latency, as a multiple of its peers'. Uneven load alone lengthens queues, and so latencies:
/// a disk with the busiest slabs reaches two to four times those of its peers.
pub const FACTOR: u32 = 8;

/// Below this factor the disk is normal again. Between the two factors nothing changes.
pub const FACTOR_WELL: u32 = 4;

/// Latencies of flash below this are harmless, whatever the peers': flash is faster even at its worst.
pub const LEAST_FLASH: Duration = Duration::from_millis(2);

/// Latencies below this are harmless for rotating disks, and for an unknown medium: a random access in a short queue
/// takes as long.
pub const LEAST_OTHER: Duration = Duration::from_millis(25);

/// The most outstanding I/Os on a disk, including the new one, that count as a short queue: they lengthen an
/// I/O by at most this factor, half of [`FACTOR`].
pub const SHORT_QUEUE: usize = 4;

/// The number of I/Os in two spans needed to evaluate the latency.
pub const SAMPLES: u64 = 32;

/// A single I/O of this length is reported: no healthy disk takes so long, even with a queue of 64 seeks or during
/// garbage collection of flash.
pub const LONG_IO: Duration = Duration::from_secs(3);

/// Points for a span with such an I/O.
const LONG_IO_POINTS: u32 = 3;

/// Points that make a disk slow, if a long queue does not explain them: three spans, or one I/O of seconds.
pub const SLOW_POINTS: u32 = 3;

/// Points with which the disk should be removed, if a long queue does not explain them: a minute of bad spans, or
/// four spans with an I/O of seconds. A disk with as many points of any kind is slow.
pub const REMOVAL_POINTS: u32 = 12;

/// The latency of I/Os.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// The median.
    pub median: Duration,
    /// The mean.
    pub mean: Duration,
    /// Whether these I/Os include long queues, because too few began in a short one ([`SHORT_QUEUE`]).
    pub crowded: bool,
}

/// The I/O of a disk in the last two spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentIo {
    /// The disk's medium; its peers have the same.
    pub media: u8,
    /// Whether it is flash, or memory.
    pub flash: bool,
    /// The latency of reads, if there were [`SAMPLES`], or any in a short queue.
    pub reads: Option<Latency>,
    /// The latency of writes, if there were [`SAMPLES`].
    pub writes: Option<Latency>,
    /// The longest I/O that ended in the last span, or the age of an outstanding one; flushes do not count.
    pub longest: Duration,
    /// The longest I/O of those that began in a short queue.
    pub longest_short: Duration,
}

/// Why a disk counts as slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowness {
    /// The disk's median when it last exceeded the limit.
    pub median: Duration,
    /// The median of its peers' medians at that time. Zero if it had no peers, or its median never exceeded the
    /// limit.
    pub peers: Duration,
    /// The longest I/O since the disk got its first point.
    pub longest: Duration,
    /// Whether it was slow only with a long queue: it may just have more load than its peers.
    pub crowded: bool,
}

/// The points of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DiskScore {
    points: u32,
    /// The points that a long queue does not explain.
    certain_points: u32,
    is_slow: bool,
    /// Whether the disk is slow because of these points alone.
    is_certain: bool,
    why: Option<Slowness>,
}

/// The result of a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanResult {
    /// Disks that are slow now, and why.
    pub slow: BTreeMap<DiskNumber, Slowness>,
    /// Slow disks that should be removed, the worst first.
    pub to_remove: Vec<DiskNumber>,
}

/// The disks of a pool. See the module.
#[derive(Debug, Default)]
pub struct OutlierScores {
    disks: BTreeMap<DiskNumber, DiskScore>,
}

impl OutlierScores {
    /// Ends a span; `disks_io` has all disks in service.
    pub fn span(&mut self, disks_io: &BTreeMap<DiskNumber, RecentIo>) -> SpanResult {
        self.disks.retain(|d, _| disks_io.contains_key(d));
        let common = |media: u8| {
            let same = disks_io.values().filter(|l| l.media == media);
            let stood = same.clone().filter(|l| l.longest >= LONG_IO).count();
            stood > 1 && stood * 2 >= same.count()
        };
        for (disk, io) in disks_io {
            let compared = [
                compare(disks_io, *disk, io, io.reads, |l| l.reads),
                compare(disks_io, *disk, io, io.writes, |l| l.writes),
            ];
            let score = self.disks.entry(*disk).or_default();
            let one = |longest| longest >= LONG_IO && !common(io.media);
            let (one, sure) = (one(io.longest), one(io.longest_short));
            let worst = compared.iter().flatten().filter(|c| c.bad).max_by_key(|c| (!c.crowded, c.median));
            let well = compared.iter().flatten().all(|c| c.well) && io.longest < LONG_IO;
            if worst.is_some() || one {
                let add = if sure { LONG_IO_POINTS } else { 1 };
                score.points = (score.points + add).min(REMOVAL_POINTS);
                if sure || worst.is_some_and(|w| !w.crowded) {
                    score.certain_points = (score.certain_points + add).min(REMOVAL_POINTS);
                }
                let zero = Slowness {
                    median: Duration::ZERO,
                    peers: Duration::ZERO,
                    longest: io.longest,
                    crowded: true,
                };
                let why = score.why.get_or_insert(zero);
                why.longest = why.longest.max(io.longest);
                if let Some(worst) = worst {
                    (why.median, why.peers) = (worst.median, worst.peers);
                }
            } else if well && (compared.iter().any(Option::is_some) || io.longest > Duration::ZERO) {
                score.points = score.points.saturating_sub(1);
                score.certain_points = score.certain_points.saturating_sub(1);
            }
            score.is_certain =
                score.certain_points >= SLOW_POINTS || (score.is_certain && score.certain_points > 0);
            score.is_slow =
                score.is_certain || score.points >= REMOVAL_POINTS || (score.is_slow && score.points > 0);
            if score.points == 0 {
                score.why = None;
            }
        }
        let mut result = SpanResult::default();
        for (disk, s) in self.disks.iter().filter(|(_, s)| s.is_slow) {
            result.slow.extend(s.why.map(|why| (*disk, Slowness { crowded: !s.is_certain, ..why })));
            if s.certain_points >= REMOVAL_POINTS {
                result.to_remove.push(*disk);
            }
        }
        result
            .to_remove
            .sort_by_key(|d| result.slow.get(d).map(|w| std::cmp::Reverse(w.longest.max(w.median))));
        result
    }
}

struct Compared {
    median: Duration,
    peers: Duration,
    crowded: bool,
    bad: bool,
    well: bool,
}

/// Compares a disk's latency with the median of its peers', which are the other disks of the same medium. Returns
/// `None` if either is unknown.
fn compare(
    disks_io: &BTreeMap<DiskNumber, RecentIo>,
    disk: DiskNumber,
    io: &RecentIo,
    latency: Option<Latency>,
    of: impl Fn(&RecentIo) -> Option<Latency>,
) -> Option<Compared> {
    let latency = latency?;
    let others = disks_io.iter().filter(|(d, l)| **d != disk && l.media == io.media);
    let others: Vec<Latency> = others.filter_map(|(_, l)| of(l)).collect();
    let peers = middle(others.iter().map(|l| l.median))?;
    let peers_mean = middle(others.iter().map(|l| l.mean))?;
    let least = if io.flash { LEAST_FLASH } else { LEAST_OTHER };
    let beyond = |times: u32| {
        let (median, mean) = (latency.median, latency.mean);
        median.min(mean) >= least && median >= peers * times && mean >= peers_mean * times
    };
    let (bad, well) = (beyond(FACTOR), !beyond(FACTOR_WELL));
    Some(Compared { median: latency.median, peers, crowded: latency.crowded, bad, well })
}

/// The median; the higher one of two, in favour of the disk.
fn middle(of: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut all: Vec<Duration> = of.collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}

#[cfg(test)]
mod tests;
