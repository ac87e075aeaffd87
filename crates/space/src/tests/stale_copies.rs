//! Rule 21: the newest bytes are also read from a copy whose region is stale. When a disk is removed, a whole region
//! becomes stale even if few or none of its units have changed.

use pool_seam::{DamageKind, LossRecord, RowNumber};

use super::failures::copies_agree;
use super::*;

const ROW: RowNumber = RowNumber(0);
/// The number of units that are written.
const UNITS: u64 = 24;

/// A setup, and the sets of slabs that are damaged while slab `away` is absent: together more than the row survives.
fn cases() -> Vec<(Setup, usize, Vec<usize>)> {
    let mirror = |away: usize| (Setup::new(1 + away as u64, 2, MIRROR), away, vec![1 - away]);
    let mut all: Vec<_> = (0..2).map(mirror).collect();
    let three = Setup::new(3, 3, Resiliency::Mirror { copies: 3 });
    all.push((three, 1, vec![0, 2]));
    for parity in 1..=2 {
        let slabs = 3 + usize::from(parity);
        for away in 0..slabs {
            let damaged = (1..=usize::from(parity)).map(|next| (away + next) % slabs).collect();
            all.push((coded(10 + away as u64, parity), away, damaged));
        }
    }
    all
}

fn disk_of(world: &World, slab: usize) -> DiskNumber {
    world.rig.view_now().record.rows[&ROW].slabs[slab].place.disk
}

/// Damages unit 2 of a slab.
fn flip(world: &World, slab: usize) {
    let view = world.rig.view_now();
    let place = view.record.rows[&ROW].slabs[slab].place;
    let at = view.disks[&place.disk].areas.data(place.slab).offset + 2 * UNIT;
    world.rig.machine.flip(SlotId(place.disk.0.into()), at, 4);
}

/// The units of the space with unit 2 of a data column.
fn units_of_stripe(setup: &Setup) -> Vec<u64> {
    if setup.columns == 1 { vec![2] } else { (0..3).map(|column| column * 4 + 2).collect() }
}

async fn resync(world: &World, disk: DiskNumber) -> pool_seam::JobReport {
    world.space.run(JobId(9), JobOrder::Resync(disk)).wait().await.unwrap()
}

async fn scrub(world: &World) -> pool_seam::JobReport {
    world.space.run(JobId(8), JobOrder::Scrub(ROW)).wait().await.unwrap()
}

fn has_stale_regions(world: &World) -> bool {
    world.rig.view_now().record.rows[&ROW].slabs.iter().any(|copy| copy.stale_regions != 0)
}

fn loss(world: &World) -> LossRecord {
    world.rig.view_now().record.loss.clone()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    Read,
    Resync,
    Scrub,
    /// A read while the disk is absent, too: its units are recorded as lost.
    ReadWhileAway,
}

#[test]
fn a_disk_that_returns_has_what_is_damaged_elsewhere() {
    for (setup, away, damaged) in cases() {
        for first in [First::Read, First::Resync, First::Scrub, First::ReadWhileAway] {
            for is_written_elsewhere in [false, true] {
                let what = format!("{:?} {away} {damaged:?} {first:?}", setup.resiliency);
                virtual_time(async {
                    let world = World::new(&setup).await;
                    world.write(0..UNITS, true).await.unwrap();
                    let disk = disk_of(&world, away);
                    world.rig.remove_disk(disk).await.unwrap();
                    if is_written_elsewhere {
                        world.write(UNITS..UNITS + 4, true).await.unwrap();
                    }
                    damaged.iter().for_each(|slab| flip(&world, *slab));
                    if first == First::ReadWhileAway {
                        assert!(matches!(world.read(0..UNITS).await, Err(SpaceError::Corrupt { .. })));
                        world.rig.env.sleep(Duration::from_secs(1)).await;
                        assert_ne!(loss(&world), LossRecord::default());
                    }
                    world.rig.return_disk(disk).await.unwrap();
                    assert!(has_stale_regions(&world), "{what}");
                    match first {
                        First::Read => assert_eq!(world.read(0..UNITS).await, Ok(()), "{what}"),
                        First::Scrub => assert_eq!(scrub(&world).await.progress.lost, 0, "{what}"),
                        First::Resync | First::ReadWhileAway => {}
                    }
                    assert_eq!(resync(&world, disk).await.not_moved, [], "{what}");
                    assert!(!has_stale_regions(&world), "{what}");
                    assert_eq!(world.read(0..UNITS).await, Ok(()), "{what}");
                    let lost = world.rig.found().iter().any(|finding| finding.kind == DamageKind::Lost);
                    assert_eq!(lost, first == First::ReadWhileAway, "{what}");
                    world.rig.env.sleep(Duration::from_secs(1)).await;
                    assert_eq!(loss(&world), LossRecord::default(), "{what}");
                    // The damaged copies are repaired, so the other copy is no longer needed.
                    world.flush().await.unwrap();
                    copies_agree(&world).await;
                    flip(&world, away);
                    assert_eq!(world.read(0..UNITS).await, Ok(()), "{what}");
                    let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
                    assert_eq!(world.read(0..UNITS).await, Ok(()), "{what}");
                });
            }
        }
    }
}

/// After a crash, units that no complete copy has are declared lost in the log. They are restored when the disk returns.
#[test]
fn a_unit_that_is_declared_lost_is_restored_by_a_disk_that_returns() {
    for (setup, away, damaged) in cases() {
        for is_scrub in [false, true] {
            let what = format!("{:?} {away} {damaged:?} scrub {is_scrub}", setup.resiliency);
            virtual_time(async {
                let world = World::new(&setup).await;
                world.write(0..UNITS, true).await.unwrap();
                world.write(UNITS..UNITS + 4, true).await.unwrap();
                world.rig.env.sleep(Duration::from_secs(1)).await;
                let disk = disk_of(&world, away);
                world.rig.remove_disk(disk).await.unwrap();
                let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
                damaged.iter().for_each(|slab| flip(&world, *slab));
                world.space.resolve().await.unwrap();
                scrub(&world).await;
                assert!(matches!(world.read(0..UNITS).await, Err(SpaceError::Corrupt { .. })), "{what}");
                world.space.checkpoint().await.unwrap();
                world.rig.return_disk(disk).await.unwrap();
                assert!(has_stale_regions(&world), "{what}");
                if is_scrub {
                    assert_eq!(scrub(&world).await.progress.lost, 0, "{what}");
                    assert_eq!(world.read(0..UNITS).await, Ok(()), "{what}");
                }
                assert_eq!(resync(&world, disk).await.not_moved, [], "{what}");
                assert_eq!(world.read(0..UNITS).await, Ok(()), "{what}");
                assert_eq!(loss(&world), LossRecord::default(), "{what}");
                copies_agree(&world).await;
                let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
                flip(&world, away);
                assert_eq!(world.read(0..UNITS).await, Ok(()), "{what}");
            });
        }
    }
}

/// Too many columns are damaged to recover them all, but the disk has its own column.
#[test]
fn a_column_is_restored_beside_lost_ones() {
    for is_crash in [false, true] {
        virtual_time(async {
            let mut world = World::new(&coded(30, 1)).await;
            world.write(0..UNITS, true).await.unwrap();
            world.write(UNITS..UNITS + 4, true).await.unwrap();
            world.rig.env.sleep(Duration::from_secs(1)).await;
            let disk = disk_of(&world, 0);
            world.rig.remove_disk(disk).await.unwrap();
            if is_crash {
                world = world.crashed(PowerCut::LoseAll, |_| {}).await;
            }
            (1..3).for_each(|slab| flip(&world, slab));
            world.space.resolve().await.unwrap();
            scrub(&world).await;
            assert!(matches!(world.read(2..3).await, Err(SpaceError::Corrupt { .. })));
            world.rig.return_disk(disk).await.unwrap();
            assert_eq!(resync(&world, disk).await.not_moved, []);
            for unit in 0..UNITS {
                let read = world.read(unit..unit + 1).await;
                assert_eq!(read.is_err(), unit == 6 || unit == 10, "unit {unit} {is_crash}: {read:?}");
            }
            world.rig.env.sleep(Duration::from_secs(1)).await;
            assert_eq!(loss(&world).at, [6 * UNIT, 10 * UNIT].into());
        });
    }
}

/// The unit was overwritten while the disk was absent: the disk's bytes are old, and never returned.
#[test]
fn old_data_does_not_come_back() {
    for (setup, away, damaged) in cases() {
        for (is_cold, is_rolled_back) in [(false, false), (true, false), (false, true)] {
            let what = format!("{:?} {away} {damaged:?} {is_cold} {is_rolled_back}", setup.resiliency);
            virtual_time(async {
                let mut world = World::new(&setup).await;
                world.write(0..UNITS, true).await.unwrap();
                world.space.checkpoint().await.unwrap();
                let disk = disk_of(&world, away);
                let slot = SlotId(disk.0.into());
                let before = world.rig.machine.image(slot);
                if is_rolled_back {
                    world.write(0..UNITS, true).await.unwrap();
                    world.space.checkpoint().await.unwrap();
                }
                world.rig.remove_disk(disk).await.unwrap();
                if is_rolled_back {
                    world.rig.machine.roll_back(slot, &before, 0, 64 << 20);
                } else {
                    world.write(0..UNITS, true).await.unwrap();
                }
                if is_cold {
                    // Makes the region inactive, so that damage there does not count as a write in flight (rule 5 b).
                    for _ in 0..2 {
                        world.space.checkpoint().await.unwrap();
                    }
                    world = world.reopened().await;
                }
                damaged.iter().for_each(|slab| flip(&world, *slab));
                world.rig.return_disk(disk).await.unwrap();
                let stripe = units_of_stripe(&setup);
                let reads = async |world: &World, what: &str| {
                    let mut lost = 0;
                    for unit in 0..UNITS {
                        // The model does not allow old data.
                        match world.read(unit..unit + 1).await {
                            Ok(()) => {}
                            Err(SpaceError::Corrupt { .. }) if stripe.contains(&unit) => lost += 1,
                            other => panic!("{what} unit {unit}: {other:?}"),
                        }
                    }
                    assert!(lost > 0, "{what}");
                };
                reads(&world, &what).await;
                assert_ne!(resync(&world, disk).await.not_moved, [], "{what}");
                reads(&world, &what).await;
                assert_ne!(scrub(&world).await.progress.lost, 0, "{what}");
                reads(&world, &what).await;
                assert_ne!(loss(&world), LossRecord::default(), "{what}");
                assert!(world.rig.found().iter().any(|finding| finding.kind == DamageKind::Lost), "{what}");
            });
        }
    }
}

/// The checksums of the absent column may be in no block, and a restart forgets them. The other columns prove which
/// of its units are the newest. A write that would destroy this proof is refused until the disk returns.
#[test]
fn a_column_is_restored_without_its_checksum() {
    for (setup, away, damaged) in cases().into_iter().filter(|(setup, ..)| setup.columns > 1) {
        for (is_in_blocks, is_written_elsewhere, is_written) in
            [(false, false, false), (true, true, false), (false, true, true), (true, false, true)]
        {
            for first in [First::Read, First::Resync, First::Scrub] {
                let what = format!(
                    "{:?} {away} {damaged:?} {first:?} {is_in_blocks} {is_written_elsewhere} {is_written}",
                    setup.resiliency
                );
                virtual_time(async {
                    let world = World::new(&setup).await;
                    world.write(0..UNITS, true).await.unwrap();
                    if is_in_blocks {
                        world.space.checkpoint().await.unwrap();
                    }
                    let disk = disk_of(&world, away);
                    world.rig.remove_disk(disk).await.unwrap();
                    if is_written_elsewhere {
                        world.write(UNITS..UNITS + 4, true).await.unwrap();
                    }
                    let world = world.reopened().await;
                    damaged.iter().for_each(|slab| flip(&world, *slab));
                    for slab in damaged.iter().filter(|slab| is_written && **slab < 3) {
                        let unit = *slab as u64 * 4 + 2;
                        let written = world.write(unit..unit + 1, true).await;
                        // If all other data is known, the parities can be recomputed.
                        if !(0..3).any(|other| other != *slab && (other == away || damaged.contains(&other)))
                        {
                            assert_eq!(written, Ok(()), "{what}");
                            continue;
                        }
                        let error = written.expect_err(&what);
                        assert!(matches!(error, SpaceError::Unavailable { .. }), "{what}: {error}");
                        assert!(error.to_string().contains(&format!("disk {},", disk.0)), "{what}: {error}");
                    }
                    world.rig.return_disk(disk).await.unwrap();
                    match first {
                        First::Read => assert_eq!(world.read(0..UNITS).await, Ok(()), "{what}"),
                        First::Scrub => assert_eq!(scrub(&world).await.progress.lost, 0, "{what}"),
                        First::Resync | First::ReadWhileAway => {}
                    }
                    assert_eq!(resync(&world, disk).await.not_moved, [], "{what}");
                    assert!(!has_stale_regions(&world), "{what}");
                    assert_eq!(world.read(0..UNITS).await, Ok(()), "{what}");
                    for unit in units_of_stripe(&setup) {
                        world.write(unit..unit + 1, true).await.unwrap();
                    }
                    world.read(0..UNITS).await.unwrap();
                    world.flush().await.unwrap();
                    scrub(&world).await;
                    copies_agree(&world).await;
                    flip(&world, away);
                    assert_eq!(world.read(0..UNITS).await, Ok(()), "{what}");
                    let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
                    assert_eq!(world.read(0..UNITS).await, Ok(()), "{what}");
                });
            }
        }
    }
}

/// Nothing waits for a disk that leaves for good: damaged units of its stripes can be written, and then its own.
#[test]
fn a_disk_that_is_given_up_protects_nothing() {
    virtual_time(async {
        let world = World::new(&coded(40, 1)).await;
        world.write(0..UNITS, true).await.unwrap();
        let disk = disk_of(&world, 0);
        world.rig.remove_disk(disk).await.unwrap();
        let world = world.reopened().await;
        flip(&world, 1);
        let (own, damaged) = (2..3, 6..7);
        for unit in [damaged.clone(), own.clone()] {
            let refused = world.write(unit, true).await;
            assert!(matches!(refused, Err(SpaceError::Unavailable { .. })), "{refused:?}");
        }
        world.rig.give_up(disk);
        for unit in [damaged, own] {
            world.write(unit.clone(), true).await.unwrap();
            world.read(unit).await.unwrap();
        }
        assert_eq!(world.read(0..UNITS).await, Ok(()));
    });
}

/// A lost parity has no valid copy: it is not protected.
#[test]
fn a_lost_parity_on_an_absent_disk_is_not_waited_for() {
    virtual_time(async {
        let world = World::new(&coded(41, 1)).await;
        world.write(0..UNITS, true).await.unwrap();
        world.space.checkpoint().await.unwrap();
        (0..2).for_each(|slab| flip(&world, slab));
        world.write(2..3, true).await.unwrap();
        world.rig.remove_disk(disk_of(&world, 3)).await.unwrap();
        world.write(10..11, true).await.unwrap();
        world.write(6..7, true).await.unwrap();
        assert_eq!(world.read(0..UNITS).await, Ok(()));
    });
}
