//! Reads of groups whose table is not in memory: their cost, and the detection of a write that a disk has lost.

use pool_seam::{GROUP, RowNumber, SlabPlace};

use super::*;

fn mirror(copies: u8) -> Setup {
    Setup::new(7, usize::from(copies) + 1, Resiliency::Mirror { copies })
}

fn slabs(world: &World) -> Vec<SlabPlace> {
    world.rig.view_now().record.rows[&RowNumber(0)].slabs.iter().map(|copy| copy.place).collect()
}

#[test]
fn a_cold_read_costs_one_block_of_a_mirror_and_two_of_a_coded_row() {
    for (setup, cost, all) in [(mirror(2), 1, 2), (mirror(3), 1, 3), (coded(7, 1), 2, 4), (coded(7, 2), 2, 5)]
    {
        virtual_time(async {
            let world = World::new(&setup).await;
            world.write(0..40, true).await.unwrap();
            let world = world.reopened().await;
            let reads = || {
                (0..setup.disks.len()).map(|slot| world.rig.machine.counts(SlotId(slot)).reads).sum::<u64>()
            };
            let before = reads();
            world.read(0..1).await.unwrap();
            assert_eq!(reads() - before, cost + 1, "{:?}", setup.resiliency);
            world.read(1..2).await.unwrap();
            assert_eq!(reads() - before, cost + 2, "the table is in memory");
            let before = reads();
            world.write(2..3, true).await.unwrap();
            // A coded row reads the old unit and its parities, too.
            assert!(reads() - before >= all, "what is written has the blocks of all copies");
            let before = reads();
            world.read(0..4).await.unwrap();
            assert_eq!(reads() - before, 1);
        });
    }
}

/// A disk has acknowledged writes that it did not do: its data, its checksum block or both are old. Reads detect it,
/// whichever disk is read first.
#[test]
fn a_lost_write_is_noticed_by_a_cold_read() {
    for setup in [mirror(2), mirror(3), coded(7, 1), coded(7, 2)] {
        let slabs_in_row =
            setup.resiliency.copies() * usize::from(setup.columns) + setup.resiliency.parity_columns();
        for slab in 0..slabs_in_row {
            // One of the first reads is of a unit that is unwritten in the old block.
            let lost = [(true, false), (false, true), (true, true)];
            for ((data, blocks), first) in lost.into_iter().flat_map(|lost| [(lost, 30), (lost, 50)]) {
                virtual_time(async {
                    let world = World::new(&setup).await;
                    world.write(0..40, true).await.unwrap();
                    world.space.checkpoint().await.unwrap();
                    let place = slabs(&world)[slab];
                    let slot = SlotId(place.disk.0.into());
                    let earlier = world.rig.machine.image(slot);
                    world.write(20..60, true).await.unwrap();
                    world.space.checkpoint().await.unwrap();
                    let areas = world.rig.view_now().disks[&place.disk].areas;
                    let lost = [(data, areas.data(place.slab)), (blocks, areas.checksums(place.slab))];
                    let world = world.reopened().await;
                    for (_, area) in lost.iter().filter(|(is_lost, _)| *is_lost) {
                        world.rig.machine.roll_back(slot, &earlier, area.offset, GROUP.min(area.length));
                    }
                    world.read(first..first + 1).await.unwrap();
                    world.read(0..60).await.unwrap();
                });
            }
        }
    }
}
