//! Slabs that move while users work, and while the power goes.

use std::time::Duration;

use disk::PowerCut;
use disk::sim::SlotId;
use futures_util::future::join;
use parking_lot::Mutex;

use super::crashes::{Recorded, cut_and_compare};
use super::faults::compare;
use super::local::LOCAL;
use super::model::Model;
use super::parity::{DUAL, SINGLE};
use super::world::{Load, SPACE, Shape, World, work};
use super::{Random, in_virtual_time};
use crate::events::Found;
use crate::jobs::{Evacuated, Moved, Progress, Stays};
use crate::{Absence, DiskNumber, Op, RowNumber, SlabPlace, SpaceError, Usage};

const LOAD: Load = Load { users: 2, steps: 16, units: 24, delay_ms: 3, rows: false };

pub(super) fn shapes(seed: u64) -> Shape {
    let base = Shape { slabs: 4, rows_max: 3, ..Shape::MIRROR };
    match seed % 8 {
        0 => Shape { disks: 3, ..base },
        1 => Shape { disks: 5, columns: 2, interleave: 16 << 10, rows_max: 2, ..base },
        2 => Shape { disks: 4, copies: 3, rows_max: 2, ..base },
        4 => Shape { disks: 5, slabs: 4, ..SINGLE },
        5 => Shape { disks: 6, slabs: 4, ..DUAL },
        6 => Shape { disks: 9, slabs: 4, rows_max: 1, ..LOCAL },
        7 => Shape { disks: 5, slabs: 4, columns: 3, interleave: 4 << 10, ..SINGLE },
        _ => Shape { disks: 3, copies: 1, columns: 2, interleave: 8 << 10, ..base },
    }
}

/// A disk is emptied, used again, and gets its share back.
pub(super) async fn there_and_back(world: &World, seed: u64) -> Result<(), SpaceError> {
    let mut random = Random(seed ^ 0x30);
    world.env.sleep(Duration::from_millis(8 + random.below(20))).await;
    let disk = world.book.state();
    let disk = disk.disks.keys().copied().max_by_key(|d| (disk.slabs_used(*d).count(), random.next()));
    let disk = disk.expect("there are some");
    let progress = Progress::default();
    world.book.change(&[Op::SetUsage { disk, usage: Usage::Retired }])?;
    world.path.evacuate(disk, &progress).await?;
    world.book.change(&[Op::SetUsage { disk, usage: Usage::AutoSelect }])?;
    world.path.optimize(&progress).await?;
    Ok(())
}

#[test]
fn slabs_move_under_load_and_no_row_is_ever_worse_off() {
    let mut with_moves = 0;
    for seed in 0..120 {
        with_moves += in_virtual_time(async {
            let what = format!("seed {seed}");
            let world = World::new(shapes(seed), seed).await;
            let model = Mutex::new(Model::default());
            let load = Load { users: 3, steps: 40, ..LOAD };
            let (_, moved) = join(work(&world, load, seed, &model), there_and_back(&world, seed)).await;
            moved.unwrap_or_else(|e| panic!("{what}: {e}"));
            compare(&world, load, &model, &what).await;
            let states = world.book.states();
            let whole =
                |s: &crate::State| s.rows.values().flat_map(|r| &r.slabs).all(|c| s.is_current(c, u64::MAX));
            assert!(states.iter().all(whole), "{what}: a row was short of a copy");
            assert_eq!(world.book.state().moves().count(), 0, "{what}");
            world.space.scrub(&Progress::default()).await.expect("a scrub");
            for found in [Found::Healed, Found::Unreadable, Found::BadTable, Found::Lost] {
                assert_eq!(world.path.events.count(found), 0, "{what}: {found:?}");
            }
            // Not when the disk was asked before it had anything.
            i32::from(states.iter().any(|s| s.moves().count() > 0))
        });
    }
    assert!(with_moves > 60, "{with_moves} of 120");
}

#[test]
fn the_power_goes_while_slabs_move() {
    for seed in 0..320 {
        let shape = shapes(seed);
        let recorded = in_virtual_time(async {
            let world = World::new(shape, seed).await;
            world.machine.record();
            let model = Mutex::new(Model::default());
            let (_, moved) = join(work(&world, LOAD, seed, &model), there_and_back(&world, seed)).await;
            moved.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            Recorded::of(&world, model)
        });
        // Moments with a slab on its way, and any others.
        let moving = |i: &usize| recorded.states[*i].moves().count() > 0;
        let on_the_way: Vec<usize> = (0..recorded.moments.len()).filter(moving).collect();
        let mut random = Random(seed);
        for n in 0..8 {
            let which = match on_the_way.len() as u64 {
                0 => random.below(recorded.moments.len() as u64) as usize,
                _ if n == 0 => random.below(recorded.moments.len() as u64) as usize,
                many => on_the_way[random.below(many) as usize],
            };
            cut_and_compare(shape, LOAD, &recorded, which, seed);
        }
    }
}

pub(super) async fn filled(shape: Shape) -> World {
    let world = World::new(shape, 1).await;
    for row in 0..shape.rows_max {
        let row_units = world.space.inner.layout.row_bytes() / crate::UNIT;
        world.write(row * row_units..row * row_units + 1, &[row + 1]).await.expect("a write");
    }
    world.space.flush_all().await.expect("a flush");
    world
}

#[test]
fn a_move_whose_target_fails_is_taken_back() {
    in_virtual_time(async {
        let world = filled(Shape { disks: 3, rows_max: 1, ..Shape::MIRROR }).await;
        let (row, to) = (RowNumber(0), SlabPlace { disk: DiskNumber(2), slab: 0 });
        world.path.begin_move(SPACE, row, 0, to).await.expect("it is free");
        world.machine.pull(SlotId(2), PowerCut::LoseAll);
        world.write(0..1, &[7]).await.expect("two copies are well");
        let moved = world.path.finish_move(SPACE, row, &Progress::default()).await;
        assert_eq!(moved, Ok(Moved::No));
        let state = world.book.state();
        assert!(!state.is_present(DiskNumber(2)) && state.slabs_used(DiskNumber(2)).count() == 0);
        assert_eq!(world.read(0..1).await, Ok(vec![7]));
    });
}

#[test]
fn a_disk_that_returns_in_the_middle_of_its_repair() {
    in_virtual_time(async {
        let world = filled(Shape { disks: 3, rows_max: 1, ..Shape::MIRROR }).await;
        world.machine.pull(SlotId(0), PowerCut::KeepAll);
        world.book.leave_now(DiskNumber(0), Absence::Gone).expect("the other has it");
        world.write(0..1, &[2]).await.expect("one copy is well");
        let (row, to) = (RowNumber(0), SlabPlace { disk: DiskNumber(2), slab: 1 });
        world.path.begin_move(SPACE, row, 0, to).await.expect("it is free");
        world.machine.plug(SlotId(0));
        world.bring_back(0).await;
        world.write(5..6, &[3]).await.expect("three copies");
        assert_eq!(world.path.finish_move(SPACE, row, &Progress::default()).await, Ok(Moved::Yes));
        for gone in [0, 1] {
            world.machine.pull(SlotId(gone), PowerCut::LoseAll);
            world.book.leave_now(DiskNumber(gone as u16), Absence::Gone).expect("disk 2 has it all");
        }
        assert_eq!(world.read(0..1).await, Ok(vec![2]));
        assert_eq!(world.read(5..6).await, Ok(vec![3]));
    });
}

#[test]
fn what_cannot_move_stays_and_says_why() {
    in_virtual_time(async {
        // Both disks have a copy: there is no third.
        let world = filled(Shape { rows_max: 1, ..Shape::MIRROR }).await;
        let evacuate = async |world: &World| {
            world.path.evacuate(DiskNumber(0), &Progress::default()).await.expect("nothing fails")
        };
        let left = evacuate(&world).await;
        assert!(matches!(left, Evacuated { moved: 0, left: 1, why: Some(Stays::NoPlace(_)) }), "{left:?}");
        // The only copy, and its disk is gone.
        let world = filled(Shape { disks: 2, copies: 1, rows_max: 1, ..Shape::MIRROR }).await;
        let on = world.book.state().rows[&(SPACE, RowNumber(0))].slabs[0].place.disk;
        assert_eq!(on, DiskNumber(0));
        world.machine.pull(SlotId(0), PowerCut::KeepAll);
        world.book.leave_now(on, Absence::Gone).expect("as when it is opened without");
        let left = evacuate(&world).await;
        assert_eq!(left, Evacuated { moved: 0, left: 1, why: Some(Stays::OnlyCopy(SPACE)) });
        // With the disk it moves, copy or none.
        world.machine.plug(SlotId(0));
        world.bring_back(0).await;
        assert_eq!(evacuate(&world).await, Evacuated { moved: 1, left: 0, why: None });
        assert_eq!(world.read(0..1).await, Ok(vec![1]));
    });
}
