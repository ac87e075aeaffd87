//! Changes of the number of copies.

use pool_seam::{RowShape, Shape};

use super::*;
use crate::{DiskRecord, FaultDomains, NewSlab, Resiliency};

const TWO: Resiliency = Resiliency::Mirror { copies: 2 };
const THREE: Resiliency = Resiliency::Mirror { copies: 3 };

fn set(s: &mut State, resiliency: Resiliency) -> Result<(), InvalidOp> {
    let shape = RowShape { resiliency, ..record(s).shape() };
    s.apply(&op(SpaceOp::SetShape { shape }))
}

fn reshape(s: &mut State, number: u64, row: RowNumber) -> Option<Refusal> {
    let birth = s.spaces[&SPACE].rows[&row].birth;
    ask(s, number, [OwnerOp::Reshape { row, birth }])
}

/// Makes every copy of the row current.
fn fill(s: &mut State) {
    for index in 0..row(s).slabs.len() {
        s.apply_current(SPACE, ROW, index as u8, ALL).unwrap();
    }
}

fn disks(s: &State) -> Vec<DiskNumber> {
    row(s).slabs.iter().map(|copy| copy.place.disk).collect()
}

fn record(s: &State) -> &SpaceRecord {
    &s.spaces[&SPACE]
}

#[test]
fn a_row_gets_a_third_copy_and_gives_it_up() {
    let mut s = written(4);
    let (birth, before) = (row(&s).birth, row(&s).slabs.to_vec());
    set(&mut s, THREE).unwrap();
    assert!(record(&s).is_changing() && record(&s).former.resiliency == TWO);
    assert_eq!((row(&s).shape, record(&s).promised()), (Shape::Former, 1));
    // New rows have three copies from the beginning.
    assert_eq!(ask(&mut s, 3, [OwnerOp::Allocate { row: RowNumber(1) }]), None);
    assert_eq!(record(&s).rows[&RowNumber(1)].slabs.len(), 3);
    assert_eq!(reshape(&mut s, 4, ROW), None);
    assert_eq!((row(&s).shape, row(&s).birth, row(&s).slabs.len()), (Shape::Current, birth, 3));
    assert_eq!((&row(&s).slabs[..2], row(&s).slabs[2].stale_regions), (&before[..], ALL));
    assert!(!disks(&s)[..2].contains(&disks(&s)[2]));
    assert_eq!(reshape(&mut s, 5, ROW), Some(Refusal::Invalid), "it has its shape");
    // The log needs one replica more than the failures that the space survives.
    assert!(record(&s).is_changing());
    assert_eq!(reshape(&mut s, 6, RowNumber::LOG), None);
    let log = &record(&s).rows[&RowNumber::LOG];
    assert_eq!((log.slabs.len(), log.slabs[2].stale_regions), (3, ALL));
    assert!(!record(&s).is_changing() && record(&s).former.resiliency == THREE);
    // Back to two copies: the copy without current regions is removed.
    let used = s.slabs_allocated();
    set(&mut s, TWO).unwrap();
    assert_eq!(reshape(&mut s, 7, ROW), None);
    assert_eq!(row(&s).slabs[..], before[..]);
    assert_eq!((s.slabs_allocated(), record(&s).rows[&RowNumber::LOG].slabs.len()), (used - 1, 3));
    // A row that was freed has no former shape.
    let birth = record(&s).rows[&RowNumber(1)].birth;
    assert!(record(&s).is_changing());
    assert_eq!(ask(&mut s, 8, [OwnerOp::Free { row: RowNumber(1), birth }]), None);
    assert!(!record(&s).is_changing());
    // A replica of the log is freed only if the others are complete.
    let log = |s: &State| record(s).rows[&RowNumber::LOG].slabs.to_vec();
    let [first, second, third] = log(&s)[..] else { panic!("{:?}", log(&s)) };
    assert_eq!(third.stale_regions, ALL);
    let free = |generation: u32| [OwnerOp::FreeReplica { generation }];
    assert_eq!(ask(&mut s, 9, free(first.generation)), Some(Refusal::Invalid));
    let used = s.slabs_allocated();
    assert_eq!(ask(&mut s, 10, free(third.generation)), None);
    assert_eq!((log(&s), s.slabs_allocated()), (vec![first, second], used - 1));
    assert_eq!(ask(&mut s, 11, free(second.generation)), Some(Refusal::Invalid), "it is required");
}

#[test]
fn a_copy_is_given_up_only_where_the_others_are_enough() {
    let mut s = written(4);
    set(&mut s, THREE).unwrap();
    assert_eq!((reshape(&mut s, 3, ROW), reshape(&mut s, 4, RowNumber::LOG)), (None, None));
    fill(&mut s);
    set(&mut s, TWO).unwrap();
    // The best two copies stay.
    let mut one = s.clone();
    one.apply_stale(SPACE, ROW, 0, 1).unwrap();
    let kept = [row(&one).slabs[1], row(&one).slabs[2]];
    assert_eq!(reshape(&mut one, 5, ROW), None);
    assert_eq!(row(&one).slabs[..], kept);
    // Each copy is stale in some region: some region would have one current copy instead of two.
    let mut all = s.clone();
    (0..3).for_each(|index| all.apply_stale(SPACE, ROW, index, 1 << index).unwrap());
    assert_eq!(reshape(&mut all, 5, ROW), Some(Refusal::Invalid));
    // A copy on an absent disk is removed first, unless it has the only current copy of a region.
    let mut away = s.clone();
    let disk = disks(&away)[1];
    away.apply_all(&away.removal_ops(disk, Absence::Gone, &OwnerAnswers::from([(SPACE, Vec::new())])))
        .unwrap();
    let mut only = away.clone();
    assert_eq!(reshape(&mut away, 5, ROW), None);
    assert!(!disks(&away).contains(&disk));
    only.apply_stale(SPACE, ROW, 0, 1).unwrap();
    only.apply_stale(SPACE, ROW, 2, 1).unwrap();
    assert_eq!(reshape(&mut only, 5, ROW), Some(Refusal::Invalid));
    // To one copy: refused if another copy has a region that the remaining one lacks.
    set(&mut s, Resiliency::Simple).unwrap();
    (0..3).for_each(|index| s.apply_stale(SPACE, ROW, index, 1 << index).unwrap());
    assert_eq!(reshape(&mut s, 5, ROW), Some(Refusal::Invalid));
    s.apply_current(SPACE, ROW, 1, ALL).unwrap();
    assert_eq!(reshape(&mut s, 6, ROW), None);
    assert_eq!((row(&s).slabs.len(), row(&s).slabs[0].stale_regions), (1, 0));
}

#[test]
fn a_change_that_cannot_be_is_refused() {
    let mut s = written(4);
    let parity = Resiliency::Parity { parity: 1 };
    assert!(matches!(set(&mut s, parity), Err(InvalidOp::BadShape(_))));
    assert!(matches!(set(&mut s, Resiliency::Mirror { copies: 4 }), Err(InvalidOp::BadShape(_))));
    // Back to the resiliency that all rows have: there is nothing to change.
    set(&mut s, THREE).unwrap();
    set(&mut s, TWO).unwrap();
    assert!(!record(&s).is_changing());
    assert_eq!(reshape(&mut s, 3, ROW), Some(Refusal::Invalid));
    // A third number of copies is refused while rows have two.
    set(&mut s, THREE).unwrap();
    assert_eq!(ask(&mut s, 4, [OwnerOp::Allocate { row: RowNumber(1) }]), None);
    let before = s.clone();
    assert!(matches!(set(&mut s, Resiliency::Simple), Err(InvalidOp::BadShape(_))));
    assert_eq!(s, before);
    set(&mut s, TWO).unwrap();
    assert_eq!((row(&s).shape, record(&s).rows[&RowNumber(1)].shape), (Shape::Current, Shape::Former));
    // A row whose blocks are not written is not reshaped.
    assert_eq!(reshape(&mut s, 5, RowNumber(1)), Some(Refusal::Invalid));
    // A row with a moving slab is not reshaped.
    set(&mut s, THREE).unwrap();
    let birth = row(&s).birth;
    assert_eq!(ask(&mut s, 6, [OwnerOp::BeginMove { row: ROW, birth, index: 0, to: None }]), None);
    assert_eq!(reshape(&mut s, 7, ROW), Some(Refusal::Invalid));
    assert_eq!(ask(&mut s, 8, [OwnerOp::CancelMove { row: ROW, birth }]), None);
    // Slabs that do not match the shape are refused.
    let (kept, free) = (
        |index| NewSlab::Kept { index },
        |disk, slab| NewSlab::Free { place: SlabPlace { disk: DiskNumber(disk), slab } },
    );
    let other = (0..4).find(|disk| !disks(&s).contains(&DiskNumber(*disk))).unwrap();
    let before = s.clone();
    for slabs in [
        vec![kept(0), kept(1)],
        vec![kept(0), kept(0), free(other, 6)],
        vec![kept(0), kept(2), free(other, 6)],
        vec![kept(0), kept(1), free(disks(&s)[0].0, 6)],
        vec![kept(0), kept(1), free(other, 99)],
        vec![free(other, 5), free(other, 6), free(other, 7)],
    ] {
        let reshape = SpaceOp::Reshape { row: ROW, slabs: slabs.clone() };
        assert!(s.apply(&op(reshape)).is_err(), "{slabs:?}");
        assert_eq!(s, before, "{slabs:?}");
    }
}

/// The new copy of each column is on a disk of its own, in another enclosure than the old copy.
#[test]
fn columns_get_their_copies_apart() {
    let mut s = State::new(PoolId([1; 16]), "p".into(), 8 << 20);
    for n in 0..6 {
        let enclosure = if n < 3 { "a" } else { "b" }.to_owned();
        let domains = FaultDomains { enclosure, ..FaultDomains::default() };
        s.apply(&Op::AddDisk { disk: DiskNumber(n), record: DiskRecord { domains, ..disk(n) } }).unwrap();
    }
    s.apply(&Op::Opened { epoch: 1, incarnation: 7 }).unwrap();
    s.make(SpaceRecord { resiliency: Resiliency::Simple, columns: 2, ..mirror("m") });
    let place = |disk, slab| SlabPlace { disk: DiskNumber(disk), slab };
    s.fill(SPACE, ROW, [place(0, 0), place(1, 0)]).unwrap();
    s.fill(SPACE, RowNumber(1), [place(2, 0), place(2, 1)]).unwrap();
    set(&mut s, TWO).unwrap();
    let slabs = placement::reshaped(&s, SPACE, ROW, |_| true).unwrap();
    assert!(slabs[0] == NewSlab::Kept { index: 0 } && slabs[2] == NewSlab::Kept { index: 1 }, "{slabs:?}");
    let new =
        |slab: &NewSlab| if let NewSlab::Free { place } = slab { place.disk.0 } else { panic!("{slab:?}") };
    assert!(
        (3..6).contains(&new(&slabs[1]))
            && (3..6).contains(&new(&slabs[3]))
            && new(&slabs[1]) != new(&slabs[3])
    );
    let none = placement::reshaped(&s, SPACE, ROW, |disk| disk.0 != 2 && disk.0 < 4);
    assert!(matches!(none, Err(NoPlace::NoRoom { needed: 2, disks: 1, .. })), "{none:?}");
    s.apply(&op(SpaceOp::Reshape { row: ROW, slabs })).unwrap();
    // A mirror cannot have two columns on one disk.
    let row = RowNumber(1);
    let slabs = placement::reshaped(&s, SPACE, row, |_| true).unwrap();
    assert_eq!(s.apply(&op(SpaceOp::Reshape { row, slabs })), Err(InvalidOp::SameDisk(DiskNumber(2))));
}

/// The log gives up a replica that is in the same enclosure as another one.
#[test]
fn the_replicas_that_stay_are_apart() {
    let mut s = written(4);
    set(&mut s, THREE).unwrap();
    assert_eq!((reshape(&mut s, 3, ROW), reshape(&mut s, 4, RowNumber::LOG)), (None, None));
    set(&mut s, TWO).unwrap();
    assert_eq!(reshape(&mut s, 5, ROW), None);
    s.apply_current(SPACE, RowNumber::LOG, 2, ALL).unwrap();
    let log = s.spaces[&SPACE].rows[&RowNumber::LOG].slabs.to_vec();
    for (copy, enclosure) in log.iter().zip(["a", "a", "b"]) {
        let domains = FaultDomains { enclosure: enclosure.to_owned(), ..FaultDomains::default() };
        s.apply(&Op::SetDomains { disk: copy.place.disk, domains }).unwrap();
    }
    let free = |copy: &SlabCopy| [OwnerOp::FreeReplica { generation: copy.generation }];
    assert_eq!(ask(&mut s, 6, free(&log[2])), Some(Refusal::Invalid));
    assert_eq!(ask(&mut s, 7, free(&log[1])), None);
    assert_eq!(s.spaces[&SPACE].rows[&RowNumber::LOG].slabs[..], [log[0], log[2]]);
}
