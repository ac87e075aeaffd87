mod reshape;

use pool_seam::{CopyRegions, LogState, NoPlace, OwnerOp, Request, SpaceEpoch};

use super::*;
use crate::testing::{disk, mirror};
use crate::{Absence, InvalidOp, Op, PoolId, SlabPlace, placement};

const SPACE: SpaceId = SpaceId(0);
const ROW: RowNumber = RowNumber(0);
/// The membership of a disk that has never been absent.
const SEEN: Option<Membership> = Some(Membership(1));

fn op(op: SpaceOp) -> Op {
    Op::Space { space: SPACE, op }
}

/// A pool in epoch 1 with a mirror, whose log has slabs on two disks.
fn pool(disks: u16) -> State {
    let mut s = State::new(PoolId([1; 16]), "p".into(), 8 << 20);
    for n in 0..disks {
        s.apply(&Op::AddDisk { disk: DiskNumber(n), record: disk(n) }).unwrap();
    }
    s.apply(&Op::Opened { epoch: 1, incarnation: 7 }).unwrap();
    s.make(mirror("m"));
    let record = SpaceRecord::clone(&s.spaces[&SPACE]);
    let slabs = placement::log_row(&s, &record, |_| true).unwrap();
    s.apply(&op(SpaceOp::Allocate { row: RowNumber::LOG, first: 1, slabs })).unwrap();
    s
}

/// Requests operations as the owner of epoch 1; returns the refusal.
fn ask(s: &mut State, number: u64, ops: impl IntoIterator<Item = OwnerOp>) -> Option<Refusal> {
    let request =
        Request { space: SPACE, epoch: SpaceEpoch::first(1), number, ops: ops.into_iter().collect() };
    let RequestOutcome::Record { ops, refused } = carry_out(s, &request, |_| true) else {
        panic!("it is not carried out")
    };
    s.apply_all(&ops).unwrap();
    refused
}

fn row(s: &State) -> &Row {
    &s.spaces[&SPACE].rows[&ROW]
}

/// A pool with a row that has been written.
fn written(disks: u16) -> State {
    let mut s = pool(disks);
    assert_eq!(ask(&mut s, 1, [OwnerOp::Allocate { row: ROW }]), None);
    assert!(row(&s).is_new);
    let ready = ready(&s, Membership(1));
    assert_eq!(ask(&mut s, 2, [ready]), None);
    s
}

/// The operation that all disks of the row have its blocks, in this membership.
fn ready(s: &State, of: Membership) -> OwnerOp {
    let written = row(s).slabs.iter().map(|copy| (copy.place.disk, of)).collect();
    OwnerOp::Ready { row: ROW, birth: row(s).birth, written }
}

/// A new row is empty, so no copy of it becomes stale when its disk is removed. When the row is ready, copies without
/// its blocks are wholly stale.
#[test]
fn a_row_is_ready_where_its_blocks_are() {
    let mut new = pool(2);
    assert_eq!(ask(&mut new, 1, [OwnerOp::Allocate { row: ROW }]), None);
    let stale = |s: &State| row(s).slabs.iter().map(|copy| copy.stale_regions).collect::<Vec<_>>();
    let [first, second] = [0, 1].map(|index: usize| row(&new).slabs[index].place.disk);
    for disk in [first, second] {
        let ops = new.removal_ops(disk, Absence::Gone, &[(SPACE, Vec::new())].into());
        new.apply_all(&ops).unwrap();
        assert_eq!(stale(&new), [0, 0]);
        new.apply(&Op::DiskPresent { disk, membership: Membership(2) }).unwrap();
    }
    let of = |written| OwnerOp::Ready { row: ROW, birth: row(&new).birth, written };
    let one = of(vec![(first, Membership(2)), (second, Membership(1))]);
    assert_eq!(
        ask(&mut new.clone(), 2, [one.clone()]),
        Some(Refusal::Invalid),
        "the second one has returned"
    );
    let mut s = new.clone();
    let leave = |s: &mut State, disk| {
        let ops = s.removal_ops(disk, Absence::Gone, &[(SPACE, Vec::new())].into());
        s.apply_all(&ops).unwrap();
    };
    leave(&mut s, second);
    let mut none = s.clone();
    assert_eq!(ask(&mut s, 2, [one.clone()]), None);
    assert_eq!((stale(&s), row(&s).is_new), (vec![0, ALL], false));
    leave(&mut none, first);
    assert_eq!(ask(&mut none, 2, [one]), Some(Refusal::Invalid), "no disk with its blocks is present");
}

#[test]
fn a_request_counts_once_and_for_its_owner_only() {
    let mut s = pool(3);
    let request =
        |epoch, number| Request { space: SPACE, epoch, number, ops: vec![OwnerOp::Allocate { row: ROW }] };
    let (epoch, next) = (SpaceEpoch::first(1), SpaceEpoch::first(1).next().unwrap());
    assert_eq!(ask(&mut s, 5, [OwnerOp::Allocate { row: ROW }]), None);
    let before = s.clone();
    for number in [5, 4, 0] {
        assert_eq!(carry_out(&s, &request(epoch, number), |_| true), RequestOutcome::DoneBefore);
    }
    assert_eq!(
        carry_out(&s, &request(next, 1), |_| true),
        RequestOutcome::Unknown,
        "there is no such owner yet"
    );
    // A refused request uses its number, and changes nothing else.
    assert_eq!(ask(&mut s, 6, [OwnerOp::Allocate { row: ROW }]), Some(Refusal::Invalid));
    assert_eq!(carry_out(&s, &request(epoch, 6), |_| true), RequestOutcome::DoneBefore);
    assert_eq!(s.spaces[&SPACE].rows, before.spaces[&SPACE].rows);
    let beyond = ask(&mut s, 7, [OwnerOp::Allocate { row: RowNumber(4) }]);
    assert_eq!(beyond, Some(Refusal::NoRoom(NoPlace::NoSuchRow(SPACE))));
    // After a handover, and after an opening of the pool.
    let ownership = pool_seam::Ownership { epoch: next, ..Default::default() };
    s.apply(&op(SpaceOp::Own { ownership })).unwrap();
    assert_eq!(carry_out(&s, &request(epoch, 8), |_| true), RequestOutcome::Deposed(next));
    s.apply(&Op::Opened { epoch: 2, incarnation: 8 }).unwrap();
    assert_eq!(carry_out(&s, &request(next, 1), |_| true), RequestOutcome::Deposed(SpaceEpoch::first(2)));
    assert_eq!(s.spaces[&SPACE].ownership.request, 0);
}

#[test]
fn all_operations_of_a_request_or_none() {
    let mut s = written(3);
    let (birth, before) = (row(&s).birth, s.clone());
    let free = OwnerOp::Free { row: ROW, birth };
    assert_eq!(ask(&mut s, 3, [free.clone(), free.clone()]), Some(Refusal::Invalid));
    assert_eq!(s.spaces[&SPACE].rows, before.spaces[&SPACE].rows);
    assert_eq!((s.slabs_allocated(), s.spaces[&SPACE].ownership.request), (4, 3));
    assert_eq!(ask(&mut s, 4, [free]), None);
    assert_eq!(s.slabs_allocated(), 2, "the log's");
}

/// A late request names a generation, a birth, a membership or a size that is no longer current.
#[test]
fn late_requests_do_nothing_to_another_row_disk_or_size() {
    let mut s = written(4);
    let old = row(&s).clone();
    let on = old.slabs[0].place.disk;
    let late = [
        ready(&s, Membership(1)),
        OwnerOp::Free { row: ROW, birth: old.birth },
        OwnerOp::MarkStale {
            row: ROW,
            index: 0,
            generation: old.slabs[0].generation,
            regions: 1,
            membership: SEEN,
        },
        OwnerOp::BeginMove { row: ROW, birth: old.birth, index: 0, to: None },
        OwnerOp::EndMove { row: ROW, birth: old.birth },
        OwnerOp::CancelMove { row: ROW, birth: old.birth },
        OwnerOp::MarkCurrent {
            row: ROW,
            index: 0,
            generation: old.slabs[0].generation,
            regions: 1,
            membership: Membership(1),
        },
        OwnerOp::MarkDiskStale { disk: on, membership: Membership(1) },
        OwnerOp::Accounted { disk: on, membership: Membership(1) },
        OwnerOp::ReplaceLog { index: 0, generation: old.slabs[0].generation },
        OwnerOp::SetSize { from: 4 << 20, to: 16 << 20 },
        OwnerOp::Reshape { row: ROW, birth: old.birth },
    ];
    // The row is reallocated, and every disk leaves and joins.
    assert_eq!(
        ask(&mut s, 3, [OwnerOp::Free { row: ROW, birth: old.birth }, OwnerOp::Allocate { row: ROW }]),
        None
    );
    let now = ready(&s, Membership(1));
    assert_eq!(ask(&mut s, 4, [now]), None);
    for n in 0..4 {
        s.apply(&Op::DiskPresent { disk: DiskNumber(n), membership: Membership(2) }).unwrap();
    }
    for (number, late) in (5..).zip(late) {
        let before = s.spaces[&SPACE].clone();
        assert_eq!(ask(&mut s, number, [late.clone()]), Some(Refusal::Invalid), "{late:?}");
        let mut after = pool_seam::SpaceRecord::clone(&s.spaces[&SPACE]);
        after.ownership = before.ownership;
        assert_eq!(after, *before, "{late:?}");
    }
}

#[test]
fn the_last_copy_is_never_written_off() {
    let mut s = written(3);
    let generations: Vec<u32> = row(&s).slabs.iter().map(|copy| copy.generation).collect();
    let mark_stale = |index: u8, regions| OwnerOp::MarkStale {
        row: ROW,
        index,
        generation: generations[usize::from(index)],
        regions,
        membership: SEEN,
    };
    assert_eq!(ask(&mut s, 3, [mark_stale(0, 1)]), None);
    assert_eq!(ask(&mut s, 4, [mark_stale(1, 1)]), Some(Refusal::Invalid));
    let disks: Vec<DiskNumber> = row(&s).slabs.iter().map(|copy| copy.place.disk).collect();
    assert!(s.needs(disks[1]) && s.has_only_copies(disks[1]));
    // Another disk that is unaccounted does not count as a copy.
    assert!(!s.needs(disks[0]));
    s.apply(&op(SpaceOp::Unaccounted { disk: disks[1], membership: Membership(1) })).unwrap();
    assert!(s.needs(disks[0]), "the other copy counts for nothing");
    // A disk's only current copy is not marked stale, whatever its owner reports.
    assert_eq!(ask(&mut s, 5, [mark_stale(1, 0b11)]), None);
    assert_eq!(row(&s).slabs[1].stale_regions, 0b10);
    // The log keeps a replica.
    let log = s.spaces[&SPACE].rows[&RowNumber::LOG].clone();
    let mark_log_stale = |index: u8| OwnerOp::MarkStale {
        row: RowNumber::LOG,
        index,
        generation: log.slabs[usize::from(index)].generation,
        regions: ALL,
        membership: SEEN,
    };
    s.apply(&op(SpaceOp::Accounted { disk: disks[1], membership: Membership(1) })).unwrap();
    assert_eq!(ask(&mut s, 6, [mark_log_stale(0)]), None);
    assert_eq!(ask(&mut s, 7, [mark_log_stale(1)]), Some(Refusal::Invalid));
}

/// Rule 17: a replica moves like any slab, even in a simple space. It is complete before the old one is freed.
#[test]
fn a_replica_of_the_log_moves() {
    let mut s = pool(3);
    let log = |s: &State| s.spaces[&SPACE].rows[&RowNumber::LOG].clone();
    let (before, row) = (log(&s), RowNumber::LOG);
    s.apply(&op(SpaceOp::Ready { row, birth: before.birth, stale_copies: Vec::new() })).unwrap();
    let birth = before.birth;
    assert_eq!(
        ask(&mut s, 1, [OwnerOp::BeginMove { row, birth, index: 2, to: None }]),
        Some(Refusal::Invalid)
    );
    assert_eq!(ask(&mut s, 2, [OwnerOp::BeginMove { row, birth, index: 1, to: None }]), None);
    let moving = log(&s).moving().unwrap();
    assert!(moving.index == 1 && moving.copy.stale_regions == ALL);
    assert!(log(&s).slabs.iter().all(|copy| copy.place.disk != moving.copy.place.disk));
    assert_eq!(ask(&mut s, 3, [OwnerOp::EndMove { row, birth }]), Some(Refusal::Invalid), "it has nothing");
    let generation = before.slabs[0].generation;
    let replaced = ask(&mut s, 4, [OwnerOp::ReplaceLog { index: 0, generation }]);
    assert!(replaced.is_some(), "one change of the row at a time");
    let (generation, membership) = (moving.copy.generation, Membership(1));
    let joined = OwnerOp::MarkCurrent { row, index: 2, generation, regions: ALL, membership };
    assert_eq!(ask(&mut s, 5, [joined]), None);
    assert_eq!(ask(&mut s, 6, [OwnerOp::EndMove { row, birth }]), None);
    let after = log(&s);
    assert_eq!((after.slabs[0], after.slabs[1].generation), (before.slabs[0], generation));
    assert!(after.moving().is_none() && after.slabs[1].stale_regions == 0);
}

#[test]
fn a_disk_leaves_with_the_answers_of_owners() {
    let s = written(3);
    let disk = row(&s).slabs[1].place.disk;
    let reported = CopyRegions { row: ROW, generation: row(&s).slabs[1].generation, regions: 0b10 };
    let answers = OwnerAnswers::from([(SPACE, vec![reported])]);
    let mut left = s.clone();
    left.apply_all(&left.removal_ops(disk, Absence::Gone, &answers)).unwrap();
    assert_eq!((row(&left).slabs[1].stale_regions, left.membership(disk)), (0b10, None));
    assert!(left.spaces[&SPACE].unaccounted.is_empty());
    // The owner does not answer.
    let mut left = s.clone();
    left.apply_all(&left.removal_ops(disk, Absence::Gone, &OwnerAnswers::new())).unwrap();
    assert_eq!(left.spaces[&SPACE].unaccounted, [(disk, Membership(1))].into());
    assert_eq!(row(&left).slabs[1].stale_regions, 0);
    // A row that the owner does not know yet, and a region that no other disk has.
    let mut s = s;
    let generation = row(&s).slabs[0].generation;
    assert_eq!(
        ask(
            &mut s,
            3,
            [OwnerOp::MarkStale { row: ROW, index: 0, generation, regions: 0b10, membership: SEEN }]
        ),
        None
    );
    assert_eq!(ask(&mut s, 4, [OwnerOp::Allocate { row: RowNumber(1) }]), None);
    let new = s.spaces[&SPACE].rows[&RowNumber(1)].clone();
    let on_new = new.slabs.iter().position(|copy| copy.place.disk == disk);
    s.apply_all(&s.removal_ops(disk, Absence::Gone, &answers)).unwrap();
    assert_eq!(row(&s).slabs[1].stale_regions, 0, "the region waits for the disk");
    if let Some(index) = on_new {
        assert_eq!(s.spaces[&SPACE].rows[&RowNumber(1)].slabs[index].stale_regions, ALL);
    }
}

/// A write begins while the disk is absent, and is reported as missed there after the disk has returned.
#[test]
fn a_disk_that_has_returned_misses_nothing_that_was_said_of_it_before() {
    let mut s = written(3);
    let SlabCopy { place, generation, .. } = row(&s).slabs[1];
    s.apply_all(&s.removal_ops(place.disk, Absence::Gone, &OwnerAnswers::from([(SPACE, Vec::new())])))
        .unwrap();
    let mark_stale =
        |seen| OwnerOp::MarkStale { row: ROW, index: 1, generation, regions: 1, membership: seen };
    let mut back = s.clone();
    back.apply(&Op::DiskPresent { disk: place.disk, membership: Membership(2) }).unwrap();
    for seen in [None, SEEN] {
        assert_eq!(ask(&mut back.clone(), 3, [mark_stale(seen)]), Some(Refusal::Invalid), "{seen:?}");
    }
    assert_eq!(ask(&mut back, 3, [mark_stale(Some(Membership(2)))]), None);
    assert_eq!(ask(&mut s, 3, [mark_stale(None)]), None);
    assert_eq!((row(&s).slabs[1].stale_regions, row(&back).slabs[1].stale_regions), (1, 1));
}

#[test]
fn a_disk_that_was_rolled_back_misses_what_others_have() {
    let mut s = written(3);
    let disks: Vec<DiskNumber> = row(&s).slabs.iter().map(|copy| copy.place.disk).collect();
    let generation = row(&s).slabs[1].generation;
    assert_eq!(
        ask(
            &mut s,
            3,
            [OwnerOp::MarkStale { row: ROW, index: 1, generation, regions: 0b100, membership: SEEN }]
        ),
        None
    );
    assert_eq!(ask(&mut s, 4, [OwnerOp::MarkDiskStale { disk: disks[0], membership: Membership(1) }]), None);
    assert_eq!(row(&s).slabs[0].stale_regions, 0b1011);
    // The disk is stale according to its label.
    let mut s = written(3);
    s.apply(&Op::MarkDiskStale { disk: disks[0] }).unwrap();
    assert_eq!((row(&s).slabs[0].stale_regions, row(&s).slabs[1].stale_regions), (ALL, 0));
}

/// The operation that the target of a move, the third copy of the row, has everything.
fn filled(target: &SlabCopy) -> OwnerOp {
    let generation = target.generation;
    OwnerOp::MarkCurrent { row: ROW, index: 2, generation, regions: ALL, membership: Membership(1) }
}

#[test]
fn a_slab_moves_without_leaving_a_gap() {
    let mut s = written(4);
    let (birth, old) = (row(&s).birth, row(&s).slabs[0]);
    assert_eq!(ask(&mut s, 3, [OwnerOp::BeginMove { row: ROW, birth, index: 0, to: None }]), None);
    let new = row(&s).moving().unwrap().copy;
    assert!(new.stale_regions == ALL && !row(&s).slabs.iter().any(|copy| copy.place.disk == new.place.disk));
    assert_eq!(ask(&mut s, 4, [OwnerOp::EndMove { row: ROW, birth }]), Some(Refusal::Invalid));
    assert_eq!(ask(&mut s, 5, [filled(&new), OwnerOp::EndMove { row: ROW, birth }]), None);
    assert_eq!((row(&s).slabs[0].place, row(&s).birth, row(&s).moving()), (new.place, birth, None));
    assert!(!s.slabs_used(old.place.disk).any(|slab| slab == old.place.slab));
}

/// Slabs are discarded after a request has freed them, so no other operation of the request gets them.
#[test]
fn a_request_does_not_reuse_slabs_that_it_frees() {
    let mut s = written(3);
    let places = |s: &State, row: RowNumber| -> Vec<SlabPlace> {
        s.spaces[&SPACE].rows[&row].slabs.iter().map(|copy| copy.place).collect()
    };
    let other = RowNumber(ROW.0 + 1);
    let freed = places(&s, ROW);
    let free = OwnerOp::Free { row: ROW, birth: row(&s).birth };
    assert_eq!(ask(&mut s, 3, [free, OwnerOp::Allocate { row: other }]), None);
    let new = places(&s, other);
    assert!(!new.iter().any(|place| freed.contains(place)), "{new:?}, {freed:?}");
    // The next request may use them.
    assert!(freed.iter().all(|place| s.check_free(*place).is_ok()));
}

/// A slab that one operation takes and the next one frees is not that of the state before both.
#[test]
fn freed_slabs_are_those_of_each_operation() {
    let mut s = written(4);
    let birth = row(&s).birth;
    assert_eq!(ask(&mut s, 3, [OwnerOp::BeginMove { row: ROW, birth, index: 0, to: None }]), None);
    let (old, new) = (row(&s).slabs[0].place, row(&s).moving().unwrap().copy);
    assert_eq!(ask(&mut s, 4, [filled(&new)]), None);
    let to = s.free_slabs(old.disk).map(|slab| SlabPlace { disk: old.disk, slab }).next().unwrap();
    let ops = [
        SpaceOp::EndMove { row: ROW },
        SpaceOp::BeginMove { row: ROW, index: 0, to },
        SpaceOp::CancelMove { row: ROW },
    ];
    assert_eq!(s.slabs_freed_by_all(&ops.map(op)), [old, to]);
}

/// New slabs are not placed on a disk whose removal is in progress, nor where the space has no slot of marks.
#[test]
fn new_slabs_are_on_usable_disks() {
    let s = pool(3);
    let request = Request {
        space: SPACE,
        epoch: SpaceEpoch::first(1),
        number: 1,
        ops: vec![OwnerOp::Allocate { row: ROW }],
    };
    for leaving in (0..3).map(DiskNumber) {
        let outcome = carry_out(&s, &request, |disk| disk != leaving);
        let RequestOutcome::Record { ops, refused: None } = outcome else { panic!("{outcome:?}") };
        let Op::Space { op: SpaceOp::Allocate { slabs, .. }, .. } = &ops[0] else { panic!("{ops:?}") };
        assert!(slabs.len() == 2 && slabs.iter().all(|place| place.disk != leaving));
    }
    // If there are too few usable disks, the row has a slab on one that is not usable.
    let one = carry_out(&s, &request, |disk| disk == DiskNumber(0));
    let RequestOutcome::Record { ops, refused: None } = one else { panic!("{one:?}") };
    let mut with_one = s.clone();
    with_one.apply_all(&ops).unwrap();
    let copies: Vec<_> = row(&with_one).slabs.iter().map(|copy| copy.place.disk.0 == 0).collect();
    assert_eq!(copies, [true, false]);
    let one = carry_out(&s, &request, |_| false);
    assert!(matches!(one, RequestOutcome::Record { refused: Some(Refusal::NoRoom(_)), .. }), "{one:?}");
    let mut record = SpaceRecord { former: mirror("m").shape(), slot: 16, ..mirror("m") };
    record.name = "other".into();
    assert!(
        matches!(placement::log_row(&s, &record, |_| true), Err(NoPlace::NoRoom { .. })),
        "small disks have 16 slots"
    );
}

#[test]
fn a_space_is_gone_with_its_rows() {
    let mut s = written(3);
    let has_rows = |s: &State| (0..3).any(|disk| s.has_rows(DiskNumber(disk)));
    assert_eq!((s.slabs_allocated(), has_rows(&s)), (4, true));
    s.apply(&op(SpaceOp::Destroy)).unwrap();
    assert_eq!((s.slabs_allocated(), has_rows(&s)), (0, false));
}

#[test]
fn the_log_state_only_grows() {
    let mut s = pool(2);
    let log =
        |epoch, sequence| OwnerOp::Log(LogState { epoch: SpaceEpoch(epoch), sequence, is_closed: false });
    assert_eq!(ask(&mut s, 1, [log(3, 10)]), None);
    assert_eq!(ask(&mut s, 2, [log(4, 9)]), Some(Refusal::Invalid));
    assert_eq!(ask(&mut s, 3, [log(2, 11)]), Some(Refusal::Invalid));
    assert_eq!(ask(&mut s, 4, [log(4, 10)]), None);
    let place = SlabPlace { disk: DiskNumber(0), slab: 7 };
    let twice = SpaceOp::Allocate { row: ROW, first: s.next_generation, slabs: vec![place, place] };
    assert_eq!(s.apply(&op(twice)), Err(InvalidOp::SameDisk(DiskNumber(0))));
}
