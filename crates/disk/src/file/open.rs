//! Opens a file or device as a disk. These calls block: they are for start-up and commands.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arena::Arena;
use env::Env;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, SeekFrom, Statx, StatxFlags};
use rustix::io::Errno;
use thiserror::Error;

use super::holders::{Holder, holders};
use super::job::Target;
use super::lock::{self, DiskLock};
use super::{FileDisk, identity, ring};
use crate::sysfs::{Device, Sysfs};
use crate::{DiskInfo, FlushLatch, Geometry, Media, WriteCache};

/// How a file or device is opened.
#[derive(Clone, Default)]
pub struct FileOptions {
    /// Creates a new sparse file of this many bytes; it must not exist.
    pub create: Option<u64>,
    /// For a writable file: allocate these byte ranges in the file system now, so that writes there do not
    /// run out of space.
    pub reserve: Vec<Range<u64>>,
    /// Writes and discards fail. Other processes may also open it for reading, but not for writing.
    pub read_only: bool,
    /// For examination only: no lock is taken, and other users are ignored. Otherwise a disk opened for
    /// writing is exclusive, and a mounted or locked device is refused.
    pub shared: bool,
    /// The arena whose memory the rings register and pin on first use. A ring registers only one arena, the
    /// first.
    pub arena: Option<Arena>,
    /// Maximum I/Os of one ring in the kernel at a time; default: the device's.
    pub queue_depth: Option<u32>,
    /// The atomic write size in bytes, if the caller overrides the system's.
    pub atomic_write: Option<u32>,
}

/// Why something cannot be opened as a disk.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The system refuses the path.
    #[error("{path}: {source}")]
    Path {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is neither a regular file nor a block device.
    #[error("{path} is neither a file nor a block device")]
    NotADisk {
        /// The path.
        path: PathBuf,
    },
    /// It is in use: mounted, part of another device, or open as a disk.
    #[error("{path} is in use{}: unmount it, or stop the program that uses it", list(by))]
    InUse {
        /// The path.
        path: PathBuf,
        /// The processes that have locked it, as far as known.
        by: Vec<Holder>,
    },
    /// The file system has no direct I/O, without which flushes are slow and errors are lost.
    #[error("{path}: this file system has no direct I/O (O_DIRECT); put the file on ext4 or XFS")]
    NoDirect {
        /// The path.
        path: PathBuf,
    },
    /// The file system is full.
    #[error(
        "{path}: the file system has no space for {bytes} bytes of the file that must be allocated: free some space there"
    )]
    NoSpace {
        /// The path.
        path: PathBuf,
        /// Bytes to be reserved.
        bytes: u64,
    },
    /// Less than one block.
    #[error("{path} has {size} bytes, less than one block")]
    TooSmall {
        /// The path.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// No io_uring.
    #[error("this system has no io_uring, or forbids it (sysctl kernel.io_uring_disabled): {source}")]
    NoRing {
        /// The system's error.
        source: io::Error,
    },
}

const QUEUE_DEPTH_FILE: u32 = 64;
const QUEUE_DEPTH_MAX: u32 = 1024;
/// Larger atomic writes are not trusted: lower layers may split them into several commands.
const ATOMIC_MAX: u32 = 4096;

impl FileDisk {
    /// Opens a regular file or block device. Waits up to a second for one that this process has just closed.
    /// A thread with outstanding I/O on the closed disk may keep it open until it runs its runtime again or
    /// ends, because the kernel releases the file on that thread. So do not call this from such a thread, and
    /// such a thread must not wait for the caller.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(env: &Env, path: &Path, options: &FileOptions) -> Result<Arc<FileDisk>, OpenError> {
        FileDisk::open_with(env, path, options, &Sysfs::system())
    }

    pub(crate) fn open_with(
        env: &Env,
        path: &Path,
        options: &FileOptions,
        sysfs: &Sysfs,
    ) -> Result<Arc<FileDisk>, OpenError> {
        ring::prepare().map_err(|source| OpenError::NoRing { source })?;
        let failed = |e: Errno| OpenError::Path { path: path.into(), source: e.into() };
        let device = device_number(path, options)?;
        let is_device = device.is_some();
        let fd = loop {
            match open(path, options, is_device) {
                Err(OpenError::InUse { .. })
                    if device.is_some_and(|number| lock::wait_if_just_closed(env, number)) => {}
                Err(OpenError::InUse { .. }) => return Err(in_use(path)),
                opened => break opened?,
            }
        };
        let lock = match device {
            _ if options.shared => DiskLock::Shared,
            Some(number) => DiskLock::Device { number, writes: !options.read_only, env: env.clone() },
            None => DiskLock::File,
        };
        lock.acquire(&fd, !options.read_only).map_err(|e| e.map_or_else(|| in_use(path), failed))?;
        let size = rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(failed)?;
        if !is_device && !options.read_only {
            reserve(path, &fd, size, &options.reserve)?;
        }
        let flags = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
        let statx = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, flags).map_err(failed)?;
        let mut info = if is_device {
            let device = sysfs.device(statx.stx_rdev_major, statx.stx_rdev_minor);
            device_info(path, &fd, size, device.as_ref()).map_err(failed)?
        } else {
            if options.create.is_some() {
                keep_name(path, &fd).map_err(failed)?;
            }
            file_info(env, path, &fd, size, &statx, options.read_only, sysfs).map_err(failed)?
        };
        if let Some(unit) = options.atomic_write.filter(|n| n.is_power_of_two()) {
            info.geometry.atomic_write = unit.max(info.geometry.logical_block);
        }
        info.queue_depth = options.queue_depth.unwrap_or(info.queue_depth).clamp(1, QUEUE_DEPTH_MAX);
        if info.geometry.size == 0 {
            return Err(OpenError::TooSmall { path: path.into(), size });
        }
        let target = Target {
            fd,
            lock,
            gate: Arc::default(),
            key: Target::next_key(),
            is_device,
            size,
            depth: info.queue_depth,
            latch: FlushLatch::default(),
            arena: options.arena.clone(),
        };
        let read_only = options.read_only;
        Ok(Arc::new(FileDisk { env: env.clone(), info, read_only, target: Arc::new(target) }))
    }
}

/// The device number of a block device; `None` for a file.
fn device_number(path: &Path, options: &FileOptions) -> Result<Option<u64>, OpenError> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    if options.create.is_some() {
        return Ok(None);
    }
    let found = std::fs::metadata(path).map_err(|source| OpenError::Path { path: path.into(), source })?;
    match (found.is_file(), found.file_type().is_block_device()) {
        (true, _) => Ok(None),
        (_, true) => Ok(Some(found.rdev())),
        _ => Err(OpenError::NotADisk { path: path.into() }),
    }
}

fn open(path: &Path, options: &FileOptions, is_device: bool) -> Result<OwnedFd, OpenError> {
    let mut flags = OFlags::DIRECT | OFlags::CLOEXEC;
    flags |= if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if options.create.is_some() {
        flags |= OFlags::CREATE | OFlags::EXCL;
    } else if is_device && !options.shared && !options.read_only {
        // On a device: excludes other exclusive openers, file systems and RAID.
        flags |= OFlags::EXCL;
    }
    let failed = |e: Errno| match e {
        Errno::BUSY => OpenError::InUse { path: path.into(), by: Vec::new() },
        Errno::INVAL => OpenError::NoDirect { path: path.into() },
        e => OpenError::Path { path: path.into(), source: e.into() },
    };
    let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    if let Some(size) = options.create {
        rustix::fs::ftruncate(&fd, size).map_err(failed)?;
    }
    Ok(fd)
}

/// Allocates parts of a file. If the file system does not support that, the first write allocates them.
fn reserve(path: &Path, fd: &OwnedFd, size: u64, parts: &[Range<u64>]) -> Result<(), OpenError> {
    for part in parts {
        let (from, to) = (part.start.min(size), part.end.min(size));
        if from == to {
            continue;
        }
        match rustix::fs::fallocate(fd, FallocateFlags::empty(), from, to - from) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => {
                let bytes = parts.iter().map(|p| p.end - p.start).sum();
                return Err(OpenError::NoSpace { path: path.into(), bytes });
            }
            Err(e) => return Err(OpenError::Path { path: path.into(), source: e.into() }),
        }
    }
    Ok(())
}

fn in_use(path: &Path) -> OpenError {
    OpenError::InUse { path: path.into(), by: holders(path) }
}

fn list(by: &[Holder]) -> String {
    match by {
        [] => String::new(),
        by => format!(" by {}", by.iter().map(Holder::to_string).collect::<Vec<_>>().join(" and ")),
    }
}

/// Makes a new file's size and name durable.
fn keep_name(path: &Path, fd: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::fsync(fd)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder =
        rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fsync(folder)
}

fn device_info(path: &Path, fd: &OwnedFd, size: u64, device: Option<&Device>) -> Result<DiskInfo, Errno> {
    let logical_block = rustix::fs::ioctl_blksszget(fd)?;
    let physical_block = rustix::fs::ioctl_blkpbszget(fd)?.max(logical_block);
    let geometry = Geometry {
        size: size - size % u64::from(logical_block),
        logical_block,
        physical_block,
        atomic_write: atomic(logical_block, device),
        dma_alignment: alignment(device.and_then(Device::dma_alignment), logical_block),
    };
    Ok(identity::of_device(path, geometry, device))
}

fn file_info(
    env: &Env,
    path: &Path,
    fd: &OwnedFd,
    size: u64,
    statx: &Statx,
    read_only: bool,
    sysfs: &Sysfs,
) -> Result<DiskInfo, Errno> {
    let below = sysfs.device(statx.stx_dev_major, statx.stx_dev_minor);
    let logical_block = match statx.stx_dio_offset_align {
        n if n.is_power_of_two() && n >= 512 => n,
        _ => 4096,
    };
    // One block of the file system is contiguous on the device.
    let piece = rustix::fs::fstatfs(fd).map_or(0, |fs| u32::try_from(fs.f_bsize).unwrap_or(0));
    let memory =
        Some(statx.stx_dio_mem_align).filter(|n| *n > 0).max(below.as_ref().and_then(Device::dma_alignment));
    let geometry = Geometry {
        size: size - size % u64::from(logical_block),
        logical_block,
        physical_block: logical_block.max(4096),
        atomic_write: atomic(logical_block, below.as_ref()).min(piece).max(logical_block),
        dma_alignment: alignment(memory, logical_block),
    };
    Ok(DiskInfo {
        id: identity::of_file(env, path, fd.as_fd(), statx.stx_ino, read_only),
        path: path.into(),
        model: "file".into(),
        serial: String::new(),
        firmware: String::new(),
        geometry,
        media: Media::Unspecified,
        rotational: below.as_ref().is_some_and(Device::rotational),
        removable: false,
        enclosure: None,
        queue_depth: QUEUE_DEPTH_FILE,
        write_cache: WriteCache::Unknown,
        layout: None,
    })
}

pub(crate) fn atomic(logical_block: u32, device: Option<&Device>) -> u32 {
    let reported = device.and_then(Device::atomic_write).filter(|n| n.is_power_of_two()).unwrap_or(0);
    reported.min(ATOMIC_MAX).max(logical_block)
}

/// The alignment for buffers: a power of two up to a page, because every buffer of the arena is page-aligned.
pub(crate) fn alignment(reported: Option<u32>, logical_block: u32) -> u32 {
    reported.unwrap_or(logical_block).max(1).next_power_of_two().min(4096)
}
