//! Backend errors as NTSTATUS: the one place where they are mapped.

use smb_wire::NtStatus;
use vfs::{PathError, VfsError};

/// STATUS_TOO_MANY_LINKS (MS-ERREF 2.3).
const TOO_MANY_LINKS: NtStatus = NtStatus(0xC000_0265);
/// STATUS_DEVICE_NOT_READY (MS-ERREF 2.3).
const DEVICE_NOT_READY: NtStatus = NtStatus(0xC000_00A3);
/// `ENODEV`: the storage of a share is not available now.
const ENODEV: i32 = 19;
/// STATUS_UNEXPECTED_IO_ERROR (MS-ERREF 2.3).
const UNEXPECTED_IO_ERROR: NtStatus = NtStatus(0xC000_00E9);

/// The status of a backend's error (Windows' value for the same cause on NTFS).
pub(crate) fn of_vfs(e: VfsError) -> NtStatus {
    match e {
        VfsError::NotFound | VfsError::Stale => NtStatus::OBJECT_NAME_NOT_FOUND,
        VfsError::PathNotFound => NtStatus::OBJECT_PATH_NOT_FOUND,
        VfsError::ReparsePoint => NtStatus::IO_REPARSE_TAG_NOT_HANDLED,
        VfsError::Exists => NtStatus::OBJECT_NAME_COLLISION,
        VfsError::IsDirectory => NtStatus::FILE_IS_A_DIRECTORY,
        VfsError::NotDirectory => NtStatus::NOT_A_DIRECTORY,
        VfsError::NotEmpty => NtStatus::DIRECTORY_NOT_EMPTY,
        VfsError::AccessDenied | VfsError::Refused | VfsError::Escapes => NtStatus::ACCESS_DENIED,
        VfsError::NameTooLong | VfsError::InvalidName => NtStatus::OBJECT_NAME_INVALID,
        VfsError::InvalidArgument | VfsError::TooLarge => NtStatus::INVALID_PARAMETER,
        // The file system's area for attributes is full: reported to the client like a full volume.
        VfsError::NoSpace | VfsError::Quota | VfsError::AttributeTooLarge => NtStatus::DISK_FULL,
        VfsError::ReadOnly => NtStatus::MEDIA_WRITE_PROTECTED,
        VfsError::TooManyOpen => NtStatus::TOO_MANY_OPENED_FILES,
        VfsError::NoMemory => NtStatus::INSUFFICIENT_RESOURCES,
        VfsError::CrossDevice => NtStatus::NOT_SAME_DEVICE,
        VfsError::TooManyLinks => TOO_MANY_LINKS,
        VfsError::Busy => NtStatus::SHARING_VIOLATION,
        VfsError::Damaged => NtStatus::FILE_CORRUPT_ERROR,
        VfsError::Unsupported => NtStatus::NOT_SUPPORTED,
        VfsError::Cancelled => NtStatus::CANCELLED,
        VfsError::Io(ENODEV) => DEVICE_NOT_READY,
        VfsError::Io(_) => UNEXPECTED_IO_ERROR,
    }
}

/// The status of an invalid name.
pub(crate) fn of_path(e: PathError) -> NtStatus {
    match e {
        PathError::Character | PathError::Component | PathError::TooLong => NtStatus::OBJECT_NAME_INVALID,
        // MS-FSA 2.1.5.1: an unknown type of stream, or no name.
        PathError::Stream => NtStatus::OBJECT_NAME_INVALID,
    }
}
