//! Lost units: known bad data stays bad, whatever fails or is in doubt beside it.

use std::time::Duration;

use disk::PowerCut;
use disk::sim::{Fault, Rule, SlotId, When};
use futures_util::future::join;
use parking_lot::Mutex;

use super::faults::compare;
use super::in_virtual_time;
use super::model::Model;
use super::moves::filled;
use super::world::{Load, SPACE, Shape, World, bytes, work};
use crate::events::Found;
use crate::jobs::Progress;
use crate::{Absence, DiskNumber, Op, RowNumber, UNIT, Usage};

const ALONE: Shape = Shape { copies: 1, disks: 1, ..Shape::MIRROR };

/// Units 0 to 3 of the first region, all durable; unit 3 rots.
async fn with_rot(shape: Shape) -> World {
    let world = World::new(shape, 1).await;
    world.write(0..4, &[1, 2, 3, 4]).await.expect("a write");
    world.path.quiesce().await.expect("all disks are here");
    world.machine.flip(SlotId(0), world.shape.areas().data(0).offset + 3 * UNIT, 5);
    world
}

/// A write of unit 1 fails: it is old or new.
async fn fail_a_write(world: &World) {
    let data = world.shape.areas().data(0);
    let rule = Rule::new(disk::Op::Write, When::Nth(0), Fault::Error).within(data.offset..data.end());
    world.machine.rule(SlotId(0), rule);
    assert!(world.write(1..2, &[20]).await.is_err());
}

#[test]
fn a_write_that_fails_makes_no_rot_good() {
    for seen in [true, false] {
        in_virtual_time(async {
            let world = with_rot(ALONE).await;
            assert!(!seen || world.read(3..4).await.is_err(), "it has rotted");
            fail_a_write(&world).await;
            assert!(world.read(3..4).await.is_err(), "seen before: {seen}");
            assert!([2, 20].contains(&world.read(1..2).await.expect("old or new")[0]));
            world.path.quiesce().await.expect("the disk is well");
            let world = world.reopen().await;
            assert!(world.read(3..4).await.is_err(), "opened again; seen before: {seen}");
            world.write(3..4, &[40]).await.expect("a write");
            assert_eq!(world.read(2..4).await, Ok(vec![3, 40]));
        });
    }
}

/// What memory knew of the group is gone: its block is asked.
#[test]
fn a_write_that_fails_and_is_forgotten_makes_no_rot_good() {
    in_virtual_time(async {
        let world = with_rot(ALONE).await;
        fail_a_write(&world).await;
        world.space.inner.groups.forget_clean();
        assert!(world.read(3..4).await.is_err());
        assert_eq!(world.read(2..3).await, Ok(vec![3]));
    });
}

#[test]
fn a_power_cut_makes_no_rot_good_that_was_known() {
    in_virtual_time(async {
        let world = with_rot(ALONE).await;
        assert!(world.read(3..4).await.is_err(), "it has rotted");
        world.space.flush_all().await.expect("a flush");
        world.write(1..2, &[20]).await.expect("a write");
        world.machine.cut(PowerCut::KeepAll);
        let world = world.reopen().await;
        assert_eq!(world.space.unresolved_groups(), 1);
        assert!(world.read(3..4).await.is_err());
        assert_eq!(world.read(1..3).await, Ok(vec![20, 3]));
    });
}

/// What lies in the place that a slab moved to is not the unit that the old one could not be read of.
#[test]
fn a_slab_that_moves_takes_nothing_for_what_nobody_has() {
    in_virtual_time(async {
        let world = World::new(Shape { disks: 2, ..ALONE }, 1).await;
        world.write(0..4, &[1, 2, 3, 4]).await.expect("a write");
        world.path.quiesce().await.expect("all disks are here");
        for slab in 0..world.shape.slabs {
            let at = world.shape.areas().data(slab).offset;
            (0..8).for_each(|unit| world.machine.scribble(SlotId(1), at + unit * UNIT, &bytes(99)));
        }
        world.machine.make_bad(SlotId(0), world.shape.areas().data(0).offset + 3 * UNIT, UNIT);
        let retire = Op::SetUsage { disk: DiskNumber(0), usage: Usage::Retired };
        world.book.change(&[retire]).expect("it may be");
        let left = world.path.evacuate(DiskNumber(0), &Progress::default()).await.expect("nothing fails");
        assert_eq!((left.moved, left.left), (1, 0));
        world.write(1..2, &[20]).await.expect("a write");
        world.machine.cut(PowerCut::KeepAll);
        let world = world.reopen().await;
        assert!(world.read(3..4).await.is_err(), "no copy has it");
        assert_eq!(world.read(0..3).await, Ok(vec![1, 20, 3]));
    });
}

/// A disk that was wrong for a while: what matches the checksum is the unit, and it is no longer lost.
#[test]
fn a_unit_that_is_here_again_is_found() {
    in_virtual_time(async {
        let world = with_rot(ALONE).await;
        assert!(world.read(3..4).await.is_err(), "it has rotted");
        world.path.quiesce().await.expect("the disk is well");
        let world = world.reopen().await;
        assert!(world.read(3..4).await.is_err(), "it is remembered");
        world.machine.flip(SlotId(0), world.shape.areas().data(0).offset + 3 * UNIT, 5);
        assert_eq!(world.read(3..4).await, Ok(vec![4]));
        fail_a_write(&world).await;
        assert_eq!(world.read(2..4).await, Ok(vec![3, 4]));
        let before = world.path.events.count(Found::Lost);
        world.space.scrub(&Progress::default()).await.expect("a scrub");
        assert_eq!(world.path.events.count(Found::Lost), before);
    });
}

/// The block of a row's only group on a disk.
fn block_of(world: &World, row: u32, disk: u16) -> u64 {
    let row = &world.book.state().rows[&(SPACE, RowNumber(row))];
    let place =
        row.slabs.iter().map(|c| c.place).find(|p| p.disk == DiskNumber(disk)).expect("it has a copy");
    world.shape.areas().checksums(place.slab).offset
}

/// The last copy's checksum block cannot be read: what it was of is lost, and nothing waits for it.
#[test]
fn a_block_that_cannot_be_read_stops_nothing_else() {
    in_virtual_time(async {
        let world = filled(Shape { disks: 3, rows_max: 2, ..Shape::MIRROR }).await;
        world.path.quiesce().await.expect("all disks are here");
        let has = |world: &World, row, disk| {
            let state = world.book.state();
            state.rows[&(SPACE, RowNumber(row))].slabs.iter().any(|c| c.place.disk == DiskNumber(disk))
        };
        let gone =
            (0..3).find(|d| has(&world, 0, *d) && has(&world, 1, *d)).expect("two rows on three disks");
        let bad = (0..3).find(|d| *d != gone && has(&world, 0, *d)).expect("two copies");
        world.machine.make_bad(SlotId(usize::from(bad)), block_of(&world, 0, bad), UNIT);
        let world = world.reopen().await;
        world.machine.pull(SlotId(usize::from(gone)), PowerCut::LoseAll);
        world.book.leave_now(DiskNumber(gone), Absence::Gone).expect("others have it");
        let left =
            world.path.evacuate(DiskNumber(gone), &Progress::default()).await.expect("nothing stops it");
        assert_eq!((left.moved, left.left), (2, 0));
        assert_eq!(world.read(512..513).await, Ok(vec![2]));
        assert!(world.read(0..1).await.is_err(), "its contents are unknown");
        world.space.scrub(&Progress::default()).await.expect("a scrub");
        let all: Vec<u64> = (1..=512).collect();
        world.write(0..512, &all).await.expect("all of it is new");
        world.path.quiesce().await.expect("two disks");
        let world = world.reopen().await;
        assert_eq!(world.read(0..512).await, Ok(all));
    });
}

/// A block rots while its table is in memory: a scrub sees it before the other copy's is all that there is.
#[test]
fn a_scrub_reads_the_blocks_of_what_memory_knows() {
    for medium in [false, true] {
        in_virtual_time(async {
            let world = filled(Shape { rows_max: 1, ..Shape::MIRROR }).await;
            let at = block_of(&world, 0, 0);
            match medium {
                true => world.machine.make_bad(SlotId(0), at, UNIT),
                false => world.machine.scribble(SlotId(0), at, &bytes(99)),
            }
            for _ in 0..2 {
                world.space.scrub(&Progress::default()).await.expect("a scrub");
                assert_eq!(world.path.events.count(Found::BadTable), 1);
                assert_eq!(world.path.events.newest().first().map(|f| f.disk), Some(DiskNumber(0)));
            }
            world.path.quiesce().await.expect("two disks");
            let world = world.reopen().await;
            world.machine.pull(SlotId(1), PowerCut::LoseAll);
            world.book.leave_now(DiskNumber(1), Absence::Gone).expect("the other has it");
            assert_eq!(world.read(0..1).await, Ok(vec![1]));
        });
    }
}

/// Blocks that are behind, being written, or of a copy that is away for a while are no damage.
#[test]
fn a_scrub_under_load_blames_nobody() {
    for seed in 0..40 {
        in_virtual_time(async {
            let world = World::new(Shape { rows_max: 2, ..Shape::MIRROR }, seed).await;
            let model = Mutex::new(Model::default());
            let load = Load { users: 3, steps: 40, units: 24, delay_ms: 3, rows: false };
            let scrubs = async {
                for turn in 0..12 {
                    world.env.sleep(Duration::from_millis(3)).await;
                    world.space.scrub(&Progress::default()).await.expect("a scrub");
                    if turn == 4 {
                        world.book.leave_now(DiskNumber(1), Absence::Gone).expect("the other is there");
                    } else if turn == 6 {
                        world.bring_back(1).await;
                    } else if turn == 8 {
                        world.path.resync(DiskNumber(1), &Progress::default()).await.expect("both are here");
                    }
                }
            };
            join(work(&world, load, seed, &model), scrubs).await;
            world.space.scrub(&Progress::default()).await.expect("a scrub");
            for found in [Found::BadTable, Found::Healed, Found::Lost] {
                assert_eq!(world.path.events.count(found), 0, "seed {seed}: {found:?}");
            }
            compare(&world, load, &model, &format!("seed {seed}")).await;
        });
    }
}
