//! I/O of physical disks, virtual disks and pools: the same counters, with Windows's names for disks.

use super::{Counter, Formula, Metric, Set, Unit, count, counter, gauge, histogram};
use crate::io::IoKind::{Flush, Read, Write};
use crate::io::{ERRORS, bytes, ended, outstanding, source, time};
use Unit::{Bytes, Count, Nanoseconds};

static METRICS: [Metric; 14] = [
    count("reads", Count, |v, _| ended(v, Read), "Reads completed"),
    count("writes", Count, |v, _| ended(v, Write), "Writes completed"),
    count("flushes", Count, |v, _| ended(v, Flush), "Flushes completed"),
    count("read_bytes", Bytes, |v, _| bytes(v, Read), "Bytes read"),
    count("written_bytes", Bytes, |v, _| bytes(v, Write), "Bytes written"),
    count("read_time_ns", Nanoseconds, |v, _| time(v, Read), "Total time of completed reads"),
    count("write_time_ns", Nanoseconds, |v, _| time(v, Write), "Total time of completed writes"),
    count("flush_time_ns", Nanoseconds, |v, _| time(v, Flush), "Total time of completed flushes"),
    gauge("queue_length", |v, _| outstanding(v), "Reads and writes outstanding"),
    count("errors", Count, |v, _| v[ERRORS.0 as usize], "Reads, writes and flushes that failed"),
    count("retries", Count, |v, _| source(v).retries, "I/Os that were repeated because a disk failed them"),
    histogram("read_latency_ns", |v, _| ended(v, Read), "Duration of completed reads"),
    histogram("write_latency_ns", |v, _| ended(v, Write), "Duration of completed writes"),
    histogram("flush_latency_ns", |v, _| ended(v, Flush), "Duration of completed flushes"),
];

/// The latency histograms, by kind of I/O.
pub(crate) const LATENCIES: [&str; 3] = ["read_latency_ns", "write_latency_ns", "flush_latency_ns"];

static HEDGED: [Metric; 1] =
    [count("hedged_reads", Count, |v, _| source(v).hedged, "Slow reads for which another copy was read too")];

static CACHE: [Metric; 2] = [
    count("table_cache_hits", Count, |v, _| source(v).cache_hits, "Checksum tables found in memory"),
    count("table_cache_misses", Count, |v, _| source(v).cache_misses, "Checksum tables read from disks"),
];

const ALL: &[&str] = &["reads", "writes"];
const TIMES: &[&str] = &["read_time_ns", "write_time_ns"];
const READ: &str = "read_latency_ns";
const WRITE: &str = "write_latency_ns";

static COUNTERS: [Counter; 22] = [
    counter("Disk Transfers/sec", Formula::Rate(ALL), "1/s", "Reads and writes completed"),
    counter("Disk Reads/sec", Formula::Rate(&["reads"]), "1/s", "Reads completed"),
    counter("Disk Writes/sec", Formula::Rate(&["writes"]), "1/s", "Writes completed"),
    counter("Disk Flushes/sec", Formula::Rate(&["flushes"]), "1/s", "Flushes completed"),
    counter(
        "Disk Bytes/sec",
        Formula::Rate(&["read_bytes", "written_bytes"]),
        "B/s",
        "Bytes read and written",
    ),
    counter("Disk Read Bytes/sec", Formula::Rate(&["read_bytes"]), "B/s", "Bytes read"),
    counter("Disk Write Bytes/sec", Formula::Rate(&["written_bytes"]), "B/s", "Bytes written"),
    counter(
        "Avg. Disk sec/Transfer",
        Formula::Average(TIMES, ALL),
        "s",
        "Average duration of a read or write",
    ),
    counter(
        "Avg. Disk sec/Read",
        Formula::Average(&["read_time_ns"], &["reads"]),
        "s",
        "Average duration of a read",
    ),
    counter(
        "Avg. Disk sec/Write",
        Formula::Average(&["write_time_ns"], &["writes"]),
        "s",
        "Average duration of a write",
    ),
    counter(
        "Avg. Disk sec/Flush",
        Formula::Average(&["flush_time_ns"], &["flushes"]),
        "s",
        "Average duration of a flush",
    ),
    counter(
        "Median Disk sec/Read",
        Formula::Percentile(READ, 50),
        "s",
        "Duration that half of the reads did not exceed",
    ),
    counter(
        "Median Disk sec/Write",
        Formula::Percentile(WRITE, 50),
        "s",
        "Duration that half of the writes did not exceed",
    ),
    counter(
        "99th Percentile Disk sec/Read",
        Formula::Percentile(READ, 99),
        "s",
        "Duration that 99 % of the reads did not exceed",
    ),
    counter(
        "99th Percentile Disk sec/Write",
        Formula::Percentile(WRITE, 99),
        "s",
        "Duration that 99 % of the writes did not exceed",
    ),
    counter(
        "99th Percentile Disk sec/Flush",
        Formula::Percentile("flush_latency_ns", 99),
        "s",
        "Duration that 99 % of the flushes did not exceed",
    ),
    counter(
        "Avg. Disk Bytes/Read",
        Formula::Average(&["read_bytes"], &["reads"]),
        "B",
        "Average size of a read",
    ),
    counter(
        "Avg. Disk Bytes/Write",
        Formula::Average(&["written_bytes"], &["writes"]),
        "B",
        "Average size of a write",
    ),
    counter(
        "Avg. Disk Queue Length",
        Formula::Queue(TIMES),
        "",
        "Average number of outstanding reads and writes",
    ),
    counter(
        "Current Disk Queue Length",
        Formula::Value(&["queue_length"]),
        "",
        "Reads and writes outstanding now",
    ),
    counter(
        "Disk Errors",
        Formula::Value(&["errors"]),
        "",
        "Reads, writes and flushes that failed since the counters started",
    ),
    counter(
        "Disk Retries",
        Formula::Value(&["retries"]),
        "",
        "I/Os of virtual disks that were repeated because a disk failed them or returned damaged data",
    ),
];

static HEDGED_COUNTERS: [Counter; 1] = [counter(
    "Hedged Reads/sec",
    Formula::Rate(&["hedged_reads"]),
    "1/s",
    "Slow reads for which another copy was read too",
)];

static CACHE_COUNTERS: [Counter; 2] = [
    counter(
        "Table Cache Hits/sec",
        Formula::Rate(&["table_cache_hits"]),
        "1/s",
        "Checksum tables found in memory",
    ),
    counter(
        "Table Cache Misses/sec",
        Formula::Rate(&["table_cache_misses"]),
        "1/s",
        "Checksum tables read from disks",
    ),
];

const ABSENT: &[(&str, &str)] = &[
    (
        "% Disk Time",
        "it has no meaning for a disk that performs several I/Os at once: see Avg. Disk Queue Length",
    ),
    ("% Idle Time", "for the same reason as % Disk Time"),
    ("Split IO/Sec", "I/Os are not split after they are counted"),
];

/// One instance per disk of an open pool.
pub static DISKS: Set = Set {
    name: "PhysicalDisk",
    instances: "a disk of an open pool, as POOL/NUMBER; counts all its I/O, including metadata and repairs",
    prefix: "causeway_physical_disk",
    labels: &["pool", "disk", "path"],
    metrics: &[&METRICS, &HEDGED],
    counters: &[&COUNTERS, &HEDGED_COUNTERS],
    absent: ABSENT,
};

/// One instance per virtual disk of an open pool.
pub static SPACES: Set = Set {
    name: "Storage Spaces Virtual Disk",
    instances: "a virtual disk of an open pool, as POOL/NAME; counts the I/O of its clients",
    prefix: "causeway_virtual_disk",
    labels: &["pool", "virtual_disk"],
    metrics: &[&METRICS, &CACHE],
    counters: &[&COUNTERS, &CACHE_COUNTERS],
    absent: ABSENT,
};

/// One instance per open pool.
pub static POOLS: Set = Set {
    name: "Storage Pool",
    instances: "an open pool: the sum of its virtual disks",
    prefix: "causeway_storage_pool",
    labels: &["pool"],
    metrics: &[&METRICS, &HEDGED, &CACHE],
    counters: &[&COUNTERS, &HEDGED_COUNTERS, &CACHE_COUNTERS],
    absent: ABSENT,
};
