use std::sync::{Arc, Weak};
use std::time::Duration;

use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Op, PowerCut};
use pool::Pool;
use pool::authority::memory::{Fault as Unconfirmed, MemoryAuthority, Register};
use pool_seam::{DiskNumber, JobId, JobOrder, NodeId, Owner, RowNumber, SpaceId, UNIT};

use crate::world::{OwnedSpace, World, filled, mirror, virtual_time};

/// The disks with slabs of the space's rows.
fn disks_of(pool: &Pool, space: SpaceId) -> Vec<DiskNumber> {
    let rows = |s: &pool::State| {
        let rows = s.spaces[&space].data_rows();
        rows.flat_map(|(_, row)| row.copies().map(|(_, copy)| copy.place.disk).collect::<Vec<_>>()).collect()
    };
    pool.read(rows)
}

/// A mirror on a real pool is written and flushed, loses a disk, and the power fails: all flushed data is read again.
#[test]
fn a_mirror_survives_a_disk_and_a_power_cut() {
    for lost in 0..3_u16 {
        virtual_time(async {
            let (world, pool, owned, space) = filled(u64::from(lost), 3).await;
            assert!(owned.has(0..64, 1).await.expect("a read"));

            let is_used = pool.read(|s| s.slabs_used(DiskNumber(lost)).next().is_some());
            world.machine.pull(SlotId(lost.into()), PowerCut::LoseAll);
            owned.write(0..32, 2).await.expect("a write without the disk");
            owned.flush().await.expect("a flush without the disk");
            let has_left = pool.read(|s| s.membership(DiskNumber(lost)).is_none());
            assert_eq!(has_left, is_used, "the owner has reported it");

            drop((owned, pool));
            world.machine.cut(PowerCut::LoseAll);
            world.machine.restart();
            let pool = world.open().await;
            let owned = world.own(&pool, space).await.expect("the next owner");
            assert!(
                owned.has(0..32, 2).await.expect("a read") && owned.has(32..64, 1).await.expect("a read")
            );
            owned.write(64..96, 3).await.expect("a write");
            owned.flush().await.expect("a flush");
            assert!(owned.has(64..96, 3).await.expect("a read"));
        });
    }
}

/// A repeated I/O counts for the disk that failed it and for the space. I/O that succeeds at once, or that another
/// copy makes unnecessary, does not count.
#[test]
fn repeated_ios_are_counted() {
    virtual_time(async {
        let (world, pool, owned, space) = filled(7, 2).await;
        assert!(owned.has(0..64, 1).await.expect("a read"));
        let counted = || (world.retries.of_disk(DiskNumber(0)), world.retries.of_disk(DiskNumber(1)));
        assert_eq!(counted(), (0, 0));

        // A damaged copy: the first read of it is repeated.
        let slab_of = |row: RowNumber| {
            pool.read(|s| {
                let mut copies = s.spaces[&space].rows[&row].copies();
                let (_, copy) = copies.find(|(_, copy)| copy.place.disk == DiskNumber(0)).expect("a copy");
                s.disks[&DiskNumber(0)].areas.data(copy.place.slab)
            })
        };
        let slab = slab_of(RowNumber(0));
        world.machine.scribble(SlotId(0), slab.offset, &vec![0xee; 64 * UNIT as usize]);
        for _ in 0..4 {
            assert!(owned.has(0..64, 1).await.expect("a read"));
        }
        let (first, other) = counted();
        assert!((1..=64).contains(&first) && other == 0, "{:?}", counted());

        // The only disk with the log refuses a record once.
        pool.take_offline(DiskNumber(1)).await.expect("the other has everything");
        let log = slab_of(RowNumber::LOG);
        let rule = Rule::new(Op::Write, When::Nth(0), Fault::Error).within(log.offset..log.end());
        world.machine.rule(SlotId(0), rule);
        owned.write(0..1, 2).await.expect("a write");
        // The next flush reports that unflushed writes before the failure may be lost.
        drop(owned.flush().await);
        owned.flush().await.expect("a flush");
        let (second, other) = counted();
        assert!(second > first && other == 0, "{:?}", counted());
        assert_eq!((world.retries.of_space(space), world.retries.total()), (second, second));
    });
}

/// The pool is full and a discard frees slabs: writes wait until the disks have completed it.
#[test]
fn writes_get_the_room_that_a_discard_makes() {
    virtual_time(async {
        let world = World::new(6, 2);
        let pool = world.create().await;
        let record = pool::SpaceRecord { size: 256 << 20, ..mirror("vm") };
        let space = pool.create_space(record).await.expect("a space");
        let owned = world.own(&pool, space).await.expect("an owner");
        let mut rows = 0;
        while owned.write(rows * 512..rows * 512 + 8, 1).await.is_ok() {
            rows += 1;
        }
        assert!((8..100).contains(&rows), "{rows}");
        for slot in [0, 1] {
            let slow = Fault::Slow(Duration::from_secs(1));
            world.machine.rule(SlotId(slot), Rule::new(Op::Discard, When::From(0), slow));
        }
        owned.space.discard(0, rows / 2 * 512 * UNIT).wait().await.expect("a discard");
        for row in rows..rows + rows / 2 {
            owned.write(row * 512..row * 512 + 8, 2).await.expect("a write");
        }
    });
}

/// A disk that never completes a discard keeps only the slabs of that discard unusable.
#[test]
fn a_disk_that_does_not_answer_a_discard_blocks_no_command() {
    virtual_time(async {
        let world = World::new(8, 2);
        let pool = world.create().await;
        let local = world.local(&pool).await;
        let space = local.create(mirror("vm")).await.expect("a space");
        let used = pool.read(|s| s.slabs_allocated());
        let hangs = Rule::new(Op::Discard, When::From(0), Fault::Slow(Duration::from_secs(3600)));
        world.machine.rule(SlotId(0), hangs);
        let began = world.env.now();
        local.destroy(space).await.expect("its slabs are free");
        let next = local.create(mirror("vm")).await.expect("another space");
        pool.rename("lake").await.expect("a change");
        assert!(world.env.now() - began < Duration::from_secs(1));
        let log_on = |disk: u16| {
            let log = pool.read(|s| s.spaces[&next].rows[&RowNumber::LOG].clone());
            log.copies()
                .find(|(_, copy)| copy.place.disk == DiskNumber(disk))
                .map(|(_, copy)| copy.place.slab)
        };
        assert_eq!(
            (log_on(0), log_on(1)),
            (Some(1), Some(0)),
            "slabs are not used before their discard ends"
        );
        assert_eq!(pool.read(|s| s.slabs_allocated()), used);
        local.close().await.expect("it is closed");
        pool.export().await.expect("the pool is given up");
        assert!(world.env.now() - began < Duration::from_secs(20));
    });
}

/// A disk leaves the pool, or the pool is exported, after the discards in progress: a later one would destroy what is
/// written to the disk then.
#[test]
fn discards_end_before_a_disk_or_the_pool_leaves() {
    virtual_time(async {
        let world = World::new(10, 3);
        let pool = world.create().await;
        let local = world.local(&pool).await;
        for name in ["one", "two"] {
            local.create(mirror(name)).await.expect("a space");
        }
        let second = Duration::from_secs(1);
        // Not the discard of the whole disk when it leaves.
        let areas = pool.read(|s| s.disks[&DiskNumber(0)].areas);
        let slabs = areas.checksums(0).offset..areas.data(3).end();
        for slot in 0..3 {
            let slow = Rule::new(Op::Discard, When::From(0), Fault::Slow(5 * second));
            world.machine.rule(SlotId(slot), slow.within(slabs.clone()));
        }
        let spaces: Vec<_> = pool.read(|s| s.spaces.keys().copied().collect());
        local.destroy(spaces[0]).await.expect("its slabs are free");
        let used = |disk: &DiskNumber| pool.read(|s| s.slabs_used(*disk).next().is_some());
        let began = world.env.now();
        let free =
            (0..3).map(DiskNumber).find(|disk| !used(disk)).expect("a disk of the destroyed space only");
        pool.remove_disk(free).await.expect("it has no slabs");
        assert!(world.env.now() - began >= 4 * second, "it waited");
        local.destroy(spaces[1]).await.expect("its slabs are free");
        local.close().await.expect("nothing is open");
        let began = world.env.now();
        pool.export().await.expect("the pool is given up");
        assert!(world.env.now() - began >= 4 * second, "it waited");
    });
}

/// A space that cannot be opened is to be destroyed while the pool accepts no changes: it is opened afterwards.
#[test]
fn a_space_that_could_not_be_destroyed_is_opened_again() {
    virtual_time(async {
        let world = World::new(9, 2);
        let authority = MemoryAuthority::new(&world.env, &Register::default());
        let pool = world.create_under(Some(Arc::<MemoryAuthority>::clone(&authority))).await;
        let local = world.local(&pool).await;
        let space = local.create(mirror("vm")).await.expect("a space");
        local.close().await.expect("its log is durable");
        for slot in [0, 1] {
            world.machine.rule(SlotId(slot), Rule::new(Op::Read, When::From(0), Fault::Error));
        }
        let local = world.local(&pool).await;
        assert!(local.is_unwritten(space, 0, UNIT).await.is_err(), "its log cannot be read");
        // The pool cannot confirm whether this process still owns it.
        authority.inject([Unconfirmed::TimeOut; 200]);
        world.env.sleep(Duration::from_secs(10)).await;
        local.destroy(space).await.expect_err("the pool takes no changes");
        [0, 1].into_iter().for_each(|slot| world.machine.no_rules(SlotId(slot)));
        world.env.sleep(Duration::from_secs(150)).await;
        assert_eq!(pool.suspended(), None);
        assert_eq!(local.is_unwritten(space, 0, UNIT).await, Ok(true));
        local.destroy(space).await.expect("it can be destroyed now");
    });
}

/// A disk that returns is compared with the log and resynchronised. Then it alone has all data.
#[test]
fn a_disk_returns_and_is_filled() {
    virtual_time(async {
        let (world, pool, owned, space) = filled(4, 2).await;
        let (away, other) = (DiskNumber(1), DiskNumber(0));
        assert!(disks_of(&pool, space).contains(&away));
        world.machine.pull(SlotId(1), PowerCut::LoseAll);
        owned.write(0..64, 2).await.expect("a write without the disk");
        owned.flush().await.expect("a flush");
        let stale = |disk| {
            let record = pool.read(|s| s.spaces[&space].clone());
            let copies =
                record.rows.values().flat_map(|row| row.copies().map(|(_, copy)| *copy).collect::<Vec<_>>());
            copies.filter(|copy| copy.place.disk == disk).fold(0, |all, copy| all | copy.stale_regions)
        };
        assert_ne!(stale(away), 0);
        assert!(pool.read(|s| s.needs(other)), "it alone has the newest writes");

        world.machine.plug(SlotId(1));
        let back = pool.return_disk(world.disk(1), false).await;
        assert_eq!(back, Ok(away));
        assert_eq!(pool.read(|s| s.membership(away)).map(|of| of.0), Some(2));
        let report = owned.space.run(JobId(1), JobOrder::Resync(away)).wait().await.expect("a resync");
        assert!(report.not_moved.is_empty(), "{report:?}");
        world.env.sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(stale(away), 0);

        world.machine.pull(SlotId(0), PowerCut::LoseAll);
        assert!(owned.has(0..64, 2).await.expect("a read of the disk that returned"));
    });
}

/// An owner that is opening its space may have read the marks before another disk joined. That owner is not linked,
/// and the next one reads the marks. The disk does not become stale by this.
#[test]
fn an_owner_that_a_disk_overtakes_is_not_linked() {
    for (opens, fails) in [(false, false), (true, false), (true, true)] {
        virtual_time(async {
            let (world, pool, owned, space) = filled(7, 2).await;
            owned.space.checkpoint().await.expect("a checkpoint");
            drop(owned);
            let disks = disks_of(&pool, space);
            pool.take_offline(disks[0]).await.expect("there is another copy");
            let owner = pool.owner(space).expect("an owner");
            let mut opening = opens.then(|| pool.register_opening(owner));
            if fails {
                opening = None;
                let other = SlotId(disks[1].0.into());
                world.machine.rule(other, Rule::new(Op::Read, When::From(0), Fault::Error));
                assert!(world.own(&pool, space).await.is_err(), "its log cannot be read");
                world.machine.no_rules(other);
            }
            assert_eq!(pool.return_disk(world.disk(disks[0].0.into()), false).await, Ok(disks[0]));
            let row = pool.read(|s| s.spaces[&space].rows[&RowNumber(0)].clone());
            let stale = row.copies().any(|(_, copy)| copy.place.disk == disks[0] && copy.stale_regions != 0);
            assert!(!stale);
            let ended: Weak<dyn Owner> = Weak::<space::Space>::new();
            let is_linked = pool.link(owner, ended);
            assert_eq!(is_linked, opening.is_none());
            drop(opening);
            pool.hand_over(space, NodeId::default()).await.expect("another owner");
            let owned = world.own(&pool, space).await.expect("an owner");
            assert!(owned.has(0..64, 1).await.expect("a read"));
        });
    }
}

/// The last copy stays in service, whatever its owner reports.
#[test]
fn the_only_copy_does_not_leave() {
    virtual_time(async {
        let world = World::new(5, 3);
        let pool = world.create().await;
        let space = pool.create_space(mirror("vm")).await.expect("a space");
        let owned = world.own(&pool, space).await.expect("an owner");
        owned.write(0..1, 1).await.expect("a write");
        owned.flush().await.expect("a flush");
        let disks = disks_of(&pool, space);
        pool.take_offline(disks[0]).await.expect("it has a copy elsewhere");
        owned.write(0..1, 2).await.expect("a write");
        owned.flush().await.expect("a flush");
        let only = pool.disk_failed(disks[1], pool::Absence::WriteFailed).await;
        assert_eq!(only, Err(pool::CommitError::Needed(disks[1])));
        assert!(owned.has(0..1, 2).await.expect("I/O to it goes on"));
        owned.write(0..1, 3).await.expect("I/O to it goes on");
    });
}

/// New rows are not placed on a disk that was taken out of service; their slabs are on present disks.
#[test]
fn a_space_grows_without_a_disk() {
    virtual_time(async {
        let world = World::new(6, 4);
        let pool = world.create().await;
        let space = pool.create_space(mirror("vm")).await.expect("a space");
        let owned = world.own(&pool, space).await.expect("an owner");
        pool.take_offline(DiskNumber(3)).await.expect("it leaves");
        for row in 0..8 {
            owned.write(row * 512..row * 512 + 4, 7).await.expect("a write");
        }
        owned.flush().await.expect("a flush");
        let disks = disks_of(&pool, space);
        assert!(disks.len() == 16 && !disks.contains(&DiskNumber(3)));
    });
}

/// A rolled-back disk is detected by its mark: all regions that the other disk has become stale on it.
#[test]
fn a_disk_that_was_rolled_back_is_filled_again() {
    virtual_time(async {
        let world = World::new(11, 2);
        let pool = world.create().await;
        let space = pool.create_space(mirror("vm")).await.expect("a space");
        let owned = world.own(&pool, space).await.expect("an owner");
        let image = world.machine.image(SlotId(1));
        let marks = pool.read(|s| s.disks[&DiskNumber(1)].areas.marks);
        let slabs = pool.read(|s| s.disks[&DiskNumber(1)].areas.slabs);
        owned.write(0..64, 1).await.expect("a write");
        owned.flush().await.expect("a flush");
        owned.space.checkpoint().await.expect("a checkpoint");
        pool.take_offline(DiskNumber(1)).await.expect("it leaves");
        // Only the data that the space's owner wrote is older; labels and metadata are current.
        for area in [marks, slabs] {
            world.machine.roll_back(SlotId(1), &image, area.offset, area.length);
        }
        assert_eq!(pool.return_disk(world.disk(1), false).await, Ok(DiskNumber(1)));
        let row = |s: &pool::State| s.spaces[&space].rows[&RowNumber(0)].clone();
        let stale = pool.read(|s| {
            row(s).copies().map(|(_, copy)| (copy.place.disk, copy.stale_regions)).collect::<Vec<_>>()
        });
        assert!(stale.contains(&(DiskNumber(1), u64::MAX)), "{stale:?}");
        assert!(owned.has(0..64, 1).await.expect("a read"));
        owned.space.run(JobId(1), JobOrder::Resync(DiskNumber(1))).wait().await.expect("a resync");
        pool.take_offline(DiskNumber(0)).await.expect("the other one has everything");
        assert!(owned.has(0..64, 1).await.expect("a read of the disk that was set back"));
    });
}

/// One disk is rolled back while another one is absent. Data that is newer on the absent disk only is not served
/// before that disk returns. The returning disk does not count as older than the rolled-back one. Without a
/// checkpoint since the image, one replica of the log must be present (section K of 0004).
#[test]
fn a_disk_that_was_rolled_back_is_no_source_for_one_that_returns() {
    const ROWS: std::ops::Range<u64> = 0..6;
    let units = |row: u64| row * 512..row * 512 + 8;
    for (back, away, checkpoint) in (0..18).map(|n| (n % 3, n / 3 % 3, n < 9)) {
        virtual_time(async {
            let world = World::new(13, 3);
            let pool = world.create().await;
            let space = pool.create_space(mirror("vm")).await.expect("a space");
            let owned = world.own(&pool, space).await.expect("an owner");
            let write = async |value| {
                for row in ROWS {
                    owned.write(units(row), value).await.expect("a write");
                }
                owned.flush().await.expect("a flush");
            };
            write(1).await;
            let log = |number: usize| {
                let disk = DiskNumber(number as u16);
                pool.read(|s| {
                    s.spaces[&space].rows[&RowNumber::LOG].copies().any(|(_, c)| c.place.disk == disk)
                })
            };
            if back == away || (!checkpoint && log(back) && log(away)) {
                return;
            }
            let image = world.machine.image(SlotId(back));
            write(2).await;
            if checkpoint {
                owned.space.checkpoint().await.expect("a checkpoint");
            } else {
                // So that the log declares the first flush confirmed.
                write(2).await;
            }
            world.machine.restart();
            drop((owned, pool));
            let size = world.disk(back).info().geometry.size;
            world.machine.roll_back(SlotId(back), &image, 0, size);
            world.machine.pull(SlotId(away), PowerCut::LoseAll);
            let pool = world.open().await;
            let before = world.own(&pool, space).await;
            for row in ROWS {
                let Ok(owned) = &before else { break };
                let read = owned.read(units(row)).await;
                assert!(
                    read.is_err() || read == Ok(OwnedSpace::filled(units(row), 2)),
                    "{back} {away} {row}"
                );
            }
            world.machine.plug(SlotId(away));
            pool.return_disk(world.disk(away), false).await.expect("it returns");
            let owned = match before {
                Ok(owned) => owned,
                Err(_) => world.own(&pool, space).await.expect("an owner"),
            };
            let returned = DiskNumber(away as u16);
            owned.space.run(JobId(1), JobOrder::Resync(returned)).wait().await.expect("a resync");
            for row in ROWS {
                assert!(owned.has(units(row), 2).await.expect("a read"), "{back} {away} {row}");
            }
        });
    }
}

/// A disk of a space without an owner is removed and becomes unaccounted: its copies are not used until the next
/// owner has read the log.
#[test]
fn a_disk_that_leaves_without_an_owner_is_accounted_for_by_the_next() {
    virtual_time(async {
        let (world, pool, owned, space) = filled(12, 2).await;
        drop(owned);
        let away = DiskNumber(1);
        pool.take_offline(away).await.expect("it leaves");
        assert!(pool.read(|s| s.spaces[&space].unaccounted.contains_key(&away)));
        drop(pool);
        let pool = world.open().await;
        let owned = world.own(&pool, space).await.expect("the next owner");
        assert!(pool.read(|s| s.spaces[&space].unaccounted.is_empty()), "the owner has accounted for it");
        assert!(owned.has(0..64, 1).await.expect("a read"));
    });
}
