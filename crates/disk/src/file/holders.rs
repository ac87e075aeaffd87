//! The processes that have locked a file or device, as far as this process can see them.

use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// A process that has locked a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process ID.
    pub process: u32,
    /// Process name.
    pub name: String,
    /// Its lock is for reading only, so others may read too.
    pub reads: bool,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { process, name, reads } = self;
        write!(f, "process {process} ({name})")?;
        if *reads { f.write_str(", which reads it") } else { Ok(()) }
    }
}

/// The processes with a lock on a file or device, each once. Only root sees other users' processes.
pub(super) fn holders(path: &Path) -> Vec<Holder> {
    let Ok(target) = fs::metadata(path) else { return Vec::new() };
    let is_device = target.file_type().is_block_device();
    let is_it = |found: &fs::Metadata| match is_device {
        true => found.file_type().is_block_device() && found.rdev() == target.rdev(),
        false => (found.dev(), found.ino()) == (target.dev(), target.ino()),
    };
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let mut out = Vec::new();
    for process in processes.flatten() {
        let Some(number) = process.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let Some(reads) = lock_of(&process.path(), &is_it) else { continue };
        let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        out.push(Holder { process: number, name: name.trim_end().to_owned(), reads });
    }
    out.sort_by_key(|h| h.process);
    out
}

/// Whether the process has a lock on the file; `Some(true)` if all its locks are for reading.
fn lock_of(process: &Path, is_it: &impl Fn(&fs::Metadata) -> bool) -> Option<bool> {
    let descriptors = fs::read_dir(process.join("fd")).ok()?.flatten();
    let through = descriptors.filter(|d| fs::metadata(d.path()).is_ok_and(|found| is_it(&found)));
    let locks = through.filter_map(|d| {
        let reported = fs::read_to_string(process.join("fdinfo").join(d.file_name())).ok()?;
        reads(&reported)
    });
    // One write lock makes the process a writer.
    locks.reduce(|all, one| all && one)
}

/// Lines of `proc_pid_fdinfo(5)`: `lock: 1: FLOCK ADVISORY WRITE 359 00:13:11691 0 EOF`.
fn reads(reported: &str) -> Option<bool> {
    let locks = reported.lines().filter_map(|line| line.strip_prefix("lock:"));
    locks.map(|lock| lock.split_whitespace().any(|word| word == "READ")).reduce(|all, one| all && one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_parsed_from_fdinfo() {
        let reported = |lock| format!("pos:\t0\nflags:\t02100002\nmnt_id:\t30\nino:\t7\n{lock}");
        assert_eq!(reads(&reported("")), None);
        assert_eq!(reads(&reported("lock:\t1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF\n")), Some(false));
        assert_eq!(reads(&reported("lock:\t1: OFDLCK ADVISORY  READ -1 00:13:11691 0 EOF\n")), Some(true));
        let both = "lock:\t1: FLOCK  ADVISORY  READ 3 0:1:2 0 EOF\nlock:\t2: OFDLCK ADVISORY  WRITE -1 0:1:2 0 EOF\n";
        assert_eq!(reads(&reported(both)), Some(false));
    }
}
