//! The description of a disk.

use std::fmt;
use std::path::PathBuf;

use crate::{DiskError, IO_MAX, IoRange, Op};

/// Identity, geometry and location of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    /// The identity of this disk.
    pub id: DiskId,
    /// Its current path on this machine.
    pub path: PathBuf,
    /// The manufacturer's model name; empty if unknown.
    pub model: String,
    /// The manufacturer's serial number; empty if unknown.
    pub serial: String,
    /// Firmware version; empty if unknown.
    pub firmware: String,
    /// Sizes.
    pub geometry: Geometry,
    /// The medium.
    pub media: Media,
    /// Whether the access time depends on the position of the data.
    pub rotational: bool,
    /// Whether it is removable media (a USB stick, a card).
    pub removable: bool,
    /// The enclosure and slot, if the system reports them.
    pub enclosure: Option<EnclosureSlot>,
    /// The number of I/Os that it takes at a time; further ones wait.
    pub queue_depth: u32,
    /// Whether it has a write cache that loses data in a power cut.
    pub write_cache: WriteCache,
    /// Its layout on other disks; `None` if it is not a virtual disk.
    pub layout: Option<Layout>,
}

/// The layout of a virtual disk on other disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a full stripe, which keeps all disks busy: columns times interleave. With parity, writing
    /// whole stripes needs no reads.
    pub stripe: u64,
    /// The allocation unit in bytes.
    pub row: u64,
    /// How many disks may fail, or fault domains if these have several disks.
    pub failures: usize,
}

/// The identity of a disk; compared as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskId {
    /// The source of the value.
    pub kind: IdKind,
    /// In the source's own notation, without surrounding blanks; never empty.
    pub value: String,
}

/// The source of an identity, the most reliable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdKind {
    /// SCSI, SATA or NVMe world wide name (NAA, EUI-64, NGUID, UUID) as reported by the system.
    Wwn,
    /// Only model and serial number.
    Serial,
    /// Generated when a file was made into a disk.
    File,
    /// Only the path, which is not permanent. Such a disk cannot be pooled.
    Path,
}

/// Sizes in bytes. Each is a power of two except `size`, which is a multiple of `logical_block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The size of the disk.
    pub size: u64,
    /// Every offset and length is a multiple of this.
    pub logical_block: u32,
    /// The write unit of the medium; a smaller write requires a read.
    pub physical_block: u32,
    /// The atomic write size: after a power cut an aligned write of this size is entirely old or entirely
    /// new. At least `logical_block`.
    pub atomic_write: u32,
    /// The alignment of buffers that need no copy.
    pub dma_alignment: u32,
}

/// The medium (`MediaType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Media {
    /// Storage class memory: persistent, at the speed of memory.
    Scm,
    /// Flash behind NVMe.
    Nvme,
    /// Flash behind SATA or SAS.
    Ssd,
    /// Magnetic disk.
    Hdd,
    /// Unknown: a virtual disk, a file.
    Unspecified,
}

/// A slot of an enclosure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnclosureSlot {
    /// The enclosure's SES logical identifier.
    pub enclosure: String,
    /// The slot's number or name.
    pub slot: String,
}

/// Whether completed writes may be in a cache that loses data in a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// Yes: flushes are needed.
    Volatile,
    /// No: there is no cache, or it is protected.
    None,
    /// Unknown: treat it as volatile.
    Unknown,
}

impl Geometry {
    /// Checks that a call is whole blocks inside the disk. Every provider calls this first.
    ///
    /// # Errors
    /// `Unaligned`, `OutOfRange`; `TooLong` for reads and writes.
    pub fn check(&self, at: IoRange) -> Result<(), DiskError> {
        let block = u64::from(self.logical_block);
        if !at.offset.is_multiple_of(block) || !at.length.is_multiple_of(block) {
            return Err(DiskError::Unaligned { at, block: self.logical_block });
        }
        if at.offset.checked_add(at.length).is_none_or(|end| end > self.size) {
            return Err(DiskError::OutOfRange { at, size: self.size });
        }
        if at.length > IO_MAX && matches!(at.op, Op::Read | Op::Write) {
            return Err(DiskError::TooLong { at });
        }
        Ok(())
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            IdKind::Wwn => "wwn",
            IdKind::Serial => "serial",
            IdKind::File => "file",
            IdKind::Path => "path",
        };
        write!(f, "{kind}:{}", self.value)
    }
}

impl fmt::Display for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Media::Scm => "SCM",
            Media::Nvme => "NVMe",
            Media::Ssd => "SSD",
            Media::Hdd => "HDD",
            Media::Unspecified => "Unspecified",
        })
    }
}
