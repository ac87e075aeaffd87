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

use super::node::Shared;

/// A file's incomplete writes.
#[derive(Default)]
pub(super) struct Groups {
    members: Mutex<Members>,
    no_direct: Condvar,
}

#[derive(Default)]
struct Members {
    buffered: usize,
    /// The number of direct writes in rings.
    direct: usize,
}

/// A buffered write; dropped when the write has ended.
pub(super) struct Buffered(Arc<Shared>);

/// A direct write in a ring; dropped when the write has ended.
pub(super) struct Direct(Arc<Shared>);

impl Buffered {
    pub(super) fn join(file: &Arc<Shared>) -> Buffered {
        file.groups.members.lock().buffered += 1;
        Buffered(Arc::clone(file))
    }

    /// Whether no direct write runs in a ring. If so, none starts until this value is dropped.
    pub(super) fn may_start(&self) -> bool {
        self.0.groups.members.lock().direct == 0
    }

    /// Blocks until it may start.
    pub(super) fn wait(&self) {
        let groups = &self.0.groups;
        groups.no_direct.wait_while(&mut groups.members.lock(), |members| members.direct > 0);
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        self.0.groups.members.lock().buffered -= 1;
    }
}

impl Direct {
    /// Registers a direct write; `None` while the file has buffered writes.
    pub(super) fn try_join(file: &Arc<Shared>) -> Option<Direct> {
        let mut members = file.groups.members.lock();
        if members.buffered > 0 {
            return None;
        }
        members.direct += 1;
        drop(members);
        Some(Direct(Arc::clone(file)))
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let groups = &self.0.groups;
        let mut members = groups.members.lock();
        members.direct -= 1;
        if members.direct == 0 && members.buffered > 0 {
            groups.no_direct.notify_all();
        }
    }
}
