use super::*;

const SPAN: Duration = Duration::from_secs(5);

#[test]
fn a_percentile_is_right_to_a_step() {
    for us in [1, 2, 3, 7, 100, 4095, 4096, 1_000_000, 11_700_000] {
        let took = Duration::from_micros(us);
        let end = most(bucket(us * 1000));
        assert!(end >= took && end <= took * 3 / 2 + Duration::from_micros(1), "{us}: {end:?}");
    }
    let start = Moment::START;
    let mut histogram = Histogram::new(SPAN);
    assert_eq!((histogram.percentile(50), histogram.mean()), (None, None));
    for n in 0..1000 {
        let ms = if n % 100 < 2 { 200 } else { 1 };
        histogram.add(ms * 1_000_000, start);
    }
    assert!(histogram.percentile(50) < Some(Duration::from_millis(2)));
    assert!(histogram.percentile(99) >= Some(Duration::from_millis(200)));
    assert_eq!((histogram.count(), histogram.mean()), (1000, Some(Duration::from_micros(4980))));
    histogram.roll(start.after(SPAN));
    histogram.add(0, start.after(SPAN));
    assert!(histogram.mean() < Some(Duration::from_micros(4980)), "the span before counts");
    histogram.roll(start.after(3 * SPAN));
    assert_eq!(histogram.mean(), None);
}

#[test]
fn what_is_old_is_forgotten() {
    let start = Moment::START;
    let mut histogram = Histogram::new(SPAN);
    histogram.add(1_000_000_000, start);
    histogram.roll(start.after(SPAN));
    assert_eq!(histogram.count(), 1, "the span before counts");
    histogram.roll(start.after(2 * SPAN));
    assert_eq!(histogram.count(), 0);
    histogram.add(1_000_000_000, start.after(2 * SPAN));
    histogram.roll(start.after(9 * SPAN));
    assert_eq!(histogram.count(), 0, "no query for long");
}
