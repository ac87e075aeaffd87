//! The recent latencies of one kind of I/O, and of those I/Os that began in a short queue.

use std::time::Duration;

use env::Moment;

use super::histogram::Histogram;
use super::outliers::{Latency, SAMPLES, SPAN};

/// Counts of one span and of the one before it.
pub(crate) struct RecentLatencies {
    all: Histogram,
    short: Histogram,
}

impl RecentLatencies {
    pub(crate) fn new() -> RecentLatencies {
        RecentLatencies { all: Histogram::new(SPAN), short: Histogram::new(SPAN) }
    }

    /// Adds an I/O that took this many nanoseconds; `short`: it began in a short queue.
    pub(crate) fn add(&mut self, took: u64, short: bool, now: Moment) {
        self.all.add(took, now);
        if short {
            self.short.add(took, now);
        }
    }

    /// Adds the latencies of another space.
    pub(crate) fn add_all(&mut self, other: &mut RecentLatencies, now: Moment) {
        self.all.add_all(&mut other.all, now);
        self.short.add_all(&mut other.short, now);
    }

    /// The latency of I/Os that began in a short queue; of all I/Os if those are too few; `None` if there are fewer
    /// than `least`. A few I/Os in a short queue among many others are not representative: few suffice only if there
    /// are few I/Os in total.
    pub(crate) fn latency(&mut self, now: Moment, least: u64) -> Option<Latency> {
        let of = |histogram: &mut Histogram, least, crowded| {
            histogram.roll(now);
            let (median, mean) = histogram.percentile(50).zip(histogram.mean())?;
            (histogram.count() >= least).then_some(Latency { median, mean, crowded })
        };
        let all = of(&mut self.all, SAMPLES, true);
        let least = if all.is_some() { SAMPLES } else { least };
        of(&mut self.short, least, false).or(all)
    }

    /// The number of I/Os.
    pub(crate) fn count(&self) -> u64 {
        self.all.count()
    }

    /// See [`Histogram::percentile`].
    pub(crate) fn percentile(&self, percent: u64) -> Option<Duration> {
        self.all.percentile(percent)
    }
}

#[cfg(test)]
mod tests;
