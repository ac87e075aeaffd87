//! Metrics and counters common to shares and sessions, of servers and clients.

use super::{Counter, Formula, Metric, Unit, count, counter, gauge};
use crate::Class::{Metadata, Read, Write};
use crate::requests::{
    CREDIT_STALLS, FILES_OPEN, FILES_OPENED, RECEIVED, SENT, TREES, begun, direct, direct_payload, ended,
    payload, queue, time, under_way,
};
use Unit::{Bytes, Count, Nanoseconds};

pub(super) static METRICS: [Metric; 23] = [
    count("read_requests", Count, |v, _| begun(v, Read), "READ requests started"),
    count("read_completed", Count, |v, _| ended(v, Read), "READ requests completed"),
    count("read_time_ns", Nanoseconds, |v, _| time(v, Read), "Total time of completed READ requests"),
    count(
        "read_queue_ns",
        Nanoseconds,
        |v, now| queue(v, Read, now),
        "Time integral of outstanding READ requests",
    ),
    gauge("read_current", |v, _| under_way(v, Read), "Outstanding READ requests"),
    count("read_bytes", Bytes, |v, _| payload(v, Read), "Payload of READ requests"),
    count(
        "read_direct_requests",
        Count,
        |v, _| direct(v, Read),
        "READ requests whose payload was transferred by RDMA",
    ),
    count(
        "read_direct_bytes",
        Bytes,
        |v, _| direct_payload(v, Read),
        "Payload of READ requests that was transferred by RDMA",
    ),
    count("write_requests", Count, |v, _| begun(v, Write), "WRITE requests started"),
    count("write_completed", Count, |v, _| ended(v, Write), "WRITE requests completed"),
    count("write_time_ns", Nanoseconds, |v, _| time(v, Write), "Total time of completed WRITE requests"),
    count(
        "write_queue_ns",
        Nanoseconds,
        |v, now| queue(v, Write, now),
        "Time integral of outstanding WRITE requests",
    ),
    gauge("write_current", |v, _| under_way(v, Write), "Outstanding WRITE requests"),
    count("write_bytes", Bytes, |v, _| payload(v, Write), "Payload of WRITE requests"),
    count(
        "write_direct_requests",
        Count,
        |v, _| direct(v, Write),
        "WRITE requests whose payload was transferred by RDMA",
    ),
    count(
        "write_direct_bytes",
        Bytes,
        |v, _| direct_payload(v, Write),
        "Payload of WRITE requests that was transferred by RDMA",
    ),
    count("metadata_requests", Count, |v, _| begun(v, Metadata), "Other requests started"),
    count("metadata_completed", Count, |v, _| ended(v, Metadata), "Other requests completed"),
    count(
        "metadata_time_ns",
        Nanoseconds,
        |v, _| time(v, Metadata),
        "Total time of other completed requests",
    ),
    count(
        "metadata_queue_ns",
        Nanoseconds,
        |v, now| queue(v, Metadata, now),
        "Time integral of other outstanding requests",
    ),
    gauge("metadata_current", |v, _| under_way(v, Metadata), "Other outstanding requests"),
    count(
        "received_bytes",
        Bytes,
        |v, _| v[RECEIVED.0 as usize],
        "Bytes received: messages and RDMA payload",
    ),
    count("sent_bytes", Bytes, |v, _| v[SENT.0 as usize], "Bytes sent: messages and RDMA payload"),
];

/// Metrics of client shares only.
pub(super) static CREDITS: [Metric; 1] = [count(
    "credit_stalls",
    Count,
    |v, _| v[CREDIT_STALLS.0 as usize],
    "Times that a request waited because the server had granted too few credits",
)];

/// Metrics of server shares only.
pub(super) static FILES: [Metric; 3] = [
    count("files_opened", Count, |v, _| v[FILES_OPENED.0 as usize], "Files opened"),
    gauge("open_files", |v, _| v[FILES_OPEN.0 as usize], "Files open"),
    gauge("tree_connects", |v, _| v[TREES.0 as usize], "Tree connects"),
];

const READS: &[&str] = &["read_requests"];
const WRITES: &[&str] = &["write_requests"];
const DATA: &[&str] = &["read_requests", "write_requests"];
const ALL: &[&str] = &["read_requests", "write_requests", "metadata_requests"];
const READS_DONE: &[&str] = &["read_completed"];
const WRITES_DONE: &[&str] = &["write_completed"];
const DATA_DONE: &[&str] = &["read_completed", "write_completed"];
const ALL_DONE: &[&str] = &["read_completed", "write_completed", "metadata_completed"];
const DATA_TIME: &[&str] = &["read_time_ns", "write_time_ns"];
const ALL_TIME: &[&str] = &["read_time_ns", "write_time_ns", "metadata_time_ns"];
const DATA_BYTES: &[&str] = &["read_bytes", "write_bytes"];

/// Counters of READs, WRITEs and both, in every set.
pub(super) static DATA_COUNTERS: [Counter; 25] = [
    counter("Data Requests/sec", Formula::Rate(DATA), "1/s", "READ and WRITE requests started"),
    counter("Read Requests/sec", Formula::Rate(READS), "1/s", "READ requests started"),
    counter("Write Requests/sec", Formula::Rate(WRITES), "1/s", "WRITE requests started"),
    counter(
        "Metadata Requests/sec",
        Formula::Rate(&["metadata_requests"]),
        "1/s",
        "Requests started, other than READ and WRITE",
    ),
    counter("Data Bytes/sec", Formula::Rate(DATA_BYTES), "B/s", "Payload read and written"),
    counter("Read Bytes/sec", Formula::Rate(&["read_bytes"]), "B/s", "Payload read"),
    counter("Write Bytes/sec", Formula::Rate(&["write_bytes"]), "B/s", "Payload written"),
    counter(
        "Avg. sec/Data Request",
        Formula::Average(DATA_TIME, DATA_DONE),
        "s",
        "Average duration of completed READ and WRITE requests",
    ),
    counter(
        "Avg. sec/Read",
        Formula::Average(&["read_time_ns"], READS_DONE),
        "s",
        "Average duration of completed READ requests",
    ),
    counter(
        "Avg. sec/Write",
        Formula::Average(&["write_time_ns"], WRITES_DONE),
        "s",
        "Average duration of completed WRITE requests",
    ),
    counter(
        "Avg. Data Bytes/Request",
        Formula::Average(DATA_BYTES, DATA_DONE),
        "B",
        "Average payload of completed READ and WRITE requests",
    ),
    counter(
        "Avg. Bytes/Read",
        Formula::Average(&["read_bytes"], READS_DONE),
        "B",
        "Average payload of completed READ requests",
    ),
    counter(
        "Avg. Bytes/Write",
        Formula::Average(&["write_bytes"], WRITES_DONE),
        "B",
        "Average payload of completed WRITE requests",
    ),
    counter(
        "Avg. Data Queue Length",
        Formula::Queue(&["read_queue_ns", "write_queue_ns"]),
        "",
        "Average number of outstanding READ and WRITE requests",
    ),
    counter(
        "Avg. Read Queue Length",
        Formula::Queue(&["read_queue_ns"]),
        "",
        "Average number of outstanding READ requests",
    ),
    counter(
        "Avg. Write Queue Length",
        Formula::Queue(&["write_queue_ns"]),
        "",
        "Average number of outstanding WRITE requests",
    ),
    counter(
        "Current Data Queue Length",
        Formula::Value(&["read_current", "write_current"]),
        "",
        "READ and WRITE requests outstanding now",
    ),
    counter(
        "Read Requests transmitted via SMB Direct/sec",
        Formula::Rate(&["read_direct_requests"]),
        "1/s",
        "READ requests whose payload was transferred by RDMA, not in a message",
    ),
    counter(
        "Read Bytes transmitted via SMB Direct/sec",
        Formula::Rate(&["read_direct_bytes"]),
        "B/s",
        "Payload read by RDMA",
    ),
    counter(
        "Write Requests transmitted via SMB Direct/sec",
        Formula::Rate(&["write_direct_requests"]),
        "1/s",
        "WRITE requests whose payload was transferred by RDMA, not in a message",
    ),
    counter(
        "Write Bytes transmitted via SMB Direct/sec",
        Formula::Rate(&["write_direct_bytes"]),
        "B/s",
        "Payload written by RDMA",
    ),
    counter(
        "Received Bytes/sec",
        Formula::Rate(&["received_bytes"]),
        "B/s",
        "Bytes received: SMB messages (before encryption, without the transport's framing) and RDMA payload",
    ),
    counter(
        "Sent Bytes/sec",
        Formula::Rate(&["sent_bytes"]),
        "B/s",
        "Bytes sent: SMB messages (before encryption, without the transport's framing) and RDMA payload",
    ),
    counter(
        "Transferred Bytes/sec",
        Formula::Rate(&["received_bytes", "sent_bytes"]),
        "B/s",
        "Sum of Received Bytes and Sent Bytes",
    ),
    counter("Requests/sec", Formula::Rate(ALL), "1/s", "All requests started"),
];

/// Counters of all requests, for servers only.
pub(super) static SERVER_COUNTERS: [Counter; 2] = [
    counter(
        "Avg. sec/Request",
        Formula::Average(ALL_TIME, ALL_DONE),
        "s",
        "Average duration of completed requests; a request that waits, for example for a lock, counts when it completes",
    ),
    counter(
        "Current Pending Requests",
        Formula::Value(&["read_current", "write_current", "metadata_current"]),
        "",
        "Requests outstanding now",
    ),
];

pub(super) static FILE_COUNTERS: [Counter; 4] = [
    counter(
        "Files Opened/sec",
        Formula::Rate(&["files_opened"]),
        "1/s",
        "Files, directories and pipes opened",
    ),
    counter(
        "Total File Open Count",
        Formula::Value(&["files_opened"]),
        "",
        "Files, directories and pipes opened since the server started",
    ),
    counter(
        "Current Open File Count",
        Formula::Value(&["open_files"]),
        "",
        "Files, directories and pipes open now",
    ),
    counter("Tree Connect Count", Formula::Value(&["tree_connects"]), "", "Tree connects now"),
];

pub(super) static CREDIT_COUNTERS: [Counter; 1] = [counter(
    "Credit Stalls/sec",
    Formula::Rate(&["credit_stalls"]),
    "1/s",
    "Times that a request waited because the server had granted too few credits",
)];
