//! The identity of this process for other machines that see the same disks.

use std::fs;

use pool::format::Claimant;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// This process on this machine; `machine` stands for it if the system has no machine id.
pub(super) fn claimant(machine: [u8; 16]) -> Claimant {
    Claimant {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        machine: number("/etc/machine-id").unwrap_or(machine),
        boot: number("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
        process: std::process::id(),
    }
}

/// Whether a process of this boot is alive. True if this process has no permission to query it, or `/proc` hides it. A
/// process that has ended and was not reaped (a zombie; in containers possibly permanent) is not alive: none of its
/// threads runs.
pub(super) fn is_running(process: u32) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_some_and(|p| test_kill_process(p) != Err(Errno::SRCH)) && !has_ended(process)
}

/// Whether all threads of a process have ended, as far as `/proc` shows.
fn has_ended(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    let states = threads.map(|t| fs::read_to_string(t.ok()?.path().join("stat")).ok());
    let mut states = states.map(|text| text.as_deref().and_then(state)).peekable();
    states.peek().is_some() && states.all(|s| matches!(s, Some('Z' | 'X')))
}

/// The state in `/proc/PID/stat`: after the name, which may contain any characters.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Reads an id from a file: 32 hexadecimal digits, with or without hyphens; `None` if it is all zeros.
fn number(path: &str) -> Option<[u8; 16]> {
    fs::read_to_string(path).ok().and_then(|t| parse(&t)).filter(|id| *id != [0; 16])
}

fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings() {
        let id = parse("3d1219c7c4c5404aaa1f6d2a48adfda4\n").expect("as in /etc/machine-id");
        assert_eq!(id[..2], [0x3d, 0x12]);
        assert_eq!(parse("3d1219c7-c4c5-404a-aa1f-6d2a48adfda4"), Some(id));
        assert_eq!(parse("uninitialized"), None);
        assert!(is_running(std::process::id()) && is_running(1));
        assert!(!is_running(u32::MAX) && !is_running(0));
        assert_eq!(state("7 (a) Z (b) S 1 2"), Some('S'));
    }

    #[test]
    fn an_ended_process_holds_nothing_even_as_a_zombie() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        assert!(is_running(child.id()));
        child.kill().expect("it is ours");
        let mut tries = (0..500).map(|_| std::thread::sleep(std::time::Duration::from_millis(10)));
        assert!(tries.any(|()| !is_running(child.id())), "it is a zombie until it is waited for");
        child.wait().expect("it has ended");
    }
}
