//! The description of this machine in the report, in DiskSPD's terms: groups of 64 processors, nodes,
//! sockets, cores.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::profile::Affinity;

/// This machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SystemInfo {
    /// Its name.
    pub computer_name: String,
    /// When the run started, in seconds since 1970 UTC; `None`: omitted from the report.
    pub started: Option<u64>,
    /// The operating system and its version.
    pub system: String,
    /// The CPU frequency governor (cpufreq).
    pub governor: String,
    /// Online processors, by number.
    pub processors: Vec<Processor>,
    /// Whether there are faster and slower cores.
    pub heterogeneous: bool,
    /// Whether a core has several processors.
    pub smt: bool,
}

/// A processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Processor {
    /// The number in Linux.
    pub number: u32,
    /// The number of its core within the group.
    pub core: u32,
    /// Its socket.
    pub socket: u32,
    /// Its NUMA node.
    pub node: u32,
    /// The performance class of its core; 0: the slowest.
    pub class: u32,
}

impl Processor {
    /// Its group of 64.
    pub fn group(&self) -> u32 {
        self.number / 64
    }

    /// Its number in the group.
    pub fn in_group(&self) -> u32 {
        self.number % 64
    }
}

impl SystemInfo {
    /// Reads the description from `/proc` and `/sys`. `now` is the time since 1970.
    pub fn read(now: Duration) -> SystemInfo {
        let uname = rustix::system::uname();
        let numbers: Vec<u32> = super::cpu::system().unwrap_or_default().iter().map(|(n, _)| *n).collect();
        let mut raw: Vec<Raw> = numbers.iter().map(|n| Raw::read(*n)).collect();
        let classes: BTreeSet<u64> = raw.iter().map(|r| r.capacity).collect();
        let mut cores: Vec<(u32, u32, u32)> = Vec::new();
        let mut processors = Vec::new();
        for (number, raw) in numbers.iter().zip(&mut raw) {
            let group = number / 64;
            let key = (group, raw.socket, raw.core);
            let known = cores.iter().filter(|c| c.0 == group).position(|c| *c == key);
            let core = known.unwrap_or_else(|| {
                cores.push(key);
                cores.iter().filter(|c| c.0 == group).count() - 1
            });
            let class = classes.iter().position(|c| *c == raw.capacity).unwrap_or(0);
            processors.push(Processor {
                number: *number,
                core: core as u32,
                socket: raw.socket,
                node: raw.node,
                class: class as u32,
            });
        }
        let governor = text(Path::new("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
        SystemInfo {
            computer_name: uname.nodename().to_string_lossy().into_owned(),
            started: Some(now.as_secs()),
            system: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            governor: governor.unwrap_or_else(|| "<unknown>".to_owned()),
            smt: cores.len() < processors.len(),
            heterogeneous: classes.len() > 1,
            processors,
        }
    }

    /// The distinct values of a property of the processors, sorted.
    pub fn distinct<T: Ord>(&self, of: impl Fn(&Processor) -> T) -> Vec<T> {
        self.processors.iter().map(of).collect::<BTreeSet<T>>().into_iter().collect()
    }
}

/// The processors that this process may use, in the notation of `-a`.
pub fn allowed() -> Vec<Affinity> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    let numbers = (0..rustix::thread::CpuSet::MAX_CPU).filter(|n| set.is_set(*n));
    numbers.map(|n| Affinity { group: (n / 64) as u16, processor: (n % 64) as u8 }).collect()
}

struct Raw {
    core: u32,
    socket: u32,
    node: u32,
    capacity: u64,
}

impl Raw {
    fn read(number: u32) -> Raw {
        let folder = format!("/sys/devices/system/cpu/cpu{number}");
        let folder = Path::new(&folder);
        let value = |name: &str| text(&folder.join(name)).and_then(|t| t.parse::<u64>().ok());
        let node = fs::read_dir(folder).ok().and_then(|mut entries| {
            entries.find_map(|e| e.ok()?.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        });
        Raw {
            core: value("topology/core_id").unwrap_or(number.into()) as u32,
            socket: value("topology/physical_package_id").unwrap_or(0) as u32,
            node: node.unwrap_or(0),
            capacity: value("cpu_capacity").unwrap_or(0),
        }
    }
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine() {
        let system = SystemInfo::read(Duration::from_secs(1));
        assert!(!system.processors.is_empty() && !system.computer_name.is_empty());
        assert!(system.system.starts_with("Linux "));
        assert!(!system.distinct(|p| p.node).is_empty());
        assert!(!allowed().is_empty());
    }
}
