use proptest::prelude::*;

use super::field::naive;
use super::*;

/// Byte by byte, as the module's formulas say.
fn by_formula(parity: usize, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let power = |n: usize| (0..n).fold(1, |p, _| naive(p, 2));
    let byte =
        |j: usize, at: usize| data.iter().enumerate().fold(0, |sum, (i, d)| sum ^ naive(power(i * j), d[at]));
    (0..parity).map(|j| (0..data[0].len()).map(|at| byte(j, at)).collect()).collect()
}

proptest! {
    #[test]
    fn whatever_two_are_lost_come_back(
        data in (2..=DATA_MAX).prop_flat_map(|k| {
            prop::collection::vec(prop::collection::vec(any::<u8>(), 72..73), k..=k)
        }),
        parity in 1..=PARITY_MAX,
        lost in any::<[prop::sample::Index; 2]>(),
        change in any::<(prop::sample::Index, u8)>(),
    ) {
        let units: Vec<Option<&[u8]>> = data.iter().map(|d| Some(&d[..])).collect();
        let mut encoded = encode(parity, 72, &units);
        prop_assert_eq!(&encoded, &by_formula(parity, &data));
        let whole: Vec<Option<Vec<u8>>> = data.iter().chain(&encoded).cloned().map(Some).collect();
        let mut holes = whole.clone();
        lost[..parity].iter().for_each(|l| holes[l.index(whole.len())] = None);
        prop_assert!(recover(data.len(), 72, &mut holes));
        prop_assert_eq!(&holes, &whole);
        // A change is its difference.
        let (column, to) = (change.0.index(data.len()), change.1);
        let difference: Vec<u8> = data[column].iter().map(|b| b ^ to).collect();
        encoded.iter_mut().enumerate().for_each(|(j, p)| add(j, column, &difference, p));
        let mut changed = data.clone();
        changed[column] = vec![to; 72];
        prop_assert_eq!(encoded, by_formula(parity, &changed));
    }
}

#[test]
fn one_too_many_is_said() {
    let mut columns: Vec<Option<Vec<u8>>> = vec![Some(vec![1; 8]), None, Some(vec![2; 8]), None];
    let before = columns.clone();
    assert!(!recover(3, 8, &mut columns) && columns == before);
    assert!(recover(2, 8, &mut columns));
}

#[test]
fn what_was_never_written_is_zeros() {
    let unit = vec![9; 8];
    let some = encode(2, 8, &[None, Some(&unit), None]);
    assert_eq!(some, encode(2, 8, &[Some(&[0; 8]), Some(&unit), Some(&[0; 8])]));
    assert_eq!((some[0][0], some[1][0]), (9, 18));
}
