//! Local reconstruction codes: what they read, what they write, and what they survive beyond the promise.

use disk::PowerCut;
use disk::sim::SlotId;

use super::in_virtual_time;
use super::parity::{DUAL, go, resynced};
use super::world::{Shape, World};
use crate::RowNumber;
use crate::events::Found;

/// LRC (4,2,1): columns 0, 1 and 4 are a group, 2, 3 and 5 another, 6 is the global one.
pub(super) const LOCAL: Shape = Shape { groups: 2, columns: 4, disks: 7, interleave: 4 << 10, ..DUAL };
/// LRC (8,2,1).
pub(super) const LOCAL_WIDE: Shape = Shape { columns: 8, disks: 12, ..LOCAL };

/// The same of LRC (8,2,1): a unit has a part in its group's parity and in the global one, and in no other.
#[test]
fn what_writes_cost_with_local_reconstruction() {
    in_virtual_time(async {
        let world = World::new(LOCAL_WIDE, 1).await;
        let cost = async |units: std::ops::Range<u64>| {
            let before = world.space.parity_counts().expect("it has parity");
            let values: Vec<u64> = units.clone().map(|u| u + 1).collect();
            world.write(units, &values).await.expect("a write");
            let after = world.space.parity_counts().expect("it has parity");
            let reads = after.read_to_write - before.read_to_write;
            (reads, after.in_place - before.in_place, after.journal - before.journal)
        };
        assert_eq!(cost(0..8).await, (0, 11, 0), "a full stripe that is new");
        assert_eq!(cost(8..9).await, (0, 3, 0), "a unit of a new stripe");
        assert_eq!(cost(12..13).await, (1, 3, 0), "one of the other group: the first is read");
        assert_eq!(cost(9..10).await, (2, 3, 0), "one of the first group");
        assert_eq!(cost(10..11).await, (2, 3, 0), "another one: two parities are read, not three units");
        world.space.flush_all().await.expect("a flush");
        assert_eq!(cost(0..8).await, (0, 11, 12), "a full stripe over another");
        assert_eq!(cost(0..1).await, (3, 3, 4), "a unit: it and two parities are read");
        assert_eq!(cost(4..6).await, (4, 4, 5), "two of a group");
        assert_eq!(cost(3..5).await, (5, 5, 6), "one of each group");
        let read = world.read(0..16).await.expect("a read");
        assert_eq!(read, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 13, 0, 0, 0]);
    });
}

/// The disk of a column of the first row.
fn disk_of(world: &World, column: usize) -> u16 {
    world.book.state().rows[&(world.space.id(), RowNumber(0))].slabs[column].place.disk.0
}

/// Which columns of the first row were read, and how many reads there were, while something is done.
async fn columns_read(world: &World, what: impl Future<Output = ()>) -> (Vec<usize>, u64) {
    let counts = || {
        (0..world.shape.columns as usize + 3)
            .map(|c| world.machine.counts(SlotId(usize::from(disk_of(world, c)))).reads)
    };
    let before: Vec<u64> = counts().collect();
    what.await;
    let reads: Vec<u64> = counts().zip(before).map(|(now, before)| now - before).collect();
    let read = reads.iter().enumerate().filter(|(_, n)| **n > 0).map(|(c, _)| c);
    (read.collect(), reads.iter().sum())
}

/// With LRC (8,2,1) one lost column is read from the four others of its group: half of what another code would read.
#[test]
fn a_lost_column_is_read_from_its_group_only() {
    in_virtual_time(async {
        for (lost, asked) in
            [(0, [1, 2, 3, 8].as_slice()), (3, &[0, 1, 2, 8]), (4, &[5, 6, 7, 9]), (7, &[4, 5, 6, 9])]
        {
            let world = World::new(LOCAL_WIDE, 1).await;
            world.write(0..16, &(1..17).collect::<Vec<_>>()).await.expect("a write");
            world.path.quiesce().await.expect("all disks");
            go(&world, &[disk_of(&world, lost)]).await;
            let unit = lost as u64;
            // Its table is known from now on.
            assert_eq!(world.read(unit + 8..unit + 9).await, Ok(vec![unit + 9]));
            let read = async { assert_eq!(world.read(unit..unit + 1).await, Ok(vec![unit + 1])) };
            let (columns, reads) = columns_read(&world, read).await;
            assert_eq!((&columns[..], reads), (asked, 4), "without {lost}");
            // One of the group is rotten: all others are asked, and it is put right.
            let place = world.book.state().rows[&(world.space.id(), RowNumber(0))].slabs[asked[0]].place;
            let at = world.shape.areas().data(place.slab).offset + 77;
            world.machine.flip(SlotId(usize::from(place.disk.0)), at, 3);
            let read = async { assert_eq!(world.read(unit..unit + 1).await, Ok(vec![unit + 1])) };
            let (columns, _) = columns_read(&world, read).await;
            assert_eq!((columns.len(), world.path.events.count(Found::Healed)), (10, 1), "without {lost}");
            let read = async { assert_eq!(world.read(unit..unit + 1).await, Ok(vec![unit + 1])) };
            assert_eq!(columns_read(&world, read).await.1, 4, "without {lost}: put right");
        }
    });
}

/// A column that was away, data or parity, is brought up to date from its group; the global one from the data.
#[test]
fn a_column_is_brought_up_to_date_from_its_group_only() {
    in_virtual_time(async {
        let others = |c: usize| match c {
            0..4 | 8 => vec![0, 1, 2, 3, 8],
            4..8 | 9 => vec![4, 5, 6, 7, 9],
            _ => (0..8).chain([10]).collect::<Vec<_>>(),
        };
        for column in [1, 6, 8, 9, 10] {
            // The journal is on nine other disks.
            let world = World::new(Shape { disks: 20, ..LOCAL_WIDE }, 1).await;
            world.write(0..16, &(1..17).collect::<Vec<_>>()).await.expect("a write");
            world.path.quiesce().await.expect("all disks");
            let disk = disk_of(&world, column);
            go(&world, &[disk]).await;
            world.write(0..16, &(101..117).collect::<Vec<_>>()).await.expect("ten disks");
            world.path.quiesce().await.expect("ten disks");
            world.machine.plug(SlotId(usize::from(disk)));
            world.bring_back(disk).await;
            // All blocks are read before the copying begins.
            world.read(0..16).await.expect("a read");
            let (columns, _) = columns_read(&world, resynced(&world, "back")).await;
            let expected: Vec<usize> = others(column).into_iter().filter(|c| *c != column).collect();
            assert_eq!(columns, expected, "column {column}");
            go(&world, &[disk_of(&world, (column + 1) % 8), disk_of(&world, 8 + (column + 1) % 3)]).await;
            assert_eq!(world.read(0..16).await.expect("nine disks"), (101..117).collect::<Vec<_>>());
        }
    });
}

/// Three disks may be lost if no more than one of them is beyond one of its group: reads, writes, and what
/// comes back. Others may not.
#[test]
fn three_lost_disks_of_different_groups_are_survived() {
    // The journal, which survives two, is on six other disks.
    let shape = Shape { disks: 13, ..LOCAL };
    let all: Vec<u64> = (1..=12).collect();
    for columns in [[0, 2, 6], [4, 5, 6], [0, 1, 3], [0, 1, 5], [1, 4, 2]] {
        in_virtual_time(async {
            let world = World::new(shape, 1).await;
            world.write(0..12, &all).await.expect("a write");
            world.space.flush_all().await.expect("a flush");
            let disks = columns.map(|c| disk_of(&world, c));
            go(&world, &disks).await;
            assert_eq!(world.read(0..12).await.as_ref(), Ok(&all), "without {columns:?}");
            world.write(2..7, &[13, 14, 15, 16, 17]).await.expect("a write");
            let now = [1, 2, 13, 14, 15, 16, 17, 8, 9, 10, 11, 12];
            world.machine.cut(PowerCut::LoseAll);
            let world = world.reopen().await;
            assert_eq!(world.read(0..12).await.expect("a read"), now, "without {columns:?}");
            for disk in disks {
                world.machine.plug(SlotId(usize::from(disk)));
                world.bring_back(disk).await;
            }
            resynced(&world, "all are back").await;
            go(&world, &[disk_of(&world, 3), disk_of(&world, 5)]).await;
            assert_eq!(world.read(0..12).await.expect("a read"), now, "back without {columns:?}");
        });
    }
    for columns in [[0, 1, 4], [0, 4, 6], [2, 3, 6]] {
        in_virtual_time(async {
            let world = World::new(shape, 1).await;
            world.write(0..12, &all).await.expect("a write");
            world.space.flush_all().await.expect("a flush");
            let disks = columns.map(|c| disk_of(&world, c));
            go(&world, &disks).await;
            assert!(world.write(0..1, &[99]).await.is_err(), "without {columns:?}");
            assert!(world.read(0..4).await.is_err(), "without {columns:?}");
            world.machine.plug(SlotId(usize::from(disks[2])));
            world.bring_back(disks[2]).await;
            assert_eq!(world.read(0..12).await.as_ref(), Ok(&all), "{columns:?} but one");
        });
    }
}
