//! Calls, jobs and checkpoints that wait for each other: no order of them leads to a deadlock ([`crate::locks`]).

use disk::Op;
use disk::sim::{Fault, Rule, When};
use futures_util::future::join_all;
use pool_seam::{GROUP_UNITS, RowNumber};

use super::*;
use crate::locks::{Mode, RangeLock};
use crate::view::{GroupKey, route};

const GROUP: GroupKey = GroupKey { row: RowNumber(0), set: 0, group: 0 };
const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// A space that was opened after a crash: the log has a change of stripe 8, with units 24, 28 and 32 of the space, and
/// the owner does not know whether it is in place.
async fn with_unplaced_stripe(parity: u8) -> World {
    let world = World::new(&coded(60, parity)).await;
    world.write(0..48, true).await.unwrap();
    world.write(24..25, true).await.unwrap();
    let world = world.crashed(PowerCut::KeepAll, |_| {}).await;
    // Decides all other units.
    for units in [0..24, 25..28, 29..32, 33..48] {
        world.read(units).await.unwrap();
    }
    assert!(is_unplaced(&world));
    world
}

fn is_unplaced(world: &World) -> bool {
    let dirty = world.space.0.cache.dirty();
    dirty.iter().any(|cached| cached.with_table(|table| table.unplaced().has(8)))
}

async fn lock(world: &World, units: std::ops::Range<usize>) -> RangeLock {
    world.space.0.locks.lock(GROUP, units, Mode::Exclusive).await
}

/// Writes a unit repeatedly, until the log was full.
async fn fill_log(world: &World, unit: u64) {
    let ring = world.space.0.log().usage().1;
    let writes = async {
        for _ in 0..ring {
            world.write(unit..unit + 1, true).await.unwrap();
        }
    };
    tokio::time::timeout(10 * MINUTE, writes).await.expect("checkpoints make room");
}

async fn after<T>(world: &World, seconds: u32, call: impl Future<Output = T>) -> T {
    world.rig.env.sleep(SECOND * seconds).await;
    call.await
}

/// The checkpoint waits until no write of stripes is running. One write waits for the end of the checkpoint's
/// exclusive access, and holds the locks of stripes 9 to 11. Another write waits for these locks, and is the first
/// that needs stripe 8.
#[test]
fn a_checkpoint_beside_writers_that_queue_for_the_stripe_it_places() {
    for parity in 1..=2 {
        virtual_time(async {
            let world = with_unplaced_stripe(parity).await;
            let writes_in_progress = world.space.0.placing.read().await;
            let end = async { drop(writes_in_progress) };
            let all = async {
                tokio::join!(
                    world.space.checkpoint(),
                    after(&world, 1, world.write(25..28, false)),
                    after(&world, 2, world.write(32..35, true)),
                    after(&world, 3, end)
                )
            };
            let all = tokio::time::timeout(MINUTE, all).await;
            let (checkpoint, first, second, ()) = all.expect("none waits for ever");
            assert_eq!([checkpoint, first, second], [Ok(()), Ok(()), Ok(())]);
            world.read(0..48).await.unwrap();
        });
    }
}

/// The caller that holds the lock may need other changes of stripes in order to continue.
#[test]
fn a_checkpoint_that_waits_for_a_stripe_holds_up_no_write() {
    virtual_time(async {
        let world = with_unplaced_stripe(1).await;
        let lock = lock(&world, 8..9).await;
        let checkpoint = world.space.checkpoint();
        tokio::pin!(checkpoint);
        assert!(tokio::time::timeout(SECOND, &mut checkpoint).await.is_err(), "it waits for the lock");
        let written = tokio::time::timeout(MINUTE, world.write(0..1, true)).await;
        assert_eq!(written.expect("nothing that it waits for is held"), Ok(()));
        drop(lock);
        assert_eq!(tokio::time::timeout(MINUTE, checkpoint).await.expect("it has the lock"), Ok(()));
        assert!(!is_unplaced(&world));
    });
}

/// The holder of the lock may wait for room, which only the checkpoint makes: the snapshot carries the stripe.
#[test]
fn a_checkpoint_of_a_full_log_waits_for_no_stripe() {
    virtual_time(async {
        let world = with_unplaced_stripe(1).await;
        let lock = lock(&world, 8..9).await;
        fill_log(&world, 0).await;
        assert!(is_unplaced(&world));
        drop(lock);
        let world = world.crashed(PowerCut::LoseAll, |_| {}).await;
        let reads = join_all((0..48).map(|unit| world.read(unit..unit + 1))).await;
        assert!(reads.iter().all(Result::is_ok), "{reads:?}");
    });
}

/// The end of a move excludes checkpoints, and waits for locks whose holders may wait for room in the log.
#[test]
fn a_move_that_cannot_end_does_not_keep_a_full_log_from_a_checkpoint() {
    virtual_time(async {
        let world = World::new(&Setup::new(61, 4, MIRROR)).await;
        world.write(0..GROUP_UNITS + 8, true).await.unwrap();
        let last = GROUP_UNITS as usize - 1;
        let mut held = lock(&world, last..last + 1).await;
        let order = JobOrder::Fill(vec![(RowNumber(0), 0, None)]);
        let moved = world.space.run(JobId(1), order).wait();
        let beside = async {
            // Queued behind the job's piece that waits for this lock; afterwards only the end of the job is left.
            world.rig.env.sleep(SECOND).await;
            let next = lock(&world, last..last + 1);
            tokio::pin!(next);
            assert!(tokio::time::timeout(SECOND, &mut next).await.is_err());
            drop(std::mem::replace(&mut held, lock(&world, 0..0).await));
            held = next.await;
            world.rig.env.sleep(SECOND).await;
            assert!(world.space.0.checkpoints.try_lock().is_err(), "the move is about to end");
            fill_log(&world, GROUP_UNITS).await;
            assert!(world.rig.view_now().record.rows[&RowNumber(0)].moving().is_some());
            drop(held);
        };
        let (report, ()) =
            tokio::time::timeout(20 * MINUTE, async { tokio::join!(moved, beside) }).await.unwrap();
        assert_eq!(report.unwrap().not_moved, vec![]);
        world.read(0..GROUP_UNITS + 8).await.unwrap();
    });
}

/// The checkpoint task rewrites damaged blocks, under a lock.
#[test]
fn damaged_blocks_of_a_busy_group_do_not_keep_a_full_log_from_a_checkpoint() {
    virtual_time(async {
        let world = World::new(&Setup::new(62, 3, MIRROR)).await;
        world.write(0..GROUP_UNITS + 8, true).await.unwrap();
        world.space.checkpoint().await.unwrap();
        let inner = &world.space.0;
        let lock = lock(&world, 0..GROUP_UNITS as usize).await;
        let members = route(&world.rig.view_now(), GROUP).expect("a row").members;
        inner.report_bad_block(GROUP, &members[0], false);
        world.rig.env.sleep(SECOND).await;
        fill_log(&world, GROUP_UNITS).await;
        assert_eq!(inner.findings.blocks_of(GROUP), 1);
        drop(lock);
        world.rig.env.sleep(2 * SECOND).await;
        world.space.checkpoint().await.unwrap();
        assert_eq!(inner.findings.blocks_of(GROUP), 0);
    });
}

/// One disk of a row is absent, and another fails: stripes in the log cannot be written in place. Snapshots have room
/// for them, because further changes of the row are refused; the log continues, and when the disk works again, so does
/// the row.
#[test]
fn stripes_that_cannot_be_put_in_place_do_not_fill_the_log() {
    virtual_time(async {
        let world = World::new(&coded(63, 1)).await;
        let other = 3 * GROUP_UNITS;
        world.write(0..480, true).await.unwrap();
        world.write(other..other + 12, true).await.unwrap();
        world.space.checkpoint().await.unwrap();
        let view = world.rig.view_now();
        let slabs = &view.record.rows[&RowNumber(0)].slabs;
        let (away, fails) = (slabs[2].place, slabs[3].place);
        world.rig.remove_disk(away.disk).await.unwrap();
        let data = view.disks[&fails.disk].areas.data(fails.slab).offset;
        let rule =
            Rule::new(Op::Write, When::From(0), Fault::Refused(5)).within(data..data + view.slab_bytes);
        let slot = SlotId(fails.disk.0.into());
        world.rig.machine.rule(slot, rule);
        for chunk in 0..40 {
            let written = world.write(chunk * 12..chunk * 12 + 12, false);
            let written = tokio::time::timeout(MINUTE, written).await.expect("it is refused");
            assert!(
                matches!(written, Err(SpaceError::Disk { .. } | SpaceError::Unavailable { .. })),
                "{written:?}"
            );
        }
        world.space.checkpoint().await.unwrap();
        fill_log(&world, other).await;
        world.rig.machine.no_rules(slot);
        world.rig.env.sleep(5 * SECOND).await;
        for chunk in 0..40 {
            world.write(chunk * 12..chunk * 12 + 12, false).await.unwrap();
        }
        world.read(0..480).await.unwrap();
        assert_eq!(world.space.0.unplaced.free(), world.space.0.log().carries());
    });
}

/// More is written between a checkpoint's blocks and its snapshot than a snapshot may carry: the blocks are written
/// again. The region of an overwrite that is not confirmed stays active, however often the snapshot was tried.
#[test]
fn a_checkpoint_beside_many_writes_writes_blocks_again() {
    virtual_time(async {
        let world = World::new(&Setup::new(65, 2, MIRROR)).await;
        let all = 8 * GROUP_UNITS;
        for first in (0..all).step_by(GROUP_UNITS as usize) {
            world.write(first..first + GROUP_UNITS, false).await.unwrap();
        }
        world.space.checkpoint().await.unwrap();
        let marks = world.space.0.view.get().value.disks[&DiskNumber(0)].areas.marks;
        let slow = Rule::new(Op::Write, When::Nth(0), Fault::Slow(5 * SECOND));
        world.rig.machine.rule(SlotId(0), slow.within(marks.offset..marks.end()));
        let writes = async {
            // Not neighbours, so that each has an entry.
            for unit in (0..all).step_by(2) {
                world.write(unit..unit + 1, false).await.unwrap();
            }
            world.flush().await.unwrap();
            world.write(1..2, false).await.unwrap();
        };
        world.write(0..1, false).await.unwrap();
        let began = world.rig.env.now();
        let (checkpoint, ()) = tokio::join!(world.space.checkpoint(), after(&world, 1, writes));
        assert_eq!(checkpoint, Ok(()));
        assert!(world.rig.env.now() - began >= 5 * SECOND, "it waited for the mark");
        let world = world.crashed(PowerCut::KeepAll, |_| {}).await;
        world.settle(0..all, "after the crash").await;
    });
}
