//! Jobs on slow disks, in virtual time: several pieces at a time, beside clients, and where a scrub goes on.

use std::sync::Arc;
use std::time::Duration;

use disk::Op;
use disk::sim::{Fault, Rule, SlotId, When};
use futures_util::future::join;

use super::in_virtual_time;
use super::world::{SPACE, Shape, World};
use crate::jobs::pacer::Pacing;
use crate::jobs::{Kind, Progress, Subject, Why};
use crate::{Absence, DiskNumber, RowNumber, ScrubRecord, UNIT};

const SLOW: Duration = Duration::from_millis(10);
/// A row of the mirror.
const ROW: u64 = 512;

/// A mirror that is written whole while disk 1 is away; it is back. Reads and writes of data take 10 ms then.
async fn behind() -> World {
    let world = World::new(Shape::MIRROR, 1).await;
    for row in 0..3 {
        world.write(row * ROW..row * ROW + 8, &[1; 8]).await.expect("a write");
    }
    world.space.flush_all().await.expect("a flush");
    world.book.leave_now(DiskNumber(1), Absence::Gone).expect("it may leave");
    for row in 0..3 {
        world.write(row * ROW..(row + 1) * ROW, &vec![row + 2; ROW as usize]).await.expect("a write");
    }
    world.space.flush_all().await.expect("a flush");
    world.bring_back(1).await;
    slow(&world);
    world
}

fn slow(world: &World) {
    let slabs = world.shape.areas().slabs;
    for (disk, op) in [(0, Op::Read), (0, Op::Write), (1, Op::Read), (1, Op::Write)] {
        let rule = Rule::new(op, When::From(0), Fault::Slow(SLOW));
        world.machine.rule(SlotId(disk), rule.within(slabs.offset..slabs.end()));
    }
}

fn is_behind(world: &World) -> bool {
    world.book.state().rows.values().flat_map(|r| &r.slabs).any(|c| c.missed != 0)
}

/// 6 MiB in regions of 32 KiB are 192 pieces of two I/Os: one after the other they would take almost four seconds.
#[test]
fn a_resync_does_several_pieces_at_a_time() {
    in_virtual_time(async {
        let world = behind().await;
        let began = world.env.now();
        let progress = Progress::default();
        world.path.resync(DiskNumber(1), &progress).await.expect("a resync");
        let took = world.env.now() - began;
        assert!(!is_behind(&world) && progress.bytes() == (3 * ROW * UNIT, 3 * ROW * UNIT));
        assert!(took < SLOW * 192 / 4, "{took:?}");
        assert_eq!(world.read(ROW..ROW + 8).await.expect("a read"), [3; 8]);
    });
}

/// A client whose every read takes longer than the target: the job slows down, and still ends at its minimum;
/// its board shows the reason.
#[test]
fn a_resync_gives_way_to_clients_and_ends() {
    in_virtual_time(async {
        let world = behind().await;
        let minimum = 1 << 20;
        let pacing = Pacing { target: SLOW / 2, minimum, ..Pacing::default() };
        world.path.jobs.set_pacing(pacing);
        let job = world.path.jobs.begin(Kind::Resync, Subject::Disk(DiskNumber(1))).expect("the first");
        let began = world.env.now();
        let mut said = None;
        let work = async {
            world.path.resync(DiskNumber(1), &job).await.expect("a resync");
            world.env.now() - began
        };
        let client = async {
            let mut reads = 0;
            while is_behind(&world) {
                world.read(0..8).await.expect("a read");
                reads += 1;
                said = job.why().or(said.take());
            }
            reads
        };
        let (took, reads) = join(work, client).await;
        // 6 MiB at 1 MiB/s, but for a beginning in which nothing is known of the client.
        assert!(took > Duration::from_secs(4) && took < Duration::from_secs(8), "{took:?}");
        assert!(reads > 200, "{reads}");
        let Some(Why::Paced { p99, target }) = said else { panic!("{said:?}") };
        assert!(target == SLOW / 2 && p99.is_some_and(|p| p > target), "{p99:?}");
    });
}

#[test]
fn a_stopped_resync_keeps_what_it_has_and_a_paused_one_goes_on() {
    in_virtual_time(async {
        let world = behind().await;
        let jobs = Arc::clone(&world.path.jobs);
        let job = jobs.begin(Kind::Resync, Subject::Disk(DiskNumber(1))).expect("the first");
        let (env, id) = (world.env.clone(), job.id());
        let hand = async {
            env.sleep(SLOW * 3).await;
            jobs.pause(id).expect("it runs");
            env.sleep(Duration::from_secs(60)).await;
            let (done, total) = job.bytes();
            assert!(done < total / 2, "{done} of {total}");
            assert_eq!(jobs.list()[0].why, Some(Why::Paused));
            jobs.resume(id).expect("it is there");
        };
        let (ended, ()) = join(world.path.resync(DiskNumber(1), &job), hand).await;
        ended.expect("a resync");
        assert!(!is_behind(&world));
        drop(job);
        // Stopped: no region counts that was not copied whole.
        let world = behind().await;
        let job = world.path.jobs.begin(Kind::Resync, Subject::Disk(DiskNumber(1))).expect("the first");
        let hand = async {
            world.env.sleep(SLOW * 12).await;
            world.path.jobs.stop(job.id()).expect("it runs");
        };
        let (ended, ()) = join(world.path.resync(DiskNumber(1), &job), hand).await;
        ended.expect("it ends well");
        assert!(is_behind(&world) && job.bytes().0 > 0);
        let again = Progress::default();
        world.path.resync(DiskNumber(1), &again).await.expect("a resync");
        assert!(!is_behind(&world) && again.bytes().1 < 3 * ROW * UNIT, "it goes on where it was");
        for row in 0..3 {
            assert_eq!(world.read(row * ROW..row * ROW + 8).await.expect("a read"), [row + 2; 8]);
        }
    });
}

#[test]
fn a_scrub_goes_on_at_its_row_and_tells_what_it_found() {
    in_virtual_time(async {
        let world = World::new(Shape::MIRROR, 1).await;
        for row in 0..3 {
            world.write(row * ROW..(row + 1) * ROW, &vec![row + 1; ROW as usize]).await.expect("a write");
        }
        world.space.flush_all().await.expect("a flush");
        let record = || world.book.state().scrubs.get(&SPACE).copied().unwrap_or_default();
        world.space.await_scrub().await.expect("a record");
        let since = record().since;
        assert!(since > 0 && record().ended == 0);
        let state = world.book.state();
        let slab = |row: u32| state.rows[&(SPACE, RowNumber(row))].slabs[0].place.slab;
        for row in [0, 2] {
            world.machine.flip(SlotId(0), world.shape.areas().data(slab(row)).offset + 5 * UNIT, 1);
        }
        slow(&world);
        let job = world.path.jobs.begin(Kind::Scrub, Subject::Space(SPACE)).expect("the first");
        let hand = async {
            // In the second row.
            while job.bytes().0 < ROW * UNIT {
                world.env.sleep(Duration::from_millis(1)).await;
            }
            world.path.jobs.stop(job.id()).expect("it runs");
        };
        let (ended, ()) = join(world.space.scrub_recorded(false, false, &job), hand).await;
        assert_eq!(ended, Ok(false));
        let stopped = record();
        assert!(stopped.began > 0 && stopped.next.0 == 1 && stopped.healed == 1, "{stopped:?}");
        drop(job);
        // The next life of the pool.
        world.path.quiesce().await.expect("a flush");
        let world = world.reopen().await;
        let progress = Progress::default();
        assert_eq!(world.space.scrub_recorded(false, false, &progress).await, Ok(true));
        assert_eq!(progress.findings(), (1, 0), "the third row's");
        let ended = world.book.state().scrubs[&SPACE];
        let expected = ScrubRecord { ended: ended.since, last_healed: 2, ..ScrubRecord::default() };
        assert_eq!(ended, ScrubRecord { since: ended.since, ..expected });
        assert!(ended.since >= since);
        // Anew: all of it, and nothing is wrong any more.
        let progress = Progress::default();
        assert_eq!(world.space.scrub_recorded(true, true, &progress).await, Ok(true));
        assert_eq!((progress.findings(), progress.bytes().1), ((0, 0), 3 * ROW * UNIT));
        assert_eq!(world.book.state().scrubs[&SPACE].last_healed, 0);
    });
}

/// Where a reading was is known at each row that took a while, or in which anything was found.
#[test]
fn a_scrub_says_at_each_row_how_far_it_is() {
    let written = async || {
        let world = World::new(Shape::MIRROR, 1).await;
        for row in 0..3 {
            world.write(row * ROW..(row + 1) * ROW, &vec![row + 1; ROW as usize]).await.expect("a write");
        }
        world.space.flush_all().await.expect("a flush");
        world
    };
    let rots = |world: &World, row: u32, copies: usize| {
        for copy in &world.book.state().rows[&(SPACE, RowNumber(row))].slabs[..copies] {
            let at = world.shape.areas().data(copy.place.slab).offset + 5 * UNIT;
            world.machine.flip(SlotId(usize::from(copy.place.disk.0)), at, 1);
        }
    };
    // Each that was said: the next row, units healed, units lost.
    let said = |world: &World| {
        let scrubs = world.book.states().into_iter().filter_map(|s| s.scrubs.get(&SPACE).copied());
        let began = scrubs.filter(|r| r.began != 0);
        let mut said: Vec<_> = began.map(|r| (r.next.0, r.healed, r.lost)).collect();
        said.dedup();
        said
    };
    in_virtual_time(async {
        let world = written().await;
        let slabs = world.shape.areas().slabs;
        for disk in 0..2 {
            let rule = Rule::new(Op::Read, When::From(0), Fault::Slow(50 * SLOW));
            world.machine.rule(SlotId(disk), rule.within(slabs.offset..slabs.end()));
        }
        assert_eq!(world.space.scrub_recorded(false, false, &Progress::default()).await, Ok(true));
        assert_eq!(said(&world), [(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0)]);

        let world = written().await;
        assert_eq!(world.space.scrub_recorded(false, false, &Progress::default()).await, Ok(true));
        assert_eq!(said(&world), [(0, 0, 0)], "rows that take no time are not worth a record");

        let world = written().await;
        rots(&world, 0, 1);
        rots(&world, 1, 2);
        assert_eq!(world.space.scrub_recorded(false, false, &Progress::default()).await, Ok(true));
        assert_eq!(said(&world), [(0, 0, 0), (1, 1, 0), (2, 1, 1)]);
    });
}
