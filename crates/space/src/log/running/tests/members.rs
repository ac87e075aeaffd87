//! Replicas that fail, hang, leave and join; owners that follow each other.

use std::time::Duration;

use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Op, PowerCut};
use env::{Ctx, Epoch};
use futures_util::FutureExt;

use super::super::*;
use super::cuts::{append, checkpoint};
use super::in_virtual_time;
use super::model::Model;
use super::world::{World, early, first_of, flush, redo, unit_of};

const SECOND: Duration = Duration::from_secs(1);

fn fails(world: &World, slot: usize, when: When, fault: Fault) {
    world.machine.rule(SlotId(slot), Rule::new(Op::Write, when, fault));
}

fn found(opened: &Opened) -> Vec<u32> {
    opened.log.entries().filter_map(|(_, entry)| unit_of(entry)).collect()
}

/// The next owner opens the log and finds the records of the model.
async fn check_next(world: &World, model: &Model) {
    let world = world.next();
    let (log, opened) = world.open().await;
    model.check(&world, &log, &opened, world.machine.events(), "the new replica");
}

#[test]
fn a_failed_replica_is_left_out_before_the_answer() {
    in_virtual_time(async {
        let world = World::new(1, 256, 2);
        let log = world.create().await;
        fails(&world, 1, When::From(0), Fault::Error);
        let began = world.env.now();
        world.append(&log, early(1)).await.unwrap();
        assert!(world.coordinator.rows()[&1].is_stale, "the coordinator knows it");
        assert!(world.env.now() - began >= world.coordinator.delay);
        let writes = world.machine.counts(SlotId(1)).writes;
        world.append(&log, early(2)).await.unwrap();
        assert_eq!(world.machine.counts(SlotId(1)).writes, writes, "it is not written any more");
        drop(log);
        let (_, opened) = world.next().open().await;
        assert_eq!(found(&opened), [1, 2]);
    });
}

#[test]
fn a_replica_that_hangs_is_left_out_when_its_time_is_over() {
    in_virtual_time(async {
        let world = World::new(1, 256, 2);
        let log = world.create().await;
        fails(&world, 0, When::From(0), Fault::Slow(100 * SECOND));
        let began = world.env.now();
        world.append(&log, early(1)).await.unwrap();
        let time = world.env.now() - began;
        assert!(time >= 10 * SECOND && time < 11 * SECOND, "{time:?}");
        assert!(world.coordinator.rows()[&0].is_stale);
        let began = world.env.now();
        world.append(&log, early(2)).await.unwrap();
        assert!(world.env.now() - began < SECOND);
    });
}

#[test]
fn a_needed_replica_gets_the_same_bytes_at_the_same_place() {
    in_virtual_time(async {
        let world = World::new(1, 256, 1);
        let log = world.create().await;
        fails(&world, 0, When::Nth(0), Fault::Error);
        fails(&world, 0, When::Nth(1), Fault::Full);
        let end = log.shared.state.lock().core.end();
        world.append(&log, early(1)).await.unwrap();
        assert_eq!(log.shared.state.lock().core.end().position, end.position + 2, "a block and a unit");
        assert!(!world.coordinator.rows()[&0].is_stale);
        drop(log);
        let (_, opened) = world.next().open().await;
        assert_eq!((found(&opened), opened.log.findings.len()), (vec![1], 0));
    });
}

#[test]
fn a_wait_for_a_leaving_disk_ends_when_its_removal_is_durable() {
    in_virtual_time(async {
        let world = World::new(1, 256, 2);
        let log = world.create().await;
        fails(&world, 1, When::Nth(0), Fault::Slow(5 * SECOND));
        let mut wait = world.append(&log, early(1));
        world.env.sleep(SECOND).await;
        log.replica_leaving(first_of(1));
        world.env.sleep(SECOND).await;
        assert!((&mut wait).now_or_never().is_none(), "the coordinator has not said so");
        let began = world.env.now();
        log.replica_removed(first_of(1));
        wait.await.unwrap();
        assert!(world.env.now() - began < SECOND);
        let writes = world.machine.counts(SlotId(1)).writes;
        world.append(&log, early(2)).await.unwrap();
        assert_eq!(world.machine.counts(SlotId(1)).writes, writes);
    });
}

#[test]
fn no_record_is_answered_while_a_disk_is_leaving_and_it_may_stay() {
    in_virtual_time(async {
        let world = World::new(1, 256, 2);
        let log = world.create().await;
        let writes = world.machine.counts(SlotId(1)).writes;
        log.replica_leaving(first_of(1));
        let mut wait = world.append(&log, early(1));
        world.env.sleep(SECOND).await;
        assert!((&mut wait).now_or_never().is_none());
        assert_eq!(world.machine.counts(SlotId(1)).writes, writes, "no I/O to it begins");
        log.replica_stays(first_of(1));
        wait.await.unwrap();
        assert_eq!(world.machine.counts(SlotId(1)).writes, writes + 1);
    });
}

#[test]
fn a_replica_counts_when_the_tail_has_passed_its_joining() {
    in_virtual_time(async {
        let world = World::new(1, 256, 2);
        let model = Model::new(&world.machine);
        let log = world.create().await;
        append(&world, &log, &model, true).await;
        world.machine.pull(SlotId(1), PowerCut::LoseAll);
        append(&world, &log, &model, true).await;
        assert!(world.coordinator.rows()[&1].is_stale && !log.reached().is_checkpoint_due);
        let mut joined = log.join(world.new_replica(1, SlotId(2)));
        log.checkpoint_due().await.expect("running");
        append(&world, &log, &model, false).await;
        assert!((&mut joined).now_or_never().is_none() && world.coordinator.rows()[&1].is_stale);
        checkpoint(&log, &model).await.unwrap();
        joined.await.unwrap();
        assert!(!world.coordinator.rows()[&1].is_stale && !log.reached().is_checkpoint_due);
        append(&world, &log, &model, true).await;
        // Only the new replica has all records.
        world.coordinator.change(|rows| rows.get_mut(&0).unwrap().is_stale = true);
        drop(log);
        check_next(&world, &model).await;
    });
}

#[test]
fn without_a_replica_nothing_is_answered_until_a_new_one_has_a_snapshot() {
    in_virtual_time(async {
        let world = World::new(1, 256, 1);
        let model = Model::new(&world.machine);
        let log = Arc::new(world.create().await);
        append(&world, &log, &model, true).await;
        world.machine.pull(SlotId(0), PowerCut::LoseAll);
        log.replica_removed(first_of(0));
        let unit = model.unit(true);
        model.enqueued(unit);
        let mut wait = world.append(&log, early(unit));
        world.env.sleep(SECOND).await;
        let joined = log.join(world.new_replica(0, SlotId(2)));
        world.env.sleep(SECOND).await;
        assert!(
            (&mut wait).now_or_never().is_none(),
            "the record is durable, but its replica does not count"
        );
        checkpoint(&log, &model).await.unwrap();
        joined.await.unwrap();
        wait.await.unwrap();
        model.acknowledged(unit);
        drop(log);
        check_next(&world, &model).await;
    });
}

#[test]
fn a_checkpoint_whose_last_replica_leaves_fails_and_another_one_can_follow() {
    in_virtual_time(async {
        let world = World::new(1, 256, 1);
        let model = Model::new(&world.machine);
        let log = world.create().await;
        append(&world, &log, &model, true).await;
        fails(&world, 0, When::From(0), Fault::Slow(SECOND));
        let parts = model.parts();
        let mut running = log.checkpoint(move || parts);
        assert!((&mut running).now_or_never().is_none());
        // The record is durable, and the header is being written.
        world.env.sleep(SECOND * 3 / 2).await;
        log.replica_removed(first_of(0));
        let joined = log.join(world.new_replica(0, SlotId(2)));
        let failed = tokio::time::timeout(60 * SECOND, running).await.expect("it does not wait for ever");
        assert_eq!(failed, Err(LogError::ReplicaFailed));
        checkpoint(&log, &model).await.unwrap();
        joined.await.unwrap();
        append(&world, &log, &model, true).await;
        drop(log);
        check_next(&world, &model).await;
    });
}

#[test]
fn a_replica_that_is_formatted_leaves_hangs_and_is_fenced_like_any_other() {
    in_virtual_time(async {
        let world = World::new(1, 256, 1);
        let log = world.create().await;
        fails(&world, 2, When::From(0), Fault::Slow(1000 * SECOND));
        for leaves in [true, false] {
            let began = world.env.now();
            let joined = log.join(world.new_replica(1, SlotId(2)));
            world.env.sleep(SECOND).await;
            if leaves {
                log.replica_removed(first_of(1));
            }
            let joined = joined.await;
            match leaves {
                true => assert_eq!(joined, Err(LogError::ReplicaFailed)),
                false => assert!(matches!(joined, Err(LogError::NotFormatted(DiskError::Timeout { .. })))),
            }
            assert!(world.env.now() - began < if leaves { 2 * SECOND } else { 11 * SECOND });
        }
        let replica = world.new_replica(1, SlotId(3));
        replica.port.disk().fence(&Ctx::default(), Epoch(2)).wait().await.unwrap();
        assert_eq!(log.join(replica).await, Err(LogError::Deposed(Deposed)));
        log.durable().await.unwrap();
    });
}

/// Blocks of the ring from its first one.
fn make_bad(world: &World, block: u64) {
    world.machine.make_bad(SlotId(0), (64 << 10) + (16 + block) * 4096, 4096);
}

#[test]
fn a_bad_block_of_a_snapshot_hides_only_its_record() {
    in_virtual_time(async {
        let world = World::new(1, 256, 1);
        let log = world.create().await;
        log.annex_put(1, vec![1; 40_000]).await.unwrap();
        let parts = || Parts { carried: (1..=11).map(redo).collect(), ..Parts::default() };
        log.checkpoint(parts).await.unwrap();
        log.close().await.unwrap();
        let world = world.next();
        let (log, opened) = world.open().await;
        drop(log);
        assert_eq!(found(&opened).len(), 11);
        let (records, tail) = (&opened.log.records, opened.log.header.tail);
        assert!(
            records.iter().all(|record| record.head.id.sequence < tail.sequence + 3),
            "two of the snapshot"
        );
        make_bad(&world, records[1].head.id.position % 256);
        let (log, opened) = world.next().open().await;
        assert_eq!(opened.log.header.tail, tail);
        assert!(matches!(opened.log.findings[..], [crate::log::replay::Finding::Gap { .. }]));
        assert!(found(&opened).len() < 11 && log.annex_all().len() == 1, "the other record counts");
    });
}

#[test]
fn a_header_that_cannot_be_read_is_not_a_missing_one() {
    in_virtual_time(async {
        let world = World::new(1, 256, 1);
        world.create().await.close().await.unwrap();
        world.machine.make_bad(SlotId(0), 64 << 10, 8192);
        let world = world.next();
        let opened = SpaceLog::open(world.settings(), world.replicas(), Required::default()).await;
        assert!(matches!(opened.err(), Some(OpenError::Replica { allocation: 1, .. })));
    });
}

#[test]
fn a_fenced_log_answers_everything_with_deposed() {
    in_virtual_time(async {
        let world = World::new(1, 256, 2);
        let replicas = world.replicas();
        let log = SpaceLog::create(world.settings(), world.ring, replicas.clone(), 1).await.unwrap();
        world.append(&log, early(1)).await.unwrap();
        replicas[1].port.disk().fence(&Ctx::default(), Epoch(2)).wait().await.unwrap();
        let waits = [world.append(&log, early(2)), world.append(&log, flush(3))];
        let annex = log.annex_put(1, vec![1]);
        for wait in waits.into_iter().chain([annex]) {
            assert_eq!(wait.await, Err(LogError::Deposed(Deposed)));
        }
        assert_eq!(world.append(&log, early(4)).await, Err(LogError::Deposed(Deposed)));
        assert_eq!(log.checkpoint(Parts::default).await, Err(LogError::Deposed(Deposed)));
        assert_eq!(log.close().await, Err(LogError::Deposed(Deposed)));
    });
}

/// A record that only one replica had before a power cut is kept when that replica is lost afterwards.
#[test]
fn opening_gives_a_record_to_the_replicas_that_lack_it() {
    in_virtual_time(async {
        let world = World::new(1, 256, 2);
        let log = world.create().await;
        world.append(&log, early(1)).await.unwrap();
        fails(&world, 1, When::From(0), Fault::Slow(SECOND));
        drop(world.append(&log, early(2)));
        world.env.sleep(Duration::from_millis(100)).await;
        world.machine.cut(PowerCut::LoseAll);
        world.machine.restart();
        for slot in 0..2 {
            world.machine.no_rules(SlotId(slot));
        }
        let world = world.next();
        let (log, opened) = world.open().await;
        assert_eq!((found(&opened), opened.log.findings.len()), (vec![1, 2], 0));
        assert_eq!(opened.log.records[1].lacking, [1]);
        log.close().await.unwrap();
        world.coordinator.change(|rows| rows.get_mut(&0).unwrap().is_stale = true);
        let (_, opened) = world.next().open().await;
        assert_eq!(found(&opened), [1, 2]);
    });
}

#[test]
fn an_unreadable_replica_is_reported_before_the_log_opens() {
    in_virtual_time(async {
        let world = World::new(1, 256, 2);
        let log = world.create().await;
        world.append(&log, early(1)).await.unwrap();
        log.close().await.unwrap();
        world.machine.make_bad(SlotId(0), 64 << 10, 8192);
        let world = world.next();
        let (_, opened) = world.open().await;
        assert_eq!(found(&opened), [1]);
        assert!(world.coordinator.rows()[&0].is_stale);
        // A single bad block of the ring hides only its record.
        let world = World::new(2, 256, 1);
        let log = world.create().await;
        for unit in 1..4 {
            world.append(&log, early(unit)).await.unwrap();
        }
        log.close().await.unwrap();
        world.machine.make_bad(SlotId(0), (64 << 10) + (16 + 2) * 4096, 4096);
        let (_, opened) = world.next().open().await;
        assert_eq!((found(&opened), opened.log.findings.len()), (vec![1, 3], 1));
    });
}

#[test]
fn a_log_that_is_rolled_back_or_of_a_newer_owner_does_not_open() {
    in_virtual_time(async {
        let world = World::new(1, 256, 1);
        let log = world.create().await;
        world.append(&log, early(1)).await.unwrap();
        let last = log.close().await.unwrap();
        let open = |world: &World, required| SpaceLog::open(world.settings(), world.replicas(), required);
        let next = world.next();
        let of = |state, mark| Required { state, mark };
        for required in [of((1, last + 1), 0), of((2, 0), 0), of((1, last), last + 1)] {
            assert_eq!(open(&next, required).await.err(), Some(OpenError::SetBack { has: last }));
        }
        assert_eq!(open(&world, Required::default()).await.err(), Some(OpenError::NewerOwner(1)));
        assert!(open(&next, of((1, last), last)).await.is_ok());
    });
}

#[test]
fn owners_that_crash_at_once_leave_no_segments_behind() {
    in_virtual_time(async {
        let mut world = World::new(1, 256, 2);
        drop(world.create().await);
        for owner in 0..40 {
            world = world.next();
            let (log, opened) = world.open().await;
            assert!(!opened.is_checkpoint_required, "{owner}");
            drop(log);
        }
        for owner in 0..20 {
            world = world.next();
            let (log, opened) = world.open().await;
            world.append(&log, early(owner)).await.unwrap();
            assert_eq!(opened.is_checkpoint_required, owner >= 15, "{owner}");
        }
        world = world.next();
        let (log, _) = world.open().await;
        log.checkpoint(Parts::default).await.unwrap();
        assert!(!world.next().open().await.1.is_checkpoint_required);
    });
}
