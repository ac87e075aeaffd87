//! How long I/Os took lately: counts by length, of the last one to two spans. No clock: times are given.

use std::time::Duration;

use env::Moment;

/// Steps in an octave: a step is known to a quarter of itself at worst.
const STEPS: u32 = 4;

/// From a microsecond to beyond a minute.
const OCTAVES: u32 = 27;

const BUCKETS: usize = (STEPS * OCTAVES) as usize;

/// Counts of one span and of the one before it.
pub(super) struct Spread {
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

impl Spread {
    pub(super) fn new(span: Duration) -> Spread {
        Spread { span, began: None, now: Box::new(Counts::NONE), before: Box::new(Counts::NONE) }
    }

    /// An I/O that took this many nanoseconds has ended.
    pub(super) fn add(&mut self, took: u64, now: Moment) {
        self.roll(now);
        let count = &mut self.now.of[bucket(took)];
        *count = count.saturating_add(1);
        self.now.took = self.now.took.saturating_add(took);
    }

    /// Forgets what is older than two spans.
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

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.now.of.iter().chain(&self.before.of).map(|n| u64::from(*n)).sum()
    }

    /// The mean; `None` when there were none.
    pub(super) fn mean(&self) -> Option<Duration> {
        self.now.took.saturating_add(self.before.took).checked_div(self.count()).map(Duration::from_nanos)
    }

    /// The percentile, to a step; `None` when there were none.
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
    // The two bits after the first.
    let within = ((us << 2) >> octave) & u64::from(STEPS - 1);
    ((octave * STEPS) as usize + within as usize).min(BUCKETS - 1)
}

/// Where a bucket ends.
fn most(bucket: usize) -> Duration {
    let (octave, within) = (bucket as u32 / STEPS, bucket as u64 % u64::from(STEPS));
    let from = u64::from(STEPS) + within + 1;
    Duration::from_micros(((from << octave) >> 2).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(5);

    #[test]
    fn a_percentile_is_right_to_a_step() {
        for us in [1, 2, 3, 7, 100, 4095, 4096, 1_000_000, 11_700_000] {
            let took = Duration::from_micros(us);
            let end = most(bucket(us * 1000));
            assert!(end >= took && end <= took * 3 / 2 + Duration::from_micros(1), "{us}: {end:?}");
        }
        let start = Moment::START;
        let mut spread = Spread::new(SPAN);
        assert_eq!((spread.percentile(50), spread.mean()), (None, None));
        for n in 0..1000 {
            let ms = if n % 100 < 2 { 200 } else { 1 };
            spread.add(ms * 1_000_000, start);
        }
        assert!(spread.percentile(50) < Some(Duration::from_millis(2)));
        assert!(spread.percentile(99) >= Some(Duration::from_millis(200)));
        assert_eq!((spread.count(), spread.mean()), (1000, Some(Duration::from_micros(4980))));
        spread.roll(start.after(SPAN));
        spread.add(0, start.after(SPAN));
        assert!(spread.mean() < Some(Duration::from_micros(4980)), "the span before counts");
        spread.roll(start.after(3 * SPAN));
        assert_eq!(spread.mean(), None);
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let start = Moment::START;
        let mut spread = Spread::new(SPAN);
        spread.add(1_000_000_000, start);
        spread.roll(start.after(SPAN));
        assert_eq!(spread.count(), 1, "the span before counts");
        spread.roll(start.after(2 * SPAN));
        assert_eq!(spread.count(), 0);
        spread.add(1_000_000_000, start.after(2 * SPAN));
        spread.roll(start.after(9 * SPAN));
        assert_eq!(spread.count(), 0, "no query for long");
    }
}
