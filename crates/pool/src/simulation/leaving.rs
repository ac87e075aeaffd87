//! Users at work while as many disks are away as may be, and another one takes no checksum blocks: what it
//! has alone waits, what does not is durable, and a power cut at any moment takes no more than it may.

use std::time::Duration;

use disk::sim::{Fault, Machine, Rule, SlotId, When};
use disk::{Op, PowerCut};
use env::Env;
use futures_util::future::join;
use parking_lot::Mutex;

use super::crashes::{Recorded, a_cut, read_all};
use super::faults::compare;
use super::model::Model;
use super::parity::{DUAL, SINGLE, go, resynced};
use super::world::{Load, SPACE, Shape, World, work};
use super::{Random, in_virtual_time};
use crate::events::Found;
use crate::groups::GroupKey;
use crate::jobs::Progress;
use crate::{Absence, DiskNumber, RowNumber, UNIT};

const LOAD: Load = Load { users: 2, steps: 60, units: 24, delay_ms: 3, rows: false };

fn shapes(seed: u64) -> Shape {
    match seed % 3 {
        0 => Shape { disks: 4, ..Shape::MIRROR },
        1 => Shape { disks: 5, ..SINGLE },
        _ => Shape { disks: 6, ..DUAL },
    }
}

/// A disk takes no checksum blocks of what it has of the space.
fn refuses_blocks(world: &World, disk: u16) {
    let state = world.book.state();
    let slabs = state.rows.iter().filter(|((space, _), _)| *space == SPACE).flat_map(|(_, r)| &r.slabs);
    for slab in slabs.filter(|c| c.place.disk.0 == disk).map(|c| c.place.slab) {
        let blocks = world.shape.areas().checksums(slab);
        let rule = Rule::new(Op::Write, When::From(0), Fault::Error).within(blocks.offset..blocks.end());
        world.machine.rule(SlotId(usize::from(disk)), rule);
    }
}

/// A flush that returns the groups that it skipped: all else is durable.
async fn flush_most(world: &World, model: &Mutex<Model>) -> bool {
    let row_units = world.space.inner.layout.row_bytes() / UNIT;
    let mut flushing = model.lock().flush_begins();
    let Ok(left) = world.space.flush_most().await else { return false };
    let key = |unit: u64| GroupKey { row: RowNumber((unit / row_units) as u32), column: 0, group: 0 };
    flushing.retain(|unit| left.not(key(unit)).is_ok());
    model.lock().flushed(&flushing, world.machine.events());
    !left.is_nothing()
}

/// Rounds of that; how many flushes left something.
async fn trouble(world: &World, model: &Mutex<Model>, random: &mut Random, what: &str) -> u32 {
    let mut left = 0;
    let disks = u64::from(world.shape.disks);
    for _ in 0..3 {
        let first = random.below(disks);
        let many = u64::from(world.shape.parity.max(1));
        let all: Vec<u16> = (first..=first + many).map(|n| (n % disks) as u16).collect();
        let (refusing, away) = all.split_first().expect("two at least");
        world.env.sleep(Duration::from_millis(random.below(20))).await;
        for n in away {
            world.machine.pull(SlotId(usize::from(*n)), PowerCut::Tear { seed: random.next() });
            world.book.leave_now(DiskNumber(*n), Absence::Gone).expect("the others have it");
        }
        world.env.sleep(Duration::from_millis(random.below(10))).await;
        refuses_blocks(world, *refusing);
        for _ in 0..3 {
            world.env.sleep(Duration::from_millis(random.below(12))).await;
            left += u32::from(flush_most(world, model).await);
        }
        away.iter().for_each(|n| world.machine.plug(SlotId(usize::from(*n))));
        // A mirror's regions that it has marked are to be resolved then, and wait for the one that refuses.
        if world.shape.parity > 0 && random.below(2) == 0 {
            world.bring_back(away[0]).await;
            let _ = world.path.resync(DiskNumber(away[0]), &Progress::default()).await;
            left += u32::from(flush_most(world, model).await);
        }
        world.machine.no_rules(SlotId(usize::from(*refusing)));
        for n in all.iter().filter(|n| !world.book.state().is_present(DiskNumber(**n))) {
            world.bring_back(*n).await;
        }
        resynced(world, what).await;
    }
    left
}

fn cut_and_compare(shape: Shape, recorded: &Recorded, which: usize, seed: u64) {
    let moment = &recorded.moments[which];
    let mut random = Random(seed ^ moment.event.wrapping_mul(77));
    let cut = a_cut(&mut random);
    let what = format!("seed {seed}, cut before event {} ({cut:?})", moment.event);
    in_virtual_time(async {
        let env = Env::simulated(seed);
        let machine: Machine = moment.cut(&env, cut);
        let slots = || (0..shape.disks).map(|n| SlotId(usize::from(n)));
        slots().for_each(|n| machine.no_rules(n));
        let world = World::open(shape, env, machine, recorded.states[which].clone(), 2).await;
        let first = read_all(&world, LOAD, &what).await;
        for (unit, value) in &first {
            let allowed = recorded.model.after_cut(*unit, moment.event);
            assert!(allowed.contains(value), "{what}: unit {unit} is {value}, not one of {allowed:?}");
        }
        world.machine.cut(a_cut(&mut random));
        let world = world.reopen().await;
        assert_eq!(first, read_all(&world, LOAD, &what).await, "{what}: another cut");
        slots().for_each(|n| world.machine.plug(n));
        for n in (0..shape.disks).filter(|n| !world.book.state().is_present(DiskNumber(*n))) {
            world.bring_back(n).await;
        }
        assert_eq!(first, read_all(&world, LOAD, &what).await, "{what}: all are back");
        resynced(&world, &what).await;
        go(&world, &(0..u16::from(shape.parity.max(1))).collect::<Vec<_>>()).await;
        assert_eq!(first, read_all(&world, LOAD, &what).await, "{what}: without some");
        assert_eq!(world.path.events.count(Found::Lost), 0, "{what}");
    });
}

#[test]
fn what_waits_costs_nothing_else_whenever_the_power_goes() {
    let mut left = 0;
    for seed in 0..40 {
        let (shape, what) = (shapes(seed), format!("seed {seed}"));
        let recorded = in_virtual_time(async {
            let world = World::new(shape, seed).await;
            let (model, mut random) = (Mutex::new(Model::default()), Random(seed ^ 0x1ef7));
            work(&world, Load { steps: 8, ..LOAD }, seed ^ 1, &model).await;
            world.machine.record();
            let troubles = trouble(&world, &model, &mut random, &what);
            left += join(work(&world, LOAD, seed, &model), troubles).await.1;
            compare(&world, LOAD, &model, &what).await;
            Recorded::of(&world, model)
        });
        let mut random = Random(seed);
        for _ in 0..6 {
            let which = random.below(recorded.moments.len() as u64) as usize;
            cut_and_compare(shape, &recorded, which, seed);
        }
    }
    assert!(left > 20, "{left} flushes left something");
}
