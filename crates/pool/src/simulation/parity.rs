//! Parity spaces under power cuts, with as many disks lost as they promise to survive.

use std::time::Duration;

use disk::sim::{Fault, Machine, Rule, SlotId, When};
use disk::{Disk, DiskError, Op, PowerCut};
use env::{Ctx, Env};
use parking_lot::Mutex;

use super::crashes::{Recorded, a_cut, read_all};
use super::local::{LOCAL, LOCAL_WIDE};
use super::model::Model;
use super::world::{Load, Shape, World, work};
use super::{Random, in_virtual_time};
use crate::events::Found;
use crate::jobs::Progress;
use crate::{Absence, DiskNumber, RowNumber, UNIT};

const LOAD: Load = Load { users: 2, steps: 12, units: 24, delay_ms: 3, rows: false };

pub(super) const SINGLE: Shape =
    Shape { copies: 1, parity: 1, columns: 2, disks: 3, interleave: 8 << 10, rows_max: 2, ..Shape::MIRROR };
const WIDE: Shape = Shape { columns: 3, disks: 5, interleave: 4 << 10, ..SINGLE };
pub(super) const DUAL: Shape = Shape { parity: 2, disks: 4, ..SINGLE };
const DUAL_WIDE: Shape = Shape { columns: 3, disks: 6, interleave: 4 << 10, ..DUAL };

/// Seeds from here on have local reconstruction codes; a multiple of what tests take seeds modulo of.
const GROUPS: u64 = 960_000;

fn shapes(seed: u64) -> Shape {
    match seed {
        GROUPS.. => [LOCAL, LOCAL_WIDE][seed as usize / 2 % 2],
        _ => [SINGLE, DUAL, WIDE, DUAL_WIDE][seed as usize % 4],
    }
}

fn record(shape: Shape, load: Load, seed: u64) -> Recorded {
    in_virtual_time(async {
        let world = World::new(shape, seed).await;
        world.machine.record();
        let model = Mutex::new(Model::default());
        work(&world, load, seed, &model).await;
        Recorded::of(&world, model)
    })
}

/// Up to as many disks as may be lost.
fn some_disks(shape: Shape, random: &mut Random) -> Vec<u16> {
    let many = random.below(u64::from(shape.parity) + 1);
    let first = random.below(u64::from(shape.disks));
    (0..many).map(|n| ((first + n * (1 + random.below(2))) % u64::from(shape.disks)) as u16).collect()
}

fn pull_all(machine: &Machine, disks: &[u16]) {
    disks.iter().for_each(|n| machine.pull(SlotId(usize::from(*n)), PowerCut::LoseAll));
}

pub(super) async fn go(world: &World, disks: &[u16]) {
    pull_all(&world.machine, disks);
    for disk in disks {
        world.book.leave_now(DiskNumber(*disk), Absence::Gone).expect("it may leave");
    }
}

pub(super) async fn resynced(world: &World, what: &str) {
    let progress = Progress::default();
    for _ in 0..20 {
        world.path.resolve_all(&progress).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        for n in 0..world.shape.disks {
            world.path.resync(DiskNumber(n), &progress).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        if world.book.state().rows.values().flat_map(|r| &r.slabs).all(|c| c.missed == 0) {
            return;
        }
    }
    panic!("{what}: resync does not end: {:x?}", world.book.state().rows);
}

/// Disks, as many as may be lost, are pulled and come back, so often; each time they get what they missed.
pub(super) async fn come_and_go(world: &World, rounds: u32, random: &mut Random, what: &str) {
    for _ in 0..rounds {
        let away = some_disks(world.shape, random);
        world.env.sleep(Duration::from_millis(random.below(20))).await;
        for n in &away {
            let cut = PowerCut::Tear { seed: random.next() };
            world.machine.pull(SlotId(usize::from(*n)), cut);
        }
        world.env.sleep(Duration::from_millis(random.below(30))).await;
        for n in &away {
            world.machine.plug(SlotId(usize::from(*n)));
            world.book.leave_now(DiskNumber(*n), Absence::Gone).expect("the others are there");
            if !world.book.state().is_present(DiskNumber(*n)) {
                world.bring_back(*n).await;
            }
        }
        resynced(world, what).await;
    }
}

/// Cuts the power at a moment, takes disks away, and looks at what is left.
pub(super) fn cut_and_compare(shape: Shape, load: Load, recorded: &Recorded, which: usize, seed: u64) {
    let moment = &recorded.moments[which];
    let mut random = Random(seed ^ moment.event.wrapping_mul(77));
    let cut = a_cut(&mut random);
    let what = format!("{shape:?}, seed {seed}, cut before event {} ({cut:?})", moment.event);
    in_virtual_time(async {
        let env = Env::simulated(seed);
        let machine: Machine = moment.cut(&env, cut);
        let without = some_disks(shape, &mut random);
        pull_all(&machine, &without);
        let what = format!("{what}, without {without:?}");
        let world = World::open(shape, env, machine, recorded.states[which].clone(), 2).await;
        let first = read_all(&world, load, &what).await;
        for (unit, value) in &first {
            let allowed = recorded.model.after_cut(*unit, moment.event);
            assert!(allowed.contains(value), "{what}: unit {unit} is {value}, not one of {allowed:?}");
        }
        // What was read stays so, whatever the next cut takes.
        world.machine.cut(a_cut(&mut random));
        let world = world.reopen().await;
        let again = read_all(&world, load, &what).await;
        assert_eq!(first, again, "{what}: another cut");
        // Those away come back stale, are brought up to date, and others go.
        for n in &without {
            world.machine.plug(SlotId(usize::from(*n)));
            if !world.book.state().is_present(DiskNumber(*n)) {
                world.bring_back(*n).await;
            }
        }
        let again = read_all(&world, load, &what).await;
        assert_eq!(first, again, "{what}: back, not up to date");
        resynced(&world, &what).await;
        let moved = world.path.resume_moves(&Progress::default()).await;
        moved.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(world.book.state().moves().count(), 0, "{what}: moves that do not end");
        let others: Vec<u16> =
            (0..shape.disks).filter(|n| !without.contains(n)).take(usize::from(shape.parity)).collect();
        go(&world, &others).await;
        let last = read_all(&world, load, &what).await;
        assert_eq!(first, last, "{what}: without {others:?}");
        assert_eq!(world.path.events.count(Found::Lost), 0, "{what}");
    });
}

#[test]
fn every_event_of_short_workloads() {
    for seed in (0..4).chain([GROUPS]) {
        let load = Load { rows: seed < 2, users: 1 + seed % 2, ..LOAD };
        let recorded = record(shapes(seed), load, seed);
        for which in 0..recorded.moments.len() {
            cut_and_compare(shapes(seed), load, &recorded, which, seed);
        }
    }
}

#[test]
fn some_events_of_many() {
    for seed in (1000..1080).chain(GROUPS + 1000..GROUPS + 1020) {
        let load = Load { users: 1 + seed % 3, steps: 24, rows: seed % 5 == 0, ..LOAD };
        let recorded = record(shapes(seed), load, seed);
        let mut random = Random(seed);
        for _ in 0..4 {
            let which = random.below(recorded.moments.len() as u64) as usize;
            cut_and_compare(shapes(seed), load, &recorded, which, seed);
        }
    }
}

const LONG: Load = Load { users: 3, steps: 40, units: 24, delay_ms: 3, rows: false };

async fn compare(world: &World, load: Load, model: &Mutex<Model>, what: &str) {
    for (unit, value) in read_all(world, load, what).await {
        let allowed = model.lock().now(unit);
        assert!(allowed.contains(&value), "{what}: unit {unit} is {value}, not one of {allowed:?}");
        model.lock().seen(unit, value);
    }
}

#[test]
fn disks_come_and_go_in_turn() {
    for seed in (0..40).chain(GROUPS..GROUPS + 12) {
        let (shape, what) = (shapes(seed), format!("seed {seed}"));
        in_virtual_time(async {
            let world = World::new(shape, seed).await;
            let model = Mutex::new(Model::default());
            let mut random = Random(seed);
            let faults = come_and_go(&world, 4, &mut random, &what);
            futures_util::future::join(work(&world, LONG, seed, &model), faults).await;
            compare(&world, LONG, &model, &what).await;
            world.space.scrub(&Progress::default()).await.expect("a scrub");
            assert_eq!(world.path.events.count(Found::Unsettled), 0, "{what}: parity is the data's");
            world.space.flush_all().await.expect("a flush");
            go(&world, &(0..u16::from(shape.parity)).collect::<Vec<_>>()).await;
            compare(&world, LONG, &model, &format!("{what}: without")).await;
        });
    }
}

#[test]
fn writes_and_flushes_that_fail_cost_a_disk_and_nothing_else() {
    let mut left = 0;
    for seed in (0..60).chain(GROUPS..GROUPS + 16) {
        let (shape, what) = (shapes(seed), format!("seed {seed}"));
        in_virtual_time(async {
            let world = World::new(shape, seed).await;
            let op = if seed % 8 < 4 { Op::Write } else { Op::Flush };
            world.machine.rule(SlotId(1), Rule::new(op, When::Nth(seed / 2 % 40), Fault::Error));
            let model = Mutex::new(Model::default());
            work(&world, LONG, seed, &model).await;
            left += u32::from(!world.book.state().is_present(DiskNumber(1)));
            compare(&world, LONG, &model, &what).await;
            if world.path.disk(DiskNumber(1)).is_none() {
                world.bring_back(1).await;
            }
            resynced(&world, &what).await;
            world.space.flush_all().await.expect("a flush");
            go(&world, &[0]).await;
            compare(&world, LONG, &model, &format!("{what}: without disk 0")).await;
        });
    }
    assert!(left > 20, "only {left} disks left");
}

/// One disk rots, or loses writes, or puts them elsewhere: never seen by a user, always repaired.
#[test]
fn a_disk_that_lies_is_found_out() {
    let mut found = 0;
    for seed in (0..60).chain(GROUPS..GROUPS + 16) {
        let (shape, what) = (shapes(seed), format!("seed {seed}"));
        in_virtual_time(async {
            let world = World::new(shape, seed).await;
            let slabs = world.shape.areas().slabs;
            let lie =
                [Fault::Lost, Fault::Misdirected, Fault::Partial, Fault::Flipped][seed as usize / 4 % 4];
            let rule = Rule::new(Op::Write, When::Chance(100_000), lie);
            world.machine.rule(SlotId(0), rule.within(slabs.offset..slabs.end()));
            let model = Mutex::new(Model::default());
            work(&world, LONG, seed, &model).await;
            compare(&world, LONG, &model, &what).await;
            world.machine.no_rules(SlotId(0));
            // What is in order is not looked at again: the next one has to find what the disk has lost.
            world.path.quiesce().await.expect("all disks");
            let world = world.reopen().await;
            compare(&world, LONG, &model, &format!("{what}: opened again")).await;
            world.space.scrub(&Progress::default()).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            world.path.quiesce().await.expect("all disks");
            found += world.path.events.count(Found::Healed) + world.path.events.count(Found::BadTable);
            assert_eq!(world.path.events.count(Found::Lost), 0, "{what}");
            assert_eq!(world.path.events.count(Found::Unsettled), 0, "{what}: parity is the data's");
            go(&world, &[1]).await;
            compare(&world, LONG, &model, &format!("{what}: without disk 1")).await;
        });
    }
    assert!(found > 20, "only {found} found");
}

#[test]
fn rot_is_healed_by_reads_and_counted() {
    in_virtual_time(async {
        let shape = Shape { interleave: 2 << 20, ..DUAL };
        let world = World::new(shape, 1).await;
        world.write(0..16, &(1..17).collect::<Vec<_>>()).await.expect("a write");
        world.space.flush_all().await.expect("a flush");
        let state = world.book.state();
        let column = |c: usize| state.rows[&(world.space.id(), RowNumber(0))].slabs[c].place;
        let at = |c: usize, unit: u64| world.shape.areas().data(column(c).slab).offset + unit * UNIT + 77;
        let slot = |c: usize| SlotId(usize::from(column(c).disk.0));
        world.machine.flip(slot(0), at(0, 3), 3);
        world.machine.flip(slot(0), at(0, 9), 3);
        world.machine.make_bad(slot(0), at(0, 12) - 77, UNIT);
        assert_eq!(world.read(0..16).await.expect("a read"), (1..17).collect::<Vec<_>>());
        let count = |found| world.path.events.count(found);
        assert_eq!((count(Found::Healed), count(Found::Unreadable)), (2, 1));
        // Parity too, by a scrub.
        world.machine.flip(slot(3), at(3, 5), 0);
        world.machine.flip(slot(0), at(0, 5), 0);
        world.space.scrub(&Progress::default()).await.expect("a scrub");
        assert_eq!((count(Found::Healed), count(Found::Lost), count(Found::Unsettled)), (4, 0, 0));
        // Three of a stripe: said, with the place, and never given out.
        for c in [0, 2, 3] {
            world.machine.flip(slot(c), at(c, 5), 0);
        }
        let place = disk::Place::new(Op::Read, 4 * UNIT, 3 * UNIT);
        assert_eq!(world.read(4..7).await, Err(DiskError::Medium { at: place }));
        assert_eq!(world.read(6..7).await, Ok(vec![7]));
        // Written again it is well.
        world.write(5..6, &[99]).await.expect("a write of all that the stripe has");
        assert_eq!(world.read(4..7).await, Ok(vec![5, 99, 7]));
    });
}

#[test]
fn one_disk_too_many_is_said_and_comes_back() {
    in_virtual_time(async {
        let world = World::new(SINGLE, 1).await;
        world.write(0..8, &[1, 2, 3, 4, 5, 6, 7, 8]).await.expect("a write");
        world.space.flush_all().await.expect("a flush");
        world.write(2..3, &[30]).await.expect("a journalled write");
        go(&world, &[1]).await;
        assert_eq!(world.read(0..8).await.expect("two disks"), [1, 2, 30, 4, 5, 6, 7, 8]);
        world.write(3..4, &[40]).await.expect("two disks");
        go(&world, &[2]).await;
        assert!(world.write(0..1, &[10]).await.is_err());
        assert!(world.read(0..8).await.is_err());
        for n in [1, 2] {
            world.machine.plug(SlotId(n));
            world.bring_back(n as u16).await;
        }
        resynced(&world, "both are back").await;
        assert_eq!(world.read(0..8).await.expect("all disks"), [1, 2, 30, 40, 5, 6, 7, 8]);
    });
}

#[test]
fn a_lost_disk_is_rebuilt_on_another() {
    for seed in (4..8).chain([GROUPS, GROUPS + 2]) {
        in_virtual_time(async {
            let shape = shapes(seed);
            let shape = Shape { disks: shape.disks + 1, slabs: 4, ..shape };
            let world = World::new(shape, seed).await;
            let model = Mutex::new(Model::default());
            work(&world, LONG, seed, &model).await;
            go(&world, &[1]).await;
            let progress = Progress::default();
            let repair = world.path.evacuate(DiskNumber(1), &progress);
            let (_, repaired) =
                futures_util::future::join(work(&world, LONG, seed + 50, &model), repair).await;
            assert_eq!(repaired.expect("nothing fails").left, 0, "there is room");
            assert_eq!(world.book.state().slabs_used(DiskNumber(1)).count(), 0);
            compare(&world, LONG, &model, "rebuilt").await;
            world.space.scrub(&progress).await.expect("a scrub");
            let found = [Found::Healed, Found::Unsettled, Found::Lost].map(|f| world.path.events.count(f));
            assert_eq!(found, [0; 3], "all columns are as they should be");
            go(&world, &[0]).await;
            compare(&world, LONG, &model, "without another").await;
        });
    }
}

/// Parts of a group that are unknown here are not overwritten by changes of the rest.
#[test]
fn a_region_that_waits_for_a_disk_keeps_what_it_has() {
    for turn in 0..2 {
        in_virtual_time(async {
            let world = World::new(SINGLE, 1).await;
            world.write(0..8, &[1, 2, 3, 4, 5, 6, 7, 8]).await.expect("a write");
            world.write(100..102, &[9, 10]).await.expect("a write elsewhere");
            world.path.quiesce().await.expect("three disks");
            go(&world, &[1]).await;
            world.write(0..1, &[11]).await.expect("two disks");
            world.path.quiesce().await.expect("two disks");
            world.machine.plug(SlotId(1));
            world.bring_back(1).await;
            go(&world, &[2]).await;
            world.machine.cut(PowerCut::KeepAll);
            let world = world.reopen().await;
            assert!(world.write(0..1, &[12]).await.is_err());
            world.write(100..101, &[13]).await.expect("another region has two disks");
            world.path.quiesce().await.expect("two disks");
            let world = if turn == 0 {
                world
            } else {
                world.machine.cut(PowerCut::LoseAll);
                world.reopen().await
            };
            assert_eq!(world.read(100..102).await.expect("two disks"), [13, 10]);
            world.machine.plug(SlotId(2));
            world.bring_back(2).await;
            resynced(&world, "all are back").await;
            assert_eq!(world.read(0..8).await.expect("all disks"), [11, 2, 3, 4, 5, 6, 7, 8]);
            go(&world, &[0]).await;
            assert_eq!(world.read(0..8).await.expect("two disks"), [11, 2, 3, 4, 5, 6, 7, 8]);
            assert_eq!(world.read(100..102).await.expect("two disks"), [13, 10]);
        });
    }
}

/// More changes than the journal has room for, in more groups than there are tables.
#[test]
fn a_full_journal_slows_down_and_stops_nothing() {
    for seed in (0..4).chain([GROUPS]) {
        in_virtual_time(async {
            let shape = Shape { slabs: 24, rows_max: 20, ..shapes(seed) };
            let world = World::new(shape, seed).await;
            let model = Mutex::new(Model::default());
            let load = Load { users: 8, steps: 120, units: 64, ..LONG };
            work(&world, load, seed, &model).await;
            compare(&world, load, &model, &format!("seed {seed}")).await;
            let counts = world.space.parity_counts().expect("it has parity");
            assert!(
                counts.written > 0 && counts.in_place > counts.written && counts.journal > 0,
                "{counts:?}"
            );
            // What was not is old or new after the cut.
            world.space.flush_all().await.expect("a flush");
            world.machine.cut(PowerCut::KeepAll);
            let world = world.reopen().await;
            compare(&world, load, &model, &format!("seed {seed}: again")).await;
        });
    }
}

/// What each kind of write costs: `docs/0002-parity.md` has the table.
#[test]
fn what_writes_cost() {
    in_virtual_time(async {
        let shape = Shape { columns: 4, disks: 5, interleave: 4 << 10, ..SINGLE };
        let world = World::new(shape, 1).await;
        let cost = async |units: std::ops::Range<u64>| {
            let before = world.space.parity_counts().expect("it has parity");
            let values: Vec<u64> = units.clone().map(|u| u + 1).collect();
            world.write(units, &values).await.expect("a write");
            let after = world.space.parity_counts().expect("it has parity");
            let of = |a: u64, b: u64| a - b;
            (
                of(after.read_to_write, before.read_to_write),
                of(after.in_place, before.in_place),
                of(after.journal, before.journal),
            )
        };
        assert_eq!(cost(0..4).await, (0, 5, 0), "a full stripe that is new");
        assert_eq!(cost(4..5).await, (0, 2, 0), "a unit of a new stripe");
        assert_eq!(cost(5..6).await, (1, 2, 0), "another one: the first is read, not the parity");
        world.space.flush_all().await.expect("a flush");
        assert_eq!(cost(0..4).await, (0, 5, 6), "a full stripe over another");
        assert_eq!(cost(0..1).await, (2, 2, 3), "a unit: it and the parity are read");
        assert_eq!(cost(0..3).await, (1, 4, 5), "most of a stripe: the rest is read");
        let buffered = world.space.flush(&Ctx::default()).wait().await;
        buffered.expect("a flush");
    });
}

/// I/Os longer than a batch, a group and a row, with buffers that fit nothing.
#[test]
fn long_io_goes_round_columns_and_rows() {
    in_virtual_time(async {
        for shape in [SINGLE, DUAL_WIDE, LOCAL_WIDE] {
            let world = World::new(shape, 1).await;
            let all: Vec<u64> = (1..=1500).collect();
            world.write(7..1507, &all).await.expect("a write");
            assert_eq!(world.read(7..1507).await.expect("a read"), all);
            assert_eq!(world.read(5..9).await.expect("a read"), [0, 0, 1, 2]);
            let (from, length) = (100 * UNIT, 1100 * UNIT);
            world.space.discard(&Ctx::default(), from, length).wait().await.expect("a discard");
            world.space.flush(&Ctx::default()).wait().await.expect("a flush");
            go(&world, &[2]).await;
            let read = world.read(0..1507).await.expect("a read");
            for (unit, value) in (0_u64..).zip(read) {
                let gone = !(7..1507).contains(&unit) || (100..1200).contains(&unit);
                assert_eq!(value, if gone { 0 } else { unit - 6 }, "unit {unit}");
            }
            assert_eq!(world.write(0..0, &[]).await, Ok(()));
        }
    });
}
