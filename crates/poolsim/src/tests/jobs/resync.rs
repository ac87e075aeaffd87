use disk::PowerCut;
use disk::sim::SlotId;
use pool::jobs::{Kind, Subject};
use pool_seam::DiskNumber;

use super::{begin, is_unfinished};
use crate::world::{World, coded, mirror, virtual_time};

/// A disk returns, and a resync fills its stale regions of several spaces.
#[test]
fn a_disk_that_returns_is_brought_up_to_date() {
    virtual_time(async {
        let world = World::new(41, 3);
        let pool = world.create().await;
        let mut all = Vec::new();
        for record in [mirror("a"), mirror("b"), coded("c")] {
            let space = pool.create_space(record).await.expect("a space");
            let owned = world.own(&pool, space).await.expect("an owner");
            for row in 0..4 {
                owned.write(row * 512..row * 512 + 32, 1).await.expect("a write");
            }
            owned.flush().await.expect("a flush");
            all.push((space, owned));
        }
        let away = DiskNumber(1);
        world.machine.pull(SlotId(1), PowerCut::LoseAll);
        for (_, owned) in &all {
            owned.write(0..64, 2).await.expect("a write without the disk");
            owned.write(512..520, 2).await.expect("a write without the disk");
            owned.flush().await.expect("a flush");
        }
        assert_eq!(pool.read(|s| s.membership(away)), None);
        assert_eq!(pool.behind(), [], "it is not here");
        world.machine.plug(SlotId(1));
        assert_eq!(pool.return_disk(world.disk(1), false).await, Ok(away));
        assert_eq!(pool.behind(), [away]);

        let job = begin(&pool, Kind::Resync, Subject::Disk(away));
        pool.resync(away, &job).await.expect("a resync");
        let (done, total) = job.bytes();
        assert!(done == total && total > 0, "{done} of {total} bytes");
        assert_eq!(pool.behind(), []);
        assert!(all.iter().all(|(space, _)| !is_unfinished(&pool, *space)));
        // Each of the other disks may be absent now.
        pool.take_offline(DiskNumber(0)).await.expect("the disk that returned has everything");
        for (_, owned) in &all {
            assert!(
                owned.has(0..64, 2).await.expect("a read") && owned.has(520..544, 1).await.expect("a read")
            );
        }
    });
}

/// Units that a crash has left undecided are decided in every open space.
#[test]
fn what_a_crash_left_open_is_decided() {
    virtual_time(async {
        let world = World::new(42, 3);
        let pool = world.create().await;
        let space = pool.create_space(mirror("vm")).await.expect("a space");
        let other = pool.create_space(mirror("other")).await.expect("a second space, without an owner");
        let owned = world.own(&pool, space).await.expect("an owner");
        owned.write(0..64, 1).await.expect("a write");
        owned.flush().await.expect("a flush");
        owned.write(0..64, 2).await.expect("a write");
        drop((owned, pool));
        world.machine.cut(PowerCut::Tear { seed: 3 });
        world.machine.restart();
        let pool = world.open().await;
        let owned = world.own(&pool, space).await.expect("the next owner");
        let job = begin(&pool, Kind::Resolve, Subject::Pool);
        pool.resolve_all(&job).await.expect("all is decided");
        assert!(pool.unverified().is_empty());
        for unit in 0..64 {
            let is_old_or_new = owned.has(unit..unit + 1, 1).await.expect("a read")
                || owned.has(unit..unit + 1, 2).await.expect("a read");
            assert!(is_old_or_new, "unit {unit}");
        }
        assert!(pool.read(|s| s.spaces.contains_key(&other)));
    });
}

/// A job on a space that is not open fails with an error that names the space.
#[test]
fn a_space_that_is_not_open_is_named() {
    virtual_time(async {
        let world = World::new(43, 3);
        let pool = world.create().await;
        let space = pool.create_space(mirror("vm")).await.expect("a space");
        let job = begin(&pool, Kind::Scrub, Subject::Space(space));
        let error = pool.scrub(space, false, false, &job).await.expect_err("no owner");
        assert_eq!(error.to_string(), "vm is not open, so its copies cannot be read or written");
    });
}
