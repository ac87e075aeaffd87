//! Detects blocked workers. Each worker beats every [`BEAT`]; a separate thread logs a worker that is late by more than
//! [`STALL`], with the state of its thread in the kernel, and later the duration of the stall.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use env::Env;

/// How often a worker shows that it runs.
const BEAT: Duration = Duration::from_millis(50);
/// A worker that is this much later than its beat has stalled.
const STALL: Duration = Duration::from_millis(100);

/// The beats and stalls of one worker.
pub(super) struct Pulse {
    env: Env,
    started: Instant,
    /// Microseconds after `started` of the last beat; 0 before the first.
    last_us: AtomicU64,
    /// The kernel's id of the thread; 0 before the first beat.
    thread: AtomicU64,
    stalls: AtomicU64,
    longest_us: AtomicU64,
}

/// The watching thread; it ends when this is dropped.
pub(super) struct Watchdog {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    pub(super) fn new(env: &Env) -> Arc<Pulse> {
        Arc::new(Pulse {
            env: env.clone(),
            started: env.now(),
            last_us: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            longest_us: AtomicU64::new(0),
        })
    }

    /// Beats while the worker polls this future.
    pub(super) async fn beat(self: Arc<Self>) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get() as u64, Ordering::Relaxed);
        loop {
            self.mark();
            self.env.sleep(BEAT).await;
        }
    }

    /// The number of stalls, and the longest one in milliseconds.
    pub(super) fn stalls(&self) -> (u64, u64) {
        (self.stalls.load(Ordering::Relaxed), self.longest_us.load(Ordering::Relaxed) / 1000)
    }

    /// Records one beat, and counts a stall that ends with it.
    fn mark(&self) {
        let now = self.now_us();
        let before = self.last_us.swap(now, Ordering::Relaxed);
        if let Some(late) = late(before, now) {
            self.stalls.fetch_add(1, Ordering::Relaxed);
            self.longest_us.fetch_max(late.as_micros() as u64, Ordering::Relaxed);
        }
    }

    fn now_us(&self) -> u64 {
        (self.env.now() - self.started).as_micros().max(1) as u64
    }
}

/// How long a worker has been blocked; `None` if that is no stall.
fn late(last_us: u64, now_us: u64) -> Option<Duration> {
    let since = Duration::from_micros(now_us.saturating_sub(last_us));
    (last_us != 0 && since > BEAT + STALL).then(|| since - BEAT)
}

impl Watchdog {
    /// Watches these workers, numbered as given.
    ///
    /// # Errors
    /// The system's: the thread cannot be created.
    pub(super) fn start(pulses: Vec<Arc<Pulse>>) -> std::io::Result<Watchdog> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread =
            thread::Builder::new().name("watchdog".to_owned()).spawn(move || watch(&pulses, &stopped))?;
        Ok(Watchdog { stop, thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(t) = self.thread.take() {
            t.thread().unpark();
            let _ = t.join();
        }
    }
}

/// A stall that was logged and has not ended.
#[derive(Clone, Copy)]
struct Stall {
    /// The last beat before it.
    from_us: u64,
    /// How long the thread had waited for a processor when the stall was logged.
    waited: Duration,
}

fn watch(pulses: &[Arc<Pulse>], stop: &AtomicBool) {
    // Per worker, so that each stall and its end are logged once.
    let mut logged: Vec<Option<Stall>> = vec![None; pulses.len()];
    while !stop.load(Ordering::Relaxed) {
        for (worker, (pulse, logged)) in pulses.iter().zip(&mut logged).enumerate() {
            let last = pulse.last_us.load(Ordering::Relaxed);
            let late = late(last, pulse.now_us());
            let thread = pulse.thread.load(Ordering::Relaxed);
            match (*logged, late) {
                (None, Some(late)) => {
                    tracing::warn!(
                        worker,
                        late_ms = late.as_millis() as u64,
                        "worker is blocked: {}",
                        doing(thread)
                    );
                    *logged = Some(Stall { from_us: last, waited: waited(thread) });
                }
                (Some(stall), _) if stall.from_us != last => {
                    let took_ms = last.saturating_sub(stall.from_us) / 1000;
                    let no_processor_ms = waited(thread).saturating_sub(stall.waited).as_millis() as u64;
                    tracing::warn!(worker, took_ms, no_processor_ms, "worker runs again");
                    *logged = None;
                }
                _ => {}
            }
        }
        thread::park_timeout(BEAT);
    }
}

/// How long a thread was runnable without a processor since its start (the second number of its schedstat). If a stall
/// consists mostly of this time, its cause is the load of the machine.
fn waited(thread: u64) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    Duration::from_nanos(stat.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0))
}

/// The state of a thread in the kernel, in words.
fn doing(thread: u64) -> String {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).unwrap_or_default();
    let stat = read("stat");
    // proc(5): the state follows the name, which may itself hold a parenthesis.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    let waits = read("wchan");
    match state {
        Some('R') => "it runs, or waits for a processor".to_owned(),
        Some('D') => format!("it waits for a disk in {waits}"),
        Some('S') => format!("it sleeps in {waits}"),
        Some(other) => format!("its state is {other}"),
        None => "its thread has ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_what_misses_its_beat_by_more_than_the_bound() {
        let ms = |n: u64| n * 1000;
        assert_eq!(late(0, ms(10_000)), None); // not started
        assert_eq!(late(ms(1000), ms(1149)), None);
        assert_eq!(late(ms(1000), ms(1400)), Some(Duration::from_millis(350)));
        assert_eq!(late(ms(1400), ms(1000)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn stalls_are_counted_with_the_longest() {
        let pulse = Pulse::new(&Env::simulated(1));
        let skip = |n| tokio::time::advance(Duration::from_millis(n));
        skip(1).await;
        pulse.mark();
        for gap in [50, 500, 60, 300] {
            skip(gap).await;
            pulse.mark();
        }
        assert_eq!(pulse.stalls(), (2, 450));
    }

    #[test]
    fn the_kernel_knows_our_thread() {
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        assert_eq!(doing(me), "it runs, or waits for a processor");
        assert_eq!(doing(0), "its thread has ended");
    }
}
