//! The process and its payload memory, for the performance counters.

use arena::Usage;
use counters::levels::{MEMORY, PROCESS};
use counters::{Level, SetSnapshot};
use rustix::process::{Resource, getrlimit};

/// Processor time that the process has used, in nanoseconds.
pub(super) fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The sets for the process and for its payload memory.
pub(super) fn levels(memory: Usage) -> [SetSnapshot; 2] {
    let level = |instance: &str, values| Level { instance: instance.to_owned(), labels: Vec::new(), values };
    // proc_pid_statm(5): pages in all, pages resident.
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let entries = |directory: &str| std::fs::read_dir(directory).map_or(0, |d| d.count() as u64);
    let process = vec![
        cpu_ns(),
        pages * rustix::param::page_size() as u64,
        entries("/proc/self/task"),
        entries("/proc/self/fd"),
        getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
    ];
    let memory = vec![memory.budget as u64, memory.used as u64, memory.reserve as u64, memory.waiting as u64];
    [
        SetSnapshot::of_levels(&MEMORY, vec![level("payload", memory)]),
        SetSnapshot::of_levels(&PROCESS, vec![level("causeway", process)]),
    ]
}
