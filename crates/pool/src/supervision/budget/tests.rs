use super::*;

#[test]
fn never_more_than_two_percent_and_not_all_at_once() {
    let mut budget = Budget::default();
    assert!(!budget.take(READS_FOR_ONE - 1));
    let mut hedged = 0;
    for reads in READS_FOR_ONE..10_000 {
        hedged += u64::from(budget.take(reads));
        assert!(hedged * READS_FOR_ONE <= reads);
    }
    assert_eq!(hedged, 199);
    // After a long time without hedged reads, no more than `SAVED_MAX` are allowed.
    let burst = (0..1000).filter(|_| budget.take(1_000_000)).count();
    assert_eq!(burst as u64, SAVED_MAX);
}
