use super::*;

#[test]
fn every_product_is_the_naive_one() {
    for by in 0..=255_u8 {
        let from: Vec<u8> = (0..=255).collect();
        let start = || (0..=255_u8).map(|x| x.wrapping_mul(7)).collect::<Vec<u8>>();
        let mut to = start();
        mul_add(&mut to, &from, by);
        for way in wide::Way::ALL {
            let mut other = start();
            let done = wide::mul_add_by(way, other.as_chunks_mut().0, from.as_chunks().0, by);
            assert!(!done || other == to, "{way:?}, times {by}");
        }
        let mut other = start();
        other.chunks_exact_mut(8).zip(from.chunks_exact(8)).for_each(|(t, f)| words::<1>(t, f, by));
        assert!(other == to, "word by word, times {by}");
        for x in 0..=255_u8 {
            assert_eq!(to[usize::from(x)], x.wrapping_mul(7) ^ naive(x, by), "{x} times {by}");
        }
        if by != 0 {
            assert_eq!(naive(by, inverse(by)), 1);
        }
    }
    assert_eq!((power(0), power(1), power(8), power(255)), (1, 2, 0x1d, 1));
}
