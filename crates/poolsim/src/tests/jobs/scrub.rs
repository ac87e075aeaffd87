use std::time::Duration;

use disk::PowerCut;
use disk::sim::{Fault, Rule, SlotId, When};
use pool::Pool;
use pool::events::DamageKind;
use pool::jobs::{Kind, Subject};
use pool_seam::{Coordinator, DiskNumber, Finding, RowNumber, ScrubRecord, SpaceId};

use super::begin;
use crate::world::{World, coded, mirror, virtual_time};

fn record(pool: &Pool, space: SpaceId) -> ScrubRecord {
    pool.read(|s| s.spaces[&space].scrub)
}

/// Flips a bit in the first unit of a copy of a row.
fn damage(world: &World, pool: &Pool, space: SpaceId, row: u32, index: usize) {
    let place = pool.read(|s| s.spaces[&space].rows[&RowNumber(row)].slabs[index].place);
    let at = pool.read(|s| s.disks[&place.disk].areas.data(place.slab).offset);
    world.machine.flip(SlotId(place.disk.0.into()), at + 100, 3);
}

/// A scrub repairs planted damage and records it. The next scrub finds nothing and clears the earlier findings.
#[test]
fn planted_damage_is_repaired_and_recorded() {
    for shape in [mirror("vm"), coded("vm")] {
        virtual_time(async {
            let world = World::new(61, 3);
            let pool = world.create().await;
            let space = pool.create_space(shape).await.expect("a space");
            let owned = world.own(&pool, space).await.expect("an owner");
            for row in 0..3 {
                owned.write(row * 512..row * 512 + 64, 1).await.expect("a write");
            }
            owned.flush().await.expect("a flush");
            owned.space.checkpoint().await.expect("a checkpoint");
            assert_eq!(record(&pool, space), ScrubRecord::default());
            pool.await_scrub(space).await.expect("a record");
            let since = record(&pool, space).since;
            assert_ne!(since, 0);
            damage(&world, &pool, space, 0, 0);
            damage(&world, &pool, space, 1, 1);
            let job = begin(&pool, Kind::Repair, Subject::Space(space));
            assert_eq!(pool.scrub(space, true, true, &job).await, Ok(true));
            assert_eq!(job.findings(), (2, 0));
            let (done, total) = job.bytes();
            assert!(done == total && total > 0, "{done} of {total} bytes");
            let said = record(&pool, space);
            assert_eq!((said.began, said.last_healed, said.last_lost), (0, 2, 0));
            assert!(said.ended >= since && said.since == said.ended);
            let owner = pool.owner(space).expect("an owner");
            let finding = Finding { kind: DamageKind::Healed, disk: DiskNumber(0), space, address: 0 };
            pool.report_finding(owner, finding);
            assert!(pool.events().count(DamageKind::Healed) > 0);
            drop(job);
            let job = begin(&pool, Kind::Scrub, Subject::Space(space));
            assert_eq!(pool.scrub(space, false, false, &job).await, Ok(true));
            assert_eq!((job.findings(), record(&pool, space).last_healed), ((0, 0), 0));
            assert_eq!(pool.events().count(DamageKind::Healed), 0, "all was read, and is well");
        });
    }
}

/// A stopped scrub continues at its row after a restart, with its earlier findings.
#[test]
fn a_scrub_continues_after_a_stop_and_a_restart() {
    virtual_time(async {
        let world = World::new(62, 2);
        let pool = world.create().await;
        let space = pool.create_space(mirror("vm")).await.expect("a space");
        let owned = world.own(&pool, space).await.expect("an owner");
        for row in 0..8 {
            owned.write(row * 512..row * 512 + 64, 1).await.expect("a write");
        }
        owned.flush().await.expect("a flush");
        owned.space.checkpoint().await.expect("a checkpoint");
        damage(&world, &pool, space, 1, 0);
        damage(&world, &pool, space, 7, 1);
        let slow = Rule::new(disk::Op::Read, When::From(0), Fault::Slow(Duration::from_secs(1)));
        world.machine.rule(SlotId(0), slow);
        let job = begin(&pool, Kind::Repair, Subject::Space(space));
        let stops = async {
            while pool.jobs().list().iter().all(|job| job.done < 4 * (2 << 20)) {
                world.env.sleep(Duration::from_millis(500)).await;
            }
            pool.jobs().stop(job.id()).expect("it runs");
        };
        let (ended, ()) = tokio::join!(pool.scrub(space, true, true, &job), stops);
        assert_eq!(ended, Ok(false));
        let said = record(&pool, space);
        assert!(said.began > 0 && (3..7).contains(&said.next.0) && said.healed == 1, "{said:?}");
        drop((job, owned, pool));
        world.machine.no_rules(SlotId(0));
        world.machine.cut(PowerCut::LoseAll);
        world.machine.restart();

        let pool = world.open().await;
        let _owned = world.own(&pool, space).await.expect("the next owner");
        assert_eq!(record(&pool, space), said);
        let job = begin(&pool, Kind::Repair, Subject::Space(space));
        let before = world.machine.counts(SlotId(0)).read_bytes;
        assert_eq!(pool.scrub(space, true, false, &job).await, Ok(true));
        let read = world.machine.counts(SlotId(0)).read_bytes - before;
        let rest = (8 - u64::from(said.next.0)) * (2 << 20);
        assert!(read < rest + (1 << 20), "{read} bytes: the rows before are not read again");
        let ended = record(&pool, space);
        assert_eq!((job.findings(), ended.last_healed, ended.began), ((1, 0), 2, 0));
    });
}
