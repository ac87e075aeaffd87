use std::time::Duration;

use disk::sim::{Fault, Rule, SlotId, When};
use pool::Pool;
use pool::jobs::{DelayReason, Job, Kind, Subject};
use pool_seam::{Coordinator, DiskNumber, JobId, Progress, SpaceId, Turn};

use super::{begin, is_unfinished};
use crate::world::{OwnedSpace, World, mirror, virtual_time};

/// A mirror with 7 full rows, on disks with slow writes; all rows are stale on one disk.
async fn behind(world: &World) -> (Pool, SpaceId, OwnedSpace, DiskNumber) {
    let pool = world.create().await;
    let space = pool.create_space(mirror("vm")).await.expect("a space");
    let owned = world.own(&pool, space).await.expect("an owner");
    let away = DiskNumber(1);
    owned.write(0..1, 1).await.expect("a write");
    owned.flush().await.expect("a flush");
    pool.take_offline(away).await.expect("it leaves");
    for part in 0..7 * 8 {
        owned.write(part * 64..(part + 1) * 64, 2).await.expect("a write");
    }
    owned.flush().await.expect("a flush");
    owned.space.checkpoint().await.expect("a checkpoint");
    assert_eq!(pool.return_disk(world.disk(1), false).await, Ok(away));
    let slow = Rule::new(disk::Op::Write, When::From(0), Fault::Slow(Duration::from_millis(20)));
    world.machine.rule(SlotId(1), slow);
    (pool, space, owned, away)
}

fn why(pool: &Pool, job: &Job) -> Option<DelayReason> {
    pool.jobs().list().into_iter().find(|state| state.id == job.id()).and_then(|state| state.why)
}

fn done(job: &Job) -> u64 {
    job.bytes().0
}

/// A job waits while it is paused, continues when it is resumed, and ends when it is stopped. Completed work is kept.
#[test]
fn a_job_is_paused_resumed_and_stopped() {
    virtual_time(async {
        let world = World::new(71, 2);
        let (pool, space, owned, away) = behind(&world).await;
        let job = begin(&pool, Kind::Resync, Subject::Disk(away));
        pool.jobs().pause(job.id()).expect("it is there");
        let commands = async {
            world.env.sleep(Duration::from_secs(5)).await;
            assert_eq!((done(&job), why(&pool, &job)), (0, Some(DelayReason::Paused)));
            pool.jobs().resume(job.id()).expect("it is there");
            while done(&job) == 0 {
                world.env.sleep(Duration::from_millis(50)).await;
            }
            pool.jobs().stop(job.id()).expect("it is there");
            world.env.now()
        };
        let (ended, stopped) = tokio::join!(pool.resync(away, &job), commands);
        ended.expect("it ends");
        assert!(world.env.now() - stopped < Duration::from_secs(2), "after the outstanding pieces");
        let (some, total) = job.bytes();
        assert!(some > 0 && some < total && is_unfinished(&pool, space), "{some} of {total}");
        drop(job);
        let job = begin(&pool, Kind::Resync, Subject::Disk(away));
        pool.resync(away, &job).await.expect("it continues");
        assert!(job.bytes().1 < total && !is_unfinished(&pool, space));
        assert!(owned.has(0..64, 2).await.expect("a read"));
    });
}

/// A job waits for a more urgent one.
#[test]
fn a_scrub_waits_for_a_resync() {
    virtual_time(async {
        let world = World::new(72, 2);
        let (pool, space, _owned, away) = behind(&world).await;
        let resync = begin(&pool, Kind::Resync, Subject::Disk(away));
        let scrub = begin(&pool, Kind::Scrub, Subject::Space(space));
        let resyncs = async {
            world.env.sleep(Duration::from_secs(3)).await;
            assert_eq!(
                (done(&scrub), why(&pool, &scrub)),
                (0, Some(DelayReason::AfterJob(Kind::Resync, resync.id())))
            );
            pool.resync(away, &resync).await.expect("a resync");
            assert_eq!(done(&scrub), 0);
            drop(resync);
        };
        let (scrubbed, ()) = tokio::join!(pool.scrub(space, false, false, &scrub), resyncs);
        assert_eq!(scrubbed, Ok(true));
        assert!(done(&scrub) > 0 && scrub.findings() == (0, 0));
    });
}

/// The duration of a resync with clients of this latency.
fn takes(latency: Option<Duration>) -> (Duration, bool) {
    virtual_time(async {
        let world = World::new(73, 2);
        let (pool, _, _owned, away) = behind(&world).await;
        let job = begin(&pool, Kind::Resync, Subject::Disk(away));
        let (began, mut was_paced) = (world.env.now(), false);
        let clients = async {
            loop {
                let client = pool.jobs().client(true);
                world.env.sleep(latency.unwrap_or(Duration::from_millis(200))).await;
                drop(client.filter(|_| latency.is_some()));
                was_paced |= matches!(why(&pool, &job), Some(DelayReason::Paced { .. }));
            }
        };
        tokio::select! {
            ended = pool.resync(away, &job) => ended.expect("a resync"),
            () = clients => {}
        }
        (world.env.now() - began, was_paced)
    })
}

/// Clients above the target latency throttle a job to its minimum rate; clients below the target throttle it less.
#[test]
fn a_job_gives_way_to_clients() {
    let (beside_slow, slow_paced) = takes(Some(Duration::from_millis(100)));
    let (beside_fast, _) = takes(Some(Duration::from_millis(2)));
    assert!(slow_paced);
    // 14 MiB at 4 MiB/s.
    assert!(beside_slow > Duration::from_secs(2), "{beside_slow:?}");
    assert!(beside_slow < Duration::from_secs(6), "{beside_slow:?}");
    assert!(beside_fast < beside_slow * 2 / 3, "{beside_fast:?} and {beside_slow:?}");
}

/// A turn that must wait is answered within about a second, or at once when its job is stopped. A turn of an unknown
/// order does not wait.
#[test]
fn a_turn_is_answered_in_time() {
    virtual_time(async {
        let world = World::new(74, 2);
        let (pool, space, _owned, away) = behind(&world).await;
        let owner = pool.owner(space).expect("an owner");
        let unknown = pool.turn(owner, JobId(7), Progress::default()).wait().await;
        assert!(matches!(unknown, Ok(Turn::Go { .. })));
        let job = begin(&pool, Kind::Resync, Subject::Disk(away));
        pool.jobs().pause(job.id()).expect("it is there");
        // The high bits of the order's number are the job's number.
        let order = JobId(job.id().0 << 32);
        let turns = async {
            world.env.sleep(Duration::from_millis(1)).await;
            let asked = world.env.now();
            assert_eq!(pool.turn(owner, order, Progress::default()).wait().await, Ok(Turn::Wait));
            let took = world.env.now() - asked;
            assert!(took > Duration::from_millis(900) && took < Duration::from_millis(1200), "{took:?}");
            let later = pool.turn(owner, order, Progress::default()).wait();
            let stops = async {
                world.env.sleep(Duration::from_millis(100)).await;
                pool.jobs().stop(job.id()).expect("it is there");
                world.env.now()
            };
            let (turn, stopped) = tokio::join!(later, stops);
            assert_eq!((turn, world.env.now()), (Ok(Turn::Stop), stopped));
        };
        let (ended, ()) = tokio::join!(pool.resync(away, &job), turns);
        ended.expect("it ends");
        assert_eq!(done(&job), 0);
    });
}
