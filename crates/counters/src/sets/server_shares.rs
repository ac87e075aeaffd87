//! SMB Server Shares.

use super::requests::{DATA_COUNTERS, FILE_COUNTERS, FILES, METRICS, SERVER_COUNTERS};
use super::{Counter, Formula, Metric, Set, Unit, count, counter, gauge};
use crate::Cell;
use crate::requests::{
    DURABLE_OPEN, DURABLE_REOPEN_FAILED, DURABLE_REOPENED, PERSISTENT_OPEN, PERSISTENT_REOPEN_FAILED,
    PERSISTENT_REOPENED, RESILIENT_OPEN, RESILIENT_REOPEN_FAILED, RESILIENT_REOPENED,
};

/// One instance per share name. It remains when the share is removed, so that its counts never decrease.
pub static SERVER_SHARES: Set = Set {
    name: "SMB Server Shares",
    instances: "a share, by name",
    prefix: "causeway_smb_server_share",
    labels: &["share"],
    metrics: &[&METRICS, &FILES, &HANDLES],
    counters: &[&DATA_COUNTERS, &SERVER_COUNTERS, &FILE_COUNTERS, &HANDLE_COUNTERS],
    absent: &[],
};

const fn cell(values: &crate::Values, cell: Cell) -> u64 {
    values[cell.0 as usize]
}

/// Opens that survive the loss of their connection (MS-SMB2 3.3.1.10): IsDurable, which persistent opens also
/// have (3.3.5.9.10); IsResilient; IsPersistent.
static HANDLES: [Metric; 9] = [
    gauge("durable_open_files", |v, _| cell(v, DURABLE_OPEN), "Durable opens, persistent ones included"),
    gauge("resilient_open_files", |v, _| cell(v, RESILIENT_OPEN), "Resilient opens"),
    gauge("persistent_open_files", |v, _| cell(v, PERSISTENT_OPEN), "Persistent opens"),
    count(
        "durable_reopens",
        Unit::Count,
        |v, _| cell(v, DURABLE_REOPENED),
        "Reconnects to durable opens, persistent ones included",
    ),
    count(
        "resilient_reopens",
        Unit::Count,
        |v, _| cell(v, RESILIENT_REOPENED),
        "Reconnects to resilient opens",
    ),
    count(
        "persistent_reopens",
        Unit::Count,
        |v, _| cell(v, PERSISTENT_REOPENED),
        "Reconnects to persistent opens",
    ),
    count(
        "durable_reopens_failed",
        Unit::Count,
        |v, _| cell(v, DURABLE_REOPEN_FAILED),
        "Failed reconnects to durable opens, persistent ones included",
    ),
    count(
        "resilient_reopens_failed",
        Unit::Count,
        |v, _| cell(v, RESILIENT_REOPEN_FAILED),
        "Failed reconnects to resilient opens",
    ),
    count(
        "persistent_reopens_failed",
        Unit::Count,
        |v, _| cell(v, PERSISTENT_REOPEN_FAILED),
        "Failed reconnects to persistent opens",
    ),
];

static HANDLE_COUNTERS: [Counter; 9] = [
    counter(
        "Current Durable Open File Count",
        Formula::Value(&["durable_open_files"]),
        "",
        "Durable opens now, persistent ones included: a client may reconnect to them after a lost connection",
    ),
    counter(
        "Total Durable Handle Reopen Count",
        Formula::Value(&["durable_reopens"]),
        "",
        "Reconnects to durable opens since the server started, persistent ones included",
    ),
    counter(
        "Total Failed Durable Handle Reopen Count",
        Formula::Value(&["durable_reopens_failed"]),
        "",
        "Reconnects to durable opens that failed since the server started, persistent ones included. An open that \
         does not exist any more counts as the kind that the client names, or else as durable",
    ),
    counter(
        "% Resilient Handles",
        Formula::Percent(&["resilient_open_files"], &["open_files"]),
        "%",
        "Resilient opens now, of all opens",
    ),
    counter(
        "Total Resilient Handle Reopen Count",
        Formula::Value(&["resilient_reopens"]),
        "",
        "Reconnects to resilient opens since the server started",
    ),
    counter(
        "Total Failed Resilient Handle Reopen Count",
        Formula::Value(&["resilient_reopens_failed"]),
        "",
        "Reconnects to resilient opens that failed since the server started",
    ),
    counter(
        "% Persistent Handles",
        Formula::Percent(&["persistent_open_files"], &["open_files"]),
        "%",
        "Persistent opens now, of all opens",
    ),
    counter(
        "Total Persistent Handle Reopen Count",
        Formula::Value(&["persistent_reopens"]),
        "",
        "Reconnects to persistent opens since the server started, replays of CREATE included",
    ),
    counter(
        "Total Failed Persistent Handle Reopen Count",
        Formula::Value(&["persistent_reopens_failed"]),
        "",
        "Reconnects to persistent opens that failed since the server started",
    ),
];
