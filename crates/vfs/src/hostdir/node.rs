//! One open file or directory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, StatVfsMountFlags, Statx, StatxFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io;

use super::device::{self, Device};
use super::listing::Listing;
use super::stored::{self, ChangeTime, Dos, RECORD_ATTRIBUTES, StoredMetadata};
use super::unbuffered::DirectFd;
use super::write_exclusion::WriteExclusion;
use super::{Tree, compression, listing, posix, reserved, volume};
use crate::blocking_pool::SerialQueue;
use crate::{
    Attributes, BasicChange, DirEntry, ExtendedAttribute, FileKey, Kind, Stat, Timestamp, VfsError, VfsResult,
};

/// One open.
pub(super) struct HostNode {
    pub(super) open: Arc<Open>,
}

/// The descriptor of one open, and its state.
pub(super) struct Open {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) kind: Kind,
    pub(super) shared: Arc<SharedFile>,
    pub(super) listing: Mutex<Listing>,
    /// A listing of the directory shows links, not their targets.
    pub(super) shows_links: AtomicBool,
    /// It was opened for writing too.
    pub(super) writes: bool,
    /// The second descriptor, opened at the first unbuffered I/O; `None` if that is not supported.
    pub(super) direct: OnceLock<Option<DirectFd>>,
    /// Data was written through it that its file system may refuse later: see [`Open::wrote`].
    pub(super) unchecked_writes: AtomicBool,
}

/// The state that all opens of one file share.
pub(super) struct SharedFile {
    pub(super) tree: Arc<Tree>,
    pub(super) id: FileKey,
    pub(super) device: Arc<Device>,
    /// Buffered writes, in order.
    pub(super) write_queue: Arc<SerialQueue>,
    pub(super) write_exclusion: WriteExclusion,
    pub(super) stored: Mutex<StoredMetadata>,
    /// Held during a read-modify-write of stored metadata, which may block; `stored` is not locked meanwhile.
    pub(super) setting: Mutex<()>,
    /// Closing it may block: a name was removed, or the file was truncated (after which ext4 writes at close).
    pub(super) slow_close: AtomicBool,
    /// How many opens there are.
    opens: AtomicUsize,
    /// The end of reserved space, in bytes; the last close frees the part behind the end of file. 0: none.
    pub(super) reserved: AtomicU64,
    /// Why written data was lost. The kernel reports this only to the first sync. It is stored here until the last open
    /// is closed, so that later syncs fail too.
    lost: Mutex<Option<VfsError>>,
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        let mut files = self.tree.files.lock();
        // Another open may have replaced the entry meanwhile.
        if files.get(&self.id).is_some_and(|w| w.strong_count() == 0) {
            files.remove(&self.id);
        }
    }
}

impl Drop for Open {
    /// Closing may block if it frees a file or its reserved space, writes data, or uses a network. It does not block
    /// for a local file that was only read and still has a name.
    fn drop(&mut self) {
        let (tree, device) = (&self.shared.tree, &self.shared.device);
        let last = self.shared.opens.fetch_sub(1, Ordering::AcqRel) == 1;
        let frees_reserved =
            last && self.kind == Kind::File && self.shared.reserved.load(Ordering::Relaxed) > 0;
        let quick = || {
            device.local
                && !self.writes
                && !self.shared.slow_close.load(Ordering::Relaxed)
                && statx(&*self.fd).is_ok_and(|s| s.stx_nlink > 0)
        };
        if !frees_reserved && (device.memory || quick()) {
            return;
        }
        let (mut fd, writes) = (std::mem::replace(&mut self.fd, Arc::clone(&tree.root)), self.writes);
        let direct = self.direct.take();
        let close = move || {
            drop(direct); // a lease needs the file to be open only once
            if frees_reserved {
                if !writes && let Some(own) = reserved::writable(fd.as_fd()) {
                    fd = Arc::new(own);
                }
                reserved::free_reserved(fd.as_fd());
            }
            drop(fd);
        };
        match device.memory {
            true => close(),
            // Files that clients delete one after the other: one wake-up for all. The close of a file that was written
            // may write its data: such ones do not wait for each other.
            false if device.local && !writes && self.shared.slow_close.load(Ordering::Relaxed) => {
                drop(tree.pool.run_in(&tree.closes, close));
            }
            false => drop(tree.pool.run(close)),
        }
    }
}

impl HostNode {
    /// Another reference to the same open.
    pub(super) fn clone_handle(&self) -> HostNode {
        HostNode { open: Arc::clone(&self.open) }
    }
}

impl Open {
    pub(super) fn stat(&self) -> VfsResult<Stat> {
        let stat = statx(&*self.fd)?;
        Ok(convert(&stat, self.kind, self.shared.id, &self.shared.extra_metadata()))
    }

    pub(super) fn may_change(&self) -> VfsResult<()> {
        self.shared.tree.may_change()?;
        let mounted = rustix::fs::fstatvfs(&*self.fd)?.f_flag;
        if mounted.contains(StatVfsMountFlags::RDONLY) { Err(VfsError::ReadOnly) } else { Ok(()) }
    }

    pub(super) fn set_basic(&self, change: &BasicChange) -> VfsResult<()> {
        self.shared.tree.may_change()?;
        if change.attributes.is_some() || change.created.is_some() {
            self.set_dos(|dos| {
                if let Some(attributes) = change.attributes {
                    dos.attributes = attributes & Attributes::STORED | dos.attributes & !Attributes::STORED;
                }
                dos.created = change.created.or(dos.created);
            })?;
        }
        if change.accessed.is_some() || change.written.is_some() {
            let times = Timestamps {
                last_access: change.accessed.map_or(OMIT, timespec),
                last_modification: change.written.map_or(OMIT, timespec),
            };
            rustix::fs::futimens(&*self.fd, &times)?;
        }
        match change.changed {
            Some(time) => self.set_changed(time),
            None => Ok(()),
        }
    }

    /// Sets the change time. The system updates its own change time with every change, also with the one that stores
    /// this record. So the record contains the latest system change time for which it is valid: an estimate that is
    /// checked afterwards.
    fn set_changed(&self, time: Timestamp) -> VfsResult<()> {
        /// How long writing the record may take.
        const LATER_NS: u32 = 20_000_000;
        for _ in 0..3 {
            let ctime = change_time(&statx(&*self.fd)?);
            let mut until = Timestamp { nanoseconds: ctime.nanoseconds + LATER_NS, ..ctime };
            if until.nanoseconds >= 1_000_000_000 {
                until =
                    Timestamp { seconds: until.seconds + 1, nanoseconds: until.nanoseconds - 1_000_000_000 };
            }
            self.set_dos(|dos| dos.changed = Some(ChangeTime { time, until }))?;
            if change_time(&statx(&*self.fd)?) <= until {
                break;
            }
        }
        Ok(())
    }

    /// Sets or clears SPARSE_FILE.
    pub(super) fn set_sparse(&self, sparse: bool) -> VfsResult<()> {
        self.shared.tree.may_change()?;
        match self.set_dos(|dos| dos.attributes.set(Attributes::SPARSE_FILE, sparse)) {
            Err(VfsError::Unsupported) => Ok(()), // holes do not depend on the attribute
            done => done,
        }
    }

    /// Changes the record of attributes and creation time.
    ///
    /// # Errors
    /// `Unsupported` when attributes cannot be kept.
    fn set_dos(&self, change: impl FnOnce(&mut Dos)) -> VfsResult<()> {
        let _setting = self.shared.setting.lock();
        let stat = statx(&*self.fd)?;
        let before = self.shared.stored.lock().dos(self.kind, &stat);
        let mut dos = before;
        change(&mut dos);
        if dos == before {
            return Ok(());
        }
        let set = || stored::set_dos(&self.fd, &self.shared.device, &dos);
        let done = match set() {
            Err(VfsError::AttributeTooLarge) if self.make_room()? => set(),
            done => done,
        };
        match done {
            Ok(()) => self.shared.stored.lock().dos = Some(dos),
            Err(VfsError::Unsupported) if dos.attributes == before.attributes => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    pub(super) fn set_extended(&self, set: &[ExtendedAttribute]) -> VfsResult<()> {
        self.shared.tree.may_change()?;
        let _setting = self.shared.setting.lock();
        let put = || stored::set_extended(&self.fd, &self.shared.device, set);
        let done = match put() {
            Err(VfsError::AttributeTooLarge) if self.make_room()? => put(),
            done => done,
        };
        let now = StoredMetadata::load(stored::Target::Fd(&self.fd), &self.shared.device);
        self.shared.stored.lock().ea_size = now.ea_size;
        done
    }

    pub(super) fn set_security(&self, descriptor: &[u8]) -> VfsResult<()> {
        self.shared.tree.may_change()?;
        match stored::set_security(&self.fd, &self.shared.device, descriptor) {
            Err(VfsError::AttributeTooLarge) if self.make_room()? => {
                stored::set_security(&self.fd, &self.shared.device, descriptor)
            }
            done => done,
        }
    }

    /// Makes everything written to the file durable; waits for the disk.
    pub(super) fn flush(&self) -> VfsResult<()> {
        self.shared.intact()?;
        rustix::fs::fsync(&*self.fd).map_err(|e| self.shared.failed(e.into()))
    }

    /// Call it after a write: if the file system may report failures only later (a network file system), the close
    /// must check for them.
    pub(super) fn wrote(&self) {
        if !self.shared.device.local {
            self.unchecked_writes.store(true, Ordering::Release);
        }
    }

    /// Whether written data must still be checked for failures. Clears the flag.
    pub(super) fn unchecked_writes(&self) -> bool {
        self.unchecked_writes.swap(false, Ordering::AcqRel)
    }

    pub(super) fn list(&self, restart: bool, limit: usize) -> VfsResult<Vec<DirEntry>> {
        self.must_be(Kind::Directory)?;
        listing::next(self, restart, limit)
    }

    /// # Errors
    /// `IsDirectory` or `NotDirectory`.
    pub(super) fn must_be(&self, kind: Kind) -> VfsResult<()> {
        match (kind, self.kind) {
            (Kind::File, Kind::Directory) => Err(VfsError::IsDirectory),
            (Kind::Directory, Kind::File) => Err(VfsError::NotDirectory),
            _ => Ok(()),
        }
    }
}

impl SharedFile {
    /// The file's metadata that the system does not store.
    pub(super) fn extra_metadata(&self) -> ExtraMetadata {
        ExtraMetadata { stored: *self.stored.lock(), reserved: self.reserved.load(Ordering::Relaxed) }
    }

    /// # Errors
    /// Written data was lost.
    pub(super) fn intact(&self) -> VfsResult<()> {
        self.lost.lock().map_or(Ok(()), Err)
    }

    /// Records that a sync failed with `e`, and returns `e`. The system has dropped the data that it could not store.
    pub(super) fn failed(&self, e: VfsError) -> VfsError {
        if matches!(e, VfsError::Io(_) | VfsError::NoSpace | VfsError::Quota) {
            let mut lost = self.lost.lock();
            if lost.is_none() {
                tracing::error!(
                    file = ?self.id,
                    "data that was written to this file could not be stored: {e}"
                );
            }
            lost.get_or_insert(e);
        }
        e
    }
}

impl Tree {
    /// The file system of `fd`.
    pub(super) fn device(&self, fd: impl AsFd, number: u64) -> io::Result<Arc<Device>> {
        if let Some(device) = self.known_device(number) {
            return Ok(device);
        }
        let before = self.devices.lock().get(&number).cloned();
        if let Some(device) = before
            && device.holds(&fd)?
        {
            return Ok(device);
        }
        let device = Arc::new(Device::of(&fd, &self.options)?);
        if let Ok(top) = volume::top(fd.as_fd()) {
            device.find_store(top.as_fd());
        }
        if !device.memory {
            self.all_memory.store(false, Ordering::Relaxed);
        }
        self.devices.lock().insert(number, Arc::clone(&device));
        Ok(device)
    }

    /// The known file system with this number, if it is certainly the same: the root's, or one with an open file.
    /// Others may have been unmounted, and their numbers reused.
    pub(super) fn known_device(&self, number: u64) -> Option<Arc<Device>> {
        let devices = self.devices.lock();
        let device = devices.get(&number)?;
        (number == self.root_device || Arc::strong_count(device) > 1).then(|| Arc::clone(device))
    }

    /// The shared state of a file's opens, if it is open.
    pub(super) fn shared(&self, id: FileKey) -> Option<Arc<SharedFile>> {
        self.files.lock().get(&id)?.upgrade()
    }

    /// The node of a file just opened, and its metadata. A new file (`is_new`) has no stored metadata; `writes` if it
    /// was opened for writing.
    pub(super) fn node(
        self: &Arc<Tree>,
        fd: OwnedFd,
        stat: &Statx,
        kind: Kind,
        (is_new, writes): (bool, bool),
    ) -> VfsResult<(HostNode, Stat)> {
        let device = self.device(&fd, device::number(stat))?;
        let id = device.key(stat);
        let shared = match self.shared(id) {
            Some(shared) => shared,
            None => {
                let load = || StoredMetadata::load(stored::Target::Fd(&fd), &device);
                let stored = Mutex::new(if is_new { StoredMetadata::default() } else { load() });
                let new = SharedFile {
                    tree: Arc::clone(self),
                    id,
                    device,
                    write_queue: Arc::default(),
                    write_exclusion: WriteExclusion::default(),
                    stored,
                    setting: Mutex::new(()),
                    slow_close: AtomicBool::new(false),
                    opens: AtomicUsize::new(0),
                    reserved: AtomicU64::new(0),
                    lost: Mutex::new(None),
                };
                self.share(new)
            }
        };
        let stat = convert(stat, kind, id, &shared.extra_metadata());
        shared.opens.fetch_add(1, Ordering::Relaxed);
        let unchecked_writes = AtomicBool::new(false);
        let open = Open {
            fd: Arc::new(fd),
            kind,
            shared,
            listing: Mutex::default(),
            shows_links: AtomicBool::new(false),
            writes,
            direct: OnceLock::new(),
            unchecked_writes,
        };
        Ok((HostNode { open: Arc::new(open) }, stat))
    }

    /// Enters `new` unless another open was faster.
    fn share(&self, new: SharedFile) -> Arc<SharedFile> {
        let new = Arc::new(new);
        let mut files = self.files.lock();
        if let Some(there) = files.get(&new.id).and_then(|w| w.upgrade()) {
            drop(files); // before `new`, whose drop locks it
            return there;
        }
        files.insert(new.id, Arc::downgrade(&new));
        new
    }
}

/// Metadata of an open descriptor.
pub(super) fn statx(fd: impl AsFd) -> io::Result<Statx> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, mask)
}

/// The kind of file; `None` for hidden ones.
pub(super) fn kind(stat: &Statx) -> Option<Kind> {
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => Some(Kind::File),
        FileType::Directory => Some(Kind::Directory),
        _ => None,
    }
}

/// The file system's birth time, or else the oldest of the other times.
pub(super) fn birth_time(stat: &Statx) -> Timestamp {
    let time = |t: rustix::fs::StatxTimestamp| Timestamp { seconds: t.tv_sec, nanoseconds: t.tv_nsec };
    if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME) {
        time(stat.stx_btime)
    } else {
        time(stat.stx_ctime).min(time(stat.stx_mtime))
    }
}

/// The system's time of the last change.
fn change_time(stat: &Statx) -> Timestamp {
    Timestamp { seconds: stat.stx_ctime.tv_sec, nanoseconds: stat.stx_ctime.tv_nsec }
}

/// Space allocated to the data of a file, in bytes. The system also counts metadata blocks (extended attributes, extent
/// maps): so the value is limited to the clusters of the data, or to its reservation.
pub(super) fn allocation(stat: &Statx, reserved: u64) -> u64 {
    let clusters = stat.stx_size.checked_next_multiple_of(CLUSTER).unwrap_or(u64::MAX);
    stat.stx_blocks.saturating_mul(512).min(clusters.max(reserved))
}

/// The metadata of a file that the system does not store.
#[derive(Clone, Copy, Default)]
pub(super) struct ExtraMetadata {
    pub(super) stored: StoredMetadata,
    /// See [`SharedFile::reserved`].
    pub(super) reserved: u64,
}

/// The system's metadata and ours together.
pub(super) fn convert(stat: &Statx, kind: Kind, id: FileKey, extra: &ExtraMetadata) -> Stat {
    let time = |t: rustix::fs::StatxTimestamp| Timestamp { seconds: t.tv_sec, nanoseconds: t.tv_nsec };
    let dos = extra.stored.dos(kind, stat);
    let mut attributes = dos.attributes & RECORD_ATTRIBUTES;
    attributes.set(Attributes::DIRECTORY, kind == Kind::Directory);
    attributes.set(Attributes::COMPRESSED, compression::is_compressed(stat));
    attributes.set(Attributes::REPARSE_POINT, extra.stored.reparse.tag != 0);
    let data = kind == Kind::File;
    Stat {
        id,
        kind,
        size: if data { stat.stx_size } else { 0 },
        allocation: if data { allocation(stat, extra.reserved) } else { 0 },
        links: if data { stat.stx_nlink } else { stat.stx_nlink.min(1) }, // `.` and `..` do not count
        attributes,
        reparse: extra.stored.reparse,
        created: dos.created.unwrap_or_else(|| birth_time(stat)),
        accessed: time(stat.stx_atime),
        written: time(stat.stx_mtime),
        changed: dos.changed_at(change_time(stat)),
        ea_size: extra.stored.ea_size,
        posix: Some(posix::of(stat, &extra.stored)),
    }
}

/// Bytes in a cluster, the unit in which space is counted.
pub(super) const CLUSTER: u64 = 4096;

/// Leaves a time unchanged (utimensat(2)).
const OMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };

fn timespec(t: Timestamp) -> Timespec {
    Timespec { tv_sec: t.seconds, tv_nsec: t.nanoseconds.min(999_999_999).into() }
}
