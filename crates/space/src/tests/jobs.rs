//! Returned disks are resynchronised, slabs move, and a scrub finds damage.

use futures_util::future::join_all;
use pool_seam::RowNumber;

use super::failures::{copies_agree, user};
use super::*;

const UNITS: u64 = 40;

async fn resync(world: &World, disk: u16) {
    let report =
        world.space.run(JobId(u64::from(disk) + 1), JobOrder::Resync(DiskNumber(disk))).wait().await.unwrap();
    assert_eq!(report.not_moved, [], "everything is there");
}

/// Stale regions on present disks, without those of the log.
fn stale_regions(world: &World) -> u64 {
    let view = world.rig.view_now();
    let copies = view.record.rows.iter().filter(|(row, _)| **row != RowNumber::LOG);
    copies
        .flat_map(|(_, row)| row.copies().map(|(_, copy)| *copy).collect::<Vec<_>>())
        .filter(|copy| view.membership(copy.place.disk).is_some())
        .map(|copy| u64::from(copy.stale_regions.count_ones()))
        .sum()
}

#[test]
fn a_disk_that_returns_gets_what_it_has_missed() {
    for copies in 2..=3 {
        virtual_time(async {
            let world = World::new(&Setup::new(1, 3, Resiliency::Mirror { copies })).await;
            for row in 0..4 {
                world.write(row * 512..row * 512 + 40, true).await.unwrap();
            }
            world.space.checkpoint().await.unwrap();
            world.rig.remove_disk(DiskNumber(2)).await.unwrap();
            world.write(10..20, true).await.unwrap();
            world.write(600..700, false).await.unwrap();
            let before = world.rig.machine.counts(SlotId(2));
            assert!(matches!(
                world.rig.return_disk(DiskNumber(2)).await,
                Ok(RejoinState::Proven { .. } | RejoinState::RolledBack)
            ));
            assert_ne!(stale_regions(&world), 0);
            resync(&world, 2).await;
            assert_eq!(stale_regions(&world), 0);
            let after = world.rig.machine.counts(SlotId(2));
            assert!(after.written_bytes - before.written_bytes < 1 << 20, "what is the same is not written");
            copies_agree(&world).await;
            // The disk's copies suffice now.
            world.flush().await.unwrap();
            for other in 0..2_u16 {
                if world.rig.remove_disk(DiskNumber(other)).await.is_ok() {
                    break;
                }
            }
            for unit in [0, 15, 610, 1030] {
                world.read(unit..unit + 1).await.unwrap();
            }
        });
    }
}

/// Users continue to write at the same time, and the power fails: flushed data is kept, whichever disk is lost next.
#[test]
fn disks_that_come_and_go_in_crashes() {
    let mirror = |seed: u64| (seed, Setup::new(100 + seed, 4, MIRROR));
    let coded = |seed: u64| (seed, coded(100 + seed, 1 + (seed % 2) as u8));
    for (seed, setup) in (0..24).map(mirror).chain((24..36).map(coded)) {
        let disks = setup.disks.len();
        virtual_time(async {
            let world = World::new(&setup).await;
            world.shuffle(Duration::from_millis(2));
            world.rig.record();
            let chaos = async {
                for round in 0..8 {
                    let disk = (world.rig.env.random_u64() % disks as u64) as u16;
                    world.rig.env.sleep(Duration::from_millis(12)).await;
                    if round % 2 == 1 {
                        world.space.checkpoint().await.unwrap();
                    }
                    if world.pull_and_return(disk, Duration::from_millis(12)).await {
                        resync(&world, disk).await;
                    }
                }
            };
            let users = (0..4).map(|_| user(&world, 40, anywhere));
            tokio::join!(chaos, join_all(users));
            let moments = world.rig.moments();
            for round in 0..6 {
                let random = world.rig.env.random_u64();
                let moment = &moments[random as usize % moments.len()];
                let cut = if round % 2 == 0 { PowerCut::LoseAll } else { PowerCut::Tear { seed: random } };
                let rig = world.rig.after(moment, cut);
                let model = world.model.lock().after_crash(moment.event, &rig.machine);
                let after = World::open(rig, model).await;
                // A disk whose data the other disks have.
                let disk = (random >> 32) as u16 % disks as u16;
                let is_away = round % 3 == 2 && after.rig.remove_disk(DiskNumber(disk)).await.is_ok();
                after.settle(0..UNITS, &format!("seed {seed} round {round}, away {is_away}")).await;
                after.space.resolve().await.unwrap();
                after.space.checkpoint().await.unwrap();
                copies_agree(&after).await;
            }
        });
    }
}

fn anywhere(random: u64) -> u64 {
    random % (UNITS - 4)
}

/// Rule 9: a disk is rolled back during its resync: its mark has a lower count.
#[test]
fn a_disk_rolled_back_to_before_its_resync_is_seen() {
    virtual_time(async {
        let world = World::new(&Setup { disks: vec![20 << 20; 4], ..Setup::new(3, 4, MIRROR) }).await;
        for row in 0..4 {
            world.write(row * 512..row * 512 + 8, true).await.unwrap();
        }
        world.space.checkpoint().await.unwrap();
        world.rig.remove_disk(DiskNumber(3)).await.unwrap();
        for row in 0..4 {
            world.write(row * 512..row * 512 + 8, true).await.unwrap();
        }
        world.rig.return_disk(DiskNumber(3)).await.unwrap();
        let earlier = world.rig.machine.image(SlotId(3));
        resync(&world, 3).await;
        let rolled_back = |rig: &Rig| rig.machine.roll_back(SlotId(3), &earlier, 0, 20 << 20);
        let world = world.crashed(PowerCut::LoseAll, rolled_back).await;
        assert_ne!(stale_regions(&world), 0, "its copies miss everything");
        for row in 0..4 {
            world.read(row * 512..row * 512 + 8).await.unwrap();
        }
    });
}

/// A slab moves to another disk while users write; then its old disk can be removed.
#[test]
fn a_slab_moves_under_load() {
    let mirrors = (0..10).map(|seed| Setup::new(200 + seed, 4, MIRROR));
    for setup in mirrors.chain((0..4).map(|seed| coded(210 + seed, 1 + (seed % 2) as u8))) {
        virtual_time(async {
            let world = World::new(&setup).await;
            world.shuffle(Duration::from_millis(2));
            world.write(0..UNITS, true).await.unwrap();
            let before = world.rig.view_now().record.rows.get(&RowNumber(0)).unwrap().slabs[0];
            let order = JobOrder::Fill(vec![(RowNumber(0), 0, None)]);
            let moves = async {
                let report = world.space.run(JobId(7), order).wait().await.unwrap();
                assert_eq!(report.not_moved, []);
            };
            let users = (0..4).map(|_| user(&world, 30, anywhere));
            tokio::join!(moves, join_all(users));
            let view = world.rig.view_now();
            let row = view.record.rows.get(&RowNumber(0)).unwrap();
            assert!(row.slabs[0] != before && row.moving().is_none());
            assert_eq!(stale_regions(&world), 0);
            copies_agree(&world).await;
            world.flush().await.unwrap();
            let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
            world.read(0..UNITS).await.unwrap();
        });
    }
}

/// A disk of a coded row is lost: its column is reconstructed from the others, and written to another disk.
#[test]
fn a_lost_column_is_made_from_the_others() {
    for parity in 1..=2 {
        virtual_time(async {
            let world = World::new(&coded(40, parity)).await;
            world.write(0..200, false).await.unwrap();
            world.write(3..9, true).await.unwrap();
            let slabs = world.rig.view_now().record.rows.get(&RowNumber(0)).unwrap().slabs.clone();
            for (slab, copy) in slabs.iter().enumerate().take(parity.into()) {
                world.rig.remove_disk(copy.place.disk).await.unwrap();
                world.read(0..200).await.unwrap();
                world.write(slab as u64..40, false).await.unwrap();
                world.read(0..200).await.unwrap();
            }
            world.flush().await.unwrap();
            world.space.checkpoint().await.unwrap();
            world.read(0..200).await.unwrap();
            assert!(world.rig.remove_disk(slabs[parity as usize].place.disk).await.is_err(), "it is needed");
            // These disks return, so others may be removed.
            for copy in slabs.iter().take(parity.into()) {
                world.rig.return_disk(copy.place.disk).await.unwrap();
                resync(&world, copy.place.disk.0).await;
            }
            assert_eq!(stale_regions(&world), 0);
            for copy in slabs.iter().rev().take(parity.into()) {
                world.rig.remove_disk(copy.place.disk).await.unwrap();
            }
            world.read(0..200).await.unwrap();
            let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
            world.read(0..200).await.unwrap();
        });
    }
}

/// The I/O that changes of coded rows need: small ones two reads and two writes besides the log, new stripes no read.
#[test]
fn what_coded_writes_cost() {
    virtual_time(async {
        let world = World::new(&coded(41, 1)).await;
        let counts = || {
            let all = (0..5).map(|slot| world.rig.machine.counts(SlotId(slot)));
            all.fold((0, 0), |(reads, bytes), c| (reads + c.reads, bytes + c.written_bytes))
        };
        let (before, _) = counts();
        world.write(0..12, false).await.unwrap();
        let (fresh, _) = counts();
        // The remaining reads are the blocks of the new row.
        assert!(fresh - before <= 4, "a new stripe reads nothing but its blocks: {}", fresh - before);
        world.flush().await.unwrap();
        world.write(0..1, false).await.unwrap();
        let (reads, bytes) = counts();
        world.write(1..2, false).await.unwrap();
        let (more_reads, more_bytes) = counts();
        assert_eq!(more_reads - reads, 2, "the unit and its parity");
        // Two units in place, and a record with both units on each of two replicas.
        assert_eq!(more_bytes - bytes, 2 * UNIT + 2 * 3 * UNIT);
        world.read(0..12).await.unwrap();
    });
}

#[test]
fn a_scrub_writes_anew_what_is_damaged() {
    virtual_time(async {
        let world = World::new(&Setup::new(4, 2, MIRROR)).await;
        world.write(0..20, true).await.unwrap();
        let view = world.rig.view_now();
        for (unit, slab) in [(3, 0), (5, 1), (7, 0), (7, 1)] {
            let place = view.record.rows.get(&RowNumber(0)).unwrap().slabs[slab].place;
            let at = view.disks[&place.disk].areas.data(place.slab).offset + unit * UNIT;
            world.rig.machine.flip(SlotId(place.disk.0.into()), at, 2);
        }
        for lost in [1, 1] {
            let report = world.space.run(JobId(1), JobOrder::Scrub(RowNumber(0))).wait().await.unwrap();
            assert_eq!(report.progress.lost, lost, "no copy of unit 7 is good");
        }
        let report = world.space.run(JobId(2), JobOrder::Scrub(RowNumber(0))).wait().await.unwrap();
        assert_eq!(report.progress.healed, 0);
        world.read(0..7).await.unwrap();
    });
}

/// Units of any column are reconstructed from the others, by a scrub and by a read.
#[test]
fn damaged_units_of_coded_rows_are_written_anew() {
    for parity in 1..=2_u8 {
        virtual_time(async {
            let world = World::new(&coded(42, parity)).await;
            world.write(0..60, true).await.unwrap();
            let view = world.rig.view_now();
            let row = view.record.rows.get(&RowNumber(0)).unwrap();
            let flip = |slab: usize, stripe: u64| {
                let place = row.slabs[slab].place;
                let at = view.disks[&place.disk].areas.data(place.slab).offset + stripe * UNIT;
                world.rig.machine.flip(SlotId(place.disk.0.into()), at, 2);
            };
            let slabs = row.slabs.len();
            (0..slabs).for_each(|slab| flip(slab, slab as u64));
            let report = world.space.run(JobId(1), JobOrder::Scrub(RowNumber(0))).wait().await.unwrap();
            assert_eq!((report.progress.healed, report.progress.lost), (slabs as u64, 0));
            (0..3).for_each(|slab| flip(slab, 7 + slab as u64));
            world.read(0..60).await.unwrap();
            let report = world.space.run(JobId(2), JobOrder::Scrub(RowNumber(0))).wait().await.unwrap();
            assert_eq!((report.progress.healed, report.progress.lost), (0, 0), "the read has done it");
            // Damages more units of a stripe than its parities can reconstruct.
            (0..=usize::from(parity)).for_each(|slab| flip(slab, 2));
            let report = world.space.run(JobId(3), JobOrder::Scrub(RowNumber(0))).wait().await.unwrap();
            assert_eq!((report.progress.healed, report.progress.lost), (0, u64::from(parity) + 1));
        });
    }
}

/// Rule 17: when the disk of a replica is removed, another disk gets a replica, and the space survives the loss of
/// the other replicas.
#[test]
fn a_replica_of_the_log_is_replaced() {
    virtual_time(async {
        let setup = Setup { disks: vec![20 << 20; 5], ..Setup::new(5, 5, MIRROR) };
        let world = World::new(&setup).await;
        world.write(0..8, true).await.unwrap();
        world.rig.remove_disk(DiskNumber(0)).await.unwrap();
        world.rig.env.sleep(Duration::from_secs(5)).await;
        let log = world.rig.view_now().log_row().unwrap().clone();
        assert!(
            log.slabs.iter().all(|copy| copy.stale_regions == 0 && copy.place.disk != DiskNumber(0)),
            "{:?}",
            log.slabs
        );
        world.write(0..8, true).await.unwrap();
        // The first of the other replicas suffices, and so does the new one.
        world.rig.remove_disk(DiskNumber(1)).await.unwrap();
        world.write(2..4, true).await.unwrap();
        let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
        world.read(0..8).await.unwrap();
    });
}

/// Rule 11: a disk is removed before the owner could answer. It is stale in the units that were in tables, in flight
/// or not flushed there.
#[test]
fn a_disk_that_leaves_without_a_word_is_accounted_for() {
    let mirrors = (0..12).map(|seed| Setup::new(350 + seed, 4, MIRROR));
    for setup in mirrors.chain((0..6).map(|seed| coded(370 + seed, 1 + (seed % 2) as u8))) {
        virtual_time(async {
            let world = World::new(&setup).await;
            world.shuffle(Duration::from_millis(2));
            let chaos = async {
                for _ in 0..8 {
                    let random = world.rig.env.random_u64();
                    let disk = DiskNumber((random % setup.disks.len() as u64) as u16);
                    world.rig.env.sleep(Duration::from_millis(random >> 32 & 15)).await;
                    if !world.rig.remove_unaccounted(disk) {
                        continue;
                    }
                    world.rig.machine.pull(SlotId(disk.0.into()), PowerCut::LoseAll);
                    if random >> 40 & 1 == 0 {
                        world.space.checkpoint().await.unwrap();
                    }
                    world.rig.env.sleep(Duration::from_millis(random >> 48 & 15)).await;
                    world.rig.return_disk(disk).await.unwrap();
                    resync(&world, disk.0).await;
                }
            };
            tokio::join!(chaos, join_all((0..4).map(|_| user(&world, 40, anywhere))));
            world.flush().await.unwrap();
            let record = &world.rig.view_now().record;
            assert!(record.unaccounted.is_empty(), "{:?}", record.unaccounted);
            assert_eq!(stale_regions(&world), 0);
            copies_agree(&world).await;
            world.read(0..UNITS).await.unwrap();
        });
    }
}

/// A late view lists a disk as unaccounted for that has returned since.
#[test]
fn a_late_view_does_not_stop_a_replica() {
    virtual_time(async {
        let world = World::new(&Setup::new(380, 2, MIRROR)).await;
        world.write(0..8, true).await.unwrap();
        world.space.checkpoint().await.unwrap();
        let disk = world.rig.view_now().log_row().unwrap().slabs[0].place.disk;
        assert!(world.rig.remove_unaccounted(disk));
        let late = world.rig.view_now();
        world.rig.machine.pull(SlotId(disk.0.into()), PowerCut::LoseAll);
        world.rig.env.sleep(Duration::from_millis(5)).await;
        world.rig.return_disk(disk).await.unwrap();
        world.rig.env.sleep(Duration::from_secs(5)).await;
        world.space.checkpoint().await.unwrap();
        world._owner.update(late);
        let written = tokio::time::timeout(Duration::from_secs(100), world.write(4..12, true)).await;
        written.expect("no replica waits").unwrap();
    });
}

/// A disk that was lost together with the owner is used again when the next owner has read the log, and the disk has
/// returned.
#[test]
fn a_disk_that_was_lost_with_the_owner_is_accounted_for() {
    for seed in 0..10 {
        virtual_time(async {
            let setup = Setup { disks: vec![20 << 20; 4], ..Setup::new(300 + seed, 4, MIRROR) };
            let world = World::new(&setup).await;
            world.shuffle(Duration::from_millis(2));
            world.rig.record();
            join_all((0..4).map(|_| user(&world, 20, anywhere))).await;
            let moments = world.rig.moments();
            let random = world.rig.env.random_u64();
            let moment = &moments[random as usize % moments.len()];
            let rig = world.rig.after(moment, PowerCut::LoseAll);
            let disk = DiskNumber((random >> 32) as u16 % 4);
            rig.absent_at_opening(disk);
            let model = world.model.lock().after_crash(moment.event, &rig.machine);
            let after = World::open(rig, model).await;
            assert!(after.rig.view_now().record.unaccounted.is_empty());
            after.settle(0..UNITS, &format!("{disk:?} lost")).await;
            after.rig.return_disk(disk).await.unwrap();
            resync(&after, disk.0).await;
            assert_eq!(stale_regions(&after), 0);
            copies_agree(&after).await;
        });
    }
}

/// Rule 17: a replica, even the only one, moves to another disk. Afterwards the old one is neither read nor written.
#[test]
fn a_replica_of_the_log_moves_under_load() {
    let mirrors = (0..4).map(|seed| Setup::new(500 + seed, 4, MIRROR));
    let simple =
        (0..2).map(|seed| Setup { log_replicas: 1, ..Setup::new(510 + seed, 3, Resiliency::Simple) });
    for setup in mirrors.chain(simple).chain([coded(520, 1)]) {
        virtual_time(async {
            let world = World::new(&setup).await;
            // Long enough for a write to complete after the end of the move.
            world.shuffle(Duration::from_millis(20));
            world.write(0..UNITS, true).await.unwrap();
            let before = world.rig.view_now().log_row().unwrap().clone();
            let order = JobOrder::Fill(vec![(RowNumber::LOG, 0, None)]);
            let old = before.slabs[0].place;
            let areas = world.rig.view_now().disks[&old.disk].areas;
            let data = areas.data(old.slab).offset;
            let slot = SlotId(old.disk.0.into());
            let image = || world.rig.machine.image(slot).to_vec(data, 2 << 20);
            let moves = async {
                let report = world.space.run(JobId(7), order).wait().await.unwrap();
                assert_eq!((report.not_moved, report.progress.bytes), (vec![], report.progress.total));
            };
            let given_up = async {
                while world.rig.view_now().log_row().unwrap().slabs[0].place == old {
                    world.rig.env.sleep(Duration::from_millis(1)).await;
                }
                image()
            };
            let users = join_all((0..4).map(|_| user(&world, 60, anywhere)));
            let ((), given_up, _) = tokio::join!(moves, given_up, users);
            world.write(0..8, true).await.unwrap();
            assert!(image() == given_up, "the old slab may be another's by now");
            let log = world.rig.view_now().log_row().unwrap().clone();
            assert!(log.moving().is_none() && log.slabs[0].place.disk != old.disk);
            assert_eq!(log.slabs[1..], before.slabs[1..]);
            assert!(log.slabs.iter().all(|copy| copy.stale_regions == 0));
            for block in 0..(2 << 20) / UNIT {
                world.rig.machine.flip(slot, data + block * UNIT + 8, 1);
            }
            // The other replicas are not needed.
            for copy in &log.slabs[1..] {
                world.rig.remove_disk(copy.place.disk).await.unwrap();
            }
            world.write(4..12, true).await.unwrap();
            let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
            world.settle(0..UNITS, "the log has moved").await;
        });
    }
}

/// Power cuts at any moment: there is a complete log, and the next owner ends the move.
#[test]
fn crashes_while_a_replica_of_the_log_moves() {
    for seed in 0..6 {
        virtual_time(async {
            let simple = Setup { log_replicas: 1, ..Setup::new(530 + seed, 3, Resiliency::Simple) };
            let setup = if seed % 2 == 0 { simple } else { Setup::new(530 + seed, 4, MIRROR) };
            let world = World::new(&setup).await;
            world.shuffle(Duration::from_millis(2));
            world.write(0..UNITS, true).await.unwrap();
            world.rig.record();
            let order = JobOrder::Fill(vec![(RowNumber::LOG, 0, None)]);
            let users = join_all((0..4).map(|_| user(&world, 30, anywhere)));
            let (report, _) = tokio::join!(world.space.run(JobId(7), order).wait(), users);
            assert_eq!(report.unwrap().not_moved, []);
            let moments = world.rig.moments();
            for round in 0..16_usize {
                let random = world.rig.env.random_u64();
                let moment = &moments[(moments.len() * round + random as usize % moments.len()) / 16];
                let cut = if round % 2 == 0 { PowerCut::LoseAll } else { PowerCut::Tear { seed: random } };
                let rig = world.rig.after(moment, cut);
                let model = world.model.lock().after_crash(moment.event, &rig.machine);
                let after = World::open(rig, model).await;
                after.settle(0..UNITS, &format!("seed {seed} round {round}")).await;
                after.write(0..8, true).await.unwrap();
                after.rig.env.sleep(Duration::from_secs(5)).await;
                let log = after.rig.view_now().log_row().unwrap().clone();
                assert!(log.moving().is_none(), "seed {seed} round {round}");
                assert!(log.slabs.iter().all(|copy| copy.stale_regions == 0), "seed {seed} round {round}");
            }
        });
    }
}

#[test]
fn a_replica_of_the_log_without_another_place_stays() {
    virtual_time(async {
        let world = World::new(&Setup::new(540, 2, MIRROR)).await;
        world.write(0..8, true).await.unwrap();
        let order = JobOrder::Fill(vec![(RowNumber::LOG, 0, None)]);
        let report = world.space.run(JobId(7), order).wait().await.unwrap();
        assert!(
            matches!(&report.not_moved[..], [(RowNumber::LOG, 0, pool_seam::NotMoved::NoPlace(_))]),
            "{report:?}"
        );
        world.write(0..8, true).await.unwrap();
    });
}

/// The target disk of a replica's move is removed: the move is cancelled, and another move finds a target.
#[test]
fn a_move_of_the_log_is_called_off_with_its_disk() {
    virtual_time(async {
        let world = World::new(&Setup::new(550, 4, MIRROR)).await;
        world.shuffle(Duration::from_millis(4));
        world.write(0..UNITS, true).await.unwrap();
        let order = || JobOrder::Fill(vec![(RowNumber::LOG, 0, None)]);
        let before = world.rig.view_now().log_row().unwrap().slabs.clone();
        let leaves = async {
            loop {
                if let Some(moving) = world.rig.view_now().log_row().unwrap().moving() {
                    return world.rig.remove_disk(moving.copy.place.disk).await.unwrap();
                }
                world.rig.env.sleep(Duration::from_millis(1)).await;
            }
        };
        let (report, _) = tokio::join!(world.space.run(JobId(7), order()).wait(), leaves);
        assert_eq!(report.unwrap().not_moved, [(RowNumber::LOG, 0, pool_seam::NotMoved::Unfinished)]);
        let log = world.rig.view_now().log_row().unwrap().clone();
        assert!(log.moving().is_none() && log.slabs == before);
        let report = world.space.run(JobId(8), order()).wait().await.unwrap();
        assert_eq!(report.not_moved, []);
        world.write(0..8, true).await.unwrap();
        world.read(0..UNITS).await.unwrap();
    });
}

/// Rule 18: the former owner has allocated a row and ended. The row has no blocks, and its slabs' contents are
/// ignored: a scrub skips the row, and it does not prevent the space from shrinking.
#[test]
fn a_row_that_was_never_made_ready_holds_nothing() {
    virtual_time(async {
        let world = World::new(&Setup::new(43, 3, MIRROR)).await;
        world.write(0..8, true).await.unwrap();
        world.space.0.commit(vec![pool_seam::OwnerOp::Allocate { row: RowNumber(2) }]).await.unwrap();
        let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
        let report = world.space.run(JobId(1), JobOrder::Scrub(RowNumber(0))).wait().await.unwrap();
        assert_eq!((report.progress.healed, report.progress.lost, report.not_moved.len()), (0, 0, 0));
        let shrunk = world.space.resize(16 << 20, 4 << 20, false).wait();
        let shrunk = tokio::time::timeout(Duration::from_secs(60), shrunk).await;
        shrunk.expect("nothing keeps the row").unwrap();
        assert!(!world.rig.view_now().record.rows.keys().any(|row| *row == RowNumber(2)));
        world.read(0..8).await.unwrap();
    });
}

/// A slab moves while a discard is not durable. The discard is lost in a power cut: the new slab has the former data.
#[test]
fn a_slab_that_moves_has_what_a_lost_discard_brings_back() {
    for setup in [Setup::new(700, 4, MIRROR), coded(701, 1)] {
        virtual_time(async {
            let world = World::new(&setup).await;
            world.write(0..8, true).await.unwrap();
            world.space.checkpoint().await.unwrap();
            world.discard(0..40).await.unwrap();
            world.rig.record();
            for index in 0..2 {
                let order = JobOrder::Fill(vec![(RowNumber(0), index, None)]);
                world.space.run(JobId(1), order).wait().await.unwrap();
            }
            let moments = world.rig.moments();
            let moment = moments.last().expect("one for each event");
            let rig = world.rig.after(moment, PowerCut::LoseAll);
            let model = world.model.lock().after_crash(moment.event, &rig.machine);
            let after = World::open(rig, model).await;
            let scrub = after.space.run(JobId(2), JobOrder::Scrub(RowNumber(0))).wait().await.unwrap();
            assert_eq!(scrub.progress.healed, 0);
            after.read(0..40).await.unwrap();
        });
    }
}
