//! Waits for a disk in detail: trimming, naming and counting meanwhile, and which other operations wait too.

use std::time::Duration;

use disk::sim::{Fault, Moment, Rule, SlotId, When};
use disk::{Op, PowerCut};
use env::Env;
use futures_util::future::{Either, select};

use super::in_virtual_time;
use super::left::{PARITY, disks_of, row_units, two_rows};
use super::parity::go;
use super::world::{SPACE, Shape, World};
use crate::jobs::Progress;
use crate::{DiskNumber, RowNumber, SlabPlace, State};

/// A column's disk takes none of its checksum blocks; `data`: no data of it instead.
fn refuses(world: &World, row: u32, column: usize, data: bool) {
    let place = world.book.state().rows[&(SPACE, RowNumber(row))].slabs[column].place;
    let areas = world.shape.areas();
    let area = if data { areas.data(place.slab) } else { areas.checksums(place.slab) };
    let rule = Rule::new(Op::Write, When::From(0), Fault::Refused(5));
    world.machine.rule(SlotId(usize::from(place.disk.0)), rule.within(area.offset..area.end()));
}

fn no_rules(world: &World, disk: u16) {
    world.machine.no_rules(SlotId(usize::from(disk)));
}

type Moments = Vec<(Moment, State)>;

fn moments(world: &World) -> Moments {
    let moments = world.machine.recorded();
    moments
        .into_iter()
        .map(|m| {
            let state = world.book.state_at(m.event);
            (m, state)
        })
        .collect()
}

#[test]
fn a_replay_that_leaves_something_keeps_the_journal() {
    in_virtual_time(async {
        let (world, first, _) = two_rows(PARITY).await;
        go(&world, &first[1..2]).await;
        world.write(0..4, &[11, 12, 13, 14]).await.expect("enough are here");
        world.space.flush_all().await.expect("the journal has it");
        let disk = first[0];
        world.machine.pull(SlotId(usize::from(disk)), PowerCut::KeepAll);
        world.book.leave_now(DiskNumber(disk), crate::Absence::Gone).expect("it may leave");
        world.machine.plug(SlotId(usize::from(disk)));
        refuses(&world, 0, 0, false);
        world.bring_back(disk).await;
        world.read(0..4).await.expect_err("the journal cannot be replayed");
        no_rules(&world, disk);
        assert_eq!(world.read(0..4).await, Ok(vec![11, 12, 13, 14]));
    });
}

fn cut_each(moments: &Moments, range: std::ops::Range<u64>, allowed: &[&[u64]]) {
    for (moment, state) in moments {
        in_virtual_time(async {
            let env = Env::simulated(7);
            let machine = moment.cut(&env, PowerCut::KeepAll);
            let world = World::open(PARITY, env, machine, state.clone(), 2).await;
            let what = format!("before event {}", moment.event);
            let read = world.read(range.clone()).await;
            let read = read.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(allowed.contains(&&read[..]), "{what}: {read:?}");
        });
    }
}

/// A change of one group waits to be carried out while another's fresh stripes go to the journal, which says
/// nothing of the first.
#[test]
fn only_who_is_in_a_record_is_named_by_it() {
    let moments = in_virtual_time(async {
        let (world, first, _) = two_rows(PARITY).await;
        let second = row_units(&world);
        go(&world, &first[1..2]).await;
        world.write(4..5, &[9]).await.expect("enough are here");
        refuses(&world, 0, 0, true);
        world.write(4..5, &[10]).await.expect_err("its disk takes no data");
        world.write(second + 4..second + 6, &[11, 12]).await.expect("its disks are well");
        world.machine.record();
        world.path.quiesce().await.expect_err("a change waits");
        moments(&world)
    });
    cut_each(&moments, 0..4, &[&[1, 2, 3, 4]]);
}

/// The journal names a group for another's sake only, when its blocks are written once more, and not on all columns.
#[test]
fn what_names_a_group_that_is_left_stays() {
    let moments = in_virtual_time(async {
        let (world, first, other) = two_rows(PARITY).await;
        let second = row_units(&world);
        go(&world, &other[1..2]).await;
        refuses(&world, 1, 0, false);
        world.write(second..second + 1, &[50]).await.expect("enough are here");
        go(&world, &first[1..2]).await;
        world.write(0..1, &[10]).await.expect("enough are here");
        world.path.quiesce().await.expect_err("one row is left");
        no_rules(&world, other[0]);
        refuses(&world, 0, 0, false);
        world.machine.record();
        // One of its columns moves: that, too, is in its blocks before it counts.
        let to = DiskNumber(other[2]);
        let to =
            SlabPlace { disk: to, slab: world.book.state().free_slabs(to).next().expect("there is one") };
        world.path.begin_move(SPACE, RowNumber(0), 2, to).await.expect("it is free");
        let _ = world.space.resync_copy(RowNumber(0), 3, u64::MAX, &Progress::default()).await;
        moments(&world)
    });
    cut_each(&moments, 0..4, &[&[10, 2, 3, 4]]);
}

/// One group of a row is left; those that have nothing to do with it are brought up to date.
#[test]
fn a_group_that_is_left_keeps_no_other_of_its_row_behind() {
    in_virtual_time(async {
        let shape = Shape { slab_bytes: 4 << 20, rows_max: 1, ..PARITY };
        let world = World::new(shape, 1).await;
        // The first units of both groups of a slab.
        let next = row_units(&world) / 2;
        world.write(0..4, &[1, 2, 3, 4]).await.expect("all disks are here");
        world.write(next..next + 4, &[5, 6, 7, 8]).await.expect("all disks are here");
        world.path.quiesce().await.expect("all disks are here");
        let first = disks_of(&world, 0);
        go(&world, &first[1..2]).await;
        world.write(0..1, &[10]).await.expect("enough are here");
        world.write(next..next + 1, &[50]).await.expect("enough are here");
        world.path.quiesce().await.expect("enough are here");
        let slab = world.book.state().rows[&(SPACE, RowNumber(0))].slabs[0].place.slab;
        let at = shape.areas().checksums(slab).offset;
        let rule = Rule::new(Op::Write, When::From(0), Fault::Error).within(at..at + crate::UNIT);
        world.machine.rule(SlotId(usize::from(first[0])), rule);
        world.machine.plug(SlotId(usize::from(first[1])));
        world.bring_back(first[1]).await;
        let _ = world.path.resync(DiskNumber(first[1]), &Progress::default()).await;
        let missed = world.book.state().rows[&(SPACE, RowNumber(0))].slabs[1].missed;
        assert_eq!(missed >> 32, 0, "{missed:x}: of the second group nothing is left");
    });
}

/// What a scrub repaired is said to be kept when it is: not while its group is left.
#[test]
fn repairs_of_a_group_that_is_left_are_not_kept() {
    in_virtual_time(async {
        let (world, first, _) = two_rows(PARITY).await;
        let place = world.book.state().rows[&(SPACE, RowNumber(0))].slabs[0].place;
        // Another region of the group, which the second column misses: the first cannot be spared there.
        go(&world, &first[1..2]).await;
        world.write(64..66, &[20, 21]).await.expect("enough are here");
        world.path.quiesce().await.expect("enough are here");
        world.machine.plug(SlotId(usize::from(first[1])));
        let bad = world.book.state().rows[&(SPACE, RowNumber(0))].slabs[2].place;
        let block = world.shape.areas().checksums(bad.slab).offset;
        world.machine.flip(SlotId(usize::from(bad.disk.0)), block + 100, 1);
        world.bring_back(first[1]).await;
        refuses(&world, 0, 0, false);
        assert_eq!(world.read(0..4).await, Ok(vec![1, 2, 3, 4]));
        let striped = world.space.striped().expect("it has parity");
        let kept = striped.keep_repairs().await;
        assert!(world.book.state().is_present(place.disk), "it has something alone");
        striped.quiesce().await.expect_err("the group is left");
        kept.expect_err("the group's blocks are not durable");
    });
}

/// What a disk that is away had is to be made from the others, of which one hangs that cannot be spared: the
/// one that is away comes back all the same.
#[test]
fn who_comes_back_does_not_wait_for_a_disk_that_hangs() {
    in_virtual_time(async {
        let (world, first, _) = two_rows(PARITY).await;
        go(&world, &first[1..2]).await;
        world.write(0..1, &[10]).await.expect("enough are here");
        let hangs = Rule::new(Op::Flush, When::From(0), Fault::Slow(Duration::from_secs(7200)));
        world.machine.rule(SlotId(usize::from(first[0])), hangs);
        let progress = Progress::default();
        let evacuated = Box::pin(world.path.evacuate(DiskNumber(first[1]), &progress));
        let comes_back = async {
            world.env.sleep(Duration::from_secs(1)).await;
            world.machine.plug(SlotId(usize::from(first[1])));
            let joins = Box::pin(world.bring_back(first[1]));
            match select(joins, Box::pin(world.env.sleep(Duration::from_secs(600)))).await {
                Either::Left(_) => true,
                Either::Right(_) => false,
            }
        };
        match select(evacuated, Box::pin(comes_back)).await {
            Either::Left((done, _)) => panic!("nothing hangs: {done:?}"),
            Either::Right((came, _)) => assert!(came, "it waits for the one that hangs"),
        }
    });
}
