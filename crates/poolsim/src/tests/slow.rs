//! Slow disks: owners read the data from other disks.

use std::time::Duration;

use disk::Op;
use disk::sim::{Fault, Rule, SlotId, When};
use futures_util::future::join_all;
use pool::{HANG_TIMEOUT, Pool, SpaceRecord};
use pool_seam::{DamageKind, DiskNumber, Resiliency, RowNumber, SpaceId, UNIT};

use crate::world::{OwnedSpace, World, coded, mirror, virtual_time};

const MS: Duration = Duration::from_millis(1);
const DISKS: u16 = 4;

/// The units in use: the reads cover each copy and column of the first row.
const UNITS: u64 = 512;

/// Reads for each permitted hedge.
const READS_FOR_ONE: u64 = 50;

/// A space whose first units are written in place; afterwards each I/O takes up to `longest`.
async fn filled(record: SpaceRecord, longest: Duration) -> (World, Pool, OwnedSpace, SpaceId) {
    let world = World::new(51, DISKS);
    let pool = world.create().await;
    let space = pool.create_space(record).await.expect("a space");
    let owned = world.own(&pool, space).await.expect("an owner");
    owned.write(0..UNITS, 1).await.expect("a write");
    owned.flush().await.expect("a flush");
    owned.space.checkpoint().await.expect("a checkpoint");
    (0..DISKS).for_each(|disk| world.machine.shuffle(SlotId(disk.into()), longest));
    (world, pool, owned, space)
}

fn slow(world: &World, disk: u16, op: Op, when: When, by: Duration) {
    world.machine.rule(SlotId(disk.into()), Rule::new(op, when, Fault::Slow(by)));
}

/// Clients read units, `each` times per client; returns the durations of the reads, the shortest first.
async fn reads(world: &World, owned: &OwnedSpace, clients: u64, each: u64) -> Vec<Duration> {
    let one = async |client: u64| {
        let mut took = Vec::new();
        for n in 0..each {
            let unit = (client * 131 + n * 37) % UNITS;
            let began = world.env.now();
            assert!(owned.has(unit..unit + 1, 1).await.expect("a read"));
            took.push(world.env.now() - began);
        }
        took
    };
    let mut all: Vec<Duration> = join_all((0..clients).map(one)).await.into_iter().flatten().collect();
    all.sort_unstable();
    all
}

fn per_mille(sorted: &[Duration], n: usize) -> Duration {
    sorted[(sorted.len() * n / 1000).min(sorted.len() - 1)]
}

/// The disk of the first unit, and its byte offset there.
fn first_unit(pool: &Pool, space: SpaceId) -> (DiskNumber, u64) {
    pool.read(|s| {
        let place = s.spaces[&space].rows[&RowNumber(0)].copy(0).expect("it has a copy").place;
        (place.disk, s.disks[&place.disk].areas.data(place.slab).offset)
    })
}

/// 15 of 1,000 reads take half a second on every disk, the others up to 2 ms.
#[test]
fn hedged_reads_cut_the_tail() {
    for record in [mirror("vm"), coded("vm")] {
        virtual_time(async move {
            let (world, pool, owned, _) = filled(record, 2 * MS).await;
            for disk in 0..DISKS {
                slow(&world, disk, Op::Read, When::Chance(15_000), 500 * MS);
            }
            let took = reads(&world, &owned, 4, 2000).await;
            let (all, hedged) = pool.hedged_reads();
            assert!(all >= took.len() as u64 && hedged * READS_FOR_ONE <= all, "{hedged} of {all}");
            let of_disks: u64 = (0..DISKS).map(|disk| pool.hedged_reads_of(DiskNumber(disk))).sum();
            assert_eq!((of_disks, owned.space.hedged_reads()), (hedged, hedged));
            let (median, most) = (per_mille(&took, 500), per_mille(&took, 990));
            assert!(hedged > 0 && most <= 40 * MS, "{median:?}, {most:?}");
        });
    }
}

/// At most one of 50 reads is hedged, however many are late.
#[test]
fn few_reads_are_hedged() {
    virtual_time(async {
        let (world, pool, owned, _) = filled(mirror("vm"), MS).await;
        reads(&world, &owned, 4, 500).await;
        let before = pool.hedged_reads();
        assert_eq!(before.1, 0);
        for disk in 0..DISKS {
            slow(&world, disk, Op::Read, When::Chance(500_000), 300 * MS);
        }
        reads(&world, &owned, 8, 100).await;
        let (all, hedged) = pool.hedged_reads();
        assert!(hedged > 0 && hedged * READS_FOR_ONE <= all, "{hedged} of {all}");
    });
}

/// Reads of one disk take 80 ms, those of its peers 4 ms. The disk is reported, and is not read while other disks
/// have the data.
#[test]
fn reads_go_around_a_slow_disk() {
    for record in [mirror("vm"), coded("vm")] {
        virtual_time(async {
            let (world, pool, owned, space) = filled(record.clone(), MS).await;
            let one = first_unit(&pool, space).0;
            for disk in 0..DISKS {
                let by = if disk == one.0 { 80 * MS } else { 4 * MS };
                slow(&world, disk, Op::Read, When::From(0), by);
            }
            let before = reads(&world, &owned, 4, 1000).await;
            reads(&world, &owned, 4, 4000).await;
            assert!(pool.events().slow().contains_key(&one));
            let on_it = || world.machine.counts(SlotId(one.0.into())).reads;
            let earlier = on_it();
            let after = reads(&world, &owned, 4, 2000).await;
            let on_it = on_it() - earlier;
            eprintln!(
                "{:?}: p99 {:?} at first, {:?} later; {on_it} of {} reads on the slow disk",
                record.resiliency,
                per_mille(&before, 990),
                per_mille(&after, 990),
                after.len()
            );
            assert!(per_mille(&after, 990) <= 40 * MS && on_it < 80, "{on_it}");
        });
    }
}

/// A late read keeps its buffers until the disk completes it. Its data is damaged, so the unit is rewritten, although
/// the caller got the data from another disk long before.
#[test]
fn a_late_read_of_a_damaged_block_heals_it() {
    for record in [mirror("vm"), coded("vm")] {
        virtual_time(async {
            let (world, pool, owned, space) = filled(record, MS).await;
            reads(&world, &owned, 4, 500).await;
            let (disk, at) = first_unit(&pool, space);
            world.machine.scribble(SlotId(disk.0.into()), at, &[0xee; UNIT as usize]);
            slow(&world, disk.0, Op::Read, When::Nth(0), 2000 * MS);
            let began = world.env.now();
            assert!(owned.has(0..1, 1).await.expect("a read"));
            let took = world.env.now() - began;
            assert!(took >= 5 * MS && took < 40 * MS, "{took:?}");
            assert_eq!((pool.hedged_reads().1, pool.events().count(DamageKind::Healed)), (1, 0));
            world.env.sleep(2500 * MS).await;
            assert_eq!(pool.events().count(DamageKind::Healed), 1);
            assert!(owned.has(0..1, 1).await.expect("a read"));
            assert_eq!((pool.hedged_reads().1, pool.events().count(DamageKind::Healed)), (1, 1));
        });
    }
}

/// Units are rewritten while a late read of them is outstanding: its result is dropped, and nothing counts as
/// damaged.
#[test]
fn a_late_read_ends_after_its_units_were_written() {
    virtual_time(async {
        let (world, pool, owned, space) = filled(mirror("vm"), MS).await;
        reads(&world, &owned, 4, 500).await;
        let disk = first_unit(&pool, space).0;
        slow(&world, disk.0, Op::Read, When::Nth(0), 3000 * MS);
        assert!(owned.has(0..UNITS, 1).await.expect("a read"));
        assert_eq!(pool.hedged_reads().1, 1);
        for value in 2..6 {
            owned.write(0..UNITS, value).await.expect("a write");
            assert!(owned.has(0..UNITS, value).await.expect("a read"));
            owned.flush().await.expect("a flush");
        }
        world.env.sleep(HANG_TIMEOUT).await;
        assert!(owned.has(0..UNITS, 5).await.expect("a read"));
        assert_eq!(pool.events().count(DamageKind::Healed), 0);
    });
}

/// A read is late and the other copy is damaged: the caller gets the data, and the damaged copy is rewritten.
#[test]
fn a_hedge_that_finds_damage_heals_it() {
    virtual_time(async {
        let (world, pool, owned, space) = filled(mirror("vm"), MS).await;
        reads(&world, &owned, 4, 500).await;
        let (damaged, at) = first_unit(&pool, space);
        let late =
            pool.read(|s| s.spaces[&space].rows[&RowNumber(0)].copy(1).expect("two copies").place.disk);
        for disk in [damaged, late] {
            // Either disk may be read first.
            slow(&world, disk.0, Op::Read, When::Nth(0), 200 * MS);
        }
        world.machine.scribble(SlotId(damaged.0.into()), at, &[0xee; UNIT as usize]);
        assert!(owned.has(0..1, 1).await.expect("a read"));
        world.env.sleep(1000 * MS).await;
        assert_eq!(pool.events().count(DamageKind::Healed), 1);
        assert!(owned.has(0..1, 1).await.expect("a read"));
    });
}

/// A disk that holds some buffers of a read over two columns hangs. When the disk is removed, the read returns the
/// data in order.
#[test]
fn a_read_of_several_buffers_is_in_order_when_a_disk_hangs() {
    virtual_time(async {
        let record = SpaceRecord {
            columns: 2,
            interleave: UNIT as u32,
            resiliency: Resiliency::Mirror { copies: 2 },
            ..mirror("vm")
        };
        let (world, pool, owned, space) = filled(record, MS).await;
        let hangs = first_unit(&pool, space).0;
        slow(&world, hangs.0, Op::Read, When::From(0), 3600 * 1000 * MS);
        for first in 0..8 {
            let units = first * 8..first * 8 + 8;
            assert_eq!(
                owned.read_in_units(units.clone()).await.expect("a read"),
                OwnedSpace::filled(units, 1)
            );
        }
        assert_eq!(pool.hedged_reads().1, 0, "there were too few reads to hedge one");
    });
}
