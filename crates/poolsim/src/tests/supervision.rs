use std::sync::Arc;
use std::time::Duration;

use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Disk, DiskError, Op, PowerCut};
use env::{Ctx, Epoch, Io};
use futures_util::future::join_all;
use pool::{Absence, AdminError, Deadlines, HANG_TIMEOUT, Pool, Presence};
use pool_seam::{Areas, DiskNumber, JobId, JobOrder, Membership, Owner, OwnerId, RowNumber, SpaceId};

use crate::world::{World, filled, filled_in, mirror, node_with_two_voters, put_into_nodes, virtual_time};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The disks of the first row.
fn disks_of(pool: &Pool, space: SpaceId) -> Vec<DiskNumber> {
    pool.read(|s| s.spaces[&space].rows[&RowNumber(0)].copies().map(|(_, copy)| copy.place.disk).collect())
}

fn slow(world: &World, disk: DiskNumber, op: Op, when: When, by: Duration) {
    world.machine.rule(slot(disk), Rule::new(op, when, Fault::Slow(by)));
}

fn slot(disk: DiskNumber) -> SlotId {
    SlotId(disk.0.into())
}

fn presence(pool: &Pool, disk: DiskNumber) -> Presence {
    pool.read(|s| s.disks[&disk].presence)
}

/// All calls complete after a hanging disk was removed, which happens after its deadline, whichever operation hangs.
#[test]
fn a_disk_that_hangs_leaves_and_calls_end_on_the_others() {
    let usual = Deadlines::default();
    let short = Deadlines::data(300 * MS, 300 * MS);
    let mixed = Deadlines { reads: 300 * MS, writes: 2 * SECOND, flushes: 4 * SECOND, metadata: 300 * MS };
    let each = |op| [usual, short, mixed].map(|deadlines| (op, deadlines));
    for (op, deadlines) in [Op::Read, Op::Write, Op::Flush].into_iter().flat_map(each) {
        virtual_time(async {
            let mut world = World::new(41, 3);
            world.deadlines = deadlines;
            let (world, pool, owned, space) = filled_in(world).await;
            let hangs = disks_of(&pool, space)[0];
            // The hang ends after an hour, because the metadata waits for its own I/O.
            slow(&world, hangs, op, When::From(0), HOUR);
            let began = world.env.now();
            owned.write(0..32, 2).await.expect("a write");
            owned.flush().await.expect("a flush");
            while op == Op::Read && presence(&pool, hangs) == Presence::Present {
                assert!(owned.has(0..32, 2).await.expect("a read"));
                world.env.sleep(MS).await;
                assert!(world.env.now() - began < 2 * deadlines.of(op));
            }
            let took = world.env.now() - began;
            let after = deadlines.of(op);
            assert!(took >= after && took < after + after / 5 + 500 * MS, "{op}: {took:?}");
            assert_eq!(presence(&pool, hangs), Presence::Absent(Absence::Slow), "{op}");
            assert!(pool.events().slow()[&hangs].longest >= after);
            assert!(
                owned.has(0..32, 2).await.expect("a read") && owned.has(32..64, 1).await.expect("a read")
            );
        });
    }
}

/// The disks of a node hang. They are removed together, and no record waits for the voters among them.
#[test]
fn the_disks_of_a_node_that_hang_leave_together() {
    virtual_time(async {
        let world = World::new(50, 9);
        let pool = world.create().await;
        put_into_nodes(&pool).await;
        let space = pool.create_space(mirror("vm")).await.expect("a space");
        let owned = world.own(&pool, space).await.expect("an owner");
        for row in 0..8 {
            owned.write(row * 512..row * 512 + 8, 1).await.expect("a write");
        }
        owned.flush().await.expect("a flush");
        let node = node_with_two_voters(&pool);
        node.iter().for_each(|disk| slow(&world, *disk, Op::Write, When::From(0), HOUR));
        let owner = pool.owner(space).expect("an owner");
        let at = pool.read(|s| s.disks[&node[0]].areas.slabs.offset);
        let handles: Vec<_> = node.iter().map(|disk| handle(&pool, owner, *disk)).collect();
        let began = world.env.now();
        for written in join_all(handles.iter().map(|disk| write(disk, owner.epoch.0, at))).await {
            assert!(matches!(written, Err(DiskError::Timeout { .. })), "{written:?}");
        }
        let took = world.env.now() - began;
        assert!(took >= HANG_TIMEOUT && took < HANG_TIMEOUT + SECOND, "{took:?}");
        assert!(node.iter().all(|disk| presence(&pool, *disk) == Presence::Absent(Absence::Slow)));
        owned.write(0..8, 2).await.expect("a write");
        owned.flush().await.expect("a flush");
        assert!(owned.has(0..8, 2).await.expect("a read"));
        assert!(world.env.now() - began < HANG_TIMEOUT + SECOND);
    });
}

/// Calls wait for the only copy, and for two disks that hang together if one of them is needed.
#[test]
fn a_disk_that_is_needed_is_waited_for() {
    // With five disks the voters alone would allow the removal of a hanging one.
    for alone in [true, false] {
        virtual_time(async {
            let (world, pool, owned, space) = filled(42, if alone { 2 } else { 5 }).await;
            let disks = disks_of(&pool, space);
            if alone {
                pool.take_offline(disks[1]).await.expect("it has a copy elsewhere");
            }
            let slabs = pool.read(|s| s.disks[&disks[0]].areas.slabs);
            let here = disks.iter().filter(|disk| presence(&pool, **disk) == Presence::Present);
            let here: Vec<DiskNumber> = here.copied().collect();
            for disk in &here {
                let rule = Rule::new(Op::Write, When::Nth(0), Fault::Slow(25 * SECOND));
                world.machine.rule(slot(*disk), rule.within(slabs.offset..u64::MAX));
            }
            let began = world.env.now();
            owned.write(0..1, 2).await.expect("a write");
            assert!(world.env.now() - began >= 25 * SECOND);
            assert!(here.iter().all(|disk| presence(&pool, *disk) == Presence::Present));
            assert!(owned.has(0..1, 2).await.expect("a read"));
        });
    }
}

/// A pause of the whole machine makes all outstanding I/O old, and is no evidence against a disk.
#[test]
fn a_pause_of_the_machine_is_no_fault_of_a_disk() {
    virtual_time(async {
        let (world, pool, owned, space) = filled(43, 3).await;
        let disk = disks_of(&pool, space)[0];
        slow(&world, disk, Op::Write, When::Nth(0), Duration::from_millis(61_500));
        let write = owned.write(0..1, 2);
        let pause = async {
            world.env.sleep(SECOND).await;
            tokio::time::advance(60 * SECOND).await;
        };
        let (written, ()) = tokio::join!(write, pause);
        written.expect("a write");
        assert_eq!(presence(&pool, disk), Presence::Present);
    });
}

/// A disk that is 20 times slower than its peers is reported soon, and removed after a minute; a second one stays.
#[test]
fn a_disk_that_is_far_slower_than_its_peers_is_reported_and_leaves() {
    virtual_time(async {
        let (world, pool, owned, _) = filled(44, 4).await;
        for row in 0..8 {
            owned.write(row * 512..row * 512 + 8, 1).await.expect("a write");
        }
        owned.flush().await.expect("a flush");
        let ops = [Op::Read, Op::Write];
        let outlier = async |one: DiskNumber| {
            for disk in (0..4).map(DiskNumber) {
                world.machine.no_rules(slot(disk));
                ops.iter().for_each(|op| {
                    slow(&world, disk, *op, When::From(0), if disk == one { 80 * MS } else { 4 * MS })
                });
            }
            let began = world.env.now();
            let (mut reported, mut left, mut n) = (None, None, 0_u64);
            while world.env.now() - began < 180 * SECOND && left.is_none() {
                let unit = n % 8 * 512 + n / 8 % 8;
                owned.write(unit..unit + 1, 1).await.expect("a write");
                assert!(owned.has(unit..unit + 1, 1).await.expect("a read"));
                n += 1;
                let after = world.env.now() - began;
                if pool.events().slow().contains_key(&one) {
                    reported = reported.or(Some(after));
                }
                left = (presence(&pool, one) != Presence::Present).then_some(after);
            }
            (reported, left)
        };
        let (reported, left) = outlier(DiskNumber(1)).await;
        let (reported, left) = (reported.expect("it is reported"), left.expect("it leaves"));
        assert!(
            reported <= 40 * SECOND && left >= 60 * SECOND && left <= 120 * SECOND,
            "{reported:?}, {left:?}"
        );
        assert_eq!(presence(&pool, DiskNumber(1)), Presence::Absent(Absence::Slow));
        let (reported, left) = outlier(DiskNumber(2)).await;
        assert!(reported.is_some() && left.is_none(), "no more are absent than the space survives");
    });
}

/// A handle of a disk for the owner of a space.
fn handle(pool: &Pool, owner: OwnerId, disk: DiskNumber) -> Arc<dyn Disk> {
    pool.disk_of(owner, disk, Membership(1)).expect("it is there")
}

async fn write(disk: &Arc<dyn Disk>, epoch: u64, at: u64) -> Result<(), DiskError> {
    let c = Ctx { epoch: Epoch(epoch), ..Ctx::default() };
    disk.write(&c, at, arena::Sg::from_iter([arena::IoBuf::from(vec![7; 4096])])).wait().await
}

/// A fence ends the I/O of earlier owners of the space, but not that of another space or of the pool.
#[test]
fn a_fence_is_of_one_space() {
    virtual_time(async {
        let world = World::new(45, 2);
        let pool = world.create().await;
        let mut owners = Vec::new();
        for name in ["a", "b"] {
            let space = pool.create_space(mirror(name)).await.expect("a space");
            owners.push(pool.owner(space).expect("an owner"));
        }
        let disk = DiskNumber(0);
        let at = pool.read(|s| s.disks[&disk].areas.slabs.offset);
        let (a, again, b) =
            (handle(&pool, owners[0], disk), handle(&pool, owners[0], disk), handle(&pool, owners[1], disk));
        let epoch = owners[0].epoch.0;
        slow(&world, disk, Op::Write, When::Nth(0), 3 * SECOND);
        slow(&world, disk, Op::Write, When::Nth(1), 100 * SECOND);
        let c = Ctx { epoch: Epoch(epoch), ..Ctx::default() };
        let block = || arena::Sg::from_iter([arena::IoBuf::from(vec![7; 4096])]);
        // The write is outstanding although its future was dropped.
        drop(a.write(&c, at, block()));
        let other = b.write(&Ctx { epoch: Epoch(owners[1].epoch.0), ..Ctx::default() }, at, block());
        let began = world.env.now();
        again.fence(&Ctx::default(), Epoch(epoch + 1)).wait().await.expect("fenced");
        let took = world.env.now() - began;
        assert!(
            took >= 3 * SECOND && took < 4 * SECOND,
            "{took:?}: only its own space's write is waited for"
        );
        assert!(matches!(write(&a, epoch, at).await, Err(DiskError::Fenced { .. })));
        assert_eq!(write(&a, epoch + 1, at).await, Ok(()));
        assert_eq!(write(&b, owners[1].epoch.0, at).await, Ok(()), "the other space's owner");
        let lower = a.fence(&Ctx::default(), Epoch(epoch)).wait().await;
        assert!(matches!(lower, Err(DiskError::Fenced { .. })));
        pool.set_domains(disk, pool.read(|s| s.disks[&disk].domains.clone())).await.expect("the pool writes");
        assert!(matches!(other, Io::Pending(_)));
        // A fence fails at its deadline.
        let c = Ctx { deadline: Some(world.env.now() + SECOND), ..Ctx::default() };
        let late = b.fence(&c, Epoch(owners[1].epoch.0 + 1)).wait().await;
        assert!(matches!(late, Err(DiskError::Timeout { .. })), "{late:?}");
        assert_eq!(pool.events().failing(), Default::default());
    });
}

/// An owner from an earlier opening of the pool gets no handle, and neither does an owner with another membership.
#[test]
fn a_handle_is_of_the_present_owner_and_membership() {
    virtual_time(async {
        let (world, pool, owned, space) = filled(46, 2).await;
        let former = pool.owner(space).expect("an owner");
        assert!(pool.disk_of(former, DiskNumber(0), Membership(2)).is_none());
        drop((owned, pool));
        let pool = world.open().await;
        assert!(pool.disk_of(former, DiskNumber(0), Membership(1)).is_none());
        let present = pool.owner(space).expect("an owner");
        assert!(pool.disk_of(present, DiskNumber(0), Membership(1)).is_some());
    });
}

/// A disk that was removed with an outstanding write does not return before the write has ended. Meanwhile its device
/// is closed, even if handles are still held.
#[test]
fn a_disk_does_not_return_while_it_is_written() {
    virtual_time(async {
        let (world, pool, owned, space) = filled(47, 3).await;
        let away = disks_of(&pool, space)[0];
        let owner = pool.owner(space).expect("an owner");
        let kept = handle(&pool, owner, away);
        let device = Arc::downgrade(&pool.members().get(away).expect("it is in service").disk);
        slow(&world, away, Op::Write, When::Nth(0), 100 * SECOND);
        owned.write(0..1, 2).await.expect("a write");
        owned.flush().await.expect("a flush");
        assert_eq!(presence(&pool, away), Presence::Absent(Absence::Slow));
        world.machine.no_rules(slot(away));
        assert!(device.upgrade().is_none(), "it is closed");
        let late = write(&kept, owner.epoch.0, 0).await;
        assert!(matches!(late, Err(DiskError::Gone { .. })), "{late:?}");
        assert_eq!(
            pool.return_disk(world.disk(away.0.into()), false).await,
            Err(AdminError::StillWriting(away))
        );
        world.env.sleep(100 * SECOND).await;
        assert_eq!(pool.return_disk(world.disk(away.0.into()), false).await, Ok(away));
        assert!(pool.events().slow().is_empty());
        owned.space.run(JobId(1), JobOrder::Resync(away)).wait().await.expect("a resync");
        assert!(owned.has(0..1, 2).await.expect("a read"));
    });
}

/// A needed disk whose I/O failed counts as failing until it joins again.
#[test]
fn a_disk_that_fails_and_stays_is_failing_until_it_joins() {
    for fault in [Fault::Error, Fault::Full] {
        virtual_time(async {
            let (world, pool, owned, space) = filled(48, 2).await;
            let disks = disks_of(&pool, space);
            pool.take_offline(disks[1]).await.expect("it has a copy elsewhere");
            // Excludes the log, whose writes are retried until they succeed.
            let slab = pool.read(|s| {
                let row = &s.spaces[&space].rows[&RowNumber(0)];
                let copy = row.copies().find(|(_, copy)| copy.place.disk == disks[0]);
                s.disks[&disks[0]].areas.data(copy.expect("it has a copy").1.place.slab)
            });
            let rule = Rule::new(Op::Write, When::From(0), fault).within(slab.offset..slab.end());
            world.machine.rule(slot(disks[0]), rule);
            owned.write(0..1, 2).await.expect_err("no disk takes it");
            assert!(pool.events().failing().contains_key(&disks[0]));
            assert_eq!(pool.events().full().len(), usize::from(fault == Fault::Full));
            world.machine.no_rules(slot(disks[0]));
            assert_eq!(pool.return_disk(world.disk(disks[1].0.into()), false).await, Ok(disks[1]));
            owned.write(0..1, 3).await.expect("a write");
            owned.space.run(JobId(1), JobOrder::Resync(disks[1])).wait().await.expect("a resync");
            owned.flush().await.expect("a flush");
            world.env.sleep(SECOND).await;
            assert!(pool.events().failing().contains_key(&disks[0]));
            pool.take_offline(disks[0]).await.expect("the other one has everything");
            assert_eq!(pool.return_disk(world.disk(disks[0].0.into()), false).await, Ok(disks[0]));
            assert!(pool.events().failing().is_empty());
        });
    }
}

/// A check detects a disk that is gone or overwritten, without I/O of owners. A disk with the only copy stays, and
/// counts as failing until it is present again, or its record is cleared.
#[test]
fn a_disk_that_is_gone_or_overwritten_is_noticed() {
    for pulled in [false, true] {
        virtual_time(async {
            let (world, pool, owned, space) = filled(49, 3).await;
            let disks = disks_of(&pool, space);
            let vanishes = |disk: DiskNumber| {
                if pulled {
                    return world.machine.pull(slot(disk), PowerCut::LoseAll);
                }
                let size = pool.read(|s| s.disks[&disk].areas.size);
                for label in [Areas::LABEL_A, Areas::label_b(size)] {
                    world.machine.scribble(slot(disk), label.offset, &vec![0; label.length as usize]);
                }
            };
            pool.check_disks().await.expect("all are well");
            assert!(disks.iter().all(|disk| presence(&pool, *disk) == Presence::Present));
            vanishes(disks[0]);
            pool.check_disks().await.expect("it leaves");
            assert_eq!(presence(&pool, disks[0]), Presence::Absent(Absence::Gone));
            owned.write(0..1, 2).await.expect("a write");
            owned.flush().await.expect("a flush");
            let image = world.machine.image(slot(disks[1]));
            vanishes(disks[1]);
            pool.check_disks().await.expect("it stays");
            assert_eq!(presence(&pool, disks[1]), Presence::Present);
            pool.events().clear(Some(disks[0]));
            assert!(pool.events().failing().contains_key(&disks[1]));
            if pulled {
                pool.events().clear(Some(disks[1]));
            } else {
                let size = pool.read(|s| s.disks[&disks[1]].areas.size);
                for label in [Areas::LABEL_A, Areas::label_b(size)] {
                    world.machine.roll_back(slot(disks[1]), &image, label.offset, label.length);
                }
                pool.check_disks().await.expect("it is there");
            }
            assert!(pool.events().failing().is_empty());
        });
    }
}
