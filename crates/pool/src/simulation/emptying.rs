//! Discards in pieces: rows that they leave empty are free, and no others.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use disk::Disk;
use disk::PowerCut;
use disk::sim::SlotId;
use env::Ctx;

use super::local::LOCAL;
use super::parity::go;
use super::world::{SPACE, Shape, World};
use super::{Random, in_virtual_time};
use crate::{RowNumber, UNIT};

/// Two groups in each slab.
const BASE: Shape = Shape { slab_bytes: 4 << 20, slabs: 6, rows_max: 2, log_entries: 16, ..Shape::MIRROR };
const SIMPLE: Shape = Shape { copies: 1, columns: 2, ..BASE };
const PARITY: Shape = Shape { copies: 1, parity: 1, columns: 2, disks: 3, ..BASE };

fn shapes() -> [Shape; 5] {
    [
        SIMPLE,
        Shape { columns: 2, disks: 4, ..BASE },
        PARITY,
        Shape { parity: 2, disks: 4, ..PARITY },
        Shape { slab_bytes: 4 << 20, slabs: 6, rows_max: 2, log_entries: 16, ..LOCAL },
    ]
}

fn has_row(world: &World, row: u32) -> bool {
    world.book.state().rows.contains_key(&(SPACE, RowNumber(row)))
}

async fn discard(world: &World, units: Range<u64>) {
    let (offset, length) = (units.start * UNIT, (units.end - units.start) * UNIT);
    world.space.discard(&Ctx::default(), offset, length).wait().await.expect("all disks are here");
}

async fn flush(world: &World) {
    world.space.flush(&Ctx::default()).wait().await.expect("all disks are here");
}

/// Upwards, downwards, and in no order; flushed in between or not.
#[test]
fn the_piece_that_empties_a_row_frees_it() {
    for (n, shape) in shapes().into_iter().enumerate() {
        for order in 0..6 {
            let what = format!("{shape:?}, order {order}");
            in_virtual_time(async {
                let world = World::new(shape, 1).await;
                let row_units = world.space.inner.layout.row_bytes() / UNIT;
                let piece = row_units / 16;
                let mut written = vec![0..3, row_units / 2..row_units / 2 + 1, row_units - 2..row_units];
                written.push(row_units / 16 * 5 - 1..row_units / 16 * 5 + 1);
                for range in &written {
                    let values: Vec<u64> = range.clone().map(|u| u + 1).collect();
                    world.write(range.clone(), &values).await.expect("all disks are here");
                }
                world.write(row_units..row_units + 1, &[77]).await.expect("all disks are here");
                if order >= 3 {
                    flush(&world).await;
                }
                let mut pieces: Vec<u64> = (0..16).collect();
                match order % 3 {
                    0 => {}
                    1 => pieces.reverse(),
                    _ => {
                        let mut random = Random(n as u64);
                        pieces.sort_by_cached_key(|_| random.below(1000));
                    }
                }
                let mut left: Vec<u64> = written.into_iter().flatten().collect();
                for p in pieces {
                    let gone = p * piece..(p + 1) * piece;
                    discard(&world, gone.clone()).await;
                    left.retain(|u| !gone.contains(u));
                    assert_eq!(has_row(&world, 0), !left.is_empty(), "{what}: after piece {p}");
                }
                assert!(has_row(&world, 1), "{what}");
                assert_eq!(world.read(0..3).await, Ok(vec![0; 3]), "{what}");
                world.write(1..3, &[5, 6]).await.expect("all disks are here");
                assert_eq!(world.read(0..3).await, Ok(vec![0, 5, 6]), "{what}");
                assert_eq!(world.read(row_units..row_units + 1).await, Ok(vec![77]), "{what}");
                discard(&world, 1..2).await;
                assert!(has_row(&world, 0), "{what}: a unit is left");
                discard(&world, 2..3).await;
                assert!(!has_row(&world, 0), "{what}: the only unit again");
            });
        }
    }
}

/// What another column has is not known while its disk is away.
#[test]
fn what_could_not_be_looked_at_is_freed_by_a_flush() {
    in_virtual_time(async {
        let world = World::new(SIMPLE, 1).await;
        world.write(0..1, &[1]).await.expect("all disks are here");
        flush(&world).await;
        world.space.inner.groups.forget_clean();
        let other = world.book.state().rows[&(SPACE, RowNumber(0))].slabs[1].place.disk.0;
        go(&world, &[other]).await;
        discard(&world, 0..1).await;
        flush(&world).await;
        assert!(has_row(&world, 0));
        world.machine.plug(SlotId(usize::from(other)));
        world.bring_back(other).await;
        assert!(has_row(&world, 0));
        flush(&world).await;
        assert!(!has_row(&world, 0));
    });
}

/// A crash comes between the last discard, which is durable, and the record that would free the row: the next
/// life knows of no witness.
#[test]
fn the_next_life_frees_what_this_one_left() {
    for shape in shapes() {
        in_virtual_time(async {
            let world = World::new(shape, 1).await;
            world.write(0..4, &[1, 2, 3, 4]).await.expect("all disks are here");
            flush(&world).await;
            // A search is in progress and does not end.
            let inner = Arc::clone(&world.space.inner);
            let look = inner.emptying.discarded(RowNumber(0), &(0..UNIT));
            discard(&world, 0..4).await;
            flush(&world).await;
            let world = world.reopen().await;
            assert!(has_row(&world, 0), "{shape:?}");
            assert_eq!(world.read(0..4).await, Ok(vec![0; 4]), "{shape:?}");
            discard(&world, 9..10).await;
            assert!(!has_row(&world, 0), "{shape:?}");
            drop(look);
        });
    }
}

/// A write during the search keeps the row.
#[test]
fn what_is_written_meanwhile_stays() {
    for shape in shapes() {
        in_virtual_time(async {
            let world = World::new(shape, 1).await;
            let row_units = world.space.inner.layout.row_bytes() / UNIT;
            world.write(0..4, &[1, 2, 3, 4]).await.expect("all disks are here");
            let allocating = world.path.allocating.lock().await;
            let begun = world.space.discard(&Ctx::default(), 0, 4 * UNIT);
            let mut discarded = Box::pin(begun.wait());
            let mut written = Box::pin(world.write(row_units - 1..row_units, &[9]));
            tokio::select! {
                _ = &mut discarded => panic!("{shape:?}: no row may be freed"),
                _ = &mut written => panic!("{shape:?}: it waits for who is about to free the row"),
                () = world.env.sleep(Duration::from_secs(10)) => {}
            }
            drop(allocating);
            discarded.await.expect("all disks are here");
            written.await.expect("all disks are here");
            assert_eq!(world.read(row_units - 1..row_units).await, Ok(vec![9]), "{shape:?}");
            assert_eq!(world.read(0..4).await, Ok(vec![0; 4]), "{shape:?}");
        });
    }
}

/// A crash in the middle of a destruction leaves the space or nothing: never a journal without its space,
/// which would go unnoticed. The contents of its journal cannot be carried out any more: two disks are gone.
#[test]
fn a_space_that_cannot_be_opened_can_be_destroyed() {
    in_virtual_time(async {
        let world = World::new(PARITY, 1).await;
        world.write(0..3, &[1, 2, 3]).await.expect("all disks are here");
        flush(&world).await;
        world.write(0..1, &[9]).await.expect("all disks are here");
        world.machine.cut(PowerCut::KeepAll);
        let world = world.reopen().await;
        let slabs = world.book.state().rows[&(SPACE, RowNumber(0))].slabs.clone();
        go(&world, &[slabs[0].place.disk.0, slabs[1].place.disk.0]).await;
        assert!(world.read(0..1).await.is_err());
        world.path.destroy_space(SPACE).await.expect("nothing of it is needed");
        let state = world.book.state();
        assert!(state.spaces.is_empty() && state.rows.is_empty() && state.slabs_allocated() == 0);
    });
}

#[test]
fn a_journal_goes_with_its_space() {
    for shape in [BASE, PARITY] {
        in_virtual_time(async {
            let world = World::new(shape, 1).await;
            world.write(0..3, &[1, 2, 3]).await.expect("all disks are here");
            flush(&world).await;
            let spaces = world.book.state().spaces.len();
            world.path.destroy_space(SPACE).await.expect("all disks are here");
            let states = world.book.states();
            assert!(states.iter().all(|s| s.spaces.len() == spaces || s.spaces.is_empty()), "{shape:?}");
            let last = states.last().expect("there is one");
            assert!(last.spaces.is_empty() && last.rows.is_empty() && last.slabs_allocated() == 0);
            world.path.quiesce().await.expect("nothing is left of it");
        });
    }
}

/// Also where the size ends in the middle of a row, while the space is open and after a power cut.
#[test]
fn what_a_space_lost_when_it_became_smaller_is_zeros_when_it_grows_again() {
    for shape in shapes() {
        for cut in [None, Some(PowerCut::LoseAll)] {
            in_virtual_time(async {
                let mut world = World::new(shape, 1).await;
                let (size, row_units) =
                    (world.space.inner.size(), world.space.inner.layout.row_bytes() / UNIT);
                world.write(0..4, &[1, 2, 3, 4]).await.expect("all disks are here");
                world.write(row_units..row_units + 1, &[7]).await.expect("all disks are here");
                world.path.resize_space(SPACE, 2 * UNIT).await.expect("smaller");
                assert!(has_row(&world, 0) && !has_row(&world, 1), "{shape:?}");
                assert!(world.read(2..4).await.is_err(), "{shape:?}: it is beyond the end");
                let opened = world.path.space(SPACE).expect("it is there");
                assert_eq!(opened.info().geometry.size, 2 * UNIT, "{shape:?}");
                if let Some(cut) = cut {
                    world.machine.cut(cut);
                    world = world.reopen().await;
                }
                world.path.resize_space(SPACE, size).await.expect("larger");
                assert_eq!(world.read(0..4).await, Ok(vec![1, 2, 0, 0]), "{shape:?}, {cut:?}");
                assert_eq!(world.read(row_units..row_units + 1).await, Ok(vec![0]), "{shape:?}, {cut:?}");
            });
        }
    }
}
