use disk::Media;

use pool_seam::CopyRegions;

use super::*;
use crate::RowNumber;
use crate::testing::{create, disk, mirror};

fn place(disk: u16, slab: u32) -> SlabPlace {
    SlabPlace { disk: DiskNumber(disk), slab }
}

const SPACE: SpaceId = SpaceId(0);
const ROW: RowNumber = RowNumber(0);

fn of_space(op: SpaceOp) -> Op {
    Op::Space { space: SPACE, op }
}

fn pool(disks: u16) -> State {
    pool_with(disks, mirror("m"))
}

/// A pool with a space and no rows.
fn pool_with(disks: u16, record: SpaceRecord) -> State {
    let mut s = State::new(PoolId([1; 16]), "p".into(), 8 << 20);
    for n in 0..disks {
        s.apply(&Op::AddDisk { disk: DiskNumber(n), record: disk(n) }).unwrap();
    }
    s.apply(&Op::Voters { voters: (0..disks).map(DiskNumber).collect() }).unwrap();
    s.make(record);
    s
}

fn row_of(s: &State) -> &Row {
    &s.spaces[&SPACE].rows[&ROW]
}

#[test]
fn a_slab_has_one_row_and_copies_have_two_disks() {
    let mut s = pool(2);
    s.fill(SPACE, ROW, [place(0, 3), place(1, 3)]).unwrap();
    let mut other = |a, b| s.fill(SPACE, RowNumber(1), [a, b]);
    assert_eq!(other(place(0, 3), place(1, 4)), Err(InvalidOp::NotFree(place(0, 3))));
    assert_eq!(other(place(0, 4), place(0, 5)), Err(InvalidOp::SameDisk(DiskNumber(0))));
    assert_eq!(other(place(0, 8), place(1, 5)), Err(InvalidOp::NotFree(place(0, 8))));
    assert_eq!((s.slabs_free(DiskNumber(0)), s.next_generation), (7, 3));
    s.apply(&of_space(SpaceOp::Free { row: ROW, birth: row_of(&s).birth })).unwrap();
    assert_eq!(s.slabs_free(DiskNumber(0)), 8);
}

#[test]
fn the_last_copy_is_never_written_off() {
    let mut s = pool(3);
    s.fill(SPACE, ROW, [place(0, 0), place(1, 0)]).unwrap();
    s.apply_stale(SPACE, ROW, 0, 0b11).unwrap();
    let last = InvalidOp::LastCopy { space: SPACE, row: ROW, regions: 0b10 };
    assert_eq!(s.apply_stale(SPACE, ROW, 1, 0b110), Err(last));
    s.apply_stale(SPACE, ROW, 1, 0b100).unwrap();
    let replace = of_space(SpaceOp::Replace { row: ROW, index: 1, to: place(2, 7) });
    let last = InvalidOp::LastCopy { space: SPACE, row: ROW, regions: 0b11 };
    assert_eq!(s.apply(&replace), Err(last), "slab 1 alone has these");
    s.apply_current(SPACE, ROW, 0, 0b11).unwrap();
    s.apply(&replace).unwrap();
    let copy = row_of(&s).slabs[1];
    assert_eq!((copy.place, copy.stale_regions), (place(2, 7), u64::MAX));
    assert_eq!((s.slabs_free(DiskNumber(1)), s.slabs_free(DiskNumber(2))), (8, 7));
}

#[test]
fn a_disk_leaves_with_what_it_may_have_lost() {
    let mut s = pool(2);
    s.fill(SPACE, ROW, [place(0, 0), place(1, 0)]).unwrap();
    s.apply_all(&s.removal_ops(DiskNumber(1), Absence::Gone, &OwnerAnswers::new())).unwrap();
    assert_eq!(s.voters, [DiskNumber(0)].into());
    let record = s.spaces[&SPACE].clone();
    let copy = row_of(&s).slabs[1];
    assert_eq!(
        (record.stale_regions(&copy), copy.stale_regions),
        (u64::MAX, 0),
        "until its owner answers, the disk counts as missing everything"
    );
    s.apply(&Op::DiskPresent { disk: DiskNumber(1), membership: crate::Membership(2) }).unwrap();
    assert!(!s.is_current(&s.spaces[&SPACE], &copy, 1));
    s.apply(&of_space(SpaceOp::Accounted { disk: DiskNumber(1), membership: crate::Membership(1) })).unwrap();
    assert!(s.is_current(&s.spaces[&SPACE], &copy, 1));
    // Disk 0, which has the only copy of a region, cannot be removed.
    s.voters = [DiskNumber(1)].into();
    s.apply_stale(SPACE, ROW, 1, 0b1000).unwrap();
    let copy = row_of(&s).slabs[1];
    assert!(s.is_current(&s.spaces[&SPACE], &copy, 1) && !s.is_current(&s.spaces[&SPACE], &copy, 0b1000));
    let reported = CopyRegions { row: ROW, generation: row_of(&s).slabs[0].generation, regions: 0b1001 };
    let mut ops = s.removal_ops(DiskNumber(0), Absence::Gone, &OwnerAnswers::from([(SPACE, vec![reported])]));
    let mut left = s.clone();
    left.apply_all(&ops).unwrap();
    assert_eq!(left.stale_regions_of(SPACE, ROW), [0b1, 0b1000], "what it has alone it is not said to lack");
    ops.push(Op::RemoveDisk { disk: DiskNumber(0) });
    let before = s.clone();
    assert_eq!(s.apply_all(&ops), Err(InvalidOp::DiskInUse(DiskNumber(0))));
    assert_eq!(s, before, "all or none");
}

#[test]
fn a_slab_moves_without_leaving_a_gap() {
    let mut s = pool(4);
    s.slab_bytes = 128 << 20; // with 64 regions
    s.fill(SPACE, ROW, [place(0, 0), place(1, 0)]).unwrap();
    let begin = |to| of_space(SpaceOp::BeginMove { row: ROW, index: 0, to });
    assert_eq!(s.apply(&begin(place(1, 5))), Err(InvalidOp::SameDisk(DiskNumber(1))));
    assert_eq!(s.apply(&begin(place(0, 5))), Err(InvalidOp::SameDisk(DiskNumber(0))));
    let (end, cancel) = (of_space(SpaceOp::EndMove { row: ROW }), of_space(SpaceOp::CancelMove { row: ROW }));
    let none = Err(InvalidOp::Outdated(SPACE));
    assert_eq!((s.apply(&end), s.apply(&cancel)), (none.clone(), none.clone()));
    s.apply(&begin(place(2, 5))).unwrap();
    assert!(s.is_moving());
    assert_eq!(s.apply(&begin(place(3, 5))), none, "one at a time");
    assert_eq!(row_of(&s).slabs[0].place, place(0, 0));
    assert_eq!(s.slabs_free(DiskNumber(2)), 7);
    s.voters = [DiskNumber(0)].into();
    assert_eq!(s.apply(&Op::RemoveDisk { disk: DiskNumber(2) }), Err(InvalidOp::DiskInUse(DiskNumber(2))));
    assert_eq!(s.apply(&end), none, "it has nothing yet");
    // The target of the move counts as a copy: the old copies may be stale in its regions.
    s.apply_current(SPACE, ROW, 2, 0b11).unwrap();
    s.apply_stale(SPACE, ROW, 0, 0b1).unwrap();
    s.apply_stale(SPACE, ROW, 1, 0b1).unwrap();
    let last = Err(InvalidOp::LastCopy { space: SPACE, row: ROW, regions: 0b1 });
    assert_eq!((s.apply_stale(SPACE, ROW, 2, 0b1), s.apply(&cancel)), (last.clone(), last));
    assert_eq!(s.apply(&end), none, "it does not have everything yet");
    // The target may be stale where the old slab is.
    s.apply_stale(SPACE, ROW, 0, 0b100).unwrap();
    s.apply_current(SPACE, ROW, 2, !0b100).unwrap();
    s.apply(&end).unwrap();
    let r = row_of(&s);
    assert_eq!((r.slabs[0].place, r.slabs[0].stale_regions, r.moving()), (place(2, 5), 0b100, None));
    assert_eq!((s.slabs_free(DiskNumber(0)), s.slabs_free(DiskNumber(2))), (8, 7));
    // A move cannot end while its target is on an absent disk, whose contents are unknown.
    s.apply(&begin(place(3, 5))).unwrap();
    s.apply_current(SPACE, ROW, 2, u64::MAX).unwrap();
    let mut left = s.clone();
    left.apply_all(&left.removal_ops(DiskNumber(3), Absence::Gone, &OwnerAnswers::new())).unwrap();
    assert_eq!(left.apply(&end), none);
    left.apply(&cancel).unwrap();
    // A move is cancelled, and another one is freed with its row.
    s.apply(&cancel).unwrap();
    s.apply(&begin(place(3, 1))).unwrap();
    s.apply(&of_space(SpaceOp::Free { row: ROW, birth: row_of(&s).birth })).unwrap();
    assert_eq!((s.slabs_allocated(), s.slabs_free(DiskNumber(3))), (0, 8));
}

/// Both slabs of a column that moves count, but as one column.
#[test]
fn a_column_that_moves_counts_once() {
    let record = SpaceRecord { columns: 2, resiliency: Resiliency::Parity { parity: 1 }, ..mirror("m") };
    let mut s = pool_with(4, record);
    s.fill(SPACE, ROW, (0..3).map(|d| place(d, 0))).unwrap();
    let (end, cancel) = (of_space(SpaceOp::EndMove { row: ROW }), of_space(SpaceOp::CancelMove { row: ROW }));
    s.apply(&of_space(SpaceOp::BeginMove { row: ROW, index: 1, to: place(3, 5) })).unwrap();
    s.apply_current(SPACE, ROW, 3, u64::MAX).unwrap();
    s.clone().apply(&cancel).unwrap();
    // Only two of three columns have the region.
    s.apply_stale(SPACE, ROW, 0, 1).unwrap();
    let last = Err(InvalidOp::LastCopy { space: SPACE, row: ROW, regions: 1 });
    assert_eq!(s.apply_stale(SPACE, ROW, 2, 1), last, "its two slabs are no two columns");
    s.clone().apply_stale(SPACE, ROW, 3, 1).unwrap();
    s.apply_stale(SPACE, ROW, 1, 1).unwrap();
    assert_eq!((s.apply_stale(SPACE, ROW, 3, 1), s.apply(&cancel)), (last.clone(), last));
    s.apply(&end).unwrap();
    assert_eq!((row_of(&s).slabs[1].place, s.stale_regions_of(SPACE, ROW)), (place(3, 5), vec![1, 0, 0]));
}

/// The slab of a column may move to the disk of another column, and this move may be cancelled.
#[test]
fn a_slab_of_a_simple_space_moves_and_stays() {
    let record = SpaceRecord { columns: 2, resiliency: Resiliency::Simple, ..mirror("m") };
    let mut s = pool_with(2, record);
    s.fill(SPACE, ROW, [place(0, 0), place(1, 0)]).unwrap();
    let cancel = of_space(SpaceOp::CancelMove { row: ROW });
    s.apply(&of_space(SpaceOp::BeginMove { row: ROW, index: 0, to: place(1, 1) })).unwrap();
    s.apply_current(SPACE, ROW, 2, 1).unwrap();
    s.clone().apply(&cancel).unwrap();
    s.apply(&of_space(SpaceOp::MarkStale { row: ROW, index: 0, generation: 1, regions: 1 })).unwrap();
    let last = Err(InvalidOp::LastCopy { space: SPACE, row: ROW, regions: 1 });
    assert_eq!(s.apply(&cancel), last, "the new one alone has it");
}

#[test]
fn the_policy_has_percentages() {
    let mut s = pool(1);
    let policy = Policy { warn_at: 80, ..Policy::default() };
    s.apply(&Op::SetPolicy { policy }).unwrap();
    for warn_at in [0, 101] {
        let wrong = Policy { warn_at, ..policy };
        assert_eq!(s.apply(&Op::SetPolicy { policy: wrong }), Err(InvalidOp::Percent(warn_at)));
        assert_eq!(State { policy: wrong, ..s.clone() }.checked(), Err(InvalidOp::Percent(warn_at)));
    }
    assert_eq!(s.policy, policy);
}

/// A loss record has addresses of units, at most as many as lost units. It ends with its space.
#[test]
fn what_is_lost_is_of_a_space() {
    let mut s = pool(2);
    let lost = |units, at: &[u64]| {
        of_space(SpaceOp::Lost { record: LossRecord { units, at: at.iter().copied().collect() } })
    };
    for (units, at) in
        [(1, &[0, 4096][..]), (2, &[4095]), (600, &(0..513).map(|u| u * 4096).collect::<Vec<_>>())]
    {
        assert!(matches!(s.apply(&lost(units, at)), Err(InvalidOp::BadShape(_))), "{units} {at:?}");
    }
    let nowhere = Op::Space { space: SpaceId(9), op: SpaceOp::Lost { record: LossRecord::default() } };
    assert_eq!(s.apply(&nowhere), Err(InvalidOp::NoSpace(SpaceId(9))));
    s.apply(&lost(7, &[0, 4096])).unwrap();
    assert_eq!(s.spaces[&SPACE].loss.units, 7);
    s.apply(&lost(0, &[])).unwrap();
    assert_eq!(s.spaces[&SPACE].loss, LossRecord::default());
    s.apply(&of_space(SpaceOp::Destroy)).unwrap();
    assert!(s.spaces.is_empty());
}

#[test]
fn a_disk_that_has_something_alone_is_needed() {
    let mut s = pool(2);
    s.fill(SPACE, ROW, [place(0, 0), place(1, 0)]).unwrap();
    assert!(!s.needs(DiskNumber(0)) && !s.needs(DiskNumber(1)));
    s.apply_stale(SPACE, ROW, 1, 0b10).unwrap();
    assert!(s.needs(DiskNumber(0)) && !s.needs(DiskNumber(1)));
    s.apply_current(SPACE, ROW, 1, u64::MAX).unwrap();
    s.apply_all(&s.removal_ops(DiskNumber(1), Absence::Gone, &OwnerAnswers::from([(SPACE, vec![])])))
        .unwrap();
    assert!(s.needs(DiskNumber(0)) && !s.has_only_copies(DiskNumber(0)), "the other is only away");
}

#[test]
fn parity_counts_what_is_missed() {
    let record = SpaceRecord { columns: 3, resiliency: Resiliency::Parity { parity: 1 }, ..mirror("m") };
    let mut s = pool_with(4, record);
    s.fill(SPACE, ROW, (0..4).map(|d| place(d, 1))).unwrap();
    s.apply_stale(SPACE, ROW, 0, 1).unwrap();
    assert!(s.apply_stale(SPACE, ROW, 3, 1).is_err());
    s.apply_stale(SPACE, ROW, 3, 2).unwrap();
    assert_eq!(s.failures_promised(), 1);
}

/// LRC (4,2,1): columns 0, 1 and 4 are a group, 2, 3 and 5 another, 6 is the global one.
fn lrc() -> SpaceRecord {
    SpaceRecord {
        name: "l".into(),
        columns: 4,
        resiliency: Resiliency::LocalParity { groups: 2, global: 1 },
        ..mirror("m")
    }
}

/// Any two columns may be stale, and no third one, although the code could recover some sets with three.
#[test]
fn local_reconstruction_counts_two_losses() {
    for stale in (0..7).flat_map(|a| (0..a).map(move |b| [a, b])) {
        let mut s = pool_with(7, lrc());
        s.fill(SPACE, ROW, (0..7).map(|d| place(d, 1))).unwrap();
        for index in stale {
            s.apply_stale(SPACE, ROW, index, 1).unwrap();
        }
        for index in (0..7).filter(|index| !stale.contains(index)) {
            let last = Err(InvalidOp::LastCopy { space: SPACE, row: ROW, regions: 1 });
            assert_eq!(s.clone().apply_stale(SPACE, ROW, index, 1), last, "{stale:?}, {index}");
        }
        assert_eq!(s.failures_promised(), 2);
    }
}

#[test]
fn local_reconstruction_has_its_shapes() {
    let mut s = pool(2);
    for columns in [1, 2, 3, 5, 16] {
        let op = create(&s, SpaceRecord { columns, ..lrc() });
        assert!(matches!(s.apply(&op), Err(InvalidOp::BadShape(_))));
    }
    for (groups, global) in [(0, 0), (1, 1), (2, 0), (2, 2), (3, 1), (255, 255)] {
        let op = create(&s, SpaceRecord { resiliency: Resiliency::LocalParity { groups, global }, ..lrc() });
        assert!(matches!(s.apply(&op), Err(InvalidOp::BadShape(_))), "{groups}, {global}");
    }
    for columns in [4, 8, 12, 14] {
        let mut s = s.clone();
        let space = s.make(SpaceRecord { columns, ..lrc() });
        assert_eq!(s.spaces[&space].slabs_in_row(), usize::from(columns) + 3);
    }
}

#[test]
fn spaces_and_disks_have_media() {
    let mut s = pool(2);
    let media = MediaClass::of([Media::Ssd]);
    s.apply(&of_space(SpaceOp::SetMedia { media })).unwrap();
    s.apply(&Op::SetDiskMedia { disk: DiskNumber(0), media: 2 }).unwrap();
    let other = s.make(SpaceRecord { name: "t".into(), media, ..mirror("m") });
    assert_eq!((s.spaces[&SPACE].media, s.spaces[&other].media), (media, media));
    assert_eq!(s.disks[&DiskNumber(0)].media(), Media::Ssd);
    let none = Op::Space { space: SpaceId(9), op: SpaceOp::SetMedia { media } };
    assert_eq!(s.apply(&none), Err(InvalidOp::NoSpace(SpaceId(9))));
    let none = Op::SetDiskMedia { disk: DiskNumber(9), media: 2 };
    assert_eq!(s.apply(&none), Err(InvalidOp::NoDisk(DiskNumber(9))));
}

#[test]
fn shapes_that_cannot_be() {
    let mut s = pool(2);
    let shapes = [
        SpaceRecord { columns: 0, ..mirror("m") },
        SpaceRecord { columns: 40, ..mirror("m") },
        SpaceRecord { interleave: 3000, ..mirror("m") },
        SpaceRecord { interleave: 16 << 20, ..mirror("m") },
        SpaceRecord { size: 100, ..mirror("m") },
        SpaceRecord { resiliency: Resiliency::Mirror { copies: 4 }, ..mirror("m") },
        SpaceRecord { resiliency: Resiliency::Parity { parity: 1 }, ..mirror("m") },
    ];
    for shape in shapes {
        let op = create(&s, SpaceRecord { name: "a".into(), ..shape });
        assert!(matches!(s.apply(&op), Err(InvalidOp::BadShape(_))), "{op:?}");
    }
    let taken = create(&s, mirror("m"));
    assert_eq!(s.apply(&taken), Err(InvalidOp::NameTaken("m".into())));
    let renamed = of_space(SpaceOp::Rename { name: "m".into() });
    assert_eq!(s.apply(&renamed), Err(InvalidOp::NameTaken("m".into())), "its own, too");
}
