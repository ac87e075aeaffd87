//! The names and files that changed lately: an open uses them to detect that the backend's answer is stale.
//!
//! Each change appends an entry for each name and file that it touches and advances the clock. A [`Snapshot`] is a
//! position of the clock; an answer of the backend is current when no later entry concerns its name or file. The log
//! keeps the last [`ENTRIES_MAX`] entries. An open that takes longer than that many changes must retry.

use std::cell::LazyCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHasher;
use vfs::{FileKey, VfsPath};

use crate::share::Share;

/// Entries kept (40 bytes each): about a second of renames on a busy server.
pub(super) const ENTRIES_MAX: usize = 8192;

/// See the module.
#[derive(Default)]
pub(super) struct Log {
    /// Entries appended since the start.
    clock: AtomicU64,
    entries: Mutex<VecDeque<Entry>>,
}

/// A position of the log's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot(u64);

/// The object that an entry concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A name: the hash of its path without regard to case. Two names with one hash cost a retry, nothing else.
    Name(u64),
    /// A file, under any name and in any share.
    File(FileKey),
    /// The former or new path of a directory that is renamed, with all names below it: the hash of the path.
    Below(u64),
}

struct Entry {
    /// The share's address. If another share gets that address later, an open may retry needlessly.
    share: usize,
    key: Key,
}

impl Key {
    pub(super) fn name(path: &VfsPath) -> Key {
        Key::Name(path.folded_hash::<FxHasher>())
    }

    pub(super) fn below(directory: &VfsPath) -> Key {
        Key::Below(directory.folded_hash::<FxHasher>())
    }
}

impl Log {
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot(self.clock.load(Ordering::Acquire))
    }

    pub(super) fn record(&self, share: &Arc<Share>, keys: &[Key]) {
        let share = Arc::as_ptr(share).addr();
        let mut entries = self.entries.lock();
        for key in keys {
            if entries.len() == ENTRIES_MAX {
                entries.pop_front();
            }
            entries.push_back(Entry { share, key: *key });
        }
        self.clock.fetch_add(keys.len() as u64, Ordering::AcqRel);
    }

    /// Whether nothing of this name and file, if it is known, was recorded since `snapshot`.
    pub(super) fn is_current(
        &self,
        snapshot: Snapshot,
        share: &Arc<Share>,
        path: &VfsPath,
        id: Option<FileKey>,
    ) -> bool {
        if self.snapshot() == snapshot {
            return true;
        }
        let share = Arc::as_ptr(share).addr();
        let name = Key::name(path);
        // A path may have thousands of components.
        let directories = LazyCell::new(|| {
            let mut hashes: Vec<u64> = path.folded_hashes::<FxHasher>().collect();
            hashes.sort_unstable();
            hashes
        });
        let entries = self.entries.lock();
        let newer = self.clock.load(Ordering::Acquire) - snapshot.0;
        let concerns = |e: &Entry| match e.key {
            Key::File(file) => Some(file) == id,
            Key::Below(directory) => e.share == share && directories.binary_search(&directory).is_ok(),
            Key::Name(_) => e.share == share && e.key == name,
        };
        newer <= entries.len() as u64 && !entries.iter().rev().take(newer as usize).any(concerns)
    }
}
