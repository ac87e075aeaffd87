//! Power cuts at every event of short histories.

use std::sync::Arc;
use std::time::Duration;

use disk::PowerCut;
use disk::sim::CrashPoint;
use futures_util::future::join_all;

use super::super::*;
use super::model::Model;
use super::world::{World, early, flush};
use super::{Chance, in_virtual_time};

pub(super) fn a_cut(random: &mut Chance) -> PowerCut {
    match random.below(6) {
        0 => PowerCut::LoseAll,
        1 => PowerCut::KeepAll,
        2 | 3 => PowerCut::Reorder { seed: random.next() },
        _ => PowerCut::Tear { seed: random.next() },
    }
}

/// Opens the log after a cut, compares, closes it, and compares again after another opening.
pub(super) fn cut_and_compare(world: &World, model: &Model, moment: &CrashPoint, seed: u64) {
    let mut random = Chance(seed ^ moment.event.wrapping_mul(77));
    let cut = a_cut(&mut random);
    let what = format!("seed {seed}, cut before event {} ({cut:?})", moment.event);
    in_virtual_time(async {
        let after = world.after(moment, cut);
        // Another power cut at any time, even during the opening, loses nothing that was found.
        after.machine.record();
        let (log, opened) = after.open().await;
        model.check(&after, &log, &opened, moment.event, &what);
        let wait = world.append(&log, early(1));
        after.env.sleep(Duration::from_millis(random.below(3))).await;
        drop(wait);
        let moments = after.machine.end_recording();
        let again = &moments[random.below(moments.len() as u64) as usize];
        let after = after.after(again, a_cut(&mut random));
        let (log, opened) = after.open().await;
        model.check(&after, &log, &opened, moment.event, &format!("{what}, and again at {again:?}"));
        log.close().await.expect("closed");
    });
}

pub(super) async fn append(world: &World, log: &SpaceLog, model: &Model, is_redo: bool) {
    let unit = model.unit(is_redo);
    if !is_redo {
        world.write(unit).await;
    }
    model.enqueued(unit);
    match world.append(log, if is_redo { early(unit) } else { flush(unit) }).await {
        Ok(_) => model.acknowledged(unit),
        Err(LogError::NotFlushed(_)) => model.doubted(unit),
        Err(_) => {}
    }
}

pub(super) async fn annex(log: &SpaceLog, model: &Model, key: u64, value: Option<Vec<u8>>) {
    let number = model.annex(key, value.clone());
    let wait = match value {
        Some(value) => log.annex_put(key, value),
        None => log.annex_remove(key),
    };
    match wait.await {
        Ok(_) => model.annex_acknowledged(key, number),
        Err(LogError::TooLarge(_)) => model.annex_refused(key),
        Err(_) => {}
    }
}

pub(super) async fn checkpoint(log: &SpaceLog, model: &Arc<Model>) -> Result<(), LogError> {
    let parts = Arc::clone(model);
    log.checkpoint(move || parts.parts()).await
}

/// Three users, annex records and checkpoints.
async fn short(world: &World, log: SpaceLog, model: &Arc<Model>) {
    let users = (0..3_u64).map(|user| {
        let log = &log;
        async move {
            for step in 0..5 {
                append(world, log, model, (user + step) % 3 == 0).await;
                annex(log, model, user, (step != 3).then(|| vec![step as u8; 100])).await;
                if user == 0 && step % 2 == 1 {
                    checkpoint(log, model).await.expect("a checkpoint");
                }
            }
        }
    });
    join_all(users).await;
    world.env.sleep(Duration::from_millis(60)).await;
    log.close().await.expect("closed");
}

#[test]
fn a_cut_at_every_event_keeps_what_was_acknowledged() {
    let (mut cuts, mut events) = (0, 0);
    for seed in 0..24 {
        let (world, model, moments) = in_virtual_time(async {
            let world = World::new(seed, 128, 1 + (seed % 3) as u8);
            for slot in 0..=super::world::SLOTS {
                world.machine.shuffle(disk::sim::SlotId(slot), Duration::from_millis(seed % 4));
            }
            let model = Model::new(&world.machine);
            let log = world.create().await;
            world.machine.record();
            short(&world, log, &model).await;
            let moments: Vec<CrashPoint> = world.machine.end_recording();
            (world, model, moments)
        });
        for moment in &moments {
            cut_and_compare(&world, &model, moment, seed);
            cuts += 1;
        }
        events += moments.len();
    }
    assert!(cuts > 500 && events > 500, "{cuts} cuts");
}
