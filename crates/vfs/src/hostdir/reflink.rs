//! Sharing blocks between files, if the file system supports it (XFS, Btrfs).
#![allow(unsafe_code)] // one ioctl that no crate wraps

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{self, Errno};

/// `struct file_clone_range`.
#[repr(C)]
struct CloneRange {
    source: i64,
    source_offset: u64,
    /// 0: to the end of the source.
    length: u64,
    target_offset: u64,
}

/// Makes `length` bytes of `target` share the blocks of `source`, all or nothing.
pub(super) fn clone_range(
    source: BorrowedFd<'_>,
    from: u64,
    target: BorrowedFd<'_>,
    to: u64,
    length: u64,
) -> io::Result<()> {
    let range =
        CloneRange { source: source.as_raw_fd().into(), source_offset: from, length, target_offset: to };
    loop {
        // SAFETY: both descriptors are open, and `range` lives as long as the call, which only reads it.
        if unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONERANGE as _, &raw const range) } == 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error().raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::INTR) => {}
            error => return Err(error.unwrap_or(Errno::IO)),
        }
    }
}

/// Whether the file system of the directory `root` supports it: tries to clone an unnamed file onto itself.
pub(super) fn supported(root: impl AsFd) -> bool {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(root, ".", flags, Mode::RUSR | Mode::WUSR) else { return false };
    clone_range(file.as_fd(), 0, file.as_fd(), 0, 0).is_ok()
}
