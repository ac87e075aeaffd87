use super::*;

#[test]
fn records_since_the_checkpoint_never_overlap() {
    let mut ring = Ring::new(64, 0);
    let mut kept: Vec<(u64, u64)> = Vec::new();
    for step in 0..1000_u64 {
        let size = 4 * (1 + step % 5);
        match ring.take(size) {
            None => {
                assert!(ring.used + 2 * size >= 64, "a record and what is skipped for it do not fit");
                ring.clear();
                kept.clear();
            }
            Some(at) => {
                assert!(at + size <= 64);
                assert!(kept.iter().all(|(a, s)| at + size <= *a || a + s <= at), "{kept:?} {at}+{size}");
                kept.push((at, size));
            }
        }
    }
}
