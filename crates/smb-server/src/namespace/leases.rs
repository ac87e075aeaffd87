//! Leases on directories of a share, by path: clients cache listings under them (MS-SMB2 3.3.1.4, MS-FSA 2.1.5.18).
//!
//! A lease on a directory is held and broken as one on a file (`files::caching`). Only the reason for a break differs:
//! any change of an entry of the directory, through any open of the entry, breaks it. This table finds the lease by the
//! directory's path.
//!
//! Invariants:
//! 1. An open that holds a lease on a directory is in the table under its path, from before its CREATE is answered until it
//!    is closed.
//! 2. An open is in `by_path` under its path in `by_open`; `count` is their number.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use vfs::{VfsPath, WatchGuard};

use super::event::Notice;
use crate::breaks::LeasedFile;

/// See the module.
#[derive(Default)]
pub(crate) struct LeasedDirectories {
    /// Opens in the table: while it is zero, a change needs no further check.
    count: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    by_path: HashMap<VfsPath, SmallVec<[LeaseEntry; 1]>>,
    by_open: HashMap<u64, VfsPath>,
}

struct LeaseEntry {
    /// The open that holds the lease.
    open: u64,
    directory: LeasedFile,
    /// Makes the backend report changes by other programs.
    _external_watch: Option<WatchGuard>,
}

impl LeasedDirectories {
    /// Whether there are any: false costs a load.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    pub(crate) fn add(
        &self,
        open: u64,
        path: VfsPath,
        directory: LeasedFile,
        external_watch: Option<WatchGuard>,
    ) {
        let mut inner = self.inner.lock();
        inner.by_open.insert(open, path.clone());
        inner.by_path.entry(path).or_default().push(LeaseEntry {
            open,
            directory,
            _external_watch: external_watch,
        });
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// An open is closed; does nothing if it held no lease.
    pub(crate) fn remove(&self, open: u64) {
        if !self.any() {
            return;
        }
        let mut inner = self.inner.lock();
        let Some(path) = inner.by_open.remove(&open) else { return };
        self.count.fetch_sub(1, Ordering::AcqRel);
        if let Some(list) = inner.by_path.get_mut(&path) {
            list.retain(|l| l.open != open);
            if list.is_empty() {
                inner.by_path.remove(&path);
            }
        }
    }

    /// A directory has another name. Nothing below it is open.
    pub(super) fn renamed(&self, from: &VfsPath, to: &VfsPath) {
        if self.any() {
            let mut inner = self.inner.lock();
            let Some(list) = inner.by_path.remove(from) else { return };
            for leased in &list {
                inner.by_open.insert(leased.open, to.clone());
            }
            inner.by_path.entry(to.clone()).or_default().extend(list);
        }
    }

    /// The leased directories that contain these entries, each once.
    pub(super) fn concerned(&self, notices: &[Notice<'_>]) -> SmallVec<[LeasedFile; 2]> {
        let mut found = SmallVec::<[LeasedFile; 2]>::new();
        if !self.any() {
            return found;
        }
        let by_path = &self.inner.lock().by_path;
        for parent in notices.iter().filter_map(|(_, path, _)| path.parent()) {
            for leased in by_path.get(&parent).into_iter().flatten() {
                if !found.iter().any(|f| Arc::ptr_eq(&f.file, &leased.directory.file)) {
                    found.push(leased.directory.clone());
                }
            }
        }
        found
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<LeasedFile> {
        self.inner.lock().by_path.values().flatten().map(|l| l.directory.clone()).collect()
    }
}
