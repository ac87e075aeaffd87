//! The identity of a file system, for [`crate::FileKey::volume`], and of a file on it.
//!
//! The identity is the same in every mount and every share of the file system, and after a restart of the machine:
//! device numbers are not used. It is the first of these that exists:
//!
//! 1. its UUID: `FS_IOC_GETFSUUID` (Linux 6.9), otherwise the link in `/dev/disk/by-uuid` to its device;
//! 2. `f_fsid` of statfs(2), if it is derived from the UUID ([`FSID_FROM_UUID`]);
//! 3. 128 random bits, stored once in the extended attribute [`ATTRIBUTE`] of its root directory (or of its topmost
//!    mounted directory). 18 bytes: u16 version = 1, little-endian, then the bits;
//! 4. a number computed from `f_fsid` and the source of the mount, with a warning in the log: it may change.
//!
//! Each subvolume of Btrfs numbers its files separately, so it counts as a file system: the UUID is combined with
//! `f_fsid`, which contains the subvolume's number.
//!
//! A snapshot ([`super::snapshots`]) counts as a file system of its own, wherever it is: [`of_snapshot`].
//!
//! The identity of a file has its inode number in the low 64 bits and its birth time in the high 64 bits: nanoseconds
//! since 1970 as a two's complement, 0 if the file system has none. So a file that reuses the number of a removed file
//! has another identity, unless both were created within the same tick of the kernel's clock (1 to 10 ms).
#![allow(unsafe_code)] // one ioctl that no crate wraps

use std::fmt::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, Statx, StatxFlags, XattrFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Getter};

use super::device::{mix, number};
use super::node;
use crate::SnapshotTime;

/// Where the random identity of a file system without a UUID is stored.
const ATTRIBUTE: &str = "user.causeway.volume";
const VERSION: u16 = 1;

pub(super) const BTRFS: u64 = 0x9123_683e;

/// `f_type` of file systems whose `f_fsid` is derived from their UUID.
const FSID_FROM_UUID: [u64; 5] = [
    0xef53, // ext2, ext3, ext4
    BTRFS,
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0x0102_1994, // tmpfs
];

/// `struct fsuuid2`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FsUuid {
    length: u8,
    uuid: [u8; 16],
}

const FS_IOC_GETFSUUID: ioctl::Opcode = ioctl::opcode::read::<FsUuid>(0x15, 0);

/// The identity of the file system of `fd`, which may be opened with `O_PATH`; `kind` and `fsid` are statfs's.
pub(super) fn identity(fd: BorrowedFd<'_>, (kind, fsid): (u64, u64)) -> u128 {
    let subvolume = if kind == BTRFS { spread(fsid) } else { 0 };
    if let Some(uuid) = uuid(fd, kind).or_else(|| uuid_of_device(fd)) {
        return uuid ^ subvolume;
    }
    if fsid != 0 && FSID_FROM_UUID.contains(&kind) {
        return spread(fsid ^ mix(kind));
    }
    let mount = Mount::of(fd);
    let stored = match &mount {
        Some(mount) => mount.open().and_then(|root| stored(root.as_fd())),
        None => reopen(fd).and_then(|fd| stored(fd.as_fd())),
    };
    match stored {
        Ok(volume) => volume,
        Err(error) => {
            let source = mount.map_or(String::new(), |m| m.source);
            let named = source.bytes().fold(mix(kind), |sum, b| mix(sum ^ u64::from(b)));
            tracing::warn!(
                source,
                "this file system has no UUID and cannot store one ({error}): its files may have other identities \
                 after a restart"
            );
            spread(fsid ^ named)
        }
    }
}

/// [`crate::FileKey::file`].
pub(super) fn file(stat: &Statx) -> u128 {
    let born = if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME) {
        let (seconds, nanoseconds) = (stat.stx_btime.tv_sec, i64::from(stat.stx_btime.tv_nsec));
        seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
    } else {
        0
    };
    u128::from(born as u64) << 64 | u128::from(stat.stx_ino)
}

/// The UUID from the kernel. Some file systems (FAT) have fewer than 16 bytes: padded with their type.
fn uuid(fd: BorrowedFd<'_>, kind: u64) -> Option<u128> {
    let fd = reopen(fd).ok()?;
    // SAFETY: the number says that the kernel writes a `struct fsuuid2`, whose layout `FsUuid` has.
    let answer = unsafe { ioctl::ioctl(&fd, Getter::<FS_IOC_GETFSUUID, FsUuid>::new()) }.ok()?;
    let length = usize::from(answer.length);
    let bytes = answer.uuid.get(..length).filter(|bytes| bytes.iter().any(|b| *b != 0))?;
    let mut all = [0; 16];
    all[16 - length..].copy_from_slice(bytes);
    let completed = if length < 16 { u128::from(mix(kind)) << 64 } else { 0 };
    Some(u128::from_be_bytes(all) ^ completed)
}

/// The UUID that udev found on the file system's device.
fn uuid_of_device(fd: BorrowedFd<'_>) -> Option<u128> {
    let device = number(&node::statx(fd).ok()?);
    for link in std::fs::read_dir("/dev/disk/by-uuid").ok()?.flatten() {
        let there = rustix::fs::stat(link.path())
            .map(|s| u64::from(rustix::fs::major(s.st_rdev)) << 32 | u64::from(rustix::fs::minor(s.st_rdev)));
        if there == Ok(device)
            && let Some(uuid) = link.file_name().to_str().and_then(parse)
        {
            return Some(uuid);
        }
    }
    None
}

/// The 32 digits of a UUID.
fn parse(text: &str) -> Option<u128> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let legal = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if legal { u128::from_str_radix(&digits, 16).ok() } else { None }
}

/// The identity that is stored with the directory `root`; stores one if there is none.
fn stored(root: BorrowedFd<'_>) -> Result<u128, Errno> {
    let read = || {
        let mut value = [0; 18];
        let n = rustix::fs::fgetxattr(root, ATTRIBUTE, &mut value[..])?;
        match value.split_first_chunk::<2>() {
            Some((version, bits)) if n == 18 && *version == VERSION.to_le_bytes() => {
                Ok(u128::from_le_bytes(bits.try_into().map_err(|_| Errno::INVAL)?))
            }
            _ => Err(Errno::INVAL),
        }
    };
    match read() {
        Err(Errno::NODATA) => {}
        done => return done,
    }
    let bits: [u8; 16] = env::Env::real().random();
    let value = [&VERSION.to_le_bytes()[..], &bits].concat();
    match rustix::fs::fsetxattr(root, ATTRIBUTE, &value, XattrFlags::CREATE) {
        // Another tree may have been faster.
        Ok(()) | Err(Errno::EXIST) => read(),
        Err(e) => Err(e),
    }
}

/// The topmost directory of the file system of `fd` that is mounted.
pub(super) fn top(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    Mount::of(fd).ok_or(Errno::NOENT)?.open()
}

/// A line of `/proc/self/mountinfo`.
struct Mount {
    /// The directory of the file system that is mounted.
    root: String,
    point: String,
    source: String,
    device: String,
}

impl Mount {
    /// The mount whose root is the topmost directory of the file system of `fd`.
    fn of(fd: BorrowedFd<'_>) -> Option<Mount> {
        let stat = node::statx(fd).ok()?;
        let device = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
        let all = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let found = all.lines().filter_map(Mount::parse).filter(|m| m.device == device);
        found.min_by(|a, b| (a.root.len(), &a.root).cmp(&(b.root.len(), &b.root)))
    }

    /// proc_pid_mountinfo(5): number, parent, device, root, mount point, options, …, `-`, type, source, options.
    fn parse(line: &str) -> Option<Mount> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let (device, root, point) = (before.next()?, before.next()?, before.next()?);
        let source = after.split(' ').nth(1)?;
        let [device, root, point, source] = [device, root, point, source].map(unescape);
        Some(Mount { root, point, source, device })
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open(Path::new(&self.point), flags, Mode::empty())?;
        let stat = node::statx(&fd)?;
        // Another file system may be mounted over it.
        let device = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
        if device == self.device { Ok(fd) } else { Err(Errno::NOENT) }
    }
}

/// Replaces `\040` and the like.
fn unescape(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                out.push(byte);
                rest = &after[3..];
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Opens a descriptor for reading that may be opened with `O_PATH`.
fn reopen(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut path = String::from("/proc/self/fd/");
    let _ = write!(path, "{}", fd.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

/// The number that is combined with a file system's identity for its snapshot of that time. It is needed because a
/// snapshot may have hard links to the files of the original tree, and a copy of a file system has the same UUID.
pub(super) fn of_snapshot(at: SnapshotTime) -> u128 {
    spread(mix(at.seconds() as u64))
}

/// Maps 64 bits to 128, one to one.
fn spread(n: u64) -> u128 {
    u128::from(mix(n)) << 64 | u128::from(mix(!n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo() {
        let line =
            "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 server:/a\\134b rw,errors=continue";
        let mount = Mount::parse(line).expect("a line");
        let fields = (&*mount.device, &*mount.root, &*mount.point, &*mount.source);
        assert_eq!(fields, ("98:0", "/mnt1", "/mnt 2", "server:/a\\b"));
        assert!(Mount::parse("36 35").is_none());
        assert_eq!(unescape("\\04"), "\\04");
    }

    #[test]
    fn uuids() {
        assert_eq!(parse("00000000-0000-0000-0000-0000000000ff"), Some(255));
        assert_eq!(parse("1234-ABCD"), None);
        assert_eq!(parse("+0000000-0000-0000-0000-0000000000ff"), None);
    }

    /// A stored identity is read again, never replaced.
    #[test]
    fn a_stored_identity() {
        let dir = tempfile::tempdir().expect("a directory");
        let fd = rustix::fs::open(dir.path(), OFlags::RDONLY, Mode::empty()).expect("there");
        match stored(fd.as_fd()) {
            Ok(first) => {
                assert_eq!(stored(fd.as_fd()), Ok(first));
                rustix::fs::fsetxattr(&fd, ATTRIBUTE, b"short", XattrFlags::empty()).expect("room");
                assert_eq!(stored(fd.as_fd()), Err(Errno::INVAL));
            }
            Err(e) => eprintln!("SKIPPED: no extended attributes here: {e}"),
        }
    }
}
