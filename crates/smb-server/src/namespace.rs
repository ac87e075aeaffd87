//! The gateway for changes of the namespace: every rename, removal and link of every share goes through it, and the
//! change is published to the watches of its directory.
//!
//! **Watchers.** [`Server::publish`] reports an [`Event`] to the share's [`Watches`] (CHANGE_NOTIFY), and breaks the
//! leases on the changed directory ([`LeasedDirectories`]).
//!
//! **Races.** An open holds no lock during the backend's call. It takes a [`Snapshot`], calls the backend, and joins
//! its file with that snapshot; if a change of the same name or file began or ended meanwhile, it retries
//! (`files::Refusal::Retry`). Changes of other names do not interfere. A directory's rename concerns the names below
//! its former and its new path: while it is renamed no file below it is opened, and it is not renamed while a file
//! below it is open. An open that lost the race several times blocks the
//! changes of its share for one attempt ([`Namespace::hold`]).
//!
//! Changes wait for those of their own share only: a backend that hangs blocks no other share.
//!
//! Invariants:
//! 1. Every change of names happens inside a [`Change`]: from before the backend's call until the paths of the opens
//!    are updated.
//! 2. A change is logged before the backend's call, when the paths of opens are updated, and when it ends.

mod event;
mod external;
mod leases;
mod log;
mod modified;
mod watch;

pub(crate) use event::{Event, EventKind, Origin};
pub(crate) use external::ExternalChanges;
pub(crate) use leases::LeasedDirectories;
pub(crate) use log::Snapshot;
pub(crate) use modified::StreamChange;
pub(crate) use watch::{ChangeWait, Report, Scope, Watches};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use smb_wire::msg::LeaseKey;
use tokio::sync::{MutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard};
use vfs::{FileKey, Kind, VfsPath};

use self::log::{Key, Log};
use crate::Server;
use crate::breaks::LeasedFile;
use crate::files::caching::{HolderId, Operation};
use crate::files::{FileState, FileTable};
use crate::open::{FileOpen, GateGuard, Open};
use crate::share::Share;

/// The names of all shares.
#[derive(Default)]
pub(crate) struct Namespace {
    log: Log,
    /// The directories that are being renamed, at most one per share, see [`Share::names`].
    moving: Mutex<Vec<(Arc<Share>, VfsPath)>>,
    /// The length of `moving`.
    moving_count: AtomicUsize,
    /// Counts opens that lost the race against a change.
    lost_races: AtomicU64,
}

/// A change of names in progress: concurrent opens of the same names retry.
pub(crate) struct Change<'n> {
    namespace: &'n Namespace,
    share: Arc<Share>,
    tree_lock: TreeLock,
    _name_lock: Option<MutexGuard<'n, ()>>,
    keys: SmallVec<[Key; 4]>,
    moves: bool,
}

enum TreeLock {
    Shared { _lock: OwnedRwLockReadGuard<()> },
    Exclusive { _lock: OwnedRwLockWriteGuard<()> },
}

/// While it exists, no name of its share changes: see [`Namespace::hold`].
pub(crate) struct Hold {
    _lock: OwnedRwLockWriteGuard<()>,
}

impl Namespace {
    /// The current position of the log: take it before the backend's call.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.log.snapshot()
    }

    /// Whether the backend's answer about `path`, received after `snapshot`, is still valid. Call it with the table of
    /// files locked.
    pub(crate) fn is_current(
        &self,
        snapshot: Snapshot,
        share: &Arc<Share>,
        path: &VfsPath,
        id: FileKey,
    ) -> bool {
        let moves = |(s, from): &(Arc<Share>, VfsPath)| Arc::ptr_eq(s, share) && path.starts_with(from);
        let moving = self.moving_count.load(Ordering::Acquire) > 0 && self.moving.lock().iter().any(moves);
        let current = !moving && self.log.is_current(snapshot, share, path, Some(id));
        if !current {
            self.lost_races.fetch_add(1, Ordering::Relaxed);
        }
        current
    }

    /// Whether a name has not been changed since `snapshot`.
    pub(crate) fn is_name_current(&self, snapshot: Snapshot, share: &Arc<Share>, path: &VfsPath) -> bool {
        self.log.is_current(snapshot, share, path, None)
    }

    /// How many opens lost the race against a change since the start.
    #[cfg(test)]
    pub(crate) fn lost_races(&self) -> u64 {
        self.lost_races.load(Ordering::Relaxed)
    }

    /// Begins to add or remove a name of a share. State the name with [`Change::touch`] before the backend's call.
    pub(crate) async fn begin_change(&self, share: &Arc<Share>) -> Change<'_> {
        let _lock = Arc::clone(&share.names).read_owned().await;
        Change::new(self, share, TreeLock::Shared { _lock }, None)
    }

    /// Begins to rename a file or directory: one at a time for each file, and a directory excludes all other changes in
    /// its share, so that the paths of opens are updated in the order of the backend's renames. State both names with
    /// [`Change::touch`] before the backend's call. The removal of an open file begins in the same way.
    pub(crate) async fn begin_rename<'n>(
        &'n self,
        share: &Arc<Share>,
        file: &'n FileState,
        directory: bool,
    ) -> Change<'n> {
        let names = Arc::clone(&share.names);
        let tree = match directory {
            true => TreeLock::Exclusive { _lock: names.write_owned().await },
            false => TreeLock::Shared { _lock: names.read_owned().await },
        };
        Change::new(self, share, tree, Some(file.naming().await))
    }

    /// Waits until no directory of a share is being renamed: an open does so before a retry.
    pub(crate) async fn wait_for_directory_renames(&self, share: &Share) {
        drop(share.names.read().await);
    }

    /// Waits for the running changes of a share, and blocks further ones: for an open that lost the race several times.
    pub(crate) async fn hold(&self, share: &Share) -> Hold {
        Hold { _lock: Arc::clone(&share.names).write_owned().await }
    }
}

impl Server {
    /// Reports an event to the watches of a share, and breaks the leases on its directory. Call it after the backend's
    /// call, and for a rename before its [`Change`] ends, so that the events of one name are in order.
    pub(crate) fn publish(self: &Arc<Self>, share: &Share, event: &Event<'_>) {
        let parent_lease = match event.origin {
            Origin::OtherProgram => None,
            Origin::Open { parent_lease } => {
                // Recorded even without a watch: one may begin before inotify reports this change.
                if let Some(external) = share.external_changes.get() {
                    external.note_own_change(event);
                }
                parent_lease
            }
        };
        if !share.is_watched() {
            return;
        }
        let notices = event.notices();
        share.watches.report(&notices);
        for directory in share.leases.concerned(&notices) {
            self.break_directory(&directory, parent_lease);
        }
    }

    /// Events of a share were lost: its watches report that their directories must be listed again, and all leases of
    /// directories and data are broken.
    fn publish_lost(self: &Arc<Self>, share: &Arc<Share>) {
        share.watches.lost();
        let now = self.env.moment();
        for file in self.files.open_paths(share).values() {
            self.send_breaks(file, &file.data_changed_externally(now).notices);
        }
        for directory in share.leases.all() {
            self.break_directory(&directory, None);
        }
    }

    fn break_directory(self: &Arc<Self>, directory: &LeasedFile, parent_lease: Option<LeaseKey>) {
        let LeasedFile { file, stream } = directory;
        let now = self.env.moment();
        let contention = file.contend(Some(stream), None, Operation::Entries { parent_lease }, now);
        self.send_breaks(file, &contention.notices);
    }

    /// Records that an open's client caches its data, or the entries of a directory, so that changes by other programs
    /// break these rights. Call it before the client learns that it may cache.
    pub(crate) async fn note_cached(self: &Arc<Self>, open: &Arc<Open>, f: &FileOpen) {
        let Some(holder) = f.holder else { return };
        if f.node.kind() == Kind::File {
            let watch = async {
                let (share, path) = f.file.place_of(open.persistent)?;
                ExternalChanges::watch_folder(self, &share, &path.parent()?).await
            };
            return f.file.watch_folder(watch).await;
        }
        if matches!(holder, HolderId::Oplock(_)) {
            return;
        }
        let directory = LeasedFile { file: Arc::clone(&f.file), stream: Arc::clone(&f.stream) };
        while let Some((share, path)) = f.file.place_of(open.persistent) {
            let external_watch = ExternalChanges::watch(self, &share, &path, false).await;
            // A CLOSE waits for this guard and then removes the open from the table; after it the open is not added.
            let Some(_gate_guard) = GateGuard::new(open) else { return };
            share.leases.add(open.persistent, path.clone(), directory.clone(), external_watch);
            // It may have been renamed meanwhile.
            if f.file.path_of(open.persistent) == path {
                return;
            }
            share.leases.remove(open.persistent);
        }
    }
}

impl Share {
    /// Whether it has watches or directory leases.
    fn is_watched(&self) -> bool {
        self.watches.any() || self.leases.any()
    }
}

impl<'n> Change<'n> {
    fn new(
        namespace: &'n Namespace,
        share: &Arc<Share>,
        tree_lock: TreeLock,
        _name_lock: Option<MutexGuard<'n, ()>>,
    ) -> Change<'n> {
        let share = Arc::clone(share);
        Change { namespace, share, tree_lock, _name_lock, keys: SmallVec::new(), moves: false }
    }

    /// States a name that is about to change, and the file that has it or gets it.
    pub(crate) fn touch(&mut self, path: &VfsPath, id: FileKey) {
        for key in [Key::name(path), Key::File(id)] {
            if !self.keys.contains(&key) {
                self.keys.push(key);
                self.namespace.log.record(&self.share, &[key]);
            }
        }
    }

    /// Begins to move a directory: no file below it is opened until this is dropped.
    ///
    /// # Errors
    /// The files below it that are open; then this has no effect.
    pub(crate) fn hold_directory(
        &mut self,
        files: &FileTable,
        directory: &VfsPath,
        to: &VfsPath,
    ) -> Result<(), Vec<Arc<FileState>>> {
        assert!(matches!(self.tree_lock, TreeLock::Exclusive { .. }), "a directory is renamed alone");
        // In this order: an open that joins its file either sees the directory here or is seen by the search.
        self.namespace.moving.lock().push((Arc::clone(&self.share), directory.clone()));
        self.namespace.moving_count.fetch_add(1, Ordering::AcqRel);
        self.moves = true;
        let open = files.open_below(&self.share, directory);
        if !open.is_empty() {
            self.stop_moving();
            return Err(open);
        }
        let both = [directory, to].map(Key::below);
        self.keys.extend(both);
        self.namespace.log.record(&self.share, &both);
        Ok(())
    }

    /// The backend has renamed: updates the paths of the file's opens.
    pub(crate) fn renamed(&self, files: &FileTable, id: FileKey, from: &VfsPath, to: &VfsPath) {
        // Logged already here, although the change may continue: earlier answers of the backend are stale now.
        files.renamed(&self.share, id, from, to, || self.namespace.log.record(&self.share, &self.keys));
        self.share.watches.renamed(from, to);
        self.share.leases.renamed(from, to);
    }

    fn stop_moving(&mut self) {
        if std::mem::take(&mut self.moves) {
            self.namespace.moving.lock().retain(|(share, _)| !Arc::ptr_eq(share, &self.share));
            self.namespace.moving_count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // In this order: an open whose backend call was earlier must not join after this.
        self.namespace.log.record(&self.share, &self.keys);
        self.stop_moving();
    }
}

#[cfg(test)]
mod tests;
