//! Slow disks, in virtual time: hedged reads, outliers, and disks that do not answer any more.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Disk, Op};
use env::Ctx;
use futures_util::future::join_all;

use super::world::{SPACE, Shape, World};
use super::{Random, in_virtual_time};
use crate::health::{FaultKind, Place, Snapshot, faults};
use crate::jobs::Progress;
use crate::pulse::watch::HANGS;
use crate::supervision::budget::READS_FOR_ONE;
use crate::supervision::standing::{SPAN, Slowness};
use crate::{Absence, DiskNumber, Presence, RowNumber};

const PAIRS: Shape = Shape { disks: 4, columns: 2, rows_max: 2, ..Shape::MIRROR };
const PARITY: Shape =
    Shape { copies: 1, parity: 1, columns: 2, disks: 4, interleave: 8 << 10, rows_max: 2, ..Shape::MIRROR };
const BOTH: [Shape; 2] = [PAIRS, PARITY];

/// The units that are used, at the beginning of the first row: of both columns.
const UNITS: u64 = 64;
const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);

/// Everything is written and flushed; from then on I/Os take up to `longest`.
async fn filled(shape: Shape, longest: Duration) -> World {
    let world = World::new(shape, 1).await;
    let values: Vec<u64> = (1..=UNITS).collect();
    world.write(0..UNITS, &values).await.expect("a write");
    world.space.flush_all().await.expect("a flush");
    for n in 0..world.machine.slots() {
        world.machine.shuffle(SlotId(n), longest);
    }
    world
}

fn slow(world: &World, disk: usize, ops: &[Op], when: When, by: Duration) {
    for op in ops {
        world.machine.rule(SlotId(disk), Rule::new(*op, when, Fault::Slow(by)));
    }
}

/// Everything takes 4 ms from now on, and 80 ms on the disk that is returned.
fn outlier(world: &World, ops: &[Op]) -> u16 {
    let one = first_disk(world);
    for disk in 0..4 {
        let by = if disk == usize::from(one) { 80 * MS } else { 4 * MS };
        slow(world, disk, ops, When::From(0), by);
    }
    one
}

/// Several users read random units, `each` so often; how long each read took, the shortest first.
async fn reads(world: &World, users: u64, each: u64) -> Vec<Duration> {
    let one = async |user: u64| {
        let mut random = Random(user);
        let mut took = Vec::new();
        for _ in 0..each {
            let unit = random.below(UNITS);
            let began = world.env.now();
            assert_eq!(world.read(unit..unit + 1).await, Ok(vec![unit + 1]));
            took.push(world.env.now() - began);
        }
        took
    };
    let mut all: Vec<Duration> = join_all((0..users).map(one)).await.into_iter().flatten().collect();
    all.sort_unstable();
    all
}

fn per_mille(sorted: &[Duration], n: usize) -> Duration {
    sorted[(sorted.len() * n / 1000).min(sorted.len() - 1)]
}

fn found(world: &World) -> Vec<crate::health::Fault> {
    let state = world.book.state();
    faults(&Snapshot {
        state: &state,
        suspended: None,
        read_only: false,
        failing: world.path.events.failing(),
        findings: world.path.events.counts(),
        lost: world.path.events.lost(),
        slow: world.path.events.slow(),
        in_doubt: BTreeMap::new(),
        jobs: Vec::new(),
        warn_percent: 100,
    })
}

/// The disk of the first column.
fn first_disk(world: &World) -> u16 {
    world.book.state().rows[&(SPACE, RowNumber(0))].slabs[0].place.disk.0
}

fn presence(world: &World, disk: u16) -> Presence {
    world.book.state().disks[&DiskNumber(disk)].presence
}

/// 15 reads of 1,000 take half a second on every disk, the others up to 2 ms.
#[test]
fn hedging_cuts_the_tail_of_reads() {
    for shape in [PAIRS, PARITY, super::local::LOCAL] {
        let run = |hedging| {
            in_virtual_time(async move {
                let world = filled(shape, 2 * MS).await;
                world.path.set_hedging(hedging);
                for disk in 0..usize::from(shape.disks) {
                    slow(&world, disk, &[Op::Read], When::Chance(15_000), 500 * MS);
                }
                let took = reads(&world, 4, 2000).await;
                let (all, hedged) = world.path.hedged_reads();
                assert!(all >= took.len() as u64 && hedged * READS_FOR_ONE <= all, "{hedged} of {all}");
                assert_eq!(hedged > 0, hedging);
                let of_disks: u64 = (0..shape.disks).map(|d| world.path.hedged_reads_of(DiskNumber(d))).sum();
                assert_eq!(of_disks, hedged, "each is of the disk that was late");
                (per_mille(&took, 500), per_mille(&took, 990))
            })
        };
        let (without, with) = (run(false), run(true));
        eprintln!("{shape:?}: median and p99 {without:?} without hedging, {with:?} with");
        assert!(without.1 >= 500 * MS && with.1 <= 40 * MS, "{without:?}, {with:?}");
    }
}

/// The read that lost the race still has its buffers; what it reads later goes nowhere.
#[test]
fn who_loses_keeps_its_buffers() {
    in_virtual_time(async {
        let world = filled(PAIRS, MS).await;
        reads(&world, 2, 500).await;
        for disk in 0..4 {
            slow(&world, disk, &[Op::Read], When::Nth(0), 50 * MS);
        }
        // Each read is of another value: bytes of a late one would show.
        reads(&world, 8, 200).await;
        assert!(world.path.hedged_reads().1 > 0);
        world.env.sleep(DAY).await;
        reads(&world, 1, 100).await;
    });
}

/// Reads and writes of one disk take 20 times as long as those of the others: it is read less at once, told
/// within a quarter of a minute, and leaves after a minute; then writes are as fast as if it had never been.
#[test]
fn a_disk_20_times_slower_than_its_peers() {
    for shape in BOTH {
        in_virtual_time(async {
            let world = filled(shape, MS).await;
            let one = outlier(&world, &[Op::Read, Op::Write]);
            let began = world.env.now();
            let (mut told, mut left, mut unit) = (None, None, 0);
            while world.env.now() - began < 3 * 60 * 1000 * MS && left.is_none() {
                reads(&world, 2, 16).await;
                unit = (unit + 1) % UNITS;
                world.write(unit..unit + 1, &[unit + 1]).await.expect("a write");
                let after = world.env.now() - began;
                if !world.path.events.slow().is_empty() {
                    told = told.or(Some(after));
                    let fault = found(&world).into_iter().find(|f| f.place == Place::Disk(DiskNumber(one)));
                    let kind = fault.map(|f| f.kind);
                    if presence(&world, one) == Presence::Present {
                        let Some(FaultKind::Slow(Slowness { median, peers, .. })) = kind else {
                            panic!("{kind:?}")
                        };
                        assert!(median >= 8 * peers && peers >= 4 * MS, "{median:?}, {peers:?}");
                    }
                }
                if presence(&world, one) != Presence::Present {
                    left = Some(after);
                }
            }
            let (told, left) = (told.expect("it is reported"), left.expect("it leaves"));
            eprintln!("{shape:?}: told after {told:?}, left after {left:?}");
            assert!(told <= 8 * SPAN && left >= 12 * SPAN && left <= 24 * SPAN);
            assert_eq!(presence(&world, one), Presence::Absent(Absence::Slow));
            let faults = found(&world);
            let fault = faults.iter().find(|f| f.kind == FaultKind::Absent(Absence::Slow));
            let fault = fault.unwrap_or_else(|| panic!("{faults:#?}"));
            assert!(fault.consequences.iter().any(|f| matches!(f.kind, FaultKind::Slow(_))));
            let began = world.env.now();
            world.write(0..1, &[1]).await.expect("a write");
            assert!(world.env.now() - began < 60 * MS);
            // No more than one: it is what the space promises to survive.
            let other = world.book.state().rows[&(SPACE, RowNumber(0))].slabs[2].place.disk.0;
            world.machine.no_rules(SlotId(usize::from(other)));
            slow(&world, usize::from(other), &[Op::Read, Op::Write], When::From(0), 200 * MS);
            for _ in 0..400 {
                reads(&world, 2, 4).await;
                unit = (unit + 1) % UNITS;
                world.write(unit..unit + 1, &[unit + 1]).await.expect("a write");
            }
            assert!(world.path.events.slow().contains_key(&DiskNumber(other)));
            assert_eq!(presence(&world, other), Presence::Present);
        });
    }
}

/// The same disk, always with a queue: that it is slow is reported, but a merely busy disk looks the same,
/// and must not be removed for that.
#[test]
fn a_slow_disk_with_a_long_queue_is_told_and_stays() {
    in_virtual_time(async {
        let world = filled(PAIRS, MS).await;
        let one = DiskNumber(outlier(&world, &[Op::Write]));
        let (began, told) = (world.env.now(), Cell::new(None));
        let writer = async |unit: u64| {
            while world.env.now() - began < 4 * 60 * 1000 * MS {
                world.write(unit..unit + 1, &[unit + 1]).await.expect("a write");
                if told.get().is_none() && world.path.events.slow().contains_key(&one) {
                    told.set(Some(world.env.now() - began));
                }
            }
        };
        join_all((0..UNITS).map(writer)).await;
        let told = told.get().expect("it is reported");
        assert!(told >= 12 * SPAN && told <= 14 * SPAN, "{told:?}");
        assert!(world.path.events.slow()[&one].crowded);
        assert_eq!(presence(&world, one.0), Presence::Present);
        let before = world.machine.counts(SlotId(usize::from(one.0))).reads;
        reads(&world, 4, 100).await;
        assert!(world.machine.counts(SlotId(usize::from(one.0))).reads > before + 20, "it is read");
    });
}

/// Peers are disks of the medium set by command: a disk that is as slow as its medium has no peers among
/// faster ones.
#[test]
fn what_a_disk_is_somebody_may_have_said() {
    let told = |media: [u8; 2]| {
        in_virtual_time(async move {
            let world = filled(PAIRS, MS).await;
            let one = DiskNumber(outlier(&world, &[Op::Read, Op::Write]));
            for disk in (0..4).map(DiskNumber) {
                let media = media[usize::from(disk == one)];
                world.book.change(&[crate::Op::SetDiskMedia { disk, media }]).expect("of the newest format");
            }
            for unit in 0..150 {
                reads(&world, 2, 16).await;
                world.write(unit % UNITS..unit % UNITS + 1, &[unit % UNITS + 1]).await.expect("a write");
            }
            !world.path.events.slow().is_empty() || presence(&world, one.0) != Presence::Present
        })
    };
    let [hdd, ssd] = [1, 2];
    assert!(told([hdd, hdd]) && told([ssd, ssd]));
    assert!(!told([ssd, hdd]));
}

/// An outlier is not read while others can be.
#[test]
fn reads_go_round_a_slow_disk() {
    for shape in BOTH {
        in_virtual_time(async {
            let world = filled(shape, MS).await;
            let one = outlier(&world, &[Op::Read]);
            let before = reads(&world, 4, 1000).await;
            reads(&world, 4, 4000).await;
            assert!(
                world.path.events.slow().contains_key(&DiskNumber(one)),
                "only reads, and yet it is reported"
            );
            let reads_before = world.machine.counts(SlotId(usize::from(one))).reads;
            let after = reads(&world, 4, 2000).await;
            let on_it = world.machine.counts(SlotId(usize::from(one))).reads - reads_before;
            eprintln!(
                "{shape:?}: p99 {:?} at first, {:?} later; {on_it} of {} reads on it",
                per_mille(&before, 990),
                per_mille(&after, 990),
                after.len()
            );
            assert!(per_mille(&after, 990) <= 40 * MS && on_it < 80, "{on_it}");
        });
    }
}

/// A disk from the field (F.3): every I/O takes 11.7 s. The wait is bounded, and ends with the disk's
/// removal.
#[test]
fn a_disk_at_11_7_seconds() {
    for shape in BOTH {
        in_virtual_time(async {
            let world = filled(shape, 2 * MS).await;
            let all = [Op::Read, Op::Write, Op::Flush];
            let one = first_disk(&world);
            slow(&world, usize::from(one), &all, When::From(0), Duration::from_millis(11_700));
            let began = world.env.now();
            world.write(0..UNITS, &(1..=UNITS).collect::<Vec<_>>()).await.expect("a write");
            world.space.flush_all().await.expect("a flush");
            let took = world.env.now() - began;
            assert!(took >= HANGS && took < HANGS + 1000 * MS, "{took:?}");
            assert_eq!(presence(&world, one), Presence::Absent(Absence::Slow));
            let slow = world.path.events.slow()[&DiskNumber(one)];
            assert!(slow.longest >= HANGS, "{slow:?}");
            let took = reads(&world, 4, 500).await;
            assert!(per_mille(&took, 1000) <= 100 * MS);
            // Until its last write has ended it may not come back; then it does, and gets what it missed.
            assert!(world.path.is_writing(DiskNumber(one)));
            world.env.sleep(12_000 * MS).await;
            assert!(!world.path.is_writing(DiskNumber(one)));
            world.machine.no_rules(SlotId(usize::from(one)));
            world.bring_back(one).await;
            assert!(world.path.events.slow().is_empty());
            world.path.resync(DiskNumber(one), &Progress::default()).await.expect("a resync");
            assert!(world.book.state().rows.values().flat_map(|r| &r.slabs).all(|c| c.missed == 0));
            reads(&world, 2, 100).await;
        });
    }
}

/// Nothing that a disk is asked ends any more, whatever it is: all calls end.
#[test]
fn a_disk_that_hangs_holds_nobody_up() {
    for shape in BOTH {
        for op in [Op::Read, Op::Write, Op::Flush] {
            in_virtual_time(async {
                let world = filled(shape, 2 * MS).await;
                let one = first_disk(&world);
                slow(&world, usize::from(one), &[op], When::From(0), DAY / 24);
                let began = world.env.now();
                let values: Vec<u64> = (1..=UNITS).collect();
                let writes = async {
                    for _ in 0..4 {
                        world.write(0..UNITS, &values).await.expect("a write");
                        world.space.flush(&Ctx::default()).wait().await.expect("a flush");
                    }
                };
                let (took, ()) = futures_util::future::join(reads(&world, 4, 100), writes).await;
                assert!(world.env.now() - began < 2 * HANGS, "{op}: {:?}", world.env.now() - began);
                assert!(took.last() < Some(&(HANGS + 1000 * MS)));
                assert_eq!(presence(&world, one), Presence::Absent(Absence::Slow), "{op}");
                world.path.quiesce().await.expect("it becomes quiet");
            });
        }
    }
}

/// Two disks stall for 12 s, and it takes 5 s until the first has left: the other one is well by then, and stays.
#[test]
fn who_is_well_by_the_time_stays() {
    in_virtual_time(async {
        let world = filled(PAIRS, MS).await;
        let rows = world.book.state().rows;
        let both = [0, 2].map(|slab| rows[&(SPACE, RowNumber(0))].slabs[slab].place.disk.0);
        assert!(world.book.leaving_takes.set((world.env.clone(), 5000 * MS)).is_ok());
        for disk in both {
            slow(&world, usize::from(disk), &[Op::Write], When::Nth(0), 12_000 * MS);
        }
        world.write(0..UNITS, &(1..=UNITS).collect::<Vec<_>>()).await.expect("a write");
        world.env.sleep(60_000 * MS).await;
        let left = both.map(|disk| presence(&world, disk) == Presence::Absent(Absence::Slow));
        assert!(left[0] != left[1], "{left:?}");
        reads(&world, 2, 100).await;
    });
}

/// Reads hang on a disk that goes for another reason: they end, at once when it is let go of or when it
/// failed, and soon in any case.
#[test]
fn reads_end_when_their_disk_has_left_for_another_reason() {
    for (how, bound) in [("let go of", 1100 * MS), ("failed", 1500 * MS), ("absent", HANGS + 1000 * MS)] {
        in_virtual_time(async {
            let world = filled(PAIRS, MS).await;
            world.path.set_hedging(false);
            let one = first_disk(&world);
            slow(&world, usize::from(one), &[Op::Read], When::From(0), DAY / 24);
            let began = world.env.now();
            let goes = async {
                world.env.sleep(1000 * MS).await;
                if how == "failed" {
                    let error = Fault::Error;
                    world.machine.rule(SlotId(usize::from(one)), Rule::new(Op::Write, When::From(0), error));
                    world.write(0..1, &[1]).await.expect("the other copy");
                } else {
                    world.book.leave_now(DiskNumber(one), Absence::Asked).expect("it may");
                }
                if how == "let go of" {
                    world.path.release_absent();
                }
            };
            futures_util::future::join(reads(&world, 8, 1), goes).await;
            let took = world.env.now() - began;
            assert!(took >= 1000 * MS && took < bound, "{how}: {took:?}");
            assert!(presence(&world, one) != Presence::Present);
        });
    }
}

/// What a disk has alone is waited for, however long; so are two disks that hang together when one of them is needed.
#[test]
fn a_disk_that_is_needed_is_waited_for() {
    in_virtual_time(async {
        let world = filled(Shape { disks: 2, copies: 1, ..Shape::MIRROR }, MS).await;
        for disk in 0..2 {
            slow(&world, disk, &[Op::Read, Op::Write], When::Nth(0), 60_000 * MS);
        }
        reads(&world, 2, 10).await;
        world.write(0..1, &[1]).await.expect("a write");
        assert!((0..2).all(|d| presence(&world, d) == Presence::Present));
        let world = filled(Shape::MIRROR, MS).await;
        let began = world.env.now();
        for disk in 0..2 {
            slow(&world, disk, &[Op::Write], When::From(0), 60_000 * MS);
        }
        world.write(0..1, &[1]).await.expect("a write");
        assert!(world.env.now() - began >= 60_000 * MS);
        assert!((0..2).all(|d| presence(&world, d) == Presence::Present));
    });
}
