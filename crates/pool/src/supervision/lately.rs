//! How long I/Os of one kind took lately, and those of them that began in a short queue.

use std::time::Duration;

use env::Moment;

use super::spread::Spread;
use super::standing::{Latency, SAMPLES, SPAN};

/// Counts of one span and of the one before it.
pub(crate) struct Lately {
    all: Spread,
    short: Spread,
}

impl Lately {
    pub(crate) fn new() -> Lately {
        Lately { all: Spread::new(SPAN), short: Spread::new(SPAN) }
    }

    /// An I/O that took this many nanoseconds has ended; whether it began in a short queue.
    pub(crate) fn add(&mut self, took: u64, short: bool, now: Moment) {
        self.all.add(took, now);
        if short {
            self.short.add(took, now);
        }
    }

    /// Of those that began in a short queue, or of all where those are too few; `None` where all are fewer
    /// than `least`. One of many that happened to find a short queue says little: only where all are few, few
    /// are enough.
    pub(crate) fn latency(&mut self, now: Moment, least: u64) -> Option<Latency> {
        let of = |spread: &mut Spread, least, crowded| {
            spread.roll(now);
            let (median, mean) = spread.percentile(50).zip(spread.mean())?;
            (spread.count() >= least).then_some(Latency { median, mean, crowded })
        };
        let all = of(&mut self.all, SAMPLES, true);
        let least = if all.is_some() { SAMPLES } else { least };
        of(&mut self.short, least, false).or(all)
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.all.count()
    }

    /// See [`Spread::percentile`].
    pub(crate) fn percentile(&self, percent: u64) -> Option<Duration> {
        self.all.percentile(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_short_queue_counts_where_there_was_one() {
        let (mut lately, now) = (Lately::new(), Moment::START);
        for _ in 0..SAMPLES {
            lately.add(100 * MS, false, now);
        }
        lately.add(2 * MS, true, now);
        let latency = lately.latency(now, SAMPLES).expect("there were enough");
        assert!(latency.crowded && latency.mean > Duration::from_millis(90), "{latency:?}");
        assert!(lately.latency(now, 1).is_some_and(|l| l.crowded), "one of many");
        let mut few = Lately::new();
        few.add(2 * MS, true, now);
        assert!(few.latency(now, 1).is_some_and(|l| !l.crowded && l.mean == Duration::from_millis(2)));
        assert_eq!(few.latency(now, SAMPLES), None);
        for _ in 1..SAMPLES {
            lately.add(2 * MS, true, now);
        }
        let latency = lately.latency(now, SAMPLES).expect("there were enough");
        assert_eq!((latency.crowded, latency.mean), (false, Duration::from_millis(2)));
        assert_eq!(lately.latency(now.after(2 * SPAN), 1), None);
    }
}
