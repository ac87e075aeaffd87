//! Spaces with a class of media on pools of several: a disk of the class that is lost, a class that is full,
//! and one that is changed, while users work and while the power goes.

use std::time::Duration;

use disk::sim::{Machine, SlotId};
use disk::{Media, MemoryOptions, PowerCut};
use env::Env;
use futures_util::future::join;
use parking_lot::Mutex;

use super::crashes::{Recorded, cut_and_compare};
use super::faults::compare;
use super::model::Model;
use super::world::{Load, SPACE, Shape, World, work};
use super::{Random, in_virtual_time};
use crate::jobs::{Evacuated, Progress, Stays};
use crate::placement::{NoPlace, outside};
use crate::{Absence, DiskNumber, MediaClass, Op, SpaceError, State};

const LOAD: Load = Load { users: 3, steps: 40, units: 24, delay_ms: 3, rows: false };
const HDD: u8 = 1;
const SSD: u8 = 2;

fn class(media: Media) -> MediaClass {
    MediaClass::of([media])
}

/// A new pool of disks of these media, with a space on SSDs.
async fn mixed(shape: Shape, media: &[u8], seed: u64) -> World {
    let shape = Shape { disks: media.len() as u16, ..shape };
    let env = Env::simulated(seed);
    let machine = Machine::new(&env, seed);
    let mut state = shape.state();
    for (n, media) in media.iter().enumerate() {
        machine.add(&MemoryOptions::new(format!("disk{n}"), shape.disk_bytes()));
        let op = Op::SetDiskMedia { disk: DiskNumber(n as u16), media: *media };
        state.apply(&op).expect("a disk");
    }
    state.apply(&Op::SetSpaceMedia { space: SPACE, media: class(Media::Ssd) }).expect("the space");
    World::open(shape, env, machine, state, 1).await
}

fn shapes(seed: u64) -> Shape {
    let base = Shape { slabs: 8, rows_max: 3, ..Shape::MIRROR };
    match seed % 3 {
        0 => base,
        1 => Shape { columns: 2, interleave: 16 << 10, rows_max: 2, ..base },
        _ => Shape { copies: 1, columns: 2, interleave: 8 << 10, ..base },
    }
}

/// Whether every slab, of those on the move too, is on one of these disks.
fn all_on(s: &State, disks: std::ops::Range<u16>) -> bool {
    s.rows.values().all(|r| r.copies().all(|(_, c)| disks.contains(&c.place.disk.0)))
}

#[test]
fn what_a_lost_disk_had_is_rebuilt_on_its_class() {
    for seed in 0..30 {
        in_virtual_time(async {
            let what = format!("seed {seed}");
            let base = Shape { slabs: 8, rows_max: 3, ..Shape::MIRROR };
            let world = mixed(base, &[SSD, SSD, SSD, HDD, HDD, 0], seed).await;
            let model = Mutex::new(Model::default());
            let mut random = Random(seed);
            let lost = DiskNumber(random.below(3) as u16);
            let rebuilt = async {
                world.env.sleep(Duration::from_millis(5 + random.below(30))).await;
                world.machine.pull(SlotId(lost.0.into()), PowerCut::LoseAll);
                world.book.leave_now(lost, Absence::Gone).expect("the other has it all");
                world.path.evacuate(lost, &Progress::default()).await
            };
            let (_, left) = join(work(&world, LOAD, seed, &model), rebuilt).await;
            left.unwrap_or_else(|e| panic!("{what}: {e}"));
            // What was allocated on the lost disk since, because a third one was not at hand.
            let left = world.path.evacuate(lost, &Progress::default()).await.expect("nothing fails");
            assert_eq!(left.left, 0, "{what}: {left:?}");
            compare(&world, LOAD, &model, &what).await;
            let states = world.book.states();
            assert!(states.iter().all(|s| all_on(s, 0..3)), "{what}: a slab was on another disk");
            assert!(states.last().is_some_and(|s| !s.rows.is_empty()), "{what}");
        });
    }
}

#[test]
fn a_class_without_room_waits_and_says_so() {
    in_virtual_time(async {
        let world = mixed(Shape { rows_max: 2, ..Shape::MIRROR }, &[SSD, SSD, HDD, HDD], 1).await;
        let row_units = world.space.inner.layout.row_bytes() / crate::UNIT;
        world.write(0..1, &[7]).await.expect("a write");
        world.write(row_units..row_units + 1, &[8]).await.expect("a write");
        world.space.flush_all().await.expect("a flush");
        let lost = DiskNumber(1);
        world.machine.pull(SlotId(1), PowerCut::LoseAll);
        world.book.leave_now(lost, Absence::Gone).expect("the other has it");
        let evacuate = async || world.path.evacuate(lost, &Progress::default()).await.expect("nothing fails");
        let why = NoPlace::NoRoom { needed: 1, disks: 0, media: class(Media::Ssd) };
        assert_eq!(evacuate().await, Evacuated { moved: 0, left: 2, why: Some(Stays::NoPlace(why)) });
        assert!(all_on(&world.book.state(), 0..2), "nothing is elsewhere");
        world.write(0..1, &[9]).await.expect("one copy is well");
        // A disk is an SSD, although nothing said so.
        world.book.change(&[Op::SetDiskMedia { disk: DiskNumber(2), media: SSD }]).expect("it may");
        assert_eq!(evacuate().await, Evacuated { moved: 2, left: 0, why: None });
        assert_eq!(world.read(0..1).await, Ok(vec![9]));
        assert_eq!(world.read(row_units..row_units + 1).await, Ok(vec![8]));
        assert_eq!(world.book.state().slabs_used(DiskNumber(3)).count(), 0);
    });
}

/// The space is to lie on HDDs from some moment on, and what it has moves there.
async fn to_hdd(world: &World, seed: u64) -> Result<(), SpaceError> {
    let mut random = Random(seed ^ 0x51);
    world.env.sleep(Duration::from_millis(8 + random.below(20))).await;
    world.book.change(&[Op::SetSpaceMedia { space: SPACE, media: class(Media::Hdd) }])?;
    world.path.optimize(&Progress::default()).await?;
    Ok(())
}

#[test]
fn a_space_changes_its_class_under_load() {
    let mut moved = 0;
    for seed in 0..40 {
        moved += in_virtual_time(async {
            let what = format!("seed {seed}");
            let world = mixed(shapes(seed), &[SSD, SSD, SSD, SSD, HDD, HDD, HDD, HDD], seed).await;
            let model = Mutex::new(Model::default());
            let (_, changed) = join(work(&world, LOAD, seed, &model), to_hdd(&world, seed)).await;
            changed.unwrap_or_else(|e| panic!("{what}: {e}"));
            compare(&world, LOAD, &model, &what).await;
            let states = world.book.states();
            let whole = |s: &State| s.rows.values().flat_map(|r| &r.slabs).all(|c| s.is_current(c, u64::MAX));
            assert!(states.iter().all(whole), "{what}: a row was short of a copy");
            let state = world.book.state();
            assert_eq!((outside(&state, SPACE), state.moves().count()), (0, 0), "{what}");
            assert!(all_on(&state, 4..8), "{what}");
            compare(&world, LOAD, &model, &what).await;
            usize::from(states.iter().any(|s| s.moves().count() > 0))
        });
    }
    assert!(moved > 20, "{moved} of 40");
}

#[test]
fn the_power_goes_while_a_class_is_changed() {
    let load = Load { users: 2, steps: 16, ..LOAD };
    for seed in 0..40 {
        let shape = Shape { disks: 8, ..shapes(seed) };
        let recorded = in_virtual_time(async {
            let world = mixed(shape, &[SSD, SSD, SSD, SSD, HDD, HDD, HDD, HDD], seed).await;
            world.machine.record();
            let model = Mutex::new(Model::default());
            let (_, changed) = join(work(&world, load, seed, &model), to_hdd(&world, seed)).await;
            changed.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            Recorded::of(&world, model)
        });
        let mut random = Random(seed);
        for _ in 0..6 {
            let which = random.below(recorded.moments.len() as u64) as usize;
            cut_and_compare(shape, load, &recorded, which, seed);
        }
    }
}
