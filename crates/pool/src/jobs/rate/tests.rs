use super::*;

#[test]
fn steady_then_still() {
    let mut rate = Rate::default();
    let begin = tokio::time::Instant::now().into_std();
    assert_eq!(rate.per_second(begin), 0);
    let mut now = begin;
    for _ in 0..3000 {
        rate.add(1000, now);
        now += Duration::from_millis(10);
    }
    let per_second = rate.per_second(now);
    assert!((99_000..=101_000).contains(&per_second), "{per_second}");
    assert!(rate.steps.len() <= 21);
    assert_eq!(rate.per_second(now + WINDOW * 2), 0);
}
