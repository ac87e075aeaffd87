//! Disks that fail, lie and rot while the pool is in use.

use std::time::Duration;

use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Disk, DiskError, Op, PowerCut};
use env::Ctx;
use parking_lot::Mutex;

use super::crashes::read_all;
use super::model::Model;
use super::world::{Load, SPACE, Shape, World, work};
use super::{Random, in_virtual_time};
use crate::events::Found;
use crate::jobs::Progress;
use crate::{Absence, DiskNumber, RowNumber, SpaceError, UNIT};

const LOAD: Load = Load { users: 3, steps: 40, units: 24, delay_ms: 3, rows: false };

/// Every unit is what it may be now.
pub(super) async fn compare(world: &World, load: Load, model: &Mutex<Model>, what: &str) {
    for (unit, value) in read_all(world, load, what).await {
        let allowed = model.lock().now(unit);
        assert!(allowed.contains(&value), "{what}: unit {unit} is {value}, not one of {allowed:?}");
        model.lock().seen(unit, value);
    }
}

async fn go_alone(world: &World, disk: u16) {
    for other in (0..world.shape.disks).filter(|d| *d != disk) {
        world.machine.pull(SlotId(usize::from(other)), PowerCut::LoseAll);
        world.book.leave_now(DiskNumber(other), Absence::Gone).expect("it may leave");
    }
}

async fn resynced(world: &World, disk: u16, what: &str) {
    let progress = Progress::default();
    for _ in 0..20 {
        world.path.resync(DiskNumber(disk), &progress).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        let state = world.book.state();
        let mut mine = state.rows.values().flat_map(|r| &r.slabs).filter(|c| c.place.disk.0 == disk);
        if mine.all(|c| c.missed == 0) {
            return;
        }
    }
    panic!("{what}: resync does not end");
}

#[test]
fn disks_come_and_go_in_turn() {
    for seed in 0..150 {
        let what = format!("seed {seed}");
        in_virtual_time(async {
            let world = World::new(Shape::MIRROR, seed).await;
            let model = Mutex::new(Model::default());
            let faults = async {
                let mut random = Random(seed);
                for turn in 0..4 {
                    let disk = (seed + turn) as u16 % 2;
                    world.env.sleep(Duration::from_millis(random.below(20))).await;
                    world.machine.pull(SlotId(usize::from(disk)), PowerCut::Tear { seed: random.next() });
                    world.env.sleep(Duration::from_millis(random.below(30))).await;
                    world.machine.plug(SlotId(usize::from(disk)));
                    world.book.leave_now(DiskNumber(disk), Absence::Gone).expect("the other one is there");
                    world.bring_back(disk).await;
                    resynced(&world, disk, &what).await;
                }
            };
            futures_util::future::join(work(&world, LOAD, seed, &model), faults).await;
            compare(&world, LOAD, &model, &what).await;
            world.space.flush_all().await.expect("a flush");
            go_alone(&world, (seed % 2) as u16).await;
            compare(&world, LOAD, &model, &format!("{what}: alone")).await;
        });
    }
}

#[test]
fn writes_and_flushes_that_fail_cost_a_disk_and_nothing_else() {
    let mut left = 0;
    for seed in 0..150 {
        let what = format!("seed {seed}");
        in_virtual_time(async {
            let world = World::new(Shape::MIRROR, seed).await;
            let op = if seed % 2 == 0 { Op::Write } else { Op::Flush };
            world.machine.rule(SlotId(1), Rule::new(op, When::Nth(seed / 2 % 40), Fault::Error));
            let model = Mutex::new(Model::default());
            work(&world, LOAD, seed, &model).await;
            left += u32::from(!world.book.state().is_present(DiskNumber(1)));
            compare(&world, LOAD, &model, &what).await;
            if world.path.disk(DiskNumber(1)).is_none() {
                world.bring_back(1).await;
                resynced(&world, 1, &what).await;
            }
            go_alone(&world, 1).await;
            compare(&world, LOAD, &model, &format!("{what}: alone")).await;
        });
    }
    assert!(left > 50, "only {left} disks left");
}

/// One disk rots, or loses writes, or puts them elsewhere: never seen by a user, always repaired.
#[test]
fn a_disk_that_lies_is_found_out() {
    let mut found = 0;
    for seed in 0..150 {
        let what = format!("seed {seed}");
        in_virtual_time(async {
            let world = World::new(Shape::MIRROR, seed).await;
            let slabs = world.shape.areas().slabs;
            let lie = [Fault::Lost, Fault::Misdirected, Fault::Partial, Fault::Flipped][seed as usize % 4];
            let rule = Rule::new(Op::Write, When::Chance(100_000), lie);
            world.machine.rule(SlotId(0), rule.within(slabs.offset..slabs.end()));
            let model = Mutex::new(Model::default());
            work(&world, LOAD, seed, &model).await;
            compare(&world, LOAD, &model, &what).await;
            world.machine.no_rules(SlotId(0));
            // What is in order is not looked at again: the next one has to find what the disk has lost.
            world.path.quiesce().await.expect("two disks");
            let world = world.reopen().await;
            assert_eq!(world.space.unresolved_groups(), 0, "{what}: it was left in order");
            compare(&world, LOAD, &model, &format!("{what}: opened again")).await;
            world.space.scrub(&Progress::default()).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            world.space.flush_all().await.expect("a flush");
            found += world.path.events.count(Found::Healed) + world.path.events.count(Found::BadTable);
            assert_eq!(world.path.events.count(Found::Lost), 0, "{what}");
            go_alone(&world, 0).await;
            compare(&world, LOAD, &model, &format!("{what}: alone")).await;
        });
    }
    assert!(found > 50, "only {found} found");
}

#[test]
fn rot_is_healed_by_reads_and_counted() {
    in_virtual_time(async {
        let world = World::new(Shape::MIRROR, 1).await;
        world.write(0..16, &(1..17).collect::<Vec<_>>()).await.expect("a write");
        world.space.flush_all().await.expect("a flush");
        let data = world.shape.areas().data(0).offset;
        for unit in [3, 9] {
            world.machine.flip(SlotId(0), data + unit * UNIT + 77, 3);
        }
        world.machine.make_bad(SlotId(0), data + 12 * UNIT, UNIT);
        // From whichever disk: until the bad one was asked.
        for _ in 0..2 {
            assert_eq!(world.read(0..16).await.expect("a read"), (1..17).collect::<Vec<_>>());
            world.space.scrub(&Progress::default()).await.expect("a scrub");
        }
        let (healed, bad) =
            (world.path.events.count(Found::Healed), world.path.events.count(Found::Unreadable));
        assert_eq!((healed, bad), (2, 1));
        let addresses: Vec<u64> = world.path.events.newest().iter().map(|f| f.address / UNIT).collect();
        assert_eq!(addresses.iter().copied().collect::<std::collections::BTreeSet<_>>(), [3, 9, 12].into());
        assert!(world.path.events.newest().iter().all(|f| f.disk == DiskNumber(0) && f.space == SPACE));
        go_alone(&world, 0).await;
        assert_eq!(world.read(0..16).await.expect("alone"), (1..17).collect::<Vec<_>>());
        // Both copies bad: said, with the place, and never given out.
        world.machine.flip(SlotId(0), data + 5 * UNIT, 0);
        let at = disk::Place::new(Op::Read, 4 * UNIT, 3 * UNIT);
        assert_eq!(world.read(4..7).await, Err(DiskError::Medium { at }));
        assert_eq!(world.read(6..7).await, Ok(vec![7]));
        let buffers = disk::sized(super::arena().alloc_sg(4096, arena::Class::Payload).await, 4096);
        let (result, _) = world.space.read_at(5 * UNIT, buffers).await;
        assert_eq!(result, Err(SpaceError::Corrupt { space: SPACE, address: 5 * UNIT, length: UNIT }));
        // Written again it is well.
        world.write(5..6, &[99]).await.expect("a write");
        assert_eq!(world.read(5..6).await, Ok(vec![99]));
    });
}

#[test]
fn the_last_copy_is_never_dropped() {
    in_virtual_time(async {
        let simple = Shape { copies: 1, disks: 1, ..Shape::MIRROR };
        let world = World::new(simple, 1).await;
        world.write(0..4, &[1, 2, 3, 4]).await.expect("a write");
        world.space.flush_all().await.expect("a flush");
        let data = world.shape.areas().data(0);
        let rule = Rule::new(Op::Write, When::Nth(0), Fault::Error).within(data.offset..data.end());
        world.machine.rule(SlotId(0), rule);
        let at = disk::Place::new(Op::Write, UNIT, UNIT);
        assert_eq!(world.write(1..2, &[20]).await, Err(DiskError::Medium { at }));
        assert!(world.book.state().is_present(DiskNumber(0)));
        // Old or new, and the same every time.
        let first = world.read(0..4).await.expect("a read");
        assert!([[1, 2, 3, 4], [1, 20, 3, 4]].contains(&[first[0], first[1], first[2], first[3]]));
        assert_eq!(world.read(0..4).await.expect("a read"), first);
        world.machine.rule(SlotId(0), Rule::new(Op::Flush, When::Nth(0), Fault::Error));
        world.write(2..3, &[30]).await.expect("a write");
        assert!(world.space.flush_all().await.is_err());
        assert!(world.space.flush_all().await.is_err(), "a failed flush stays so");
        assert!(world.book.state().is_present(DiskNumber(0)));
    });
}

#[test]
fn a_region_without_a_disk_says_which_it_waits_for() {
    in_virtual_time(async {
        let world = World::new(Shape::MIRROR, 1).await;
        world.write(0..1, &[1]).await.expect("a write");
        world.space.flush_all().await.expect("a flush");
        // Disk 1 misses region 0; then disk 0 goes.
        world.machine.pull(SlotId(1), PowerCut::KeepAll);
        world.write(0..1, &[2]).await.expect("a write on one");
        world.space.flush_all().await.expect("a flush");
        assert!(!world.book.state().is_present(DiskNumber(1)));
        world.machine.plug(SlotId(1));
        world.bring_back(1).await;
        world.machine.pull(SlotId(0), PowerCut::KeepAll);
        world.book.leave_now(DiskNumber(0), Absence::Gone).expect("asked");
        let buffers = disk::sized(super::arena().alloc_sg(4096, arena::Class::Payload).await, 4096);
        let (result, _) = world.space.read_at(0, buffers).await;
        let disks = [DiskNumber(0)].into_iter().collect();
        assert_eq!(result, Err(SpaceError::Unavailable { space: SPACE, row: RowNumber(0), disks }));
        assert!(world.write(0..1, &[3]).await.is_err());
        // Other regions go on.
        world.write(100..101, &[4]).await.expect("a write elsewhere");
        assert_eq!(world.read(100..101).await, Ok(vec![4]));
        world.machine.plug(SlotId(0));
        world.bring_back(0).await;
        assert_eq!(world.read(0..1).await, Ok(vec![2]));
        resynced(&world, 1, "disk 1").await;
        resynced(&world, 0, "disk 0").await;
        assert_eq!(world.read(100..101).await, Ok(vec![4]));
    });
}

#[test]
fn a_lost_disk_is_rebuilt_on_another() {
    in_virtual_time(async {
        let world = World::new(Shape { disks: 3, rows_max: 3, ..Shape::MIRROR }, 4).await;
        let model = Mutex::new(Model::default());
        work(&world, LOAD, 4, &model).await;
        world.machine.pull(SlotId(1), PowerCut::LoseAll);
        world.book.leave_now(DiskNumber(1), Absence::Gone).expect("it may leave");
        let progress = Progress::default();
        let repair = world.path.evacuate(DiskNumber(1), &progress);
        let (_, repaired) = futures_util::future::join(work(&world, LOAD, 5, &model), repair).await;
        let repaired = repaired.expect("nothing fails");
        assert_eq!((repaired.left, repaired.why), (0, None), "there is room");
        let (done, total) = progress.bytes();
        assert!(done == total && total > 0);
        assert_eq!(world.book.state().slabs_used(DiskNumber(1)).count(), 0);
        compare(&world, LOAD, &model, "rebuilt").await;
        world.space.scrub(&progress).await.expect("a scrub");
        assert_eq!(world.path.events.count(Found::Healed), 0, "all copies are alike");
    });
}

/// More slabs than entries in the log, and than tables in memory.
#[test]
fn a_full_log_and_few_tables_slow_down_and_stop_nothing() {
    let shape = Shape { slabs: 40, log_entries: 1, ..Shape::MIRROR };
    for seed in 0..4 {
        in_virtual_time(async {
            let world = World::new(shape, seed).await;
            let model = Mutex::new(Model::default());
            let load = Load { users: 8, steps: 60, units: 32, ..LOAD };
            work(&world, load, seed, &model).await;
            let (entries, slots) = world.path.disk(DiskNumber(0)).unwrap().log.with(|core| core.entries());
            assert_eq!((entries, slots), (16, 16));
            compare(&world, load, &model, &format!("seed {seed}")).await;
            assert!(world.space.inner.groups.count().0 <= 16);
        });
    }
}

/// I/Os longer than a column's piece, a group and a row, with buffers that fit nothing.
#[test]
fn long_io_goes_round_columns_and_rows() {
    in_virtual_time(async {
        let shape = Shape { disks: 4, columns: 2, interleave: 16 << 10, ..Shape::MIRROR };
        let world = World::new(shape, 1).await;
        let all: Vec<u64> = (1..=1500).collect();
        world.write(7..1507, &all).await.expect("a write");
        assert_eq!(world.read(7..1507).await.expect("a read"), all);
        assert_eq!(world.read(5..9).await.expect("a read"), [0, 0, 1, 2]);
        let (from, length) = (100 * UNIT, 1100 * UNIT);
        world.space.discard(&Ctx::default(), from, length).wait().await.expect("a discard");
        world.space.flush(&Ctx::default()).wait().await.expect("a flush");
        let read = world.read(0..1507).await.expect("a read");
        for (unit, value) in (0_u64..).zip(read) {
            let gone = !(7..1507).contains(&unit) || (100..1200).contains(&unit);
            assert_eq!(value, if gone { 0 } else { unit - 6 }, "unit {unit}");
        }
        assert_eq!(world.write(0..0, &[]).await, Ok(()));
        let outside = world.space.info().geometry.size / UNIT;
        assert!(world.write(outside..outside + 1, &[1]).await.is_err_and(|e| e.is_misuse()));
    });
}

/// After a crash every entry of the log may be one in doubt: writers then resolve them themselves.
#[test]
fn a_log_full_of_doubt_stops_nothing() {
    in_virtual_time(async {
        let world = World::new(Shape { slabs: 40, log_entries: 1, ..Shape::MIRROR }, 1).await;
        for row in 0..16 {
            world.write(row * 512..row * 512 + 1, &[row + 1]).await.expect("a write");
        }
        world.machine.cut(PowerCut::KeepAll);
        let world = world.reopen().await;
        assert_eq!(world.space.unresolved_groups(), 16);
        for row in 16..20 {
            world.write(row * 512..row * 512 + 1, &[row + 1]).await.expect("a write");
        }
        assert!(world.space.unresolved_groups() < 16);
        world.path.resolve_all(&Progress::default()).await.expect("all disks are here");
        assert_eq!(world.space.unresolved_groups(), 0);
        for row in 16..20 {
            assert_eq!(world.read(row * 512..row * 512 + 1).await, Ok(vec![row + 1]));
        }
    });
}

#[test]
fn a_fixed_space_has_all_its_rows() {
    in_virtual_time(async {
        let world = World::new(Shape::MIRROR, 1).await;
        world.write(600..601, &[5]).await.expect("a write");
        world.space.allocate_all().await.expect("there is room");
        world.space.allocate_all().await.expect("nothing to do");
        assert_eq!(world.book.state().rows.len(), 3);
        assert_eq!(world.read(599..602).await, Ok(vec![0, 5, 0]));
    });
}
