//! Locks on disks: a writer has a disk exclusively, readers share it.
//!
//! | | a file | a device |
//! |---|---|---|
//! | writes | `flock`, exclusive | `O_EXCL`, which file systems and RAID respect, and a write lock of the open file |
//! | only reads | `flock`, shared | a read lock of the open file |
//! | looks | nothing | nothing |
//!
//! `O_EXCL` does not support shared readers, and udev and partitioning tools use `flock` on devices among
//! themselves, often and for moments: hence the third kind of lock, that of an open file (`F_OFD_SETLK`). A
//! lock is on a node: through different nodes of the same device, as in a container, writers exclude each
//! other, and readers exclude no process.
//!
//! The kernel's workers, which execute flushes and discards, keep an open file for some moments after the
//! completion of an I/O. So a closed disk is not free at once, and opening it again would fail as in use.
//! Therefore a lock is released explicitly, and opening waits for a device that this process has just closed.
//!
//! **Unsafe** in one call: it gives the kernel a structure to read.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use env::Env;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How long the kernel may take, and how often it is looked.
const LINGERS: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(2);

/// Devices that were closed, by number, and when.
static CLOSED: Mutex<Vec<(u64, Instant)>> = Mutex::new(Vec::new());

pub(super) enum Hold {
    /// Others may have it, too.
    Shared,
    /// A file.
    File,
    /// A device.
    Device {
        /// As `stat` gives it.
        number: u64,
        /// It was opened exclusively, too.
        writes: bool,
        env: Env,
    },
}

impl Hold {
    /// Takes the lock that belongs to it.
    ///
    /// # Errors
    /// `None`: a conflicting lock exists. Otherwise the system's reason.
    pub(super) fn begin(&self, fd: &OwnedFd, writes: bool) -> Result<(), Option<Errno>> {
        let taken = match (self, writes) {
            (Hold::Shared, _) => Ok(()),
            (Hold::File, true) => flock(fd, FlockOperation::NonBlockingLockExclusive),
            (Hold::File, false) => flock(fd, FlockOperation::NonBlockingLockShared),
            (Hold::Device { .. }, true) => lock(fd, libc::F_WRLCK),
            (Hold::Device { .. }, false) => lock(fd, libc::F_RDLCK),
        };
        taken.map_err(|e| (!matches!(e, Errno::AGAIN | Errno::ACCESS)).then_some(e))
    }

    /// Releases it; no I/O is outstanding on the disk.
    pub(super) fn end(&self, fd: &OwnedFd) {
        match self {
            Hold::Shared => {}
            // Closing gives it up, too, if later.
            Hold::File => drop(flock(fd, FlockOperation::Unlock)),
            Hold::Device { number, writes, env } => {
                let _ = lock(fd, libc::F_UNLCK);
                if *writes {
                    let now = env.now();
                    let mut closed = CLOSED.lock();
                    closed.retain(|(n, at)| n != number && now < *at + LINGERS);
                    closed.push((*number, now));
                }
            }
        }
    }
}

/// Changes the open file's lock on all of it, without waiting.
fn lock(fd: &OwnedFd, kind: libc::c_int) -> Result<(), Errno> {
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

/// Whether a device that is busy may be so because this process had it until now; then some time has passed.
pub(super) fn waits(env: &Env, number: u64) -> bool {
    let now = env.now();
    let waits = CLOSED.lock().iter().any(|(n, at)| *n == number && now < *at + LINGERS);
    if waits {
        std::thread::sleep(AGAIN);
    }
    waits
}
