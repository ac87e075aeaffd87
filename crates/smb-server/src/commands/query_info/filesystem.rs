//! File system information (MS-SMB2 3.3.5.20.2, MS-FSCC 2.5).

use smb_wire::fscc::{
    DeviceCharacteristics, DeviceType, FileSystemAttributes, FileSystemControlFlags, FsAttributeInformation,
    FsControlInformation, FsDeviceInformation, FsFullSizeInformation, FsInfoClass, FsObjectIdInformation,
    FsPosixInformation, FsSectorSizeInformation, FsSizeInformation, FsVolumeInformation, SectorSizeFlags,
};
use smb_wire::msg::QueryInfoRequest;
use smb_wire::{AccessMask, Guid, NtStatus, Utf16Buf};
use vfs::VolumeInfo;

use super::Answer;
use crate::commands::metadata::file_time;
use crate::open::Open;
use crate::request::Request;
use crate::status;

/// Bytes of a logical sector.
const SECTOR: u32 = 512;
/// Smallest buffers for FileFsVolumeInformation and FileFsAttributeInformation, in bytes: their fixed parts, aligned.
const VOLUME_FIXED: usize = 24;
const ATTRIBUTE_FIXED: usize = 16;

pub(super) async fn query(r: &Request, open: &Open, q: &QueryInfoRequest<'_>) -> Result<Answer, NtStatus> {
    let vfs = r.tree.share.vfs().ok_or(NtStatus::NOT_SUPPORTED)?;
    let info = vfs.info();
    let mut bytes = Vec::new();
    let wire = |_| NtStatus::INTERNAL_ERROR;
    match FsInfoClass(q.info_class) {
        FsInfoClass::VOLUME => {
            let label = Utf16Buf::from(info.label.as_str());
            let v = FsVolumeInformation {
                creation_time: file_time(info.created),
                serial_number: short_serial(info.volume),
                supports_objects: false,
                label: label.as_utf16(),
            };
            v.encode(&mut bytes).map_err(wire)?;
            return Ok(Answer::structure(bytes, VOLUME_FIXED));
        }
        FsInfoClass::ATTRIBUTE => {
            let name = Utf16Buf::from(info.file_system.as_str());
            let a = FsAttributeInformation {
                attributes: attributes(info),
                maximum_component_name_length: info.name_max,
                file_system_name: name.as_utf16(),
            };
            a.encode(&mut bytes).map_err(wire)?;
            return Ok(Answer::structure(bytes, ATTRIBUTE_FIXED));
        }
        FsInfoClass::SIZE | FsInfoClass::FULL_SIZE => {
            let s = vfs.space(&r.ctx()).wait().await.map_err(status::of_vfs)?;
            let unit = u64::from(info.cluster.max(SECTOR));
            let sectors_per_allocation_unit = (unit / u64::from(SECTOR)) as u32;
            if FsInfoClass(q.info_class) == FsInfoClass::SIZE {
                FsSizeInformation {
                    total_allocation_units: s.total / unit,
                    available_allocation_units: s.available / unit,
                    sectors_per_allocation_unit,
                    bytes_per_sector: SECTOR,
                }
                .encode(&mut bytes);
            } else {
                FsFullSizeInformation {
                    total_allocation_units: s.total / unit,
                    caller_available_allocation_units: s.available / unit,
                    actual_available_allocation_units: s.free / unit,
                    sectors_per_allocation_unit,
                    bytes_per_sector: SECTOR,
                }
                .encode(&mut bytes);
            }
        }
        FsInfoClass::DEVICE => {
            let mut characteristics = DeviceCharacteristics::DEVICE_IS_MOUNTED;
            if info.read_only {
                characteristics |= DeviceCharacteristics::READ_ONLY_DEVICE;
            }
            FsDeviceInformation { device_type: DeviceType::DISK, characteristics }.encode(&mut bytes);
        }
        FsInfoClass::CONTROL => {
            // MS-FSA 2.1.5.13.2: quotas, of which there are none; reading them needs the right to read data.
            if !AccessMask::from_bits_retain(open.access).contains(AccessMask::READ_DATA) {
                return Err(NtStatus::ACCESS_DENIED);
            }
            FsControlInformation {
                default_quota_threshold: u64::MAX,
                default_quota_limit: u64::MAX,
                flags: FileSystemControlFlags::CONTENT_INDEX_DISABLED,
                ..FsControlInformation::default()
            }
            .encode(&mut bytes);
        }
        FsInfoClass::OBJECT_ID => {
            let id = Guid(info.volume.to_le_bytes());
            FsObjectIdInformation { object_id: id, extended_info: [[0; 16]; 3] }.encode(&mut bytes);
        }
        FsInfoClass::SECTOR_SIZE => {
            let physical = info.cluster.max(SECTOR);
            FsSectorSizeInformation {
                logical_bytes_per_sector: SECTOR,
                physical_bytes_per_sector_for_atomicity: physical,
                physical_bytes_per_sector_for_performance: physical,
                effective_physical_bytes_per_sector_for_atomicity: physical,
                // FSCTL_FILE_LEVEL_TRIM frees space.
                flags: SectorSizeFlags::ALIGNED_DEVICE
                    | SectorSizeFlags::PARTITION_ALIGNED_ON_DEVICE
                    | SectorSizeFlags::TRIM_ENABLED,
                byte_offset_for_sector_alignment: 0,
                byte_offset_for_partition_alignment: 0,
            }
            .encode(&mut bytes);
        }
        FsInfoClass::POSIX if r.facts.posix => {
            let s = vfs.space(&r.ctx()).wait().await.map_err(status::of_vfs)?;
            let block_size = info.cluster.max(SECTOR);
            let blocks = |bytes: u64| bytes / u64::from(block_size);
            FsPosixInformation {
                optimal_transfer_size: block_size,
                block_size,
                total_blocks: blocks(s.total),
                blocks_available: blocks(s.free),
                user_blocks_available: blocks(s.available),
                total_files: u64::MAX,
                free_files: u64::MAX,
                identifier: vfs::serial(info.volume),
            }
            .encode(&mut bytes);
        }
        // MS-FSCC 2.5: for local use only.
        FsInfoClass::LABEL | FsInfoClass::DRIVER_PATH => return Err(NtStatus::NOT_SUPPORTED),
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }
    let fixed = bytes.len();
    Ok(Answer::structure(bytes, fixed))
}

/// The serial number in 32 bits.
fn short_serial(volume: u128) -> u32 {
    let serial = vfs::serial(volume);
    (serial ^ (serial >> 32)) as u32
}

/// The capabilities of this volume. NTFS has quotas on every volume, on or off.
fn attributes(info: &VolumeInfo) -> FileSystemAttributes {
    use FileSystemAttributes as A;
    let mut a = A::CASE_PRESERVED_NAMES
        | A::UNICODE_ON_DISK
        | A::PERSISTENT_ACLS
        | A::SUPPORTS_EXTENDED_ATTRIBUTES
        | A::VOLUME_QUOTAS;
    a.set(A::CASE_SENSITIVE_SEARCH, info.case_sensitive);
    a.set(A::SUPPORTS_SPARSE_FILES, info.sparse);
    a.set(A::NAMED_STREAMS, info.named_streams);
    a.set(A::SUPPORTS_REPARSE_POINTS, info.reparse_points);
    a.set(A::SUPPORTS_BLOCK_REFCOUNTING, info.reflinks);
    a.set(A::FILE_COMPRESSION, info.compression);
    a.set(A::READ_ONLY_VOLUME, info.read_only);
    a
}
