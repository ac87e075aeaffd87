//! Gauges that the server reads from the system and from pools when it takes a snapshot
//! ([`crate::SetSnapshot::of_levels`]): the process, its payload memory, the capacity of pools, the progress
//! of jobs. The names are Windows's where they exist.

use super::{Counter, Formula, Kind, Metric, Set, Unit, counter};
use Unit::{Bytes, Count, Nanoseconds};

/// A metric whose value is supplied with the snapshot.
const fn level(name: &'static str, unit: Unit, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, help, of: |_, _| 0 }
}

/// The displayed unit.
const fn shown_in(unit: Unit) -> &'static str {
    match unit {
        Bytes => "B",
        Count | Nanoseconds => "",
    }
}

/// The metrics of a set, with a counter for each: key, unit, the counter's name, description.
macro_rules! levels {
    ($metrics:ident, $counters:ident, $n:literal: $(($key:literal, $unit:ident, $name:literal, $what:literal)),+ $(,)?) => {
        static $metrics: [Metric; $n] = [$(level($key, $unit, $what)),+];
        static $counters: [Counter; $n] = [$(counter($name, Formula::Value(&[$key]), shown_in($unit), $what)),+];
    };
}

static CPU_METRIC: [Metric; 1] = [Metric {
    name: "cpu_time_ns",
    kind: Kind::Counter,
    unit: Nanoseconds,
    help: "Processor time used",
    of: |_, _| 0,
}];
static CPU_COUNTER: [Counter; 1] = [counter(
    "Processors Used",
    Formula::Queue(&["cpu_time_ns"]),
    "",
    "Average number of processors in use: processor time divided by elapsed time",
)];

levels! {
    PROCESS_METRICS, PROCESS_COUNTERS, 4:
    ("resident_bytes", Bytes, "Working Set", "Memory in use"),
    ("threads", Count, "Thread Count", "Threads"),
    ("open_files", Count, "Handle Count", "Open file descriptors"),
    ("open_files_limit", Count, "Handle Limit", "Maximum number of open file descriptors"),
}

/// The server's process.
pub static PROCESS: Set = Set {
    name: "Process",
    instances: "the server's process",
    prefix: "causeway_process",
    labels: &[],
    metrics: &[&CPU_METRIC, &PROCESS_METRICS],
    counters: &[&CPU_COUNTER, &PROCESS_COUNTERS],
    absent: &[],
};

levels! {
    MEMORY_METRICS, MEMORY_COUNTERS, 4:
    ("budget_bytes", Bytes, "Budget", "Size of the payload memory (server.memory)"),
    ("used_bytes", Bytes, "Used", "Payload memory in use"),
    ("reserve_bytes", Bytes, "Reserve", "Payload memory that is reserved for control messages"),
    ("waiting_requests", Count, "Waiting Requests", "Requests that wait for payload memory"),
}

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

levels! {
    POOL_METRICS, POOL_COUNTERS, 4:
    ("size_bytes", Bytes, "Size", "Total space on all disks"),
    ("allocated_bytes", Bytes, "Allocated Size", "Space that is allocated to virtual disks"),
    ("disks", Count, "Disks", "Disks of the pool"),
    ("missing_disks", Count, "Missing Disks", "Disks of the pool that are not in service"),
}

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

levels! {
    SPACE_METRICS, SPACE_COUNTERS, 2:
    ("size_bytes", Bytes, "Size", "Size as clients see it"),
    ("footprint_bytes", Bytes, "Footprint On Pool", "Space that is allocated to it in its pool"),
}

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

levels! {
    DISK_METRICS, DISK_COUNTERS, 2:
    ("size_bytes", Bytes, "Size", "Size"),
    ("allocated_bytes", Bytes, "Allocated Size", "Space on the disk that is allocated to virtual disks"),
}

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

levels! {
    JOB_METRICS, JOB_COUNTERS, 3:
    ("total_bytes", Bytes, "Bytes Total", "Bytes that the job has to process"),
    ("processed_bytes", Bytes, "Bytes Processed", "Bytes that the job has processed"),
    ("rate_bytes", Bytes, "Rate", "Bytes that the job processes per second"),
}

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
