//! When records begin and are confirmed, in virtual time.

use std::cell::Cell;
use std::time::Duration;

use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Op, PowerCut};
use futures_util::FutureExt;
use futures_util::future::join_all;

use super::super::*;
use super::in_virtual_time;
use super::world::{Append, DATA, DATA_DISK, World, early, first, flush};
use crate::log::entry::Change;

const FLUSH: Duration = Duration::from_millis(5);

fn slow(world: &World, slot: SlotId, op: Op, time: Duration) {
    world.machine.rule(slot, Rule::new(op, When::From(0), Fault::Slow(time)));
}

async fn writers(world: &World, writers: u32, time: Duration) -> u32 {
    let log = world.create().await;
    slow(world, DATA, Op::Flush, FLUSH);
    let (until, done) = (world.env.now() + time, Cell::new(0));
    let writers = (0..writers).map(async |writer| {
        while world.env.now() < until {
            world.write(writer).await;
            world.append(&log, flush(writer)).await.expect("confirmed");
            done.set(done.get() + 1);
        }
    });
    let checkpoints = async {
        while world.env.now() < until {
            tokio::select! {
                biased;
                Ok(()) = log.checkpoint_due() => log.checkpoint(Parts::default).await.expect("a checkpoint"),
                () = world.env.sleep(time) => {}
            }
        }
    };
    futures_util::future::join(join_all(writers), checkpoints).await;
    done.get()
}

#[test]
fn thirty_two_writers_share_their_flushes() {
    in_virtual_time(async {
        let done = writers(&World::new(1, 1024, 2), 32, Duration::from_secs(1)).await;
        assert!(done >= 5000, "{done} writes in a second");
    });
}

#[test]
fn one_writer_waits_for_no_other() {
    in_virtual_time(async {
        let done = writers(&World::new(1, 1024, 2), 1, Duration::from_secs(1)).await;
        assert!(done >= 200, "{done} writes in a second");
    });
}

#[test]
fn what_needs_no_flush_does_not_wait_for_one() {
    in_virtual_time(async {
        let world = World::new(1, 256, 2);
        let log = world.create().await;
        slow(&world, DATA, Op::Flush, Duration::from_secs(1));
        world.write(1).await;
        let mut flushed = world.append(&log, flush(1));
        world.env.sleep(FLUSH).await;
        let began = world.env.now();
        for unit in 2..5 {
            world.append(&log, early(unit)).await.unwrap();
        }
        assert!(world.env.now() - began < Duration::from_millis(10));
        assert!((&mut flushed).now_or_never().is_none());
        // Four records are unconfirmed; the fifth waits.
        let fifth = world.append(&log, early(5));
        fifth.await.unwrap();
        assert!(world.env.now() - began >= Duration::from_secs(1) - FLUSH, "the flush is over");
        assert!(flushed.now_or_never().is_some());
    });
}

#[test]
fn after_a_pause_an_empty_record_says_the_last_confirmation() {
    for (pause, confirmed) in [(40, false), (60, true)] {
        in_virtual_time(async {
            let world = World::new(1, 256, 2);
            let log = world.create().await;
            world.write(1).await;
            world.append(&log, flush(1)).await.unwrap();
            world.env.sleep(Duration::from_millis(pause)).await;
            world.machine.cut(PowerCut::LoseAll);
            world.machine.restart();
            let (_, opened) = world.next().open().await;
            assert_eq!(opened.log.records[0].confirmed, confirmed, "after {pause} ms");
            assert_eq!(opened.log.records.len(), 1 + usize::from(confirmed));
        });
    }
}

#[test]
fn an_empty_append_has_the_last_confirmation_said_at_once() {
    in_virtual_time(async {
        let world = World::new(1, 256, 2);
        let log = world.create().await;
        world.append(&log, flush(1)).await.unwrap();
        log.wait_declared(log.reached().confirmed).await.unwrap();
        let Progress { confirmed, declared, .. } = log.reached();
        assert_eq!((confirmed, declared, log.shared.state.lock().core.end().sequence), (2, 1, 3));
    });
}

#[test]
fn a_flush_is_of_everything_and_fua_of_its_disks() {
    in_virtual_time(async {
        let world = World::new(1, 256, 1);
        let log = world.create().await;
        let fua = |unit, disk: u16| {
            let set = FlushSet { everything: false, disks: [DiskNumber(disk)].into_iter().collect() };
            Append { flush: Some(set), ..flush(unit) }
        };
        world.append(&log, fua(1, 7)).await.unwrap();
        // These wait together for the first flush, and share one.
        slow(&world, DATA, Op::Flush, FLUSH);
        world.write(2).await;
        let waits =
            [world.append(&log, flush(2)), world.append(&log, fua(3, 1)), world.append(&log, fua(4, 9))];
        assert_eq!(join_all(waits).await, [Ok(()); 3]);
        let flushes = std::mem::take(&mut *world.disks.flushes.lock());
        let of = |everything, disks: &[u16]| FlushSet {
            everything,
            disks: disks.iter().map(|d| DiskNumber(*d)).collect(),
        };
        assert_eq!(flushes, [of(false, &[7]), of(true, &[1, DATA_DISK.0, 9])]);
    });
}

#[test]
fn a_failed_flush_leaves_doubt_in_the_record_that_confirms_the_others() {
    in_virtual_time(async {
        let world = World::new(1, 256, 2);
        let log = world.create().await;
        world.machine.rule(DATA, Rule::new(Op::Flush, When::Nth(0), Fault::Error));
        world.write(1).await;
        let other = FlushSet { everything: false, disks: [DiskNumber(1)].into_iter().collect() };
        let fua = Append { flush: Some(other), ..flush(2) };
        slow(&world, SlotId(0), Op::Write, FLUSH);
        let waits = [world.append(&log, fua), world.append(&log, flush(1))];
        let [fua, flushed] = <[_; 2]>::try_from(join_all(waits).await).unwrap();
        assert_eq!((fua, flushed), (Ok(()), Err(LogError::NotFlushed(DATA_DISK))));
        world.append(&log, early(3)).await.unwrap();
        log.close().await.unwrap();
        let (_, opened) = world.next().open().await;
        let doubts = |record: &crate::log::replay::Replayed| {
            record.entries.iter().any(|entry| entry.change == Change::Doubt { first: first(1), count: 1 })
        };
        let at = opened.log.records.iter().position(doubts).expect("a record with the doubt");
        assert!(at > 0 && opened.log.records[..at].iter().all(|record| record.head.id.confirmed < 1));
        assert!(opened.log.records[0].confirmed, "a later record says so");
    });
}
