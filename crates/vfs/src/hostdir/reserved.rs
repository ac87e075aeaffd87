//! Giving back, when the last open of a file goes, what was reserved behind its end (MS-FSA 2.1.5.5, as NTFS does).
//!
//! The system frees that space when the file is cut off where it ends. Were something appended between looking where
//! that is and cutting, it would be lost. So it is done under a write lease, which is given only when nobody else has
//! the file open, here or in another process, and which holds up who opens it meanwhile.
#![allow(unsafe_code)] // leases, which no crate wraps

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};

use super::node::statx;

/// The signal that asks for a lease back (`fcntl(2)`).
const F_SETSIG: libc::c_int = 10;

/// Gives back what is reserved behind the end of the file `fd`, open for writing, unless somebody else has it open: then its last close
/// elsewhere does not, and the space stays with the file, as it does where there are no leases.
pub(super) fn give_back(fd: BorrowedFd<'_>) {
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
        // Nobody has changed the data.
        let written = Timespec { tv_sec: stat.stx_mtime.tv_sec, tv_nsec: stat.stx_mtime.tv_nsec.into() };
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = rustix::fs::futimens(fd, &Timestamps { last_access: omit, last_modification: written });
        lease(fd, libc::F_UNLCK);
        cut.and(times)
    };
    if let Err(error) = done() {
        tracing::debug!("space reserved for a file is not given back: {error}");
    }
}

/// The same file opened for writing too; `None` when that may not be.
pub(super) fn writable(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty()).ok()
}

/// Takes or gives back a lease; who wants the file sends a signal that does nothing and waits.
fn lease(fd: BorrowedFd<'_>, kind: libc::c_int) -> bool {
    // SAFETY: both calls take a descriptor, which is open, and a number.
    unsafe {
        libc::fcntl(fd.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) == 0
    }
}
