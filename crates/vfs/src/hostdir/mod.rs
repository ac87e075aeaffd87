//! A directory of any mounted file system as a [`Vfs`].
//!
//! **Escape-proof by construction.** Every path is resolved by the kernel from a descriptor of the root with
//! `openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)`. Symbolic links that stay inside the tree are followed; opening
//! one that leads out (absolute, or by `..`) fails with [`VfsError::Escapes`], and it is not listed. Changes (create,
//! rename, remove) act on one name in a parent directory that was resolved in this way, never on a path. Devices,
//! sockets and pipes are not listed and cannot be opened.
//!
//! **Names** match without regard to case: the exact name first, then by folding ([`names`]); for names that are
//! invalid on Windows see [`visible`].
//!
//! **Metadata that Linux does not have** (DOS attributes, creation time, security descriptors, extended attributes) is
//! stored in `user.*` extended attributes; for layout and fallbacks see [`stored`]. Identities of files and file
//! systems: [`volume`]. Named streams: [`streams`].
//!
//! **I/O model.** Calls that cannot block run at once: reads of cached data (`RWF_NOWAIT`), everything on a memory file
//! system, metadata of an open file that is already loaded, opens that need no right to write of names that the kernel
//! knows (`RESOLVE_CACHED`). Reads that miss the cache, unbuffered I/O, write-through and syncs are [`job`]s, which go
//! through the io_uring of the runtime ([`ring`]). All other calls run in a small pool of threads, and so do jobs
//! without io_uring. Buffered writes to one file go through one queue of the pool, because the kernel would serialise
//! them anyway; where the file system supports `RWF_NOWAIT` writes (XFS, Btrfs) they are tried at once first. Opens
//! that wait for a lease take at most half of the threads. A close that may block runs in the pool. Call it inside a
//! Tokio runtime with its I/O driver enabled.
//!
//! **Unbuffered I/O** ([`env::IoFlags::unbuffered`]) bypasses the page cache where possible: see [`unbuffered`].
//!
//! **Where a caller may wait for a disk nevertheless.** Extended attributes that do not fit into the inode of a local
//! file are in a separate block, which may be evicted before the inode. A large cached read returns a descriptor: the
//! sender reads the pages that are evicted before they are sent, at most the bytes of that read. If the file is closed
//! before they are sent, the sender closes the descriptor.
//!
//! **A new file becomes visible only with all its metadata** (descriptor, attributes): see [`new_file`].
//!
//! **Lost data is reported to all opens.** After a failed sync every later sync of the file fails until its last open
//! is closed.
//!
//! **Changes by other programs** are reported while a directory is watched ([`Vfs::watch`]): see [`changes`].
//!
//! **Changes by other processes** take effect: names by inotify, data and times at once; but attributes stored in
//! `user.*` are re-read only when a file is opened. Checks of identity before [`Vfs::remove`] and [`Vfs::rename`] are
//! not atomic against other processes (Linux has no call for that), only against this backend.

mod cached;
mod changes;
mod compression;
mod data;
mod device;
mod errno;
mod extents;
mod job;
mod link;
mod listing;
mod names;
mod namespace;
mod new_file;
mod node;
mod open;
mod posix;
mod reflink;
mod reparse;
mod reserved;
mod resolve;
mod ring;
mod snapshots;
mod stored;
mod streams;
mod transfer;
mod unbuffered;
pub(crate) mod visible;
mod volume;
mod working_directory;
mod write_exclusion;

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use env::{Ctx, Io};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

use crate::blocking_pool::{BlockingPool, SerialQueue};
use crate::{
    FileKey, OpenMode, OpenRequest, Opened, ReportChange, SnapshotTime, Space, Vfs, VfsError, VfsPath,
    VfsResult, VolumeInfo, WatchGuard,
};
use changes::Changes;
use device::Device;
use names::Names;
use node::SharedFile;

/// The options of a [`HostDir`].
#[derive(Clone, Debug)]
pub struct HostDirOptions {
    /// Shown to clients as the volume's label.
    pub label: String,
    /// Refuse every change.
    pub read_only: bool,
    /// Other machines change the directory too, though its file system looks like a local one: cached names and
    /// metadata are not trusted. (Not needed for NFS and the like, which are detected.)
    pub shared: bool,
    /// The folder of the snapshots: see [`snapshots`]. A relative path begins at the tree's root.
    pub snapshots: Option<PathBuf>,
    /// The tree is a snapshot of that time of another tree. It is read-only, and its files have identities of their
    /// own, even if the file system gives them the ids of the original files.
    pub snapshot_of: Option<SnapshotTime>,
    /// Use io_uring, if the system has it, for calls that wait for a disk.
    pub io_uring: bool,
    /// Threads for calls that may block; started on demand.
    pub threads: usize,
    /// Permission bits of new files, before the umask.
    pub file_mode: u32,
    /// Permission bits of new directories, before the umask.
    pub directory_mode: u32,
}

impl Default for HostDirOptions {
    fn default() -> HostDirOptions {
        HostDirOptions {
            label: "Causeway".into(),
            read_only: false,
            shared: false,
            snapshots: None,
            snapshot_of: None,
            io_uring: true,
            threads: 8,
            file_mode: 0o666,
            directory_mode: 0o777,
        }
    }
}

/// The reported size of a file system that does not state its size, in bytes.
const UNKNOWN_SPACE: u64 = 1 << 40;

/// A directory of a mounted file system.
pub struct HostDir {
    tree: Arc<Tree>,
}

/// The state that all nodes of one tree share.
struct Tree {
    root: Arc<OwnedFd>,
    options: HostDirOptions,
    pool: BlockingPool,
    names: Names,
    /// The path of the root when it was opened.
    root_path: String,
    /// The number of the root's file system.
    root_device: u64,
    /// The known file systems below the root, by device number.
    devices: Mutex<HashMap<u64, Arc<Device>>>,
    /// All of them are in memory, so no call blocks (known after the first use of each).
    all_memory: AtomicBool,
    /// The files that are open.
    files: Mutex<HashMap<FileKey, Weak<SharedFile>>>,
    /// The temporary name of this tree's new files, unique to this tree.
    temporary: String,
    /// One of these is locked while the names in a directory change, so that the case-insensitive lookup and the change
    /// are atomic; the directory's number selects the lock.
    changing: [Mutex<()>; 16],
    /// The calls that change names, one serial queue for each directory (selected by its path): they would only wait
    /// for each other's lock of `changing`.
    name_changes: [Arc<SerialQueue>; 16],
    /// The closes of files whose name was removed.
    closes: Arc<SerialQueue>,
    /// The watches for changes; cannot be upgraded while there are none.
    changes: Mutex<Weak<Changes>>,
    /// The walks that begin watches of whole trees, one at a time: they take long in large trees.
    walks: Arc<SerialQueue>,
    info: VolumeInfo,
}

impl HostDir {
    /// Opens the directory at `path` (following symbolic links) as a tree. Blocks for a short time: call it at start.
    ///
    /// # Errors
    /// The system's, when `path` is not a directory that can be opened, or there is no openat2(2).
    pub fn open(path: &Path, options: HostDirOptions) -> std::io::Result<Arc<HostDir>> {
        let root = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        HostDir::of(root, options)
    }

    /// The tree below an open directory.
    fn of(root: OwnedFd, options: HostDirOptions) -> std::io::Result<Arc<HostDir>> {
        // Checked here, before every open fails: Linux before 5.6 and some sandboxes have no openat2.
        resolve::beneath(&root, ".", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let stat = node::statx(&root)?;
        let device = Arc::new(Device::of(&root, &options)?);
        let info = VolumeInfo {
            label: options.label.clone(),
            file_system: "NTFS".into(),
            volume: device.volume,
            created: node::birth_time(&stat),
            case_sensitive: false,
            sparse: true,
            cluster: node::CLUSTER as u32,
            name_max: 255,
            read_only: device.read_only,
            removal: true,
            removal_keeps_opens: true,
            reflinks: !device.read_only && reflink::supported(&root),
            compression: device.compresses(),
            snapshots: options.snapshots.is_some(),
            short_names: true,
            named_streams: device.attributes,
            reparse_points: device.attributes,
            local_times: device.local,
        };
        device.find_store(root.as_fd());
        device.note_root(root.as_fd());
        let tree = Tree {
            root_path: posix::real_path(&root).unwrap_or_default(),
            root: Arc::new(root),
            root_device: device::number(&stat),
            pool: BlockingPool::new(options.threads),
            names: Names::default(),
            devices: Mutex::new(HashMap::from([(device::number(&stat), Arc::clone(&device))])),
            all_memory: AtomicBool::new(device.memory),
            files: Mutex::default(),
            temporary: new_file::temporary_name(),
            changing: Default::default(),
            name_changes: Default::default(),
            closes: Arc::default(),
            changes: Mutex::default(),
            walks: Arc::default(),
            info,
            options,
        };
        Ok(Arc::new(HostDir { tree: Arc::new(tree) }))
    }

    /// Runs `work` in the thread pool; on a memory file system at once.
    fn run<T: Send + 'static>(&self, work: impl FnOnce(&Arc<Tree>) -> T + Send + 'static) -> Io<T> {
        self.run_in(None, work)
    }

    /// [`HostDir::run`] for a change of the name `path`, after the earlier changes in its directory.
    fn run_change<T: Send + 'static>(
        &self,
        path: &VfsPath,
        work: impl FnOnce(&Arc<Tree>) -> T + Send + 'static,
    ) -> Io<T> {
        self.run_in(Some(self.tree.name_change_queue(path)), work)
    }

    /// [`HostDir::run`], after the earlier calls of a queue.
    fn run_in<T: Send + 'static>(
        &self,
        queue: Option<&Arc<SerialQueue>>,
        work: impl FnOnce(&Arc<Tree>) -> T + Send + 'static,
    ) -> Io<T> {
        if self.tree.all_memory.load(Ordering::Relaxed) {
            return Io::Done(work(&self.tree));
        }
        let tree = Arc::clone(&self.tree);
        let job = move || work(&tree);
        Io::Pending(match queue {
            Some(queue) => self.tree.pool.run_in(queue, job),
            None => self.tree.pool.run(job),
        })
    }
}

impl Vfs for HostDir {
    fn info(&self) -> &VolumeInfo {
        &self.tree.info
    }

    fn space(&self, _: &Ctx) -> Io<VfsResult<Space>> {
        self.run(|tree| {
            let s = rustix::fs::fstatvfs(&tree.root)?;
            if s.f_blocks == 0 {
                // The size is unknown (ramfs): clients must not see the volume as full.
                return Ok(Space { total: UNKNOWN_SPACE, free: UNKNOWN_SPACE, available: UNKNOWN_SPACE });
            }
            let bytes = |blocks: u64| blocks.saturating_mul(s.f_frsize);
            Ok(Space { total: bytes(s.f_blocks), free: bytes(s.f_bfree), available: bytes(s.f_bavail) })
        })
    }

    fn open(&self, _: &Ctx, request: OpenRequest) -> Io<VfsResult<Opened>> {
        let request = Arc::new(request);
        let (tree, again) = (Arc::clone(&self.tree), Arc::clone(&request));
        let open_and_wait = move || {
            let open = Arc::clone(&tree);
            tree.pool.run_slow(move || open.open(&again, true))
        };
        let opened = match self.tree.open_cached(&request) {
            Some(opened) => Io::Done(opened),
            None if request.mode == OpenMode::Create => {
                let changed = Arc::clone(&request);
                self.run_change(&changed.path, move |tree| tree.open(&request, false))
            }
            None => self.run(move |tree| tree.open(&request, false)),
        };
        match opened {
            Io::Done(Err(VfsError::Busy)) => Io::Pending(open_and_wait()),
            Io::Done(done) => Io::Done(done),
            Io::Pending(first) => Io::pending(async move {
                match first.await {
                    Err(VfsError::Busy) => open_and_wait().await,
                    done => done,
                }
            }),
        }
    }

    fn remove(&self, _: &Ctx, path: &VfsPath, id: FileKey) -> Io<VfsResult<()>> {
        let removed = path.clone();
        self.run_change(path, move |tree| tree.remove(&removed, id))
    }

    fn rename(&self, _: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>> {
        let (old, new) = (from.clone(), to.clone());
        self.run_change(from, move |tree| tree.rename(&old, id, &new, replace))
    }

    fn link(&self, _: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>> {
        let (old, new) = (from.clone(), to.clone());
        self.run_change(to, move |tree| tree.link(&old, id, &new, replace))
    }

    fn snapshots(&self, _: &Ctx) -> Io<VfsResult<Vec<SnapshotTime>>> {
        self.run(|tree| tree.snapshots())
    }

    fn snapshot(&self, _: &Ctx, at: SnapshotTime) -> Io<VfsResult<Arc<dyn Vfs>>> {
        self.run(move |tree| tree.snapshot(at))
    }

    fn watch(&self, directory: &VfsPath, recursive: bool, report: &ReportChange) -> Io<Option<WatchGuard>> {
        let (directory, report) = (directory.clone(), Arc::clone(report));
        let begin = move |tree: &Arc<Tree>| -> Option<WatchGuard> {
            let changes = tree.watched_changes()?;
            Some(Box::new(changes.watch(tree, &directory, recursive, &report)))
        };
        self.run_in(recursive.then_some(&self.tree.walks), begin)
    }
}

impl Tree {
    /// The serial queue for changes of the name `path`.
    fn name_change_queue(&self, path: &VfsPath) -> &Arc<SerialQueue> {
        let directory = path.components().split_last().map_or(&[][..], |(_, directory)| directory);
        let mut hasher = std::hash::DefaultHasher::new();
        directory.hash(&mut hasher);
        &self.name_changes[(hasher.finish() % self.name_changes.len() as u64) as usize]
    }

    /// The watches of the tree; starts their thread if there are none.
    fn watched_changes(self: &Arc<Self>) -> Option<Arc<Changes>> {
        let mut running = self.changes.lock();
        if let Some(changes) = running.upgrade() {
            return Some(changes);
        }
        let changes = Arc::new(Changes::start(self)?);
        *running = Arc::downgrade(&changes);
        Some(changes)
    }

    /// # Errors
    /// `ReadOnly` for a read-only tree.
    fn may_change(&self) -> VfsResult<()> {
        if self.info.read_only { Err(VfsError::ReadOnly) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
