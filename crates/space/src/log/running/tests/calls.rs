//! Callers that stop waiting: every public call, dropped at every await.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;

use disk::sim::SlotId;
use futures_util::poll;

use super::super::*;
use super::in_virtual_time;
use super::world::{SLOTS, World, early, first_of, flush, unit_of};

/// Polls a future a number of times, at each event of the runtime, and drops it; returns whether it had a result.
async fn dropped_after(
    polls: usize,
    world: &World,
    mut call: Pin<Box<dyn Future<Output = ()> + '_>>,
) -> bool {
    for _ in 0..polls {
        if poll!(call.as_mut()).is_ready() {
            return true;
        }
        world.env.sleep(Duration::from_millis(1)).await;
    }
    false
}

/// A world with slow disks and a log.
async fn slow() -> (World, SpaceLog) {
    let world = World::new(1, 256, 2);
    let log = world.create().await;
    for slot in 0..=SLOTS {
        world.machine.shuffle(SlotId(slot), Duration::from_millis(4));
    }
    (world, log)
}

/// The units and the keys of the annex that a later owner finds.
async fn found(world: &World, log: SpaceLog) -> (BTreeSet<u32>, Vec<u64>) {
    world.env.sleep(Duration::from_secs(1)).await;
    log.close().await.expect("closed");
    let (log, opened) = world.next().open().await;
    let units = opened.log.entries().filter_map(|(_, entry)| unit_of(entry)).collect();
    (units, log.annex_all().into_iter().map(|(key, _)| key).collect())
}

/// Runs a call with every number of polls until it has a result, and compares what is found afterwards.
fn same_after_every_drop(call: impl AsyncFn(&World, &SpaceLog)) {
    let mut expected = None;
    for polls in (0..200).rev() {
        let found = in_virtual_time(async {
            let (world, log) = slow().await;
            let is_done = dropped_after(polls, &world, Box::pin(call(&world, &log))).await;
            // A future that was never polled has called nothing.
            (polls > 0).then_some((found(&world, log).await, is_done))
        });
        let Some((found, is_done)) = found else { break };
        assert!(polls < 199 || is_done, "the call has a result");
        assert_eq!(expected.get_or_insert_with(|| found.clone()), &found, "dropped after {polls} polls");
    }
}

#[test]
fn appends() {
    same_after_every_drop(async |world, log| {
        world.disks.dirty.lock().push(1);
        world.append(log, flush(1)).await.expect("confirmed");
    });
    same_after_every_drop(async |world, log| {
        world.append(log, early(1)).await.expect("durable");
    });
    same_after_every_drop(async |world, log| {
        world.append(log, early(1)).await.expect("durable");
        log.wait_declared(1).await.expect("said");
    });
}

#[test]
fn annex_records() {
    same_after_every_drop(async |_, log| {
        log.annex_put(1, vec![1]).await.expect("durable");
    });
    same_after_every_drop(async |_, log| {
        let waits = [log.annex_put(1, vec![1]), log.annex_put(2, vec![2]), log.annex_remove(1)];
        for wait in waits {
            wait.await.expect("durable");
        }
    });
}

#[test]
fn checkpoints_and_joins() {
    same_after_every_drop(async |_, log| {
        let parts = || Parts { carried: vec![super::world::redo(5)], ..Parts::default() };
        log.checkpoint(parts).await.expect("a checkpoint");
    });
    for polls in 1..400 {
        let is_done = in_virtual_time(async {
            let (world, log) = slow().await;
            world.append(&log, early(1)).await.expect("durable");
            log.replica_removed(first_of(1));
            world.coordinator.change(|rows| rows.get_mut(&1).expect("it is there").is_stale = true);
            let replica = world.new_replica(1, SlotId(3));
            let join = async {
                let joined = log.join(replica);
                log.checkpoint_due().await.expect("running");
                joined.await.expect("joined");
            };
            let checkpoint = async {
                log.checkpoint_due().await.expect("running");
                log.checkpoint(|| Parts { carried: vec![super::world::redo(1)], ..Parts::default() }).await
            };
            let (is_done, checkpoint) =
                futures_util::future::join(dropped_after(polls, &world, Box::pin(join)), checkpoint).await;
            checkpoint.expect("a checkpoint");
            world.env.sleep(Duration::from_secs(1)).await;
            assert!(!world.coordinator.rows()[&1].is_stale, "it counts, dropped after {polls} polls");
            world.coordinator.change(|rows| rows.get_mut(&0).expect("it is there").is_stale = true);
            assert_eq!(found(&world, log).await.0, [1].into());
            is_done
        });
        if is_done {
            return;
        }
    }
    panic!("a join has a result");
}

#[test]
fn opening_and_closing() {
    for polls in 1..60 {
        in_virtual_time(async {
            let (world, log) = slow().await;
            drop(world.append(&log, early(1)));
            dropped_after(polls, &world, Box::pin(async { assert!(log.close().await.is_ok()) })).await;
            world.env.sleep(Duration::from_secs(1)).await;
            let next = world.next();
            dropped_after(polls, &next, Box::pin(async { drop(next.open().await) })).await;
            world.env.sleep(Duration::from_secs(1)).await;
            let last = World { epoch: 3, ..next };
            let (_, opened) = last.open().await;
            assert_eq!(opened.log.header.open().epoch, 2, "the dropped call went on");
            let units: Vec<u32> = opened.log.entries().filter_map(|(_, entry)| unit_of(entry)).collect();
            assert_eq!((units, opened.log.findings.len()), (vec![1], 0));
            let new = World::new(2, 128, 2);
            dropped_after(polls, &new, Box::pin(async { drop(new.create().await) })).await;
            new.env.sleep(Duration::from_secs(1)).await;
            new.next().open().await;
        });
    }
}

#[test]
fn a_log_whose_worker_ends_fails_its_callers() {
    let (wait, log) = in_virtual_time(async {
        let (world, log) = slow().await;
        (world.append(&log, early(1)), log)
    });
    in_virtual_time(async {
        assert_eq!(wait.await, Err(LogError::Closed));
        assert_eq!(log.durable().await, Err(LogError::Closed));
        assert_eq!(log.checkpoint_due().await, Err(LogError::Closed), "nothing waits for ever");
        assert_eq!(log.wait_declared(9).await, Err(LogError::Closed));
        assert_eq!(log.close().await, Err(LogError::Closed));
    });
}
