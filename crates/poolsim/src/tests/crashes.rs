use disk::PowerCut;
use disk::sim::SlotId;

use crate::world::{World, mirror, virtual_time};

/// Power cuts at any event of a run in which a disk is lost. A flushed unit has the flushed value or a newer one. The
/// metadata and the space are on the same disks, and lose their unflushed writes together.
#[test]
fn a_power_cut_at_any_event() {
    for cut in [PowerCut::LoseAll, PowerCut::KeepAll] {
        let (moments, space, flushed, overwritten, env) = virtual_time(async {
            let world = World::new(7, 3);
            let pool = world.create().await;
            let space = pool.create_space(mirror("vm")).await.expect("a space");
            let owned = world.own(&pool, space).await.expect("an owner");
            world.machine.record();
            owned.write(0..8, 1).await.expect("a write");
            owned.flush().await.expect("a flush");
            let flushed = world.machine.events();
            owned.write(0..8, 2).await.expect("a write");
            world.machine.pull(SlotId(0), PowerCut::LoseAll);
            owned.flush().await.expect("a flush");
            owned.write(8..16, 3).await.expect("a write");
            owned.flush().await.expect("a flush");
            let overwritten = world.machine.events();
            owned.write(512..520, 4).await.expect("a write to a new row");
            owned.flush().await.expect("a flush");
            (world.machine.end_recording(), space, flushed, overwritten, world.env.clone())
        });
        drop(env);
        assert!(moments.len() > 20, "{}", moments.len());
        for moment in moments {
            virtual_time(async {
                let world = World::after(&moment, cut);
                let pool = world.open().await;
                let owned = world.own(&pool, space).await;
                let owned = owned.unwrap_or_else(|e| panic!("event {}: {e}", moment.event));
                for unit in 0..8 {
                    let has = async |value| owned.has(unit..unit + 1, value).await.expect("a read");
                    let is_new = has(2).await;
                    let is_right = match moment.event {
                        event if event >= overwritten => is_new,
                        event if event >= flushed => is_new || has(1).await,
                        _ => is_new || has(1).await || owned.is_empty(unit).await,
                    };
                    assert!(is_right, "event {}, unit {unit}", moment.event);
                }
                if moment.event >= overwritten {
                    assert!(owned.has(8..16, 3).await.expect("a read"), "event {}", moment.event);
                }
                owned.write(0..8, 9).await.expect("a write");
                owned.flush().await.expect("a flush");
                assert!(owned.has(0..8, 9).await.expect("a read"), "event {}", moment.event);
            });
        }
    }
}
