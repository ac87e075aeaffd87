use proptest::prelude::*;

use super::*;
use crate::profile::Distribution;

const K: u64 = 1024;

fn target(block: u64) -> Target {
    Target { block: block as u32, ..Target::default() }
}

fn take(t: &Target, size: u64, relative: u32, count: usize) -> Vec<(u64, Kind)> {
    let shared = Arc::new(AtomicU64::new(0));
    let mut random = Random::new(7);
    let mut offsets = Offsets::new(t, size, relative, &shared, &mut random).expect("large enough");
    let mut last = None;
    (0..count).map(|_| offsets.next(&mut random, &mut last)).collect()
}

fn at(t: &Target, size: u64, relative: u32, count: usize) -> Vec<u64> {
    take(t, size, relative, count).into_iter().map(|(o, _)| o).collect()
}

#[test]
fn sequential_strides_and_wraps() {
    assert_eq!(at(&target(4 * K), 12 * K, 0, 4), [0, 4 * K, 8 * K, 0]);
    let t = Target { alignment: 8 * K, ..target(4 * K) };
    assert_eq!(at(&t, 20 * K, 0, 4), [0, 8 * K, 16 * K, 0]);
    let t = Target { base: 4 * K, max_size: 12 * K, ..target(4 * K) };
    assert_eq!(at(&t, 100 * K, 0, 3), [4 * K, 8 * K, 4 * K]);
    let t = Target { thread_stride: 8 * K, threads_per_file: 2, ..target(4 * K) };
    assert_eq!(at(&t, 16 * K, 1, 3), [8 * K, 12 * K, 0]);
}

#[test]
fn interlocked_threads_share_one_stream() {
    let t = Target { interlocked: true, threads_per_file: 2, ..target(4 * K) };
    let shared = Arc::new(AtomicU64::new(0));
    let mut random = Random::new(1);
    let mut a = Offsets::new(&t, 16 * K, 0, &shared, &mut random).expect("fits");
    let mut b = Offsets::new(&t, 16 * K, 1, &shared, &mut random).expect("fits");
    let mut all: Vec<u64> = Vec::new();
    for _ in 0..2 {
        all.push(a.next(&mut random, &mut None).0);
        all.push(b.next(&mut random, &mut None).0);
    }
    assert_eq!(all, [0, 4 * K, 8 * K, 12 * K]);
    assert_eq!(a.next(&mut random, &mut None).0, 0);
}

#[test]
fn parallel_slots_go_through_the_same_offsets() {
    let t = Target { parallel: true, ..target(4 * K) };
    let mut random = Random::new(1);
    let mut offsets = Offsets::new(&t, 8 * K, 0, &Arc::default(), &mut random).expect("fits");
    let (mut a, mut b) = (None, None);
    let mut next = |slot: &mut Option<u64>| offsets.next(&mut random, slot).0;
    assert_eq!(
        [next(&mut a), next(&mut b), next(&mut a), next(&mut a), next(&mut b)],
        [0, 0, 4 * K, 0, 4 * K]
    );
}

#[test]
fn the_same_seed_gives_the_same_sequence() {
    let t = Target { random_percent: 100, write_percent: 30, ..target(4 * K) };
    assert_eq!(take(&t, 1 << 30, 0, 1000), take(&t, 1 << 30, 0, 1000));
    let writes = take(&t, 1 << 30, 0, 10_000).iter().filter(|(_, k)| *k == Kind::Write).count();
    assert!((2_700..3_300).contains(&writes), "{writes}");
}

#[test]
fn mixed_runs_are_sequential_and_of_one_kind() {
    let t = Target { random_percent: 20, write_percent: 50, alignment: 4 * K, ..target(4 * K) };
    let ios = take(&t, 1 << 30, 0, 20_000);
    let follows = |w: &&[(u64, Kind)]| w[1].0 == w[0].0 + 4 * K;
    let runs: Vec<_> = ios.windows(2).filter(follows).collect();
    assert!((15_500..16_500).contains(&runs.len()), "{}", runs.len());
    assert!(runs.iter().all(|w| w[0].1 == w[1].1));
}

#[test]
fn a_distribution_is_kept() {
    let d = Distribution::new(Unit::Percent, &[(90, 10), (0, 10), (5, 20)]);
    let t = Target { random_percent: 100, distribution: Some(d), ..target(4 * K) };
    let size = 1000 * 4 * K;
    let ios = at(&t, size, 0, 100_000);
    let share = |from: u64, to: u64| {
        let n = ios.iter().filter(|o| **o >= size * from / 100 && **o < size * to / 100).count();
        n as f64 / 1000.0
    };
    assert!((89.0..91.0).contains(&share(0, 10)));
    assert_eq!(share(10, 20), 0.0);
    assert!((4.5..5.5).contains(&share(20, 40)));
    assert!((4.5..5.5).contains(&share(40, 100)));
}

#[test]
fn absolute_parts_beyond_the_end_are_dropped() {
    let d = Distribution::new(Unit::Absolute, &[(90, 1 << 20), (0, 1 << 20), (5, 1 << 20)]);
    let t = Target { random_percent: 100, distribution: Some(d), ..target(4 * K) };
    let offsets = Offsets::new(&t, 2 << 20, 0, &Arc::default(), &mut Random::new(1)).expect("fits");
    assert_eq!(offsets.effective(), [Range { io_percent: 90, start: 0, length: 1 << 20 }]);
    assert!(at(&t, 2 << 20, 0, 1000).iter().all(|o| *o < 1 << 20));
}

#[test]
fn a_target_too_small_is_refused() {
    let small = |t: &Target, size, relative| {
        Offsets::new(t, size, relative, &Arc::default(), &mut Random::new(1)).is_err()
    };
    assert!(small(&target(4 * K), 4095, 0));
    assert!(!small(&target(4 * K), 4096, 0));
    assert!(small(&Target { base: 8 * K, ..target(4 * K) }, 4 * K, 0));
    assert!(small(&Target { thread_stride: 8 * K, ..target(4 * K) }, 8 * K, 1));
}

proptest! {
    /// Whatever the pattern, a block stays within the range of its target.
    #[test]
    fn blocks_stay_within_the_target(
        block in 1u64..100_000, align in 0u64..50_000, size in 1u64..2_000_000, base in 0u64..10_000,
        max in 0u64..2_000_000, random_percent in 0u32..=100, stride in 0u64..70_000, relative in 0u32..4,
        parallel: bool, interlocked: bool, parts in proptest::option::of(proptest::collection::vec((0u32..50, 1u64..100_000), 1..5)),
    ) {
        let distribution = parts.filter(|_| random_percent > 0).map(|p| Distribution::new(Unit::Absolute, &p));
        let t = Target {
            block: block as u32, alignment: align, base, max_size: max, random_percent, thread_stride: stride,
            parallel, interlocked, distribution, ..Target::default()
        };
        let end = if max == 0 { size } else { size.min(max) };
        let mut random = Random::new(3);
        if let Ok(mut offsets) = Offsets::new(&t, size, relative, &Arc::default(), &mut random) {
            let mut last = None;
            for _ in 0..200 {
                let (offset, _) = offsets.next(&mut random, &mut last);
                prop_assert!(offset >= base && offset + block <= end, "{offset}");
            }
        }
    }
}
