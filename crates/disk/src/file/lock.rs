//! Locks on disks: a writer locks a disk exclusively, readers share it.
//!
//! | | a file | a device |
//! |---|---|---|
//! | writes | `flock`, exclusive | `O_EXCL`, which file systems and RAID respect, and a write lock of the open file |
//! | only reads | `flock`, shared | a read lock of the open file |
//! | looks | nothing | nothing |
//!
//! `O_EXCL` does not support shared readers, and udev and partitioning tools take short `flock` locks on
//! devices among themselves. Therefore devices use a third kind of lock, that of an open file description
//! (`F_OFD_SETLK`). A lock belongs to a device node: through different nodes of the same device, as in a
//! container, writers exclude each other, and readers exclude no process.
//!
//! The kernel's workers, which execute flushes and discards, keep an open file for a short time after an I/O
//! completes. So a closed disk is not free immediately, and reopening it would fail as in use. Therefore a
//! lock is released explicitly, and opening waits for a device that this process has just closed.
//!
//! **Unsafe** in one call, which passes a structure to the kernel.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use env::Env;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How long the kernel may keep a closed device, and the interval between tries.
const CLOSE_DELAY_MAX: Duration = Duration::from_secs(1);
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// Numbers of closed devices, with the time of closing.
static CLOSED: Mutex<Vec<(u64, Instant)>> = Mutex::new(Vec::new());

pub(super) enum DiskLock {
    /// No lock: others may use the disk too.
    Shared,
    /// A file.
    File,
    /// A device.
    Device {
        /// As reported by `stat`.
        number: u64,
        /// The device was opened with `O_EXCL`.
        writes: bool,
        env: Env,
    },
}

impl DiskLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// `None` if a conflicting lock exists, otherwise the system's error.
    pub(super) fn acquire(&self, fd: &OwnedFd, writes: bool) -> Result<(), Option<Errno>> {
        let taken = match (self, writes) {
            (DiskLock::Shared, _) => Ok(()),
            (DiskLock::File, true) => flock(fd, FlockOperation::NonBlockingLockExclusive),
            (DiskLock::File, false) => flock(fd, FlockOperation::NonBlockingLockShared),
            (DiskLock::Device { .. }, true) => set_lock(fd, libc::F_WRLCK),
            (DiskLock::Device { .. }, false) => set_lock(fd, libc::F_RDLCK),
        };
        taken.map_err(|e| (!matches!(e, Errno::AGAIN | Errno::ACCESS)).then_some(e))
    }

    /// Releases the lock; no I/O may be outstanding on the disk.
    pub(super) fn release(&self, fd: &OwnedFd) {
        match self {
            DiskLock::Shared => {}
            // Closing the file would release it too, but later.
            DiskLock::File => drop(flock(fd, FlockOperation::Unlock)),
            DiskLock::Device { number, writes, env } => {
                let _ = set_lock(fd, libc::F_UNLCK);
                if *writes {
                    let now = env.now();
                    let mut closed = CLOSED.lock();
                    closed.retain(|(n, at)| n != number && now < *at + CLOSE_DELAY_MAX);
                    closed.push((*number, now));
                }
            }
        }
    }
}

/// Sets the open file description's lock on the whole file, without waiting.
fn set_lock(fd: &OwnedFd, kind: libc::c_int) -> Result<(), Errno> {
    let kind = kind as libc::c_short;
    let whole = libc::flock {
        l_type: kind,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the structure is read during the call only.
    let done = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) };
    if done == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// Returns whether a busy device may be one that this process has just closed; if so, it sleeps first.
pub(super) fn wait_if_just_closed(env: &Env, number: u64) -> bool {
    let now = env.now();
    let waits = CLOSED.lock().iter().any(|(n, at)| *n == number && now < *at + CLOSE_DELAY_MAX);
    if waits {
        std::thread::sleep(RETRY_INTERVAL);
    }
    waits
}
