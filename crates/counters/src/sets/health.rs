//! Storage Health, a set without a Windows counterpart.

use super::{Counter, Formula, Metric, Set, Unit, count, counter, gauge};
use crate::Cell;

/// Faults raised since the process started.
pub const RAISED: Cell = Cell(0);
/// Faults that ended.
pub const CLEARED: Cell = Cell(1);
/// Current faults by severity: 4 information, 5 warning, 6 error.
pub const NOW: [Cell; 3] = [Cell(2), Cell(3), Cell(4)];

static METRICS: [Metric; 5] = [
    count("raised_faults", Unit::Count, |v, _| v[RAISED.0 as usize], "Faults raised"),
    count("cleared_faults", Unit::Count, |v, _| v[CLEARED.0 as usize], "Faults cleared"),
    gauge("information_faults", |v, _| v[NOW[0].0 as usize], "Present faults that need no action"),
    gauge(
        "warning_faults",
        |v, _| v[NOW[1].0 as usize],
        "Present faults that need action before another failure",
    ),
    gauge(
        "error_faults",
        |v, _| v[NOW[2].0 as usize],
        "Present faults that make data unavailable, or that lose data",
    ),
];

static COUNTERS: [Counter; 5] = [
    counter("Faults Raised/sec", Formula::Rate(&["raised_faults"]), "1/s", "Faults raised"),
    counter("Faults Cleared/sec", Formula::Rate(&["cleared_faults"]), "1/s", "Faults cleared"),
    counter(
        "Current Information",
        Formula::Value(&["information_faults"]),
        "",
        "Present faults of severity 4 (Information)",
    ),
    counter(
        "Current Warnings",
        Formula::Value(&["warning_faults"]),
        "",
        "Present faults of severity 5 (Warning)",
    ),
    counter("Current Errors", Formula::Value(&["error_faults"]), "", "Present faults of severity 6 (Error)"),
];

/// One instance per pool.
pub static HEALTH: Set = Set {
    name: "Storage Health",
    instances: "a storage pool that the server has found since it started",
    prefix: "causeway_storage_health",
    labels: &["pool"],
    metrics: &[&METRICS],
    counters: &[&COUNTERS],
    absent: &[],
};
