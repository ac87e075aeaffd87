//! Attributes of a file, and space of a share.

use smb_wire::fscc::{DirectoryEntry, FileNetworkOpenInformation};
use smb_wire::msg::CreateResponse;
use smb_wire::{FileAttributes, FileTime};

/// Attributes of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Length of the file in bytes.
    pub size: u64,
    /// Allocated space in bytes.
    pub allocated: u64,
    /// When it was created.
    pub created: FileTime,
    /// When it was last read.
    pub accessed: FileTime,
    /// When its content last changed.
    pub modified: FileTime,
    /// When its content or metadata last changed.
    pub changed: FileTime,
    /// Its attributes.
    pub attributes: FileAttributes,
}

impl Metadata {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.attributes.contains(FileAttributes::DIRECTORY)
    }
}

impl From<&CreateResponse<'_>> for Metadata {
    fn from(r: &CreateResponse<'_>) -> Metadata {
        Metadata {
            size: r.end_of_file,
            allocated: r.allocation_size,
            created: r.creation_time,
            accessed: r.last_access_time,
            modified: r.last_write_time,
            changed: r.change_time,
            attributes: r.file_attributes,
        }
    }
}

impl From<&FileNetworkOpenInformation> for Metadata {
    fn from(i: &FileNetworkOpenInformation) -> Metadata {
        Metadata {
            size: i.end_of_file,
            allocated: i.allocation_size,
            created: i.creation_time,
            accessed: i.last_access_time,
            modified: i.last_write_time,
            changed: i.change_time,
            attributes: i.file_attributes,
        }
    }
}

impl From<&DirectoryEntry<'_>> for Metadata {
    fn from(e: &DirectoryEntry<'_>) -> Metadata {
        Metadata {
            size: e.end_of_file,
            allocated: e.allocation_size,
            created: e.creation_time,
            accessed: e.last_access_time,
            modified: e.last_write_time,
            changed: e.change_time,
            attributes: e.file_attributes,
        }
    }
}

/// Times to set; `None` leaves a time unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Creation.
    pub created: Option<FileTime>,
    /// Last access.
    pub accessed: Option<FileTime>,
    /// Last change of the content.
    pub modified: Option<FileTime>,
    /// Last change of content or metadata.
    pub changed: Option<FileTime>,
}

/// Space of a share's volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Total space.
    pub total: u64,
    /// Space available to the user.
    pub available: u64,
    /// Free space.
    pub free: u64,
}
