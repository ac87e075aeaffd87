//! File system information (MS-FSCC 2.5).

use super::names::{put_name, take_name};
use crate::cursor::{Field, Reader, fit_u32};
use crate::macros::{flag_set, open_enum, record};
use crate::{FileTime, Guid, Utf16Le, WireError};

/// FileFsVolumeInformation (MS-FSCC 2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsVolumeInformation<'a> {
    /// When the volume was created.
    pub creation_time: FileTime,
    /// Serial number.
    pub serial_number: u32,
    /// Whether object identifiers are supported.
    pub supports_objects: bool,
    /// Label.
    pub label: Utf16Le<'a>,
}

impl<'a> FsVolumeInformation<'a> {
    /// Length of the fixed part before the label, in bytes.
    pub const FIXED_LEN: usize = 18;

    /// Decodes the structure.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes, "FileFsVolumeInformation");
        let (creation_time, serial_number) = (r.get()?, r.get()?);
        let len: u32 = r.get()?;
        let supports_objects = r.get()?;
        r.skip(1)?;
        let label = Utf16Le::new(r.take(len as usize)?, "volume label")?;
        Ok(Self { creation_time, serial_number, supports_objects, label })
    }

    /// Appends the structure to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let len = fit_u32(self.label.len(), "volume label")?;
        self.creation_time.put(out);
        self.serial_number.put(out);
        len.put(out);
        self.supports_objects.put(out);
        0u8.put(out);
        out.extend_from_slice(self.label.as_bytes());
        Ok(())
    }
}

/// FileFsLabelInformation (MS-FSCC 2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsLabelInformation<'a> {
    /// Label.
    pub label: Utf16Le<'a>,
}

impl<'a> FsLabelInformation<'a> {
    /// Decodes the structure.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        take_name(&mut Reader::new(bytes, "FileFsLabelInformation")).map(|label| Self { label })
    }

    /// Appends the structure to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        put_name(out, self.label)
    }
}

record! {
    /// FileFsSizeInformation (MS-FSCC 2.5).
    pub struct FsSizeInformation [24] {
        /// Total number of allocation units.
        pub total_allocation_units: u64,
        /// Number of free allocation units available to the user.
        pub available_allocation_units: u64,
        /// Number of sectors per allocation unit.
        pub sectors_per_allocation_unit: u32,
        /// Size of a sector in bytes.
        pub bytes_per_sector: u32,
    }
}

record! {
    /// FileFsFullSizeInformation (MS-FSCC 2.5).
    pub struct FsFullSizeInformation [32] {
        /// Total number of allocation units.
        pub total_allocation_units: u64,
        /// Number of free allocation units available to the user.
        pub caller_available_allocation_units: u64,
        /// Number of free allocation units.
        pub actual_available_allocation_units: u64,
        /// Number of sectors per allocation unit.
        pub sectors_per_allocation_unit: u32,
        /// Size of a sector in bytes.
        pub bytes_per_sector: u32,
    }
}

open_enum! {
    /// Device type.
    pub struct DeviceType(u32) {
        /// CD-ROM.
        CD_ROM = 0x02,
        /// Disk.
        DISK = 0x07,
        /// Named pipe.
        NAMED_PIPE = 0x11,
    }
}

flag_set! {
    /// Device characteristics.
    pub struct DeviceCharacteristics: u32 {
        /// Removable.
        const REMOVABLE_MEDIA = 0x01;
        /// Read-only.
        const READ_ONLY_DEVICE = 0x02;
        /// Written once.
        const WRITE_ONCE_MEDIA = 0x08;
        /// Remote.
        const REMOTE_DEVICE = 0x10;
        /// Mounted.
        const DEVICE_IS_MOUNTED = 0x20;
        /// Virtual volume.
        const VIRTUAL_VOLUME = 0x40;
    }
}

record! {
    /// FileFsDeviceInformation (MS-FSCC 2.5).
    pub struct FsDeviceInformation [8] {
        /// Type.
        pub device_type: DeviceType,
        /// Characteristics.
        pub characteristics: DeviceCharacteristics,
    }
}

flag_set! {
    /// FileSystemAttributes.
    pub struct FileSystemAttributes: u32 {
        /// Names are matched case-sensitively on request.
        const CASE_SENSITIVE_SEARCH = 0x0000_0001;
        /// Names keep their case.
        const CASE_PRESERVED_NAMES = 0x0000_0002;
        /// Names are Unicode.
        const UNICODE_ON_DISK = 0x0000_0004;
        /// Access control lists.
        const PERSISTENT_ACLS = 0x0000_0008;
        /// Compressed files.
        const FILE_COMPRESSION = 0x0000_0010;
        /// Quotas.
        const VOLUME_QUOTAS = 0x0000_0020;
        /// Sparse files.
        const SUPPORTS_SPARSE_FILES = 0x0000_0040;
        /// Reparse points.
        const SUPPORTS_REPARSE_POINTS = 0x0000_0080;
        /// Remote storage.
        const SUPPORTS_REMOTE_STORAGE = 0x0000_0100;
        /// Additional information after cleanup.
        const RETURNS_CLEANUP_RESULT_INFO = 0x0000_0200;
        /// POSIX unlink and rename.
        const SUPPORTS_POSIX_UNLINK_RENAME = 0x0000_0400;
        /// Compressed volume.
        const VOLUME_IS_COMPRESSED = 0x0000_8000;
        /// Object identifiers.
        const SUPPORTS_OBJECT_IDS = 0x0001_0000;
        /// Encryption.
        const SUPPORTS_ENCRYPTION = 0x0002_0000;
        /// Named streams.
        const NAMED_STREAMS = 0x0004_0000;
        /// Read-only.
        const READ_ONLY_VOLUME = 0x0008_0000;
        /// Written once, in sequence.
        const SEQUENTIAL_WRITE_ONCE = 0x0010_0000;
        /// Transactions.
        const SUPPORTS_TRANSACTIONS = 0x0020_0000;
        /// Hard links.
        const SUPPORTS_HARD_LINKS = 0x0040_0000;
        /// Extended attributes.
        const SUPPORTS_EXTENDED_ATTRIBUTES = 0x0080_0000;
        /// Open by file id.
        const SUPPORTS_OPEN_BY_FILE_ID = 0x0100_0000;
        /// USN journal.
        const SUPPORTS_USN_JOURNAL = 0x0200_0000;
        /// Integrity streams.
        const SUPPORT_INTEGRITY_STREAMS = 0x0400_0000;
        /// Block cloning.
        const SUPPORTS_BLOCK_REFCOUNTING = 0x0800_0000;
        /// Sparse VDL.
        const SUPPORTS_SPARSE_VDL = 0x1000_0000;
        /// Ghosting.
        const SUPPORTS_GHOSTING = 0x4000_0000;
    }
}

/// FileFsAttributeInformation (MS-FSCC 2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsAttributeInformation<'a> {
    /// Attributes.
    pub attributes: FileSystemAttributes,
    /// Maximum length of a name component in characters.
    pub maximum_component_name_length: u32,
    /// The file system's name; clients infer features from "NTFS".
    pub file_system_name: Utf16Le<'a>,
}

impl<'a> FsAttributeInformation<'a> {
    /// Length of the fixed part before the name, in bytes.
    pub const FIXED_LEN: usize = 12;

    /// Decodes the structure.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes, "FileFsAttributeInformation");
        Ok(Self {
            attributes: r.get()?,
            maximum_component_name_length: r.get()?,
            file_system_name: take_name(&mut r)?,
        })
    }

    /// Appends the structure to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.attributes.put(out);
        self.maximum_component_name_length.put(out);
        put_name(out, self.file_system_name)
    }
}

flag_set! {
    /// FileSystemControlFlags.
    pub struct FileSystemControlFlags: u32 {
        /// Quotas are tracked.
        const QUOTA_TRACK = 0x001;
        /// Quotas are enforced.
        const QUOTA_ENFORCE = 0x002;
        /// Contents are not indexed.
        const CONTENT_INDEX_DISABLED = 0x008;
        /// Log when a user reaches the quota threshold.
        const LOG_QUOTA_THRESHOLD = 0x010;
        /// Log when a user reaches the quota limit.
        const LOG_QUOTA_LIMIT = 0x020;
        /// Log when the volume reaches its threshold.
        const LOG_VOLUME_THRESHOLD = 0x040;
        /// Log when the volume reaches its limit.
        const LOG_VOLUME_LIMIT = 0x080;
        /// Quotas are incomplete.
        const QUOTAS_INCOMPLETE = 0x100;
        /// Quotas are being rebuilt.
        const QUOTAS_REBUILDING = 0x200;
    }
}

record! {
    /// FileFsControlInformation (MS-FSCC 2.5).
    pub struct FsControlInformation [48] {
        /// Indexing: free space at which to start.
        pub free_space_start_filtering: u64,
        /// Indexing: free space threshold.
        pub free_space_threshold: u64,
        /// Indexing: free space at which to stop.
        pub free_space_stop_filtering: u64,
        /// Default quota threshold in bytes; all ones for none.
        pub default_quota_threshold: u64,
        /// Default quota limit in bytes; all ones for none.
        pub default_quota_limit: u64,
        /// Flags.
        pub flags: FileSystemControlFlags => pad 4,
    }
}

record! {
    /// FileFsObjectIdInformation (MS-FSCC 2.5).
    pub struct FsObjectIdInformation [64] {
        /// The volume's identifier.
        pub object_id: Guid,
        /// Data defined by the file system.
        pub extended_info: [[u8; 16]; 3],
    }
}

impl Field for [[u8; 16]; 3] {
    const SIZE: usize = 48;
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok([r.get()?, r.get()?, r.get()?])
    }
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|x| x.put(out));
    }
}

flag_set! {
    /// Flags of FileFsSectorSizeInformation.
    pub struct SectorSizeFlags: u32 {
        /// Aligned to physical sectors.
        const ALIGNED_DEVICE = 1;
        /// The partition is aligned.
        const PARTITION_ALIGNED_ON_DEVICE = 2;
        /// No seek penalty.
        const NO_SEEK_PENALTY = 4;
        /// Trim is supported.
        const TRIM_ENABLED = 8;
    }
}

record! {
    /// FileFsSectorSizeInformation (MS-FSCC 2.5).
    pub struct FsSectorSizeInformation [28] {
        /// Size of a logical sector in bytes.
        pub logical_bytes_per_sector: u32,
        /// Size of a physical sector in bytes, for atomic writes.
        pub physical_bytes_per_sector_for_atomicity: u32,
        /// Size of a physical sector in bytes, for performance.
        pub physical_bytes_per_sector_for_performance: u32,
        /// Size of the unit that the file system writes atomically, in bytes.
        pub effective_physical_bytes_per_sector_for_atomicity: u32,
        /// Flags.
        pub flags: SectorSizeFlags,
        /// Offset of the first aligned sector, in bytes.
        pub byte_offset_for_sector_alignment: u32,
        /// Offset of the partition's alignment, in bytes.
        pub byte_offset_for_partition_alignment: u32,
    }
}
