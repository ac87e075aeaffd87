//! What is lost is known after a restart, each unit once, until a whole reading finds it there again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Disk, Op as Io};
use env::{Ctx, Epoch};
use futures_util::future::join;

use super::parity::SINGLE;
use super::world::{SPACE, Shape, World};
use super::{arena, in_virtual_time};
use crate::jobs::{Kind, Progress, Subject};
use crate::{DataPath, LossRecord, PathOptions, RowNumber, SpaceId, UNIT};

/// A row of the mirror.
const ROW: u64 = 512;

/// A mirror of three rows that are written whole.
async fn written() -> World {
    let world = World::new(Shape::MIRROR, 1).await;
    for row in 0..3 {
        world.write(row * ROW..(row + 1) * ROW, &vec![row + 1; ROW as usize]).await.expect("a write");
    }
    world.path.quiesce().await.expect("all disks are here");
    world
}

/// Where a unit of a column lies on its disk: a mirror's first copy is that of slot 0, or the other.
fn place(world: &World, row: u32, index: usize, unit: u64) -> (SlotId, u64) {
    let place = world.book.state().rows[&(SPACE, RowNumber(row))].slabs[index].place;
    (SlotId(usize::from(place.disk.0)), world.shape.areas().data(place.slab).offset + unit * UNIT)
}

/// Rot of a unit of the space on both copies.
fn rots(world: &World, unit: u64) {
    for index in 0..2 {
        let (slot, at) = place(world, (unit / ROW) as u32, index, unit % ROW);
        world.machine.flip(slot, at, 5);
    }
}

fn lost(world: &World) -> LossRecord {
    world.book.state().losses.get(&SPACE).cloned().unwrap_or_default()
}

fn units(at: &[u64]) -> LossRecord {
    LossRecord { units: at.len() as u64, at: at.iter().map(|u| u * UNIT).collect() }
}

async fn scrub(world: &World) {
    assert_eq!(world.space.scrub_recorded(true, true, &Progress::default()).await, Ok(true));
}

#[test]
fn what_is_lost_is_known_after_a_restart_and_each_unit_once() {
    in_virtual_time(async {
        let world = written().await;
        [3, 4].iter().for_each(|unit| rots(&world, *unit));
        assert_eq!(world.path.record_losses().await, Ok(false), "it was not read");
        for _ in 0..100 {
            assert!(world.read(3..4).await.is_err());
        }
        world.path.events.more_lost().await;
        assert_eq!(world.path.record_losses().await, Ok(true));
        assert_eq!(lost(&world), units(&[3]));
        world.path.quiesce().await.expect("a flush");
        let world = world.reopen().await;
        assert!(world.read(3..4).await.is_err());
        assert_eq!(world.path.record_losses().await, Ok(false), "it is known");
        assert!(world.read(4..5).await.is_err());
        assert_eq!(world.path.record_losses().await, Ok(true));
        assert_eq!(lost(&world), units(&[3, 4]));
    });
}

#[test]
fn a_whole_reading_says_what_is_left() {
    in_virtual_time(async {
        let world = written().await;
        [3, 4, 2 * ROW].iter().for_each(|unit| rots(&world, *unit));
        assert!(world.read(3..4).await.is_err());
        world.path.record_losses().await.expect("a record");
        scrub(&world).await;
        assert_eq!((lost(&world), world.book.state().scrubs[&SPACE].last_lost), (units(&[3, 4, 2 * ROW]), 3));
        // After it is written again it is reported until a scrub has read it.
        world.write(3..5, &[30, 40]).await.expect("a write");
        assert_eq!(world.path.record_losses().await, Ok(false));
        assert_eq!(lost(&world).units, 3);
        scrub(&world).await;
        assert_eq!(lost(&world), units(&[2 * ROW]));
        let world = world.reopen().await;
        let discarded = world.space.discard(&Ctx::default(), 2 * ROW * UNIT, UNIT).wait().await;
        discarded.expect("a discard");
        scrub(&world).await;
        assert!(world.book.state().losses.is_empty());
        assert!(world.path.events.lost().values().all(BTreeSet::is_empty));
        // It may be lost again.
        rots(&world, 3);
        assert!(world.read(3..4).await.is_err());
        assert_eq!(world.path.record_losses().await, Ok(true));
        assert_eq!(lost(&world), units(&[3]));
    });
}

/// What a reading that was cut off had found is found again, and counted once; what was written anew behind
/// it counts no more.
#[test]
fn a_reading_that_was_cut_off_counts_nothing_twice() {
    in_virtual_time(async {
        let world = written().await;
        [3, ROW + 3].iter().for_each(|unit| rots(&world, *unit));
        slow(&world, Duration::from_millis(500));
        let job = world.path.jobs.begin(Kind::Scrub, Subject::Space(SPACE)).expect("the first");
        let hand = async {
            while job.findings().1 < 2 {
                world.env.sleep(Duration::from_millis(10)).await;
            }
            world.path.jobs.stop(job.id()).expect("it runs");
        };
        let (ended, ()) = join(world.space.scrub_recorded(false, false, &job), hand).await;
        assert_eq!(ended, Ok(false));
        let record = world.book.state().scrubs[&SPACE];
        assert_eq!((record.next, record.lost), (RowNumber(1), 1), "{record:?}");
        drop(job);
        world.path.record_losses().await.expect("a record");
        world.path.quiesce().await.expect("a flush");
        let world = world.reopen().await;
        world.write(3..4, &[30]).await.expect("a write");
        assert_eq!(world.space.scrub_recorded(false, false, &Progress::default()).await, Ok(true));
        assert_eq!(world.book.state().scrubs[&SPACE].last_lost, 2, "that many were");
        assert_eq!(lost(&world), units(&[ROW + 3]));
    });
}

/// Both columns of data of a stripe, where one of them could be made: each counts, whichever is asked for.
#[test]
fn parity_counts_units_and_not_stripes() {
    in_virtual_time(async {
        let world = World::new(SINGLE, 1).await;
        let stripe = u64::from(SINGLE.interleave) / UNIT;
        let all: Vec<u64> = (1..=2 * stripe).collect();
        world.write(0..2 * stripe, &all).await.expect("a write");
        world.path.quiesce().await.expect("all disks are here");
        for index in 0..2 {
            let (slot, at) = place(&world, 0, index, 1);
            world.machine.flip(slot, at, 5);
        }
        assert!(world.read(stripe + 1..stripe + 2).await.is_err());
        world.path.record_losses().await.expect("a record");
        assert_eq!(lost(&world), units(&[stripe + 1]));
        scrub(&world).await;
        let last = world.book.state().scrubs[&SPACE].last_lost;
        assert_eq!((lost(&world), last), (units(&[1, stripe + 1]), 2));
        world.write(0..2 * stripe, &all).await.expect("a write");
        scrub(&world).await;
        assert!(world.book.state().losses.is_empty());
    });
}

/// No copy's block says what was written, nor what it was.
#[test]
fn what_nobody_can_say_is_lost() {
    in_virtual_time(async {
        let world = written().await;
        for copy in &world.book.state().rows[&(SPACE, RowNumber(1))].slabs {
            let at = world.shape.areas().checksums(copy.place.slab).offset;
            world.machine.make_bad(SlotId(usize::from(copy.place.disk.0)), at, UNIT);
        }
        let world = world.reopen().await;
        assert!(world.read(ROW..ROW + 1).await.is_err());
        world.path.record_losses().await.expect("a record");
        assert_eq!(lost(&world), units(&[ROW]));
        scrub(&world).await;
        let all: BTreeSet<u64> = (ROW..2 * ROW).map(|u| u * UNIT).collect();
        assert_eq!(lost(&world), LossRecord { units: ROW, at: all });
        world.write(ROW..2 * ROW, &vec![9; ROW as usize]).await.expect("a write");
        scrub(&world).await;
        assert!(world.book.state().losses.is_empty());
    });
}

/// It is reported as long as the pool is open, and recorded when the pool may be changed.
#[test]
fn nothing_is_written_where_nothing_may_be() {
    in_virtual_time(async {
        let world = written().await;
        rots(&world, 3);
        let options = PathOptions { read_only: true, ..PathOptions::default() };
        let book = Arc::clone(&world.book) as _;
        let path = DataPath::open(world.env.clone(), arena(), book, Epoch(1), options).await;
        let path = path.expect("it opens");
        let space = path.space(SPACE).expect("the space");
        let buffers =
            disk::sized(arena().alloc_sg(UNIT as usize, arena::Class::Payload).await, UNIT as usize);
        assert!(space.read(&Ctx::default(), 3 * UNIT, buffers).wait().await.0.is_err());
        assert_eq!(path.record_losses().await, Ok(false));
        assert_eq!((path.events.lost()[&SPACE].len(), world.book.state().losses.len()), (1, 0));
        drop((space, path));

        assert!(world.read(3..4).await.is_err());
        assert_eq!(world.path.record_losses().await, Ok(true));
        assert_eq!(lost(&world), units(&[3]));
        // A unit that became valid meanwhile does not prevent others from being recorded.
        assert!(world.path.events.noted.add(SpaceId(99), 0));
        rots(&world, 5);
        assert!(world.read(5..6).await.is_err());
        assert_eq!(world.path.record_losses().await, Ok(true));
    });
}

fn slow(world: &World, takes: Duration) {
    let slabs = world.shape.areas().slabs;
    for disk in 0..2 {
        let rule = Rule::new(Io::Read, When::From(0), Fault::Slow(takes));
        world.machine.rule(SlotId(disk), rule.within(slabs.offset..slabs.end()));
    }
}

/// The journal's contents are in place: its lost units cost nothing, and a scrub makes it readable again.
#[test]
fn what_a_journal_has_lost_is_nobodys_loss() {
    in_virtual_time(async {
        let world = World::new(SINGLE, 1).await;
        world.write(0..4, &[1, 2, 3, 4]).await.expect("a write");
        world.space.flush_all().await.expect("all disks are here");
        world.write(0..1, &[9]).await.expect("a write by the journal");
        world.path.quiesce().await.expect("all disks are here");
        let journal = world.book.state().journal_of(SPACE).expect("it has one");
        let state = world.book.state();
        let row = &state.rows[&(journal, RowNumber(0))];
        for copy in &row.slabs {
            let at = world.shape.areas().data(copy.place.slab).offset;
            // The headers, and what was written once.
            for unit in 0..4 {
                world.machine.flip(SlotId(usize::from(copy.place.disk.0)), at + unit * UNIT, 5);
            }
        }
        world.space.inner.groups.forget_clean();
        scrub(&world).await;
        assert!(world.path.events.lost().values().all(BTreeSet::is_empty));
        assert_eq!((lost(&world), world.book.state().losses.len()), (LossRecord::default(), 0));
        let again = Progress::default();
        assert_eq!(world.space.scrub_recorded(true, true, &again).await, Ok(true));
        assert_eq!(again.findings(), (0, 0), "it is whole");
        world.write(1..2, &[8]).await.expect("the journal takes records");
        world.machine.cut(disk::PowerCut::LoseAll);
        let world = world.reopen().await;
        assert_eq!(world.read(0..4).await, Ok(vec![9, 8, 3, 4]));
    });
}
