//! Assigns targets to threads, in DiskSPD's two ways.
//!
//! Without `-F` each target has its own threads. With `-F` each thread uses all targets, with `-o`
//! outstanding I/Os on each or, with `-O`, in total.

use crate::profile::{Affinity, TimeSpan};

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadPlan {
    /// Its number in the whole run.
    pub number: u32,
    /// Its number among the threads of its target.
    pub relative: u32,
    /// Its targets by index, each with its weight in a pool (else 0).
    pub lanes: Vec<(usize, u64)>,
    /// Its processor.
    pub affinity: Option<Affinity>,
}

/// The threads of a time span; `processors` are those that the system allows.
pub(super) fn threads(span: &TimeSpan, processors: &[Affinity]) -> Vec<ThreadPlan> {
    let mut threads = Vec::new();
    if span.thread_count > 0 {
        for number in 0..span.thread_count {
            let lanes = (0..span.targets.len()).filter_map(|t| weight(span, t, number).map(|w| (t, w)));
            threads.push(ThreadPlan { number, relative: number, lanes: lanes.collect(), affinity: None });
        }
        threads.retain(|t| !t.lanes.is_empty());
    } else {
        for (n, target) in span.targets.iter().enumerate() {
            for relative in 0..target.threads_per_file {
                let number = threads.len() as u32;
                threads.push(ThreadPlan { number, relative, lanes: vec![(n, 0)], affinity: None });
            }
        }
    }
    let assigned = if span.affinity.is_empty() { processors } else { &span.affinity };
    if !span.disable_affinity && !assigned.is_empty() {
        for thread in &mut threads {
            thread.affinity = Some(assigned[thread.number as usize % assigned.len()]);
        }
    }
    threads
}

/// The weight of a target on a thread of the pool; 0 without a pool. Returns `None` if the thread does not
/// use the target.
fn weight(span: &TimeSpan, target: usize, thread: u32) -> Option<u64> {
    let target = &span.targets[target];
    if !span.pooled() {
        return Some(0);
    }
    if target.thread_targets.is_empty() {
        return Some(target.weight.max(1).into());
    }
    let mine = target.thread_targets.iter().find(|t| t.thread == thread)?;
    Some(if mine.weight == 0 { target.weight.max(1) } else { mine.weight }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Target, ThreadTarget};

    fn cpus(n: u8) -> Vec<Affinity> {
        (0..n).map(|processor| Affinity { group: 0, processor }).collect()
    }

    #[test]
    fn threads_of_targets() {
        let two = Target { threads_per_file: 2, ..Target::default() };
        let span = TimeSpan { targets: vec![two.clone(), two], ..TimeSpan::default() };
        let plan = threads(&span, &cpus(3));
        let short: Vec<_> = plan.iter().map(|t| (t.number, t.relative, t.lanes[0].0)).collect();
        assert_eq!(short, [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)]);
        assert_eq!(plan[3].affinity, Some(Affinity { group: 0, processor: 0 }));
        let span = TimeSpan { disable_affinity: true, ..span };
        assert_eq!(threads(&span, &cpus(3))[0].affinity, None);
    }

    #[test]
    fn a_pool_with_weights() {
        let all = Target { weight: 3, ..Target::default() };
        let one = Target { thread_targets: vec![ThreadTarget { thread: 1, weight: 7 }], ..Target::default() };
        let span =
            TimeSpan { thread_count: 2, request_count: 8, targets: vec![all, one], ..TimeSpan::default() };
        let plan = threads(&span, &[]);
        assert_eq!(plan[0].lanes, [(0, 3)]);
        assert_eq!(plan[1].lanes, [(0, 3), (1, 7)]);
        let span = TimeSpan { request_count: 0, ..span };
        assert_eq!(threads(&span, &[])[0].lanes, [(0, 0), (1, 0)]);
    }
}
