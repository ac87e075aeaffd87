//! Determines when the next I/O of a thread on a target may start.
//!
//! With a rate (`-g`) the due time of the n-th I/O is fixed in advance, whatever happens to earlier ones, and
//! its latency is measured from its due time. That is an open loop. Due times are computed from n, so they do
//! not drift.

use std::time::{Duration, Instant};

use crate::profile::{Rate, Target};

/// See the module.
#[derive(Clone, Debug)]
pub struct Pace {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// An I/O starts when another one completes.
    Free,
    /// The n-th I/O is due at `begin + n * nanos / per`.
    Rate { begin: Instant, nanos: u128, per: u128, issued: u64 },
    /// `size` I/Os, then a pause.
    Burst { size: u32, pause: Duration, issued: u32, until: Option<Instant> },
}

/// Whether an I/O may start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// An I/O may start. With a schedule, it was due at this time.
    Due(Option<Instant>),
    /// No I/O may start before this time.
    Wait(Instant),
}

impl Pace {
    /// The pace of a target whose time span starts at `begin`.
    pub fn new(target: &Target, begin: Instant) -> Pace {
        let kind = match target.rate {
            Some(rate) => {
                let (nanos, per) = interval(rate, target.block);
                Kind::Rate { begin, nanos, per, issued: 0 }
            }
            None if target.burst > 0 => {
                let pause = Duration::from_millis(target.think_ms.into());
                Kind::Burst { size: target.burst, pause, issued: 0, until: None }
            }
            None => Kind::Free,
        };
        Pace { kind }
    }

    /// Whether there is a schedule.
    pub fn is_open_loop(&self) -> bool {
        matches!(self.kind, Kind::Rate { .. })
    }

    /// Whether an I/O may start at `now`.
    pub fn next(&self, now: Instant) -> Next {
        match &self.kind {
            Kind::Free => Next::Due(None),
            Kind::Rate { begin, nanos, per, issued } => {
                let due = *begin + nanoseconds(u128::from(*issued) * nanos / per);
                if due <= now { Next::Due(Some(due)) } else { Next::Wait(due) }
            }
            Kind::Burst { until: Some(until), .. } if *until > now => Next::Wait(*until),
            Kind::Burst { .. } => Next::Due(None),
        }
    }

    /// An I/O was started at `now`.
    pub fn started(&mut self, now: Instant) {
        match &mut self.kind {
            Kind::Free => {}
            Kind::Rate { issued, .. } => *issued += 1,
            Kind::Burst { size, pause, issued, until } => {
                *issued += 1;
                if *issued >= *size {
                    *issued = 0;
                    *until = Some(now + *pause);
                }
            }
        }
    }

    /// I/Os that were due before `time` and have not been started; 0 without a schedule.
    pub fn behind(&self, time: Instant) -> u64 {
        let Kind::Rate { begin, nanos, per, issued } = &self.kind else { return 0 };
        let Some(elapsed) = time.checked_duration_since(*begin) else { return 0 };
        let due = (elapsed.as_nanos() * per).div_ceil(*nanos);
        u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(*issued)
    }
}

/// The interval between I/Os, as a number of nanoseconds per number of I/Os.
fn interval(rate: Rate, block: u32) -> (u128, u128) {
    match rate {
        Rate::Iops(n) => (1_000_000_000, u128::from(n.max(1))),
        Rate::BytesPerMs(n) => (1_000_000 * u128::from(block.max(1)), u128::from(n.max(1))),
    }
}

fn nanoseconds(n: u128) -> Duration {
    Duration::from_nanos(u64::try_from(n).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin() -> Instant {
        env::Env::real().now()
    }

    #[test]
    fn a_rate_is_a_schedule() {
        let begin = begin();
        let ms = |n| begin + Duration::from_millis(n);
        let mut pace = Pace::new(&Target { rate: Some(Rate::Iops(100)), ..Target::default() }, begin);
        assert_eq!(pace.next(begin), Next::Due(Some(begin)));
        pace.started(begin);
        assert_eq!(pace.next(ms(9)), Next::Wait(ms(10)));
        // After a stall of 95 ms, the I/Os that became due keep their own due times.
        assert_eq!(pace.behind(ms(95)), 9);
        for n in 1..=9 {
            assert_eq!(pace.next(ms(95)), Next::Due(Some(ms(10 * n))));
            pace.started(ms(95));
        }
        assert_eq!(pace.next(ms(95)), Next::Wait(ms(100)));
        assert_eq!(pace.behind(ms(95)), 0);
    }

    #[test]
    fn bytes_per_millisecond() {
        let begin = begin();
        let target = Target { rate: Some(Rate::BytesPerMs(1000)), block: 4000, ..Target::default() };
        let mut pace = Pace::new(&target, begin);
        pace.started(begin);
        assert_eq!(pace.next(begin), Next::Wait(begin + Duration::from_millis(4)));
    }

    #[test]
    fn bursts_pause() {
        let begin = begin();
        let mut pace = Pace::new(&Target { burst: 2, think_ms: 7, ..Target::default() }, begin);
        pace.started(begin);
        assert_eq!(pace.next(begin), Next::Due(None));
        pace.started(begin);
        assert_eq!(pace.next(begin), Next::Wait(begin + Duration::from_millis(7)));
        assert_eq!(pace.next(begin + Duration::from_millis(7)), Next::Due(None));
    }
}
