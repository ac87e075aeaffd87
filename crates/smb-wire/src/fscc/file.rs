//! File information of fixed size (MS-FSCC 2.4), and FileAllInformation, which concatenates most of it.

use super::names::{FileNameInformation, put_name, take_name};
use crate::cursor::{Field, Reader};
use crate::macros::{flag_set, open_enum, record};
use crate::msg::CreateOptions;
use crate::{AccessMask, FileAttributes, FileTime, Utf16Le, WireError};

record! {
    /// FileBasicInformation (MS-FSCC 2.4). In SET_INFO, 0, -1 and -2 are not times: see [`FileTime`]. Attributes of
    /// 0 mean no change.
    pub struct FileBasicInformation [40] {
        /// Creation time.
        pub creation_time: FileTime,
        /// Last access time.
        pub last_access_time: FileTime,
        /// Last write time.
        pub last_write_time: FileTime,
        /// Change time.
        pub change_time: FileTime,
        /// Attributes.
        pub file_attributes: FileAttributes => pad 4,
    }
}

record! {
    /// FileStandardInformation (MS-FSCC 2.4).
    pub struct FileStandardInformation [24] {
        /// Allocated size in bytes.
        pub allocation_size: u64,
        /// Length of the file in bytes.
        pub end_of_file: u64,
        /// Number of hard links.
        pub number_of_links: u32,
        /// Whether it will be deleted.
        pub delete_pending: bool,
        /// Whether it is a directory.
        pub directory: bool => pad 2,
    }
}

record! {
    /// FileInternalInformation (MS-FSCC 2.4).
    pub struct FileInternalInformation [8] {
        /// The file's number on its volume.
        pub index_number: u64,
    }
}

record! {
    /// FileEaInformation (MS-FSCC 2.4).
    pub struct FileEaInformation [4] {
        /// Size of the extended attributes in bytes, encoded as FILE_FULL_EA_INFORMATION.
        pub ea_size: u32,
    }
}

record! {
    /// FileAccessInformation (MS-FSCC 2.4).
    pub struct FileAccessInformation [4] {
        /// The access rights of the open.
        pub access_flags: AccessMask,
    }
}

record! {
    /// FilePositionInformation (MS-FSCC 2.4).
    pub struct FilePositionInformation [8] {
        /// The position; servers store it but do not use it.
        pub current_byte_offset: u64,
    }
}

record! {
    /// FileModeInformation (MS-FSCC 2.4).
    pub struct FileModeInformation [4] {
        /// A subset of the options of CREATE.
        pub mode: CreateOptions,
    }
}

record! {
    /// FileAlignmentInformation (MS-FSCC 2.4).
    pub struct FileAlignmentInformation [4] {
        /// Alignment of buffers in bytes, minus one.
        pub alignment_requirement: u32,
    }
}

open_enum! {
    /// Compression format.
    pub struct CompressionFormat(u16) {
        /// Not compressed.
        NONE = 0,
        /// The default format; only valid for setting.
        DEFAULT = 1,
        /// LZNT1.
        LZNT1 = 2,
    }
}

record! {
    /// FileCompressionInformation (MS-FSCC 2.4).
    pub struct FileCompressionInformation [16] {
        /// Stored size in bytes.
        pub compressed_file_size: u64,
        /// Format.
        pub compression_format: CompressionFormat,
        /// log2 of the unit size in bytes.
        pub compression_unit_shift: u8,
        /// log2 of the chunk size in bytes.
        pub chunk_shift: u8,
        /// log2 of the cluster size in bytes.
        pub cluster_shift: u8 => pad 3,
    }
}

record! {
    /// FileNetworkOpenInformation (MS-FSCC 2.4).
    pub struct FileNetworkOpenInformation [56] {
        /// Creation time.
        pub creation_time: FileTime,
        /// Last access time.
        pub last_access_time: FileTime,
        /// Last write time.
        pub last_write_time: FileTime,
        /// Change time.
        pub change_time: FileTime,
        /// Allocated size in bytes.
        pub allocation_size: u64,
        /// Length of the file in bytes.
        pub end_of_file: u64,
        /// Attributes.
        pub file_attributes: FileAttributes => pad 4,
    }
}

record! {
    /// FileAttributeTagInformation (MS-FSCC 2.4).
    pub struct FileAttributeTagInformation [8] {
        /// Attributes.
        pub file_attributes: FileAttributes,
        /// Tag of the reparse point, if there is one.
        pub reparse_tag: u32,
    }
}

record! {
    /// FileDispositionInformation (MS-FSCC 2.4).
    pub struct FileDispositionInformation [1] {
        /// Whether to delete the file when it is closed.
        pub delete_pending: bool,
    }
}

flag_set! {
    /// Flags of FileDispositionInformationEx.
    pub struct DispositionFlags: u32 {
        /// Delete the file.
        const DELETE = 1;
        /// Remove the name immediately.
        const POSIX_SEMANTICS = 2;
        /// Check for an image section first.
        const FORCE_IMAGE_SECTION_CHECK = 4;
        /// Set or clear delete-on-close.
        const ON_CLOSE = 8;
        /// Delete read-only files too.
        const IGNORE_READONLY_ATTRIBUTE = 0x10;
    }
}

record! {
    /// FileDispositionInformationEx (MS-FSCC 2.4).
    pub struct FileDispositionInformationEx [4] {
        /// Flags.
        pub flags: DispositionFlags,
    }
}

record! {
    /// FileEndOfFileInformation (MS-FSCC 2.4).
    pub struct FileEndOfFileInformation [8] {
        /// Length of the file in bytes.
        pub end_of_file: u64,
    }
}

record! {
    /// FileAllocationInformation (MS-FSCC 2.4).
    pub struct FileAllocationInformation [8] {
        /// Bytes to allocate.
        pub allocation_size: u64,
    }
}

record! {
    /// FileValidDataLengthInformation (MS-FSCC 2.4).
    pub struct FileValidDataLengthInformation [8] {
        /// Length of the valid data in bytes.
        pub valid_data_length: u64,
    }
}

record! {
    /// FileIdInformation (MS-FSCC 2.4).
    pub struct FileIdInformation [24] {
        /// The volume.
        pub volume_serial_number: u64,
        /// The file's number on that volume, 128 bits.
        pub file_id: [u8; 16],
    }
}

record! {
    /// FileStandardLinkInformation (MS-FSCC 2.4).
    pub struct FileStandardLinkInformation [12] {
        /// Number of links that are not being deleted.
        pub number_of_accessible_links: u32,
        /// Number of links.
        pub total_number_of_links: u32,
        /// Whether it will be deleted.
        pub delete_pending: bool,
        /// Whether it is a directory.
        pub directory: bool => pad 2,
    }
}

record! {
    /// FilePipeInformation (MS-FSCC 2.4).
    pub struct FilePipeInformation [8] {
        /// 0 byte stream, 1 messages.
        pub read_mode: u32,
        /// 0 blocking, 1 non-blocking.
        pub completion_mode: u32,
    }
}

record! {
    /// FilePipeLocalInformation (MS-FSCC 2.4).
    pub struct FilePipeLocalInformation [40] {
        /// 0 byte stream, 1 messages.
        pub named_pipe_type: u32,
        /// 0 inbound, 1 outbound, 2 both.
        pub named_pipe_configuration: u32,
        /// Maximum number of instances.
        pub maximum_instances: u32,
        /// Number of instances.
        pub current_instances: u32,
        /// Inbound quota in bytes.
        pub inbound_quota: u32,
        /// Number of bytes available for reading.
        pub read_data_available: u32,
        /// Outbound quota in bytes.
        pub outbound_quota: u32,
        /// Remaining write quota in bytes.
        pub write_quota_available: u32,
        /// 1 disconnected, 2 listening, 3 connected, 4 closing.
        pub named_pipe_state: u32,
        /// 0 client, 1 server.
        pub named_pipe_end: u32,
    }
}

record! {
    /// FilePipeRemoteInformation (MS-FSCC 2.4).
    pub struct FilePipeRemoteInformation [12] {
        /// How long to collect data before sending, in units of 100 ns.
        pub collect_data_time: u64,
        /// Maximum number of bytes to collect.
        pub maximum_collection_count: u32,
    }
}

/// FileAllInformation (MS-FSCC 2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileAllInformation<'a> {
    /// Times and attributes.
    pub basic: FileBasicInformation,
    /// Sizes and links.
    pub standard: FileStandardInformation,
    /// The file's number.
    pub internal: FileInternalInformation,
    /// Size of the extended attributes.
    pub ea: FileEaInformation,
    /// The access rights of the open.
    pub access: FileAccessInformation,
    /// Position.
    pub position: FilePositionInformation,
    /// Mode.
    pub mode: FileModeInformation,
    /// Alignment.
    pub alignment: FileAlignmentInformation,
    /// Name.
    pub name: Utf16Le<'a>,
}

impl<'a> FileAllInformation<'a> {
    /// Length of the fixed part before the name, in bytes.
    pub const FIXED_LEN: usize = 100;

    /// Decodes the structure. A name truncated by a small buffer (STATUS_BUFFER_OVERFLOW) is an error.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes, "FileAllInformation");
        Ok(Self {
            basic: r.get()?,
            standard: r.get()?,
            internal: r.get()?,
            ea: r.get()?,
            access: r.get()?,
            position: r.get()?,
            mode: r.get()?,
            alignment: r.get()?,
            name: take_name(&mut r)?,
        })
    }

    /// Appends the structure to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.basic.put(out);
        self.standard.put(out);
        self.internal.put(out);
        self.ea.put(out);
        self.access.put(out);
        self.position.put(out);
        self.mode.put(out);
        self.alignment.put(out);
        put_name(out, self.name)
    }

    /// Returns the name alone.
    pub const fn name_information(&self) -> FileNameInformation<'a> {
        FileNameInformation { name: self.name }
    }
}
