//! Determines whether a disk may be pooled, and if not, why, and which action helps.
//!
//! A file must be blank: holes and zeros. On a device only known signatures count, because a quick erase
//! (`wipefs`) leaves old bytes.
//!
//! All reasons are reported together. The examination does not change the contents: measuring flushes
//! rewrites blocks with what was read, and only on a disk that is not in use and has no reason against it. (A
//! file gets an extended attribute with its identity.)

mod flush;
mod reason;
mod signature;
#[cfg(test)]
mod tests;
mod users;

pub use flush::{FLUSH_PROTECTED, FlushLatency};
pub use reason::{CannotPoolReason, Warning, mebibytes};
pub use signature::{HEAD, Signature, TAIL, signatures};
pub use users::User;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arena::{Arena, Class};
use env::{Ctx, Env};

use crate::sysfs::{Device, Sysfs};
use crate::{Disk, DiskId, DiskInfo, FileDisk, FileOptions, IdKind, OpenError, WriteCache, sized};

/// The smallest device to pool by default, in bytes.
pub const DEVICE_MIN: u64 = 4 << 30;

/// Recognises the label of our own pools in the first [`HEAD`] bytes of a disk; returns the pool's name.
pub type LabelReader = Arc<dyn Fn(&[u8]) -> Option<String> + Send + Sync>;

/// Options of an examination.
#[derive(Clone)]
pub struct QualifyOptions {
    /// Data on the disk may be overwritten: signatures are reported but are no reason against pooling.
    pub force: bool,
    /// The smallest size in bytes; [`DEVICE_MIN`] by default.
    pub minimum: u64,
    /// Whether flushes are measured, which takes some seconds on a slow disk.
    pub measure: bool,
    /// Identities of other disks that the caller knows; a disk with one of them is refused.
    pub others: Vec<DiskId>,
    /// Recognises the label of our own pools.
    pub label: Option<LabelReader>,
}

/// The result of an examination.
#[derive(Clone, Debug)]
pub struct Qualification {
    /// The disk as it describes itself.
    pub info: DiskInfo,
    /// Whether the disk can be pooled.
    pub can_pool: bool,
    /// The reasons against pooling.
    pub reasons: Vec<CannotPoolReason>,
    /// Recommended improvements.
    pub warnings: Vec<Warning>,
    /// The signatures found on it.
    pub signatures: Vec<Signature>,
    /// The duration of its flushes, if measured.
    pub flush: Option<FlushLatency>,
    /// Whether its cache is protected against power loss, so that flushes cost no time; `None` if unknown.
    pub power_loss_protected: Option<bool>,
}

impl Default for QualifyOptions {
    fn default() -> QualifyOptions {
        QualifyOptions { force: false, minimum: DEVICE_MIN, measure: true, others: Vec::new(), label: None }
    }
}

/// The block devices of this machine, by name, without opening them; no partitions.
pub fn list() -> Vec<DiskInfo> {
    Sysfs::system().disks().iter().filter_map(Device::info).collect()
}

/// Examines a file or device; requires permission to read it. It blocks the thread at times, so it is for
/// commands.
///
/// # Errors
/// If the path cannot be examined at all. A device that exists but cannot be opened is no error, but
/// [`CannotPoolReason::Offline`].
pub async fn qualify(env: &Env, path: &Path, options: &QualifyOptions) -> Result<Qualification, OpenError> {
    qualify_with(env, path, options, &Sysfs::system()).await
}

pub(crate) async fn qualify_with(
    env: &Env,
    path: &Path,
    options: &QualifyOptions,
    sysfs: &Sysfs,
) -> Result<Qualification, OpenError> {
    let device = device_of(path, sysfs)?;
    let mut reasons = Vec::new();
    let alone = FileDisk::open_with(env, path, &FileOptions::default(), sysfs);
    let read_only = FileOptions { shared: true, read_only: true, ..FileOptions::default() };
    let (disk, ours) = match alone {
        // The lock on a file does not reveal its use by a loop device or as swap.
        Ok(disk) => match device.is_none().then(|| users::users(path, None, sysfs)) {
            Some(by) if !by.is_empty() => {
                reasons.push(CannotPoolReason::InUse { by });
                (disk, false)
            }
            _ => (disk, true),
        },
        Err(OpenError::InUse { .. }) => {
            let by = users::users(path, device.as_ref(), sysfs);
            reasons.push(CannotPoolReason::InUse { by });
            (FileDisk::open_with(env, path, &read_only, sysfs)?, false)
        }
        // Read-only, or mounted on a kernel that protects mounted devices. If reading fails too, that is the
        // error.
        Err(OpenError::Path { source, .. }) if refuses_writing(&source) => {
            let disk = FileDisk::open_with(env, path, &read_only, sysfs)?;
            let by = users::users(path, device.as_ref(), sysfs);
            let reason =
                if by.is_empty() { CannotPoolReason::ReadOnly } else { CannotPoolReason::InUse { by } };
            reasons.push(reason);
            (disk, false)
        }
        Err(OpenError::Path { source, path }) => return offline(path, source, device.as_ref()),
        Err(e) => return Err(e),
    };
    let info = disk.info().clone();
    let described = by_description(&info, device.as_ref(), options, sysfs);
    let new = described.into_iter().filter(|r| !reasons.contains(r)).collect::<Vec<_>>();
    reasons.extend(new);
    let mut signatures = match ends(&disk).await {
        Ok((head, tail)) => {
            if let Some(pool) = options.label.as_ref().and_then(|read| read(&head)) {
                reasons.push(CannotPoolReason::InAPool { pool });
            }
            signature::signatures(&head, &tail, info.geometry.size)
        }
        Err(error) => {
            reasons.push(CannotPoolReason::NotHealthy { error });
            Vec::new()
        }
    };
    let known = |r: &CannotPoolReason| {
        matches!(r, CannotPoolReason::InAPool { .. } | CannotPoolReason::NotHealthy { .. })
    };
    if device.is_none() && signatures.is_empty() && !options.force && !reasons.iter().any(known) {
        match first_data(&disk).await {
            Ok(found) => signatures.extend(found),
            Err(error) => reasons.push(CannotPoolReason::NotHealthy { error }),
        }
    }
    if !signatures.is_empty() && !options.force {
        reasons.push(CannotPoolReason::NotBlank { signatures: signatures.clone() });
    }
    let mut flush = None;
    if options.measure && ours && reasons.is_empty() {
        match flush::measure(env, &*disk).await {
            Ok(measured) => flush = measured,
            Err(error) => reasons.push(CannotPoolReason::NotHealthy { error }),
        }
    }
    let power_loss_protected = match (info.write_cache, &flush) {
        (WriteCache::None, _) => Some(true),
        (_, Some(flush)) => Some(flush.median < FLUSH_PROTECTED),
        (_, None) => None,
    };
    let warnings = warnings(&info, flush.as_ref(), power_loss_protected);
    let can_pool = reasons.is_empty();
    Ok(Qualification { info, can_pool, reasons, warnings, signatures, flush, power_loss_protected })
}

/// The block device of a path, if it is one that the system knows.
fn device_of(path: &Path, sysfs: &Sysfs) -> Result<Option<Device>, OpenError> {
    let meta = std::fs::metadata(path).map_err(|source| OpenError::Path { path: path.into(), source })?;
    let is_device = std::os::unix::fs::FileTypeExt::is_block_device(&meta.file_type());
    let number = is_device.then(|| meta.rdev());
    Ok(number.and_then(|n| sysfs.device(rustix::fs::major(n), rustix::fs::minor(n))))
}

fn refuses_writing(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EROFS | libc::EACCES | libc::EPERM))
}

/// The result for a device that exists but cannot be opened.
fn offline(
    path: PathBuf,
    source: std::io::Error,
    device: Option<&Device>,
) -> Result<Qualification, OpenError> {
    let gone = [libc::ENXIO, libc::ENODEV, libc::EIO, libc::ENOMEDIUM];
    let known = device.and_then(Device::info);
    match (source.raw_os_error(), known) {
        (Some(errno), Some(info)) if gone.contains(&errno) => Ok(Qualification {
            info,
            can_pool: false,
            reasons: vec![CannotPoolReason::Offline { errno }],
            warnings: Vec::new(),
            signatures: Vec::new(),
            flush: None,
            power_loss_protected: None,
        }),
        _ => Err(OpenError::Path { path, source }),
    }
}

/// The reasons in its description.
fn by_description(
    info: &DiskInfo,
    device: Option<&Device>,
    options: &QualifyOptions,
    sysfs: &Sysfs,
) -> Vec<CannotPoolReason> {
    let mut out = Vec::new();
    let size = info.geometry.size;
    if size < options.minimum {
        out.push(CannotPoolReason::InsufficientCapacity { size, minimum: options.minimum });
    }
    if info.removable {
        out.push(CannotPoolReason::RemovableMedia);
    }
    if device.is_some_and(Device::read_only) {
        out.push(CannotPoolReason::ReadOnly);
    }
    let file_system = || rustix::fs::statfs(&info.path).ok().and_then(|fs| network_file_system(fs.f_type));
    let transport = match device {
        Some(device) => device.network(),
        None => file_system(),
    };
    if let Some(transport) = transport {
        out.push(CannotPoolReason::Shared { transport });
    }
    if info.geometry.logical_block > 4096 || device.is_some_and(Device::zoned) {
        out.push(CannotPoolReason::HardwareNotCompliant { logical_block: info.geometry.logical_block });
    }
    if info.id.kind == IdKind::Path {
        out.push(CannotPoolReason::NoUniqueId);
    } else {
        let own = device.map(|d| d.disk.clone());
        let known = sysfs.disks().into_iter().filter(|d| Some(&d.disk) != own.as_ref());
        let twin = known.filter(|d| d.id().as_ref() == Some(&info.id)).map(|d| d.path()).next();
        if twin.is_some() || options.others.contains(&info.id) {
            out.push(CannotPoolReason::DuplicateId { id: info.id.clone(), other: twin });
        }
    }
    out
}

/// The name of a network file system by its `statfs` number (linux/magic.h and the file systems' own
/// headers).
fn network_file_system(magic: impl TryInto<i64>) -> Option<&'static str> {
    const ALL: [(i64, &str); 10] = [
        (0x6969, "NFS"),
        (0xff53_4d42, "SMB"),
        (0xfe53_4d42, "SMB"),
        (0x517b, "SMB"),
        (0x00c3_6400, "Ceph"),
        (0x0116_1970, "GFS2"),
        (0x7461_636f, "OCFS2"),
        (0x0bd0_0bd0, "Lustre"),
        (0x4750_4653, "GPFS"),
        (0x5346_414f, "AFS"),
    ];
    // A 32-bit number may have been sign-extended.
    let magic = magic.try_into().ok()? & 0xffff_ffff;
    ALL.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// The first and last bytes of a disk that are examined.
async fn ends(disk: &FileDisk) -> Result<(Vec<u8>, Vec<u8>), crate::DiskError> {
    let size = disk.info().geometry.size;
    let head = read(disk, 0, size.min(HEAD as u64)).await?;
    let tail = size.min(TAIL as u64);
    Ok((head, read(disk, size - tail, tail).await?))
}

/// The first non-zero bytes of a file. A file of written zeros is read to its end.
async fn first_data(disk: &FileDisk) -> Result<Option<Signature>, crate::DiskError> {
    let block = u64::from(disk.info().geometry.logical_block);
    let arena = memory(2 * STEP as usize)?;
    let mut from = 0;
    while let Some(data) = disk.next_data(from) {
        from = data.start / block * block;
        let end = data.end.next_multiple_of(block).min(disk.info().geometry.size);
        while from < end {
            let length = (end - from).min(STEP);
            let bytes = read_with(disk, &arena, from, length).await?;
            if let Some(at) = bytes.iter().position(|b| *b != 0) {
                return Ok(Some(Signature { name: signature::UNKNOWN, offset: from + at as u64 }));
            }
            from += length;
        }
    }
    Ok(None)
}

/// Bytes of a file that are read at a time.
const STEP: u64 = 1 << 20;

fn memory(bytes: usize) -> Result<Arena, crate::DiskError> {
    let at = crate::IoRange::new(crate::Op::Read, 0, bytes as u64);
    Arena::new(bytes).map_err(|_| crate::DiskError::Refused { at, errno: libc::ENOMEM })
}

async fn read(disk: &FileDisk, offset: u64, length: u64) -> Result<Vec<u8>, crate::DiskError> {
    read_with(disk, &memory(2 * length as usize)?, offset, length).await
}

async fn read_with(
    disk: &FileDisk,
    arena: &Arena,
    offset: u64,
    length: u64,
) -> Result<Vec<u8>, crate::DiskError> {
    let length = length as usize;
    let dst = sized(arena.alloc_sg(length, Class::Control).await, length);
    let (result, dst) = disk.read(&Ctx::default(), offset, dst).wait().await;
    result.map(|()| dst.iter().flat_map(|b| b.iter().copied()).collect())
}

fn warnings(info: &DiskInfo, flush: Option<&FlushLatency>, protected: Option<bool>) -> Vec<Warning> {
    let mut out = Vec::new();
    if let (Some(flush), Some(false)) = (flush, protected) {
        out.push(Warning::NoPowerLossProtection { median: flush.median });
    }
    if info.geometry.atomic_write < 4096 {
        out.push(Warning::SmallAtomicWrite { unit: info.geometry.atomic_write });
    }
    if info.id.kind == IdKind::Serial {
        out.push(Warning::OnlySerial);
    }
    out
}
