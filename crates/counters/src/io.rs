//! I/O of a disk: number, bytes and latency. Physical and virtual disks are counted alike, and a pool's
//! counts are the sums of its virtual disks.
//!
//! **Latency.** Each kind of I/O has a histogram with eight buckets for each power of two, starting at 128
//! ns. Percentiles and total times are computed from the middle of each bucket: the error is at most 6 % per
//! I/O.
//!
//! **Cost.** An I/O costs one relaxed addition when it begins and two when it ends: its bucket and its bytes.
//! No lock, no allocation. Any thread may count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::{Env, Moment};

use crate::block::add_values;
use crate::{Block, Cell, Values};

/// The kinds of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It makes writes durable.
    Flush,
}

/// All kinds of I/O.
pub(crate) const KINDS: [IoKind; 3] = [IoKind::Read, IoKind::Write, IoKind::Flush];

/// I/Os begun, by kind.
const BEGUN: [Cell; 3] = [Cell(0), Cell(1), Cell(2)];
/// Bytes of I/Os that succeeded, by kind; a flush has none.
const BYTES: [Cell; 3] = [Cell(3), Cell(4), Cell(5)];
/// I/Os that failed.
pub(crate) const ERRORS: Cell = Cell(6);
/// I/Os completed, by kind: computed from the histograms.
const ENDED: [usize; 3] = [7, 8, 9];
/// Total time of these in nanoseconds, by kind: computed likewise.
const TIME: [usize; 3] = [10, 11, 12];
/// Cells filled by other parts of a pool: see [`IoSource`].
const HEDGED: usize = 13;
const HITS: usize = 14;
const MISSES: usize = 15;
const RETRIES: usize = 16;

/// Binary logarithm of the smallest bucket, in nanoseconds.
const FINEST: u32 = 7;
/// Binary logarithm of the number of buckets per power of two.
const FINE: u32 = 3;
/// The number of buckets: the last one begins at 128 s.
pub(crate) const BUCKETS: usize = 28 << FINE;

/// I/Os of one kind by latency: those in bucket `i` took at least [`bucket_floor`]`(i)` nanoseconds.
pub(crate) type Histogram = [u64; BUCKETS];

/// Values of an instance that are counted elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoSource {
    /// Reads that were so slow that another copy was read too.
    pub hedged: u64,
    /// Reads, writes and flushes of virtual disks that were repeated because a disk failed them.
    pub retries: u64,
    /// Checksum tables that were in memory when they were needed.
    pub cache_hits: u64,
    /// Checksum tables that had to be read from disk.
    pub cache_misses: u64,
}

/// The counters of one disk.
pub struct IoTally {
    env: Env,
    block: Block,
    latencies: [[AtomicU64; BUCKETS]; 3],
}

/// An outstanding I/O. If it is dropped, for example because the caller stops waiting, the I/O counts as
/// completed.
pub struct PendingIo {
    tally: Arc<IoTally>,
    kind: IoKind,
    at: Moment,
}

impl IoTally {
    /// A tally with zero counts.
    pub fn new(env: &Env) -> Arc<IoTally> {
        let latencies = [const { [const { AtomicU64::new(0) }; BUCKETS] }; 3];
        Arc::new(IoTally { env: env.clone(), block: Block::default(), latencies })
    }

    /// Counts the beginning of an I/O.
    pub fn begin(self: &Arc<Self>, kind: IoKind) -> PendingIo {
        self.block.add_shared(BEGUN[kind as usize], 1);
        PendingIo { tally: Arc::clone(self), kind, at: self.env.moment() }
    }

    pub(crate) fn sums(&self) -> IoSums {
        let latencies = self.latencies.each_ref().map(|h| h.each_ref().map(|n| n.load(Ordering::Relaxed)));
        // Read after the histograms, so that no more I/Os have completed than begun.
        IoSums { values: self.block.values(), latencies }
    }
}

impl PendingIo {
    /// The I/O succeeded, with `bytes` read or written.
    pub fn done(self, bytes: u64) {
        self.tally.block.add_shared(BYTES[self.kind as usize], bytes);
    }

    /// The I/O failed.
    pub fn failed(self) {
        self.tally.block.add_shared(ERRORS, 1);
    }
}

impl Drop for PendingIo {
    fn drop(&mut self) {
        let took = self.tally.env.moment().ns_since(self.at);
        self.tally.latencies[self.kind as usize][bucket(took)].fetch_add(1, Ordering::Relaxed);
    }
}

/// The sums of several tallies.
#[derive(Clone, Copy)]
pub(crate) struct IoSums {
    pub(crate) values: Values,
    pub(crate) latencies: [Histogram; 3],
}

impl Default for IoSums {
    fn default() -> IoSums {
        IoSums { values: [0; crate::CELLS], latencies: [[0; BUCKETS]; 3] }
    }
}

impl IoSums {
    pub(crate) fn add(&mut self, more: &IoSums) {
        add_values(&mut self.values, &more.values);
        for (sum, n) in self.latencies.iter_mut().flatten().zip(more.latencies.iter().flatten()) {
            *sum += n;
        }
    }

    /// Adds the values that are computed from the histograms.
    pub(crate) fn whole(mut self, source: IoSource) -> IoSums {
        for kind in KINDS.map(|k| k as usize) {
            let ended = |(i, n): (usize, &u64)| (*n, n * bucket_middle(i));
            let all = self.latencies[kind].iter().enumerate().map(ended);
            (self.values[ENDED[kind]], self.values[TIME[kind]]) =
                all.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        }
        (self.values[HEDGED], self.values[RETRIES]) = (source.hedged, source.retries);
        (self.values[HITS], self.values[MISSES]) = (source.cache_hits, source.cache_misses);
        self
    }
}

/// The bucket for a latency in nanoseconds.
pub(crate) fn bucket(ns: u64) -> usize {
    let units = ns >> FINEST;
    let power = units.checked_ilog2().unwrap_or(0);
    let index =
        if power < FINE { units } else { (u64::from(power - FINE) << FINE) + (units >> (power - FINE)) };
    (index as usize).min(BUCKETS - 1)
}

/// The smallest latency of a bucket, in nanoseconds. Also valid for the index after the last bucket.
pub(crate) fn bucket_floor(index: usize) -> u64 {
    let (index, fine) = (index as u64, 1 << FINE);
    let units = if index < fine { index } else { (fine + index % fine) << (index / fine - 1) };
    units << FINEST
}

/// The latency in nanoseconds that represents a bucket.
pub(crate) fn bucket_middle(index: usize) -> u64 {
    (bucket_floor(index) + bucket_floor(index + 1)) / 2
}

/// The latency that represents the bucket starting at `floor_ns`; snapshots identify buckets by that.
pub fn middle_of(floor_ns: u64) -> u64 {
    bucket_middle(bucket(floor_ns))
}

pub(crate) fn ended(v: &Values, kind: IoKind) -> u64 {
    v[ENDED[kind as usize]]
}

pub(crate) fn time(v: &Values, kind: IoKind) -> u64 {
    v[TIME[kind as usize]]
}

pub(crate) fn bytes(v: &Values, kind: IoKind) -> u64 {
    v[BYTES[kind as usize].0 as usize]
}

/// Reads and writes in progress.
pub(crate) fn outstanding(v: &Values) -> u64 {
    let of = |kind: IoKind| v[BEGUN[kind as usize].0 as usize].saturating_sub(ended(v, kind));
    of(IoKind::Read) + of(IoKind::Write)
}

pub(crate) fn source(v: &Values) -> IoSource {
    IoSource { hedged: v[HEDGED], retries: v[RETRIES], cache_hits: v[HITS], cache_misses: v[MISSES] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn buckets_follow_each_other_and_are_an_eighth_of_their_value_wide() {
        for ns in (0..1 << 14).chain((14..37).flat_map(|p| [(1 << p) - 1, 1 << p, (1 << p) + (1 << (p - 1))]))
        {
            let i = bucket(ns);
            assert!((bucket_floor(i)..bucket_floor(i + 1)).contains(&ns), "{ns} in {i}");
            let wrong = bucket_middle(i).abs_diff(ns);
            assert!(wrong <= 64 || wrong * 16 <= ns, "{ns} counts as {}", bucket_middle(i));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[tokio::test(start_paused = true)]
    async fn percentiles_are_of_the_ios_between_two_snapshots() {
        let env = Env::simulated(1);
        let (registry, tally) = (crate::Registry::new(env.clone()), IoTally::new(&env));
        let instance = crate::IoInstance {
            name: "percentiles/0".to_owned(),
            labels: ["percentiles", "0", "/d"].map(str::to_owned).to_vec(),
            tallies: vec![Arc::clone(&tally)],
            source: Box::new(|| IoSource { hedged: 7, retries: 8, ..IoSource::default() }),
        };
        crate::PHYSICAL_DISKS.replace_io(vec![instance]);
        let mut snapshots = Vec::new();
        for [quick, slow] in [[0, 50], [98, 2], [0, 0]] {
            for (n, ms) in [(quick, 1), (slow, 100)] {
                for _ in 0..n {
                    let io = tally.begin(IoKind::Write);
                    env.sleep(Duration::from_millis(ms)).await;
                    io.done(512);
                }
            }
            env.sleep(Duration::from_millis(1)).await;
            snapshots.push(registry.snapshot());
        }
        let set = crate::find("PhysicalDisk")[0];
        let value = |at: usize, name: &str| {
            let (old, new) = (&snapshots[at - 1], &snapshots[at]);
            let same = |s| crate::sample::same(s, set, "percentiles/0").expect("it");
            let counter = set.counters().find(|c| c.name == name).expect("a counter");
            crate::sample::value(set, counter, Some((old, same(old))), (new, same(new)))
                .expect("two snapshots")
        };
        let (median, most) = ("Median Disk sec/Write", "99th Percentile Disk sec/Write");
        let near = |is: f64, wanted: f64| assert!((is / wanted - 1.0).abs() < 0.07, "{is}, not {wanted}");
        near(value(1, median), 0.001);
        near(value(1, most), 0.1);
        near(value(1, "Avg. Disk sec/Write"), (98.0 * 0.001 + 0.2) / 100.0);
        near(value(1, "Avg. Disk Queue Length"), 1.0);
        assert_eq!(value(1, "Avg. Disk Bytes/Write"), 512.0);
        assert_eq!([median, most].map(|name| value(2, name)), [0.0, 0.0]);
        let sources = ["hedged_reads", "retries"].map(|name| snapshots[2].value(set, "percentiles/0", name));
        assert_eq!(sources, [Some(7), Some(8)]);
    }

    #[tokio::test(start_paused = true)]
    async fn every_io_that_began_ends_and_only_good_ones_have_bytes() {
        let env = Env::simulated(1);
        let tally = IoTally::new(&env);
        let ios: Vec<_> = [IoKind::Read, IoKind::Read, IoKind::Read, IoKind::Write, IoKind::Flush]
            .map(|kind| tally.begin(kind))
            .into_iter()
            .collect();
        env.sleep(Duration::from_millis(10)).await;
        let now = || tally.sums().whole(IoSource::default()).values;
        assert_eq!((outstanding(&now()), ended(&now(), IoKind::Read)), (4, 0));
        let [good, bad, dropped, write, flush] = ios.try_into().ok().expect("five");
        good.done(4096);
        bad.failed();
        drop::<PendingIo>(dropped);
        write.done(8192);
        flush.done(0);
        let v = now();
        assert_eq!((outstanding(&v), v[ERRORS.0 as usize]), (0, 1));
        assert_eq!(KINDS.map(|k| (ended(&v, k), bytes(&v, k))), [(3, 4096), (1, 8192), (1, 0)]);
        let ms = time(&v, IoKind::Read) as f64 / 3e6;
        assert!((9.4..10.6).contains(&ms), "{ms}");
    }
}
