//! Random histories from a seed: users, checkpoints, replicas that fail, leave and join, flushes that fail, and power
//! cuts at random events.

use std::sync::Arc;
use std::time::Duration;

use disk::Op;
use disk::sim::{CrashPoint, Fault, Rule, SlotId, When};
use futures_util::future::join_all;
use parking_lot::Mutex;

use super::super::*;
use super::cuts::{annex, append, checkpoint, cut_and_compare};
use super::model::Model;
use super::world::{DATA, SLOTS, World};
use super::{Chance, in_virtual_time};

/// Counts of the events in all histories.
#[derive(Debug, Default)]
struct Reached {
    left: usize,
    joined: usize,
    checkpoints: usize,
    cuts: usize,
}

async fn user(world: &World, log: &SpaceLog, model: &Arc<Model>, mut random: Chance) {
    for _ in 0..12 {
        match random.below(8) {
            0..4 => append(world, log, model, false).await,
            4 | 5 => append(world, log, model, true).await,
            6 => {
                let value =
                    (random.below(3) > 0).then(|| vec![random.next() as u8; random.below(900) as usize]);
                annex(log, model, random.below(3), value).await;
            }
            _ => world.env.sleep(Duration::from_millis(random.below(70))).await,
        }
    }
}

/// Faults of the disks, and new replicas for those that are left out.
async fn members(world: &World, log: &SpaceLog, mut random: Chance, reached: &Mutex<Reached>) {
    let mut spare = world.coordinator.rows().len();
    for _ in 0..random.below(4) {
        world.env.sleep(Duration::from_millis(random.below(60))).await;
        let rows = world.coordinator.rows();
        let index = random.below(rows.len() as u64) as u8;
        let fault = match random.below(4) {
            0 => Fault::Slow(Duration::from_secs(60)),
            _ => Fault::Error,
        };
        world.machine.rule(rows[&index].slot, Rule::new(Op::Write, When::Nth(random.below(3)), fault));
        world.env.sleep(Duration::from_millis(random.below(30))).await;
        if !world.coordinator.rows()[&index].is_stale {
            continue;
        }
        reached.lock().left += 1;
        if spare < SLOTS {
            let joined = log.join(world.new_replica(index, SlotId(spare)));
            reached.lock().joined += usize::from(joined.await.is_ok());
            spare += 1;
        }
    }
}

async fn history(
    world: &World,
    log: SpaceLog,
    model: &Arc<Model>,
    random: &mut Chance,
    reached: &Mutex<Reached>,
) {
    let users =
        (0..1 + random.below(4)).map(|_| user(world, &log, model, Chance(random.next()))).collect::<Vec<_>>();
    let members = members(world, &log, Chance(random.next()), reached);
    let work = futures_util::future::join(join_all(users), members);
    let mut pace = Chance(random.next());
    let checkpoints = async {
        loop {
            tokio::select! {
                biased;
                Ok(()) = log.checkpoint_due() => {}
                () = world.env.sleep(Duration::from_millis(10 + pace.below(100))) => {}
            }
            match checkpoint(&log, model).await {
                Ok(_) => reached.lock().checkpoints += 1,
                Err(error) => panic!("a checkpoint: {error}"),
            }
        }
    };
    tokio::select! {
        biased;
        _ = work => {}
        () = checkpoints => {}
    }
    if random.below(2) == 0 {
        world.env.sleep(Duration::from_millis(60)).await;
    }
    log.close().await.expect("closed");
}

fn run(seed: u64, reached: &Mutex<Reached>) {
    let mut random = Chance(seed);
    let (world, model, moments) = in_virtual_time(async {
        let ring = 128 + random.below(3) * 64;
        let world = World::new(seed, ring, 1 + random.below(3) as u8);
        let model = Model::new(&world.machine);
        let log = world.create().await;
        let delay = Duration::from_millis(random.below(5));
        (0..=SLOTS).for_each(|slot| world.machine.shuffle(SlotId(slot), delay));
        if random.below(4) == 0 {
            world.machine.rule(DATA, Rule::new(Op::Flush, When::Nth(random.below(6)), Fault::Error));
        }
        world.machine.record();
        history(&world, log, &model, &mut random, reached).await;
        let moments: Vec<CrashPoint> = world.machine.end_recording();
        (world, model, moments)
    });
    for _ in 0..2 {
        let moment = &moments[random.below(moments.len() as u64) as usize];
        cut_and_compare(&world, &model, moment, seed);
        reached.lock().cuts += 1;
    }
}

#[test]
fn two_thousand_histories() {
    let reached = Mutex::default();
    (0..2000).for_each(|seed| run(seed, &reached));
    let reached = reached.into_inner();
    let all = [reached.left / 300, reached.joined / 100, reached.checkpoints / 2000, reached.cuts / 4000];
    assert!(all.iter().all(|enough| *enough > 0), "{reached:?}");
}
