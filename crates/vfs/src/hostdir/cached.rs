//! Whether a part of a file is in the page cache: cachestat(2), Linux 6.5 and later.
#![allow(unsafe_code)] // one system call that no crate wraps

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of cachestat(2), the same on every architecture.
const CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`.
#[repr(C)]
struct CacheRange {
    offset: u64,
    length: u64,
}

/// `struct cachestat`, in pages.
#[repr(C)]
#[derive(Default)]
struct CacheCounts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether all pages of `length` bytes at `offset` are in memory; `None` if the kernel cannot tell.
pub(super) fn resident(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Option<bool> {
    let page = rustix::param::page_size() as u64;
    let needed = if length == 0 { 0 } else { (offset + length - 1) / page - offset / page + 1 };
    Some(pages(fd, offset, length)? >= needed)
}

/// How many pages of `length` bytes at `offset` are in memory; `None` if the kernel cannot tell.
pub(super) fn pages(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Option<u64> {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    if length == 0 {
        return Some(0);
    }
    if REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    let range = CacheRange { offset, length };
    let mut counts = CacheCounts::default();
    let flags: libc::c_uint = 0;
    // SAFETY: both structures have the kernel's layout and outlive the call, which reads one and writes the other.
    let r = unsafe {
        libc::syscall(
            CACHESTAT,
            fd.as_raw_fd(),
            std::ptr::from_ref(&range),
            std::ptr::from_mut(&mut counts),
            flags,
        )
    };
    if r != 0 {
        REFUSED
            .store(std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS), Ordering::Relaxed);
        return None;
    }
    Some(counts.cached)
}
