//! The only source of time, random numbers and tasks.
//!
//! **What it is.** [`Env`] is a cheap handle that every component gets at construction. [`Env::real`] reads the
//! system's clocks and random numbers; [`Env::simulated`] runs on Tokio's paused clock and a seeded generator, so a
//! run on simulated fabric and memory replays from its seed. Both start tasks on the current-thread runtime of the
//! worker they are called on. [`Io`] is the return type of every data path call; [`Ctx`] travels with it.
//!
//! **What it is not.** It has no executor and no threads of its own: a worker is a thread with a
//! current-thread Tokio runtime, which the program creates.
//!
//! **Errors.** None: without random numbers the server cannot run, and the call panics.

pub mod calendar;
mod context;
pub mod watch;

pub use context::{BoxFuture, Ctx, Epoch, Io, IoFlags};

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Time, random numbers and tasks. Clones share the generator.
#[derive(Clone)]
pub struct Env {
    kind: Arc<Kind>,
}

/// Monotonic time as one number. Each request reads and subtracts it; with an [`Instant`] both cost several
/// times as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Nanoseconds since a fixed time.
    ns: u64,
}

impl Moment {
    /// The origin: zero nanoseconds.
    pub const START: Moment = Moment { ns: 0 };

    /// Nanoseconds from `earlier` to this moment; 0 if `earlier` is later.
    #[inline]
    pub fn ns_since(self, earlier: Moment) -> u64 {
        self.ns.saturating_sub(earlier.ns)
    }

    /// This moment plus `time`.
    #[inline]
    pub fn after(self, time: Duration) -> Moment {
        Moment { ns: self.ns.saturating_add(time.as_nanos() as u64) }
    }

    /// This moment minus `time`, but not before [`Moment::START`].
    #[inline]
    pub fn before(self, time: Duration) -> Moment {
        Moment { ns: self.ns.saturating_sub(time.as_nanos() as u64) }
    }
}

enum Kind {
    /// The system's clocks; the same point in time as both types, for conversion between them.
    Real(Instant, Moment),
    Simulated(Box<Simulated>),
}

struct Simulated {
    random: Mutex<ChaCha12Rng>,
    started: Instant,
}

/// Where simulated wall-clock time starts: 2026-01-01 00:00 UTC, in seconds since 1970.
const SIMULATED_EPOCH_S: u64 = 1_767_225_600;

impl Env {
    /// An environment with the system's clocks and random numbers.
    pub fn real() -> Env {
        #[allow(clippy::disallowed_methods)] // the only permitted call
        Env { kind: Arc::new(Kind::Real(Instant::now(), monotonic())) }
    }

    /// Virtual time, and random numbers from `seed`. Call it inside a Tokio runtime whose clock is paused.
    pub fn simulated(seed: u64) -> Env {
        let random = Mutex::new(ChaCha12Rng::seed_from_u64(seed));
        let started = tokio::time::Instant::now().into_std();
        Env { kind: Arc::new(Kind::Simulated(Box::new(Simulated { random, started }))) }
    }

    /// Monotonic time, for intervals and deadlines.
    pub fn now(&self) -> Instant {
        match &*self.kind {
            #[allow(clippy::disallowed_methods)] // the only permitted call
            Kind::Real(..) => Instant::now(),
            Kind::Simulated(_) => tokio::time::Instant::now().into_std(),
        }
    }

    /// The same clock as [`Env::now`], as a number.
    #[inline]
    pub fn moment(&self) -> Moment {
        match &*self.kind {
            Kind::Real(..) => monotonic(),
            Kind::Simulated(s) => Moment { ns: (self.now() - s.started).as_nanos() as u64 },
        }
    }

    /// Nanoseconds of a clock that also runs while the machine is suspended (CLOCK_BOOTTIME); leases are
    /// measured with it.
    #[inline]
    pub fn boot_ns(&self) -> u64 {
        match &*self.kind {
            Kind::Real(..) => ns_of(rustix::time::ClockId::Boottime),
            // Never 0, as on a real machine: no program runs at the instant of power-on.
            Kind::Simulated(_) => self.moment().ns + 1,
        }
    }

    /// Converts a moment of this environment to an [`Instant`].
    pub fn instant(&self, at: Moment) -> Instant {
        match &*self.kind {
            Kind::Real(instant, moment) if at >= *moment => {
                *instant + Duration::from_nanos(at.ns_since(*moment))
            }
            Kind::Real(instant, moment) => *instant - Duration::from_nanos(moment.ns_since(at)),
            Kind::Simulated(s) => s.started + Duration::from_nanos(at.ns),
        }
    }

    /// Wall-clock time since 1970-01-01 UTC.
    pub fn unix_time(&self) -> Duration {
        match &*self.kind {
            #[allow(clippy::disallowed_methods)] // the only permitted call
            Kind::Real(..) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Kind::Simulated(s) => Duration::from_secs(SIMULATED_EPOCH_S) + (self.now() - s.started),
        }
    }

    /// Fills `out` with random bytes. Those of the real environment are suitable for keys.
    pub fn fill_random(&self, out: &mut [u8]) {
        match &*self.kind {
            Kind::Real(..) => aws_lc_rs::rand::fill(out).expect("the system has random numbers"),
            Kind::Simulated(s) => s.random.lock().fill_bytes(out),
        }
    }

    /// `N` random bytes.
    pub fn random<const N: usize>(&self) -> [u8; N] {
        let mut b = [0; N];
        self.fill_random(&mut b);
        b
    }

    /// A random 64-bit number.
    pub fn random_u64(&self) -> u64 {
        u64::from_le_bytes(self.random())
    }

    /// Waits for `time`.
    pub async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until `deadline`.
    pub async fn sleep_until(&self, deadline: Instant) {
        tokio::time::sleep_until(deadline.into()).await;
    }

    /// Starts a task on this worker. On a thread that is not a worker, `task` is dropped. For work that must
    /// continue after a drop, on any thread.
    pub fn spawn_if_running(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(task);
        }
    }

    /// Starts a task on this worker; returns its result. It continues when the returned future is dropped.
    ///
    /// # Panics
    /// The returned future panics if the task panicked or its worker ended.
    pub fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        let task = tokio::spawn(task);
        async move { task.await.expect("a task ends before its worker") }
    }

    /// Like [`Env::run`], but the first poll of the returned future also polls the task once. So the task
    /// runs up to its first wait before the polling task continues.
    pub async fn run_polled_first<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let mut task = Box::pin(task);
        match std::future::poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx))).await {
            Poll::Ready(done) => done,
            Poll::Pending => self.run(task).await,
        }
    }

    /// Starts a detached task on this worker. The runtime reports its panics.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(task);
    }
}

/// The system's monotonic clock, which is also the clock of [`Instant`].
#[inline]
fn monotonic() -> Moment {
    Moment { ns: ns_of(rustix::time::ClockId::Monotonic) }
}

#[inline]
fn ns_of(clock: rustix::time::ClockId) -> u64 {
    let t = rustix::time::clock_gettime(clock);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_seed_replays() {
        let (a, b) = (Env::simulated(7), Env::simulated(7));
        assert_eq!(a.random::<32>(), b.random::<32>());
        assert_ne!(a.random::<32>(), Env::simulated(8).random::<32>());
        let (t0, u0) = (a.now(), a.unix_time());
        a.sleep(Duration::from_secs(3600)).await;
        assert_eq!(a.now() - t0, Duration::from_secs(3600));
        assert_eq!(a.unix_time() - u0, Duration::from_secs(3600));
    }

    #[tokio::test(start_paused = true)]
    async fn moments_are_instants() {
        for env in [Env::real(), Env::simulated(7)] {
            let (before, moment, after) = (env.now(), env.moment(), env.now());
            let at = env.instant(moment);
            // The two readings were taken one after the other, so they differ slightly.
            let slack = Duration::from_millis(500);
            assert!(before - slack <= at && at <= after + slack, "{before:?} {at:?} {after:?}");
            let (s, later) = (Duration::from_secs(1), moment.after(Duration::from_secs(1)));
            assert_eq!((later.ns_since(moment), moment.ns_since(later)), (1_000_000_000, 0));
            assert_eq!((env.instant(later), env.instant(moment)), (at + s, at));
            env.sleep(Duration::from_millis(1)).await;
            assert!(env.moment() >= moment);
        }
        let env = Env::simulated(7);
        let begun = env.moment();
        env.sleep(Duration::from_secs(3600)).await;
        assert_eq!(env.moment().ns_since(begun), 3_600_000_000_000);
    }
}
