use super::*;

const MS: u64 = 1_000_000;

#[test]
fn a_short_queue_counts_where_there_was_one() {
    let (mut recent_latencies, now) = (RecentLatencies::new(), Moment::START);
    for _ in 0..SAMPLES {
        recent_latencies.add(100 * MS, false, now);
    }
    recent_latencies.add(2 * MS, true, now);
    let latency = recent_latencies.latency(now, SAMPLES).expect("there were enough");
    assert!(latency.crowded && latency.mean > Duration::from_millis(90), "{latency:?}");
    assert!(recent_latencies.latency(now, 1).is_some_and(|l| l.crowded), "one of many");
    let mut few = RecentLatencies::new();
    few.add(2 * MS, true, now);
    assert!(few.latency(now, 1).is_some_and(|l| !l.crowded && l.mean == Duration::from_millis(2)));
    assert_eq!(few.latency(now, SAMPLES), None);
    for _ in 1..SAMPLES {
        recent_latencies.add(2 * MS, true, now);
    }
    let latency = recent_latencies.latency(now, SAMPLES).expect("there were enough");
    assert_eq!((latency.crowded, latency.mean), (false, Duration::from_millis(2)));
    assert_eq!(recent_latencies.latency(now.after(2 * SPAN), 1), None);
}
