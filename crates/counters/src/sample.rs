//! Computes the values of Windows's counters from two snapshots, as Windows does.

use crate::io::middle_of;
use crate::{Counter, Formula, InstanceSnapshot, Set, Snapshot, Unit};

/// The value of a counter. Returns `None` if it needs two snapshots and the earlier one lacks the instance.
pub fn value(
    set: &Set,
    counter: &Counter,
    earlier: Option<(&Snapshot, &InstanceSnapshot)>,
    later: (&Snapshot, &InstanceSnapshot),
) -> Option<f64> {
    let now = |metrics: &[&str]| sum(later.1, metrics);
    if let Formula::Value(metrics) = counter.formula {
        return Some(now(metrics)? as f64);
    }
    if let Formula::Percent(of, base) = counter.formula {
        let (of, base) = (now(of)?, now(base)?);
        return Some(if base == 0 { 0.0 } else { 100.0 * of as f64 / base as f64 });
    }
    let (before, old) = earlier?;
    let seconds = later.0.at_ns.checked_sub(before.at_ns).filter(|n| *n > 0)? as f64 / 1e9;
    // A new instance with an old name has started from zero.
    let grown = |metrics: &[&str]| {
        let (old, new) = (sum(old, metrics)?, now(metrics)?);
        Some((if new >= old { new - old } else { new }) as f64)
    };
    match counter.formula {
        Formula::Value(_) | Formula::Percent(..) => None,
        Formula::Percentile(metric, percent) => {
            latency(Some(old), later.1, metric, percent).map(|ns| ns as f64 / 1e9)
        }
        Formula::Rate(metrics) => Some(grown(metrics)? / seconds),
        Formula::Queue(metrics) => Some(grown(metrics)? / 1e9 / seconds),
        Formula::Average(of, base) => {
            let base = grown(base)?;
            let scale = if is_time(set, of) { 1e9 } else { 1.0 };
            Some(if base == 0.0 { 0.0 } else { grown(of)? / scale / base })
        }
    }
}

/// The latency in nanoseconds that `percent` percent of the I/Os between two snapshots did not exceed; of all
/// I/Os if `old` is `None`. 0 if there were no I/Os.
pub fn latency(
    old: Option<&InstanceSnapshot>,
    new: &InstanceSnapshot,
    metric: &str,
    percent: u8,
) -> Option<u64> {
    let (new, old) = (new.latencies.get(metric)?, old.and_then(|o| o.latencies.get(metric)));
    // A new instance has started from zero.
    let old = old.filter(|o| o.values().sum::<u64>() <= new.values().sum());
    let before = |ns: &u64| old.and_then(|o| o.get(ns)).copied().unwrap_or(0);
    let counts: Vec<(u64, u64)> = new.iter().map(|(ns, n)| (*ns, n.saturating_sub(before(ns)))).collect();
    let wanted = (counts.iter().map(|(_, n)| n).sum::<u64>() * u64::from(percent)).div_ceil(100).max(1);
    let mut seen = 0;
    let reached = |(_, n): &&(u64, u64)| {
        seen += n;
        seen >= wanted
    };
    Some(counts.iter().find(reached).map_or(0, |(ns, _)| middle_of(*ns)))
}

/// The instance of the same name in another snapshot.
pub fn same<'a>(snapshot: &'a Snapshot, set: &Set, instance: &str) -> Option<&'a InstanceSnapshot> {
    snapshot.of(set).iter().find(|i| i.instance == instance)
}

fn sum(instance: &InstanceSnapshot, metrics: &[&str]) -> Option<u64> {
    metrics.iter().map(|m| instance.values.get(*m).copied()).try_fold(0u64, |s, v| Some(s.wrapping_add(v?)))
}

fn is_time(set: &Set, metrics: &[&str]) -> bool {
    metrics.iter().all(|m| set.metric(m).is_some_and(|m| m.unit == Unit::Nanoseconds))
}

#[cfg(test)]
mod tests;
