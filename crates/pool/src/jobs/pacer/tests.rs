use proptest::prelude::*;

use super::*;

/// 16 pieces at a time.
fn pacing() -> Pacing {
    Pacing { at_once: 16, ..Pacing::default() }
}

const MS: Duration = Duration::from_millis(1);

/// The time at which a test begins; other times are relative to it.
fn start() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Simulates clients with this latency, independent of the jobs, for `lasts`; pieces take no time. Returns the number
/// of pieces that began.
fn run(pacer: &mut Pacer, from: Instant, lasts: Duration, latency: Option<Duration>) -> u64 {
    let (mut now, mut pieces) = (from, 0);
    while now < from + lasts {
        if let Some(latency) = latency {
            let client = pacer.client_begins(true, now);
            now += latency;
            pacer.client_ends(client, now);
        }
        match pacer.ask(PIECE_BYTES, now) {
            Answer::Go => {
                pacer.pieces_end(1, 0);
                pieces += 1;
                now += Duration::from_micros(100);
            }
            Answer::Wait(until) => now = if latency.is_some() { now + MS } else { until },
        }
    }
    pieces
}

#[test]
fn steps_and_what_they_stand_for() {
    for us in [16, 17, 31, 32, 33, 63, 64, 1000, 20_000, 999_999, u64::from(u32::MAX)] {
        let at = Duration::from_micros(us);
        let least = least(step(at));
        assert!(least <= at && at - least <= at / 16, "{us}: {least:?}");
    }
    let mut latencies = Latencies::default();
    assert_eq!(latencies.percentile(99), None);
    (0..98).for_each(|_| latencies.add(MS));
    (0..2).for_each(|_| latencies.add(MS * 64));
    assert_eq!(latencies.percentile(99), Some(Duration::from_micros(63488)));
    assert!(latencies.percentile(98).is_some_and(|p| p <= MS));
}

#[test]
fn without_clients_all_pieces_at_a_time_soon() {
    let mut pacer = Pacer::new(pacing());
    let mut now = start();
    for _ in 0..8 {
        while pacer.ask(PIECE_BYTES, now) == Answer::Go {}
        now += pacer.pacing().interval;
    }
    assert_eq!(pacer.under_way, 16);
    assert_eq!(pacer.load(), Load::default());
    // The seventeenth piece waits for the end of another one, not until a time that has passed.
    assert!(matches!(pacer.ask(PIECE_BYTES, now), Answer::Wait(at) if at > now));
    pacer.pieces_end(1, 0);
    assert_eq!(pacer.ask(PIECE_BYTES, now), Answer::Go);
}

#[test]
fn clients_that_suffer_slow_jobs_to_the_minimum() {
    let mut pacer = Pacer::new(pacing());
    let begin = start();
    run(&mut pacer, begin, MS * 1000, None);
    assert_eq!(pacer.window, 16);
    run(&mut pacer, begin + MS * 1000, MS * 3000, Some(MS * 50));
    assert_eq!((pacer.window, pacer.gap), (1, Pacing::default().longest(PIECE_BYTES)));
    assert!(pacer.load().held_back && pacer.load().p99 > Some(MS * 40));
    let pieces = run(&mut pacer, begin + MS * 4000, MS * 10_000, Some(MS * 50));
    // 4 MiB/s are 16 pieces; a client's I/O of 50 ms may delay a request.
    assert!((70..=161).contains(&pieces), "{pieces}");
    // The clients reach their target: jobs become faster again, and run at full speed when there are no clients.
    run(&mut pacer, begin + MS * 14_000, MS * 5000, Some(MS));
    assert_eq!((pacer.window, pacer.gap), (16, Duration::ZERO));
}

#[test]
fn beside_clients_a_job_begins_gently() {
    let mut pacer = Pacer::new(pacing());
    let mut now = start();
    run(&mut pacer, now, MS * 1000, None);
    now += MS * 1000;
    for _ in 0..1000 {
        let client = pacer.client_begins(true, now);
        now += MS;
        pacer.client_ends(client, now);
    }
    assert_eq!(pacer.window, 1);
}

#[test]
fn a_client_that_hangs_is_noticed_and_a_flush_is_not() {
    let mut pacer = Pacer::new(pacing());
    let begin = start();
    pacer.client_begins(true, begin);
    for n in 0..50 {
        let _ = pacer.ask(PIECE_BYTES, begin + MS * 20 * n);
        pacer.pieces_end(1, 0);
    }
    assert!(pacer.load().p99 > Some(MS * 500), "{:?}", pacer.load());
    let mut pacer = Pacer::new(pacing());
    let flush = pacer.client_begins(false, begin);
    run(&mut pacer, begin, MS * 2000, None);
    pacer.client_ends(flush, begin + MS * 2000);
    assert_eq!((pacer.load().p99, pacer.window), (None, 16));
}

#[derive(Clone, Debug)]
enum Step {
    Begin(bool),
    End(usize),
    Ask,
    PieceEnds,
    Pass(u64),
}

fn step_of() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => any::<bool>().prop_map(Step::Begin),
        2 => any::<usize>().prop_map(Step::End),
        6 => Just(Step::Ask),
        3 => Just(Step::PieceEnds),
        4 => prop_oneof![0..2_000_u64, 0..300_000_u64].prop_map(Step::Pass),
    ]
}

proptest! {
    /// Invariants 1 to 3, and never an answer with a time that has passed.
    #[test]
    fn whatever_happens(steps in prop::collection::vec(step_of(), 1..400), at_once in 1..20_usize, minimum in 1..(64_u64 << 20)) {
        let pacing = Pacing { at_once, minimum, ..Pacing::default() };
        let mut pacer = Pacer::new(pacing);
        let (mut now, mut clients, mut under_way) = (start(), Vec::new(), 0_usize);
        let mut last: Option<Instant> = None;
        for step in steps {
            let (before, load) = ((pacer.window, pacer.gap), pacer.load());
            match step {
                Step::Begin(timed) => clients.push(pacer.client_begins(timed, now)),
                Step::End(which) if !clients.is_empty() => {
                    let client = clients.swap_remove(which % clients.len());
                    pacer.client_ends(client, now);
                }
                Step::Ask => match pacer.ask(PIECE_BYTES, now) {
                    Answer::Go => {
                        under_way += 1;
                        last = Some(now);
                    }
                    Answer::Wait(until) => {
                        prop_assert!(until > now);
                        let due = last.expect("the first may begin") + pacing.longest(PIECE_BYTES);
                        prop_assert!(under_way == at_once || now < due, "the minimum is kept");
                    }
                },
                Step::PieceEnds if under_way > 0 => {
                    pacer.pieces_end(1, 0);
                    under_way -= 1;
                }
                Step::Pass(us) => now += Duration::from_micros(us),
                _ => {}
            }
            prop_assert!(under_way <= at_once);
            prop_assert_eq!(pacer.under_way, under_way);
            if pacer.load() != load && pacer.load().p99 > Some(pacing.target) {
                prop_assert!(pacer.window <= before.0 && pacer.gap >= before.1.min(pacing.longest(PIECE_BYTES)));
            }
        }
    }
}
