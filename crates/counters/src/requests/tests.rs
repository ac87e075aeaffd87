//! Compares the queue integral with a naive model, and tests abandoned requests.

use std::time::Duration;

use env::Env;
use proptest::prelude::*;

use super::*;
use crate::{CELLS, Registry};

/// The age of requests that are counted in one step.
const BACK: Duration = Duration::from_micros(7);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

#[derive(Clone, Debug)]
enum Step {
    Begin(u8),
    End(usize, u32, bool),
    Whole(u8, u32, bool),
    Wait(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..3u8).prop_map(Step::Begin),
        (any::<usize>(), any::<u32>(), any::<bool>()).prop_map(|(i, n, d)| Step::End(i, n, d)),
        (0..3u8, any::<u32>(), any::<bool>()).prop_map(|(c, n, d)| Step::Whole(c, n, d)),
        (0..5_000_000u32).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..80)
}

/// The expected cells, computed naively.
#[derive(Default)]
struct Model {
    begun: [u64; 3],
    ended: [u64; 3],
    time: [u64; 3],
    integral: [u64; 3],
    bytes: [u64; 2],
    direct: [u64; 2],
}

proptest! {
    #[test]
    fn as_the_naive_model(steps in steps()) {
        runtime().block_on(async {
            let env = Env::simulated(1);
            let registry = Registry::new(env.clone());
            let share = registry.server_shares.permanent("s", &["s"]);
            let tally = Tally::new(registry.clock(), vec![Arc::clone(&share)]);
            let started = env.moment();
            env.sleep(BACK).await;
            let (mut model, mut open) = (Model::default(), Vec::new());
            for step in steps {
                match step {
                    Step::Begin(c) => {
                        let class = CLASSES[usize::from(c)];
                        model.begun[class as usize] += 1;
                        open.push((class, env.now(), tally.begin(class, env.now(), 1, 0)));
                    }
                    Step::End(i, bytes, direct) if !open.is_empty() => {
                        let (class, start, begun) = open.swap_remove(i % open.len());
                        tally.end(begun, RequestResult { payload: bytes.into(), direct, ..Default::default() });
                        model.ended[class as usize] += 1;
                        model.time[class as usize] += (env.now() - start).as_nanos() as u64;
                        if class != Class::Metadata {
                            model.bytes[class as usize] += u64::from(bytes);
                            model.direct[class as usize] += u64::from(direct);
                        }
                    }
                    Step::End(..) => {}
                    Step::Whole(c, bytes, direct) => {
                        let (class, i) = (CLASSES[usize::from(c)], usize::from(c));
                        let done = RequestResult { payload: bytes.into(), direct, ..Default::default() };
                        let begun = Duration::from_nanos(env.moment().ns_since(started)) - BACK;
                        tally.whole(class, started.after(begun), done);
                        model.begun[i] += 1;
                        model.ended[i] += 1;
                        model.time[i] += BACK.as_nanos() as u64;
                        model.integral[i] += BACK.as_nanos() as u64;
                        if class != Class::Metadata {
                            model.bytes[i] += u64::from(bytes);
                            model.direct[i] += u64::from(direct);
                        }
                    }
                    Step::Wait(us) => {
                        let before = env.now();
                        env.sleep(Duration::from_micros(us.into())).await;
                        let waited = (env.now() - before).as_nanos() as u64;
                        for (class, ..) in &open {
                            model.integral[*class as usize] += waited;
                        }
                    }
                }
                check(&model, &share.values(), registry.clock().ns(env.now()));
            }
            // Requests in progress end when their connection ends.
            for (class, start, _) in open {
                model.ended[class as usize] += 1;
                model.time[class as usize] += (env.now() - start).as_nanos() as u64;
            }
            drop(tally);
            let values = share.values();
            check(&model, &values, registry.clock().ns(env.now()));
            prop_assert!(CLASSES.iter().all(|c| under_way(&values, *c) == 0));
            env.sleep(Duration::from_secs(9)).await;
            check(&model, &share.values(), registry.clock().ns(env.now()));
            Ok(())
        })?;
    }
}

fn check(m: &Model, v: &[u64; CELLS], now: u64) {
    for class in CLASSES {
        let i = class as usize;
        assert_eq!((begun(v, class), ended(v, class), time(v, class)), (m.begun[i], m.ended[i], m.time[i]));
        assert_eq!(queue(v, class, now), m.integral[i], "{class:?}");
    }
    for class in [Class::Read, Class::Write] {
        let i = class as usize;
        assert_eq!((payload(v, class), direct(v, class)), (m.bytes[i], m.direct[i]));
    }
}

#[test]
fn one_tally_counts_for_all_its_instances() {
    runtime().block_on(async {
        let registry = Registry::new(Env::simulated(2));
        let share = registry.server_shares.permanent("s", &["s"]);
        let session = registry.sessions.open("1", &["1", "u", "c"]);
        let tally = Tally::new(registry.clock(), vec![Arc::clone(&share), Arc::clone(session.instance())]);
        assert!(tally.is_for(&share) && tally.is_for(session.instance()));
        let begun = tally.begin(Class::Write, registry.clock().now(), 100, 0);
        let done = RequestResult { payload: 4096, direct: true, received: 4096, sent: 84 };
        tally.end(begun, done);
        tally.credit_stall();
        let of_shares = Sums { requests: 1, writes: 1, ..Sums::default() };
        let of_shares = Sums { written_bytes: 4096, written_bytes_direct: 4096, ..of_shares };
        assert_eq!(registry.requests(), of_shares);
        for v in [share.values(), session.instance().values()] {
            assert_eq!(
                (v[RECEIVED.0 as usize], v[SENT.0 as usize], v[CREDIT_STALLS.0 as usize]),
                (4196, 84, 1)
            );
            assert_eq!((direct_payload(&v, Class::Write), payload(&v, Class::Read)), (4096, 0));
        }
    });
}
