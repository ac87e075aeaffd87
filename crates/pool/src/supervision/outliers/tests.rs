use super::*;

const MS: Duration = Duration::from_millis(1);

/// Disks whose I/Os all took this many milliseconds.
fn disks_io(took: &[u32]) -> BTreeMap<DiskNumber, RecentIo> {
    of_both(took.iter().map(|ms| (*ms, *ms)))
}

/// Disks with these medians and means, in milliseconds.
fn of_both(both: impl Iterator<Item = (u32, u32)>) -> BTreeMap<DiskNumber, RecentIo> {
    let io = |(median, mean)| {
        let latency = Latency { median: MS * median, mean: MS * mean, crowded: false };
        let longest = MS * median.max(mean);
        RecentIo { reads: Some(latency), longest, longest_short: longest, ..RecentIo::default() }
    };
    (0..).map(DiskNumber).zip(both.map(io)).collect()
}

#[test]
fn an_outlier_is_slow_after_three_spans_and_well_when_it_has_been_for_as_long() {
    let mut s = OutlierScores::default();
    let bad = disks_io(&[4, 5, 80, 6]);
    assert!(s.span(&bad).slow.is_empty() && s.span(&bad).slow.is_empty());
    let result = s.span(&bad);
    let why = Slowness { median: MS * 80, peers: MS * 5, longest: MS * 80, crowded: false };
    assert_eq!(result, SpanResult { slow: [(DiskNumber(2), why)].into(), to_remove: Vec::new() });
    // Between the two factors nothing changes, for any time.
    for _ in 0..50 {
        assert_eq!(s.span(&disks_io(&[4, 5, 30, 6])).slow.len(), 1);
    }
    let well = disks_io(&[4, 5, 6, 6]);
    assert_eq!((s.span(&well).slow.len(), s.span(&well).slow.len()), (1, 1));
    assert_eq!(s.span(&well), SpanResult::default());
}

#[test]
fn a_minute_of_it_and_it_should_leave() {
    let mut s = OutlierScores::default();
    let spans = (1..).find(|_| !s.span(&disks_io(&[4, 5, 80])).to_remove.is_empty());
    assert_eq!(spans, Some(REMOVAL_POINTS));
    assert!(SPAN * REMOVAL_POINTS == Duration::from_secs(60));
}

#[test]
fn what_all_have_is_nobodys_fault() {
    let mut s = OutlierScores::default();
    for _ in 0..50 {
        assert_eq!(s.span(&disks_io(&[80, 85, 90, 90])), SpanResult::default());
        // Both disks were slow at the same time.
        assert_eq!(s.span(&disks_io(&[4000, 4000])), SpanResult::default());
        // Short latencies are harmless, whatever the peers'.
        assert_eq!(s.span(&disks_io(&[1, 1, 20])), SpanResult::default());
    }
    // Disks of other media are no peers.
    let mut mixed = disks_io(&[1, 1, 80]);
    mixed.get_mut(&DiskNumber(2)).expect("it is there").media = 3;
    (0..50).for_each(|_| assert_eq!(s.span(&mixed), SpanResult::default()));
}

#[test]
fn who_does_as_much_as_its_peers_is_well() {
    let mut s = OutlierScores::default();
    for _ in 0..50 {
        // I/Os of 4 and of 100 ms, in bursts. On two disks slightly more than half of the I/Os waited, on the other
        // two slightly less.
        let bursts = of_both([(4, 48), (4, 50), (100, 56), (100, 54)].into_iter());
        assert_eq!(s.span(&bursts), SpanResult::default());
        // One I/O of 2.9 s among a hundred.
        let one = of_both([(4, 4), (4, 4), (4, 33), (4, 4)].into_iter());
        assert_eq!(s.span(&one), SpanResult::default());
    }
}

#[test]
fn a_long_queue_is_told_after_a_minute_and_no_reason_to_leave() {
    let (mut s, disk) = (OutlierScores::default(), DiskNumber(1));
    let alone = disks_io(&[1, 80, 1]);
    let mut crowded = alone.clone();
    crowded.get_mut(&disk).and_then(|l| l.reads.as_mut()).expect("it is there").crowded = true;
    let spans = (1..).find(|_| !s.span(&crowded).slow.is_empty());
    assert_eq!(spans, Some(REMOVAL_POINTS));
    for _ in 0..50 {
        let result = s.span(&crowded);
        assert!(result.slow[&disk].crowded && result.to_remove.is_empty());
    }
    // One span without crowding is not enough either. After three such spans the disk is certainly slow, and after a
    // minute of them it should be removed.
    let sure: Vec<_> = (0..REMOVAL_POINTS).map(|_| s.span(&alone)).collect();
    let from = |is: &dyn Fn(&SpanResult) -> bool| sure.iter().position(is).map(|at| at as u32 + 1);
    assert_eq!(from(&|v| !v.slow[&disk].crowded), Some(SLOW_POINTS));
    assert_eq!(from(&|v| v.to_remove == [disk]), Some(REMOVAL_POINTS));
}

#[test]
fn what_another_medium_has_in_common_is_no_excuse() {
    let mut s = OutlierScores::default();
    let mut mixed = disks_io(&[4000, 4000, 4000, 1, 1, 1]);
    for disk in 2..6 {
        mixed.get_mut(&DiskNumber(disk)).expect("it is there").media = 3;
    }
    let slow: Vec<_> = s.span(&mixed).slow.into_keys().collect();
    assert_eq!(slow, [DiskNumber(2)], "one of four; the other two are all there are of theirs");
}

#[test]
fn one_io_of_seconds_is_enough() {
    let mut s = OutlierScores::default();
    let mut one = disks_io(&[1, 1, 1]);
    one.get_mut(&DiskNumber(1)).expect("it is there").longest = Duration::from_millis(11_700);
    // In a long queue, one slow I/O counts no more than a bad span.
    let mut queued = OutlierScores::default();
    let spans: Vec<_> = (0..2 * REMOVAL_POINTS).map(|_| queued.span(&one)).collect();
    assert!(spans.iter().all(|v| v.to_remove.is_empty() && v.slow.values().all(|why| why.crowded)));
    assert_eq!(spans.iter().position(|v| !v.slow.is_empty()), Some(REMOVAL_POINTS as usize - 1));
    one.get_mut(&DiskNumber(1)).expect("it is there").longest_short = Duration::from_millis(11_700);
    let result = s.span(&one);
    assert_eq!(result.slow[&DiskNumber(1)].longest, Duration::from_millis(11_700));
    assert!(result.to_remove.is_empty());
    for _ in 0..2 {
        assert!(s.span(&one).to_remove.is_empty());
    }
    assert_eq!(s.span(&one).to_remove, [DiskNumber(1)]);
    // A span without I/O changes nothing.
    let idle: BTreeMap<_, _> = (0..3).map(|d| (DiskNumber(d), RecentIo::default())).collect();
    assert_eq!(s.span(&idle).slow.len(), 1);
}
