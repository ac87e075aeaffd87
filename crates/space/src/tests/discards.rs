//! Discards, freed rows, holes on the disks, changes of the size, and allocation.

use futures_util::future::join_all;
use pool_seam::{Provisioning, RowNumber};

use super::failures::copies_agree;
use super::*;

const UNITS: u64 = (16 << 20) / UNIT;

/// The number of rows, excluding the log.
fn rows(world: &World) -> usize {
    world.rig.view_now().record.rows.len() - 1
}

async fn user(world: &World, steps: usize) {
    for _ in 0..steps {
        let random = world.rig.env.random_u64();
        let first = random % 36;
        let units = first..first + 1 + (random >> 8) % 4;
        let result = match (random >> 16) % 9 {
            0 => world.flush().await,
            1 | 2 => world.discard(units).await,
            // All units of the row.
            3 => world.discard(0..40).await,
            4 => world.read(units).await,
            5 => world.write(units, true).await,
            _ => world.write(units, false).await,
        };
        assert!(matches!(result, Ok(()) | Err(SpaceError::Unavailable { .. })), "{result:?}");
    }
}

#[test]
fn what_is_discarded_reads_as_zeros_and_its_row_is_freed() {
    for columns in 1..=2 {
        virtual_time(async {
            let setup = Setup { columns, ..Setup::new(1, 5, MIRROR) };
            let world = World::new(&setup).await;
            world.write(0..2048, false).await.unwrap();
            world.flush().await.unwrap();
            let (all, discards) = (rows(&world), world.rig.machine.counts(SlotId(0)).discards);
            world.discard(3..9).await.unwrap();
            world.read(0..20).await.unwrap();
            world.space.checkpoint().await.unwrap();
            assert_eq!(rows(&world), all);
            world.discard(0..1024).await.unwrap();
            world.read(0..1100).await.unwrap();
            world.space.checkpoint().await.unwrap();
            assert!(rows(&world) < all, "rows that hold nothing are freed");
            world.discard(1024..2048).await.unwrap();
            world.space.checkpoint().await.unwrap();
            let counts = (0..5).map(|slot| world.rig.machine.counts(SlotId(slot)).discards).sum::<u64>();
            assert!(rows(&world) == 0 && counts > discards, "the disks learn of it");
            world.read(0..UNITS).await.unwrap();
            world.write(1..4, true).await.unwrap();
            world.read(0..UNITS).await.unwrap();
        });
    }
}

/// Power cuts at any moment: flushed data and flushed discards are kept.
#[test]
fn discards_in_crashes() {
    for seed in 0..16 {
        virtual_time(async {
            let setup = match seed % 3 {
                0 => Setup::new(400 + seed, 3, Resiliency::Simple),
                1 => Setup::new(400 + seed, 3, MIRROR),
                _ => coded(400 + seed, 1 + (seed % 2) as u8),
            };
            let world = World::new(&setup).await;
            world.shuffle(Duration::from_millis(2));
            world.rig.record();
            let checkpoints = async {
                for _ in 0..8 {
                    world.rig.env.sleep(Duration::from_millis(9)).await;
                    world.space.checkpoint().await.unwrap();
                }
            };
            tokio::join!(join_all((0..4).map(|_| user(&world, 20))), checkpoints);
            let moments = world.rig.moments();
            for round in 0..12_u64 {
                let random = world.rig.env.random_u64();
                let moment = &moments[random as usize % moments.len()];
                let cut = if round % 2 == 0 { PowerCut::LoseAll } else { PowerCut::Tear { seed: random } };
                let rig = world.rig.after(moment, cut);
                let model = world.model.lock().after_crash(moment.event, &rig.machine);
                let after = World::open(rig, model).await;
                if round % 3 == 0 {
                    after.space.checkpoint().await.unwrap();
                }
                after.settle(0..40, &format!("seed {seed} round {round}")).await;
                after.space.resolve().await.unwrap();
                after.space.checkpoint().await.unwrap();
                copies_agree(&after).await;
                join_all((0..2).map(|_| user(&after, 10))).await;
                after.read(0..40).await.unwrap();
            }
        });
    }
}

/// After a crash the copies of units with entries must be compared. A discard makes the comparison unnecessary: the
/// row is freed.
#[test]
fn what_is_discarded_after_a_crash_is_freed_without_a_comparison() {
    for setup in [Setup::new(540, 3, Resiliency::Simple), Setup::new(541, 3, MIRROR), coded(542, 1)] {
        virtual_time(async {
            let world = World::new(&setup).await;
            world.rig.record();
            world.write(0..8, true).await.unwrap();
            let moments = world.rig.moments();
            let moment = moments.last().expect("one for each event");
            let rig = world.rig.after(moment, PowerCut::LoseAll);
            let model = world.model.lock().after_crash(moment.event, &rig.machine);
            let after = World::open(rig, model).await;
            let others = rows(&after);
            after.discard(0..UNITS).await.unwrap();
            after.space.checkpoint().await.unwrap();
            assert!(others > 0 && rows(&after) == 0);
        });
    }
}

/// Rule 10: a copy whose disk was absent still has data that was discarded without it.
#[test]
fn a_copy_that_missed_a_discard_is_not_read() {
    let mirrors = (0..12).map(|seed| Setup::new(500 + seed, 4, MIRROR));
    // With the last seeds stripes become empty while the block of a column is on an absent disk.
    let others = (520..526).chain([2520, 2522, 2524]);
    for setup in mirrors.chain(others.map(|seed| coded(seed, 1 + (seed % 2) as u8))) {
        virtual_time(async {
            let world = World::new(&setup).await;
            world.shuffle(Duration::from_millis(2));
            let chaos = async {
                for _ in 0..8 {
                    let disk = (world.rig.env.random_u64() % setup.disks.len() as u64) as u16;
                    world.rig.env.sleep(Duration::from_millis(10)).await;
                    if world.pull_and_return(disk, Duration::from_millis(10)).await {
                        let order = JobOrder::Resync(DiskNumber(disk));
                        world.space.run(JobId(1), order).wait().await.unwrap();
                    }
                    world.space.checkpoint().await.unwrap();
                }
            };
            tokio::join!(join_all((0..4).map(|_| user(&world, 40))), chaos);
            world.flush().await.unwrap();
            copies_agree(&world).await;
        });
    }
}

#[test]
fn a_space_grows_and_shrinks() {
    virtual_time(async {
        let world = World::new(&Setup::new(6, 3, MIRROR)).await;
        let size = 16 << 20;
        world.write(2500..2510, true).await.unwrap();
        world.write(3000..3100, true).await.unwrap();
        let smaller = 2600 * UNIT;
        let refused = world.space.resize(size, smaller, false).wait().await;
        assert!(matches!(refused, Err(SeamError::Invalid(_))), "{refused:?}");
        world.read(3000..3100).await.unwrap();
        world.space.resize(size, smaller, true).wait().await.unwrap();
        assert_eq!(world.rig.view_now().record.size, smaller);
        assert!(matches!(world.bytes(2599..2601).await, Err(SpaceError::Beyond { .. })));
        let late = world.space.write(2600 * UNIT, Sg::from_iter([fill(2600, 1)]), false).wait().await;
        assert!(matches!(late, Err(SpaceError::Beyond { .. })), "{late:?}");
        world.space.resize(smaller, 2 * size, false).wait().await.unwrap();
        let version = world.model.lock().discard_begun(2600..UNITS);
        world.model.lock().ended(version, End::Done);
        world.read(2500..UNITS).await.unwrap();
        world.write(2 * UNITS - 4..2 * UNITS, true).await.unwrap();
        world.read(UNITS..2 * UNITS).await.unwrap();
        let again = world.space.resize(size, smaller, false).wait().await;
        assert!(matches!(again, Err(SeamError::Invalid(_))), "it has another size");
    });
}

/// Writes beyond the new size, while the space shrinks, are refused or lost; none is there after it has grown again.
#[test]
fn a_space_that_shrinks_under_load() {
    for seed in 0..8 {
        virtual_time(async {
            let world = World::new(&Setup::new(600 + seed, 3, MIRROR)).await;
            world.shuffle(Duration::from_millis(2));
            let half = 8 << 20;
            let writers = join_all((0..4_u64).map(async |writer| {
                for step in 0..30 {
                    let unit = 2048 + 40 * writer + step;
                    let src = Sg::from_iter([fill(unit, 1)]);
                    drop(world.space.write(unit * UNIT, src, false).wait().await);
                }
            }));
            let shrinks = async {
                world.rig.env.sleep(Duration::from_millis(10 + seed)).await;
                world.space.resize(16 << 20, half, true).wait().await.unwrap();
            };
            tokio::join!(writers, shrinks);
            assert!(world.rig.view_now().record.rows.keys().all(|row| *row == RowNumber::LOG || row.0 < 4));
            world.space.resize(half, 16 << 20, false).wait().await.unwrap();
            world.read(2048..UNITS).await.unwrap();
        });
    }
}

#[test]
fn what_is_allocated() {
    for columns in 1..=2 {
        virtual_time(async {
            let world = World::new(&Setup { columns, ..Setup::new(7, 5, MIRROR) }).await;
            for units in [3..5, 100..140, 2000..2001] {
                world.write(units, false).await.unwrap();
            }
            world.discard(110..120).await.unwrap();
            let (mut at, mut found) = (0, Vec::new());
            while at < 16 << 20 {
                let allocated = world.space.allocated(at, (16 << 20) - at).await.unwrap();
                assert!(allocated.end > at, "it goes on");
                found.extend(allocated.ranges.iter().map(|range| range.start / UNIT..range.end / UNIT));
                at = allocated.end;
            }
            assert_eq!(found, [3..5, 100..110, 120..140, 2000..2001]);
        });
    }
}

/// A discard while the disk of a copy is absent makes the copy stale in the region, although nothing was written to
/// the other copies.
#[test]
fn a_discard_without_a_copy_is_missed_there() {
    virtual_time(async {
        let world = World::new(&Setup::new(8, 4, MIRROR)).await;
        world.write(0..16, true).await.unwrap();
        for _ in 0..3 {
            world.space.checkpoint().await.unwrap();
        }
        let copy = world.rig.view_now().record.rows.get(&RowNumber(0)).unwrap().slabs[0];
        world.rig.remove_disk(copy.place.disk).await.unwrap();
        let stale = |world: &World| {
            world.rig.view_now().record.rows.get(&RowNumber(0)).unwrap().slabs[0].stale_regions
        };
        assert_eq!(stale(&world), 0, "it has everything");
        world.discard(0..8).await.unwrap();
        assert_ne!(stale(&world), 0);
        world.flush().await.unwrap();
        world.read(0..16).await.unwrap();
    });
}

/// A space with fixed provisioning has all of its slabs from the beginning, and keeps them until it becomes smaller.
#[test]
fn a_fixed_space_keeps_its_rows() {
    for (seed, resiliency) in [(1, MIRROR), (2, Resiliency::Parity { parity: 1 })] {
        virtual_time(async {
            let columns = if resiliency.is_parity() { 3 } else { 1 };
            let provisioning = Provisioning::Fixed;
            let setup = Setup { provisioning, size: 48 << 20, columns, ..Setup::new(seed, 5, resiliency) };
            let world = World::new(&setup).await;
            world.space.allocate_all().await.unwrap();
            let all = (48 << 20) / (u64::from(columns) * (2 << 20));
            let ready = || {
                let view = world.space.0.view.get().value;
                let data = view.record.rows.iter().filter(|(row, _)| **row != RowNumber::LOG);
                data.filter(|(_, row)| !row.is_new).count() as u64
            };
            assert_eq!((ready(), world.space.size()), (all, 48 << 20));
            world.space.allocate_all().await.unwrap();
            world.write(0..600, true).await.unwrap();
            world.discard(0..600).await.unwrap();
            world.space.checkpoint().await.unwrap();
            world.space.checkpoint().await.unwrap();
            assert_eq!(ready(), all, "the space was made with its slabs");
            world.read(0..600).await.unwrap();
            world.space.resize(48 << 20, 12 << 20, false).wait().await.unwrap();
            assert_eq!((ready(), world.space.size()), (all / 4, 12 << 20));
        });
    }
}

/// The time depends on the number of rows that exist, not on the size.
#[test]
fn a_huge_space_is_made_smaller_at_once() {
    virtual_time(async {
        const HUGE: u64 = 1 << 50;
        let world = World::new(&Setup::new(4, 3, MIRROR)).await;
        let size = world.space.size();
        world.write(0..8, true).await.unwrap();
        world.space.resize(size, HUGE, false).wait().await.unwrap();
        let last = HUGE / UNIT - 8;
        world.write(last..last + 8, true).await.unwrap();
        assert!(world.space.resize(HUGE, size, false).wait().await.is_err(), "data is there");
        world.space.discard(8 * UNIT, HUGE - 8 * UNIT).wait().await.unwrap();
        world.space.resize(HUGE, size, false).wait().await.unwrap();
        assert_eq!(world.space.size(), size);
        world.read(0..8).await.unwrap();
    });
}

#[test]
fn a_fixed_space_without_room_keeps_what_it_has_got() {
    virtual_time(async {
        let provisioning = Provisioning::Fixed;
        let setup = Setup { provisioning, size: 256 << 20, ..Setup::new(3, 3, MIRROR) };
        let world = World::new(&setup).await;
        let error = world.space.allocate_all().await;
        assert!(matches!(error, Err(SpaceError::Seam(SeamError::NoRoom(_)))), "{error:?}");
        assert!(rows(&world) > 0);
        world.write(0..8, true).await.unwrap();
    });
}
