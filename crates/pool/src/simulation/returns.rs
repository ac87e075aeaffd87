//! What is brought up to date while others use it, and the next disk that goes.

use std::time::Duration;

use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Disk, Op, PowerCut};
use env::Ctx;
use futures_util::future::BoxFuture;
use tokio::sync::MutexGuard;

use super::in_virtual_time;
use super::parity::{SINGLE, go};
use super::world::{SPACE, Shape, World};
use crate::events::Found;
use crate::jobs::Progress;
use crate::{DiskNumber, RowNumber, SpaceError};

/// The disk of a column of the first row.
fn disk(world: &World, column: usize) -> u16 {
    world.book.state().rows[&(SPACE, RowNumber(0))].slabs[column].place.disk.0
}

/// The first column's disk was away while its first unit became 21, and is back.
async fn behind(world: &World) {
    let first = disk(world, 0);
    go(world, &[first]).await;
    world.write(0..1, &[21]).await.expect("one may be away");
    world.machine.plug(SlotId(usize::from(first)));
    world.bring_back(first).await;
}

/// The resync of the first column, when all that it has to do is its record; and what keeps it from that.
async fn before_its_record<'a>(
    world: &'a World,
    progress: &'a Progress,
) -> (BoxFuture<'a, Result<(), SpaceError>>, MutexGuard<'a, ()>) {
    let mut resync: BoxFuture<'_, _> = Box::pin(world.path.resync(DiskNumber(disk(world, 0)), progress));
    let allocating = world.path.allocating.lock().await;
    tokio::select! {
        _ = &mut resync => panic!("nothing may be recorded"),
        () = world.env.sleep(Duration::from_secs(10)) => {}
    }
    (resync, allocating)
}

/// Another user of the pool keeps the resync from its record, memory needs the room of the table, and the
/// column is written meanwhile.
#[test]
fn sums_that_a_resync_found_stay_until_they_count() {
    in_virtual_time(async {
        let world = World::new(SINGLE, 1).await;
        world.write(0..2, &[11, 12]).await.expect("all disks are here");
        world.space.flush(&Ctx::default()).wait().await.expect("all disks are here");
        behind(&world).await;
        let progress = Progress::default();
        let (resync, allocating) = before_its_record(&world, &progress).await;
        world.space.inner.parity.as_ref().expect("it has parity").forget_clean();
        world.write(1..2, &[32]).await.expect("all disks are here");
        drop(allocating);
        resync.await.expect("all disks are here");
        go(&world, &[disk(&world, 1)]).await;
        assert_eq!(world.read(0..2).await, Ok(vec![21, 32]));
    });
}

/// A disk that cannot be spared goes and has missed nothing, though it lost what it was told last; then the
/// resync makes it one that can be spared.
#[test]
fn what_an_absent_column_lost_is_missed_when_another_counts_again() {
    in_virtual_time(async {
        let world = World::new(SINGLE, 1).await;
        world.write(0..4, &[11, 12, 13, 14]).await.expect("all disks are here");
        world.space.flush(&Ctx::default()).wait().await.expect("all disks are here");
        behind(&world).await;
        let progress = Progress::default();
        let (resync, allocating) = before_its_record(&world, &progress).await;
        world.write(2..3, &[33]).await.expect("all disks are here");
        let other = disk(&world, 1);
        go(&world, &[other]).await;
        drop(allocating);
        resync.await.expect("enough are here");
        world.path.quiesce().await.expect("enough are here");
        world.machine.plug(SlotId(usize::from(other)));
        world.bring_back(other).await;
        assert_eq!(world.read(0..4).await, Ok(vec![21, 12, 33, 14]));
    });
}

/// A resync that copied nothing ends while the space is to be opened anew: the journal is what there is.
#[test]
fn a_resync_that_copied_nothing_leaves_the_journal_alone() {
    in_virtual_time(async {
        let world = World::new(SINGLE, 1).await;
        world.write(0..4, &[11, 12, 13, 14]).await.expect("all disks are here");
        world.space.flush(&Ctx::default()).wait().await.expect("all disks are here");
        let striped = world.space.striped().expect("it has parity");
        let alone = striped.alone().await;
        striped.forget(DiskNumber(disk(&world, 0)));
        drop(alone);
        let none = striped.resynced(RowNumber(0), 0, 0).await;
        assert!(none.expect("all disks are here").is_none());
        assert_eq!(world.read(0..4).await, Ok(vec![11, 12, 13, 14]));
    });
}

/// A task that made its decision while the column was behind, and waits for another disk that is removed when
/// the column is up to date, decides again: nothing is lost.
#[test]
fn what_a_resync_brought_meanwhile_is_found() {
    in_virtual_time(async {
        let world = World::new(SINGLE, 1).await;
        world.write(0..4, &[11, 12, 13, 14]).await.expect("all disks are here");
        behind(&world).await;
        let progress = Progress::default();
        let (resync, allocating) = before_its_record(&world, &progress).await;
        let second = Duration::from_secs(1);
        let other = SlotId(usize::from(disk(&world, 1)));
        world.machine.rule(other, Rule::new(Op::Read, When::Nth(0), Fault::Slow(second)));
        let mut read = Box::pin(world.read(0..1));
        tokio::select! {
            _ = &mut read => panic!("the other disk is slow"),
            () = world.env.sleep(second / 10) => {}
        }
        drop(allocating);
        resync.await.expect("all disks are here");
        world.machine.pull(other, PowerCut::KeepAll);
        assert_eq!(read.await, Ok(vec![21]));
        assert_eq!(world.path.events.count(Found::Lost), 0);
    });
}

/// What a resync has copied is not what was settled meanwhile: a write of which one disk took the new, and
/// the only one that counts kept the old.
#[test]
fn what_is_settled_during_a_resync_reaches_the_disk_that_is_behind() {
    in_virtual_time(async {
        // A disk that says no may have written.
        let mut old = 0;
        for seed in 0..8 {
            let world = World::new(Shape::MIRROR, seed).await;
            world.write(0..2, &[11, 12]).await.expect("both disks are here");
            world.space.flush_all().await.expect("both disks are here");
            go(&world, &[1]).await;
            world.write(0..2, &[21, 22]).await.expect("one may be away");
            world.space.flush_all().await.expect("one is here");
            world.machine.plug(SlotId(1));
            world.bring_back(1).await;
            let progress = Progress::default();
            let mut resync = Box::pin(world.path.resync(DiskNumber(1), &progress));
            let allocating = world.path.allocating.lock().await;
            tokio::select! {
                _ = &mut resync => panic!("nothing may be recorded"),
                () = world.env.sleep(Duration::from_secs(10)) => {}
            }
            let data = world.shape.areas().data(0);
            let rule = Rule::new(Op::Write, When::Nth(0), Fault::Error).within(data.offset..data.end());
            world.machine.rule(SlotId(0), rule);
            assert!(world.write(0..1, &[31]).await.is_err(), "the only one that counts failed it");
            let settled = world.read(0..2).await.expect("it is old or new");
            old += u32::from(settled == [21, 22]);
            drop(allocating);
            resync.await.expect("both disks are here");
            world.path.resync(DiskNumber(1), &progress).await.expect("both disks are here");
            assert!(world.book.state().rows.values().flat_map(|r| &r.slabs).all(|c| c.missed == 0));
            assert_eq!(world.read(0..2).await, Ok(settled.clone()));
            go(&world, &[0]).await;
            assert_eq!(world.read(0..2).await, Ok(settled));
            assert_eq!(world.path.events.count(Found::Healed), 0);
        }
        assert!(old > 0, "the old data was chosen now and then");
    });
}
