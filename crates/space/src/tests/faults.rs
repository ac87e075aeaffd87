//! Single faults: a handle that fails on a disk that is needed, a checkpoint that fails, a space that closes.

use disk::sim::{Fault, Rule, When};
use disk::{Disk, DiskError, Op};
use futures_util::future::join_all;
use pool_seam::{Absence, Coordinator, DiskReport};

use super::*;
use crate::log::LogError;
use crate::log::commit::FlushSet;
use crate::view::{GroupKey, route};

const DISK: DiskNumber = DiskNumber(0);
const SLOT: SlotId = SlotId(0);

fn simple(seed: u64) -> Setup {
    Setup::new(seed, 1, Resiliency::Simple)
}

/// The areas of row 0's data and of its checksum blocks on the disk of a simple space.
fn areas(world: &World) -> (std::ops::Range<u64>, std::ops::Range<u64>) {
    let view = world.rig.view_now();
    let place = view.record.rows.get(&pool_seam::RowNumber(0)).unwrap().slabs[0].place;
    let (data, blocks) =
        (view.disks[&DISK].areas.data(place.slab), view.disks[&DISK].areas.checksums(place.slab));
    (data.offset..data.offset + (2 << 20), blocks.offset..blocks.offset + UNIT)
}

/// Rule 8: entries of groups whose disks are absent are carried from one snapshot to the next, so that the log has room
/// for the others, unless stripes have more new bytes than a snapshot may have.
#[test]
fn groups_that_cannot_be_read_do_not_fill_the_log() {
    let coded = Setup { disks: vec![64 << 20; 7], ..coded(41, 1) };
    for (setup, lost) in [(Setup::new(40, 4, Resiliency::Simple), 1), (coded, 2)] {
        virtual_time(async {
            let world = World::new(&setup).await;
            let (row, per_row) = (pool_seam::RowNumber(0), 512 * u64::from(setup.columns));
            world.write(0..8, true).await.unwrap();
            world.space.checkpoint().await.unwrap();
            world.write(5..9, true).await.unwrap();
            world.write(2..3, false).await.unwrap();
            let view = world.rig.view_now();
            let has_log = |disk| view.log_row().unwrap().slabs.iter().any(|copy| copy.place.disk == disk);
            let mut disks: Vec<_> = view.record.rows[&row].slabs.iter().map(|copy| copy.place.disk).collect();
            disks.sort_by_key(|disk| has_log(*disk));
            let away = disks[..lost].to_vec();
            let leave = |rig: &Rig| away.iter().for_each(|disk| rig.absent_at_opening(*disk));
            let mut world = world.crashed(PowerCut::LoseAll, leave).await;
            for life in 0..2 {
                assert!(matches!(world.read(0..1).await, Err(SpaceError::Unavailable { .. })));
                for round in 0..40 {
                    let first = per_row + round % 8;
                    world.write(first..first + 8, true).await.unwrap();
                    if round % 10 == 0 {
                        world.space.checkpoint().await.unwrap();
                    }
                }
                if life == 0 {
                    world = world.crashed(PowerCut::LoseAll, |_| {}).await;
                }
            }
            for disk in &away {
                world.rig.return_disk(*disk).await.unwrap();
            }
            world.settle(0..12, "its disks are back").await;
            world.space.resolve().await.unwrap();
            world.space.checkpoint().await.unwrap();
            world.read(per_row..per_row + 15).await.unwrap();
        });
    }
}

/// A thread may be interrupted between updating the ports and the view: then a removed disk has no port, but the view
/// still has it.
#[test]
fn a_flush_needs_no_disk_that_has_just_left() {
    virtual_time(async {
        let world = World::new(&coded(8, 1)).await;
        world.write(0..12, true).await.unwrap();
        let (rig, inner) = (&world.rig, &world.space.0);
        let view = rig.view_now();
        let row = &view.record.rows[&pool_seam::RowNumber(0)];
        let disks: Vec<DiskNumber> = row.slabs.iter().map(|copy| copy.place.disk).collect();
        // Without a replica of the log, as the log's own writes would wait for the disk.
        let has_log = |disk: &DiskNumber| view.log_row().unwrap().slabs.iter().any(|c| c.place.disk == *disk);
        let disk = *disks.iter().find(|disk| !has_log(disk)).unwrap();
        let of = view.membership(disk).unwrap();
        world.write(0..12, false).await.unwrap();
        let error = DiskError::Gone { at: disk::IoRange::whole(Op::Write) };
        let report = DiskReport { disk, membership: of, reason: Absence::Gone, error };
        let view = Coordinator::disk_failed(rig, rig.owner_id(), report).wait().await.unwrap();
        inner.ports.follow(&view);
        let set = FlushSet { everything: false, disks: disks.into_iter().collect() };
        inner.log().flush(set).await.unwrap();
        inner.follow(view);
        world.read(0..12).await.unwrap();
    });
}

/// An old write of the log that hangs could complete after a new one: the disk is reopened after the old write has
/// completed.
#[test]
fn a_disk_is_opened_anew_when_the_log_has_its_answers() {
    virtual_time(async {
        let world = World::new(&simple(3)).await;
        world.write(0..4, true).await.unwrap();
        let slow = Fault::Slow(Duration::from_secs(60));
        world.rig.machine.rule(SLOT, Rule::new(Op::Write, When::Nth(0), slow));
        let began = world.rig.env.now();
        let looks = async {
            world.rig.env.sleep(Duration::from_secs(40)).await;
            assert!(world.space.0.ports.all().is_empty(), "it hangs, so it was given up");
        };
        let (put, ()) = tokio::join!(world.space.0.log().annex_put(1, vec![1]), looks);
        put.unwrap();
        assert!(world.rig.env.now() - began >= Duration::from_secs(60));
        world.read(0..4).await.unwrap();
        world.write(0..4, true).await.unwrap();
    });
}

/// Rule 14: a write of the log fails, so the disk is reopened and may have lost earlier writes. The next flush
/// reports that, and the one after it does not.
#[test]
fn a_flush_reports_what_another_handle_has_not_flushed() {
    virtual_time(async {
        let world = World::new(&simple(1)).await;
        world.write(0..4, false).await.unwrap();
        world.rig.machine.rule(SLOT, Rule::new(Op::Write, When::Nth(0), Fault::Refused(5)));
        world.space.0.log().annex_put(1, vec![1]).await.unwrap();
        assert_eq!(world.flush().await, Err(LogError::NotFlushed(DISK).into()));
        world.read(0..4).await.unwrap();
        world.write(2..6, false).await.unwrap();
        world.flush().await.unwrap();
        let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
        world.read(0..6).await.unwrap();
    });
}

/// The disk's handle fails between the write of a range and its flush: the first half is lost, and the second is
/// written again.
#[test]
fn a_durable_write_of_a_handle_that_failed_is_not_acknowledged() {
    virtual_time(async {
        let world = World::new(&simple(2)).await;
        world.write(510..514, true).await.unwrap();
        let place = world.rig.view_now().record.rows.get(&pool_seam::RowNumber(1)).unwrap().slabs[0].place;
        let second = world.rig.view_now().disks[&DISK].areas.data(place.slab).offset;
        let slow = Rule::new(Op::Write, When::Nth(0), Fault::Slow(Duration::from_millis(50)));
        world.rig.machine.rule(SLOT, slow.within(second..second + (2 << 20)));
        let fails = async {
            world.rig.env.sleep(Duration::from_millis(10)).await;
            world.rig.machine.rule(SLOT, Rule::new(Op::Write, When::Nth(0), Fault::Refused(5)));
            world.space.0.log().annex_put(1, vec![1]).await
        };
        let (written, failed) = tokio::join!(world.write(510..514, true), fails);
        assert_eq!(written, Err(LogError::NotFlushed(DISK).into()));
        failed.unwrap();
        world.read(510..514).await.unwrap();
    });
}

/// A flush that was refused because the disk was being removed is repeated when the disk stays.
#[test]
fn a_disk_that_stays_after_all_is_flushed() {
    virtual_time(async {
        let world = World::new(&simple(3)).await;
        world.write(0..4, false).await.unwrap();
        let of = world.rig.view_now().membership(DISK).unwrap();
        world.space.disk_leaving(DISK, of);
        let stays = async {
            world.rig.env.sleep(Duration::from_millis(20)).await;
            world.space.disk_stays(DISK, of);
        };
        let (flushed, ()) = tokio::join!(world.flush(), stays);
        assert_eq!(flushed, Ok(()));
    });
}

/// No call reaches a disk whose removal is in progress.
#[test]
fn a_disk_that_is_leaving_gets_no_write() {
    virtual_time(async {
        let world = World::new(&Setup::new(4, 3, MIRROR)).await;
        world.write(0..4, true).await.unwrap();
        let view = world.rig.view_now();
        let disk = view.record.rows.get(&pool_seam::RowNumber(0)).unwrap().slabs[0].place.disk;
        let (slot, of) = (SlotId(disk.0.into()), view.membership(disk).unwrap());
        let before = world.rig.machine.counts(slot);
        world.space.disk_leaving(disk, of);
        let late = world.write(0..4, false);
        let stays = async {
            world.rig.env.sleep(Duration::from_millis(1)).await;
            let during = world.rig.machine.counts(slot);
            world.space.disk_stays(disk, of);
            during
        };
        let (late, during) = tokio::join!(late, stays);
        assert_eq!((late, during), (Ok(()), before));
    });
}

/// A write that began while a disk was absent is written to that disk too when it has returned without stale regions.
/// Otherwise the disk would lack the write, and a caller that removes the next disk would lose data.
#[test]
fn a_disk_that_returns_during_a_write_gets_it() {
    virtual_time(async {
        let world = World::new(&Setup::new(6, 2, MIRROR)).await;
        world.write(0..4, true).await.unwrap();
        world.space.checkpoint().await.unwrap();
        let copies = world.rig.view_now().record.rows[&pool_seam::RowNumber(0)].slabs.clone();
        let (stays, leaves) = (copies[0].place.disk, copies[1].place.disk);
        world.rig.remove_disk(leaves).await.unwrap();
        let slow = Fault::Slow(Duration::from_millis(100));
        world.rig.machine.rule(SlotId(stays.0.into()), Rule::new(Op::Write, When::Nth(0), slow));
        let returns = async {
            world.rig.env.sleep(Duration::from_millis(1)).await;
            world.rig.return_disk(leaves).await
        };
        let (written, returned) = tokio::join!(world.write(8..12, false), returns);
        assert!(matches!((written, returned), (Ok(()), Ok(pool_seam::RejoinState::Proven { .. }))));
        let stale = |row: &pool_seam::Row| row.slabs[1].stale_regions;
        assert_eq!(stale(&world.rig.view_now().record.rows[&pool_seam::RowNumber(0)]), 0);
        world.rig.remove_disk(stays).await.unwrap();
        world.read(0..16).await.unwrap();
    });
}

/// A table is loaded from the disks of the current view, not from those of the view with which its caller began.
#[test]
fn a_table_is_loaded_though_the_view_is_old() {
    virtual_time(async {
        let world = World::new(&Setup::new(7, 2, MIRROR)).await;
        world.write(0..4, true).await.unwrap();
        let row = pool_seam::RowNumber(0);
        let copies = world.rig.view_now().record.rows[&row].slabs.clone();
        let (stays, leaves) = (copies[0].place.disk, copies[1].place.disk);
        world.rig.remove_disk(leaves).await.unwrap();
        world.write(2..6, true).await.unwrap();
        world.rig.return_disk(leaves).await.unwrap();
        let (key, inner) = (GroupKey { row, set: 0, group: 0 }, &world.space.0);
        let old = route(&inner.view.get().value, key).unwrap();
        assert_eq!(old.counting(), 1, "one has missed a write");
        world.space.run(JobId(1), JobOrder::Resync(leaves)).wait().await.unwrap();
        world.space.checkpoint().await.unwrap();
        world.rig.remove_disk(stays).await.unwrap();
        assert!(inner.load(key, old).await.is_ok());
    });
}

/// Rule 6: a block that could not be written is written by the next checkpoint.
#[test]
fn a_checkpoint_that_fails_forgets_no_block() {
    for op in [Op::Write, Op::Flush] {
        virtual_time(async {
            let world = World::new(&simple(5)).await;
            for row in 0..4 {
                world.write(row * 512..row * 512 + 4, true).await.unwrap();
            }
            let (_, blocks) = areas(&world);
            // The flush of the checkpoint's commit is the first one.
            let when = if op == Op::Write { When::Nth(0) } else { When::Nth(1) };
            world.rig.machine.rule(SLOT, Rule::new(op, when, Fault::Error).within(blocks));
            world.write(100..101, false).await.unwrap();
            assert!(world.space.checkpoint().await.is_err());
            for _ in 0..2 {
                world.space.checkpoint().await.unwrap();
            }
            let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
            for row in 0..4 {
                world.read(row * 512..row * 512 + 4).await.unwrap();
            }
            world.read(100..101).await.unwrap();
        });
    }
}

/// The commit of a checkpoint does not fit the log: the checkpoint makes room without it.
#[test]
fn a_checkpoint_does_not_wait_for_room_that_only_it_makes() {
    virtual_time(async {
        let setup = Setup { disks: vec![128 << 20], size: 64 << 20, ..simple(6) };
        let world = World::new(&setup).await;
        let log = world.space.0.log();
        let held = world.space.0.checkpoints.lock().await;
        for unit in (0..16_384).step_by(2) {
            world.write(unit..unit + 1, false).await.unwrap();
        }
        while log.usage().0 < log.usage().1 / 4 * 3 - 2 {
            log.annex_put(1, vec![1]).await.unwrap();
        }
        drop(held);
        let checkpoint = tokio::time::timeout(Duration::from_secs(20), world.space.checkpoint()).await;
        checkpoint.expect("it has an end").unwrap();
        world.flush().await.unwrap();
        world.read(0..64).await.unwrap();
    });
}

/// Rule 5 (b): a write that failed in place may have left the old or the new contents, even when its region was not
/// used for long.
#[test]
fn units_of_a_write_that_failed_are_old_or_new_for_good() {
    for seed in 0..8 {
        virtual_time(async {
            let world = World::new(&simple(10 + seed)).await;
            world.write(0..8, true).await.unwrap();
            world.space.checkpoint().await.unwrap();
            let (data, _) = areas(&world);
            world.rig.machine.rule(SLOT, Rule::new(Op::Write, When::Nth(0), Fault::Error).within(data));
            assert!(world.write(0..8, false).await.is_err());
            for _ in 0..3 {
                world.space.checkpoint().await.unwrap();
            }
            let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
            world.read(0..8).await.unwrap();
        });
    }
}

/// A read that a needed disk refuses is not damage.
#[test]
fn a_refused_read_names_its_disk() {
    virtual_time(async {
        let world = World::new(&simple(7)).await;
        world.write(0..1, true).await.unwrap();
        let (data, _) = areas(&world);
        world.rig.machine.rule(SLOT, Rule::new(Op::Read, When::From(0), Fault::Refused(5)).within(data));
        let read = world.read(0..1).await;
        assert!(
            matches!(read, Err(SpaceError::Disk { disk: DISK, error: DiskError::Refused { .. } })),
            "{read:?}"
        );
    });
}

/// A disk in service that cannot be opened is removed at the opening: it was not fenced, and its mark was not read.
#[test]
fn a_disk_that_is_away_at_the_opening_is_left_out() {
    virtual_time(async {
        let world = World::new(&Setup::new(8, 3, MIRROR)).await;
        world.write(0..4, true).await.unwrap();
        let rig = world.rig.restarted();
        let model = world.model.lock().after_crash(u64::MAX, &rig.machine);
        drop(world);
        rig.machine.pull(SlotId(2), PowerCut::LoseAll);
        let world = World::open(rig, model).await;
        assert_eq!(world.rig.view_now().membership(DiskNumber(2)), None);
        world.read(0..4).await.unwrap();
    });
}

/// Every write that was acknowledged before the close is there afterwards, without a crash.
#[test]
fn a_space_that_closes_keeps_what_it_has_acknowledged() {
    for seed in 0..20 {
        virtual_time(async {
            let world = World::new(&Setup::new(20 + seed, 2, MIRROR)).await;
            world.shuffle(Duration::from_millis(3));
            let users = (0..8).map(async |user: u64| {
                let mut result = Ok(());
                for step in 0..20 {
                    if result.is_ok() {
                        result = world.write(user * 20 + step..user * 20 + step + 1, false).await;
                    }
                }
                result
            });
            let close = async {
                world.rig.env.sleep(Duration::from_millis(4 + seed)).await;
                world.space.close().wait().await
            };
            let (ends, state) = tokio::join!(join_all(users), close);
            assert!(state.unwrap().is_closed);
            assert!(ends.iter().any(Result::is_err), "writes after the end fail");
            assert!(world.bytes(0..1).await.is_err(), "and reads");
            let model = {
                let mut model = world.model.lock();
                let flush = model.flush_begun();
                model.flushed(flush);
                model.clone()
            };
            world.rig.machine.cut(PowerCut::LoseAll);
            let rig = world.rig.restarted();
            drop(world);
            let world = World::open(rig.clone(), model.after_crash(u64::MAX, &rig.machine)).await;
            world.read(0..160).await.unwrap();
        });
    }
}

/// Slabs contain data from before they belonged to this space: it is never read.
#[test]
fn what_a_slab_had_before_is_never_read() {
    virtual_time(async {
        // The log's replicas are on the first two, and row 0 on the others.
        let setup = Setup { disks: vec![20 << 20; 4], size: 2 << 20, ..Setup::new(9, 4, MIRROR) };
        let world = World::new(&setup).await;
        world.write(60..61, true).await.unwrap();
        let view = world.rig.view_now();
        for copy in view.record.rows.get(&pool_seam::RowNumber(0)).unwrap().slabs.iter() {
            let garbage: Vec<u8> = (0..60 * UNIT).map(|at| (at % 251) as u8 + 1).collect();
            let at = view.disks[&copy.place.disk].areas.data(copy.place.slab).offset;
            let disk = world.rig.machine.open(SlotId(copy.place.disk.0.into())).unwrap();
            let ctx = env::Ctx::default();
            disk.write(&ctx, at, Sg::from_iter([IoBuf::from(garbage)])).wait().await.unwrap();
            disk.flush(&ctx).wait().await.unwrap();
        }
        world.shuffle(Duration::from_millis(3));
        world.rig.record();
        let users = (0..4).map(async |user: u64| {
            for step in 0..6 {
                let unit = user * 12 + step;
                world.write(unit..unit + 1, false).await.unwrap();
                if step == 3 {
                    world.flush().await.unwrap();
                }
                // Its region is active from here on.
                world.write(60..61, false).await.unwrap();
            }
        });
        join_all(users).await;
        for moment in world.rig.moments().iter().step_by(3) {
            let rig = world.rig.after(moment, PowerCut::LoseAll);
            let model = world.model.lock().after_crash(moment.event, &rig.machine);
            let world = World::open(rig, model).await;
            for unit in 0..61 {
                world.read(unit..unit + 1).await.unwrap();
            }
        }
    });
}
