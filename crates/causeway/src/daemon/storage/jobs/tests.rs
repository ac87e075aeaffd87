use arena::{Arena, IoBuf};
use disk::{Disk, MemoryDisk, MemoryOptions};
use env::Ctx;
use pool::format::Claimant;
use pool::{
    Absence, CreateOptions, MediaClass, NewDisk, Provisioning, Resiliency, RowNumber, SlabCopy, SlabPlace,
    SpaceRecord,
};

use super::*;
use crate::daemon::events::Events;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A pool of three disks in memory with a written mirror, and its background work.
async fn mended(env: &Env, jobs: JobsSection) -> (Pool, Arc<DataPath>, SpaceId, Arc<Mender>) {
    let arena = Arena::new(64 << 20).expect("memory");
    let disk = |n| MemoryDisk::new(&MemoryOptions::new(format!("d{n}"), 64 << 20)) as Arc<dyn Disk>;
    let disks: Vec<NewDisk> = (0..3).map(|n| NewDisk::new(disk(n))).collect();
    let by = Claimant { host: "here".into(), machine: [1; 16], boot: [1; 16], process: 7 };
    let options = CreateOptions { name: "tank".into(), slab_bytes: Some(2 << 20), by };
    let pool = Pool::create(env, &arena, &disks, options).await.expect("a pool");
    let record = SpaceRecord {
        name: "vm".into(),
        size: 8 << 20,
        resiliency: Resiliency::Mirror { copies: 2 },
        interleave: 64 << 10,
        columns: 1,
        provisioning: Provisioning::Thin,
        media: MediaClass::ANY,
    };
    let data = DataPath::open(&pool, env, &arena).await.expect("a path");
    let space = data.create_space(record).await.expect("a space");
    let vm = data.disk(space).expect("the space");
    let src = [IoBuf::from(vec![7; 1 << 20])].into_iter().collect();
    vm.write(&Ctx::default(), 0, src).wait().await.expect("a write");
    data.flush(space).await.expect("a flush");
    let events = Arc::new(Events::open(None, env).expect("no file"));
    let mender = Mender::start(env, &pool, &data, jobs, &Teller::new(env, &events, &pool));
    (pool, data, space, mender)
}

#[tokio::test(start_paused = true)]
async fn each_space_is_read_once_in_so_many_days() {
    let env = Env::simulated(1);
    let (pool, data, space, mender) = mended(&env, JobsSection::default()).await;
    let record = || pool.read(|s| s.scrubs.get(&space).copied()).unwrap_or_default();
    env.sleep(DAY).await;
    let since = record().since;
    assert!(since > 0 && record().ended == 0, "it counts from when it is seen: {:?}", record());
    env.sleep(DAY * 26).await;
    assert_eq!((record().since, record().ended), (since, 0));
    env.sleep(DAY * 2).await;
    let first = record().ended;
    assert!(first >= since + DAY.as_secs() * 28 && first < since + DAY.as_secs() * 29, "{:?}", record());
    env.sleep(DAY * 28).await;
    assert!(record().ended >= first + DAY.as_secs() * 28);
    mender.stop().await;
    assert_eq!(data.jobs().list(), []);
    // Scheduled scrubs are off; a requested one still runs.
    let env = Env::simulated(2);
    let never = JobsSection { scrub_days: 0, ..JobsSection::default() };
    let (pool, data, space, mender) = mended(&env, never).await;
    env.sleep(DAY * 100).await;
    assert_eq!(pool.read(|s| s.scrubs.len()), 0);
    assert!(mender.repair(space).is_ok_and(|begun| begun));
    assert!(mender.repair(space).is_ok_and(|begun| !begun), "once at a time");
    env.sleep(DAY / 24).await;
    assert!(pool.read(|s| s.scrubs[&space].ended > 0) && data.jobs().list().is_empty());
    mender.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_repair_is_not_begun_again_by_itself() {
    let env = Env::simulated(3);
    let (pool, data, space, mender) = mended(&env, JobsSection::default()).await;
    // Paused before it begins: so it is there when it is stopped.
    let job = data.jobs().begin(Kind::Repair, Subject::Space(space)).expect("the first");
    data.jobs().pause(job.id()).expect("it is there");
    drop(job);
    assert!(mender.repair(space).is_ok_and(|begun| begun));
    env.sleep(DAY / 24).await;
    let [shown] = &data.jobs().list()[..] else { panic!("one job") };
    assert_eq!((shown.kind, &shown.why, shown.done), (Kind::Repair, &Some(Why::Paused), 0));
    data.jobs().stop(shown.id).expect("it is there");
    env.sleep(DAY).await;
    assert_eq!(data.jobs().list(), [], "held until a command");
    assert!(pool.read(|s| s.scrubs[&space].began > 0));
    // A disk joins: everything is looked at again, and the pause went with the job that was stopped.
    mender.look();
    env.sleep(DAY / 24).await;
    assert!(pool.read(|s| s.scrubs[&space].ended > 0) && data.jobs().list().is_empty());
    mender.stop().await;
}

#[test]
fn who_waits_for_whom() {
    let mut s = State::new(pool::PoolId([1; 16]), "tank".to_owned(), 2 << 20);
    let copy = |disk, missed| SlabCopy {
        place: SlabPlace { disk: DiskNumber(disk), slab: 0 },
        generation: 1,
        missed,
    };
    for n in 0..3 {
        let record = pool::DiskRecord {
            id: pool::DiskId([n as u8; 16]),
            name: format!("d{n}"),
            slabs: 8,
            usage: pool::Usage::AutoSelect,
            presence: Presence::Present,
            domains: pool::FaultDomains::default(),
            media: 0,
            label_sequence: 1,
            membership: pool::Membership(1),
            areas: pool::format::Areas::plan(16 << 20, 2 << 20).expect("room"),
        };
        s.disks.insert(DiskNumber(n), record);
    }
    let record = SpaceRecord {
        name: "vm".into(),
        size: 2 << 20,
        resiliency: Resiliency::Mirror { copies: 2 },
        interleave: 64 << 10,
        columns: 1,
        provisioning: Provisioning::Thin,
        media: MediaClass::ANY,
    };
    s.spaces.insert(SpaceId(0), record);
    s.rows.insert((SpaceId(0), RowNumber(0)), pool::Row::new([copy(0, 0), copy(1, 6)]));
    assert_eq!(behind(&s), [DiskNumber(1)]);
    assert_eq!(waits_for(&s, DiskNumber(0)), None);
    assert_eq!(waits_for(&s, DiskNumber(1)), Some(Vec::new()), "it is here");
    s.disks.get_mut(&DiskNumber(0)).expect("there").presence = Presence::Absent(Absence::Gone);
    assert_eq!(waits_for(&s, DiskNumber(1)), Some(vec![DiskNumber(0)]));
    assert_eq!(absent(&s), [DiskNumber(0)]);
    s.disks.get_mut(&DiskNumber(1)).expect("there").presence = Presence::Absent(Absence::Gone);
    assert_eq!((behind(&s), waits_for(&s, DiskNumber(1))), (Vec::new(), None));
}
