//! The annex, the ring's room, and snapshots.

use std::time::Duration;

use disk::PowerCut;
use disk::sim::SlotId;
use futures_util::FutureExt;

use super::super::*;
use super::cuts::{annex, append, checkpoint};
use super::in_virtual_time;
use super::model::Model;
use super::world::{World, early, flush, redo};
use crate::log::snapshot::share;

#[test]
fn the_annex_has_a_sixteenth_of_the_ring() {
    in_virtual_time(async {
        let world = World::new(1, 1024, 1);
        let log = world.create().await;
        let room = share(world.ring);
        assert!((950..=1024 * 4096 / 16).contains(&room));
        let value = vec![7; 60 << 10];
        let mut keys = 0;
        while log.annex_put(keys, value.clone()).await.is_ok() {
            keys += 1;
        }
        assert!(keys as usize * (60 << 10) < room && (keys + 1) as usize * (60 << 10) + 2000 > room);
        assert!(matches!(log.annex_put(99, value.clone()).await, Err(LogError::TooLarge(_))));
        let long = log.annex_put(98, vec![0; (64 << 10) + 1]).await;
        assert!(matches!(long, Err(LogError::TooLarge(TooLarge { most: 65_536, .. }))));
        log.annex_put(0, value.clone()).await.unwrap();
        log.annex_remove(1).await.unwrap();
        log.annex_put(99, value).await.unwrap();
        let keys: Vec<u64> = log.annex_all().into_iter().map(|(key, _)| key).collect();
        assert!(keys.contains(&99) && !keys.contains(&1));
        log.checkpoint(Parts::default).await.expect("a full annex fits into a snapshot");
    });
}

#[test]
fn the_annex_survives_snapshots_and_many_laps_of_the_ring() {
    in_virtual_time(async {
        let world = World::new(1, 128, 2);
        let model = Model::new(&world.machine);
        let log = world.create().await;
        annex(&log, &model, 1, Some(vec![1; 3000])).await;
        annex(&log, &model, 2, Some(vec![2; 10])).await;
        annex(&log, &model, 2, None).await;
        let mut checkpoints = 0;
        while log.shared.state.lock().core.end().position < 20 * 128 {
            append(&world, &log, &model, true).await;
            if log.reached().is_checkpoint_due {
                checkpoint(&log, &model).await.unwrap();
                checkpoints += 1;
                annex(&log, &model, 3, Some(vec![checkpoints; 100])).await;
            }
        }
        assert!(checkpoints >= 30, "{checkpoints}");
        log.close().await.unwrap();
        let world = world.next();
        let (log, opened) = world.open().await;
        model.check(&world, &log, &opened, world.machine.events(), "after the laps");
        assert_eq!(log.annex_all().len(), 2);
    });
}

/// Fills the ring until it accepts nothing more.
async fn fill(world: &World, log: &SpaceLog) -> Vec<Wait<()>> {
    let mut waits = Vec::new();
    for unit in 100.. {
        let mut wait = world.append(log, early(unit));
        world.env.sleep(Duration::from_millis(1)).await;
        let is_full = (&mut wait).now_or_never().is_none();
        waits.push(wait);
        if is_full {
            break;
        }
    }
    waits
}

fn full_share(ring: Ring) -> Parts {
    let units = share(ring) as u32 / 4096 - 1;
    Parts { carried: (1..=units).map(redo).collect(), ..Parts::default() }
}

#[test]
fn a_full_ring_stops_callers_and_not_a_checkpoint() {
    for ring in [128, 256, 1024] {
        in_virtual_time(async {
            let world = World::new(1, ring, 1);
            let log = world.create().await;
            log.annex_put(1, vec![1; share(world.ring).min(60 << 10) - 100]).await.unwrap();
            // In one of these rounds the snapshot is at the ring's end.
            for round in 0..7 {
                let mut waits = fill(&world, &log).await;
                let (used, blocks) = log.usage();
                assert!(used <= blocks / 4 * 3 && log.reached().is_checkpoint_due, "{used} of {blocks}");
                let mut last = waits.pop().unwrap();
                assert!((&mut last).now_or_never().is_none());
                let parts = full_share(world.ring);
                log.checkpoint(|| parts).await.unwrap_or_else(|e| panic!("round {round} of {ring}: {e}"));
                last.await.unwrap();
                world.append(&log, early(round)).await.unwrap();
            }
        });
    }
}

#[test]
fn a_snapshot_with_too_much_is_refused_before_it_begins() {
    in_virtual_time(async {
        let world = World::new(1, 256, 1);
        let log = world.create().await;
        let mut parts = full_share(world.ring);
        parts.carried.push(redo(1000));
        let used = log.usage();
        assert!(matches!(log.checkpoint(|| parts).await, Err(LogError::TooLarge(_))));
        assert_eq!(log.usage(), used);
        log.checkpoint(Parts::default).await.unwrap();
    });
}

/// The handle that could request a checkpoint was dropped, so entries without room fail.
#[test]
fn a_full_ring_does_not_keep_a_log_from_ending() {
    for closes in [true, false] {
        in_virtual_time(async {
            let world = World::new(1, 128, 1);
            let log = world.create().await;
            let last = fill(&world, &log).await.pop().expect("one that waits");
            let end = async {
                if closes {
                    assert_eq!(log.close().await, Err(LogError::NoRoom));
                } else {
                    drop(log);
                }
                assert_eq!(last.await, Err(LogError::NoRoom));
            };
            tokio::time::timeout(Duration::from_secs(60), end).await.expect("it ends");
        });
    }
}

/// The record that ends a log has room when others have none.
#[test]
fn a_full_ring_takes_the_last_confirmation() {
    in_virtual_time(async {
        let world = World::new(1, 128, 1);
        let log = world.create().await;
        while log.usage().0 < 96 {
            world.append(&log, flush(1)).await.unwrap();
        }
        let last =
            tokio::time::timeout(Duration::from_secs(60), log.close()).await.expect("it ends").unwrap();
        let (_, opened) = world.next().open().await;
        assert_eq!(opened.log.closed.confirmed, last - 1);
    });
}

/// A crash at any point of a snapshot into a full ring leaves room for the next owner's snapshot.
#[test]
fn a_cut_in_a_checkpoint_leaves_room_for_another() {
    for cuts in 0..12 {
        in_virtual_time(async {
            let mut world = World::new(cuts, 128, 2);
            let mut log = world.create().await;
            for again in 0..4 {
                for slot in 0..2 {
                    world.machine.shuffle(SlotId(slot), Duration::ZERO);
                }
                let _waits = fill(&world, &log).await;
                let events = world.machine.events();
                world.machine.cut_at(events + 1 + (cuts + again) % 12, PowerCut::LoseAll);
                let parts = full_share(world.ring);
                let checkpoint = log.checkpoint(|| parts);
                tokio::select! {
                    biased;
                    _ = checkpoint => {}
                    () = world.env.sleep(Duration::from_secs(1)) => {}
                }
                world.machine.cut(PowerCut::LoseAll);
                *world.coordinator.deposed.lock() = true;
                drop(log);
                world.env.sleep(Duration::from_secs(1)).await;
                world.machine.restart();
                // Undoes the coordinator's changes after the power cut.
                world.coordinator.change(|rows| rows.values_mut().for_each(|place| place.is_stale = false));
                world = world.next();
                let opened;
                (log, opened) = world.open().await;
                assert_eq!(opened.log.findings, []);
                let parts = full_share(world.ring);
                let done = log.checkpoint(|| parts).await;
                done.unwrap_or_else(|error| panic!("cut {cuts}, round {again}: {error}"));
            }
        });
    }
}
