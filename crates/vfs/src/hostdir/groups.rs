//! Buffered writes and direct writes to the same file exclude each other.
//!
//! The kernel takes the inode's lock for both, but releases it once a direct write of a ring is submitted to the disk.
//! A buffered write at that time leaves a dirty page that has the old bytes beside its own; writing the page back later
//! overwrites the data of the direct write. The kernel reports that as EIO to the next sync. So:
//!
//! * a direct write goes through the ring only while the file has no buffered write; otherwise a thread of the pool
//!   makes it, which holds the inode's lock until the disk has completed it;
//! * a buffered write waits, in the pool, until the direct writes of rings are complete. Once it is issued no further
//!   one begins, so the wait is bounded.
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
    /// In rings.
    direct: usize,
}

/// A buffered write; dropped when it has ended.
pub(super) struct Buffered(Arc<Shared>);

/// A direct write in a ring; dropped when it has ended.
pub(super) struct Direct(Arc<Shared>);

impl Buffered {
    pub(super) fn join(file: &Arc<Shared>) -> Buffered {
        file.groups.members.lock().buffered += 1;
        Buffered(Arc::clone(file))
    }

    /// Whether no direct write is running; then none starts until this is dropped.
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
    /// `None` while the file has buffered writes.
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
