//! Storage Health: Windows has no counters for it; these are ours.

use super::{Counter, How, Metric, Set, Unit, count, counter, gauge};
use crate::Cell;

/// Faults raised since the process started.
pub const RAISED: Cell = Cell(0);
/// Faults that ended.
pub const CLEARED: Cell = Cell(1);
/// Faults now, of each severity: 4 information, 5 warning, 6 error.
pub const NOW: [Cell; 3] = [Cell(2), Cell(3), Cell(4)];

static METRICS: [Metric; 5] = [
    count("raised_faults", Unit::Count, |v, _| v[RAISED.0 as usize], "Faults that began"),
    count("cleared_faults", Unit::Count, |v, _| v[CLEARED.0 as usize], "Faults that ended"),
    gauge("information_faults", |v, _| v[NOW[0].0 as usize], "Faults now for which nothing has to be done"),
    gauge(
        "warning_faults",
        |v, _| v[NOW[1].0 as usize],
        "Faults now that want to be mended before more fails",
    ),
    gauge("error_faults", |v, _| v[NOW[2].0 as usize], "Faults now that make data unavailable, or worse"),
];

static COUNTERS: [Counter; 5] = [
    counter("Faults Raised/sec", How::Rate(&["raised_faults"]), "1/s", "Faults that began"),
    counter("Faults Cleared/sec", How::Rate(&["cleared_faults"]), "1/s", "Faults that ended"),
    counter("Current Information", How::Value(&["information_faults"]), "", "Faults now, of severity 4"),
    counter("Current Warnings", How::Value(&["warning_faults"]), "", "Faults now, of severity 5"),
    counter("Current Errors", How::Value(&["error_faults"]), "", "Faults now, of severity 6"),
];

/// One instance per pool.
pub static HEALTH: Set = Set {
    name: "Storage Health",
    instances: "a storage pool that was seen since the process started",
    prefix: "causeway_storage_health",
    labels: &["pool"],
    metrics: &[&METRICS],
    counters: &[&COUNTERS],
    absent: &[],
};
