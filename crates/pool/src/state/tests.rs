use disk::Media;

use super::*;
use crate::DiskId;

fn disk(n: u16) -> DiskRecord {
    DiskRecord {
        id: DiskId([n as u8; 16]),
        name: format!("disk{n}"),
        slabs: 8,
        usage: Usage::AutoSelect,
        presence: Presence::Present,
        domains: FaultDomains::default(),
        media: 0,
        label_sequence: 1,
        membership: crate::Membership(1),
        areas: crate::format::Areas::plan(16 << 20, 2 << 20).expect("room"),
    }
}

fn mirror() -> SpaceRecord {
    SpaceRecord {
        name: "m".into(),
        size: 8 << 20,
        resiliency: Resiliency::Mirror { copies: 2 },
        interleave: 64 << 10,
        columns: 1,
        provisioning: Provisioning::Thin,
        media: MediaClass::ANY,
    }
}

fn place(disk: u16, slab: u32) -> SlabPlace {
    SlabPlace { disk: DiskNumber(disk), slab }
}

const SPACE: SpaceId = SpaceId(0);
const ROW: RowNumber = RowNumber(0);

fn pool(disks: u16) -> State {
    let mut s = State::new(PoolId([1; 16]), "p".into(), 2 << 20);
    for n in 0..disks {
        s.apply(&Op::AddDisk { disk: DiskNumber(n), record: disk(n) }).unwrap();
    }
    s.apply(&Op::Voters { voters: (0..disks).map(DiskNumber).collect() }).unwrap();
    s.apply(&Op::CreateSpace { space: SPACE, record: mirror() }).unwrap();
    s
}

#[test]
fn a_slab_has_one_row_and_copies_have_two_disks() {
    let mut s = pool(2);
    s.apply(&Op::AllocateRow { space: SPACE, row: ROW, slabs: vec![place(0, 3), place(1, 3)] }).unwrap();
    let again = Op::AllocateRow { space: SPACE, row: RowNumber(1), slabs: vec![place(0, 3), place(1, 4)] };
    assert_eq!(s.apply(&again), Err(InvalidOp::NotFree(place(0, 3))));
    let same = Op::AllocateRow { space: SPACE, row: RowNumber(1), slabs: vec![place(0, 4), place(0, 5)] };
    assert_eq!(s.apply(&same), Err(InvalidOp::SameDisk(DiskNumber(0))));
    let outside = Op::AllocateRow { space: SPACE, row: RowNumber(1), slabs: vec![place(0, 8), place(1, 5)] };
    assert_eq!(s.apply(&outside), Err(InvalidOp::NotFree(place(0, 8))));
    assert_eq!((s.slabs_free(DiskNumber(0)), s.next_generation), (7, 3));
    s.apply(&Op::FreeRow { space: SPACE, row: ROW }).unwrap();
    assert_eq!(s.slabs_free(DiskNumber(0)), 8);
}

#[test]
fn the_last_copy_is_never_written_off() {
    let mut s = pool(2);
    s.apply(&Op::AllocateRow { space: SPACE, row: ROW, slabs: vec![place(0, 0), place(1, 0)] }).unwrap();
    s.apply(&Op::Missed { space: SPACE, row: ROW, index: 0, regions: 0b11 }).unwrap();
    let last = Op::Missed { space: SPACE, row: ROW, index: 1, regions: 0b110 };
    assert_eq!(s.apply(&last), Err(InvalidOp::LastCopy { space: SPACE, row: ROW, regions: 0b10 }));
    s.apply(&Op::Missed { space: SPACE, row: ROW, index: 1, regions: 0b100 }).unwrap();
    let moved = Op::MoveSlab { space: SPACE, row: ROW, index: 1, to: place(1, 7) };
    assert!(matches!(s.apply(&moved), Err(InvalidOp::LastCopy { .. })), "slab 1 alone has regions 0 and 1");
    s.apply(&Op::NotMissed { space: SPACE, row: ROW, index: 0, regions: 0b11 }).unwrap();
    s.apply(&moved).unwrap();
    assert_eq!(s.rows[&(SPACE, ROW)].slabs[1].missed, u64::MAX);
}

#[test]
fn a_disk_leaves_with_what_it_may_have_lost() {
    let mut s = pool(2);
    s.apply(&Op::AllocateRow { space: SPACE, row: ROW, slabs: vec![place(0, 0), place(1, 0)] }).unwrap();
    let ops = s.leave(DiskNumber(1), Absence::Gone, &crate::Answers::new(), |_, _, _| 0b1000);
    s.apply_all(&ops).unwrap();
    assert_eq!(s.voters, [DiskNumber(0)].into());
    let copy = s.rows[&(SPACE, ROW)].slabs[1];
    assert_eq!(copy.missed, 0b1000);
    assert!(!s.is_current(&copy, 1));
    s.apply(&Op::DiskPresent { disk: DiskNumber(1), membership: crate::Membership(2) }).unwrap();
    assert!(s.is_current(&copy, 1) && !s.is_current(&copy, 0b1000));
    // The other one may not leave with that region.
    let other = s.leave(DiskNumber(0), Absence::Gone, &crate::Answers::new(), |_, _, _| 0b1000);
    let before = s.clone();
    assert!(s.apply_all(&other).is_err());
    assert_eq!(s, before, "all or none");
}

#[test]
fn a_slab_moves_without_leaving_a_gap() {
    let mut s = pool(4);
    s.apply(&Op::AllocateRow { space: SPACE, row: ROW, slabs: vec![place(0, 0), place(1, 0)] }).unwrap();
    let begin = |to| Op::BeginMove { space: SPACE, row: ROW, index: 0, to };
    assert_eq!(s.apply(&begin(place(1, 5))), Err(InvalidOp::SameDisk(DiskNumber(1))));
    assert_eq!(s.apply(&begin(place(0, 5))), Err(InvalidOp::SameDisk(DiskNumber(0))));
    let (end, cancel) = (Op::EndMove { space: SPACE, row: ROW }, Op::CancelMove { space: SPACE, row: ROW });
    let none = Err(InvalidOp::Moving { space: SPACE, row: ROW });
    assert_eq!((s.apply(&end), s.apply(&cancel)), (none.clone(), none.clone()));
    s.apply(&begin(place(2, 5))).unwrap();
    assert_eq!(s.apply(&begin(place(3, 5))), none, "one at a time");
    assert_eq!(s.rows[&(SPACE, ROW)].slabs[0].place, place(0, 0));
    assert_eq!(s.slabs_free(DiskNumber(2)), 7);
    assert_eq!(s.apply(&Op::RemoveDisk { disk: DiskNumber(2) }), Err(InvalidOp::DiskInUse(DiskNumber(2))));
    assert!(matches!(s.apply(&end), Err(InvalidOp::NotMoved { regions: u64::MAX, .. })));
    // The new one is a copy like the others: with it, the old ones may miss what it has.
    s.apply(&Op::NotMissed { space: SPACE, row: ROW, index: 2, regions: 0b11 }).unwrap();
    s.apply(&Op::Missed { space: SPACE, row: ROW, index: 0, regions: 0b01 }).unwrap();
    s.apply(&Op::Missed { space: SPACE, row: ROW, index: 1, regions: 0b01 }).unwrap();
    assert_eq!(s.apply(&cancel), Err(InvalidOp::LastCopy { space: SPACE, row: ROW, regions: 0b01 }));
    let last = Op::Missed { space: SPACE, row: ROW, index: 2, regions: 0b01 };
    assert!(matches!(s.apply(&last), Err(InvalidOp::LastCopy { .. })));
    // What the old one has missed the new one may have missed too.
    s.apply(&Op::Missed { space: SPACE, row: ROW, index: 0, regions: 0b100 }).unwrap();
    s.apply(&Op::NotMissed { space: SPACE, row: ROW, index: 2, regions: !0b100 }).unwrap();
    s.apply(&end).unwrap();
    let r = &s.rows[&(SPACE, ROW)];
    assert_eq!((r.slabs[0].place, r.slabs[0].missed, r.moving()), (place(2, 5), 0b100, None));
    assert_eq!((s.slabs_free(DiskNumber(0)), s.slabs_free(DiskNumber(2))), (8, 7));
    // Not on a disk that was removed: its missed regions are not counted.
    s.apply(&begin(place(3, 5))).unwrap();
    s.apply(&Op::NotMissed { space: SPACE, row: ROW, index: 2, regions: u64::MAX }).unwrap();
    let mut left = s.clone();
    left.apply_all(&left.leave(DiskNumber(3), Absence::Gone, &crate::Answers::new(), |_, _, _| 0)).unwrap();
    assert!(matches!(left.apply(&end), Err(InvalidOp::NotMoved { .. })));
    left.apply(&cancel).unwrap();
    s.apply(&cancel).unwrap();
    // Freed with its row, and taken back.
    s.apply(&begin(place(3, 1))).unwrap();
    s.apply(&cancel).unwrap();
    s.apply(&begin(place(3, 1))).unwrap();
    s.apply(&Op::FreeRow { space: SPACE, row: ROW }).unwrap();
    assert_eq!((s.slabs_allocated(), s.slabs_free(DiskNumber(3))), (0, 8));
}

#[test]
fn the_policy_has_percentages() {
    let mut s = pool(1);
    let policy = Policy { warn_at: 80, ..Policy::default() };
    s.apply(&Op::SetPolicy { policy }).unwrap();
    for warn_at in [0, 101] {
        let wrong = Policy { warn_at, ..policy };
        assert_eq!(s.apply(&Op::SetPolicy { policy: wrong }), Err(InvalidOp::Percent(warn_at)));
        let mut parts = s.parts();
        parts.policy = wrong;
        assert_eq!(State::from_parts(parts), Err(InvalidOp::Percent(warn_at)));
    }
    assert_eq!(s.policy, policy);
}

/// Of a space that there is, at addresses of units, as many at least; and with the space it is gone.
#[test]
fn what_is_lost_is_of_a_space() {
    let mut s = pool(2);
    let lost = |units, at: &[u64]| Op::Lost {
        space: SPACE,
        record: LossRecord { units, at: at.iter().copied().collect() },
    };
    for (units, at) in
        [(1, &[0, 4096][..]), (2, &[4095]), (600, &(0..513).map(|u| u * 4096).collect::<Vec<_>>())]
    {
        assert!(matches!(s.apply(&lost(units, at)), Err(InvalidOp::BadShape(_))), "{units} {at:?}");
    }
    let nowhere = Op::Lost { space: SpaceId(9), record: LossRecord::default() };
    assert_eq!(s.apply(&nowhere), Err(InvalidOp::NoSpace(SpaceId(9))));
    s.apply(&lost(7, &[0, 4096])).unwrap();
    assert_eq!(s.losses[&SPACE].units, 7);
    s.apply(&lost(0, &[])).unwrap();
    assert!(s.losses.is_empty());
    s.apply(&lost(1, &[4096])).unwrap();
    s.apply(&Op::DestroySpace { space: SPACE }).unwrap();
    assert!(s.losses.is_empty());
}

#[test]
fn a_disk_that_has_something_alone_is_needed() {
    let mut s = pool(2);
    s.apply(&Op::AllocateRow { space: SPACE, row: ROW, slabs: vec![place(0, 0), place(1, 0)] }).unwrap();
    assert!(!s.needs(DiskNumber(0)) && !s.needs(DiskNumber(1)));
    s.apply(&Op::Missed { space: SPACE, row: ROW, index: 1, regions: 0b10 }).unwrap();
    assert!(s.needs(DiskNumber(0)) && !s.needs(DiskNumber(1)));
    let ops = s.leave(DiskNumber(1), Absence::Gone, &crate::Answers::new(), |_, _, _| 0);
    s.apply_all(&ops).unwrap();
    assert_eq!(s.alone(SPACE, ROW, 0), u64::MAX, "of those that are here");
}

#[test]
fn parity_counts_what_is_missed() {
    let mut s = pool(4);
    let record = SpaceRecord {
        name: "p".into(),
        columns: 3,
        resiliency: Resiliency::Parity { parity: 1 },
        ..mirror()
    };
    let space = SpaceId(1);
    s.apply(&Op::CreateSpace { space, record }).unwrap();
    s.apply(&Op::AllocateRow { space, row: ROW, slabs: (0..4).map(|d| place(d, 1)).collect() }).unwrap();
    s.apply(&Op::Missed { space, row: ROW, index: 0, regions: 1 }).unwrap();
    assert!(s.apply(&Op::Missed { space, row: ROW, index: 3, regions: 1 }).is_err());
    s.apply(&Op::Missed { space, row: ROW, index: 3, regions: 2 }).unwrap();
    assert_eq!(s.failures_promised(), 1);
}

/// LRC (4,2,1): columns 0, 1 and 4 are a group, 2, 3 and 5 another, 6 is the global one.
fn lrc() -> SpaceRecord {
    SpaceRecord {
        name: "l".into(),
        columns: 4,
        resiliency: Resiliency::LocalParity { groups: 2, global: 1 },
        ..mirror()
    }
}

#[test]
fn local_reconstruction_counts_what_each_group_missed() {
    for (missed, may, may_not) in [
        ([0, 2].as_slice(), [5, 6, 3], [9; 3].as_slice()),
        (&[0, 1], [2, 3, 5], &[4, 6]),
        (&[6], [0, 4, 5], &[9]),
        (&[6, 4], [2, 3, 5], &[0, 1]),
        (&[0, 2, 6], [9; 3], &[1, 3, 4, 5]),
    ] {
        let mut s = pool(7);
        let space = SpaceId(1);
        s.apply(&Op::CreateSpace { space, record: lrc() }).unwrap();
        s.apply(&Op::AllocateRow { space, row: ROW, slabs: (0..7).map(|d| place(d, 1)).collect() }).unwrap();
        let miss = |index| Op::Missed { space, row: ROW, index, regions: 1 };
        for index in missed {
            s.apply(&miss(*index)).unwrap();
        }
        for index in may.into_iter().filter(|i| *i < 7) {
            s.clone().apply(&miss(index)).unwrap();
        }
        for index in may_not.iter().filter(|i| **i < 7) {
            let last = Err(InvalidOp::LastCopy { space, row: ROW, regions: 1 });
            assert_eq!(s.clone().apply(&miss(*index)), last, "{missed:?}, {index}");
        }
        assert_eq!(s.failures_promised(), 2);
    }
}

#[test]
fn local_reconstruction_has_its_shapes() {
    let mut s = pool(2);
    let create = |record| Op::CreateSpace { space: SpaceId(1), record };
    for columns in [1, 2, 3, 5, 16] {
        assert!(matches!(s.apply(&create(SpaceRecord { columns, ..lrc() })), Err(InvalidOp::BadShape(_))));
    }
    for (groups, global) in [(0, 0), (1, 1), (2, 0), (2, 2), (3, 1), (255, 255)] {
        let record = SpaceRecord { resiliency: Resiliency::LocalParity { groups, global }, ..lrc() };
        assert!(matches!(s.apply(&create(record)), Err(InvalidOp::BadShape(_))), "{groups}, {global}");
    }
    for columns in [4, 8, 12, 14] {
        let mut s = s.clone();
        s.apply_all(&s.create_ops(SpaceRecord { columns, ..lrc() })).unwrap();
        assert_eq!(s.spaces[&SpaceId(1)].slabs_in_row(), usize::from(columns) + 3);
        assert_eq!(s.spaces[&SpaceId(2)].resiliency, Resiliency::Mirror { copies: 3 });
        assert_eq!(s.owner_of(SpaceId(2)), Some(SpaceId(1)));
    }
}

#[test]
fn spaces_and_disks_have_media() {
    let mut s = pool(2);
    let media = MediaClass::of([Media::Ssd]);
    let create =
        Op::CreateSpace { space: SpaceId(1), record: SpaceRecord { name: "t".into(), media, ..mirror() } };
    let ops = [
        create,
        Op::SetSpaceMedia { space: SPACE, media },
        Op::SetDiskMedia { disk: DiskNumber(0), media: 2 },
    ];
    s.apply_all(&ops).unwrap();
    assert_eq!((s.spaces[&SPACE].media, s.spaces[&SpaceId(1)].media), (media, media));
    assert_eq!(s.disks[&DiskNumber(0)].media(), Media::Ssd);
    let none = Op::SetSpaceMedia { space: SpaceId(9), media };
    assert_eq!(s.apply(&none), Err(InvalidOp::NoSpace(SpaceId(9))));
    let none = Op::SetDiskMedia { disk: DiskNumber(9), media: 2 };
    assert_eq!(s.apply(&none), Err(InvalidOp::NoDisk(DiskNumber(9))));
}

/// Invariant 7.
#[test]
fn where_a_column_moves_counts_no_more_than_the_old_one() {
    let mut s = pool(5);
    let (space, row) = (SpaceId(1), ROW);
    let resiliency = Resiliency::Parity { parity: 1 };
    s.apply_all(&s.create_ops(SpaceRecord { name: "p".into(), columns: 2, resiliency, ..mirror() })).unwrap();
    s.apply(&Op::AllocateRow { space, row, slabs: vec![place(0, 0), place(1, 0), place(2, 0)] }).unwrap();
    let begin = Op::BeginMove { space, row, index: 1, to: place(3, 5) };
    s.apply(&begin).unwrap();
    let new = |s: &State| s.rows[&(space, row)].moving().unwrap().copy.missed;
    let missed = |index, regions| Op::Missed { space, row, index, regions };
    let found = |index, regions| Op::NotMissed { space, row, index, regions };
    s.apply(&found(3, 0b1111)).unwrap();
    assert_eq!(new(&s), !0b1111);
    // What the old one misses the new one has missed, and it does not get it before the old one has it.
    s.apply(&missed(1, 0b10)).unwrap();
    s.apply(&found(3, 0b11_0010)).unwrap();
    assert_eq!(new(&s), !0b11_1101);
    s.apply(&found(1, 0b10)).unwrap();
    assert_eq!(new(&s), !0b11_1101);
    // It is no copy that another column could be spared for, nor one that cannot be spared.
    assert_eq!((s.alone(space, row, 1), s.alone(space, row, 3)), (0, 0));
    s.apply(&missed(0, 1)).unwrap();
    assert_eq!((s.alone(space, row, 1), s.alone(space, row, 3)), (1, 0));
    assert_eq!(s.apply(&missed(1, 1)), Err(InvalidOp::LastCopy { space, row, regions: 1 }));
    s.apply(&missed(3, 1)).unwrap();
    s.apply(&found(3, 1)).unwrap();
    let gone = |disk| Op::DiskAbsent { disk: DiskNumber(disk), reason: Absence::Gone };
    for disk in [1, 3] {
        let mut s = s.clone();
        s.voters = [DiskNumber(4)].into();
        s.apply(&gone(disk)).unwrap();
        assert_eq!(new(&s), u64::MAX, "disk {disk} is away");
        s.apply(&found(3, 1)).unwrap();
        s.apply(&Op::DiskPresent { disk: DiskNumber(disk), membership: crate::Membership(2) }).unwrap();
        assert_eq!(new(&s), u64::MAX, "disk {disk} is back");
    }
    let mut all = s.clone();
    all.apply(&Op::MissedAll { disk: DiskNumber(1) }).unwrap();
    assert_eq!(new(&all), !1, "the old one has that alone");
    let accept = |index| Op::AcceptLoss { space, row, index, regions: u64::MAX };
    assert!(matches!(s.clone().apply(&accept(3)), Err(InvalidOp::NoSlab { .. })), "it never had it");
    s.apply(&Op::CancelMove { space, row }).unwrap();
    assert!(s.rows[&(space, row)].moving().is_none());
}

#[test]
fn a_parity_space_is_made_with_its_journal() {
    let mut s = pool(4);
    let resiliency = Resiliency::Parity { parity: 2 };
    let record = SpaceRecord { name: "p".into(), columns: 2, resiliency, ..mirror() };
    s.apply_all(&s.create_ops(record.clone())).unwrap();
    let (space, journal) = (SpaceId(1), SpaceId(2));
    assert_eq!((s.journal_of(space), s.owner_of(journal)), (Some(journal), Some(space)));
    assert_eq!(s.spaces[&journal].resiliency, Resiliency::Mirror { copies: 3 });
    assert_eq!((s.journal_of(SPACE), s.owner_of(SPACE), s.owner_of(space)), (None, None, None));
    // A space that only comes after one is none.
    s.apply(&Op::CreateSpace { space: SpaceId(3), record: SpaceRecord { name: "q".into(), ..record } })
        .unwrap();
    s.apply(&Op::CreateSpace { space: SpaceId(4), record: SpaceRecord { name: "m2".into(), ..mirror() } })
        .unwrap();
    assert_eq!(s.owner_of(SpaceId(4)), None);
}

#[test]
fn shapes_that_cannot_be() {
    let mut s = pool(2);
    let shapes = [
        SpaceRecord { name: "a".into(), columns: 0, ..mirror() },
        SpaceRecord { name: "a".into(), columns: 40, ..mirror() },
        SpaceRecord { name: "a".into(), interleave: 3000, ..mirror() },
        SpaceRecord { name: "a".into(), interleave: 4 << 20, ..mirror() },
        SpaceRecord { name: "a".into(), size: 100, ..mirror() },
        SpaceRecord { name: "a".into(), resiliency: Resiliency::Mirror { copies: 4 }, ..mirror() },
        SpaceRecord { name: "a".into(), resiliency: Resiliency::Parity { parity: 1 }, ..mirror() },
    ];
    for record in shapes {
        let op = Op::CreateSpace { space: SpaceId(1), record };
        assert!(matches!(s.apply(&op), Err(InvalidOp::BadShape(_))), "{op:?}");
    }
    let taken = Op::CreateSpace { space: SpaceId(1), record: mirror() };
    assert_eq!(s.apply(&taken), Err(InvalidOp::NameTaken("m".into())));
}
