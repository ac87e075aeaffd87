use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..3_u16, 0..300_u32), 0..400)) {
        let (mut used, mut model) = (Used::default(), BTreeSet::new());
        for (insert, disk, slab) in steps {
            let place = SlabPlace { disk: DiskNumber(disk), slab };
            match insert {
                true => prop_assert_eq!(used.insert(place), model.insert(place)),
                false => {
                    used.remove(place);
                    model.remove(&place);
                }
            }
        }
        prop_assert_eq!(used.total(), model.len());
        for disk in (0..4).map(DiskNumber) {
            let mine: Vec<u32> = model.iter().filter(|p| p.disk == disk).map(|p| p.slab).collect();
            prop_assert_eq!(used.of(disk).collect::<Vec<_>>(), mine.clone());
            prop_assert_eq!(used.count(disk) as usize, mine.len());
            for total in [0, 64, 250, 300] {
                let free: Vec<u32> = (0..total).filter(|s| !mine.contains(s)).collect();
                prop_assert_eq!(used.free(disk, total).collect::<Vec<_>>(), free);
            }
        }
        let again = model.iter().fold(Used::default(), |mut u, p| { u.insert(*p); u });
        prop_assert_eq!(used, again);
    }
}
