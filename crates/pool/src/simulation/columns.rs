//! Columns of parity spaces that move: while the power goes, while disks come and go, and when one of the two
//! disks is lost on the way.

use std::time::Duration;

use disk::PowerCut;
use disk::sim::SlotId;
use futures_util::future::join;
use parking_lot::Mutex;

use super::crashes::Recorded;
use super::faults::compare;
use super::model::Model;
use super::moves::{filled, there_and_back};
use super::parity::{DUAL, SINGLE, come_and_go, cut_and_compare, go, resynced};
use super::world::{Load, SPACE, Shape, World, work};
use super::{Random, in_virtual_time};
use crate::events::Found;
use crate::jobs::{Evacuated, Moved, Progress};
use crate::{DiskNumber, RowNumber, SlabPlace, Usage};

const LOAD: Load = Load { users: 2, steps: 16, units: 24, delay_ms: 3, rows: false };
const ROW: RowNumber = RowNumber(0);

fn shapes(seed: u64) -> Shape {
    super::moves::shapes(4 + seed % 4)
}

#[test]
fn the_power_goes_while_columns_move() {
    let mut moving = 0;
    for seed in 0..160 {
        let shape = shapes(seed);
        let recorded = in_virtual_time(async {
            let world = World::new(shape, seed).await;
            world.machine.record();
            let model = Mutex::new(Model::default());
            let (_, moved) = join(work(&world, LOAD, seed, &model), there_and_back(&world, seed)).await;
            moved.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            Recorded::of(&world, model)
        });
        let is_moving = |i: &usize| recorded.states[*i].moves().count() > 0;
        let on_the_way: Vec<usize> = (0..recorded.moments.len()).filter(is_moving).collect();
        let mut random = Random(seed);
        for n in 0..8 {
            let which = match on_the_way.len() as u64 {
                many if many > 0 && n > 0 => on_the_way[random.below(many) as usize],
                _ => random.below(recorded.moments.len() as u64) as usize,
            };
            moving += usize::from(is_moving(&which));
            cut_and_compare(shape, LOAD, &recorded, which, seed);
        }
    }
    assert!(moving > 600, "{moving} of 1280");
}

/// A new slab that has some regions of its column, while users work: its writes in that time, and the effect
/// of a power cut.
#[test]
fn the_power_goes_while_a_column_is_half_moved() {
    let load = Load { steps: 24, ..LOAD };
    for seed in 0..120 {
        let shape = shapes(seed);
        let columns = usize::from(shape.columns + shape.parity + shape.groups - 1);
        let recorded = in_virtual_time(async {
            let world = World::new(shape, seed).await;
            let (model, mut random) = (Mutex::new(Model::default()), Random(seed ^ 0x5a));
            work(&world, Load { steps: 6, ..load }, seed ^ 1, &model).await;
            for row in
                world.book.state().rows.keys().filter(|(space, _)| *space == SPACE).map(|(_, row)| *row)
            {
                let index = random.below(columns as u64) as usize;
                let Some(to) = elsewhere(&world, row) else { continue };
                world.path.begin_move(SPACE, row, index, to).await.expect("it is free");
                // Most of it, often all.
                let some = random.next() | random.next() | random.next() | (random.below(2) * u64::MAX);
                let copied = world.space.resync_copy(row, columns, some, &Progress::default()).await;
                copied.expect("nothing fails");
            }
            world.machine.record();
            work(&world, load, seed, &model).await;
            Recorded::of(&world, model)
        });
        let mut random = Random(seed);
        for _ in 0..6 {
            let which = random.below(recorded.moments.len() as u64) as usize;
            cut_and_compare(shape, load, &recorded, which, seed);
        }
    }
}

#[test]
fn disks_come_and_go_while_columns_move() {
    let load = Load { users: 3, steps: 60, ..LOAD };
    let mut moved = 0;
    for seed in 0..60 {
        let (shape, what) = (shapes(seed), format!("seed {seed}"));
        moved += in_virtual_time(async {
            let world = World::new(shape, seed).await;
            let model = Mutex::new(Model::default());
            let mut random = Random(seed ^ 0x77);
            let mut which = random.clone();
            let moves = async {
                let progress = Progress::default();
                for _ in 0..6 {
                    world.env.sleep(Duration::from_millis(which.below(20))).await;
                    let disk = DiskNumber(which.below(u64::from(shape.disks)) as u16);
                    let usage = |usage| world.book.change(&[crate::Op::SetUsage { disk, usage }]);
                    usage(Usage::Retired).expect("it may be");
                    // With disks away this may fail, and lose nothing.
                    let _ = world.path.evacuate(disk, &progress).await;
                    usage(Usage::AutoSelect).expect("it may be");
                    let _ = world.path.optimize(&progress).await;
                }
            };
            let faults = come_and_go(&world, 5, &mut random, &what);
            join(work(&world, load, seed, &model), join(moves, faults)).await;
            world.path.resume_moves(&Progress::default()).await.expect("all are here");
            resynced(&world, &what).await;
            compare(&world, load, &model, &what).await;
            world.space.scrub(&Progress::default()).await.expect("a scrub");
            for found in [Found::Unsettled, Found::Lost, Found::BadTable] {
                assert_eq!(world.path.events.count(found), 0, "{what}: {found:?}");
            }
            world.space.flush_all().await.expect("a flush");
            go(&world, &(0..u16::from(shape.parity)).collect::<Vec<_>>()).await;
            compare(&world, load, &model, &format!("{what}: without")).await;
            let states = world.book.states();
            states.windows(2).filter(|s| s[0].moves().count() > s[1].moves().count()).count()
        });
    }
    assert!(moved > 120, "{moved} moves ended");
}

/// A free place on a disk that has nothing of a row.
fn elsewhere(world: &World, row: RowNumber) -> Option<SlabPlace> {
    let state = world.book.state();
    let row = &state.rows[&(SPACE, row)];
    let other = |d: &DiskNumber| {
        row.slabs.iter().all(|c| c.place.disk != *d) && state.free_slabs(*d).next().is_some()
    };
    let disk = state.disks.keys().copied().rfind(other)?;
    Some(SlabPlace { disk, slab: state.free_slabs(disk).next()? })
}

fn disk_of(world: &World, column: usize) -> DiskNumber {
    world.book.state().rows[&(SPACE, ROW)].slabs[column].place.disk
}

#[test]
fn the_old_disk_is_lost_on_the_way() {
    for shape in [SINGLE, DUAL] {
        in_virtual_time(async {
            let world = filled(Shape { disks: 6, slabs: 4, rows_max: 1, ..shape }).await;
            let (from, to) = (disk_of(&world, 0), elsewhere(&world, ROW).expect("there is one"));
            world.path.begin_move(SPACE, ROW, 0, to).await.expect("it is free");
            // Some of it is there already.
            let new = usize::from(shape.columns + shape.parity);
            let copied = world.space.resync_copy(ROW, new, 0xff, &Progress::default()).await;
            copied.expect("nothing fails");
            let filled = |w: &World| w.book.state().rows[&(SPACE, ROW)].moving().map(|m| m.copy.missed);
            assert_eq!(filled(&world), Some(!0xff));
            go(&world, &[from.0]).await;
            assert_eq!(filled(&world), Some(u64::MAX), "it counts for nothing without the old one");
            world.write(0..1, &[7]).await.expect("the others are well");
            assert_eq!(world.path.finish_move(SPACE, ROW, &Progress::default()).await, Ok(Moved::No));
            let left = world.path.evacuate(from, &Progress::default()).await.expect("nothing fails");
            assert_eq!((left.left, left.why), (0, None), "its journal, too");
            let state = world.book.state();
            assert!(state.rows[&(SPACE, ROW)].slabs.iter().all(|c| state.is_current(c, u64::MAX)));
            let next = disk_of(&world, 1);
            go(&world, &[next.0]).await;
            assert_eq!(world.read(0..1).await, Ok(vec![7]));
        });
    }
}

#[test]
fn the_new_disk_is_lost_on_the_way() {
    in_virtual_time(async {
        let world = filled(Shape { disks: 5, slabs: 4, rows_max: 1, ..SINGLE }).await;
        let to = elsewhere(&world, ROW).expect("there is one");
        world.path.begin_move(SPACE, ROW, 0, to).await.expect("it is free");
        world.machine.pull(SlotId(usize::from(to.disk.0)), PowerCut::LoseAll);
        world.write(0..1, &[7]).await.expect("the column is well");
        world.space.flush_all().await.expect("a flush");
        assert_eq!(world.path.finish_move(SPACE, ROW, &Progress::default()).await, Ok(Moved::No));
        assert!(!world.book.state().is_present(to.disk));
        let next = disk_of(&world, 1);
        go(&world, &[next.0]).await;
        assert_eq!(world.read(0..1).await, Ok(vec![7]));
    });
}

/// Lost units do not keep a disk from being emptied; they stay lost, and are reported.
#[test]
fn a_column_with_lost_units_moves() {
    in_virtual_time(async {
        let world = filled(Shape { disks: 5, slabs: 4, rows_max: 1, ..SINGLE }).await;
        world.write(0..6, &[1, 2, 3, 4, 5, 6]).await.expect("a write");
        world.space.flush_all().await.expect("a flush");
        let state = world.book.state();
        for column in [0, 1] {
            let place = state.rows[&(SPACE, ROW)].slabs[column].place;
            let at = world.shape.areas().data(place.slab).offset;
            world.machine.flip(SlotId(usize::from(place.disk.0)), at, 3);
        }
        let from = disk_of(&world, 0);
        world.book.change(&[crate::Op::SetUsage { disk: from, usage: Usage::Retired }]).expect("it may be");
        let left = world.path.evacuate(from, &Progress::default()).await.expect("nothing fails");
        assert!(matches!(left, Evacuated { left: 0, why: None, moved: 1.. }), "{left:?}");
        for lost in [0, 2] {
            assert!(world.read(lost..lost + 1).await.is_err(), "it was lost before");
        }
        assert_eq!(world.read(3..6).await, Ok(vec![4, 5, 6]));
    });
}

/// Both slabs of a column that moves rot in the same place: what the others make goes to both.
#[test]
fn what_is_healed_while_its_column_moves_moves_too() {
    in_virtual_time(async {
        let shape = Shape { disks: 5, slabs: 4, rows_max: 1, ..SINGLE };
        let world = World::new(shape, 1).await;
        world.write(0..4, &[1, 2, 3, 4]).await.expect("all disks are here");
        world.path.quiesce().await.expect("all disks are here");
        let (from, to) = (disk_of(&world, 0), elsewhere(&world, ROW).expect("there is one"));
        world.path.begin_move(SPACE, ROW, 0, to).await.expect("it is free");
        let new = usize::from(shape.columns + shape.parity);
        let copied = world.space.resync_copy(ROW, new, u64::MAX, &Progress::default()).await;
        assert_eq!(copied, Ok(true));
        let state = world.book.state();
        let row = &state.rows[&(SPACE, ROW)];
        let places = [row.slabs[0].place, row.moving().expect("it moves").copy.place];
        assert_eq!(places.map(|p| p.disk), [from, to.disk]);
        for place in places {
            let at = world.shape.areas().data(place.slab).offset;
            world.machine.flip(SlotId(usize::from(place.disk.0)), at, 3);
        }
        assert_eq!(world.read(0..1).await, Ok(vec![1]), "from the others");
        assert_eq!(world.path.finish_move(SPACE, ROW, &Progress::default()).await, Ok(Moved::Yes));
        go(&world, &[disk_of(&world, 1).0]).await;
        assert_eq!(world.read(0..4).await, Ok(vec![1, 2, 3, 4]));
    });
}

/// A disk comes back while what it had is about to be made from the others: it is moved instead, so that the
/// row never has less than it could.
#[test]
fn what_comes_back_in_the_last_moment_is_moved() {
    in_virtual_time(async {
        let world = filled(Shape { disks: 5, slabs: 4, rows_max: 1, ..SINGLE }).await;
        world.path.quiesce().await.expect("all disks are here");
        let from = disk_of(&world, 0);
        go(&world, &[from.0]).await;
        world.book.change(&[crate::Op::SetUsage { disk: from, usage: Usage::Retired }]).expect("it may be");
        let comes_back = async {
            let _one = world.path.joining.lock().await;
            world.env.sleep(Duration::from_secs(5)).await;
            world.machine.plug(SlotId(usize::from(from.0)));
            world.bring_back_alone(from.0).await;
        };
        let progress = Progress::default();
        let evacuated = async {
            world.env.sleep(Duration::from_secs(1)).await;
            world.path.evacuate(from, &progress).await
        };
        let ((), left) = join(comes_back, evacuated).await;
        assert_ne!(left.expect("nothing fails").left, 0, "it is looked at again");
        assert_eq!(world.path.evacuate(from, &progress).await.expect("nothing fails").left, 0);
        let worse = |s: &crate::State| {
            s.rows.get(&(SPACE, ROW)).is_some_and(|r| r.slabs.iter().any(|c| c.missed != 0))
        };
        assert!(!world.book.states().iter().any(worse), "it had all the time what it has now");
    });
}
