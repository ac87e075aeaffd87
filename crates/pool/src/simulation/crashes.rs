//! Power cuts: at every event of short workloads, at some of many; what comes back is compared unit by unit,
//! again after another cut, and again without one of the disks.

use disk::PowerCut;
use disk::sim::{Machine, Moment, SlotId};
use env::Env;
use parking_lot::Mutex;

use super::model::{Model, Value};
use super::world::{Load, Shape, Site, World, used_units, work};
use super::{Random, in_virtual_time};
use crate::jobs::Progress;
use crate::{Absence, DiskNumber, State};

const LOAD: Load = Load { users: 2, steps: 12, units: 24, delay_ms: 3, rows: false };

/// A workload with all moments to cut its power at.
pub(super) struct Recorded {
    pub(super) moments: Vec<Moment>,
    pub(super) states: Vec<State>,
    pub(super) model: Model,
}

impl Recorded {
    /// What was done since the machine began to record.
    pub(super) fn of(world: &World, model: Mutex<Model>) -> Recorded {
        let moments = world.machine.recorded();
        let states = moments.iter().map(|m| world.book.state_at(m.event)).collect();
        Recorded { moments, states, model: model.into_inner() }
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

pub(super) fn a_cut(random: &mut Random) -> PowerCut {
    match random.below(6) {
        0 => PowerCut::LoseAll,
        1 => PowerCut::KeepAll,
        2 | 3 => PowerCut::Reorder { seed: random.next() },
        _ => PowerCut::Tear { seed: random.next() },
    }
}

pub(super) async fn read_all(world: &Site, load: Load, what: &str) -> Vec<(u64, Value)> {
    let mut all = Vec::new();
    for units in used_units(world, load) {
        let values = world.read(units.clone()).await.unwrap_or_else(|e| panic!("{what}: {units:?}: {e}"));
        all.extend(units.zip(values));
    }
    all
}

/// Cuts the power at a moment and looks at what is left.
pub(super) fn cut_and_compare(shape: Shape, load: Load, recorded: &Recorded, which: usize, seed: u64) {
    let moment = &recorded.moments[which];
    let mut random = Random(seed ^ moment.event.wrapping_mul(77));
    let cut = a_cut(&mut random);
    let what = format!("{shape:?}, seed {seed}, cut before event {} ({cut:?})", moment.event);
    in_virtual_time(async {
        let env = Env::simulated(seed);
        let machine: Machine = moment.cut(&env, cut);
        let without =
            (random.below(3) == 0 && shape.copies > 1).then(|| random.below(u64::from(shape.disks)));
        if let Some(n) = without {
            machine.pull(SlotId(n as usize), PowerCut::LoseAll);
        }
        let what = format!("{what}, without {without:?}");
        let state = recorded.states[which].clone();
        if let Some(n) = without
            && state.rows.values().any(|r| {
                let gone =
                    r.slabs.iter().filter(|c| c.place.disk.0 == n as u16 || !state.is_present(c.place.disk));
                gone.count() == r.slabs.len()
            })
        {
            return;
        }
        let world = World::open(shape, env, machine, state, 2).await;
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
        let Some(n) = without else {
            // What was moving when the power went goes on, and changes nothing.
            let progress = Progress::default();
            world.path.resume_moves(&progress).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(world.book.state().moves().count(), 0, "{what}: moves that do not end");
            let moved = read_all(&world, load, &what).await;
            assert_eq!(first, moved, "{what}: moved");
            return;
        };
        // The disk comes back stale, is brought up to date, and then the others go.
        world.machine.plug(SlotId(n as usize));
        world.bring_back(n as u16).await;
        let again = read_all(&world, load, &what).await;
        assert_eq!(first, again, "{what}: back, not up to date");
        let progress = Progress::default();
        world.path.resolve_all(&progress).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        world.path.resync(DiskNumber(n as u16), &progress).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        let state = world.book.state();
        assert!(state.rows.values().flat_map(|r| &r.slabs).all(|c| c.missed == 0), "{what}: not resynced");
        if shape.columns == 1 && shape.disks == u16::from(shape.copies) {
            for other in (0..shape.disks).filter(|d| u64::from(*d) != n) {
                world.machine.pull(SlotId(usize::from(other)), PowerCut::LoseAll);
                world.book.leave_now(DiskNumber(other), Absence::Gone).expect("it may leave");
            }
            let alone = read_all(&world, load, &what).await;
            assert_eq!(first, alone, "{what}: alone");
        }
    });
}

fn shapes(seed: u64) -> Shape {
    match seed % 5 {
        0 | 1 => Shape::MIRROR,
        2 => Shape { columns: 2, disks: 4, interleave: 16 << 10, slabs: 2, ..Shape::MIRROR },
        3 => Shape { copies: 3, disks: 3, ..Shape::MIRROR },
        _ => Shape { copies: 1, disks: 2, columns: 2, interleave: 8 << 10, ..Shape::MIRROR },
    }
}

#[test]
fn every_event_of_short_workloads() {
    for seed in 0..20 {
        let load = Load { rows: seed % 2 == 0, users: 1 + seed % 2, ..LOAD };
        let recorded = record(shapes(seed), load, seed);
        for which in 0..recorded.moments.len() {
            cut_and_compare(shapes(seed), load, &recorded, which, seed);
        }
    }
}

#[test]
fn some_events_of_many() {
    for seed in 1000..2000 {
        let load = Load { users: 1 + seed % 3, steps: 24, rows: seed % 4 == 0, ..LOAD };
        let recorded = record(shapes(seed), load, seed);
        let mut random = Random(seed);
        for _ in 0..4 {
            let which = random.below(recorded.moments.len() as u64) as usize;
            cut_and_compare(shapes(seed), load, &recorded, which, seed);
        }
    }
}

#[test]
fn a_seed_replays_byte_for_byte() {
    let run = |seed| {
        in_virtual_time(async move {
            let world = World::new(Shape::MIRROR, seed).await;
            let model = Mutex::new(Model::default());
            work(&world, Load { users: 3, steps: 40, ..LOAD }, seed, &model).await;
            (world.machine.image(SlotId(0)), world.machine.image(SlotId(1)), world.book.state())
        })
    };
    let (first, second) = (run(5), run(5));
    assert!(first == second);
    assert!(first.0 != run(6).0);
}
