//! The open loop on a target that stalls: every I/O that was due during the stall must show it.
//!
//! The target completes everything immediately, except that it pauses between 0.3 and 0.8 seconds after its
//! start. A closed loop sees the stall only once for each outstanding I/O and so hides it.

use std::borrow::Cow;
use std::io;
use std::time::{Duration, Instant};

use bench::engine::{
    self, Backend, Completion, Fault, Io, NoObserver, OpenError, Settings, Setup, SpanResults, TargetResults,
};
use bench::options::{ParseContext, parse};

const STALL: std::ops::Range<Duration> = Duration::from_millis(300)..Duration::from_millis(800);

/// What the target does with an I/O.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Stalls,
    Fails,
    Short,
}

struct Moody {
    mood: Mood,
    env: env::Env,
    born: Option<Instant>,
    queue: Vec<(usize, u32)>,
    count: u32,
    buffer: Vec<u8>,
}

impl Backend for Moody {
    fn size(&self, _: usize) -> u64 {
        1 << 30
    }

    fn buffer(&mut self, _: usize) -> &mut [u8] {
        &mut self.buffer
    }

    fn submit(&mut self, io: &Io) {
        self.queue.push((io.slot, io.length));
    }

    fn complete(&mut self, until: Instant, done: &mut Vec<Completion>) -> io::Result<()> {
        let now = self.env.now();
        let born = *self.born.get_or_insert(now);
        let stalled = self.mood == Mood::Stalls && STALL.contains(&(now - born));
        if stalled || self.queue.is_empty() {
            let end = if stalled { until.min(born + STALL.end) } else { until };
            std::thread::sleep(end.saturating_duration_since(now));
            return Ok(());
        }
        for (slot, length) in self.queue.drain(..) {
            self.count += 1;
            let result = match self.mood {
                Mood::Fails if self.count.is_multiple_of(10) => Err(Fault::System(5)),
                Mood::Short if self.count.is_multiple_of(10) => Ok(length / 2),
                _ => Ok(length),
            };
            done.push(Completion { slot, result, at: None });
        }
        Ok(())
    }

    fn data(&mut self, _: usize, _: usize) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.buffer)
    }

    fn describe(&self) -> String {
        "moody".to_owned()
    }
}

fn moody(setup: &Setup, mood: Mood) -> Box<dyn Backend> {
    let buffer = vec![0; setup.slots[0] as usize];
    Box::new(Moody { mood, env: env::Env::real(), born: None, queue: Vec::new(), count: 0, buffer })
}

fn stalls(setup: Setup) -> Result<Box<dyn Backend>, OpenError> {
    Ok(moody(&setup, Mood::Stalls))
}

fn fails(setup: Setup) -> Result<Box<dyn Backend>, OpenError> {
    Ok(moody(&setup, Mood::Fails))
}

fn short(setup: Setup) -> Result<Box<dyn Backend>, OpenError> {
    Ok(moody(&setup, Mood::Short))
}

fn run(options: &str, open: engine::Open) -> SpanResults {
    let args: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
    let world = ParseContext { read: &|_| Err(io::ErrorKind::NotFound.into()), seed: 1 };
    let profile = parse(&args, &world).expect("accepted").profile;
    let settings = Settings { open, ..Settings::default() };
    engine::run(&profile, &settings, &mut NoObserver).expect("a run").remove(0)
}

fn only(r: &SpanResults) -> &TargetResults {
    &r.threads[0].targets[0]
}

#[test]
fn the_open_loop_shows_the_stall_and_the_closed_loop_hides_it() {
    let found = run("-b4K -r -o4 -g1000i -d2 -W0 -L target", stalls);
    let (open, service) = (&only(&found).read.latency, &only(&found).service);
    // 500 of 2000 I/Os were due during the stall of 500 ms: 100 of them waited for 400 ms or more.
    assert!((1900..=2000).contains(&open.count()), "{}", open.count());
    let waited = open.share_ms(400, u64::MAX);
    assert!((4.0..=7.0).contains(&waited), "{waited}");
    assert!(open.percentile_ms(99.0) > 400.0 && open.max_ms() >= 490.0, "{}", open.percentile_ms(99.0));
    // Measured from the submission, only four I/Os waited: what a closed loop would have reported.
    assert!(service.percentile_ms(99.0) < 100.0, "{}", service.percentile_ms(99.0));
    let closed = run("-b4K -r -o4 -d2 -W0 -L target", stalls);
    assert!(only(&closed).read.latency.percentile_ms(99.0) < 100.0);
}

#[test]
fn a_target_slower_than_the_rate_is_reported() {
    let found = run("-b4K -r -o1 -g100000i -d1 -W0 -L target", slow);
    let t = only(&found);
    let due = t.read.ios + t.overdue;
    assert!((99_000..=101_000).contains(&due), "{} done, {} overdue", t.read.ios, t.overdue);
    assert!(t.overdue > 50_000);
}

/// Completes one I/O per millisecond.
fn slow(setup: Setup) -> Result<Box<dyn Backend>, OpenError> {
    struct Slow(Box<dyn Backend>);
    impl Backend for Slow {
        fn size(&self, lane: usize) -> u64 {
            self.0.size(lane)
        }
        fn buffer(&mut self, slot: usize) -> &mut [u8] {
            self.0.buffer(slot)
        }
        fn submit(&mut self, io: &Io) {
            self.0.submit(io);
        }
        fn complete(&mut self, until: Instant, done: &mut Vec<Completion>) -> io::Result<()> {
            std::thread::sleep(Duration::from_millis(1));
            self.0.complete(until, done)
        }
        fn data(&mut self, slot: usize, length: usize) -> Cow<'_, [u8]> {
            self.0.data(slot, length)
        }
        fn describe(&self) -> String {
            self.0.describe()
        }
    }
    Ok(Box::new(Slow(moody(&setup, Mood::Short))))
}

#[test]
fn failures_and_short_ios_are_counted() {
    let found = run("-b4K -r -o1 -d1 -W0 target", fails);
    assert!(found.errors() > 0 && found.errors() * 9 <= found.ios() + 9);
    assert_eq!(only(&found).errors.keys().collect::<Vec<_>>(), [&Fault::System(5)]);
    let found = run("-b4K -r -o1 -d1 -W0 target", short);
    let t = only(&found);
    assert!(t.short > 0 && t.read.bytes < t.read.ios * 4096 && found.errors() == 0);
}
