//! `[storage]`: the paths of disks, and the settings of jobs.

use super::reader::Table;

/// `[storage]`. Without the section the server searches no disks: opening a pool means taking ownership, and
/// a server that shares a directory must not take pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageSection {
    /// Absolute paths that are searched for disks at the start; `*` and `?` match characters of a name.
    pub devices: Vec<String>,
    /// The settings of jobs.
    pub jobs: JobsSection,
}

/// The settings of jobs; also used without the section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobsSection {
    /// Every copy of each virtual disk is read once in this number of days; 0: never.
    pub scrub_days: u64,
    /// The target for the clients' 99th percentile beside jobs, in milliseconds.
    pub latency_ms: u64,
    /// The minimum rate of all jobs of a pool together, in bytes per second, regardless of the latency of clients.
    pub minimum: u64,
}

impl Default for JobsSection {
    fn default() -> JobsSection {
        JobsSection { scrub_days: 28, latency_ms: 20, minimum: 4 << 20 }
    }
}

/// The range of the minimum rate: with lower rates jobs would never complete, higher ones would disable the pacing.
const MINIMUM: std::ops::Range<u64> = 64 << 10..(1 << 40) + 1;

/// The default of `devices`.
const USUAL: [&str; 2] = ["/dev/disk/by-id/*", "/var/lib/causeway/disks/*.disk"];

pub(super) fn read_storage(t: Table<'_, '_>) -> StorageSection {
    let devices = t.patterns("devices", "devices = [\"/dev/disk/by-id/*\"]");
    let usual = JobsSection::default();
    let jobs = JobsSection {
        scrub_days: t.number("scrub_days", 0..3651, "scrub_days = 28").unwrap_or(usual.scrub_days),
        latency_ms: t.number("job_latency_ms", 1..10_001, "job_latency_ms = 20").unwrap_or(usual.latency_ms),
        minimum: t.size("job_minimum", MINIMUM, "job_minimum = \"4MiB\"").unwrap_or(usual.minimum),
    };
    t.finish();
    StorageSection { jobs, devices: devices.unwrap_or_else(|| USUAL.map(str::to_owned).to_vec()) }
}
