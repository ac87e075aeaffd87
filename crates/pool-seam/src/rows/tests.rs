use super::*;
use crate::DiskNumber;

fn copy(disk: u16) -> SlabCopy {
    SlabCopy { place: SlabPlace { disk: DiskNumber(disk), slab: 0 }, generation: 1, stale_regions: 0 }
}

#[test]
fn a_moving_slab_is_the_copy_after_the_last() {
    let mut row = Row::new(1, [copy(0), copy(1)]);
    row.set_moving(Some(Moving { index: 1, copy: copy(2) }));
    let before = row.clone();
    assert_eq!((row.slab_of(0), row.slab_of(1), row.slab_of(2)), (0, 1, 1));
    row.copy_mut(2).expect("the moving one").stale_regions = 1;
    row.copy_mut(0).expect("a slab").stale_regions = 2;
    assert_eq!(row.copies().map(|(_, c)| c.stale_regions).collect::<Vec<_>>(), [2, 0, 1]);
    assert_eq!(
        before.copies().map(|(_, c)| c.stale_regions).collect::<Vec<_>>(),
        [0, 0, 0],
        "a clone has its own"
    );
    assert!(row.copy(3).is_none() && row.copy_mut(3).is_none());
}
