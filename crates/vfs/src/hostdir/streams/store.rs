//! The directory of large streams.
//!
//! `.causeway-streams`, mode 0700, lies in the root of the tree, or, for a file system that is mounted below it, in
//! that file system's topmost mounted directory. No client can list, open or create a name equal to it ([`is_store`]).
//! It has one file, mode 0600, per large stream: its name is the sidecar's identity, 32 hexadecimal digits, its content is
//! the stream's data, nothing else, and its extended attributes say which file it belongs to ([`super::orphans`]).
//!
//! Trees whose roots lie on one file system share their stores while they are open ([`STORES`]), so a file that is
//! moved from one share to another, or is in two shares, has its streams in both.
//!
//! The directory is locked (flock): exclusively while orphans are removed, shared while it is used, so one server does
//! not remove a sidecar whose record another one is about to write.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::record::{self, Content, Record};
use super::{data, lock, orphans};
use crate::fold::is_folded;
use crate::hostdir::device::Device;
use crate::hostdir::node::{self, HostNode, Open};
use crate::hostdir::resolve::{beneath, lstatx};
use crate::hostdir::stored::Target;
use crate::hostdir::volume;
use crate::{FileKey, Kind, VfsError, VfsPath, VfsResult};

/// The name of the directory.
const NAME: &str = ".causeway-streams";
const FOLDED: &str = ".CAUSEWAY-STREAMS";

/// The roots of the trees that are open in this process, with their file systems.
static ROOTS: Mutex<Vec<(u128, Weak<OwnedFd>)>> = Mutex::new(Vec::new());

/// All stores that are open in this process.
static STORES: Mutex<Vec<Weak<Store>>> = Mutex::new(Vec::new());

/// One directory of large streams.
pub(in crate::hostdir) struct Store {
    pub(super) volume: u128,
    /// Device and inode number.
    pub(super) directory_id: (u64, u64),
    pub(super) fd: OwnedFd,
    collects: AtomicBool,
}

/// Whether a name is that of a store, which is hidden from clients.
pub(in crate::hostdir) fn is_store(name: &str) -> bool {
    is_folded(name, FOLDED)
}

/// # Errors
/// `NotFound` or `PathNotFound` when the path leads to or through a store.
pub(in crate::hostdir) fn refuse(path: &VfsPath) -> VfsResult<()> {
    match path.components().iter().rposition(|name| is_store(name)) {
        None => Ok(()),
        Some(at) if at + 1 == path.components().len() => Err(VfsError::NotFound),
        Some(_) => Err(VfsError::PathNotFound),
    }
}

impl Store {
    /// Opens the store in the directory `top` of the file system `volume`; `None` if there is none. Orphans are
    /// collected unless it is read-only.
    pub(in crate::hostdir) fn open(
        top: BorrowedFd<'_>,
        volume: u128,
        read_only: bool,
    ) -> VfsResult<Option<Arc<Store>>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(top, NAME, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let stat = node::statx(&fd)?;
        let directory_id = (crate::hostdir::device::number(&stat), stat.stx_ino);
        let mut stores = STORES.lock();
        stores.retain(|s| s.strong_count() > 0);
        if let Some(there) = stores.iter().filter_map(Weak::upgrade).find(|s| s.directory_id == directory_id)
        {
            there.begin_collecting(read_only);
            return Ok(Some(there));
        }
        let server = rustix::process::geteuid().as_raw();
        if ![server, 0].contains(&stat.stx_uid) {
            tracing::warn!(
                user = stat.stx_uid,
                "the directory of large streams ({NAME}) belongs to a user, who can read and change all of them: chown it"
            );
        }
        let _ = rustix::fs::fchmod(&fd, Mode::RWXU);
        let store = Arc::new(Store { volume, directory_id, fd, collects: AtomicBool::new(false) });
        stores.push(Arc::downgrade(&store));
        drop(stores);
        store.share();
        store.begin_collecting(read_only);
        Ok(Some(store))
    }

    /// Collects orphans, once, unless all of its trees are read-only.
    fn begin_collecting(self: &Arc<Store>, read_only: bool) {
        if !read_only && !self.collects.swap(true, Ordering::Relaxed) {
            let collector = Arc::clone(self);
            let work = move || collector.collect_after_start();
            // On a separate thread, because it checks every sidecar.
            if let Err(e) = std::thread::Builder::new().name("stream-orphans".into()).spawn(work) {
                tracing::warn!("orphaned streams could not be removed: {e}");
            }
        }
    }

    /// Takes the shared lock; waits while another server removes sidecars.
    fn share(&self) {
        if let Err(e) = rustix::fs::flock(&self.fd, FlockOperation::LockShared) {
            tracing::debug!("the directory of large streams could not be locked: {e}");
        }
    }

    /// Does `work` if no other server uses the directory.
    pub(super) fn alone<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let alone = rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive).is_ok();
        let done = alone.then(work);
        self.share();
        done
    }

    /// All stores that are open in this process.
    pub(super) fn all() -> Vec<Arc<Store>> {
        STORES.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// The name of a sidecar.
pub(super) fn name(sidecar: u128) -> String {
    format!("{sidecar:032x}")
}

/// The store of a file system in a tree, and the root of the tree if it is on this file system.
#[derive(Default)]
pub(in crate::hostdir) struct StoreCell(OnceLock<Arc<Store>>, OnceLock<Arc<OwnedFd>>);

/// The topmost directories of a file system in all trees, some perhaps twice.
pub(super) fn tops(volume: u128) -> Vec<Arc<OwnedFd>> {
    let mut all = ROOTS.lock();
    all.retain(|(_, root)| root.strong_count() > 0);
    let roots: Vec<Arc<OwnedFd>> =
        all.iter().filter(|(of, _)| *of == volume).filter_map(|(_, root)| root.upgrade()).collect();
    drop(all);
    // The stores of file systems that are mounted below a root: their descriptors are kept by these only.
    let parent = |store: Arc<Store>| {
        rustix::fs::openat(&store.fd, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map(Arc::new)
    };
    let stores = Store::all().into_iter().filter(|store| store.volume == volume);
    roots.into_iter().chain(stores.filter_map(|store| parent(store).ok())).collect()
}

impl Device {
    /// Opens the store in `top` if there is one.
    pub(in crate::hostdir) fn find_store(&self, top: BorrowedFd<'_>) {
        if !self.attributes || self.store.0.get().is_some() {
            return;
        }
        match Store::open(top, self.volume, self.read_only) {
            Ok(Some(store)) => drop(self.store.0.set(store)),
            Ok(None) => {}
            Err(e) => tracing::warn!("the directory of large streams cannot be opened: {e}"),
        }
    }

    /// Notes that `root` is the root of an open tree, as long as this is used.
    pub(in crate::hostdir) fn note_root(&self, root: BorrowedFd<'_>) {
        if let Ok(root) = rustix::io::fcntl_dupfd_cloexec(root, 0) {
            let root = self.store.1.get_or_init(|| Arc::new(root));
            ROOTS.lock().push((self.volume, Arc::downgrade(root)));
        }
    }

    /// The store for new sidecars; creates it if there is none.
    pub(super) fn make_store(&self, file: &Open) -> VfsResult<&Arc<Store>> {
        if let Some(store) = self.store.0.get() {
            return Ok(store);
        }
        let tree = &file.shared.tree;
        let stat = node::statx(&*file.fd)?;
        let mounted;
        let top = if crate::hostdir::device::number(&stat) == tree.root_device {
            tree.root.as_fd()
        } else {
            mounted = volume::top(file.fd.as_fd()).map_err(VfsError::from)?;
            mounted.as_fd()
        };
        match rustix::fs::mkdirat(top, NAME, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let store = Store::open(top, self.volume, self.read_only)?.ok_or(VfsError::NotFound)?;
        Ok(self.store.0.get_or_init(|| store))
    }

    /// All stores that may have a sidecar of a file here, this tree's first.
    fn stores(&self) -> Vec<Arc<Store>> {
        let mut all: Vec<Arc<Store>> = self.store.0.get().cloned().into_iter().collect();
        for other in Store::all() {
            if other.volume == self.volume && all.iter().all(|s| s.directory_id != other.directory_id) {
                all.push(other);
            }
        }
        all
    }
}

/// Opens the sidecar that a record names. The file's streams are locked.
///
/// # Errors
/// `Damaged` when it is missing, or belongs to another file.
pub(super) fn open(file: &Open, record: &Record) -> VfsResult<HostNode> {
    let Content::Sidecar(sidecar) = record.content else { return Err(VfsError::Stale) };
    let access = if file.shared.tree.info.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    for store in file.shared.device.stores() {
        match rustix::fs::openat(&store.fd, name(sidecar), flags, Mode::empty()) {
            Ok(fd) => return opened(file, orphans::own(file, record, fd)?),
            Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
    }
    tracing::warn!(file = ?file.shared.id, sidecar = name(sidecar), "the data of a stream is missing");
    Err(VfsError::Damaged)
}

fn opened(file: &Open, fd: OwnedFd) -> VfsResult<HostNode> {
    let (tree, stat) = (&file.shared.tree, node::statx(&fd)?);
    if node::kind(&stat) != Some(Kind::File) {
        return Err(VfsError::Damaged);
    }
    Ok(tree.node(fd, &stat, Kind::File, (true, !tree.info.read_only))?.0)
}

/// Size and allocation of a sidecar, in bytes; zeros if it is missing.
pub(super) fn sizes(file: &Open, sidecar: u128) -> (u64, u64) {
    let name = name(sidecar);
    let found = file.shared.device.stores().into_iter().find_map(|s| lstatx(&s.fd, &name).ok());
    found.map_or((0, 0), |s| (s.stx_size, s.stx_blocks.saturating_mul(512)))
}

/// Moves the data of a stream from its record to a new sidecar; the file's streams are locked.
pub(super) fn promote(file: &Open, record: &Record) -> VfsResult<HostNode> {
    let Content::Inline(bytes) = &record.content else { return open(file, record) };
    let fd = create(file, record, |fd| if bytes.is_empty() { Ok(()) } else { data::fill(fd, bytes) })?;
    opened(file, fd)
}

/// Creates a sidecar of a stream, and makes its record name it. The file's streams are locked.
pub(super) fn create(
    file: &Open,
    record: &Record,
    fill: impl FnOnce(&OwnedFd) -> VfsResult<()>,
) -> VfsResult<OwnedFd> {
    let (store, random) = (file.shared.device.make_store(file)?, env::Env::real());
    let sidecar = u128::from(random.random_u64()) << 64 | u128::from(random.random_u64());
    let name = name(sidecar);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&store.fd, &*name, flags, Mode::RUSR | Mode::WUSR)?;
    let filled = || {
        orphans::set_file(&fd, file.fd.as_fd(), record.id)?;
        fill(&fd)?;
        if node::statx(&fd)?.stx_size > 0 {
            rustix::fs::fsync(&fd)?;
        }
        record::set(file, &Record { content: Content::Sidecar(sidecar), ..record.clone() })
    };
    if let Err(e) = filled() {
        let _ = rustix::fs::unlinkat(&store.fd, &*name, AtFlags::empty());
        return Err(e);
    }
    Ok(fd)
}

/// Moves all streams of a file whose records become smaller by that to sidecars; returns whether there were any. The
/// file's streams are locked.
pub(super) fn promote_all(file: &Open) -> VfsResult<bool> {
    let inline = |record: &Record| match &record.content {
        Content::Inline(data) => data.len(),
        Content::Sidecar(_) => 0,
    };
    let mut records = record::all(file)?;
    records.retain(|record| inline(record) > size_of::<u128>());
    records.sort_by_key(|record| std::cmp::Reverse(inline(record)));
    for record in &records {
        promote(file, record)?;
    }
    Ok(!records.is_empty())
}

/// Makes the names of sidecars of this file durable.
pub(super) fn sync(file: &Open) -> VfsResult<()> {
    for store in file.shared.device.stores() {
        rustix::fs::fsync(&store.fd)?;
    }
    Ok(())
}

/// Removes a sidecar of this file.
pub(super) fn unlink(file: FileKey, sidecar: u128) {
    for store in Store::all().into_iter().filter(|s| s.volume == file.volume) {
        match orphans::remove(&store, file.file, sidecar) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => tracing::warn!(?file, "the data of a removed stream is kept for a day: {e}"),
        }
    }
}

/// The sidecars of a file that is about to lose a name. They are removed if that was the file's last name.
pub(in crate::hostdir) struct PendingRemoval {
    file: OwnedFd,
    key: FileKey,
    sidecars: Vec<u128>,
}

impl PendingRemoval {
    /// Reads the streams of `name` in `directory`, which is the file `stat`, before it is unlinked.
    pub(in crate::hostdir) fn of(
        device: &Device,
        directory: &OwnedFd,
        name: &str,
        stat: &rustix::fs::Statx,
    ) -> Option<PendingRemoval> {
        let last = node::kind(stat)? == Kind::Directory || stat.stx_nlink == 1;
        if !last || !device.attributes || device.stores().is_empty() {
            return None;
        }
        let file = beneath(directory, name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).ok()?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let sidecars: Vec<u128> =
            record::sidecars(Target::Followed(&path)).ok()?.into_iter().map(|(_, sidecar)| sidecar).collect();
        (!sidecars.is_empty()).then(|| PendingRemoval { key: device.key(stat), file, sidecars })
    }

    /// The name was removed: removes the sidecars if it was the last one.
    pub(in crate::hostdir) fn remove(self) {
        let _lock = lock(self.key);
        if node::statx(&self.file).is_ok_and(|s| s.stx_nlink == 0) {
            self.sidecars.iter().for_each(|sidecar| unlink(self.key, *sidecar));
        }
    }
}
