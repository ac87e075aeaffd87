//! Part 1, point 15: a lost unit can be written and read again, whichever other units of its stripe are lost.

use pool_seam::RowNumber;

use super::*;

const ROW: RowNumber = RowNumber(0);
/// Consecutive units of each column: 16 KiB.
const PIECE: u64 = 4;

/// The unit of the space that is stripe 2 of a data column.
fn unit(column: u64) -> u64 {
    column * PIECE + 2
}

fn flip(world: &World, slab: usize) {
    let view = world.rig.view_now();
    let place = view.record.rows[&ROW].slabs[slab].place;
    let at = view.disks[&place.disk].areas.data(place.slab).offset + 2 * UNIT;
    world.rig.machine.flip(SlotId(place.disk.0.into()), at, 4);
}

/// Every set of columns that the parities cannot reconstruct, and every order in which their units are written.
#[test]
fn a_lost_unit_is_written_beside_another() {
    for parity in 1..=2_u8 {
        let columns = 3 + u32::from(parity);
        for lost in (0..1_u32 << columns).filter(|lost| lost.count_ones() > u32::from(parity)) {
            for (is_found, is_cold, is_reversed) in
                [(false, false, false), (true, false, true), (false, true, true), (true, true, false)]
            {
                virtual_time(async {
                    let what = format!(
                        "3 + {parity}, lost {lost:b}, found {is_found}, cold {is_cold}, {is_reversed}"
                    );
                    let mut world = World::new(&coded(u64::from(lost), parity)).await;
                    world.write(0..24, true).await.unwrap();
                    world.space.checkpoint().await.unwrap();
                    if is_cold {
                        world.space.close().wait().await.unwrap();
                        world = world.crashed(PowerCut::LoseAll, |_| {}).await;
                    }
                    (0..columns).filter(|c| lost & 1 << c != 0).for_each(|slab| flip(&world, slab as usize));
                    let is_lost = |column: &u64| lost & 1 << column != 0;
                    if is_found {
                        for column in (0..3).filter(is_lost) {
                            let read = world.read(unit(column)..unit(column) + 1).await;
                            assert!(matches!(read, Err(SpaceError::Corrupt { .. })), "{what}: {read:?}");
                        }
                        world.space.run(JobId(1), JobOrder::Scrub(ROW)).wait().await.unwrap();
                    }
                    let mut order: Vec<u64> = (0..3).filter(is_lost).collect();
                    if is_reversed {
                        order.reverse();
                    }
                    for (written, column) in order.iter().enumerate() {
                        let one = unit(*column)..unit(*column) + 1;
                        world.write(one.clone(), written % 2 == 0).await.unwrap();
                        world.read(one.clone()).await.unwrap();
                        // Units that are not lost keep their contents.
                        for other in (0..3).filter(|c| !is_lost(c) || order[..written].contains(c)) {
                            let read = world.read(unit(other)..unit(other) + 1).await;
                            assert_eq!(read, Ok(()), "{what}: column {other} after {written}");
                        }
                        for other in &order[written + 1..] {
                            let read = world.read(unit(*other)..unit(*other) + 1).await;
                            let is_right = matches!(read, Ok(()) | Err(SpaceError::Corrupt { .. }));
                            assert!(is_right, "{what}: {read:?}");
                        }
                        world.flush().await.unwrap();
                        if written == 0 {
                            world = world.crashed(PowerCut::LoseAll, |_| {}).await;
                            world.read(one.clone()).await.unwrap();
                            world.space.resolve().await.unwrap();
                            world.space.checkpoint().await.unwrap();
                            world.read(one).await.unwrap();
                        }
                    }
                    world.read(0..24).await.unwrap();
                    let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
                    world.read(0..24).await.unwrap();
                    // All parities of the stripe are valid again: they reconstruct a unit that is damaged now.
                    world.space.run(JobId(2), JobOrder::Scrub(ROW)).wait().await.unwrap();
                    let last = order.last().map_or(0, |column| *column);
                    flip(&world, last as usize);
                    let read = world.read(0..24).await;
                    assert_eq!(read, Ok(()), "{what}");
                });
            }
        }
    }
}
