//! Damage: each finding is reported to the coordinator once, lost units are recorded in the metadata, and a scrub of
//! all copies reports its progress.

use disk::Image;
use pool_seam::layout::ColumnPosition;
use pool_seam::{
    Coordinator, DamageKind, Finding, GROUP, LossRecord, OwnerOp, Request, RowNumber, ScrubRecord,
};

use super::*;
use crate::rig::SPACE;

const ROW: RowNumber = RowNumber(0);

/// A slab of row 0: the slot of its disk, and the offsets of its data and its blocks.
struct Slab {
    slot: SlotId,
    data: u64,
    blocks: u64,
}

fn slab(world: &World, slab: usize) -> Slab {
    let view = world.rig.view_now();
    let place = view.record.rows[&ROW].slabs[slab].place;
    let areas = &view.disks[&place.disk].areas;
    let (data, blocks) = (areas.data(place.slab).offset, areas.checksums(place.slab).offset);
    Slab { slot: SlotId(place.disk.0.into()), data, blocks }
}

fn flip(world: &World, of: usize, unit: u64) {
    let at = slab(world, of);
    world.rig.machine.flip(at.slot, at.data + unit * UNIT, 3);
}

/// The findings in row 0 since the last call: the kind, the index of the disk's slab, and the unit of the space.
fn told(world: &World, since: &mut usize) -> Vec<(DamageKind, usize, u64)> {
    let view = world.rig.view_now();
    let found = world.rig.found();
    let news = found[*since..].iter().map(|Finding { kind: found, disk, space, address }| {
        assert_eq!(*space, SPACE);
        let slabs = &view.record.rows[&ROW].slabs;
        (*found, slabs.iter().position(|copy| copy.place.disk == *disk).unwrap(), address / UNIT)
    });
    let news = news.collect();
    *since = found.len();
    news
}

async fn scrub(world: &World, from: RowNumber) -> pool_seam::JobReport {
    world.space.run(JobId(1), JobOrder::Scrub(from)).wait().await.unwrap()
}

fn loss(world: &World) -> LossRecord {
    world.rig.view_now().record.loss.clone()
}

#[test]
fn damage_of_a_copy_is_told_once() {
    for bad in 0..2 {
        virtual_time(async {
            let world = World::new(&Setup::new(1, 3, MIRROR)).await;
            world.write(0..20, true).await.unwrap();
            let mut seen = 0;
            flip(&world, bad, 5);
            let at = slab(&world, bad);
            world.rig.machine.make_bad(at.slot, at.data + 9 * UNIT, UNIT);
            if bad == 0 {
                world.read(0..20).await.unwrap();
            } else {
                assert_eq!(scrub(&world, ROW).await.progress.healed, 2);
            }
            assert_eq!(
                told(&world, &mut seen),
                [(DamageKind::Healed, bad, 5), (DamageKind::Unreadable, bad, 9)]
            );
            assert_eq!(scrub(&world, ROW).await.progress.healed, 0);
            world.read(0..20).await.unwrap();
            assert_eq!(told(&world, &mut seen), []);
            // The first copy is healed, so the other one may be damaged now.
            flip(&world, 1 - bad, 5);
            world.read(0..20).await.unwrap();
        });
    }
}

#[test]
fn damage_of_columns_is_told_with_their_addresses() {
    for parity in 1..=2_u8 {
        virtual_time(async {
            let world = World::new(&coded(2, parity)).await;
            world.write(0..60, true).await.unwrap();
            let (mut seen, slabs) = (0, 3 + usize::from(parity));
            let view = world.rig.view_now();
            let layout = crate::view::layout(&view);
            let unit_of = |slab: usize, stripe: u64| {
                let column = if slab < 3 { slab as u8 } else { 0 };
                layout.address(ColumnPosition { row: ROW, column, offset: stripe * UNIT }) / UNIT
            };
            (0..slabs).for_each(|slab| flip(&world, slab, slab as u64));
            let report = scrub(&world, ROW).await;
            assert_eq!((report.progress.healed, report.progress.lost), (slabs as u64, 0));
            let mut healed = told(&world, &mut seen);
            healed.sort_unstable();
            let expected = (0..slabs).map(|slab| (DamageKind::Healed, slab, unit_of(slab, slab as u64)));
            assert_eq!(healed, expected.collect::<Vec<_>>());
            // Damages more units of a stripe than its parities can reconstruct.
            (0..=usize::from(parity)).for_each(|slab| flip(&world, slab, 7));
            let unit = unit_of(0, 7);
            assert!(matches!(world.read(unit..unit + 1).await, Err(SpaceError::Corrupt { .. })));
            assert_eq!(told(&world, &mut seen), [(DamageKind::Lost, 0, unit)]);
            assert_eq!(scrub(&world, ROW).await.progress.lost, u64::from(parity) + 1);
            let addresses = (0..=usize::from(parity)).map(|slab| unit_of(slab, 7) * UNIT);
            assert_eq!(loss(&world).at, addresses.collect());
        });
    }
}

/// A lost unit is recorded in the metadata until it is written again and the whole space was read.
#[test]
fn lost_units_are_recorded_until_a_reading_finds_them() {
    virtual_time(async {
        let world = World::new(&Setup::new(3, 3, MIRROR)).await;
        world.write(0..20, true).await.unwrap();
        world.space.checkpoint().await.unwrap();
        for slab in 0..2 {
            flip(&world, slab, 5);
            flip(&world, slab, 11);
        }
        let mut seen = 0;
        assert!(matches!(world.read(5..6).await, Err(SpaceError::Corrupt { .. })));
        let lowest = (0..2).min_by_key(|of| slab(&world, *of).slot.0).unwrap();
        assert_eq!(told(&world, &mut seen), [(DamageKind::Lost, lowest, 5)], "once, for the lowest disk");
        world.rig.env.sleep(Duration::from_secs(1)).await;
        assert_eq!(loss(&world), LossRecord::default().with(&[5 * UNIT].into()));
        let world = world.reopened().await;
        assert_eq!(scrub(&world, ROW).await.progress.lost, 2);
        let both = LossRecord::default().with(&[5 * UNIT, 11 * UNIT].into());
        world.rig.env.sleep(Duration::from_secs(1)).await;
        assert_eq!(loss(&world), both);
        assert!(world.read(5..6).await.is_err() && world.read(11..12).await.is_err());
        world.write(5..6, true).await.unwrap();
        world.read(5..6).await.unwrap();
        assert_eq!(loss(&world), both, "until all of it was read");
        assert_eq!(scrub(&world, ROW).await.progress.lost, 1);
        assert_eq!(loss(&world), LossRecord::default().with(&[11 * UNIT].into()));
        world.discard(11..12).await.unwrap();
        assert_eq!(scrub(&world, ROW).await.progress.lost, 0);
        assert_eq!(loss(&world), LossRecord::default());
        world.rig.env.sleep(Duration::from_secs(5)).await;
        assert_eq!(loss(&world), LossRecord::default(), "it is not remembered anywhere else");
        world.read(0..20).await.unwrap();
    });
}

/// A block that is damaged, or older than the other blocks prove: it is reported once, and rewritten.
#[test]
fn blocks_that_are_not_right_are_written_anew() {
    for (seed, setup) in [(4, Setup::new(4, 3, MIRROR)), (5, coded(5, 1)), (6, coded(6, 2))] {
        for is_old in [false, true] {
            for is_warm in [false, true] {
                virtual_time(async {
                    let mut world = World::new(&setup).await;
                    world.write(0..20, true).await.unwrap();
                    world.space.checkpoint().await.unwrap();
                    let before: Image = world.rig.machine.image(slab(&world, 1).slot);
                    world.write(0..40, true).await.unwrap();
                    world.space.checkpoint().await.unwrap();
                    if !is_warm {
                        world = world.reopened().await;
                    }
                    let at = slab(&world, 1);
                    match is_old {
                        true => world.rig.machine.roll_back(at.slot, &before, at.blocks, UNIT),
                        false => world.rig.machine.flip(at.slot, at.blocks + 1000, 1),
                    }
                    let what = format!("seed {seed} old {is_old} warm {is_warm}");
                    let (mut seen, first) = (0, if setup.columns == 1 { 0 } else { 4 });
                    if !is_warm {
                        world.read(0..40).await.unwrap();
                        assert_eq!(told(&world, &mut seen), [(DamageKind::BadTable, 1, first)], "{what}");
                    }
                    let report = scrub(&world, ROW).await;
                    assert_eq!((report.progress.healed, report.progress.lost), (1, 0), "{what}");
                    let expected = if is_warm { &[(DamageKind::BadTable, 1, first)][..] } else { &[] };
                    assert_eq!(told(&world, &mut seen), expected, "{what}");
                    assert_eq!(scrub(&world, ROW).await.progress.healed, 0, "{what}");
                    // All blocks that the next opening reads are right.
                    let world = world.reopened().await;
                    world.read(0..40).await.unwrap();
                    assert_eq!(world.rig.found(), [], "{what}");
                });
            }
        }
    }
}

/// A damaged block is also repaired without a scrub.
#[test]
fn a_block_that_an_opening_finds_damaged_is_mended() {
    virtual_time(async {
        let world = World::new(&Setup::new(7, 2, MIRROR)).await;
        world.write(0..20, true).await.unwrap();
        let world = world.reopened().await;
        let at = slab(&world, 1);
        world.rig.machine.flip(at.slot, at.blocks + 1000, 1);
        world.read(0..20).await.unwrap();
        world.rig.env.sleep(Duration::from_secs(70)).await;
        assert_eq!(world.rig.found().len(), 1);
        let world = world.reopened().await;
        // Only the block of the other copy is damaged now. These units are read from the second copy, so with the
        // block of the first one.
        let at = slab(&world, 0);
        world.rig.machine.flip(at.slot, at.blocks + 1000, 1);
        world.read(64..65).await.unwrap();
        assert_eq!(told(&world, &mut 0), [(DamageKind::BadTable, 0, 0)]);
    });
}

/// Rule 5 (b): after a crash, units with contents that are in no record.
#[test]
fn what_a_crash_left_and_no_table_knows_is_told() {
    virtual_time(async {
        let world = World::new(&Setup::new(8, 2, MIRROR)).await;
        world.write(0..8, true).await.unwrap();
        world.space.checkpoint().await.unwrap();
        world.write(3..4, false).await.unwrap();
        let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
        (0..2).for_each(|slab| flip(&world, slab, 3));
        world.space.resolve().await.unwrap();
        assert_eq!(told(&world, &mut 0), [(DamageKind::Unsettled, 0, 3)]);
    });
}

/// Rule 2: after a close no overwrite can be in flight. So damage near the last overwrite is treated as damage, not
/// as an interrupted write.
#[test]
fn what_is_damaged_after_a_close_is_never_returned() {
    for setup in [Setup::new(7, 3, MIRROR), coded(7, 1)] {
        virtual_time(async {
            let world = World::new(&setup).await;
            world.write(0..8, true).await.unwrap();
            world.write(0..1, true).await.unwrap();
            let world = world.reopened().await;
            (0..2).for_each(|slab| flip(&world, slab, 2));
            assert!(!world.space.is_in_doubt(), "{setup:?}");
            let read = world.read(2..3).await;
            assert!(matches!(read, Err(SpaceError::Corrupt { .. })), "{read:?}");
            world.read(0..2).await.unwrap();
            world.read(3..4).await.unwrap();
        });
    }
}

/// One record of the log is damaged on all replicas, and a later record is valid: the changes of the damaged one are
/// unknown.
#[test]
fn a_record_that_all_replicas_have_lost_is_a_loss_until_a_scrub() {
    virtual_time(async {
        let world = World::new(&Setup::new(5, 3, MIRROR)).await;
        world.write(0..8, true).await.unwrap();
        world.space.checkpoint().await.unwrap();
        for unit in 0..3 {
            world.write(unit..unit + 1, true).await.unwrap();
        }
        let view = world.rig.view_now();
        let replicas: Vec<_> = view.log_row().unwrap().slabs.iter().map(|copy| copy.place).collect();
        let mut world = world
            .crashed(PowerCut::KeepAll, |rig| {
                for place in &replicas {
                    let (slot, at) =
                        (SlotId(place.disk.0.into()), view.disks[&place.disk].areas.data(place.slab).offset);
                    let ring = rig.machine.image(slot).to_vec(at + 2 * UNIT, 64 * UNIT as usize);
                    let is_used = |block: &u64| {
                        ring[(block * UNIT) as usize..][..UNIT as usize].iter().any(|b| *b != 0)
                    };
                    let used: Vec<u64> = (0..64).filter(is_used).collect();
                    rig.machine.flip(slot, at + (2 + used[used.len() - 2]) * UNIT, 3);
                }
            })
            .await;
        for _ in 0..2 {
            let found = loss(&world);
            assert_eq!(
                (found.units, found.is_open()),
                (1, true),
                "counted once, however often the log is read"
            );
            world = world.crashed(PowerCut::KeepAll, |_| {}).await;
        }
        // Both copies are equal and accepted, because a crash has left their region in doubt.
        assert_eq!((scrub(&world, ROW).await.progress.lost, loss(&world)), (0, LossRecord::default()));
    });
}

/// A power cut alone is not reported as damage.
#[test]
fn crashes_alone_are_nothing_to_tell_of() {
    // With the last seed: writes to a stripe that had been overwritten, and to a stripe whose other columns were in
    // no record.
    for seed in (20..26).chain([38]) {
        virtual_time(async {
            let is_mirror = seed < 26 && seed % 2 == 0;
            let setup = if is_mirror { Setup::new(seed, 4, MIRROR) } else { coded(seed, 1) };
            let world = World::new(&setup).await;
            world.shuffle(Duration::from_millis(2));
            world.rig.record();
            let checkpoints = async {
                for _ in 0..6 {
                    world.rig.env.sleep(Duration::from_millis(12)).await;
                    world.space.checkpoint().await.unwrap();
                }
            };
            let users = (0..4).map(|_| super::failures::user(&world, 30, |random| random % 36));
            tokio::join!(checkpoints, futures_util::future::join_all(users));
            let moments = world.rig.moments();
            for round in 0..8 {
                let random = world.rig.env.random_u64();
                let moment = &moments[random as usize % moments.len()];
                let cut = if round % 2 == 0 { PowerCut::LoseAll } else { PowerCut::Tear { seed: random } };
                let rig = world.rig.after(moment, cut);
                let model = world.model.lock().after_crash(moment.event, &rig.machine);
                let after = World::open(rig, model).await;
                if round % 3 == 0 {
                    after.space.resolve().await.unwrap();
                }
                scrub(&after, ROW).await;
                let found = after.rig.found();
                let is_damage = |finding: &&Finding| finding.kind != DamageKind::Unsettled;
                assert_eq!(found.iter().find(is_damage), None, "seed {seed} round {round}");
            }
        });
    }
}

/// The position of a scrub is recorded in the metadata every 64 rows, and its findings are added to the earlier ones.
#[test]
fn a_reading_records_how_far_it_is() {
    virtual_time(async {
        let (size, disks) = (140 * (2 << 20), vec![512 << 20; 3]);
        let world = World::new(&Setup { size, disks, ..Setup::new(9, 3, MIRROR) }).await;
        world.space.allocate_all().await.unwrap();
        world.write(0..20, true).await.unwrap();
        world.space.checkpoint().await.unwrap();
        let began = ScrubRecord { began: 7, by_command: true, healed: 5, lost: 1, ..ScrubRecord::default() };
        {
            // As the coordinator does.
            let ownership = world.rig.view_now().record.ownership;
            let (ops, epoch) = (vec![OwnerOp::Scrub(began)], ownership.epoch);
            let number = ownership.request + 1;
            let request = Request { space: SPACE, epoch, number, ops };
            world.rig.commit(request).wait().await.unwrap();
            world.rig.update();
            world.space.0.requests.skip().await;
        }
        flip(&world, 0, 3);
        flip(&world, 0, 4);
        flip(&world, 1, 4);
        world.shuffle(Duration::from_millis(1));
        let requests = || world.rig.view_now().record.ownership.request;
        let before = requests();
        let stops = async {
            while world.rig.view_now().record.scrub.next < RowNumber(64) {
                world.rig.env.sleep(Duration::from_millis(1)).await;
            }
            world.space.stop(JobId(1));
        };
        let (report, ()) = tokio::join!(scrub(&world, ROW), stops);
        let next = world.rig.view_now().record.scrub.next;
        assert!(report.progress.total == size && report.progress.bytes < size);
        assert!(!report.not_moved.is_empty() && next >= RowNumber(64) && next < RowNumber(140));
        assert!(requests() - before <= 4, "{}", requests() - before);
        assert_eq!(
            world.rig.view_now().record.scrub,
            ScrubRecord { next, healed: 6, lost: 2, ..began },
            "what was found is added"
        );
        let report = scrub(&world, next).await;
        let left = size - u64::from(next.0) * (size / 140);
        assert_eq!((report.progress.bytes, report.progress.total, report.not_moved), (left, left, vec![]));
        let end = ScrubRecord { next: RowNumber(140), healed: 6, lost: 2, ..began };
        assert_eq!(world.rig.view_now().record.scrub, end);
        assert_eq!(loss(&world).at, [4 * UNIT].into());
    });
}

/// Jobs report the total bytes of their work, and the completed ones.
#[test]
fn jobs_report_bytes() {
    virtual_time(async {
        let world = World::new(&Setup::new(10, 3, Resiliency::Mirror { copies: 3 })).await;
        world.write(0..1024, true).await.unwrap();
        world.space.checkpoint().await.unwrap();
        world.rig.remove_disk(DiskNumber(2)).await.unwrap();
        world.write(0..1024, true).await.unwrap();
        world.rig.return_disk(DiskNumber(2)).await.unwrap();
        let resync = world.space.run(JobId(2), JobOrder::Resync(DiskNumber(2))).wait().await.unwrap();
        assert_eq!((resync.progress.bytes, resync.progress.total), (2 * GROUP, 2 * GROUP));
        let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
        let resolve = world.space.run(JobId(3), JobOrder::Resolve).wait().await.unwrap();
        assert!(resolve.progress.total > 0 && resolve.progress.bytes == resolve.progress.total);
        assert!(!world.space.is_in_doubt());
    });
}
