use arena::{Arena, IoBuf};
use disk::{Disk, MemoryDisk, MemoryOptions};
use env::Ctx;
use pool::format::Claimant;
use pool::testing::{disk, mirror};
use pool::{Absence, CreateOptions, NewDisk, Op, RowNumber, SlabPlace, SpaceOp, SpaceRecord};
use pool_local::LocalOptions;

use super::*;
use crate::daemon::events::Events;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A pool of three disks in memory with a written mirror, and its background work.
async fn pool_with_repairer(env: &Env, jobs: JobsSection) -> (Pool, SpaceId, Arc<Repairer>) {
    let arena = Arena::new(64 << 20).expect("memory");
    let disk = |n| MemoryDisk::new(&MemoryOptions::new(format!("d{n}"), 64 << 20)) as Arc<dyn Disk>;
    let disks: Vec<NewDisk> = (0..3).map(|n| NewDisk::new(disk(n))).collect();
    let by = Claimant { host: "here".into(), machine: [1; 16], boot: [1; 16], process: 7 };
    let options = CreateOptions { slab_bytes: Some(2 << 20), ..CreateOptions::new("tank", by) };
    let pool = Pool::create(env, &arena, &disks, options).await.expect("a pool");
    let record = SpaceRecord { size: 8 << 20, ..mirror("vm") };
    let data = LocalPool::open(env, &arena, &pool, LocalOptions::default()).await;
    let space = data.create(record).await.expect("a space");
    let vm = data.disk(space).expect("the space");
    let src = [IoBuf::from(vec![7; 1 << 20])].into_iter().collect();
    vm.write(&Ctx::default(), 0, src).wait().await.expect("a write");
    data.flush(space).await.expect("a flush");
    let events = Arc::new(Events::open(None, env).expect("no file"));
    let repairer = Repairer::start(env, &pool, &data, jobs, &EventReporter::new(env, &events, &pool));
    (pool, space, repairer)
}

#[tokio::test(start_paused = true)]
async fn each_space_is_read_once_in_so_many_days() {
    let env = Env::simulated(1);
    // Four days instead of the default of 28, because each simulated day takes time.
    assert_eq!(JobsSection::default().scrub_days, 28);
    let section = JobsSection { scrub_days: 4, ..JobsSection::default() };
    let (pool, space, repairer) = pool_with_repairer(&env, section).await;
    let record = || pool.read(|s| s.spaces[&space].scrub);
    env.sleep(DAY).await;
    let since = record().since;
    assert!(since > 0 && record().ended == 0, "it counts from when it is seen: {:?}", record());
    env.sleep(DAY * 2).await;
    assert_eq!((record().since, record().ended), (since, 0));
    env.sleep(DAY * 2).await;
    let first = record().ended;
    assert!(first >= since + DAY.as_secs() * 4 && first < since + DAY.as_secs() * 5, "{:?}", record());
    env.sleep(DAY * 4).await;
    assert!(record().ended >= first + DAY.as_secs() * 4);
    repairer.stop().await;
    assert_eq!(pool.jobs().list(), []);
    // Scheduled scrubs are off; a requested one still runs.
    let env = Env::simulated(2);
    let never = JobsSection { scrub_days: 0, ..JobsSection::default() };
    let (pool, space, repairer) = pool_with_repairer(&env, never).await;
    env.sleep(DAY * 8).await;
    assert_eq!(pool.read(|s| s.spaces[&space].scrub), ScrubRecord::default());
    assert!(repairer.repair(space).is_ok_and(|begun| begun));
    assert!(repairer.repair(space).is_ok_and(|begun| !begun), "once at a time");
    env.sleep(DAY / 24).await;
    assert!(pool.read(|s| s.spaces[&space].scrub.ended > 0) && pool.jobs().list().is_empty());
    repairer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_repair_is_not_begun_again_by_itself() {
    let env = Env::simulated(3);
    let (pool, space, repairer) = pool_with_repairer(&env, JobsSection::default()).await;
    // The job is paused before it starts, so that it still exists when it is stopped.
    let job = pool.jobs().begin(Kind::Repair, Subject::Space(space)).expect("the first");
    pool.jobs().pause(job.id()).expect("it is there");
    drop(job);
    assert!(repairer.repair(space).is_ok_and(|begun| begun));
    env.sleep(DAY / 24).await;
    let [shown] = &pool.jobs().list()[..] else { panic!("one job") };
    assert_eq!((shown.kind, &shown.why, shown.done), (Kind::Repair, &Some(DelayReason::Paused), 0));
    pool.jobs().stop(shown.id).expect("it is there");
    env.sleep(DAY).await;
    assert_eq!(pool.jobs().list(), [], "held until a command");
    assert!(pool.read(|s| s.spaces[&space].scrub.began > 0));
    // After a disk joins all work is checked again. The pause ended with the stopped job.
    repairer.check_for_work();
    env.sleep(DAY / 24).await;
    assert!(pool.read(|s| s.spaces[&space].scrub.ended > 0) && pool.jobs().list().is_empty());
    repairer.stop().await;
}

#[test]
fn a_stale_disk_waits_for_the_absent_source() {
    let mut s = State::new(pool::PoolId([1; 16]), "tank".to_owned(), 2 << 20);
    for n in 0..3 {
        s.apply(&Op::AddDisk { disk: DiskNumber(n), record: disk(n) }).expect("a disk");
    }
    let record = SpaceRecord { size: 2 << 20, ..mirror("vm") };
    let space = s.make(record);
    let slabs = [0, 1].map(|n| SlabPlace { disk: DiskNumber(n), slab: 0 });
    s.fill(space, RowNumber(0), slabs).expect("free slabs");
    let generation = s.spaces[&space].rows[&RowNumber(0)].slabs[1].generation;
    let mark_stale = SpaceOp::MarkStale { row: RowNumber(0), index: 1, generation, regions: 1 };
    s.apply(&Op::Space { space, op: mark_stale }).expect("the other has it");
    assert_eq!(stale_disks(&s, &BTreeSet::new()), [DiskNumber(1)]);
    assert_eq!(waits_for(&s, DiskNumber(0), &BTreeSet::new()), None);
    assert_eq!(waits_for(&s, DiskNumber(1), &BTreeSet::new()), Some(Vec::new()), "it is here");
    Arc::make_mut(&mut s.disks).get_mut(&DiskNumber(0)).expect("there").presence =
        Presence::Absent(Absence::Gone);
    assert_eq!(waits_for(&s, DiskNumber(1), &BTreeSet::new()), Some(vec![DiskNumber(0)]));
    assert_eq!(absent(&s), [DiskNumber(0)]);
    Arc::make_mut(&mut s.disks).get_mut(&DiskNumber(1)).expect("there").presence =
        Presence::Absent(Absence::Gone);
    assert_eq!(
        (stale_disks(&s, &BTreeSet::new()), waits_for(&s, DiskNumber(1), &BTreeSet::new())),
        (Vec::new(), None)
    );
}
