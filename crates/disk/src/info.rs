//! The description of a disk.

use std::fmt;
use std::path::PathBuf;

use crate::{DiskError, IO_MAX, Op, Place};

/// Identity, shape and place of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    /// The identity of this disk.
    pub id: DiskId,
    /// Where this machine finds it today.
    pub path: PathBuf,
    /// The maker's name for the kind of disk; empty if unknown.
    pub model: String,
    /// The maker's number of this disk; empty if unknown.
    pub serial: String,
    /// Version of its firmware; empty if unknown.
    pub firmware: String,
    /// Sizes.
    pub geometry: Geometry,
    /// The medium.
    pub media: Media,
    /// Whether its place decides how long an access takes.
    pub rotational: bool,
    /// Whether it is made to be pulled out while in use (a USB stick, a card).
    pub removable: bool,
    /// The enclosure and the slot in it, where the system knows.
    pub enclosure: Option<EnclosureSlot>,
    /// How many I/Os it takes at a time; more wait.
    pub queue_depth: u32,
    /// Whether it has a write cache that a power cut empties.
    pub write_cache: WriteCache,
    /// How it lies on other disks; `None` if it is no virtual disk.
    pub layout: Option<Layout>,
}

/// How a virtual disk lies on other disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes that keep all of its disks busy: columns times interleave. With parity, a write of whole stripes needs no
    /// reads.
    pub stripe: u64,
    /// Bytes that are allocated at a time.
    pub row: u64,
    /// How many disks, or fault domains where the disks have several, may be lost.
    pub failures: usize,
}

/// The identity of a disk; compared as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskId {
    /// Where the value comes from.
    pub kind: IdKind,
    /// In the source's own spelling, without blanks around; never empty.
    pub value: String,
}

/// Where an identity comes from, the most trustworthy first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdKind {
    /// SCSI, SATA or NVMe world wide name (NAA, EUI-64, NGUID, UUID) as the system gives it.
    Wwn,
    /// Only model and serial number.
    Serial,
    /// Generated when a file was made a disk.
    File,
    /// Nothing that lasts: the path. Such a disk cannot be pooled.
    Path,
}

/// Sizes in bytes. Each is a power of two except `size`, which is a multiple of `logical_block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The whole disk.
    pub size: u64,
    /// Every offset and length is a multiple of this.
    pub logical_block: u32,
    /// The unit that the medium writes at once; a smaller write costs a read.
    pub physical_block: u32,
    /// The atomic write size: after a power cut an aligned write of this is old or new. At least
    /// `logical_block`.
    pub atomic_write: u32,
    /// Where buffers in memory begin if they are not to be copied.
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
    /// Magnetic.
    Hdd,
    /// Not known: a virtual disk, a file.
    Unspecified,
}

/// A place in an enclosure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnclosureSlot {
    /// The enclosure's own identity (SES logical identifier).
    pub enclosure: String,
    /// The slot's number or name.
    pub slot: String,
}

/// Whether completed writes may be in a cache that a power cut empties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// They may: a flush matters.
    Volatile,
    /// They are not: no cache, or a protected one.
    None,
    /// Not known; treat it as volatile.
    Unknown,
}

impl Geometry {
    /// Whether a call is whole blocks inside the disk; every provider asks before it does anything.
    ///
    /// # Errors
    /// `Unaligned`, `OutOfRange`; `TooLong` for reads and writes.
    pub fn check(&self, at: Place) -> Result<(), DiskError> {
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
