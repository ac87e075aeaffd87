use super::*;
use crate::testing;
use crate::{Absence, DiskRecord, Op, PoolId, SpaceRecord};

const SPACE: SpaceId = SpaceId(0);

/// Six rows have their other copy on disk 1, and two on disk 2.
#[test]
fn disks_that_read_much_write_little() {
    let mut s = State::new(PoolId([1; 16]), "p".into(), 8 << 20);
    for n in 0..5 {
        s.apply(&Op::AddDisk { disk: DiskNumber(n), record: DiskRecord { slabs: 64, ..testing::disk(n) } })
            .unwrap();
    }
    s.make(SpaceRecord { size: 1 << 30, ..testing::mirror("s") });
    for row in 0..8 {
        let other = if row < 6 { 1 } else { 2 };
        let place = |disk| SlabPlace { disk: DiskNumber(disk), slab: row };
        s.fill(SPACE, RowNumber(row), [place(0), place(other)]).unwrap();
    }
    s.apply(&Op::DiskAbsent { disk: DiskNumber(0), reason: Absence::Gone }).unwrap();
    let work = Work::of(&s, DiskNumber(0));
    let mut targets = BTreeMap::<u16, usize>::new();
    for row in 0..8 {
        let place = work.place(&s, SPACE, RowNumber(row), 0).expect("there is room");
        *targets.entry(place.disk.0).or_default() += 1;
    }
    // At the end each disk has three or four slabs to write, or two if no other row was possible. The exception is
    // the disk that has six slabs to read.
    let to = |disk| targets.get(&disk).copied().unwrap_or(0);
    assert_eq!(to(1), 0, "{targets:?}");
    assert_eq!((to(2) + 2).max(to(3)).max(to(4)), 4, "{targets:?}");
}

/// Free space on another medium does not count.
#[test]
fn room_is_asked_of_disks_of_the_same_medium() {
    let is_ample = |flash: u32, other: u32| {
        let mut s = State::new(PoolId([1; 16]), "p".into(), 8 << 20);
        for (n, (slabs, media)) in [(64, 2), (64, 2), (flash, 2), (other, 1)].into_iter().enumerate() {
            let disk = DiskNumber(n as u16);
            let record = DiskRecord { slabs, media, ..testing::disk(n as u16) };
            s.apply(&Op::AddDisk { disk, record }).unwrap();
        }
        s.make(SpaceRecord { size: 1 << 30, ..testing::mirror("s") });
        for row in 0..8 {
            let place = |disk| SlabPlace { disk: DiskNumber(disk), slab: row };
            s.fill(SPACE, RowNumber(row), [place(0), place(1)]).unwrap();
        }
        Work::of(&s, DiskNumber(0)).is_ample
    };
    assert!(is_ample(64, 64));
    assert!(is_ample(64, 1), "the small one has another medium");
    assert!(!is_ample(4, 64));
}
