//! The counters of a run: I/Os, bytes and latency, in total and over time.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Significant digits of a latency: an error of at most 0.1 %.
const DIGITS: u8 = 3;
/// The longest latency that is recorded exactly, in nanoseconds: one hour.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// The I/Os of one kind of one thread on one target.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// I/Os that completed.
    pub ios: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Latencies, if measured.
    pub latency: Latency,
    /// I/Os and latencies over time, if recorded.
    pub buckets: Buckets,
}

impl Tally {
    /// An empty tally. `buckets`: the number of intervals, and the length of each.
    pub fn new(latency: bool, buckets: Option<(usize, Duration)>) -> Tally {
        let latency = if latency { Latency::on() } else { Latency::default() };
        Tally { ios: 0, bytes: 0, latency, buckets: Buckets::new(buckets) }
    }

    /// Counts an I/O that completed `at` after the measurement began.
    pub fn add(&mut self, bytes: u64, latency: Duration, at: Duration) {
        self.ios += 1;
        self.bytes += bytes;
        self.latency.add(latency);
        self.buckets.add(at, latency);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Tally) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
        self.buckets.merge(&other.buckets);
    }
}

/// A latency distribution. If not measured, it is empty and uses no memory. Minimum, maximum, mean and
/// standard deviation are exact; percentiles have an error of at most 0.1 %.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    histogram: Option<Histogram<u64>>,
    min_ns: u64,
    max_ns: u64,
    sum_ns: f64,
    squares: f64,
}

impl Latency {
    /// An empty distribution that measures.
    pub fn on() -> Latency {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS).ok();
        Latency { histogram, ..Latency::default() }
    }

    /// Adds a latency.
    pub fn add(&mut self, latency: Duration) {
        let Some(h) = &mut self.histogram else { return };
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.min_ns = if h.is_empty() { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += ns as f64;
        self.squares += (ns as f64).powi(2);
        h.saturating_record(ns);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Latency) {
        let Some(theirs) = other.histogram.as_ref().filter(|h| !h.is_empty()) else { return };
        self.min_ns = if self.count() == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
        self.squares += other.squares;
        match &mut self.histogram {
            Some(ours) => ours.add(theirs).expect("histograms have the same bounds"),
            None => self.histogram = Some(theirs.clone()),
        }
    }

    /// The number of latencies.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// The number of distinct values recorded.
    pub fn distinct(&self) -> usize {
        self.histogram.as_ref().map_or(0, |h| h.iter_recorded().count())
    }

    /// The minimum, in milliseconds; 0 if empty.
    pub fn min_ms(&self) -> f64 {
        self.min_ns as f64 / 1e6
    }

    /// The maximum, in milliseconds.
    pub fn max_ms(&self) -> f64 {
        self.max_ns as f64 / 1e6
    }

    /// The average, in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns / self.count() as f64 / 1e6 }
    }

    /// The standard deviation, in milliseconds.
    pub fn stdev_ms(&self) -> f64 {
        if self.count() == 0 {
            return 0.0;
        }
        let n = self.count() as f64;
        ((self.squares - self.sum_ns * self.sum_ns / n).max(0.0) / n).sqrt() / 1e6
    }

    /// The given percentile, in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        let Some(h) = self.histogram.as_ref().filter(|h| !h.is_empty()) else { return 0.0 };
        h.value_at_percentile(percent).clamp(self.min_ns, self.max_ns) as f64 / 1e6
    }

    /// The share of latencies from `from` to less than `to` milliseconds, in percent.
    pub fn share_ms(&self, from: u64, to: u64) -> f64 {
        let Some(h) = self.histogram.as_ref().filter(|h| !h.is_empty()) else { return 0.0 };
        // A step of the histogram counts as its upper end, where whole milliseconds are.
        let within = |ns: u64| ns / 1_000_000 >= from && ns / 1_000_000 < to;
        let steps = h.iter_recorded().filter(|s| within(s.value_iterated_to().min(self.max_ns)));
        let n: u64 = steps.map(|s| s.count_since_last_iteration()).sum();
        n as f64 * 100.0 / h.len() as f64
    }
}

/// I/Os in intervals of the measured time. An I/O belongs to the interval in which it completes.
#[derive(Clone, Debug, Default)]
pub struct Buckets {
    width: Duration,
    buckets: Vec<Bucket>,
    used: bool,
}

/// One interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bucket {
    /// I/Os.
    pub count: u64,
    /// The minimum latency, in milliseconds; 0 without I/Os.
    pub min_ms: f64,
    /// The maximum latency, in milliseconds.
    pub max_ms: f64,
    sum: f64,
    squares: f64,
}

impl Bucket {
    /// The average latency, in milliseconds; 0 without I/Os.
    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// The standard deviation of the latency, in milliseconds.
    pub fn stdev_ms(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let n = self.count as f64;
        ((self.squares - self.sum * self.sum / n).max(0.0) / n).sqrt()
    }
}

impl Buckets {
    fn new(shape: Option<(usize, Duration)>) -> Buckets {
        let (count, width) = shape.unwrap_or_default();
        Buckets { width, buckets: vec![Bucket::default(); count], used: false }
    }

    /// Counts an I/O that completed `at` after the measurement began.
    pub fn add(&mut self, at: Duration, latency: Duration) {
        let Some(n) = at.as_nanos().checked_div(self.width.as_nanos()) else { return };
        let Some(b) = usize::try_from(n).ok().and_then(|n| self.buckets.get_mut(n)) else { return };
        let ms = latency.as_secs_f64() * 1e3;
        b.min_ms = if b.count == 0 { ms } else { b.min_ms.min(ms) };
        b.max_ms = b.max_ms.max(ms);
        b.sum += ms;
        b.squares += ms * ms;
        b.count += 1;
        self.used = true;
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Buckets) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), Bucket::default());
            self.width = other.width;
        }
        for (ours, theirs) in self.buckets.iter_mut().zip(&other.buckets).filter(|(_, t)| t.count > 0) {
            ours.min_ms = if ours.count == 0 { theirs.min_ms } else { ours.min_ms.min(theirs.min_ms) };
            ours.max_ms = ours.max_ms.max(theirs.max_ms);
            ours.sum += theirs.sum;
            ours.squares += theirs.squares;
            ours.count += theirs.count;
        }
        self.used |= other.used;
    }

    /// Keeps only the intervals that began before the measurement ended after `elapsed`.
    pub fn end(&mut self, elapsed: Duration) {
        if let Some(n) = elapsed.as_nanos().checked_sub(1).and_then(|n| n.checked_div(self.width.as_nanos()))
        {
            self.buckets.truncate(usize::try_from(n).map_or(usize::MAX, |n| n.saturating_add(1)));
        }
    }

    /// The intervals; empty if there was no I/O. Intervals without I/O are included, because pauses are part
    /// of the deviation.
    pub fn all(&self) -> &[Bucket] {
        if self.used { &self.buckets } else { &[] }
    }

    /// The standard deviation of I/Os per second over the intervals.
    pub fn iops_stdev(&self) -> f64 {
        let all = self.all();
        if all.is_empty() {
            return 0.0;
        }
        let n = all.len() as f64;
        let mean = all.iter().map(|b| b.count as f64).sum::<f64>() / n;
        let variance = all.iter().map(|b| (b.count as f64 - mean).powi(2)).sum::<f64>() / n;
        variance.sqrt() / self.width.as_secs_f64()
    }

    /// The length of an interval.
    pub fn width(&self) -> Duration {
        self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn latencies_are_kept_within_a_thousandth() {
        let mut l = Latency::on();
        for ms in 1..=1000 {
            l.add(MS(ms));
        }
        let near = |a: f64, b: f64| (a - b).abs() <= b * 0.0011;
        assert_eq!(l.count(), 1000);
        assert!(near(l.percentile_ms(50.0), 500.0) && near(l.percentile_ms(99.9), 999.0));
        assert!(near(l.mean_ms(), 500.5) && near(l.stdev_ms(), 288.675) && near(l.max_ms(), 1000.0));
        assert!((l.share_ms(0, 24) - 2.3).abs() < 0.11);
        let mut twice = Latency::default();
        twice.merge(&l);
        twice.merge(&l);
        assert_eq!(twice.count(), 2000);
        assert!(near(twice.percentile_ms(50.0), 500.0));
    }

    #[test]
    fn intervals_count_pauses() {
        let mut b = Buckets::new(Some((4, MS(500))));
        for _ in 0..10 {
            b.add(MS(100), MS(2));
            b.add(MS(1999), MS(4));
        }
        b.add(MS(2000), MS(9)); // after the last interval
        assert_eq!(b.all().iter().map(|b| b.count).collect::<Vec<_>>(), [10, 0, 0, 10]);
        assert_eq!(b.iops_stdev(), 10.0); // 20 or 0 I/Os per second, each half of the time
        assert_eq!((b.all()[0].mean_ms(), b.all()[0].stdev_ms(), b.all()[1].max_ms), (2.0, 0.0, 0.0));
        let mut sum = Buckets::default();
        sum.merge(&b);
        sum.merge(&b);
        assert_eq!(sum.all()[3].count, 20);
        assert_eq!(sum.iops_stdev(), 20.0);
        b.end(MS(1000));
        assert_eq!(b.all().len(), 2);
        assert!(Buckets::new(None).all().is_empty());
    }
}
