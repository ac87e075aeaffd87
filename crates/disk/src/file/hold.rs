//! That a process has a disk for itself, and how it gives it up.
//!
//! The kernel's workers, who carry out flushes and discards, keep an open file for some moments after they have told that an I/O is done: so a disk that is closed is
//! not free at once, and whoever opened it again was told that it is in use. A file's lock is therefore given up by name, and a device that this process has
//! just closed is waited for.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use env::Env;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};

/// How long the kernel may take, and how often it is looked.
const LINGERS: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(2);

/// Devices that were closed, by number, and when.
static CLOSED: Mutex<Vec<(u64, Instant)>> = Mutex::new(Vec::new());

pub(super) enum Hold {
    /// Others may have it, too.
    Shared,
    /// The lock of a file.
    Lock,
    /// A device, opened exclusively.
    Device {
        /// As `stat` gives it.
        number: u64,
        env: Env,
    },
}

impl Hold {
    /// Gives it up; nothing is under way on it.
    pub(super) fn end(&self, fd: &OwnedFd) {
        match self {
            Hold::Shared => {}
            // Closing gives it up, too, if later.
            Hold::Lock => drop(flock(fd, FlockOperation::Unlock)),
            Hold::Device { number, env } => {
                let now = env.now();
                let mut closed = CLOSED.lock();
                closed.retain(|(n, at)| n != number && now < *at + LINGERS);
                closed.push((*number, now));
            }
        }
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
