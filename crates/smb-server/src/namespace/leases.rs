//! Leases on directories of a share, by path: clients cache listings under them (MS-SMB2 3.3.1.4, MS-FSA 2.1.5.18).
//!
//! A lease on a directory is held and broken as one on a file (`files::caching`). What is special is what breaks it: any
//! change of an entry of the directory, through whatever open of the entry. This table finds the lease by the directory's
//! path.
//!
//! Invariant: an open that holds a lease on a directory is in the table under its path, from before its CREATE is answered
//! until it is closed.

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
    /// Opens in the table: a change looks at nothing else while there are none.
    count: AtomicUsize,
    by_path: Mutex<HashMap<VfsPath, SmallVec<[Leased; 1]>>>,
}

struct Leased {
    /// The open that holds the lease.
    open: u64,
    directory: LeasedFile,
    /// Has the backend report what other programs change.
    _outside: Option<WatchGuard>,
}

impl LeasedDirectories {
    /// Whether there are any: false costs a load.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    pub(crate) fn add(&self, open: u64, path: VfsPath, directory: LeasedFile, outside: Option<WatchGuard>) {
        self.by_path.lock().entry(path).or_default().push(Leased { open, directory, _outside: outside });
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// An open is closed; nothing if it held no lease.
    pub(crate) fn remove(&self, open: u64) {
        if !self.any() {
            return;
        }
        self.by_path.lock().retain(|_, list| {
            let before = list.len();
            list.retain(|l| l.open != open);
            self.count.fetch_sub(before - list.len(), Ordering::AcqRel);
            !list.is_empty()
        });
    }

    /// A directory has another name. Nothing below it is open.
    pub(super) fn renamed(&self, from: &VfsPath, to: &VfsPath) {
        if self.any() {
            let mut by_path = self.by_path.lock();
            let Some(list) = by_path.remove(from) else { return };
            by_path.entry(to.clone()).or_default().extend(list);
        }
    }

    /// The leased directories that have these entries, each once.
    pub(super) fn concerned(&self, notices: &[Notice<'_>]) -> SmallVec<[LeasedFile; 2]> {
        let mut found = SmallVec::<[LeasedFile; 2]>::new();
        if !self.any() {
            return found;
        }
        let by_path = self.by_path.lock();
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
        self.by_path.lock().values().flatten().map(|l| l.directory.clone()).collect()
    }
}
