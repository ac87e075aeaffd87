//! Makes a directory the working directory of one thread.
//!
//! Before Linux 6.13 (`listxattrat`) the extended attributes of an entry can be read only by a path. Relative to the
//! working directory that path is the entry's name. Through `/proc/self/fd` it has five components, and the lookup
//! takes three times as long.

#![allow(unsafe_code)] // one system call that rustix has as unsafe only

use std::cell::Cell;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags};

thread_local! {
    /// Whether this thread's working directory is independent of other threads; unknown before the first use.
    static IS_PER_THREAD: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Changes the working directory of this thread; dropping it restores the previous one.
pub(super) struct WorkingDirectory {
    before: OwnedFd,
}

impl WorkingDirectory {
    /// Enters a directory; `None` if the system does not allow a working directory per thread.
    pub(super) fn enter(directory: &OwnedFd) -> Option<WorkingDirectory> {
        let own = IS_PER_THREAD.get().unwrap_or_else(|| {
            // SAFETY: it touches no memory. From here on this thread shares neither its working directory nor its umask with
            // the others; nothing here changes the umask of a running process.
            let own = unsafe { libc::unshare(libc::CLONE_FS) } == 0;
            IS_PER_THREAD.set(Some(own));
            own
        });
        if !own {
            return None;
        }
        let before = rustix::fs::openat(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        rustix::process::fchdir(directory).ok()?;
        Some(WorkingDirectory { before })
    }
}

impl Drop for WorkingDirectory {
    fn drop(&mut self) {
        // Returning to the previous directory fails only if that was removed, which is harmless.
        let _ = rustix::process::fchdir(&self.before);
    }
}

#[cfg(test)]
mod tests {
    use std::env::current_dir;
    use std::fs::File;

    use super::*;

    #[test]
    fn for_one_thread_and_while_it_lasts() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().canonicalize().expect("there");
        let before = current_dir().expect("there");
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            wait.recv().expect("told");
            current_dir().expect("there")
        });
        let working_directory =
            WorkingDirectory::enter(&File::open(&place).expect("opened").into()).expect("allowed");
        assert_eq!(current_dir().expect("there"), place);
        go.send(()).expect("it waits");
        assert_eq!(other.join().expect("no panic"), before, "another thread is where it was");
        drop(working_directory);
        assert_eq!(current_dir().expect("there"), before);
    }
}
