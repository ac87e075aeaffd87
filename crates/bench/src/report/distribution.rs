//! Distributions of random I/O: requested and effective.

use std::collections::{BTreeMap, BTreeSet};

use super::size::padded;
use crate::engine::SpanResults;
use crate::profile::{Distribution, Range, Unit};

/// The lines of a distribution, each prefixed by `indent`.
pub(super) fn lines(distribution: &Distribution, indent: &str) -> String {
    let mut out = String::new();
    match distribution.unit {
        Unit::Percent => {
            for r in &distribution.ranges {
                let end = r.start + r.length;
                let line = format!(
                    "{indent}   {:3}% of IO => [{:2}% - {end:3}%) of target\n",
                    r.io_percent, r.start
                );
                out.push_str(&line);
            }
        }
        Unit::Absolute => {
            let sum: u32 = distribution.ranges.iter().map(|r| r.io_percent).sum();
            for r in &distribution.ranges {
                let share = if sum < 100 {
                    format!("    {:.1}", 100.0 * f64::from(r.io_percent) / f64::from(sum.max(1)))
                } else {
                    format!("   {:3}", r.io_percent)
                };
                let from = if r.start == 0 { "     0   ".to_owned() } else { padded(r.start, 6) };
                let to = if r.length == 0 { "      end".to_owned() } else { padded(r.start + r.length, 6) };
                out.push_str(&format!("{indent}{share}% of IO => [{from} - {to})\n"));
            }
        }
    }
    out
}

/// The effective distributions, each with the targets and threads that used it; empty if there are none.
pub(super) fn effective(span: &SpanResults) -> String {
    let mut used: BTreeMap<&[Range], BTreeMap<&str, BTreeSet<usize>>> = BTreeMap::new();
    for (number, thread) in span.threads.iter().enumerate() {
        for target in thread.targets.iter().filter(|t| !t.distribution.is_empty()) {
            let targets = used.entry(&target.distribution).or_default();
            targets.entry(&target.path).or_default().insert(number);
        }
    }
    let mut out = String::new();
    for (n, (ranges, targets)) in used.iter().enumerate() {
        if n == 0 {
            out.push_str("\nEffective IO Distributions\n--------------------------\n");
        }
        for (path, threads) in targets {
            out.push_str(&format!("target: {path} [thread:{}]\n", runs(threads)));
        }
        out.push_str(&lines(&Distribution { unit: Unit::Absolute, ranges: ranges.to_vec() }, ""));
    }
    out
}

/// Formats numbers; the middle of three or more consecutive ones is replaced by ` -`.
fn runs(numbers: &BTreeSet<usize>) -> String {
    let mut out = String::new();
    let mut run: Option<(usize, usize)> = None;
    let mut end = |run: Option<(usize, usize)>| {
        if let Some((first, last)) = run {
            out.push_str(&format!(" {first}"));
            match last - first {
                0 => {}
                1 => out.push_str(&format!(" {last}")),
                _ => out.push_str(&format!(" - {last}")),
            }
        }
    };
    for &n in numbers {
        run = match run {
            Some((first, last)) if last + 1 == n => Some((first, n)),
            other => {
                end(other);
                Some((n, n))
            }
        };
    }
    end(run);
    out
}
