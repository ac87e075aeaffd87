//! Buffered writes and direct writes to the same file exclude each other.
//!
//! The kernel takes the inode's lock for both, but releases it once a direct write from a ring is submitted to the
//! disk. A buffered write at that time leaves a dirty page that also has old bytes; its writeback later overwrites the
//! data of the direct write. The kernel reports that as EIO to the next sync. Therefore:
//!
//! * a direct write goes through the ring only while the file has no buffered write; otherwise a thread of the pool
//!   makes the write, and holds the inode's lock until the disk has completed it;
//! * a buffered write waits, in the pool, until the direct writes in rings are complete. While it waits no further
//!   direct write starts in a ring, so the wait is bounded.
//!
//! Two writes of the same kind exclude each other only where the kernel requires it.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::node::SharedFile;

/// A file's incomplete writes.
#[derive(Default)]
pub(super) struct WriteExclusion {
    counts: Mutex<WriteCounts>,
    no_direct: Condvar,
}

#[derive(Default)]
struct WriteCounts {
    buffered: usize,
    /// The number of direct writes in rings.
    direct: usize,
}

/// A buffered write; dropped when the write has ended.
pub(super) struct BufferedWrite(Arc<SharedFile>);

/// A direct write in a ring; dropped when the write has ended.
pub(super) struct DirectWrite(Arc<SharedFile>);

impl BufferedWrite {
    pub(super) fn begin(file: &Arc<SharedFile>) -> BufferedWrite {
        file.write_exclusion.counts.lock().buffered += 1;
        BufferedWrite(Arc::clone(file))
    }

    /// Whether no direct write runs in a ring. If so, none starts until this value is dropped.
    pub(super) fn may_start(&self) -> bool {
        self.0.write_exclusion.counts.lock().direct == 0
    }

    /// Blocks until it may start.
    pub(super) fn wait(&self) {
        let write_exclusion = &self.0.write_exclusion;
        write_exclusion.no_direct.wait_while(&mut write_exclusion.counts.lock(), |counts| counts.direct > 0);
    }
}

impl Drop for BufferedWrite {
    fn drop(&mut self) {
        self.0.write_exclusion.counts.lock().buffered -= 1;
    }
}

impl DirectWrite {
    /// Registers a direct write; `None` while the file has buffered writes.
    pub(super) fn try_begin(file: &Arc<SharedFile>) -> Option<DirectWrite> {
        let mut counts = file.write_exclusion.counts.lock();
        if counts.buffered > 0 {
            return None;
        }
        counts.direct += 1;
        drop(counts);
        Some(DirectWrite(Arc::clone(file)))
    }
}

impl Drop for DirectWrite {
    fn drop(&mut self) {
        let write_exclusion = &self.0.write_exclusion;
        let mut counts = write_exclusion.counts.lock();
        counts.direct -= 1;
        if counts.direct == 0 && counts.buffered > 0 {
            write_exclusion.no_direct.notify_all();
        }
    }
}
