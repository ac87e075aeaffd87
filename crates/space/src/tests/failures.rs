//! Disks that fail, leave and return.

use disk::sim::{Fault, Rule, When};
use disk::{DiskError, Op};
use futures_util::future::join_all;
use pool_seam::{Membership, OwnerOp, Provisioning, RowNumber};

use super::*;
use crate::log::LogError;

#[test]
fn a_disk_that_is_pulled_is_left_out_before_the_answer() {
    virtual_time(async {
        let world = World::new(&Setup::new(1, 3, Resiliency::Mirror { copies: 3 })).await;
        world.write(0..8, false).await.unwrap();
        world.flush().await.unwrap();
        world.rig.machine.pull(SlotId(2), PowerCut::LoseAll);
        world.write(4..5, false).await.unwrap();
        let view = world.rig.view_now();
        assert_eq!(view.disks[&DiskNumber(2)].membership, None);
        let row = view.record.rows.get(&pool_seam::RowNumber(0)).unwrap();
        let stale = row.copies().find(|(_, copy)| copy.place.disk == DiskNumber(2)).unwrap().1.stale_regions;
        assert_ne!(stale, 0, "it lacks what was written without it");
        world.read(0..8).await.unwrap();
        world.flush().await.unwrap();
        assert_eq!(world.rig.return_disk(DiskNumber(2)).await, Ok(RejoinState::Proven { mark: 0 }));
        world.write(0..8, false).await.unwrap();
        world.read(0..8).await.unwrap();
    });
}

/// Rules 10 and 11: every region in which a disk is stale is recorded, so current copies have the data that reads
/// return.
#[test]
fn disks_that_come_and_go_under_load() {
    let mirror = |seed| Setup::new(seed, 4, MIRROR);
    let setups = (0..40).map(mirror).chain((40..60).map(|seed| coded(seed, 1 + (seed % 2) as u8)));
    for setup in setups {
        virtual_time(async {
            let world = World::new(&setup).await;
            world.shuffle(Duration::from_millis(2));
            let chaos = async {
                for round in 0..6 {
                    let disk = (world.rig.env.random_u64() % setup.disks.len() as u64) as u16;
                    world.rig.env.sleep(Duration::from_millis(15)).await;
                    if round % 3 == 1 {
                        world.space.checkpoint().await.unwrap();
                    }
                    world.pull_and_return(disk, Duration::from_millis(15)).await;
                }
            };
            let users = (0..4).map(|_| user(&world, 40, some_rows));
            tokio::join!(chaos, join_all(users));
            world.flush().await.unwrap();
            copies_agree(&world).await;
        });
    }
}

/// Checks that every current copy on a present disk has the same data of a written unit as a read.
pub(super) async fn copies_agree(world: &World) {
    let (view, units) = (world.rig.view_now(), world.model.lock().units().collect::<Vec<_>>());
    for unit in units {
        world.read(unit..unit + 1).await.unwrap();
        let bytes = world.bytes(unit..unit + 1).await.unwrap();
        if tell(&bytes[0]).unwrap().1 == 0 {
            // The copies of an unwritten unit may have any contents.
            continue;
        }
        let at = crate::view::layout(&view).locate(unit * UNIT);
        let (key, first) = crate::view::group_of(&view, at);
        let route = crate::view::route(&view, key).unwrap();
        let content = route.content(at.column);
        for member in route.members {
            if member.counts && member.membership.is_some() && usize::from(member.content) == content {
                let image = world.rig.machine.image(SlotId(member.disk.0.into()));
                let copy = image.to_vec(member.data + first as u64 * UNIT, UNIT as usize);
                assert_eq!(tell(&copy), tell(&bytes[0]), "unit {unit} on {:?}", member.disk);
            }
        }
    }
}

/// The first unit of a group, one in each of some rows.
fn some_rows(random: u64) -> u64 {
    (random >> 40) % 8 * 512 + random % 8
}

/// Errors are allowed where the only copy is on an absent disk.
pub(super) async fn user(world: &World, steps: usize, first: impl Fn(u64) -> u64) {
    for _ in 0..steps {
        let random = world.rig.env.random_u64();
        let first = first(random);
        let units = first..first + 1 + (random >> 8) % 4;
        let result = match (random >> 16) % 8 {
            0 => world.flush().await,
            1..5 => world.write(units, (random >> 24).is_multiple_of(4)).await,
            _ => world.read(units).await,
        };
        assert!(matches!(result, Ok(()) | Err(SpaceError::Unavailable { .. })), "{result:?}");
    }
}

/// A crash leaves a stripe undecided. A table is loaded while a disk is absent that is current in the stripe. Then
/// the disk returns, and another one loses its unit: with the block of the first disk, the unit can be reconstructed.
#[test]
fn a_stripe_is_decided_with_the_block_of_a_disk_that_is_back() {
    virtual_time(async {
        let world = World::new(&coded(5, 1)).await;
        world.write(0..12, false).await.unwrap();
        world.flush().await.unwrap();
        world.space.checkpoint().await.unwrap();
        let row = world.rig.view_now().record.rows[&RowNumber(0)].clone();
        let (damaged, away) = (row.slabs[0].place, row.slabs[2].place.disk);
        world.rig.remove_disk(away).await.unwrap();
        // The next owner has not read the absent disk's block.
        let world = world.crashed(PowerCut::KeepAll, |_| {}).await;
        world.write(0..1, true).await.unwrap();
        let world = world.crashed(PowerCut::KeepAll, |_| {}).await;
        assert_eq!(world.rig.view_now().disks[&away].membership, None);
        // The checkpoint loads the table.
        world.space.checkpoint().await.unwrap();
        world.rig.return_disk(away).await.unwrap();
        let copy = world.rig.view_now().record.rows[&RowNumber(0)].slabs[2];
        assert_eq!(copy.stale_regions, 0, "nothing of the row was written there");
        let at = world.rig.view_now().disks[&damaged.disk].areas.data(damaged.slab).offset;
        world.rig.machine.flip(SlotId(damaged.disk.0.into()), at, 3);
        world.read(0..12).await.unwrap();
    });
}

/// A damaged copy is never returned, and is rewritten.
#[test]
fn a_damaged_copy_is_healed() {
    virtual_time(async {
        let world = World::new(&Setup::new(2, 2, MIRROR)).await;
        world.write(0..4, false).await.unwrap();
        world.flush().await.unwrap();
        let view = world.rig.view_now();
        let row = view.record.rows.get(&pool_seam::RowNumber(0)).unwrap();
        let copy = row.slabs[0].place;
        let at = view.disks[&copy.disk].areas.data(copy.slab).offset;
        let slot = SlotId(copy.disk.0.into());
        world.rig.machine.flip(slot, at + UNIT, 3);
        for _ in 0..2 {
            world.read(0..4).await.unwrap();
        }
        let other = row.slabs[1].place;
        let other_at = view.disks[&other.disk].areas.data(other.slab).offset;
        let (a, b) = (world.rig.machine.image(slot), world.rig.machine.image(SlotId(other.disk.0.into())));
        let damaged = a.to_vec(at, 4 * UNIT as usize) != b.to_vec(other_at, 4 * UNIT as usize);
        // The intact copy may be read first.
        if damaged {
            world.rig.machine.flip(SlotId(other.disk.0.into()), other_at + UNIT, 3);
            assert!(matches!(world.read(1..2).await, Err(SpaceError::Corrupt { length: 4096, .. })));
        }
    });
}

/// Rule 3: units of a stripe that are in the log are read from there, also with full disks and after a crash.
#[test]
fn stripes_that_cannot_be_put_in_place_are_read_from_the_log() {
    for seed in 9..13 {
        virtual_time(async {
            let world = World::new(&coded(seed, 1 + (seed % 2) as u8)).await;
            world.write(0..24, true).await.unwrap();
            let view = world.rig.view_now();
            let slabs = &view.record.rows[&RowNumber(0)].slabs;
            let no_room = |rig: &Rig| {
                for place in slabs.iter().map(|copy| copy.place) {
                    let data = view.disks[&place.disk].areas.data(place.slab).offset;
                    let rule = Rule::new(Op::Write, When::From(0), Fault::Full);
                    let rule = rule.within(data..data + view.slab_bytes);
                    rig.machine.rule(SlotId(place.disk.0.into()), rule);
                }
            };
            no_room(&world.rig);
            for first in [1, 9, 14] {
                let written = world.write(first..first + 3, false).await;
                assert!(matches!(written, Err(SpaceError::Disk { .. })), "{written:?}");
            }
            world.read(0..24).await.unwrap();
            let world = world.crashed(PowerCut::LoseAll, no_room).await;
            world.settle(0..24, "after a crash").await;
            assert!(world.space.resolve().await.is_err(), "stripes are only in the log still");
            let room =
                |rig: &Rig| (0..rig.machine.slots()).for_each(|slot| rig.machine.no_rules(SlotId(slot)));
            let world = world.crashed(PowerCut::LoseAll, room).await;
            world.space.resolve().await.unwrap();
            world.read(0..24).await.unwrap();
            world.write(0..24, true).await.unwrap();
            world.read(0..24).await.unwrap();
        });
    }
}

/// A new replica of the log has no room: the coordinator gets this as the reason, and no flush fails because of it.
#[test]
fn a_replica_without_room_fails_no_flush() {
    virtual_time(async {
        let world = World::new(&Setup::new(14, 3, MIRROR)).await;
        for row in 0..3 {
            world.write(row * 512..row * 512 + 4, true).await.unwrap();
        }
        world.write(0..2, false).await.unwrap();
        world.write(512..514, false).await.unwrap();
        world.write(1024..1026, false).await.unwrap();
        world.rig.machine.rule(SlotId(2), Rule::new(Op::Write, When::From(0), Fault::Full));
        world.rig.remove_disk(DiskNumber(1)).await.unwrap();
        world.rig.env.sleep(Duration::from_secs(5)).await;
        let failed = world.rig.failed();
        let is_full =
            |(disk, error): &(_, _)| *disk == DiskNumber(2) && matches!(error, DiskError::Full { .. });
        assert!(!failed.is_empty() && failed.iter().all(is_full), "{failed:?}");
        world.flush().await.unwrap();
    });
}

/// A flush that fails on the only copy: its callers get the error, and later reads return the same value as the first
/// one.
#[test]
fn a_value_whose_flush_failed_is_decided_once() {
    virtual_time(async {
        let world = World::new(&Setup::new(6, 1, Resiliency::Simple)).await;
        world.write(0..4, false).await.unwrap();
        world.flush().await.unwrap();
        world.write(1..3, false).await.unwrap();
        world.rig.machine.rule(SlotId(0), Rule::new(Op::Flush, When::Nth(0), Fault::Error));
        assert_eq!(world.flush().await, Err(LogError::NotFlushed(DiskNumber(0)).into()));
        world.read(0..4).await.unwrap();
        world.write(2..4, false).await.unwrap();
        world.flush().await.unwrap();
        world.read(0..4).await.unwrap();
    });
}

/// A unit was overwritten twice, a flush failed on the only copy, and the disk has the first of the two values, which is
/// in no record: the region stays active until the unit is decided.
#[test]
fn a_disk_that_lost_the_newer_of_two_overwrites_has_the_older() {
    virtual_time(async {
        let world = World::new(&Setup::new(66, 1, Resiliency::Simple)).await;
        world.write(0..8, false).await.unwrap();
        world.space.checkpoint().await.unwrap();
        world.write(1..2, false).await.unwrap();
        world.rig.machine.rule(SlotId(0), Rule::new(Op::Write, When::Nth(0), Fault::Lost));
        world.write(1..2, false).await.unwrap();
        world.rig.machine.rule(SlotId(0), Rule::new(Op::Flush, When::Nth(0), Fault::Error));
        assert_eq!(world.flush().await, Err(LogError::NotFlushed(DiskNumber(0)).into()));
        for _ in 0..2 {
            world.space.checkpoint().await.unwrap();
        }
        let world = world.crashed(PowerCut::KeepAll, |_| {}).await;
        world.settle(0..8, "after the crash").await;
    });
}

/// All copies on a disk are stale.
fn misses_everything(world: &World, disk: DiskNumber) {
    let view = world.rig.view_now();
    let copies = view.record.rows.values().flat_map(|row| row.copies().collect::<Vec<_>>());
    let here = copies.filter(|(_, copy)| copy.place.disk == disk).map(|(_, copy)| copy.stale_regions);
    let here: Vec<u64> = here.collect();
    assert!(!here.is_empty() && here.iter().all(|stale| *stale != 0), "{here:?}");
}

/// Rule 9: a disk whose mark is older than the one in the log.
#[test]
fn a_disk_with_an_older_mark_misses_everything() {
    virtual_time(async {
        let setup = Setup { disks: vec![20 << 20; 4], log_replicas: 2, ..Setup::new(7, 4, MIRROR) };
        let world = World::new(&setup).await;
        for row in 0..4 {
            world.write(row * 512..row * 512 + 4, false).await.unwrap();
        }
        world.space.checkpoint().await.unwrap();
        // A disk without a replica of the log.
        let earlier = world.rig.machine.image(SlotId(3));
        world.write(0..2, true).await.unwrap();
        world.space.checkpoint().await.unwrap();
        let rolled_back = |rig: &Rig| rig.machine.roll_back(SlotId(3), &earlier, 0, 20 << 20);
        let world = world.crashed(PowerCut::LoseAll, rolled_back).await;
        misses_everything(&world, DiskNumber(3));
        for row in 0..4 {
            world.read(row * 512..row * 512 + 4).await.unwrap();
        }
    });
}

/// Rule 18: a rolled-back disk lacks the first blocks of a row. Nothing was written to the row yet, and there was no
/// checkpoint since.
#[test]
fn a_disk_rolled_back_to_before_a_row_misses_everything() {
    virtual_time(async {
        let setup = Setup { disks: vec![20 << 20; 4], log_replicas: 2, ..Setup::new(7, 4, MIRROR) };
        let world = World::new(&setup).await;
        let earlier = world.rig.machine.image(SlotId(3));
        for row in 0..4 {
            world.space.0.allocate(RowNumber(row)).await.unwrap();
        }
        let rolled_back = |rig: &Rig| rig.machine.roll_back(SlotId(3), &earlier, 0, 20 << 20);
        let world = world.crashed(PowerCut::LoseAll, rolled_back).await;
        misses_everything(&world, DiskNumber(3));
        for row in 0..4 {
            world.write(row * 512..row * 512 + 4, false).await.unwrap();
        }
    });
}

/// Rule 18: all disks of two rows are absent before the rows are ready. Such rows are empty and get other slabs; a
/// fixed space waits for the disks.
#[test]
fn a_new_row_whose_disks_are_gone_gets_others() {
    for provisioning in [Provisioning::Thin, Provisioning::Fixed] {
        virtual_time(async {
            let disks = vec![20 << 20; 6];
            let setup = Setup { disks, log_replicas: 2, provisioning, ..Setup::new(7, 6, MIRROR) };
            let world = World::new(&setup).await;
            let rows = (0..5).map(|row| OwnerOp::Allocate { row: RowNumber(row) });
            world.space.0.commit(rows.collect()).await.unwrap();
            let gone = [4, 5].map(DiskNumber);
            let lacking = |world: &World| {
                let view = world.rig.view_now();
                let rows = view.record.ready_rows().count();
                let is_gone =
                    |row: &&pool_seam::Row| row.copies().all(|(_, copy)| gone.contains(&copy.place.disk));
                (view.record.data_rows().map(|(_, row)| row).filter(is_gone).count(), rows)
            };
            assert_eq!(lacking(&world), (2, 0));
            for disk in gone {
                world.rig.remove_disk(disk).await.unwrap();
            }
            match provisioning {
                Provisioning::Thin => {
                    world.space.allocate_all().await.unwrap();
                    assert_eq!(lacking(&world), (0, 8));
                }
                Provisioning::Fixed => {
                    let error = world.space.allocate_all().await.unwrap_err();
                    assert!(matches!(error, SpaceError::Unavailable { .. }), "{error}");
                    for disk in gone {
                        world.rig.return_disk(disk).await.unwrap();
                    }
                    world.space.allocate_all().await.unwrap();
                    assert_eq!(lacking(&world), (2, 8));
                }
            }
            for row in 0..5 {
                world.write(row * 512..row * 512 + 4, true).await.unwrap();
            }
            assert_eq!(stale_here(&world), 0);
        });
    }
}

/// Stale regions on present disks.
fn stale_here(world: &World) -> u64 {
    let view = world.rig.view_now();
    let copies =
        view.record.data_rows().flat_map(|(_, row)| row.copies().map(|(_, copy)| *copy).collect::<Vec<_>>());
    copies.filter(|copy| view.membership(copy.place.disk).is_some()).map(|copy| copy.stale_regions).sum()
}

/// A checkpoint and two rows write the mark of a disk at the same time: each has its own count.
#[test]
fn marks_of_a_disk_are_written_one_after_the_other() {
    virtual_time(async {
        let world = World::new(&Setup::new(9, 3, MIRROR)).await;
        world.write(0..8, true).await.unwrap();
        world.space.checkpoint().await.unwrap();
        world.shuffle(std::time::Duration::from_millis(2));
        let (inner, view) = (&world.space.0, world.rig.view_now());
        let disk = DiskNumber(1);
        let port = inner.ports.get(disk, view.membership(disk).unwrap()).unwrap();
        let before = inner.read_mark(&view, &port).await.unwrap().unwrap();
        let (one, two, all) =
            tokio::join!(inner.mark_again(&port), inner.mark_again(&port), inner.write_marks(before.mark));
        assert_eq!((one, two, all), (Ok(()), Ok(()), Ok(())));
        let after = inner.read_mark(&view, &port).await.unwrap().unwrap();
        assert_eq!(after.count, before.count + 3);
    });
}

/// A message about an earlier membership may be late: the disk's present replica of the log is used all the same.
#[test]
fn a_late_message_about_an_earlier_membership_changes_nothing() {
    virtual_time(async {
        let world = World::new(&Setup::new(7, 2, MIRROR)).await;
        let disk = DiskNumber(0);
        let of = world.rig.view_now().membership(disk).expect("in service");
        let earlier = Membership(of.0 - 1);
        let write = || {
            let put = world.space.0.log().annex_put(1, vec![1]);
            tokio::time::timeout(Duration::from_secs(60), put)
        };
        world.space.disk_leaving(disk, earlier).wait().await.expect("an answer");
        write().await.expect("it does not wait for the replica").unwrap();
        world.space.disk_leaving(disk, of).wait().await.expect("an answer");
        world.space.disk_stays(disk, earlier);
        assert!(write().await.is_err(), "the disk is leaving still");
        world.space.disk_stays(disk, of);
        write().await.expect("it stays").unwrap();
    });
}
