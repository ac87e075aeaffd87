use super::*;

#[test]
fn a_region_has_whole_groups() {
    for power in 21..=30 {
        let (slab, regions) = (1_u64 << power, Regions::new(1 << power));
        let groups: Vec<u32> = (0..regions.count()).flat_map(|r| regions.groups(r)).collect();
        assert_eq!(groups, (0..(slab / GROUP) as u32).collect::<Vec<_>>(), "each group in one region");
        for group in groups {
            let units = group * 512..(group + 1) * 512;
            assert_eq!(regions.of(&units), regions.of_group(group));
            assert!(regions.groups(regions.of_group(group).trailing_zeros()).contains(&group));
        }
        assert_eq!(regions.of(&(0..(slab / UNIT) as u32)), regions.all());
    }
}

#[test]
fn the_sizes_of_the_format() {
    assert_eq!((Regions::new(256 << 20).count(), Regions::new(256 << 20).groups(1)), (64, 2..4));
    assert_eq!((Regions::new(2 << 20).count(), Regions::new(2 << 20).all()), (1, 1));
    assert_eq!(Regions::new(64 << 20).all(), u64::from(u32::MAX));
    assert_eq!(Regions::new(128 << 20).all(), u64::MAX);
}

#[test]
fn a_copy_misses_no_region_that_there_is_not() {
    let one = Regions::new(2 << 20);
    assert_eq!(one.union(0, !1), 0, "all but its only region");
    assert_eq!(one.union(0, 1), 1);
    assert_eq!((one.union(1, u64::MAX), one.union(u64::MAX, 1)), (u64::MAX, u64::MAX), "everything");
    assert_eq!(Regions::new(128 << 20).union(1, 2), 3);
}
