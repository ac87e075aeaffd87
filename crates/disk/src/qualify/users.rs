//! The users of a disk.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sysfs::{Device, Sysfs};

/// A user of a disk or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// A file system on it is mounted.
    Mounted {
        /// The mount point.
        at: PathBuf,
    },
    /// It is part of another device: device mapper, RAID.
    Holder {
        /// The other device's name.
        name: String,
    },
    /// It is used for swapping.
    Swap {
        /// The device.
        path: PathBuf,
    },
    /// The file backs a loop device.
    Loop {
        /// The loop device's name.
        name: String,
    },
}

impl User {
    /// A command that ends the use.
    pub(super) fn cure(&self) -> String {
        match self {
            User::Mounted { at } => format!("umount {}", at.display()),
            User::Holder { name } if name.starts_with("md") => format!("mdadm --stop /dev/{name}"),
            User::Holder { name } => {
                format!(
                    "stop the use of /dev/{name} (vgchange -an, cryptsetup close, multipath -f), then try again"
                )
            }
            User::Swap { path } => format!("swapoff {}", path.display()),
            User::Loop { name } => format!("losetup --detach /dev/{name}"),
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            User::Mounted { at } => write!(f, "mounted at {}", at.display()),
            User::Holder { name } => write!(f, "part of {name}"),
            User::Swap { path } => write!(f, "used as the swap space {}", path.display()),
            User::Loop { name } => write!(f, "used by the loop device {name}"),
        }
    }
}

/// All users that the system reports.
pub(super) fn users(path: &Path, device: Option<&Device>, sysfs: &Sysfs) -> Vec<User> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let Some(device) = device else {
        let Ok(file) = fs::canonicalize(path) else { return Vec::new() };
        let behind = sysfs.disks().into_iter().filter(|d| d.backing_file().as_ref() == Some(&file));
        let mut out: Vec<_> = behind.map(|d| User::Loop { name: d.name }).collect();
        out.extend(swapped(&swaps, &[file]));
        return out;
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let (numbers, nodes) = (device.numbers(), device.nodes());
    let mut out = mounted(&mounts, &numbers, &nodes);
    out.extend(device.all_holders().into_iter().map(|name| User::Holder { name }));
    out.extend(swapped(&swaps, &nodes));
    out
}

/// Parses `proc_pid_mountinfo(5)`: the third field is the device number, the fifth the mount point. After a
/// lone dash come the type and the source, which names the device if a file system has its own numbers
/// (btrfs).
pub(super) fn mounted(mountinfo: &str, numbers: &[String], nodes: &[PathBuf]) -> Vec<User> {
    let line = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let mut fields = front.split(' ').skip(2);
        let (number, at) = (fields.next()?, fields.nth(1)?);
        let source = back.split(' ').nth(1)?;
        let ours = numbers.iter().any(|n| n == number) || nodes.iter().any(|n| n == Path::new(source));
        ours.then(|| User::Mounted { at: PathBuf::from(unescape(at)) })
    };
    let mut out: Vec<User> = mountinfo.lines().filter_map(line).collect();
    out.dedup();
    out
}

/// Parses `/proc/swaps`: the first field is the path.
pub(super) fn swapped(swaps: &str, nodes: &[PathBuf]) -> Vec<User> {
    let paths = swaps.lines().skip(1).filter_map(|l| l.split_whitespace().next()).map(PathBuf::from);
    paths.filter(|p| nodes.contains(p)).map(|path| User::Swap { path }).collect()
}

/// Decodes blanks and backslashes, which are escaped as `\` and three octal digits.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}
