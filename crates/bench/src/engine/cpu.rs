//! Processor time of the system and of processes, from `/proc`.

use std::io;
use std::time::Duration;

use serde::Serialize;

/// The time of one processor in an interval, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// User programs.
    pub user: u64,
    /// The kernel, including interrupts.
    pub kernel: u64,
    /// Idle, including waiting for I/O.
    pub idle: u64,
    /// Stolen by the host of this virtual machine.
    pub steal: u64,
}

/// A processor's shares of an interval, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CpuShares {
    /// User and kernel.
    pub usage: f64,
    /// User programs.
    pub user: f64,
    /// The kernel.
    pub kernel: f64,
    /// Idle.
    pub idle: f64,
    /// Stolen by the host; not part of the usage.
    pub steal: f64,
}

/// Processor time of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessCpu {
    /// Its process ID.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// User and kernel, in seconds.
    pub cpu_s: f64,
}

impl CpuTimes {
    /// The difference to `before`.
    pub fn since(&self, before: &CpuTimes) -> CpuTimes {
        CpuTimes {
            user: self.user.saturating_sub(before.user),
            kernel: self.kernel.saturating_sub(before.kernel),
            idle: self.idle.saturating_sub(before.idle),
            steal: self.steal.saturating_sub(before.steal),
        }
    }

    /// As percentages; all zero if no time passed.
    pub fn shares(&self) -> CpuShares {
        let all = self.user + self.kernel + self.idle + self.steal;
        let share = |n: u64| if all == 0 { 0.0 } else { n as f64 * 100.0 / all as f64 };
        CpuShares {
            usage: share(self.user + self.kernel),
            user: share(self.user),
            kernel: share(self.kernel),
            idle: share(self.idle),
            steal: share(self.steal),
        }
    }
}

impl CpuShares {
    /// The average of several.
    pub fn average(all: &[CpuShares]) -> CpuShares {
        let n = all.len().max(1) as f64;
        let mean = |f: fn(&CpuShares) -> f64| all.iter().map(f).sum::<f64>() / n;
        CpuShares {
            usage: mean(|c| c.usage),
            user: mean(|c| c.user),
            kernel: mean(|c| c.kernel),
            idle: mean(|c| c.idle),
            steal: mean(|c| c.steal),
        }
    }
}

/// All processors, by number, since the system started.
///
/// # Errors
/// If `/proc` is missing.
pub fn system() -> io::Result<Vec<(u32, CpuTimes)>> {
    Ok(parse_stat(&std::fs::read_to_string("/proc/stat")?))
}

/// proc_stat(5): `cpuN user nice system idle iowait irq softirq steal guest guest_nice`; guests are in user and nice.
fn parse_stat(text: &str) -> Vec<(u32, CpuTimes)> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let number = words.next()?.parse().ok()?;
        let n: Vec<u64> = words.map_while(|w| w.parse().ok()).collect();
        let at = |i: usize| n.get(i).copied().unwrap_or(0);
        let times = CpuTimes {
            user: at(0) + at(1),
            kernel: at(2) + at(5) + at(6),
            idle: at(3) + at(4),
            steal: at(7),
        };
        Some((number, times))
    };
    // `cpu  ...` without a number is the sum.
    text.lines().filter(|l| !l.starts_with("cpu ")).filter_map(line).collect()
}

/// A process's name and its processor time.
///
/// # Errors
/// If there is no such process.
pub fn process(pid: u32) -> io::Result<(String, Duration)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let (name, ticks_used) = parse_process(&text).ok_or(io::ErrorKind::InvalidData)?;
    Ok((name, Duration::from_secs_f64(ticks_used as f64 / ticks as f64)))
}

/// proc_pid_stat(5): fields 14 and 15 are user and kernel ticks; the name, in parentheses, may hold anything.
fn parse_process(text: &str) -> Option<(String, u64)> {
    let (begin, end) = (text.find('(')?, text.rfind(')')?);
    let name = text.get(begin + 1..end)?.to_owned();
    let mut rest = text.get(end + 1..)?.split_ascii_whitespace().skip(11);
    let user: u64 = rest.next()?.parse().ok()?;
    let kernel: u64 = rest.next()?.parse().ok()?;
    Some((name, user + kernel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_table() {
        let text = "cpu  9 9 9 9\ncpu0 10 5 20 100 7 1 2 3 0 0\ncpu12 1 0 0 1\nintr 5 cpu9 1\n";
        let times = CpuTimes { user: 15, kernel: 23, idle: 107, steal: 3 };
        assert_eq!(parse_stat(text)[0], (0, times));
        assert_eq!(parse_stat(text).len(), 2);
        assert!(!system().expect("Linux").is_empty());
    }

    #[test]
    fn shares_add_up() {
        let before = CpuTimes { user: 10, kernel: 10, idle: 10, steal: 0 };
        let after = CpuTimes { user: 40, kernel: 35, idle: 55, steal: 0 };
        let s = after.since(&before).shares();
        assert_eq!((s.usage, s.user, s.kernel, s.idle), (55.0, 30.0, 25.0, 45.0));
        assert_eq!(CpuTimes::default().shares(), CpuShares::default());
    }

    #[test]
    fn a_process_with_a_nasty_name() {
        let text = "7 (a b) c)) S 1 2 3 4 5 6 7 8 9 10 300 44 0 0 20 0";
        assert_eq!(parse_process(text), Some(("a b) c)".to_owned(), 344)));
        assert!(process(std::process::id()).is_ok());
        assert!(process(u32::MAX).is_err());
    }
}
