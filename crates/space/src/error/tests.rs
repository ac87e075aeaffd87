use super::*;

#[test]
fn every_refusal_names_its_disks() {
    let disks = Disks::new(DiskNumber(1), [DiskNumber(4)]);
    let error = SpaceError::Unavailable { row: RowNumber(2), disks };
    assert!(error.to_string().contains("on disk 1, disk 4,"), "{error}");
}

/// The two errors differ for a writer: a full disk accepts the same write again when it has room.
#[test]
fn no_room_under_a_disk_is_no_medium_error() {
    let (below, above) = (IoRange::new(Op::Write, 4096, 512), IoRange::new(Op::Write, 0, 4096));
    let told = |error| SpaceError::Disk { disk: DiskNumber(1), error }.as_disk_error(Op::Write, 0, 4096);
    assert_eq!(told(DiskError::Full { at: below }), DiskError::Full { at: above });
    assert_eq!(told(DiskError::Medium { at: below }), DiskError::Medium { at: above });
}
