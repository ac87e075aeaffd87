//! I/O of physical disks, virtual disks and pools: the same counters, by Windows's names for disks.

use super::{Counter, How, Metric, Set, Unit, count, counter, gauge, histogram};
use crate::io::IoKind::{Flush, Read, Write};
use crate::io::{ERRORS, bytes, ended, outstanding, source, time};
use Unit::{Bytes, Count, Nanoseconds};

static METRICS: [Metric; 13] = [
    count("reads", Count, |v, _| ended(v, Read), "Reads completed"),
    count("writes", Count, |v, _| ended(v, Write), "Writes completed"),
    count("flushes", Count, |v, _| ended(v, Flush), "Flushes completed"),
    count("read_bytes", Bytes, |v, _| bytes(v, Read), "Bytes read"),
    count("written_bytes", Bytes, |v, _| bytes(v, Write), "Bytes written"),
    count("read_time_ns", Nanoseconds, |v, _| time(v, Read), "Time that completed reads took"),
    count("write_time_ns", Nanoseconds, |v, _| time(v, Write), "Time that completed writes took"),
    count("flush_time_ns", Nanoseconds, |v, _| time(v, Flush), "Time that completed flushes took"),
    gauge("queue_length", |v, _| outstanding(v), "Reads and writes outstanding"),
    count("errors", Count, |v, _| v[ERRORS.0 as usize], "Reads, writes and flushes that failed"),
    histogram("read_latency_ns", |v, _| ended(v, Read), "How long completed reads took"),
    histogram("write_latency_ns", |v, _| ended(v, Write), "How long completed writes took"),
    histogram("flush_latency_ns", |v, _| ended(v, Flush), "How long completed flushes took"),
];

/// By kind of I/O.
pub(crate) const LATENCIES: [&str; 3] = ["read_latency_ns", "write_latency_ns", "flush_latency_ns"];

static HEDGED: [Metric; 1] = [count(
    "hedged_reads",
    Count,
    |v, _| source(v).hedged,
    "Reads that took so long that another copy was read too",
)];

static CACHE: [Metric; 2] = [
    count("table_cache_hits", Count, |v, _| source(v).cache_hits, "Checksum tables found in memory"),
    count("table_cache_misses", Count, |v, _| source(v).cache_misses, "Checksum tables read from disks"),
];

const ALL: &[&str] = &["reads", "writes"];
const TIMES: &[&str] = &["read_time_ns", "write_time_ns"];
const READ: &str = "read_latency_ns";
const WRITE: &str = "write_latency_ns";

static COUNTERS: [Counter; 21] = [
    counter("Disk Transfers/sec", How::Rate(ALL), "1/s", "Reads and writes completed"),
    counter("Disk Reads/sec", How::Rate(&["reads"]), "1/s", "Reads completed"),
    counter("Disk Writes/sec", How::Rate(&["writes"]), "1/s", "Writes completed"),
    counter("Disk Flushes/sec", How::Rate(&["flushes"]), "1/s", "Flushes completed"),
    counter("Disk Bytes/sec", How::Rate(&["read_bytes", "written_bytes"]), "B/s", "Bytes read and written"),
    counter("Disk Read Bytes/sec", How::Rate(&["read_bytes"]), "B/s", "Bytes read"),
    counter("Disk Write Bytes/sec", How::Rate(&["written_bytes"]), "B/s", "Bytes written"),
    counter("Avg. Disk sec/Transfer", How::Average(TIMES, ALL), "s", "How long a read or write took"),
    counter("Avg. Disk sec/Read", How::Average(&["read_time_ns"], &["reads"]), "s", "How long a read took"),
    counter(
        "Avg. Disk sec/Write",
        How::Average(&["write_time_ns"], &["writes"]),
        "s",
        "How long a write took",
    ),
    counter(
        "Avg. Disk sec/Flush",
        How::Average(&["flush_time_ns"], &["flushes"]),
        "s",
        "How long a flush took",
    ),
    counter("Median Disk sec/Read", How::Percentile(READ, 50), "s", "Half of the reads took no longer"),
    counter("Median Disk sec/Write", How::Percentile(WRITE, 50), "s", "Half of the writes took no longer"),
    counter("99th Percentile Disk sec/Read", How::Percentile(READ, 99), "s", "1 % of the reads took longer"),
    counter(
        "99th Percentile Disk sec/Write",
        How::Percentile(WRITE, 99),
        "s",
        "1 % of the writes took longer",
    ),
    counter(
        "99th Percentile Disk sec/Flush",
        How::Percentile("flush_latency_ns", 99),
        "s",
        "1 % of the flushes took longer",
    ),
    counter("Avg. Disk Bytes/Read", How::Average(&["read_bytes"], &["reads"]), "B", "Bytes of a read"),
    counter("Avg. Disk Bytes/Write", How::Average(&["written_bytes"], &["writes"]), "B", "Bytes of a write"),
    counter("Avg. Disk Queue Length", How::Queue(TIMES), "", "Reads and writes outstanding, over the time"),
    counter(
        "Current Disk Queue Length",
        How::Value(&["queue_length"]),
        "",
        "Reads and writes outstanding now",
    ),
    counter("Disk Errors", How::Value(&["errors"]), "", "I/Os that failed, since counting began"),
];

static HEDGED_COUNTERS: [Counter; 1] = [counter(
    "Hedged Reads/sec",
    How::Rate(&["hedged_reads"]),
    "1/s",
    "Reads that were late: another copy was read too",
)];

static CACHE_COUNTERS: [Counter; 2] = [
    counter(
        "Table Cache Hits/sec",
        How::Rate(&["table_cache_hits"]),
        "1/s",
        "Checksum tables found in memory",
    ),
    counter(
        "Table Cache Misses/sec",
        How::Rate(&["table_cache_misses"]),
        "1/s",
        "Checksum tables read from disks",
    ),
];

const ABSENT: &[(&str, &str)] = &[
    ("% Disk Time", "it says nothing of a disk that does several I/Os at once: see Avg. Disk Queue Length"),
    ("% Idle Time", "as % Disk Time"),
    ("Split IO/Sec", "I/Os are not split after they were counted"),
];

/// One instance per disk of an open pool.
pub static DISKS: Set = Set {
    name: "PhysicalDisk",
    instances: "a disk of an open pool, as POOL/NUMBER; metadata and repairs included",
    prefix: "causeway_physical_disk",
    labels: &["pool", "disk", "path"],
    metrics: &[&METRICS, &HEDGED],
    counters: &[&COUNTERS, &HEDGED_COUNTERS],
    absent: ABSENT,
};

/// One instance per virtual disk of an open pool.
pub static SPACES: Set = Set {
    name: "Storage Spaces Virtual Disk",
    instances: "a virtual disk of an open pool, as POOL/NAME; the I/O of its clients",
    prefix: "causeway_virtual_disk",
    labels: &["pool", "virtual_disk"],
    metrics: &[&METRICS, &CACHE],
    counters: &[&COUNTERS, &CACHE_COUNTERS],
    absent: ABSENT,
};

/// One instance per open pool.
pub static POOLS: Set = Set {
    name: "Storage Pool",
    instances: "an open pool: its virtual disks together",
    prefix: "causeway_storage_pool",
    labels: &["pool"],
    metrics: &[&METRICS, &HEDGED, &CACHE],
    counters: &[&COUNTERS, &HEDGED_COUNTERS, &CACHE_COUNTERS],
    absent: ABSENT,
};
