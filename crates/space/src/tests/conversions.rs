//! Conversions: the data of a space is copied to rows of another shape while the space is used.

use disk::Op;
use disk::sim::{Fault, Rule, When};
use futures_util::future::join_all;
use pool_seam::{NotMoved, Provisioning, RowNumber, RowShape, Shape};

use super::failures::{copies_agree, user};
use super::*;

const SIMPLE: RowShape = RowShape { resiliency: Resiliency::Simple, interleave: 64 << 10, columns: 1 };
const MIRRORED: RowShape = RowShape { resiliency: MIRROR, interleave: 64 << 10, columns: 1 };
const STRIPED: RowShape = RowShape { resiliency: MIRROR, interleave: 16 << 10, columns: 2 };
const PARITY: RowShape =
    RowShape { resiliency: Resiliency::Parity { parity: 1 }, interleave: 16 << 10, columns: 3 };
const DUAL: RowShape =
    RowShape { resiliency: Resiliency::Parity { parity: 2 }, interleave: 64 << 10, columns: 2 };

/// Each of them is converted to the next.
const SHAPES: [RowShape; 7] = [MIRRORED, PARITY, STRIPED, DUAL, SIMPLE, PARITY, MIRRORED];

/// A space of 16 MiB with rows of this shape, on six disks.
fn setup(seed: u64, shape: RowShape) -> Setup {
    let RowShape { resiliency, interleave, columns } = shape;
    Setup { columns, interleave, ..Setup::new(seed, 6, resiliency) }
}

/// The first unit of a random range, of up to four units.
fn anywhere(random: u64) -> u64 {
    (random >> 32) % 10 * 400 + random % 60
}

async fn convert(world: &World, job: u64) -> Vec<(RowNumber, u8, NotMoved)> {
    world.space.run(JobId(job), JobOrder::Reshape).wait().await.unwrap().not_moved
}

/// Checks that all rows have this shape, and that no slab of a former row is in use.
fn is_converted(world: &World, to: RowShape) {
    let record = world.rig.view_now().record.clone();
    assert!(!record.is_changing() && !record.is_converting() && record.shape() == to, "{record:?}");
    for (number, row) in record.data_rows() {
        assert!(number.half() == record.half && row.shape == Shape::Current, "{record:?}");
        assert_eq!(row.slabs.len(), to.slabs());
    }
}

/// Users continue to read, write and flush, also addresses that are being copied, and allocate new rows.
#[test]
fn data_is_converted_under_load() {
    for seed in 1..5 {
        virtual_time(async {
            let world = World::new(&setup(seed, SHAPES[0])).await;
            world.shuffle(Duration::from_millis(2));
            for first in [0, 700, 2000, 3900] {
                world.write(first..first + 150, false).await.unwrap();
            }
            for (job, to) in (1..).zip(&SHAPES[1..]) {
                world.discard(740..760).await.unwrap();
                world.rig.set_shape(*to);
                let change = async {
                    assert_eq!(convert(&world, job).await, []);
                };
                let checkpoints = async {
                    for _ in 0..4 {
                        world.rig.env.sleep(Duration::from_millis(15)).await;
                        world.space.checkpoint().await.unwrap();
                    }
                };
                let users = join_all((0..4).map(|_| user(&world, 40, anywhere)));
                tokio::join!(change, users, checkpoints);
                is_converted(&world, *to);
                world.flush().await.unwrap();
                copies_agree(&world).await;
            }
            let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
            copies_agree(&world).await;
            let scrub = world.space.run(JobId(99), JobOrder::Scrub(RowNumber(0))).wait().await.unwrap();
            assert_eq!((scrub.progress.healed, world.rig.found()), (0, Vec::new()));
        });
    }
}

/// The power fails at any moment of a conversion, which the next owner completes.
#[test]
fn a_power_cut_in_a_conversion_loses_nothing() {
    for (seed, pair) in (10..).zip(SHAPES.windows(2)) {
        virtual_time(async {
            let (from, to) = (pair[0], pair[1]);
            let world = World::new(&setup(seed, from)).await;
            world.shuffle(Duration::from_millis(2));
            for first in [0, 700, 2000, 3900] {
                world.write(first..first + 60, false).await.unwrap();
            }
            world.flush().await.unwrap();
            world.rig.record();
            world.rig.set_shape(to);
            let change = async {
                assert_eq!(convert(&world, 1).await, []);
            };
            let checkpoints = async {
                for _ in 0..3 {
                    world.rig.env.sleep(Duration::from_millis(20)).await;
                    world.space.checkpoint().await.unwrap();
                }
            };
            tokio::join!(change, checkpoints, join_all((0..3).map(|_| user(&world, 20, anywhere))));
            let moments = world.rig.moments();
            let step = moments.len() / 16 + 1;
            for (round, moment) in moments.iter().enumerate().skip(seed as usize % 20).step_by(step) {
                let cut = match round % 3 {
                    0 => PowerCut::LoseAll,
                    1 => PowerCut::KeepAll,
                    _ => PowerCut::Tear { seed: round as u64 },
                };
                let rig = world.rig.after(moment, cut);
                let model = world.model.lock().after_crash(moment.event, &rig.machine);
                let after = World::open(rig, model).await;
                let units: Vec<u64> = after.model.lock().units().collect();
                // The interrupted attempt may have left these units in new rows.
                if round % 4 < 2 {
                    for first in [0, 700, 2000, 3900] {
                        after.discard(first..first + 30).await.unwrap();
                    }
                }
                if round % 2 == 0 {
                    assert_eq!(convert(&after, 1).await, []);
                }
                for unit in units {
                    after.settle(unit..unit + 1, &format!("seed {seed} round {round}")).await;
                }
                // The crash may have been before the conversion began.
                if after.rig.view_now().record.shape() != to {
                    after.rig.set_shape(to);
                }
                assert_eq!(convert(&after, 2).await, []);
                is_converted(&after, to);
                after.space.resolve().await.unwrap();
                after.space.checkpoint().await.unwrap();
                copies_agree(&after).await;
            }
        });
    }
}

/// Disks come and go during a conversion, which waits for those that it needs.
#[test]
fn disks_come_and_go_in_a_conversion() {
    for seed in 30..38 {
        virtual_time(async {
            let shapes = [MIRRORED, PARITY, STRIPED, DUAL, MIRRORED];
            let world = World::new(&setup(seed, shapes[0])).await;
            let disks = world.rig.machine.slots() as u64;
            world.shuffle(Duration::from_millis(2));
            for first in [0, 700, 2000, 3900] {
                world.write(first..first + 40, true).await.unwrap();
            }
            let chaos = async {
                for round in 0..8 {
                    let random = world.rig.env.random_u64();
                    world.rig.env.sleep(Duration::from_millis(random % 30)).await;
                    let disk = ((random >> 32) % disks) as u16;
                    if world.pull_and_return(disk, Duration::from_millis(10)).await {
                        let order = JobOrder::Resync(DiskNumber(disk));
                        world.space.run(JobId(1000 + round), order).wait().await.unwrap();
                    }
                }
            };
            let change = async {
                for (job, to) in (1..).zip(&shapes[1..]) {
                    world.rig.set_shape(*to);
                    for again in 0..40 {
                        let left = convert(&world, job * 100 + again).await;
                        if left.is_empty() && !world.rig.view_now().record.is_changing() {
                            break;
                        }
                        assert!(again < 39, "{left:?}");
                        world.rig.env.sleep(Duration::from_millis(20)).await;
                    }
                }
            };
            tokio::join!(chaos, change, join_all((0..3).map(|_| user(&world, 40, anywhere))));
            assert_eq!(convert(&world, 1).await, []);
            is_converted(&world, MIRRORED);
            world.flush().await.unwrap();
            copies_agree(&world).await;
        });
    }
}

/// A space with fixed provisioning keeps all of its rows allocated.
#[test]
fn a_fixed_space_stays_allocated() {
    virtual_time(async {
        let world = World::new(&Setup { provisioning: Provisioning::Fixed, ..setup(50, MIRRORED) }).await;
        world.space.allocate_all().await.unwrap();
        world.write(700..760, true).await.unwrap();
        world.rig.set_shape(PARITY);
        assert_eq!(convert(&world, 1).await, []);
        is_converted(&world, PARITY);
        let record = world.rig.view_now().record.clone();
        assert_eq!(record.data_rows().count() as u64, record.row_count(2 << 20));
        copies_agree(&world).await;
    });
}

/// A read that was mapped before the data was converted does not return zeros of the freed row.
#[test]
fn a_read_of_a_former_row_begins_again() {
    virtual_time(async {
        let world = World::new(&setup(55, MIRRORED)).await;
        world.write(0..8, true).await.unwrap();
        let view = world.rig.view_now();
        let at = crate::view::layout(&view).locate(4 * UNIT);
        let target = || crate::write::Target::new(&view, at, UNIT);
        let read = async |address| {
            let dst = sized(world.arena.alloc_sg(UNIT as usize, Class::Control).await, UNIT as usize);
            world.space.0.read_run(target(), address, dst).wait().await
        };
        let before = read(Some(4 * UNIT)).await.1;
        world.rig.set_shape(PARITY);
        assert_eq!(convert(&world, 1).await, []);
        is_converted(&world, PARITY);
        let (result, bytes) = read(Some(4 * UNIT)).await;
        assert_eq!(result, Ok(()));
        assert!(bytes[0][..] == before[0][..] && tell(&bytes[0]).is_some_and(|(unit, _)| unit == 4));
        assert_eq!(read(None).await.0, Err(SpaceError::Moved));
    });
}

/// Reads go on while the data is converted.
#[test]
fn slow_reads_find_the_data_in_its_new_row() {
    virtual_time(async {
        let world = World::new(&setup(51, MIRRORED)).await;
        world.write(0..300, true).await.unwrap();
        world.rig.set_shape(PARITY);
        world.shuffle(Duration::from_millis(20));
        let read = async {
            for _ in 0..200 {
                let random = world.rig.env.random_u64();
                let first = random % 290;
                world.read(first..first + 1 + (random >> 32) % 10).await.unwrap();
            }
        };
        let change = async {
            assert_eq!(convert(&world, 1).await, []);
        };
        tokio::join!(change, join_all((0..2).map(|_| world.read(0..300))), read);
        is_converted(&world, PARITY);
    });
}

/// A conversion that begins during a shrink ends the shrink.
#[test]
fn a_shrink_gives_way_to_a_conversion() {
    virtual_time(async {
        let world = World::new(&setup(53, MIRRORED)).await;
        world.shuffle(Duration::from_millis(5));
        world.write(0..600, true).await.unwrap();
        let shrink = world.space.resize(16 << 20, 1 << 20, true).wait();
        let change = async {
            world.rig.env.sleep(Duration::from_millis(3)).await;
            world.rig.set_shape(PARITY);
            assert_eq!(convert(&world, 1).await, []);
        };
        let (shrunk, ()) = tokio::join!(shrink, change);
        assert!(matches!(shrunk, Err(SeamError::Invalid(_))), "{shrunk:?}");
        is_converted(&world, PARITY);
        assert_eq!(world.rig.view_now().record.size, 16 << 20);
    });
}

/// A write that was about to allocate its row when the conversion of an empty space began.
#[test]
fn the_first_writes_of_an_empty_space_survive_its_conversion() {
    for delay in 0..30 {
        virtual_time(async {
            let world = World::new(&setup(54 + delay, MIRRORED)).await;
            world.shuffle(Duration::from_millis(5));
            let write = async {
                world.write(10..20, false).await.unwrap();
                world.write(600..603, true).await.unwrap();
            };
            let change = async {
                world.rig.env.sleep(Duration::from_millis(delay)).await;
                world.rig.set_shape(DUAL);
                assert_eq!(convert(&world, 1).await, []);
            };
            tokio::join!(write, change);
            is_converted(&world, DUAL);
            copies_agree(&world).await;
        });
    }
}

/// The last former row ends beyond the space, whose size is no multiple of anything, and has data in its last unit.
#[test]
fn a_row_that_ends_beyond_the_space_is_freed() {
    virtual_time(async {
        let size = (66 << 20) + UNIT;
        let disks = vec![128 << 20; 6];
        let parity = RowShape { interleave: 256 << 10, ..PARITY };
        let world = World::new(&Setup { size, disks, ..setup(90, parity) }).await;
        for first in [0, 16_300, size / UNIT - 5] {
            world.write(first..first + 5, true).await.unwrap();
        }
        world.rig.set_shape(MIRRORED);
        assert_eq!(convert(&world, 1).await, []);
        is_converted(&world, MIRRORED);
        copies_agree(&world).await;
        // A stripe of the new rows is longer than a piece that is copied.
        let long = RowShape { interleave: 2 << 20, ..PARITY };
        world.rig.set_shape(long);
        assert_eq!(convert(&world, 2).await, []);
        is_converted(&world, long);
        copies_agree(&world).await;
    });
}

/// The only disk is reopened at any moment of the conversion; then the power fails.
#[test]
fn a_disk_is_reopened_in_a_conversion() {
    for delay in 0..20 {
        virtual_time(async {
            let world = World::new(&Setup::new(100 + delay, 1, Resiliency::Simple)).await;
            world.shuffle(Duration::from_millis(3));
            for first in [0, 700, 2000, 3900] {
                world.write(first..first + 100, true).await.unwrap();
            }
            world.flush().await.unwrap();
            let to = RowShape { interleave: 16 << 10, ..SIMPLE };
            world.rig.set_shape(to);
            world.rig.record();
            let change = async {
                for job in 1..20 {
                    if convert(&world, job).await.is_empty() {
                        break;
                    }
                }
            };
            let fault = async {
                world.rig.env.sleep(Duration::from_millis(delay)).await;
                world.rig.machine.rule(SlotId(0), Rule::new(Op::Write, When::Nth(0), Fault::Refused(5)));
                world.space.0.log().annex_put(1, vec![1]).await.unwrap();
            };
            tokio::join!(change, fault);
            is_converted(&world, to);
            let moments = world.rig.moments();
            for moment in moments.iter().skip(delay as usize).step_by(50) {
                let rig = world.rig.after(moment, PowerCut::LoseAll);
                let model = world.model.lock().after_crash(moment.event, &rig.machine);
                let after = World::open(rig, model).await;
                for first in [0, 700, 2000, 3900] {
                    after.read(first..first + 100).await.unwrap();
                }
            }
        });
    }
}

/// The size cannot change meanwhile.
#[test]
fn a_conversion_keeps_the_size() {
    virtual_time(async {
        let world = World::new(&setup(52, MIRRORED)).await;
        world.write(0..10, true).await.unwrap();
        world.rig.set_shape(PARITY);
        let resized = world.space.resize(16 << 20, 32 << 20, false).wait().await;
        assert!(matches!(resized, Err(SeamError::Invalid(_))), "{resized:?}");
        assert_eq!(convert(&world, 1).await, []);
        world.space.resize(16 << 20, 32 << 20, false).wait().await.unwrap();
    });
}
