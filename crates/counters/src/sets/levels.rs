//! The process, its memory, the capacity of pools and the progress of jobs: levels that somebody knows already, and tells
//! when a snapshot is taken ([`crate::SetSnapshot::of_levels`]). Windows's names, where it has such.

use super::{Counter, How, Kind, Metric, Set, Unit, counter};
use Unit::{Bytes, Count, Nanoseconds};

/// A metric whose value comes with the snapshot.
const fn level(name: &'static str, unit: Unit, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, help, of: |_, _| 0 }
}

static PROCESS_METRICS: [Metric; 5] = [
    Metric {
        name: "cpu_time_ns",
        kind: Kind::Counter,
        unit: Nanoseconds,
        help: "Processor time used",
        of: |_, _| 0,
    },
    level("resident_bytes", Bytes, "Memory in use"),
    level("threads", Count, "Threads"),
    level("open_files", Count, "Open file descriptors"),
    level("open_files_limit", Count, "How many there may be"),
];

static PROCESS_COUNTERS: [Counter; 5] = [
    counter(
        "Processors Used",
        How::Queue(&["cpu_time_ns"]),
        "",
        "Processor time by the time: 1 is one processor",
    ),
    counter("Working Set", How::Value(&["resident_bytes"]), "B", "Memory in use"),
    counter("Thread Count", How::Value(&["threads"]), "", "Threads"),
    counter("Handle Count", How::Value(&["open_files"]), "", "Open file descriptors"),
    counter("Handle Limit", How::Value(&["open_files_limit"]), "", "How many there may be"),
];

/// The server's process.
pub static PROCESS: Set = Set {
    name: "Process",
    instances: "the server's process",
    prefix: "causeway_process",
    labels: &[],
    metrics: &[&PROCESS_METRICS],
    counters: &[&PROCESS_COUNTERS],
    absent: &[],
};

static MEMORY_METRICS: [Metric; 4] = [
    level("budget_bytes", Bytes, "Payload memory that there is (server.memory)"),
    level("used_bytes", Bytes, "Payload memory in use"),
    level("reserve_bytes", Bytes, "Payload memory that is kept for control messages"),
    level("waiting_requests", Count, "Requests that wait for payload memory"),
];

static MEMORY_COUNTERS: [Counter; 4] = [
    counter("Budget", How::Value(&["budget_bytes"]), "B", "Payload memory that there is (server.memory)"),
    counter("Used", How::Value(&["used_bytes"]), "B", "Payload memory in use"),
    counter(
        "Reserve",
        How::Value(&["reserve_bytes"]),
        "B",
        "Payload memory that is kept for control messages",
    ),
    counter(
        "Waiting Requests",
        How::Value(&["waiting_requests"]),
        "",
        "Requests that wait for payload memory",
    ),
];

/// Payload memory.
pub static MEMORY: Set = Set {
    name: "Payload Memory",
    instances: "the server's payload memory",
    prefix: "causeway_payload_memory",
    labels: &[],
    metrics: &[&MEMORY_METRICS],
    counters: &[&MEMORY_COUNTERS],
    absent: &[],
};

static POOL_METRICS: [Metric; 4] = [
    level("size_bytes", Bytes, "Room of all disks"),
    level("allocated_bytes", Bytes, "Room that virtual disks have"),
    level("disks", Count, "Disks of the pool"),
    level("missing_disks", Count, "Disks of the pool that are not in service"),
];

static POOL_COUNTERS: [Counter; 4] = [
    counter("Size", How::Value(&["size_bytes"]), "B", "Room of all disks"),
    counter("Allocated Size", How::Value(&["allocated_bytes"]), "B", "Room that virtual disks have"),
    counter("Disks", How::Value(&["disks"]), "", "Disks of the pool"),
    counter("Missing Disks", How::Value(&["missing_disks"]), "", "Disks of the pool that are not in service"),
];

/// One instance for each open pool.
pub static POOL_CAPACITY: Set = Set {
    name: "Storage Pool Capacity",
    instances: "an open storage pool",
    prefix: "causeway_storage_pool_capacity",
    labels: &["pool"],
    metrics: &[&POOL_METRICS],
    counters: &[&POOL_COUNTERS],
    absent: &[],
};

static SPACE_METRICS: [Metric; 2] = [
    level("size_bytes", Bytes, "Size that clients see"),
    level("footprint_bytes", Bytes, "Room that it has in its pool"),
];

static SPACE_COUNTERS: [Counter; 2] = [
    counter("Size", How::Value(&["size_bytes"]), "B", "Size that clients see"),
    counter("Footprint On Pool", How::Value(&["footprint_bytes"]), "B", "Room that it has in its pool"),
];

/// One instance for each virtual disk of open pools.
pub static SPACE_CAPACITY: Set = Set {
    name: "Virtual Disk Capacity",
    instances: "a virtual disk of an open storage pool",
    prefix: "causeway_virtual_disk_capacity",
    labels: &["pool", "virtual_disk"],
    metrics: &[&SPACE_METRICS],
    counters: &[&SPACE_COUNTERS],
    absent: &[],
};

static DISK_METRICS: [Metric; 2] = [
    level("size_bytes", Bytes, "Size"),
    level("allocated_bytes", Bytes, "Room that virtual disks have on it"),
];

static DISK_COUNTERS: [Counter; 2] = [
    counter("Size", How::Value(&["size_bytes"]), "B", "Size"),
    counter("Allocated Size", How::Value(&["allocated_bytes"]), "B", "Room that virtual disks have on it"),
];

/// One instance for each disk of open pools.
pub static DISK_CAPACITY: Set = Set {
    name: "Physical Disk Capacity",
    instances: "a disk of an open storage pool",
    prefix: "causeway_physical_disk_capacity",
    labels: &["pool", "disk"],
    metrics: &[&DISK_METRICS],
    counters: &[&DISK_COUNTERS],
    absent: &[],
};

static JOB_METRICS: [Metric; 3] = [
    level("total_bytes", Bytes, "Bytes that the job has to process"),
    level("processed_bytes", Bytes, "Bytes that it has processed"),
    level("rate_bytes", Bytes, "Bytes that it processes a second"),
];

static JOB_COUNTERS: [Counter; 3] = [
    counter("Bytes Total", How::Value(&["total_bytes"]), "B", "Bytes that the job has to process"),
    counter("Bytes Processed", How::Value(&["processed_bytes"]), "B", "Bytes that it has processed"),
    counter("Rate", How::Value(&["rate_bytes"]), "B", "Bytes that it processes a second"),
];

/// One instance for each background job.
pub static JOBS: Set = Set {
    name: "Storage Jobs",
    instances: "a background job of a storage pool",
    prefix: "causeway_storage_job",
    labels: &["pool", "job", "object"],
    metrics: &[&JOB_METRICS],
    counters: &[&JOB_COUNTERS],
    absent: &[],
};
