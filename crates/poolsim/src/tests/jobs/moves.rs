use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use disk::sim::SlotId;
use disk::{Media, MemoryOptions, PowerCut};
use pool::jobs::{EvacuationResult, Kind, NotMoved, Subject};
use pool::placement::{self, Step};
use pool::{MediaClass, NewDisk, Pool, State, Usage};
use pool_seam::{DiskNumber, Resiliency, RowNumber, SlabPlace, SpaceId};

use super::{begin, copies, is_unfinished, on};
use crate::world::{OwnedSpace, World, coded, mirror, virtual_time};

/// Spaces with data in each of 6 rows.
async fn filled(world: &World, pool: &Pool, records: Vec<pool::SpaceRecord>) -> Vec<(SpaceId, OwnedSpace)> {
    let mut all = Vec::new();
    for record in records {
        let space = pool.create_space(record).await.expect("a space");
        let owned = world.own(pool, space).await.expect("an owner");
        for row in 0..6 {
            owned.write(row * 512..row * 512 + 64, 1).await.expect("a write");
        }
        owned.flush().await.expect("a flush");
        all.push((space, owned));
    }
    all
}

async fn have(all: &[(SpaceId, OwnedSpace)], value: u8) {
    for (space, owned) in all {
        for row in 0..6 {
            let units = row * 512..row * 512 + 64;
            assert!(owned.has(units, value).await.expect("a read"), "{space:?}, row {row}");
        }
    }
}

/// A disk is retired while users write. Its slabs move to other disks, but not to one with manual selection.
#[test]
fn a_retired_disk_is_emptied() {
    virtual_time(async {
        let world = World::new(51, 5);
        let pool = world.create().await;
        let by_name = DiskNumber(4);
        pool.set_usage(by_name, Usage::ManualSelect).await.expect("its usage");
        let all = filled(&world, &pool, vec![mirror("a"), mirror("b"), coded("c")]).await;
        let from = DiskNumber(0);
        let before: usize = all.iter().map(|(space, _)| on(&pool, *space, from)).sum();
        assert!(before > 4, "{before}");
        pool.set_usage(from, Usage::Retired).await.expect("its usage");
        let job = begin(&pool, Kind::Drain, Subject::Disk(from));
        let users = async {
            for round in 0..8_u64 {
                for (_, owned) in &all {
                    owned.write(round % 6 * 512..round % 6 * 512 + 8, 1).await.expect("a write");
                    owned.flush().await.expect("a flush");
                }
                world.env.sleep(Duration::from_millis(50)).await;
            }
        };
        let (emptied, ()) = tokio::join!(pool.evacuate(from, &job), users);
        let emptied = emptied.expect("it is emptied");
        let (done, total) = job.bytes();
        assert!(done >= total && total > 0, "{done} of {total} bytes");
        for (space, _) in &all {
            assert_eq!((on(&pool, *space, from), on(&pool, *space, by_name)), (0, 0), "{space:?}");
            assert!(!is_unfinished(&pool, *space));
        }
        // Owners move the replicas of logs when they can: those still on the disk count as left.
        let logs = pool.read(|s| {
            let logs = s.spaces.values().filter_map(|record| record.rows.get(&RowNumber::LOG));
            logs.flat_map(|row| row.slabs.to_vec()).filter(|copy| copy.place.disk == from).count()
        });
        assert_eq!((emptied.moved >= before, emptied.remaining), (true, logs), "{emptied:?}");
        have(&all, 1).await;
        pool.take_offline(from).await.expect("nothing is there that others do not have");
        have(&all, 1).await;
    });
}

/// A lost disk is rebuilt from the others on present disks, including hot spares. A simple space keeps its slabs on
/// the lost disk, because there is no other copy.
#[test]
fn a_lost_disk_is_rebuilt_on_others() {
    virtual_time(async {
        let world = World::new(52, 5);
        let pool = world.create().await;
        let spare = DiskNumber(4);
        pool.set_usage(spare, Usage::HotSpare).await.expect("its usage");
        let all = filled(&world, &pool, vec![mirror("a"), coded("b")]).await;
        let from = DiskNumber(1);
        assert!(all.iter().all(|(space, _)| on(&pool, *space, from) > 0 && on(&pool, *space, spare) == 0));
        world.machine.pull(SlotId(1), PowerCut::LoseAll);
        for (_, owned) in &all {
            owned.write(0..64, 1).await.expect("a write without the disk");
            owned.flush().await.expect("a flush");
        }
        assert_eq!(pool.read(|s| s.membership(from)), None);
        let job = begin(&pool, Kind::Rebuild, Subject::Disk(from));
        let rebuilt = pool.evacuate(from, &job).await.expect("a rebuild");
        assert!(rebuilt.moved > 4, "{rebuilt:?}");
        assert!(all.iter().all(|(space, _)| on(&pool, *space, from) == 0 && !is_unfinished(&pool, *space)));
        have(&all, 1).await;
        // Each row has as many copies as before, so any other disk may be lost too.
        world.machine.pull(SlotId(2), PowerCut::LoseAll);
        have(&all, 1).await;
    });
}

/// The only copies of data stay on their absent disk, and the result states the reason.
#[test]
fn the_only_copies_stay_where_they_are() {
    virtual_time(async {
        let world = World::new(53, 3);
        let pool = world.create().await;
        let simple = pool::SpaceRecord { resiliency: Resiliency::Simple, ..mirror("simple") };
        let all = filled(&world, &pool, vec![simple]).await;
        let (space, owned) = &all[0];
        drop(owned.space.checkpoint().await);
        let from = DiskNumber(0);
        let before = on(&pool, *space, from);
        assert!(before > 0);
        // The pool never drops a disk with the only copies, so the disk disappears before the pool is opened.
        drop((all, pool));
        world.machine.pull(SlotId(0), PowerCut::KeepAll);
        let pool = world.open().await;
        let space = *pool.read(|s| s.spaces.keys().copied().collect::<Vec<_>>()).first().expect("the space");
        let _owned = world.own(&pool, space).await.expect("the next owner");
        let job = begin(&pool, Kind::Rebuild, Subject::Disk(from));
        let EvacuationResult { moved: _, remaining: left, why } =
            pool.evacuate(from, &job).await.expect("what can be");
        assert_eq!((left >= before, why), (true, Some(NotMoved::OnlyCopy(space))));
        assert_eq!(on(&pool, space, from), before);
    });
}

/// Slabs go to a hot spare only from a disk that is absent or to be emptied.
#[test]
fn no_slab_moves_to_a_hot_spare_without_need() {
    virtual_time(async {
        let world = World::new(54, 3);
        let pool = world.create().await;
        let all = filled(&world, &pool, vec![mirror("a")]).await;
        let space = all[0].0;
        // Only the hot spare is left for a third slab of a row.
        pool.set_usage(DiskNumber(2), Usage::HotSpare).await.expect("its usage");
        let row = pool.read(|s| {
            let rows = s.spaces[&space].rows.iter();
            let is_elsewhere =
                |row: &pool_seam::Row| row.slabs.iter().all(|copy| copy.place.disk != DiskNumber(2));
            rows.filter(|(number, row)| **number != RowNumber::LOG && is_elsewhere(row))
                .map(|(n, _)| *n)
                .next()
        });
        let row = row.expect("a row on the other two");
        let job = begin(&pool, Kind::Rebalance, Subject::Pool);
        let to = SlabPlace { disk: DiskNumber(2), slab: 20 };
        let step = Step { space, row, index: 0, to };
        let tries = std::sync::atomic::AtomicUsize::new(0);
        let next = |_: &State, skip: &BTreeSet<_>| {
            tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (!skip.contains(&(space, row))).then_some(step)
        };
        assert_eq!(pool.optimize_by(&job, next).await, Ok(0));
        assert!(tries.into_inner() > 4, "it was tried again");
        drop(job);
        let from = pool.read(|s| s.spaces[&space].rows[&row].slabs[0].place.disk);
        pool.set_usage(from, Usage::Retired).await.expect("its usage");
        let job = begin(&pool, Kind::Drain, Subject::Disk(from));
        pool.evacuate(from, &job).await.expect("it is emptied");
        assert_eq!(on(&pool, space, from), 0);
    });
}

/// A new disk gets slabs, many concurrently, at the planned places.
#[test]
fn slabs_move_to_a_new_disk() {
    virtual_time(async {
        let world = World::new(55, 3);
        let pool = world.create().await;
        let all = filled(&world, &pool, vec![mirror("a"), mirror("b"), coded("c")]).await;
        world.machine.add(&MemoryOptions::new("new", 64 << 20));
        let new = pool.add_disk(&NewDisk::new(world.disk(3))).await.expect("a new disk");
        let most = std::sync::atomic::AtomicUsize::new(0);
        // Moves slabs from the fullest disk to the new one, until it has as many.
        let next = |s: &State, skip: &BTreeSet<(SpaceId, RowNumber)>| {
            most.fetch_max(skip.len(), std::sync::atomic::Ordering::Relaxed);
            let used = |disk: DiskNumber| s.slabs_used(disk).count();
            let fullest = (0..3).map(DiskNumber).max_by_key(|disk| used(*disk))?;
            if used(fullest) <= used(new) + 1 {
                return None;
            }
            let to = SlabPlace { disk: new, slab: s.free_slabs(new).next()? };
            s.spaces.iter().find_map(|(space, record)| {
                record.rows.iter().find_map(|(row, of)| {
                    let index = of.slabs.iter().position(|copy| copy.place.disk == fullest)?;
                    let is_free = *row != RowNumber::LOG
                        && of.moving().is_none()
                        && !skip.contains(&(*space, *row))
                        && of.slabs.iter().all(|copy| copy.place.disk != new);
                    is_free.then_some(Step { space: *space, row: *row, index, to })
                })
            })
        };
        let job = begin(&pool, Kind::Rebalance, Subject::Pool);
        let moved = pool.optimize_by(&job, next).await.expect("a rebalance");
        let there: usize = all.iter().map(|(space, _)| on(&pool, *space, new)).sum();
        assert_eq!(moved, there);
        assert!(moved > 6 && most.into_inner() > 4, "{moved}");
        assert!(all.iter().all(|(space, _)| !is_unfinished(&pool, *space)));
        have(&all, 1).await;
    });
}

/// Power cuts while a disk is emptied: the moves are continued after the next opening, and nothing is lost.
#[test]
fn moves_continue_after_a_power_cut() {
    let (moments, env) = virtual_time(async {
        let world = World::new(56, 4);
        let pool = world.create().await;
        let all = filled(&world, &pool, vec![mirror("a"), coded("b")]).await;
        world.machine.record();
        let from = DiskNumber(0);
        pool.set_usage(from, Usage::Retired).await.expect("its usage");
        let job = begin(&pool, Kind::Drain, Subject::Disk(from));
        pool.evacuate(from, &job).await.expect("it is emptied");
        have(&all, 1).await;
        (world.machine.end_recording(), world.env.clone())
    });
    drop(env);
    let (mut cut_in_a_move, step) = (0, moments.len().div_ceil(24));
    for moment in moments.iter().step_by(step) {
        virtual_time(async {
            let world = World::after(moment, PowerCut::LoseAll);
            let pool = world.open().await;
            let spaces: Vec<SpaceId> = pool.read(|s| s.spaces.keys().copied().collect());
            let mut all = Vec::new();
            for space in spaces {
                all.push((space, world.own(&pool, space).await.expect("the next owner")));
            }
            have(&all, 1).await;
            let moving = pool.read(|s| {
                s.spaces
                    .values()
                    .flat_map(|record| record.rows.values())
                    .filter(|row| row.moving().is_some())
                    .count()
            });
            cut_in_a_move += usize::from(moving > 0);
            let job = begin(&pool, Kind::Rebalance, Subject::Pool);
            pool.resume_moves(&job).await.expect("they continue");
            for (space, _) in &all {
                assert!(!is_unfinished(&pool, *space), "event {}: {:?}", moment.event, copies(&pool, *space));
            }
            drop(job);
            let from = DiskNumber(0);
            pool.set_usage(from, Usage::Retired).await.expect("its usage");
            let job = begin(&pool, Kind::Drain, Subject::Disk(from));
            pool.evacuate(from, &job).await.expect("it is emptied");
            assert!(all.iter().all(|(space, _)| on(&pool, *space, from) == 0));
            pool.take_offline(from).await.expect("the others have everything");
            have(&all, 1).await;
        });
    }
    assert!(cut_in_a_move > 2, "{cut_in_a_move} of {} moments", moments.len().div_ceil(step));
}

/// A job's future is `Send`, so that a task can run it.
#[test]
fn jobs_are_sent_to_tasks() {
    virtual_time(async {
        let world = World::new(57, 3);
        let pool = world.create().await;
        let all = Arc::new(filled(&world, &pool, vec![mirror("a")]).await);
        let (task, space) = (pool.clone(), all[0].0);
        let ends = world.env.run(async move {
            let pool = task;
            let job = begin(&pool, Kind::Rebalance, Subject::Pool);
            pool.optimize(&job).await.expect("nothing to move");
            pool.resume_moves(&job).await.expect("nothing moves");
            pool.resolve_all(&job).await.expect("nothing is open");
            pool.resync(DiskNumber(0), &job).await.expect("nothing is missed");
            pool.scrub(space, false, false, &job).await.expect("a scrub");
            pool.evacuate(DiskNumber(0), &job).await.expect("some slabs move").moved
        });
        assert!(ends.await > 0);
        have(&all, 1).await;
    });
}

/// The medium of a disk is changed: slabs on it move, including the replica of the log.
#[test]
fn a_log_moves_to_the_media_of_its_space() {
    virtual_time(async {
        let world = World::new(57, 4);
        let pool = world.create().await;
        for disk in 0..3 {
            pool.set_media(DiskNumber(disk), Media::Ssd).await.expect("its medium");
        }
        let record = pool::SpaceRecord { media: MediaClass::flash(), ..mirror("vm") };
        let all = filled(&world, &pool, vec![record]).await;
        let space = all[0].0;
        let log = || -> Vec<DiskNumber> {
            pool.read(|s| {
                s.spaces[&space].rows[&RowNumber::LOG].copies().map(|(_, c)| c.place.disk).collect()
            })
        };
        let slow = log()[0];
        pool.set_media(slow, Media::Hdd).await.expect("its medium");
        let job = begin(&pool, Kind::Rebalance, Subject::Pool);
        pool.optimize(&job).await.expect("they move");
        assert!(!log().contains(&slow) && on(&pool, space, slow) == 0, "{:?}", log());
        assert!(pool.read(|s| placement::outside(s, space)) == 0);
        have(&all, 1).await;
    });
}
