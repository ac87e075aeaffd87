use disk::{Disk, Read, Then, Told, Written};
use futures_util::future::{Either, select};

use super::*;

const MS: Duration = Duration::from_millis(1);

fn info(env: &Env) -> DiskInfo {
    let machine = disk::sim::Machine::new(env, 1);
    let slot = machine.add(&disk::MemoryOptions::new("disk", 1 << 20));
    machine.open(slot).expect("it is there").info().clone()
}

fn follow(pulse: &Arc<Pulse>, env: &Env, op: Op, takes: Duration) -> Followed<()> {
    let (env, now) = (env.clone(), env.moment());
    pulse.follow_data(now, Place::whole(op), || Io::pending(async move { env.sleep(takes).await }))
}

/// Whether it ends in so long.
async fn ends_within(io: &mut Followed<()>, time: Duration, env: &Env) -> bool {
    let sleep = Box::pin(env.sleep(time));
    matches!(select(io, sleep).await, Either::Left(_))
}

async fn known() -> (Env, Arc<Pulse>) {
    let env = Env::simulated(1);
    let pulse = Pulse::new(&env, &Watch::new(), &Tenure::endless());
    for _ in 0..KNOWN {
        follow(&pulse, &env, Op::Read, 4 * MS).await;
    }
    (env, pulse)
}

#[test]
fn a_disk_that_hangs_does_not_become_the_preferred_one() {
    crate::simulation::in_virtual_time(async {
        let (env, pulse) = known().await;
        pulse.set_slow(true);
        env.sleep(TRIAL).await;
        assert!(!pulse.is_avoided(env.moment()), "one may try it");
        let mut trial = follow(&pulse, &env, Op::Read, 100 * TRIAL);
        assert!(pulse.is_avoided(env.moment()), "no other one beside it");
        let typical = pulse.typical(env.moment());
        assert!(typical >= Some(3 * MS), "{typical:?}");
        assert!(!ends_within(&mut trial, TRIAL, &env).await);
        assert!(!pulse.is_avoided(env.moment()));
    });
}

#[test]
fn who_loses_a_race_stays_in_the_queue() {
    crate::simulation::in_virtual_time(async {
        let (env, pulse) = known().await;
        let mut read = follow(&pulse, &env, Op::Read, 1000 * MS);
        assert!(!ends_within(&mut read, MS, &env).await);
        drop(read);
        assert_eq!(pulse.in_flight(), 1);
        env.sleep(1000 * MS).await;
        assert_eq!((pulse.in_flight(), pulse.is_idle()), (0, true));
        let read = follow(&pulse, &env, Op::Read, MS);
        assert_eq!((pulse.in_flight(), read.await, pulse.in_flight()), (1, Some(()), 0));
    });
}

#[test]
fn a_flush_of_seconds_makes_no_outlier_and_yet_hangs() {
    crate::simulation::in_virtual_time(async {
        let (env, pulse) = known().await;
        let info = info(&env);
        pulse.look(&info, env.moment());
        let began = env.moment();
        let mut flush = follow(&pulse, &env, Op::Flush, 5000 * MS);
        assert!(!ends_within(&mut flush, 4000 * MS, &env).await);
        assert_eq!((pulse.look(&info, env.moment()).longest, pulse.oldest()), (Duration::ZERO, Some(began)));
        flush.await;
        assert_eq!(pulse.look(&info, env.moment()).longest, Duration::ZERO);
        let mut write = follow(&pulse, &env, Op::Write, 5000 * MS);
        assert!(!ends_within(&mut write, 4000 * MS, &env).await);
        assert_eq!(pulse.look(&info, env.moment()).longest, 4000 * MS);
        write.await;
        assert_eq!(pulse.look(&info, env.moment()).longest, 5000 * MS);
    });
}

#[derive(Default)]
struct Ear(Mutex<Vec<(usize, Result<(), DiskError>)>>);

impl Told<Written> for Ear {
    fn told(self: Arc<Self>, which: usize, result: Result<(), DiskError>) {
        self.0.lock().push((which, result));
    }
}

#[test]
fn who_is_told_hears_once_when_the_disk_leaves() {
    crate::simulation::in_virtual_time(async {
        let (env, pulse) = known().await;
        let (ear, at) = (Arc::<Ear>::default(), Place::new(Op::Write, 0, 4096));
        let late = Err(DiskError::Timeout { at });
        let who = || -> Arc<Ear> { Arc::clone(&ear) };
        let mut started = Vec::new();
        for which in 0..2 {
            pulse.write_then(env.moment(), at, (who(), which), |then| started.push(then));
        }
        started.remove(0).tell(Ok(()));
        assert_eq!((pulse.in_flight(), pulse.is_writing()), (1, true));
        pulse.abandon();
        assert_eq!(*ear.0.lock(), [(0, Ok(())), (1, late)]);
        assert_eq!((pulse.in_flight(), pulse.is_writing()), (1, true), "it may arrive still");
        started.remove(0).tell(Ok(()));
        assert_eq!((pulse.in_flight(), pulse.is_writing()), (0, false));
        pulse.write_then(env.moment(), at, (who(), 2), |_| panic!("its disk has left"));
        assert_eq!(*ear.0.lock(), [(0, Ok(())), (1, late), (2, late)]);
        assert!(pulse.is_idle());
    });
}

#[test]
fn a_read_is_late_once_and_ends_once() {
    crate::simulation::in_virtual_time(async {
        let (env, pulse) = known().await;
        let at = Place::new(Op::Read, 0, 4096);
        let mut started = Vec::new();
        let mut read = |late| pulse.read_then(env.moment(), at, late, |then| started.push(then));
        let (late, never, dropped, left) = (read(Some(MS)), read(None), read(None), read(None));
        drop(dropped);
        assert_eq!((pulse.in_flight(), pulse.wake_due(env.moment())), (4, Some(env.moment().after(MS))));
        env.sleep(MS).await;
        assert_eq!(pulse.wake_due(env.moment()), None);
        assert!(!late.ends_in_time().await);
        let gives = |then: Then<Read>| then.tell((Ok(()), Default::default()));
        let mut started = started.into_iter();
        started.by_ref().take(3).for_each(gives);
        assert!(late.ends_in_time().await && never.ends_in_time().await);
        let is_well = |read: Option<Read>| read.map(|(result, _)| result) == Some(Ok(()));
        assert!(is_well(late.end().await) && is_well(never.end().await));
        assert!(late.end().await.is_none(), "it was taken");
        assert_eq!(pulse.in_flight(), 1);
        pulse.abandon();
        assert!(left.end().await.is_none());
        assert_eq!(pulse.in_flight(), 1, "its driver goes on");
        started.for_each(gives);
        assert!(pulse.is_idle());
        let after = pulse.read_then(env.moment(), at, None, |_| panic!("its disk has left"));
        assert!(after.end().await.is_none() && pulse.is_idle() && pulse.in_flight() == 0);
    });
}

#[test]
fn one_slow_read_of_a_few_makes_no_outlier() {
    crate::simulation::in_virtual_time(async {
        let (env, pulse) = known().await;
        let info = info(&env);
        let mut standings = standing::Standings::default();
        for span in 0..40 {
            for n in 0..3 {
                let takes = if (span, n) == (2, 0) { 2900 * MS } else { 4 * MS };
                follow(&pulse, &env, Op::Read, takes).await;
            }
            env.sleep(standing::SPAN).await;
            let mine = pulse.look(&info, env.moment());
            let peer = Look { longest: 4 * MS, ..mine };
            let peer = Look {
                reads: mine.reads.map(|r| standing::Latency { median: 4 * MS, mean: 4 * MS, ..r }),
                ..peer
            };
            let looks = (0..3).map(|d| (crate::DiskNumber(d), if d == 0 { mine } else { peer })).collect();
            let verdict = standings.span(&looks);
            assert!(verdict.slow.is_empty(), "span {span}: {verdict:?}");
            assert!(mine.reads.is_some());
        }
    });
}
