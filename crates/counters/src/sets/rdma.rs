//! RDMA Activity.

use super::direct::{WORK_COUNTERS, WORK_REQUESTS};
use super::{Counter, Formula, Metric, Set, Unit, count, counter, gauge};
use crate::transfers as t;
use Unit::{Bytes, Count};

static METRICS: [Metric; 9] = [
    gauge("active_connections", |v, _| v[t::ACTIVE.0 as usize], "Open connections"),
    count("accepted_connections", Count, |v, _| v[t::ACCEPTED.0 as usize], "Connections accepted"),
    count("initiated_connections", Count, |v, _| v[t::INITIATED.0 as usize], "Connections initiated"),
    count(
        "failed_connection_attempts",
        Count,
        |v, _| v[t::FAILED_ATTEMPTS.0 as usize],
        "Connection attempts that failed",
    ),
    count(
        "connection_errors",
        Count,
        |v, _| v[t::CONNECTION_ERRORS.0 as usize],
        "Connections that ended with an error",
    ),
    count("inbound_bytes", Bytes, |v, _| v[t::IN_BYTES.0 as usize], "Bytes received, including headers"),
    count("outbound_bytes", Bytes, |v, _| v[t::OUT_BYTES.0 as usize], "Bytes sent, including headers"),
    count("inbound_frames", Count, |v, _| v[t::IN_FRAMES.0 as usize], "Frames received"),
    count("outbound_frames", Count, |v, _| v[t::OUT_FRAMES.0 as usize], "Frames sent"),
];

static COUNTERS: [Counter; 9] = [
    counter("RDMA Active Connections", Formula::Value(&["active_connections"]), "", "Open connections"),
    counter(
        "RDMA Accepted Connections",
        Formula::Value(&["accepted_connections"]),
        "",
        "Connections accepted since the process started",
    ),
    counter(
        "RDMA Initiated Connections",
        Formula::Value(&["initiated_connections"]),
        "",
        "Connections initiated since the process started",
    ),
    counter(
        "RDMA Failed Connection Attempts",
        Formula::Value(&["failed_connection_attempts"]),
        "",
        "Connection attempts that failed, on either side",
    ),
    counter(
        "RDMA Connection Errors",
        Formula::Value(&["connection_errors"]),
        "",
        "Connections that ended with an error: lost, or closed because one side violated the protocol",
    ),
    counter(
        "RDMA Inbound Bytes/sec",
        Formula::Rate(&["inbound_bytes"]),
        "B/s",
        "Bytes received from the fabric, including headers (iWARP: bytes of the TCP stream)",
    ),
    counter(
        "RDMA Outbound Bytes/sec",
        Formula::Rate(&["outbound_bytes"]),
        "B/s",
        "Bytes sent to the fabric, including headers (iWARP: bytes of the TCP stream)",
    ),
    counter(
        "RDMA Inbound Frames/sec",
        Formula::Rate(&["inbound_frames"]),
        "1/s",
        "Frames received (iWARP: FPDUs)",
    ),
    counter(
        "RDMA Outbound Frames/sec",
        Formula::Rate(&["outbound_frames"]),
        "1/s",
        "Frames sent (iWARP: FPDUs)",
    ),
];

/// One instance per provider.
pub static RDMA: Set = Set {
    name: "RDMA Activity",
    instances: "an RDMA provider, for the whole process: iwarp",
    prefix: "causeway_rdma",
    labels: &["provider"],
    metrics: &[&METRICS, &WORK_REQUESTS],
    counters: &[&COUNTERS, &WORK_COUNTERS],
    absent: &[("RDMA Completion Queue Errors", "a completion queue in user space cannot overrun")],
};
