//! The rate of jobs beside the clients' I/O: a core without clock, randomness or I/O.
//!
//! Its input is the clients' I/O and the jobs' pieces; it decides when the next piece may begin. Once an interval it
//! checks the clients' 99th percentile. Without clients, the number of concurrent pieces doubles, up to the maximum.
//! Below the target it increases by one; above, it is halved, and if it is one already, the pauses between pieces
//! grow.
//!
//! Invariants:
//! 1. At most [`Pacing::at_once`] pieces are outstanding.
//! 2. Regardless of the clients, a piece may begin `bytes / minimum` after the previous piece, which had `bytes`,
//!    unless (1) forbids it: so jobs always make progress.
//! 3. After an interval above the target the allowed rate does not increase.
//! 4. Beside clients a job begins with one piece at a time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How jobs are paced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// The target for the clients' 99th percentile while jobs run.
    pub target: Duration,
    /// The minimum rate of all jobs of a pool together, in bytes a second, regardless of the clients.
    pub minimum: u64,
    /// The most concurrent pieces (of at most [`PIECE_BYTES`]) of all jobs of a pool.
    pub at_once: usize,
    /// How often the clients' latencies are checked.
    pub interval: Duration,
}

/// The largest piece that a job copies or reads at a time.
pub const PIECE_BYTES: u64 = 256 << 10;

/// The first pause between pieces.
const GAP_MIN: Duration = Duration::from_millis(4);

impl Default for Pacing {
    /// The target of 20 ms is what a rotating disk achieves with two outstanding I/Os; the minimum of 4 MiB/s copies
    /// a terabyte in three days. Each piece has one outstanding I/O of [`PIECE_BYTES`], and includes the flush and
    /// the record of the copied data: 128 pieces keep eight disks busy.
    fn default() -> Pacing {
        Pacing {
            target: Duration::from_millis(20),
            minimum: 4 << 20,
            at_once: 128,
            interval: Duration::from_millis(100),
        }
    }
}

impl Pacing {
    /// The longest time until the piece after one of this size may begin.
    fn longest(&self, bytes: u64) -> Duration {
        Duration::from_nanos((bytes * 1_000_000_000).checked_div(self.minimum).unwrap_or(u64::MAX))
    }
}

/// A client's outstanding I/O: pass it to [`Pacer::client_ends`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(u64);

/// Whether a piece may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The piece has begun: call [`Pacer::pieces_end`] when it is complete.
    Go,
    /// Ask again at this time, or when a piece has ended.
    Wait(Instant),
}

/// The result of the last interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The clients' 99th percentile; `None` without clients.
    pub p99: Option<Duration>,
    /// Whether jobs are throttled because of clients.
    pub held_back: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Pacer {
    pacing: Pacing,
    next: u64,
    /// Clients' outstanding I/O: when each began, and whether its latency counts.
    clients: BTreeMap<Client, (Instant, bool)>,
    interval: Option<Interval>,
    load: Load,
    under_way: usize,
    /// The number of concurrent pieces. Below, the pause between pieces, which applies only if that number is one.
    window: usize,
    gap: Duration,
    /// When the last piece began, and its size in bytes.
    last: Option<(Instant, u64)>,
}

#[derive(Debug)]
struct Interval {
    began: Instant,
    latencies: Latencies,
    clients: bool,
    pieces: bool,
}

impl Pacer {
    /// A pacer without observations.
    pub fn new(pacing: Pacing) -> Pacer {
        Pacer {
            pacing: Pacing { at_once: pacing.at_once.max(1), ..pacing },
            next: 0,
            clients: BTreeMap::new(),
            interval: None,
            load: Load::default(),
            under_way: 0,
            window: 1,
            gap: Duration::ZERO,
            last: None,
        }
    }

    /// The pacing.
    pub fn pacing(&self) -> Pacing {
        self.pacing
    }

    /// Changes the pacing.
    pub fn set_pacing(&mut self, pacing: Pacing) {
        self.pacing = Pacing { at_once: pacing.at_once.max(1), ..pacing };
        self.window = self.window.min(self.pacing.at_once);
    }

    /// Restarts after a time without observation. Outstanding client I/O is ignored.
    pub fn restart(&mut self) {
        self.clients.clear();
        (self.interval, self.last, self.load) = (None, None, Load::default());
        (self.window, self.gap) = (1, Duration::ZERO);
    }

    /// The result of the last interval.
    pub fn load(&self) -> Load {
        self.load
    }

    /// Records that a client's I/O begins. `timed`: its latency counts (that of a flush does not, because it depends
    /// on the disk alone).
    pub fn client_begins(&mut self, timed: bool, now: Instant) -> Client {
        self.roll(now);
        let client = Client(self.next);
        self.next += 1;
        self.clients.insert(client, (now, timed));
        self.interval(now).clients = true;
        client
    }

    /// Records that a client's I/O has ended.
    pub fn client_ends(&mut self, client: Client, now: Instant) {
        self.roll(now);
        if let Some((began, true)) = self.clients.remove(&client) {
            self.interval(now).latencies.add(now.saturating_duration_since(began));
        }
    }

    /// Whether a job's next piece, of this size, may begin now.
    pub fn ask(&mut self, bytes: u64, now: Instant) -> Answer {
        self.roll(now);
        let interval = self.interval(now);
        interval.pieces = true;
        let again = interval.began + self.pacing.interval;
        let (gap, at_latest) = match self.last {
            None => (now, now),
            Some((at, before)) => {
                let longest = self.pacing.longest(before);
                // The pause is for one [`PIECE_BYTES`]; the pieces of owners are larger.
                let parts = u32::try_from(before / PIECE_BYTES).unwrap_or(u32::MAX).max(1);
                (at + self.gap.saturating_mul(parts).min(longest), at + longest)
            }
        };
        let free = self.under_way < self.window && now >= gap;
        if free || (self.under_way < self.pacing.at_once && now >= at_latest) {
            self.under_way += 1;
            self.last = Some((now, bytes));
            return Answer::Go;
        }
        let next = if self.under_way < self.window { gap } else { at_latest };
        // The end of the interval may allow more.
        Answer::Wait(if next > now { next.min(again.max(now)) } else { again })
    }

    /// Records that `count` pieces are complete; together they had `less` bytes fewer than announced.
    pub fn pieces_end(&mut self, count: usize, less: u64) {
        self.under_way = self.under_way.saturating_sub(count);
        if let (Some((_, bytes)), Some(less)) = (&mut self.last, less.checked_div(count as u64)) {
            // Reading unwritten pieces costs the disks some time, too.
            *bytes = bytes.saturating_sub(less).max(PIECE_BYTES.min(*bytes));
        }
    }

    fn interval(&mut self, now: Instant) -> &mut Interval {
        self.interval.get_or_insert_with(|| Interval {
            began: now,
            latencies: Latencies::default(),
            clients: false,
            pieces: false,
        })
    }

    /// Ends the interval if it is over, and sets the limits of the next one.
    fn roll(&mut self, now: Instant) {
        let over = |i: &Interval| now.saturating_duration_since(i.began) >= self.pacing.interval;
        let Some(mut interval) = self.interval.take_if(|i| over(i)) else { return };
        // Outstanding I/O counts with its age if that exceeds the target, because a hung disk completes nothing.
        for (began, timed) in self.clients.values() {
            let age = now.saturating_duration_since(*began);
            if *timed && age > self.pacing.target {
                interval.latencies.add(age);
            }
        }
        let clients = interval.clients || !self.clients.is_empty();
        let p99 = interval.latencies.percentile(99);
        let suffer = p99.is_some_and(|p| p > self.pacing.target);
        if !clients {
            self.window = (self.window * 2).min(self.pacing.at_once);
            self.gap = Duration::ZERO;
        } else if !interval.pieces && self.under_way == 0 {
            self.window = 1;
            self.gap = if suffer { self.gap } else { Duration::ZERO };
        } else if suffer {
            self.slower();
        } else if self.gap > Duration::ZERO {
            self.gap = if self.gap <= GAP_MIN { Duration::ZERO } else { self.gap / 2 };
        } else {
            self.window = (self.window + 1).min(self.pacing.at_once);
        }
        let held_back = clients && (self.window < self.pacing.at_once || self.gap > Duration::ZERO);
        self.load = Load { p99: p99.filter(|_| clients), held_back };
    }

    fn slower(&mut self) {
        if self.window > 1 {
            self.window /= 2;
        } else {
            let most = self.pacing.longest(PIECE_BYTES);
            self.gap = (self.gap * 2).max(GAP_MIN).min(most);
        }
    }
}

/// A histogram of an interval's latencies, with a precision of a sixteenth.
#[derive(Debug, Default)]
struct Latencies {
    counts: BTreeMap<u32, u32>,
    all: u32,
}

/// Steps per octave.
const STEPS: u64 = 16;

impl Latencies {
    fn add(&mut self, latency: Duration) {
        *self.counts.entry(step(latency)).or_insert(0) += 1;
        self.all += 1;
    }

    /// The value that this percentage of the I/Os does not exceed, to a sixteenth.
    fn percentile(&self, percent: u64) -> Option<Duration> {
        let wanted = (u64::from(self.all) * percent).div_ceil(100);
        let mut seen = 0;
        for (step, count) in &self.counts {
            seen += u64::from(*count);
            if seen >= wanted {
                return Some(least(*step));
            }
        }
        None
    }
}

/// The step of a latency: microseconds in sixteenths of octaves.
fn step(latency: Duration) -> u32 {
    let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(STEPS);
    let octave = us.ilog2();
    octave * STEPS as u32 + (us >> (octave - STEPS.ilog2())) as u32 - STEPS as u32
}

/// The shortest latency of a step.
fn least(step: u32) -> Duration {
    let (octave, within) = (step / STEPS as u32, u64::from(step % STEPS as u32));
    Duration::from_micros((STEPS + within) << (octave - STEPS.ilog2()))
}

#[cfg(test)]
mod tests;
