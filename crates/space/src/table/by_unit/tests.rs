use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn as_an_ordered_map(changes in prop::collection::vec((0..12_usize, 0..4_u8), 0..200)) {
        let (mut map, mut model) = (ByUnit::new(), std::collections::BTreeMap::new());
        for (number, (unit, change)) in changes.into_iter().enumerate() {
            let unit = unit * 46;
            match change {
                0 => {
                    map.remove(unit);
                    model.remove(&unit);
                }
                1 => {
                    map.retain(|unit, value| (unit + *value) % 3 != 0);
                    model.retain(|unit, value| (unit + *value) % 3 != 0);
                }
                _ => {
                    let value = map.get_or_insert_with(unit, || number);
                    prop_assert_eq!(&*value, model.entry(unit).or_insert(number));
                }
            }
            prop_assert!(map.iter().eq(model.iter().map(|(unit, value)| (*unit, value))));
            prop_assert_eq!((map.get(unit), map.has(unit)), (model.get(&unit), model.contains_key(&unit)));
            prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
        }
    }
}
