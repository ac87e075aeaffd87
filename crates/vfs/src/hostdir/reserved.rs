//! Frees, at the last close of a file, the space reserved behind its end (MS-FSA 2.1.5.5, as NTFS does).
//!
//! The system frees that space when the file is truncated to its current length. Data appended between reading the
//! length and truncating would be lost. So this is done under a write lease, which is granted only when the file has no
//! other open, in this or another process, and which delays opens meanwhile.
#![allow(unsafe_code)] // leases, which no crate wraps

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};

use super::node::statx;

/// Sets the signal of a lease break (`fcntl(2)`).
const F_SETSIG: libc::c_int = 10;

/// Frees the space reserved behind the end of the file `fd`, open for writing, unless another process has it open.
/// Then, and where leases are not supported, the space stays allocated.
pub(super) fn free_reserved(fd: BorrowedFd<'_>) {
    let done = || -> rustix::io::Result<()> {
        let stat = statx(fd)?;
        if stat.stx_nlink == 0
            || stat.stx_blocks.saturating_mul(512) <= stat.stx_size
            || !lease(fd, libc::F_WRLCK)
        {
            return Ok(());
        }
        let stat = statx(fd)?;
        let cut = rustix::fs::ftruncate(fd, stat.stx_size);
        // The data is unchanged: restore its time.
        let written = Timespec { tv_sec: stat.stx_mtime.tv_sec, tv_nsec: stat.stx_mtime.tv_nsec.into() };
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = rustix::fs::futimens(fd, &Timestamps { last_access: omit, last_modification: written });
        lease(fd, libc::F_UNLCK);
        cut.and(times)
    };
    if let Err(error) = done() {
        tracing::debug!("space reserved for a file could not be released: {error}");
    }
}

/// Opens the same file for reading and writing; `None` if the system refuses that.
pub(super) fn writable(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty()).ok()
}

/// Takes or releases a lease. An open of the file meanwhile causes a signal without effect, and waits.
fn lease(fd: BorrowedFd<'_>, kind: libc::c_int) -> bool {
    // SAFETY: both calls take a descriptor, which is open, and a number.
    unsafe {
        libc::fcntl(fd.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) == 0
    }
}
