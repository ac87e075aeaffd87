//! Properties of a file system below the root.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicBool;

use rustix::fs::{StatVfsMountFlags, Statx};
use rustix::io::Errno;

use super::streams::store::StoreCell;
use super::{HostDirOptions, volume};
use crate::FileKey;

/// One mounted file system.
pub(super) struct Device {
    /// The [`FileKey::volume`] of its files.
    pub(super) volume: u128,
    /// Its type and id from statfs(2).
    identity: (u64, u64),
    /// It is in memory: no call on it blocks.
    pub(super) memory: bool,
    /// The metadata of an open file is in memory, and inotify reports every change.
    pub(super) local: bool,
    /// Mounted read-only, or this tree is read-only.
    pub(super) read_only: bool,
    /// Buffered `RWF_NOWAIT` reads have not been refused yet.
    pub(super) nowait_reads: AtomicBool,
    /// Buffered `RWF_NOWAIT` writes have not been refused yet.
    pub(super) nowait_writes: AtomicBool,
    /// Splicing from a pipe into its files has not been refused yet.
    pub(super) splices: AtomicBool,
    /// `O_DIRECT` has not been refused yet; false for a memory file system, which has no cache to bypass.
    pub(super) direct: AtomicBool,
    /// The warning that unbuffered I/O is buffered here was logged.
    pub(super) warned_buffered: AtomicBool,
    /// It supports `user.*` attributes. Checked at first use; a refusal later is a failure, not a lack of support.
    pub(super) attributes: bool,
    /// Where large streams are stored.
    pub(super) store: StoreCell,
    /// The message that it refuses to store metadata was logged.
    pub(super) refused: AtomicBool,
}

/// `f_type` of statfs(2): file systems in memory.
const MEMORY: [u64; 2] = [0x0102_1994 /* tmpfs */, 0x8584_58f6 /* ramfs */];

/// `f_type` of statfs(2): file systems that only this kernel changes.
const LOCAL: [u64; 10] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x2fc1_2fc1, // ZFS
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
    0x794c_7630, // overlayfs
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x7366_746e, // NTFS
];

impl Device {
    /// Queries the system about the file system of `fd`, for a tree with these options.
    pub(super) fn of(fd: impl AsFd, options: &HostDirOptions) -> rustix::io::Result<Device> {
        let shared = options.shared;
        let kind = rustix::fs::fstatfs(&fd)?.f_type as u64;
        let facts = rustix::fs::fstatvfs(&fd)?;
        let memory = MEMORY.contains(&kind) && !shared;
        let identity = (kind, facts.f_fsid);
        let salt = options.snapshot_of.map_or(0, volume::of_snapshot);
        let volume = volume::identity(fd.as_fd(), identity) ^ salt;
        let attributes = takes_attributes(fd.as_fd());
        if !attributes {
            tracing::warn!(
                volume = %format_args!("{volume:032x}"),
                "this file system does not support user.* attributes: DOS attributes, creation times, security \
                 descriptors and extended attributes cannot be stored"
            );
        }
        Ok(Device {
            volume,
            identity,
            memory,
            local: memory || LOCAL.contains(&kind) && !shared,
            read_only: options.read_only || facts.f_flag.contains(StatVfsMountFlags::RDONLY),
            splices: AtomicBool::new(true),
            nowait_reads: AtomicBool::new(!memory),
            nowait_writes: AtomicBool::new(!memory),
            direct: AtomicBool::new(!memory),
            warned_buffered: AtomicBool::new(false),
            attributes,
            store: StoreCell::default(),
            refused: AtomicBool::new(false),
        })
    }
}

impl Device {
    /// The identity of a file on it.
    pub(super) fn key(&self, stat: &Statx) -> FileKey {
        FileKey { volume: self.volume, file: volume::file(stat) }
    }

    /// Whether single files can be compressed: other file systems store the flag without effect, or not at all.
    pub(super) fn compresses(&self) -> bool {
        self.identity.0 == volume::BTRFS && !self.read_only
    }

    /// Whether `fd` is on this file system. Its device has the same number, but device numbers are reused.
    pub(super) fn holds(&self, fd: impl AsFd) -> rustix::io::Result<bool> {
        let kind = rustix::fs::fstatfs(&fd)?.f_type as u64;
        Ok(self.identity == (kind, rustix::fs::fstatvfs(&fd)?.f_fsid))
    }
}

/// Whether a file can have `user.*` attributes. Only a clear refusal counts as no.
fn takes_attributes(fd: BorrowedFd<'_>) -> bool {
    // Queried by its path, because `fd` may be opened with `O_PATH`.
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    !matches!(rustix::fs::getxattr_query(path, "user.causeway.sd"), Err(Errno::OPNOTSUPP | Errno::NOSYS))
}

/// The device number in one word.
pub(super) fn number(s: &Statx) -> u64 {
    u64::from(s.stx_dev_major) << 32 | u64::from(s.stx_dev_minor)
}

/// Spreads the bits of a number over the whole word, one to one (the finaliser of SplitMix64).
pub(super) fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
