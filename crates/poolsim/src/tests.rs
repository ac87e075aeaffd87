//! The thinnest path through both sides.

use disk::PowerCut;
use disk::sim::SlotId;
use pool_seam::DiskNumber;

use crate::world::{World, mirror, virtual_time};

/// A mirror on a real pool: written, flushed, a disk is lost, the power fails, and everything flushed is read again.
#[test]
fn a_mirror_survives_a_disk_and_a_power_cut() {
    virtual_time(async {
        let world = World::new(1, 3);
        let pool = world.create().await;
        let space = pool.create_owned(mirror("vm")).await.expect("a space");
        let owned = world.own(&pool, space).await.expect("an owner");
        owned.write(0..64, 1).await.expect("a write");
        owned.flush().await.expect("a flush");
        assert!(owned.has(0..64, 1).await.expect("a read"));

        let lost = DiskNumber(0);
        world.machine.pull(SlotId(0), PowerCut::LoseAll);
        owned.write(0..32, 2).await.expect("a write without the disk");
        owned.flush().await.expect("a flush without the disk");
        assert!(pool.read(|s| s.membership(lost).is_none()), "the disk has left");

        drop((owned, pool));
        world.machine.cut(PowerCut::LoseAll);
        world.machine.restart();
        let pool = world.open().await;
        let owned = world.own(&pool, space).await.expect("the next owner");
        assert!(owned.has(0..32, 2).await.expect("a read") && owned.has(32..64, 1).await.expect("a read"));
        owned.write(64..96, 3).await.expect("a write");
        owned.flush().await.expect("a flush");
        assert!(owned.has(64..96, 3).await.expect("a read"));
    });
}
