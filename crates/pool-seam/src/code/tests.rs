use proptest::prelude::*;

use super::field::naive;
use super::*;

/// The codes that spaces use.
fn codes() -> Vec<Code> {
    let plain = (2..=DATA_MAX).flat_map(|k| [Code::new(k, 1, false), Code::new(k, 1, true)]);
    plain.chain((4..=14).step_by(2).map(|k| Code::new(k, 2, true))).collect()
}

fn lrc(data: usize) -> Code {
    Code::new(data, 2, true)
}

/// The generator matrix by definition: one row for each column, with the factors of the data columns.
fn matrix(code: Code) -> Vec<Vec<u8>> {
    let power = |n: usize| (0..n).fold(1, |p, _| naive(p, 2));
    let (data, size) = (code.data(), code.data() / code.groups);
    let unit = |c: usize| (0..data).map(|i| u8::from(i == c)).collect();
    let local = |g: usize| (0..data).map(|i| u8::from(i / size == g)).collect();
    let global = (0..code.global).map(|_| (0..data).map(power).collect());
    (0..data).map(unit).chain((0..code.groups).map(local)).chain(global).collect()
}

/// Computes the columns byte by byte from the matrix.
fn by_formula(code: Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let byte = |row: &[u8], at: usize| row.iter().zip(data).fold(0, |sum, (f, d)| sum ^ naive(*f, d[at]));
    let unit = |row: &Vec<u8>| (0..data[0].len()).map(|at| byte(row, at)).collect();
    matrix(code)[code.data()..].iter().map(unit).collect()
}

/// Whether these columns determine all data: Gaussian elimination finds as many independent rows. Products
/// are by long multiplication, quotients by trial.
fn tells(code: Code, have: u32) -> bool {
    let divide = |a: u8, b: u8| (0..=255).find(|q| naive(*q, b) == a).expect("b is not 0");
    let rows = matrix(code);
    let mut rows: Vec<Vec<u8>> = bits(have).map(|c| rows[c].clone()).collect();
    for at in 0..code.data() {
        let Some(pivot) = (at..rows.len()).find(|r| rows[*r][at] != 0) else { return false };
        rows.swap(at, pivot);
        let pivot = rows[at].clone();
        for row in rows.iter_mut().skip(at + 1).filter(|r| r[at] != 0) {
            let factor = divide(row[at], pivot[at]);
            row.iter_mut().zip(&pivot).for_each(|(r, p)| *r ^= naive(factor, *p));
        }
    }
    true
}

/// Every set of `size` columns, as a bitmask.
fn sets(columns: usize, size: u32) -> impl Iterator<Item = u32> {
    (0..1_u32 << columns).filter(move |s| s.count_ones() == size)
}

/// Some data and its parity.
fn whole(code: Code) -> Vec<Option<Vec<u8>>> {
    let byte = |c: usize, at: usize| (c * 37 + at * 11 + c * at * 3 + 1) as u8;
    let data: Vec<Vec<u8>> = (0..code.data()).map(|c| (0..8).map(|at| byte(c, at)).collect()).collect();
    let encoded = code.encode(8, &data.iter().map(|d| Some(&d[..])).collect::<Vec<_>>());
    assert_eq!(encoded, by_formula(code, &data));
    data.into_iter().chain(encoded).map(Some).collect()
}

fn without(whole: &[Option<Vec<u8>>], lost: u32) -> Vec<Option<Vec<u8>>> {
    let keep = |(c, unit): (usize, &Option<Vec<u8>>)| unit.clone().filter(|_| lost & 1 << c == 0);
    whole.iter().enumerate().map(keep).collect()
}

proptest! {
    #[test]
    fn whatever_two_are_lost_come_back(
        (code, data) in prop::sample::select(codes()).prop_flat_map(|code| {
            let data = prop::collection::vec(prop::collection::vec(any::<u8>(), 72..73), code.data()..=code.data());
            (Just(code), data)
        }),
        lost in any::<[prop::sample::Index; 2]>(),
        change in any::<(prop::sample::Index, u8)>(),
    ) {
        let units: Vec<Option<&[u8]>> = data.iter().map(|d| Some(&d[..])).collect();
        let mut encoded = code.encode(72, &units);
        prop_assert_eq!(&encoded, &by_formula(code, &data));
        let whole: Vec<Option<Vec<u8>>> = data.iter().chain(&encoded).cloned().map(Some).collect();
        let mut holes = whole.clone();
        lost[..=code.global].iter().for_each(|l| holes[l.index(whole.len())] = None);
        prop_assert!(code.recover(72, &mut holes, code.all()));
        prop_assert_eq!(&holes, &whole);
        // Adding the difference to the parity updates it.
        let (column, to) = (change.0.index(data.len()), change.1);
        let difference: Vec<u8> = data[column].iter().map(|b| b ^ to).collect();
        let touched = code.parities_of(1 << column);
        for (j, p) in encoded.iter_mut().enumerate().filter(|(j, _)| touched & 1 << (code.data() + j) != 0) {
            code.add(j, column, &difference, p);
        }
        let mut changed = data.clone();
        changed[column] = vec![to; 72];
        prop_assert_eq!(encoded, by_formula(code, &changed));
    }
}

/// LRC (8,2,1): for every set of lost columns, `decodes` agrees with Gaussian elimination, and `recover`
/// recovers exactly the decodable ones.
#[test]
fn every_loss_of_8_2_1_is_what_the_matrix_says() {
    let code = lrc(8);
    let whole = whole(code);
    let mut decodable = [0_usize; 12];
    for lost in 0..1_u32 << code.columns() {
        let can = tells(code, code.all() & !lost);
        assert_eq!(code.decodes(!lost), can, "{lost:#x}");
        let mut holes = without(&whole, lost);
        let before = holes.clone();
        assert_eq!(code.recover(8, &mut holes, code.all()), can, "{lost:#x}");
        assert_eq!(&holes, if can { &whole } else { &before }, "{lost:#x}");
        decodable[lost.count_ones() as usize] += usize::from(can);
    }
    // Decodable are all 11 single columns, all 55 pairs, 125 of 165 triples, and none of 330 sets of four.
    assert_eq!(decodable[..5], [1, 11, 55, 125, 0]);
    assert!(decodable[5..].iter().all(|n| *n == 0));
}

/// All other codes: every set of up to four lost columns; no code of one or two groups survives more.
#[test]
fn every_loss_of_other_codes_is_what_the_matrix_says() {
    for code in codes() {
        let whole = whole(code);
        let promised = code.global + 1;
        for size in 0..=4_u32.min(code.columns() as u32) {
            for lost in sets(code.columns(), size) {
                let can = tells(code, code.all() & !lost);
                assert!(can || size as usize > promised, "{code:?} {lost:#x}");
                assert_eq!(code.decodes(!lost), can, "{code:?} {lost:#x}");
                let mut holes = without(&whole, lost);
                assert_eq!(code.recover(8, &mut holes, code.all()), can, "{code:?} {lost:#x}");
                assert!(!can || holes == whole, "{code:?} {lost:#x}");
            }
        }
    }
}

/// Compares `spare` with trying every further loss.
#[test]
fn what_can_be_spared_is_what_every_further_loss_leaves() {
    for code in [Code::new(3, 1, false), Code::new(2, 1, true), Code::new(5, 1, true), lrc(4), lrc(8)] {
        let columns = code.columns();
        for lost in (0..1_u32 << columns).filter(|l| l.count_ones() < 5) {
            let holds =
                |more: u32| sets(columns, more).filter(|s| s & lost == 0).all(|s| code.decodes(!(lost | s)));
            let spare = (0..4).take_while(|more| holds(*more)).count().checked_sub(1);
            assert_eq!(code.spare(!lost), spare, "{code:?} {lost:#x}");
        }
    }
}

/// One lost unit is computed from its group without the rest of the stripe.
#[test]
fn a_group_makes_its_own() {
    for code in [lrc(4), lrc(8), lrc(12)] {
        let whole = whole(code);
        for column in 0..code.columns() {
            let near = code.near(column).expect("it has groups");
            let global = column == code.columns() - 1;
            assert_eq!(
                near.count_ones() as usize,
                if global { code.data() + 1 } else { code.data() / 2 + 1 }
            );
            let mut holes = without(&whole, !near | 1 << column);
            assert!(code.recover(8, &mut holes, near), "{code:?} {column}");
            assert_eq!(holes[column], whole[column], "{code:?} {column}");
            // With one column less it cannot be recovered, and nothing is filled in.
            for other in bits(near & !(1 << column)) {
                let mut holes = without(&whole, !near | 1 << column | 1 << other);
                let before = holes.clone();
                assert!(!code.recover(8, &mut holes, near) && holes == before, "{code:?} {column} {other}");
            }
        }
    }
    assert_eq!(Code::new(8, 1, true).near(0), None);
}

#[test]
fn which_parity_has_which_data() {
    let code = lrc(8);
    assert_eq!((code.covers(2), code.covers(8), code.covers(9), code.covers(10)), (4, 0x0f, 0xf0, 0xff));
    assert_eq!(code.parities_of(1), 1 << 8 | 1 << 10);
    assert_eq!(code.parities_of(1 << 7), 1 << 9 | 1 << 10);
    assert_eq!(code.parities_of(0x18), 7 << 8);
    assert_eq!((code.parities_of(0), Code::new(3, 1, true).parities_of(2)), (0, 0x18));
}

#[test]
fn one_too_many_is_said() {
    let mut columns: Vec<Option<Vec<u8>>> = vec![Some(vec![1; 8]), None, Some(vec![2; 8]), None];
    let before = columns.clone();
    let single = Code::new(3, 1, false);
    assert!(!single.recover(8, &mut columns, single.all()) && columns == before);
    let dual = Code::new(2, 1, true);
    assert!(dual.recover(8, &mut columns, dual.all()));
}

#[test]
fn what_was_never_written_is_zeros() {
    let unit = vec![9; 8];
    let dual = Code::new(3, 1, true);
    let some = dual.encode(8, &[None, Some(&unit), None]);
    assert_eq!(some, dual.encode(8, &[Some(&[0; 8]), Some(&unit), Some(&[0; 8])]));
    assert_eq!((some[0][0], some[1][0]), (9, 18));
}
