//! `[storage]`: the paths of disks, the time-outs of their I/O, and the settings of jobs.

use super::reader::Table;

/// `[storage]`. Without the section the server searches no disks: opening a pool means taking ownership, and
/// a server that shares a directory must not take pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageSection {
    /// Absolute paths that are searched for disks at the start; `*` and `?` match characters of a name.
    pub devices: Vec<String>,
    /// The time-outs of disks.
    pub timeouts: TimeoutsSection,
    /// The settings of jobs.
    pub jobs: JobsSection,
}

/// How long an I/O to a disk of a pool may take, in milliseconds; also used without the section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutsSection {
    /// Reads of virtual disks' data.
    pub read_ms: u64,
    /// Writes of virtual disks' data and logs.
    pub write_ms: u64,
    /// Flushes and discards of virtual disks.
    pub flush_ms: u64,
    /// Reads and writes of the pool's own metadata.
    pub metadata_ms: u64,
}

impl Default for TimeoutsSection {
    fn default() -> TimeoutsSection {
        TimeoutsSection { read_ms: 10_000, write_ms: 10_000, flush_ms: 10_000, metadata_ms: 30_000 }
    }
}

/// The settings of jobs; also used without the section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobsSection {
    /// Every copy of each virtual disk is read once in this number of days; 0: never.
    pub scrub_days: u64,
    /// The target for the 99th percentile of the clients' latency while jobs run, in milliseconds.
    pub latency_ms: u64,
    /// The minimum rate of all jobs of a pool together, in bytes per second, regardless of the latency of clients.
    pub minimum: u64,
}

impl Default for JobsSection {
    fn default() -> JobsSection {
        JobsSection { scrub_days: 28, latency_ms: 20, minimum: 4 << 20 }
    }
}

/// The range of the minimum rate: at lower rates jobs would never complete; higher rates would disable the pacing.
const MINIMUM: std::ops::Range<u64> = 64 << 10..(1 << 40) + 1;

/// The range of the time-outs: healthy disks exceed shorter ones, and clients give up before longer ones end.
const TIMEOUT_MS: std::ops::Range<u64> = 100..60_001;

/// The default of `devices`.
const USUAL: [&str; 2] = ["/dev/disk/by-id/*", "/var/lib/causeway/disks/*.disk"];

pub(super) fn read_storage(t: Table<'_, '_>) -> StorageSection {
    let devices = t.patterns("devices", "devices = [\"/dev/disk/by-id/*\"]");
    let usual = TimeoutsSection::default();
    let timeout = |key, example, usual| t.number(key, TIMEOUT_MS, example).unwrap_or(usual);
    let timeouts = TimeoutsSection {
        read_ms: timeout("read_timeout_ms", "read_timeout_ms = 10000", usual.read_ms),
        write_ms: timeout("write_timeout_ms", "write_timeout_ms = 10000", usual.write_ms),
        flush_ms: timeout("flush_timeout_ms", "flush_timeout_ms = 10000", usual.flush_ms),
        metadata_ms: timeout("metadata_timeout_ms", "metadata_timeout_ms = 30000", usual.metadata_ms),
    };
    let usual = JobsSection::default();
    let jobs = JobsSection {
        scrub_days: t.number("scrub_days", 0..3651, "scrub_days = 28").unwrap_or(usual.scrub_days),
        latency_ms: t.number("job_latency_ms", 1..10_001, "job_latency_ms = 20").unwrap_or(usual.latency_ms),
        minimum: t.size("job_minimum", MINIMUM, "job_minimum = \"4MiB\"").unwrap_or(usual.minimum),
    };
    t.finish();
    StorageSection { timeouts, jobs, devices: devices.unwrap_or_else(|| USUAL.map(str::to_owned).to_vec()) }
}
