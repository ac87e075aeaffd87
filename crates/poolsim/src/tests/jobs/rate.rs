use std::time::Duration;

use arena::{IoBuf, Sg};
use disk::PowerCut;
use disk::sim::SlotId;
use pool::SpaceRecord;
use pool::jobs::{Kind, Subject};
use pool_seam::{DiskNumber, UNIT};

use super::{begin, on};
use crate::world::{World, mirror, virtual_time};

const MIB: u64 = 1 << 20;

/// Units in a write.
const PART: u64 = 256;

/// One of eight disks of 100 MB/s is lost, with data of mirrors. In all it is rebuilt at this rate, once the pacer has seen
/// that there are no clients.
fn rebuilds_at(spaces: usize, rows: u64, slab_bytes: u64) -> u64 {
    virtual_time(async {
        let (world, rates) = World::rated(8, 640 * MIB, slab_bytes, 100_000_000);
        let pool = world.create().await;
        let mut all = Vec::new();
        let bytes = IoBuf::from(vec![7_u8; UNIT as usize]);
        for n in 0..spaces {
            let record = SpaceRecord { size: rows * slab_bytes, ..mirror(&format!("vm{n}")) };
            let space = pool.create_owned(record).await.expect("a space");
            let owned = world.own(&pool, space).await.expect("an owner");
            for part in 0..rows * slab_bytes / UNIT / PART {
                let src: Sg = (0..PART).map(|_| bytes.clone()).collect();
                owned.space.write(part * PART * UNIT, src, false).wait().await.expect("a write");
            }
            owned.flush().await.expect("a flush");
            owned.space.checkpoint().await.expect("a checkpoint");
            all.push((space, owned));
        }
        let lost = DiskNumber(3);
        world.machine.pull(SlotId(3), PowerCut::LoseAll);
        pool.disk_failed(lost, pool::Absence::Gone).await.expect("the others have everything");
        // Replicas of logs are replaced first.
        world.env.sleep(Duration::from_secs(5)).await;
        let slabs: usize = all.iter().map(|(space, _)| on(&pool, *space, lost)).sum();
        let total = slabs as u64 * slab_bytes;
        rates.begin();
        let job = begin(&pool, Kind::Rebuild, Subject::Disk(lost));
        let mut began = None;
        let watch = async {
            loop {
                if job.bytes().0 * 8 >= total && began.is_none() {
                    began = Some((world.env.now(), job.bytes().0));
                }
                world.env.sleep(Duration::from_millis(5)).await;
            }
        };
        let start = world.env.now();
        let rebuilt = tokio::select! {
            rebuilt = pool.evacuate(lost, &job) => rebuilt.expect("a rebuild"),
            () = watch => unreachable!("it watches for ever"),
        };
        let (whole, end) = (world.env.now() - start, world.env.now());
        assert_eq!((rebuilt.moved, rebuilt.left), (slabs, 0));
        let (since, before) = began.expect("it was watched");
        let per_second = |bytes: u64, time: Duration| bytes * 1_000 / (time.as_millis() as u64).max(1);
        let rate = per_second(total - before, end - since);
        let mib = total / MIB;
        println!(
            "{mib} MiB in {whole:?}: {} B/s; without the first eighth {rate} B/s",
            per_second(total, whole)
        );
        rate
    })
}

#[test]
fn a_disk_of_eight_is_rebuilt_at_300_mb_a_second() {
    let rate = rebuilds_at(4, 14, 16 * MIB);
    assert!(rate >= 300_000_000, "{rate} B/s");
}
