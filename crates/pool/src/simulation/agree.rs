//! Stripes whose columns are each as their sums say, and do not agree: what a disk leaves that lost data and
//! block together, and a crash after it.

use disk::sim::SlotId;

use super::in_virtual_time;
use super::local::LOCAL;
use super::moves::filled;
use super::parity::{DUAL, SINGLE, go};
use super::world::{SPACE, Shape, World, bytes};
use crate::blocks::checksums::checksum;
use crate::blocks::stripes::{decode, encode};
use crate::blocks::{BLOCK, BlockId};
use crate::events::Found;
use crate::jobs::Progress;
use crate::{DiskNumber, RowNumber, UNIT};

const ROW: RowNumber = RowNumber(0);

/// Puts another value into the first unit of a column, with a block that matches. The pool is closed.
fn forge(world: &World, column: usize, value: u64) {
    let copy = world.book.state().rows[&(SPACE, ROW)].slabs[column];
    let (slot, areas) = (SlotId(usize::from(copy.place.disk.0)), world.shape.areas());
    let data = bytes(value);
    world.machine.scribble(slot, areas.data(copy.place.slab).offset, &data);
    let at = areas.checksums(copy.place.slab).offset;
    let id = BlockId {
        pool: world.path.pool,
        space: SPACE,
        row: ROW,
        index: column as u8,
        group: 0,
        allocation: copy.generation,
    };
    let code = world.book.state().spaces[&SPACE].code().expect("it has parity");
    let before = world.machine.image(slot).to_vec(at, BLOCK);
    let mut block = decode(&before, &id, code.data(), code.parity()).expect("it is whole");
    block.sums[0] = checksum(SPACE, ROW, column as u8, 0, [&data[..]]);
    world.machine.scribble(slot, at, &encode(&id, &block));
}

/// A scrub makes them agree: on the other columns' result if that is known, else on the data that users read.
/// From then on the contents are the same after any loss.
#[test]
fn a_scrub_makes_columns_agree() {
    for (shape, tells) in [(SINGLE, false), (DUAL, true), (LOCAL, true)] {
        for column in 0..usize::from(shape.columns + shape.parity + shape.groups - 1) {
            in_virtual_time(async {
                let what = format!("{shape:?}, column {column}");
                let mut world = filled(Shape { rows_max: 1, ..shape }).await;
                let all = 0..u64::from(shape.columns) * u64::from(shape.interleave) / UNIT;
                let values: Vec<u64> = all.clone().map(|u| 100 + u).collect();
                world.write(all.clone(), &values).await.expect("a write");
                world.path.quiesce().await.expect("all is in its place");
                forge(&world, column, 7);
                world = world.reopen().await;
                let mut expected = values.clone();
                if !tells && column < usize::from(shape.columns) {
                    expected[column * shape.interleave as usize / UNIT as usize] = 7;
                }
                world.space.scrub(&Progress::default()).await.expect("a scrub");
                assert_eq!(world.path.events.count(Found::Unsettled), 1, "{what}");
                assert_eq!(world.read(all.clone()).await.as_ref(), Ok(&expected), "{what}");
                world.space.scrub(&Progress::default()).await.expect("a scrub");
                assert_eq!(world.path.events.count(Found::Unsettled), 1, "{what}: once");
                world.path.quiesce().await.expect("all is in its place");
                let world = world.reopen().await;
                let disk = |c: usize| world.book.state().rows[&(SPACE, ROW)].slabs[c].place.disk;
                let DiskNumber(gone) = disk(column.min(usize::from(shape.columns) - 1));
                go(&world, &[gone]).await;
                assert_eq!(world.read(all).await, Ok(expected), "{what}: without a disk");
            });
        }
    }
}
