//! The counters of a disk or virtual disk, for `disk show` and `space show`.

use counters::{InstanceSnapshot, Snapshot, sample};
use serde::Serialize;

use crate::control::client::{ControlClient, ControlError};
use crate::control::storage::Allocation;
use crate::failure::Failure;
use crate::output::{Output, TableArgs, human_bytes, some};

/// The counters of one instance; `None` if no open disk or virtual disk has that name.
///
/// # Errors
/// See [`ControlError`].
pub(super) async fn counted(
    client: &ControlClient,
    set: &str,
    instance: &str,
) -> Result<Option<InstanceSnapshot>, ControlError> {
    let snapshot: Snapshot = client.get("/v1/counters").await?;
    Ok(counters::find(set).first().and_then(|set| sample::same(&snapshot, set, instance)).cloned())
}

/// Prints a disk or virtual disk: its properties, its counters, and where its parts are.
///
/// # Errors
/// Standard output's.
pub(super) fn show<T: Serialize>(
    out: Output,
    shown: &T,
    mut lines: Vec<(&'static str, String)>,
    counters: Option<&InstanceSnapshot>,
    allocations: &[Allocation],
    table: &TableArgs,
) -> Result<(), Failure> {
    lines.extend(counters.into_iter().flat_map(facts));
    out.facts(shown, &lines)?;
    if !out.json && !allocations.is_empty() {
        out.blank()?;
        out.list(allocations, table)?;
    }
    Ok(())
}

/// The counters as lines of facts.
fn facts(i: &InstanceSnapshot) -> Vec<(&'static str, String)> {
    let value = |name: &str| i.values.get(name).copied().unwrap_or(0);
    let io = |count: &str, bytes: Option<&str>, latency: &str| {
        let bytes = bytes.map_or_else(String::new, |b| format!(", {}", human_bytes(value(b))));
        let took = |percent| sample::latency(None, i, latency, percent).unwrap_or(0);
        match value(count) {
            0 => "none".to_owned(),
            n => format!("{n}{bytes}; median {}, 99 % within {}", human_ns(took(50)), human_ns(took(99))),
        }
    };
    let mut lines = vec![
        ("Reads", io("reads", Some("read_bytes"), "read_latency_ns")),
        ("Writes", io("writes", Some("written_bytes"), "write_latency_ns")),
        ("Flushes", io("flushes", None, "flush_latency_ns")),
        ("QueueLength", value("queue_length").to_string()),
        ("Errors", value("errors").to_string()),
        ("Retries", value("retries").to_string()),
    ];
    if i.values.contains_key("hedged_reads") {
        lines.push(("HedgedReads", value("hedged_reads").to_string()));
    }
    if i.values.contains_key("table_cache_hits") {
        let (hits, misses) = (value("table_cache_hits"), value("table_cache_misses"));
        lines.push((
            "TableCache",
            format!(
                "{}, {}",
                some(hits as usize, "hit"),
                match misses {
                    1 => "1 miss".to_owned(),
                    n => format!("{n} misses"),
                }
            ),
        ));
    }
    lines
}

/// `85 µs`, `1.9 ms`, `2.1 s`.
fn human_ns(ns: u64) -> String {
    match ns as f64 {
        n if n < 999.5e3 => format!("{:.0} µs", n / 1e3),
        n if n < 9.95e6 => format!("{:.1} ms", n / 1e6),
        n if n < 999.5e6 => format!("{:.0} ms", n / 1e6),
        n => format!("{:.1} s", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_that_suits_them() {
        let text = [0, 85_400, 999_499, 1_900_000, 96_470_000, 2_100_000_000].map(human_ns);
        assert_eq!(text, ["0 µs", "85 µs", "999 µs", "1.9 ms", "96 ms", "2.1 s"]);
    }
}
