//! A directory of any mounted file system as a [`Vfs`].
//!
//! **Escape-proof by construction.** Every path is resolved by the kernel from a descriptor of the root with
//! `openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)`. Symbolic links that stay inside the tree are followed; one that
//! leads out (absolute, or by `..`) opens as [`VfsError::Escapes`] and is not listed. Changes (create, rename,
//! remove) act on one name in a parent directory that was resolved so, never on a path. Devices, sockets and pipes
//! are not listed and cannot be opened.
//!
//! **Names** match without regard to case: the exact name first, then by folding ([`names`]); how names that Windows
//! cannot have are shown, see [`visible`].
//!
//! **What Linux has no place for** (DOS attributes, creation time, security descriptors, extended attributes) is kept
//! in `user.*` extended attributes; layout and fallbacks in [`stored`]. Identities of files and file systems:
//! [`volume`]. Named streams: [`streams`].
//!
//! **I/O model.** What cannot block is done at once: reads of cached data (`RWF_NOWAIT`), everything on a memory file
//! system, metadata of an open file that is already loaded, opens that need no right to write of names that the kernel
//! knows (`RESOLVE_CACHED`). Reads that miss the cache, unbuffered I/O, write-through and
//! syncs are [`job`]s, which go through the io_uring of the runtime ([`ring`]). The rest goes to a small pool of
//! threads, and so do jobs where there is no io_uring. Buffered writes to one file go through one line of the pool,
//! because the kernel would serialise them anyway; where the file system takes `RWF_NOWAIT` writes (XFS, Btrfs) they are
//! tried at once first. Opens that a lease holds up take at most half of the threads. Closing is the pool's where it may
//! block. Call it inside a Tokio runtime that has its I/O driver.
//!
//! **Unbuffered I/O** ([`env::IoFlags::unbuffered`]) goes past the page cache where it can: see [`unbuffered`].
//!
//! **Where a caller may wait for a disk all the same.** Extended attributes of a local file that do not fit into its inode
//! lie in a block of their own, which may have left memory before the inode has. A large cached read is answered with a descriptor. Pages that
//! are evicted before they are sent are read by the sender, at most the bytes of that read; and when the file is closed
//! before they are sent, the sender closes the descriptor.
//!
//! **A new file is seen only with all that belongs to it** (descriptor, attributes): see [`fresh`].
//!
//! **What is lost is said to all.** A failed sync fails every later sync of the file until nobody has it open.
//!
//! **Changes by other programs** are reported while a directory is watched ([`Vfs::watch`]): see [`changes`].
//!
//! **What another process does to the tree** is seen: names by inotify, data and times at once; but attributes kept
//! in `user.*` are re-read only when a file is opened. Checks of identity before [`Vfs::remove`] and [`Vfs::rename`]
//! are not atomic against other processes (Linux has no call for that), only against this backend.

mod cached;
mod changes;
mod compression;
mod data;
mod device;
mod errno;
mod extents;
mod fresh;
mod groups;
mod inside;
mod job;
mod link;
mod listing;
mod names;
mod namespace;
mod node;
mod open;
mod place;
mod posix;
mod reflink;
mod reparse;
mod reserved;
mod ring;
mod snapshots;
mod stored;
mod streams;
mod transfer;
mod unbuffered;
pub(crate) mod visible;
mod volume;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use env::{Ctx, Io};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

use crate::pool::Pool;
use crate::{
    FileKey, OpenRequest, Opened, ReportChange, SnapshotTime, Space, Vfs, VfsError, VfsPath, VfsResult,
    VolumeInfo, WatchGuard,
};
use changes::Changes;
use device::Device;
use names::Names;
use node::Shared;

/// How a [`HostDir`] behaves.
#[derive(Clone, Debug)]
pub struct HostDirOptions {
    /// Shown to clients as the volume's label.
    pub label: String,
    /// Refuse every change.
    pub read_only: bool,
    /// Other machines change the directory too, though its file system looks like a local one: nothing is taken from
    /// what was seen before. (NFS and the like are known to be so.)
    pub shared: bool,
    /// The folder of the snapshots: see [`snapshots`]. A relative path begins at the tree's root.
    pub snapshots: Option<PathBuf>,
    /// The tree is a snapshot of that time of another tree. It is read-only, and its files are others than the files that
    /// they were, though the file system may say that they are the same.
    pub snapshot_of: Option<SnapshotTime>,
    /// Use io_uring, where the system has it, for what waits for a disk.
    pub io_uring: bool,
    /// Threads for what may block; started on demand.
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

/// What is said of a file system that does not know its size, in bytes.
const UNKNOWN_SPACE: u64 = 1 << 40;

/// A directory of a mounted file system.
pub struct HostDir {
    tree: Arc<Tree>,
}

/// What all nodes of one tree share.
struct Tree {
    root: Arc<OwnedFd>,
    options: HostDirOptions,
    pool: Pool,
    names: Names,
    /// Where it was when it was opened.
    root_path: String,
    /// The number of the root's file system.
    root_device: u64,
    /// The file systems met below the root, by device number.
    devices: Mutex<HashMap<u64, Arc<Device>>>,
    /// All of them live in memory, so nothing blocks (known after the first look at each).
    all_memory: AtomicBool,
    /// The files that are open.
    files: Mutex<HashMap<FileKey, Weak<Shared>>>,
    /// What this tree's new files are called until they have their names: no other tree's are.
    temporary: String,
    /// One of these is held while the names in a directory change, so that the look without regard to case and the
    /// change are one step; which one follows from the directory's number.
    changing: [Mutex<()>; 16],
    /// Directories that are watched for changes, while there are some.
    changes: Mutex<Weak<Changes>>,
    info: VolumeInfo,
}

impl HostDir {
    /// Opens the directory at `path` (following symbolic links) as a tree. Blocks shortly: call it at start.
    ///
    /// # Errors
    /// The system's, when `path` is not a directory that can be opened, or there is no openat2(2).
    pub fn open(path: &Path, options: HostDirOptions) -> std::io::Result<Arc<HostDir>> {
        let root = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        HostDir::of(root, options)
    }

    /// The tree below an open directory.
    fn of(root: OwnedFd, options: HostDirOptions) -> std::io::Result<Arc<HostDir>> {
        // Known at once, rather than by every open failing: Linux before 5.6 and some sandboxes have no openat2.
        place::beneath(&root, ".", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let stat = node::statx(&root)?;
        let device = Arc::new(Device::of(&root, &options)?);
        let info = VolumeInfo {
            label: options.label.clone(),
            file_system: "NTFS".into(),
            volume: device.volume,
            created: node::born(&stat),
            case_sensitive: false,
            sparse: true,
            cluster: node::CLUSTER as u32,
            name_max: 255,
            read_only: device.read_only,
            removal: true,
            reflinks: !device.read_only && reflink::supported(&root),
            compression: device.compresses(),
            snapshots: options.snapshots.is_some(),
            short_names: true,
            named_streams: device.attributes,
            reparse_points: device.attributes,
        };
        device.find_store(root.as_fd());
        let tree = Tree {
            root_path: posix::real_path(&root).unwrap_or_default(),
            root: Arc::new(root),
            root_device: device::number(&stat),
            pool: Pool::new(options.threads),
            names: Names::default(),
            devices: Mutex::new(HashMap::from([(device::number(&stat), Arc::clone(&device))])),
            all_memory: AtomicBool::new(device.memory),
            files: Mutex::default(),
            temporary: fresh::temporary_name(),
            changing: Default::default(),
            changes: Mutex::default(),
            info,
            options,
        };
        Ok(Arc::new(HostDir { tree: Arc::new(tree) }))
    }

    /// Does `work` where it may block, at once on a memory file system.
    fn run<T: Send + 'static>(&self, work: impl FnOnce(&Arc<Tree>) -> T + Send + 'static) -> Io<T> {
        if self.tree.all_memory.load(Ordering::Relaxed) {
            return Io::Done(work(&self.tree));
        }
        let tree = Arc::clone(&self.tree);
        Io::Pending(self.tree.pool.run(move || work(&tree)))
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
                // It does not say (ramfs): clients must not take that for full.
                return Ok(Space { total: UNKNOWN_SPACE, free: UNKNOWN_SPACE, available: UNKNOWN_SPACE });
            }
            let bytes = |blocks: u64| blocks.saturating_mul(s.f_frsize);
            Ok(Space { total: bytes(s.f_blocks), free: bytes(s.f_bfree), available: bytes(s.f_bavail) })
        })
    }

    fn open(&self, _: &Ctx, request: OpenRequest) -> Io<VfsResult<Opened>> {
        let request = Arc::new(request);
        let (tree, again) = (Arc::clone(&self.tree), Arc::clone(&request));
        let patiently = move || {
            let open = Arc::clone(&tree);
            tree.pool.run_slow(move || open.open(&again, true))
        };
        let opened = match self.tree.open_cached(&request) {
            Some(opened) => Io::Done(opened),
            None => self.run(move |tree| tree.open(&request, false)),
        };
        match opened {
            Io::Done(Err(VfsError::Busy)) => Io::Pending(patiently()),
            Io::Done(done) => Io::Done(done),
            Io::Pending(first) => Io::pending(async move {
                match first.await {
                    Err(VfsError::Busy) => patiently().await,
                    done => done,
                }
            }),
        }
    }

    fn remove(&self, _: &Ctx, path: &VfsPath, id: FileKey) -> Io<VfsResult<()>> {
        let path = path.clone();
        self.run(move |tree| tree.remove(&path, id))
    }

    fn rename(&self, _: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>> {
        let (from, to) = (from.clone(), to.clone());
        self.run(move |tree| tree.rename(&from, id, &to, replace))
    }

    fn link(&self, _: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>> {
        let (from, to) = (from.clone(), to.clone());
        self.run(move |tree| tree.link(&from, id, &to, replace))
    }

    fn snapshots(&self, _: &Ctx) -> Io<VfsResult<Vec<SnapshotTime>>> {
        self.run(|tree| tree.snapshots())
    }

    fn snapshot(&self, _: &Ctx, at: SnapshotTime) -> Io<VfsResult<Arc<dyn Vfs>>> {
        self.run(move |tree| tree.snapshot(at))
    }

    fn watch(&self, directory: &VfsPath, tree: bool, report: &ReportChange) -> Option<WatchGuard> {
        let mut running = self.tree.changes.lock();
        let changes = match running.upgrade() {
            Some(changes) => changes,
            None => Arc::new(Changes::start(&self.tree)?),
        };
        *running = Arc::downgrade(&changes);
        Some(Box::new(changes.watch(directory, tree, report)))
    }
}

impl Tree {
    /// # Errors
    /// `ReadOnly` when nothing may be changed.
    fn may_change(&self) -> VfsResult<()> {
        if self.info.read_only { Err(VfsError::ReadOnly) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
