//! Changes of the number of copies of a space's rows.

use futures_util::future::join_all;
use pool_seam::{NotMoved, Row, RowNumber, Shape};

use super::crashes::{history, roll_back_a_disk};
use super::failures::{copies_agree, user};
use super::*;

/// Units in use: in each of the first rows, and of both columns.
const UNITS: u64 = 160;

const THREE: Resiliency = Resiliency::Mirror { copies: 3 };

/// Rows of one or two columns, on more disks than three copies need.
fn setup(seed: u64, columns: u8, resiliency: Resiliency) -> Setup {
    let disks = usize::from(columns) * 3 + 1;
    Setup { columns, interleave: 16 << 10, ..Setup::new(seed, disks, resiliency) }
}

/// The first unit of a random range in one of four rows.
fn anywhere(random: u64) -> u64 {
    (random >> 32) % 4 * 1024 + random % (UNITS - 4)
}

async fn reshape(world: &World, job: u64) -> Vec<(RowNumber, u8, NotMoved)> {
    world.space.run(JobId(job), JobOrder::Reshape).wait().await.unwrap().not_moved
}

/// Waits until all rows have this many copies, all complete, including the replicas of the log.
async fn is_reshaped(world: &World, copies: usize) {
    let is_complete =
        |row: &Row| row.shape == Shape::Current && row.copies().all(|(_, copy)| copy.stale_regions == 0);
    for _ in 0..100 {
        let view = world.rig.view_now();
        if view.log_row().is_some_and(|log| is_complete(log) && log.slabs.len() == copies.max(2)) {
            break;
        }
        world.rig.env.sleep(Duration::from_millis(100)).await;
    }
    let view = world.rig.view_now();
    assert!(!view.record.is_changing() && view.record.rows.values().all(is_complete), "{:?}", view.record);
    let slabs = copies * usize::from(view.record.columns);
    assert!(view.record.data_rows().all(|(_, row)| row.slabs.len() == slabs), "{:?}", view.record);
    assert!(view.log_row().is_some_and(|log| log.slabs.len() == copies.max(2)));
}

/// Users continue to write at the same time, and allocate new rows; checkpoints write blocks of sets of both sizes, and
/// tables are loaded from them.
#[test]
fn rows_get_more_copies_and_give_them_up_under_load() {
    for (seed, columns) in [(1, 1), (2, 2), (3, 1), (4, 2)] {
        virtual_time(async {
            let world = World::new(&setup(seed, columns, Resiliency::Simple)).await;
            world.shuffle(Duration::from_millis(2));
            world.write(0..UNITS, false).await.unwrap();
            let steps = [MIRROR, THREE, MIRROR, Resiliency::Simple, THREE, Resiliency::Simple];
            for (step, to) in steps.into_iter().enumerate() {
                world.write(1024..1024 + 40, step % 2 == 0).await.unwrap();
                world.rig.set_resiliency(to);
                let change = async {
                    assert_eq!(reshape(&world, step as u64 + 1).await, []);
                };
                let checkpoints = async {
                    for _ in 0..4 {
                        world.rig.env.sleep(Duration::from_millis(15)).await;
                        world.space.checkpoint().await.unwrap();
                    }
                };
                let users = join_all((0..4).map(|_| user(&world, 25, anywhere)));
                tokio::join!(change, users, checkpoints);
                is_reshaped(&world, to.copies()).await;
                world.flush().await.unwrap();
                copies_agree(&world).await;
            }
            // Blocks of sets of other sizes are loaded again.
            world.space.checkpoint().await.unwrap();
            let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
            let units: Vec<u64> = world.model.lock().units().collect();
            for unit in units {
                world.read(unit..unit + 1).await.unwrap();
            }
            let scrub = world.space.run(JobId(99), JobOrder::Scrub(RowNumber(0))).wait().await.unwrap();
            assert_eq!((scrub.progress.healed, world.rig.found()), (0, Vec::new()));
        });
    }
}

/// As many disks can be lost as the new number of copies allows.
#[test]
fn two_disks_of_three_copies_may_be_lost() {
    virtual_time(async {
        let world = World::new(&setup(5, 1, MIRROR)).await;
        world.write(0..UNITS, true).await.unwrap();
        world.rig.set_resiliency(THREE);
        assert_eq!(reshape(&world, 1).await, []);
        is_reshaped(&world, 3).await;
        let disks: Vec<DiskNumber> = world.rig.view_now().record.rows[&RowNumber(0)]
            .slabs
            .iter()
            .map(|copy| copy.place.disk)
            .collect();
        for disk in &disks[..2] {
            world.rig.remove_disk(*disk).await.unwrap();
            world.rig.machine.pull(SlotId(disk.0.into()), PowerCut::LoseAll);
        }
        world.read(0..UNITS).await.unwrap();
        let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
        world.read(0..UNITS).await.unwrap();
    });
}

/// A copy with stale regions is filled before another copy is dropped; a copy on an absent disk is dropped first.
#[test]
fn copies_are_given_up_where_the_others_are_enough() {
    virtual_time(async {
        let world = World::new(&setup(6, 1, THREE)).await;
        world.write(0..UNITS, true).await.unwrap();
        world.rig.set_resiliency(THREE);
        assert_eq!(reshape(&world, 1).await, []);
        is_reshaped(&world, 3).await;
        let row = world.rig.view_now().record.rows[&RowNumber(0)].clone();
        let away = row.slabs[0].place.disk;
        world.rig.remove_disk(away).await.unwrap();
        world.write(0..8, true).await.unwrap();
        world.rig.set_resiliency(MIRROR);
        assert_eq!(reshape(&world, 2).await, []);
        let now = world.rig.view_now().record.rows[&RowNumber(0)].clone();
        assert_eq!(now.slabs[..], row.slabs[1..]);
        copies_agree(&world).await;
        // The two current copies of a row are not dropped for one that has stale regions.
        let behind = now.slabs[0].place.disk;
        world.rig.remove_disk(behind).await.unwrap();
        world.write(0..8, true).await.unwrap();
        world.rig.set_resiliency(Resiliency::Simple);
        assert_eq!(reshape(&world, 3).await, [], "the complete one stays");
        let now = world.rig.view_now().record.rows[&RowNumber(0)].clone();
        assert!(now.slabs.len() == 1 && now.slabs[0].place.disk != behind);
        world.read(0..UNITS).await.unwrap();
    });
}

/// No disk has room, or too few are present: the rows keep their copies, and the job reports why.
#[test]
fn a_row_without_a_place_keeps_its_copies() {
    virtual_time(async {
        let world = World::new(&Setup::new(7, 2, MIRROR)).await;
        world.write(0..UNITS, true).await.unwrap();
        world.rig.set_resiliency(THREE);
        let left = reshape(&world, 1).await;
        assert!(
            left.iter().all(|(_, _, why)| matches!(why, NotMoved::NoPlace(_))) && left.len() == 2,
            "{left:?}"
        );
        world.write(0..UNITS, true).await.unwrap();
        // After the change back there is nothing to do.
        world.rig.set_resiliency(MIRROR);
        assert_eq!(reshape(&world, 2).await, []);
        is_reshaped(&world, 2).await;
        world.read(0..UNITS).await.unwrap();
    });
}

/// The power fails at any moment of a change, which the next owner completes.
#[test]
fn a_power_cut_in_a_change_loses_nothing() {
    let changes = [
        (Resiliency::Simple, MIRROR),
        (MIRROR, THREE),
        (THREE, MIRROR),
        (MIRROR, Resiliency::Simple),
        (THREE, Resiliency::Simple),
        (Resiliency::Simple, THREE),
    ];
    for (seed, (from, to)) in (10..).zip(changes) {
        virtual_time(async {
            let columns = 1 + (seed % 2) as u8;
            let world = World::new(&setup(seed, columns, from)).await;
            world.shuffle(Duration::from_millis(2));
            for first in [0, 1024, 2048] {
                world.write(first..first + 60, false).await.unwrap();
            }
            world.flush().await.unwrap();
            world.rig.record();
            world.rig.set_resiliency(to);
            let change = async {
                assert_eq!(reshape(&world, 1).await, []);
            };
            let checkpoints = async {
                for _ in 0..3 {
                    world.rig.env.sleep(Duration::from_millis(20)).await;
                    world.space.checkpoint().await.unwrap();
                }
            };
            tokio::join!(change, checkpoints, join_all((0..3).map(|_| user(&world, 12, anywhere))));
            let moments = world.rig.moments();
            for (round, moment) in
                moments.iter().enumerate().skip(seed as usize % 20).step_by(moments.len() / 10 + 1)
            {
                let cut = match round % 3 {
                    0 => PowerCut::LoseAll,
                    1 => PowerCut::KeepAll,
                    _ => PowerCut::Tear { seed: round as u64 },
                };
                let rig = world.rig.after(moment, cut);
                let model = world.model.lock().after_crash(moment.event, &rig.machine);
                let after = World::open(rig, model).await;
                let units: Vec<u64> = after.model.lock().units().collect();
                if round % 2 == 0 {
                    assert_eq!(reshape(&after, 1).await, []);
                }
                for unit in units {
                    after.settle(unit..unit + 1, &format!("seed {seed} round {round}")).await;
                }
                assert_eq!(reshape(&after, 2).await, []);
                is_reshaped(&after, to.copies()).await;
                after.space.resolve().await.unwrap();
                after.space.checkpoint().await.unwrap();
                copies_agree(&after).await;
                let away = (round % usize::from(columns) * to.copies()) as u16;
                let _ = after.rig.remove_disk(DiskNumber(away)).await;
                copies_agree(&after).await;
            }
        });
    }
}

/// Rule 9: a disk is rolled back. Its copy is compared with the others before these are dropped.
#[test]
fn a_copy_that_was_rolled_back_is_not_the_one_that_stays() {
    for seed in 50..70 {
        virtual_time(async {
            let setup = Setup { disks: vec![20 << 20; 3], ..Setup::new(seed, 3, MIRROR) };
            let world = history(&setup, seed % 3 > 0).await;
            let moments = world.rig.moments();
            for round in 0..6 {
                let random = world.rig.env.random_u64() as usize;
                let (rig, model) = roll_back_a_disk(&world, &setup, &moments, random);
                let after = World::open(rig, model).await;
                after.rig.set_resiliency(Resiliency::Simple);
                for again in 0..10 {
                    reshape(&after, 1 + again).await;
                }
                let what = format!("seed {seed} round {round}");
                assert!(!after.rig.view_now().record.is_changing(), "{what}");
                let units: Vec<u64> = after.model.lock().units().collect();
                for unit in units {
                    after.settle(unit..unit + 1, &what).await;
                }
                after.write(0..8, true).await.unwrap();
                copies_agree(&after).await;
            }
        });
    }
}

/// Disks come and go while rows change: a resync and the change fill no region twice.
#[test]
fn disks_come_and_go_in_a_change() {
    for seed in 30..42 {
        virtual_time(async {
            let columns = 1 + (seed % 2) as u8;
            let world = World::new(&setup(seed, columns, MIRROR)).await;
            let disks = world.rig.machine.slots() as u64;
            world.shuffle(Duration::from_millis(2));
            for first in [0, 1024, 2048, 3072] {
                world.write(first..first + 40, true).await.unwrap();
            }
            let chaos = async {
                for round in 0..6 {
                    let random = world.rig.env.random_u64();
                    world.rig.env.sleep(Duration::from_millis(random % 20)).await;
                    let disk = ((random >> 32) % disks) as u16;
                    if world.pull_and_return(disk, Duration::from_millis(10)).await {
                        let order = JobOrder::Resync(DiskNumber(disk));
                        world.space.run(JobId(100 + round), order).wait().await.unwrap();
                    }
                }
            };
            let change = async {
                for (job, to) in (1..).zip([THREE, MIRROR, THREE]) {
                    world.rig.set_resiliency(to);
                    // Rows that wait for a disk are changed in a later attempt.
                    for again in 0..40 {
                        let left = reshape(&world, job * 100 + again).await;
                        if left.is_empty() && !world.rig.view_now().record.is_changing() {
                            break;
                        }
                        assert!(again < 39, "{left:?}");
                        world.rig.env.sleep(Duration::from_millis(20)).await;
                    }
                }
            };
            tokio::join!(chaos, change, join_all((0..3).map(|_| user(&world, 30, anywhere))));
            assert_eq!(reshape(&world, 1).await, []);
            is_reshaped(&world, 3).await;
            world.flush().await.unwrap();
            copies_agree(&world).await;
        });
    }
}
