//! A histogram of latencies over the last one to two spans. Without a clock: the caller passes the time.

use std::time::Duration;

use env::Moment;

/// Buckets per octave: the error is at most a quarter.
const STEPS: u32 = 4;

/// Octaves from a microsecond to beyond a minute.
const OCTAVES: u32 = 27;

const BUCKETS: usize = (STEPS * OCTAVES) as usize;

/// Counts of one span and of the one before it.
pub(super) struct Histogram {
    span: Duration,
    began: Option<Moment>,
    now: Box<Counts>,
    before: Box<Counts>,
}

struct Counts {
    of: [u32; BUCKETS],
    /// The sum of the durations, in nanoseconds.
    took: u64,
}

impl Counts {
    const NONE: Counts = Counts { of: [0; BUCKETS], took: 0 };
}

impl Histogram {
    pub(super) fn new(span: Duration) -> Histogram {
        Histogram { span, began: None, now: Box::new(Counts::NONE), before: Box::new(Counts::NONE) }
    }

    /// Adds an I/O that took this many nanoseconds.
    pub(super) fn add(&mut self, took: u64, now: Moment) {
        self.roll(now);
        let count = &mut self.now.of[bucket(took)];
        *count = count.saturating_add(1);
        self.now.took = self.now.took.saturating_add(took);
    }

    /// Adds the counts of another histogram.
    pub(super) fn add_all(&mut self, other: &mut Histogram, now: Moment) {
        self.roll(now);
        other.roll(now);
        for (mine, others) in [(&mut self.now, &other.now), (&mut self.before, &other.before)] {
            mine.of.iter_mut().zip(&others.of).for_each(|(n, more)| *n = n.saturating_add(*more));
            mine.took = mine.took.saturating_add(others.took);
        }
    }

    /// Drops counts older than two spans.
    pub(super) fn roll(&mut self, now: Moment) {
        let began = *self.began.get_or_insert(now);
        let age = Duration::from_nanos(now.ns_since(began));
        if age < self.span {
            return;
        }
        std::mem::swap(&mut self.now, &mut self.before);
        *self.now = Counts::NONE;
        if age >= 2 * self.span {
            *self.before = Counts::NONE;
        }
        self.began = Some(now);
    }

    /// The number of I/Os.
    pub(super) fn count(&self) -> u64 {
        self.now.of.iter().chain(&self.before.of).map(|n| u64::from(*n)).sum()
    }

    /// The mean; `None` without I/Os.
    pub(super) fn mean(&self) -> Option<Duration> {
        self.now.took.saturating_add(self.before.took).checked_div(self.count()).map(Duration::from_nanos)
    }

    /// The percentile, to the precision of a bucket; `None` without I/Os.
    pub(super) fn percentile(&self, percent: u64) -> Option<Duration> {
        let wanted = (self.count() * percent).div_ceil(100);
        let mut seen = 0;
        for bucket in 0..BUCKETS {
            seen += u64::from(self.now.of[bucket]) + u64::from(self.before.of[bucket]);
            if seen >= wanted && seen > 0 {
                return Some(most(bucket));
            }
        }
        None
    }
}

fn bucket(took: u64) -> usize {
    let us = (took / 1000).max(1);
    let octave = us.ilog2();
    // The two bits after the highest one.
    let within = ((us << 2) >> octave) & u64::from(STEPS - 1);
    ((octave * STEPS) as usize + within as usize).min(BUCKETS - 1)
}

/// The upper bound of a bucket.
fn most(bucket: usize) -> Duration {
    let (octave, within) = (bucket as u32 / STEPS, bucket as u64 % u64::from(STEPS));
    let from = u64::from(STEPS) + within + 1;
    Duration::from_micros(((from << octave) >> 2).max(1))
}

#[cfg(test)]
mod tests;
