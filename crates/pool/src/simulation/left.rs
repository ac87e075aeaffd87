//! What waits for a disk keeps nothing else from being durable, from being brought up to date, or from being written.

use std::time::Duration;

use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Op, PowerCut};
use futures_util::future::{Either, select};

use super::in_virtual_time;
use super::parity::{SINGLE, go};
use super::world::{SPACE, Shape, World};
use crate::blocks::activity::BLOCKS;
use crate::jobs::Progress;
use crate::{DiskNumber, RowNumber};

const FOUR: Shape = Shape { disks: 4, ..Shape::MIRROR };
pub(super) const PARITY: Shape = Shape { disks: 6, ..SINGLE };

pub(super) fn disks_of(world: &World, row: u32) -> Vec<u16> {
    world.book.state().rows[&(SPACE, RowNumber(row))].slabs.iter().map(|c| c.place.disk.0).collect()
}

pub(super) fn row_units(world: &World) -> u64 {
    world.space.inner.layout.row_bytes() / crate::UNIT
}

/// Two rows without a disk in common, both with four units that are durable; and their disks.
pub(super) async fn two_rows(shape: Shape) -> (World, Vec<u16>, Vec<u16>) {
    let world = World::new(shape, 1).await;
    let second = row_units(&world);
    world.write(0..4, &[1, 2, 3, 4]).await.expect("all disks are here");
    world.write(second..second + 4, &[5, 6, 7, 8]).await.expect("all disks are here");
    world.path.quiesce().await.expect("all disks are here");
    let (first, other) = (disks_of(&world, 0), disks_of(&world, 1));
    assert!(first.iter().all(|d| !other.contains(d)), "{first:?} {other:?}");
    (world, first, other)
}

/// The same; of the first row as many disks are away as may be, and another one takes writes and no flush.
async fn half_dead(shape: Shape) -> (World, u16) {
    let (world, first, _) = two_rows(shape).await;
    go(&world, &first[1..2]).await;
    world.machine.rule(SlotId(usize::from(first[0])), Rule::new(Op::Flush, When::From(0), Fault::Error));
    world.write(4..5, &[9]).await.expect("it takes writes");
    (world, first[0])
}

#[test]
fn what_waits_for_a_disk_keeps_nothing_else_from_being_durable() {
    for shape in [FOUR, PARITY] {
        in_virtual_time(async {
            let (world, dead) = half_dead(shape).await;
            let second = row_units(&world);
            world.write(second + 4..second + 6, &[10, 11]).await.expect("its disks are well");
            for _ in 0..2 {
                world.space.flush_for_user().await.expect_err("what was written first is not durable");
            }
            world.machine.no_rules(SlotId(usize::from(dead)));
            world.machine.cut(PowerCut::LoseAll);
            let world = world.reopen().await;
            assert_eq!(world.read(second..second + 6).await, Ok(vec![5, 6, 7, 8, 10, 11]));
            assert_eq!(world.read(0..4).await, Ok(vec![1, 2, 3, 4]));
            let old_or_new = world.read(4..5).await.expect("old or new")[0];
            assert!([0, 9].contains(&old_or_new), "{old_or_new}");
        });
    }
}

/// When the disk takes blocks again, the next flush makes all of it durable.
#[test]
fn what_was_left_is_made_durable_later() {
    in_virtual_time(async {
        let world = World::new(FOUR, 1).await;
        world.write(0..4, &[1, 2, 3, 4]).await.expect("all disks are here");
        world.path.quiesce().await.expect("all disks are here");
        let first = disks_of(&world, 0);
        go(&world, &first[1..2]).await;
        let slot = SlotId(usize::from(first[0]));
        for slab in 0..FOUR.slabs {
            let blocks = FOUR.areas().checksums(slab);
            let rule = Rule::new(Op::Write, When::From(0), Fault::Error);
            world.machine.rule(slot, rule.within(blocks.offset..blocks.end()));
        }
        world.write(0..1, &[9]).await.expect("it takes writes");
        world.space.flush_for_user().await.expect_err("it is not durable");
        world.machine.no_rules(slot);
        world.space.flush_for_user().await.expect("it is well again");
        world.machine.cut(PowerCut::LoseAll);
        let world = world.reopen().await;
        assert_eq!(world.read(0..4).await, Ok(vec![9, 2, 3, 4]));
    });
}

#[test]
fn what_waits_for_a_disk_keeps_no_other_from_being_brought_up_to_date() {
    for shape in [FOUR, PARITY] {
        in_virtual_time(async {
            let (world, _) = half_dead(shape).await;
            let second = row_units(&world);
            let away = disks_of(&world, 1)[1];
            go(&world, &[away]).await;
            world.write(second..second + 2, &[50, 60]).await.expect("the others are here");
            world.machine.plug(SlotId(usize::from(away)));
            world.bring_back(away).await;
            world.path.resync(DiskNumber(away), &Progress::default()).await.expect("the others have it");
            let state = world.book.state();
            let missed = state.rows[&(SPACE, RowNumber(1))].slabs.iter().fold(0, |all, c| all | c.missed);
            assert_eq!(missed, 0);
            go(&world, &[disks_of(&world, 1)[0]]).await;
            assert_eq!(world.read(second..second + 4).await, Ok(vec![50, 60, 7, 8]));
        });
    }
}

/// All entries of a disk's log are of rows that only the other one has, which is away since a crash.
#[test]
fn a_log_of_what_waits_for_another_disk_takes_writes() {
    let entries = BLOCKS as u32;
    let shape = Shape { slabs: entries + 2, log_entries: 1, ..Shape::MIRROR };
    in_virtual_time(async {
        let world = World::new(shape, 1).await;
        let per = row_units(&world);
        for row in 0..u64::from(entries) + 1 {
            world.write(row * per..row * per + 1, &[row + 1]).await.expect("both are here");
        }
        world.path.quiesce().await.expect("both are here");
        go(&world, &[0]).await;
        for row in 0..u64::from(entries) {
            world.write(row * per..row * per + 1, &[row + 101]).await.expect("the other is here");
        }
        world.machine.plug(SlotId(0));
        world.bring_back(0).await;
        for row in 0..u64::from(entries) {
            world.write(row * per..row * per + 1, &[row + 201]).await.expect("both are here");
        }
        world.machine.cut(PowerCut::KeepAll);
        world.machine.restart();
        world.machine.pull(SlotId(1), PowerCut::KeepAll);
        let world = world.reopen().await;
        world.machine.pull(SlotId(1), PowerCut::KeepAll);
        if world.book.state().is_present(DiskNumber(1)) {
            world.book.leave_now(DiskNumber(1), crate::Absence::Gone).expect("it may leave");
        }
        let last = u64::from(entries) * per;
        let write = Box::pin(world.write(last..last + 1, &[7]));
        match select(write, Box::pin(world.env.sleep(Duration::from_secs(600)))).await {
            Either::Left((written, _)) => written.expect("its disk is well"),
            Either::Right(_) => panic!("it waits for ever"),
        }
        world.space.flush_all().await.expect("its disk is well");
        world.machine.plug(SlotId(1));
        world.bring_back(1).await;
        for row in 0..u64::from(entries) {
            assert_eq!(world.read(row * per..row * per + 1).await, Ok(vec![row + 201]));
        }
    });
}

#[test]
fn what_waits_for_a_disk_keeps_nobody_from_reading_the_rest() {
    for shape in [FOUR, PARITY] {
        in_virtual_time(async {
            let (world, _) = half_dead(shape).await;
            world.space.flush_for_user().await.expect_err("what was written first is not durable");
            world.space.scrub(&Progress::default()).await.expect("nothing is wrong with what is there");
            let ended = world.space.scrub_recorded(true, true, &Progress::default()).await;
            assert_eq!(ended, Ok(true));
        });
    }
}
