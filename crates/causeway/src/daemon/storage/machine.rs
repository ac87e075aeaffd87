//! Who we are to other machines that see the same disks.

use std::fs;

use pool::format::Claimant;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// This process on this machine.
pub(super) fn claimant() -> Claimant {
    Claimant {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        machine: number("/etc/machine-id"),
        boot: number("/proc/sys/kernel/random/boot_id"),
        process: std::process::id(),
    }
}

/// Whether a process of this boot is there; one that may not be asked is. `/proc` may hide those of other users.
pub(super) fn is_running(process: u32) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_some_and(|p| test_kill_process(p) != Err(Errno::SRCH))
}

/// 32 hexadecimal digits, with hyphens or without; zeros where there are none.
fn number(path: &str) -> [u8; 16] {
    fs::read_to_string(path).ok().and_then(|t| parse(&t)).unwrap_or_default()
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
    }
}
