//! `[storage]`: where disks of pools are.

use super::reader::Table;

/// `[storage]`. Without the section the server searches no disks: opening a pool means taking ownership, and
/// a server that shares a directory must not take pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageSection {
    /// Absolute paths of disks, with `*` and `?` for letters of a name: where they are looked for at the start.
    pub devices: Vec<String>,
    /// How jobs of pools run.
    pub jobs: JobsSection,
}

/// How jobs of pools run; the same without the section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobsSection {
    /// Every copy of each virtual disk is read once in this number of days; 0: never.
    pub scrub_days: u64,
    /// The target for the clients' 99th percentile beside jobs, in milliseconds.
    pub latency_ms: u64,
    /// Bytes a second that jobs of a pool have together whatever that does to clients.
    pub minimum: u64,
}

impl Default for JobsSection {
    fn default() -> JobsSection {
        JobsSection { scrub_days: 28, latency_ms: 20, minimum: 4 << 20 }
    }
}

/// The minimum rate of jobs: lower ones would never end, higher ones would defeat the pacing.
const MINIMUM: std::ops::Range<u64> = 64 << 10..(1 << 40) + 1;

/// Where a section that names no places looks.
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
