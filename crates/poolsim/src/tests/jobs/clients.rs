use std::cell::{Cell, RefCell};
use std::time::Duration;

use arena::{IoBuf, Sg};
use disk::Disk;
use env::Ctx;
use futures_util::future::{join, join_all};
use pool::SpaceRecord;
use pool::jobs::pacer::Pacing;
use pool::jobs::{DelayReason, Kind, Subject};
use pool_seam::{DiskNumber, UNIT};

use super::begin;
use crate::world::{World, mirror, virtual_time};

const MIB: u64 = 1 << 20;
const MS: Duration = Duration::from_millis(1);

/// The size of the virtual disk.
const SIZE: u64 = 48 * MIB;

/// The minimum rate of all jobs, regardless of the clients, in bytes per second.
const MINIMUM: u64 = 4 * MIB;

/// The result of a resync, and the clients' latency during it.
#[derive(Debug)]
struct Resynced {
    /// Bytes a second.
    rate: u64,
    /// The 99th percentile of the clients' reads.
    p99: Option<Duration>,
    was_paced: bool,
}

/// Resynchronises a wholly stale disk of a mirror, on disks of 40 MB/s, while `clients` clients read the virtual
/// disk.
fn resync(target: Duration, clients: u64) -> Resynced {
    virtual_time(async {
        let (world, rates) = World::rated(3, 160 * MIB, 2 * MIB, 40_000_000);
        let pool = world.create().await;
        pool.jobs().set_pacing(Pacing { target, minimum: MINIMUM, ..Pacing::default() });
        let local = world.local(&pool).await;
        let space = local.create(SpaceRecord { size: SIZE, ..mirror("vm") }).await.expect("a space");
        let vm = local.disk(space).expect("a virtual disk");
        let bytes = IoBuf::from(vec![7_u8; UNIT as usize]);
        let fill = async || {
            for part in 0..SIZE / MIB {
                let src: Sg = (0..MIB / UNIT).map(|_| bytes.clone()).collect();
                vm.write(&Ctx::default(), part * MIB, src).wait().await.expect("a write");
            }
            vm.flush(&Ctx::default()).wait().await.expect("a flush");
        };
        let away = DiskNumber(1);
        fill().await;
        pool.take_offline(away).await.expect("it leaves");
        fill().await;
        assert_eq!(pool.return_disk(world.disk(1), false).await, Ok(away));
        rates.begin();
        let job = begin(&pool, Kind::Resync, Subject::Disk(away));
        let (took, is_over, was_paced) = (RefCell::new(Vec::new()), Cell::new(false), Cell::new(false));
        let client = async |number: u64| {
            let mut n = number * 1237;
            while !is_over.get() {
                n += 641;
                let began = world.env.now();
                let unit = n % (SIZE / UNIT);
                let (read, _) = vm.read(&Ctx::default(), unit * UNIT, world.buffers(UNIT).await).wait().await;
                read.expect("a read");
                took.borrow_mut().push(world.env.now() - began);
                let jobs = pool.jobs().list();
                let paced = jobs.iter().any(|job| matches!(job.why, Some(DelayReason::Paced { .. })));
                was_paced.set(was_paced.get() || paced);
                world.env.sleep(2 * MS).await;
            }
        };
        let began = world.env.now();
        let resyncs = async {
            pool.resync(away, &job).await.expect("a resync");
            is_over.set(true);
            world.env.now() - began
        };
        let (whole, _) = join(resyncs, join_all((0..clients).map(client))).await;
        let mut took = took.into_inner();
        took.sort_unstable();
        let p99 = took.get(took.len() * 99 / 100).copied();
        Resynced { rate: job.bytes().0 * 1000 / whole.as_millis() as u64, p99, was_paced: was_paced.get() }
    })
}

/// Reads of clients pace a job. Without clients the job is fast. With clients it is no faster than the target latency
/// allows, but never slower than its minimum.
#[test]
fn reads_of_a_virtual_disk_pace_jobs() {
    let (target, hour) = (5 * MS, 3600 * 1000 * MS);
    let (alone, beside, unpaced) = (resync(target, 0), resync(target, 8), resync(hour, 8));
    println!("alone {alone:?}\nbeside clients {beside:?}\nwith another target {unpaced:?}");
    assert!(!alone.was_paced && alone.rate > 3 * MINIMUM, "{alone:?}");
    assert!(beside.was_paced && beside.rate < alone.rate / 2 && beside.rate < unpaced.rate, "{beside:?}");
    assert!(beside.p99 < unpaced.p99, "{beside:?} and {unpaced:?}");
    // No client's read meets this target.
    let slowest = resync(MS / 4, 8);
    println!("with a target that cannot be met {slowest:?}");
    assert!(slowest.rate < beside.rate && slowest.rate > MINIMUM * 9 / 10, "{slowest:?}");
}
