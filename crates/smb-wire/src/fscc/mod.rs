//! Data of file system control codes (MS-FSCC): file, directory and file system information, for requests and
//! responses.
//!
//! Structures of fixed size have `decode(&[u8])` and `encode(&mut Vec<u8>)`; those with a name borrow it. Lists
//! linked by NextEntryOffset have a builder with a byte limit, and an iterator.
//!
//! Sections are cited without their last number, because each edition of MS-FSCC renumbers them: search for the
//! name of the structure.

mod directory;
mod ea;
mod file;
mod filesystem;
mod list;
mod names;
pub mod notify;
mod posix;
mod quota;
mod stream;

pub use directory::{DirectoryEntries, DirectoryEntry, DirectoryList, MacAttributes, directory_fixed_len};
pub use ea::{EaFlags, EaList, FullEa, FullEas, GetEaList, GetEas, MAX_EAS};
pub use file::{
    CompressionFormat, DispositionFlags, FileAccessInformation, FileAlignmentInformation, FileAllInformation,
    FileAllocationInformation, FileAttributeTagInformation, FileBasicInformation, FileCompressionInformation,
    FileDispositionInformation, FileDispositionInformationEx, FileEaInformation, FileEndOfFileInformation,
    FileIdInformation, FileInternalInformation, FileModeInformation, FileNetworkOpenInformation,
    FilePipeInformation, FilePipeLocalInformation, FilePipeRemoteInformation, FilePositionInformation,
    FileStandardInformation, FileStandardLinkInformation, FileValidDataLengthInformation,
};
pub use filesystem::{
    DeviceCharacteristics, DeviceType, FileSystemAttributes, FileSystemControlFlags, FsAttributeInformation,
    FsControlInformation, FsDeviceInformation, FsFullSizeInformation, FsLabelInformation,
    FsObjectIdInformation, FsSectorSizeInformation, FsSizeInformation, FsVolumeInformation, SectorSizeFlags,
};
pub use list::{Fits, ListBuilder};
pub use names::{
    FileLinkInformation, FileNameInformation, FileRenameInformation, FileRenameInformationEx, RenameFlags,
};
pub use posix::{
    FsPosixInformation, PosixCreateRequest, PosixCreateResponse, PosixDirectoryEntries, PosixDirectoryEntry,
    PosixInformation,
};
pub use quota::{GetQuotas, MAX_QUOTAS, QuotaInformation, QuotaList};
pub use stream::{StreamEntries, StreamEntry, StreamList};

use crate::macros::open_enum;

open_enum! {
    /// File information classes (MS-FSCC 2.4).
    pub struct FileInfoClass(u8) {
        /// FileDirectoryInformation: [`DirectoryEntry`].
        DIRECTORY = 1,
        /// FileFullDirectoryInformation: [`DirectoryEntry`].
        FULL_DIRECTORY = 2,
        /// FileBothDirectoryInformation: [`DirectoryEntry`].
        BOTH_DIRECTORY = 3,
        /// [`FileBasicInformation`].
        BASIC = 4,
        /// [`FileStandardInformation`].
        STANDARD = 5,
        /// [`FileInternalInformation`].
        INTERNAL = 6,
        /// [`FileEaInformation`].
        EA = 7,
        /// [`FileAccessInformation`].
        ACCESS = 8,
        /// [`FileNameInformation`].
        NAME = 9,
        /// [`FileRenameInformation`].
        RENAME = 10,
        /// [`FileLinkInformation`].
        LINK = 11,
        /// FileNamesInformation: [`DirectoryEntry`].
        NAMES = 12,
        /// [`FileDispositionInformation`].
        DISPOSITION = 13,
        /// [`FilePositionInformation`].
        POSITION = 14,
        /// [`FullEa`].
        FULL_EA = 15,
        /// [`FileModeInformation`].
        MODE = 16,
        /// [`FileAlignmentInformation`].
        ALIGNMENT = 17,
        /// [`FileAllInformation`].
        ALL = 18,
        /// [`FileAllocationInformation`].
        ALLOCATION = 19,
        /// [`FileEndOfFileInformation`].
        END_OF_FILE = 20,
        /// FileAlternateNameInformation: [`FileNameInformation`].
        ALTERNATE_NAME = 21,
        /// [`StreamEntry`].
        STREAM = 22,
        /// [`FilePipeInformation`].
        PIPE = 23,
        /// [`FilePipeLocalInformation`].
        PIPE_LOCAL = 24,
        /// [`FilePipeRemoteInformation`].
        PIPE_REMOTE = 25,
        /// [`FileCompressionInformation`].
        COMPRESSION = 28,
        /// Object identifier.
        OBJECT_ID = 29,
        /// Quota.
        QUOTA = 32,
        /// Reparse point.
        REPARSE_POINT = 33,
        /// [`FileNetworkOpenInformation`].
        NETWORK_OPEN = 34,
        /// [`FileAttributeTagInformation`].
        ATTRIBUTE_TAG = 35,
        /// FileIdBothDirectoryInformation: [`DirectoryEntry`].
        ID_BOTH_DIRECTORY = 37,
        /// FileIdFullDirectoryInformation: [`DirectoryEntry`].
        ID_FULL_DIRECTORY = 38,
        /// [`FileValidDataLengthInformation`].
        VALID_DATA_LENGTH = 39,
        /// FileShortNameInformation: [`FileNameInformation`].
        SHORT_NAME = 40,
        /// FileNormalizedNameInformation: [`FileNameInformation`].
        NORMALIZED_NAME = 48,
        /// [`FileStandardLinkInformation`].
        STANDARD_LINK = 54,
        /// [`FileIdInformation`].
        ID = 59,
        /// FileIdExtdDirectoryInformation: [`DirectoryEntry`].
        ID_EXTD_DIRECTORY = 60,
        /// FileIdExtdBothDirectoryInformation: [`DirectoryEntry`].
        ID_EXTD_BOTH_DIRECTORY = 63,
        /// [`FileDispositionInformationEx`].
        DISPOSITION_EX = 64,
        /// [`FileRenameInformationEx`].
        RENAME_EX = 65,
        /// [`PosixInformation`], [`PosixDirectoryEntry`] (not MS-FSCC).
        POSIX = 100,
    }
}

open_enum! {
    /// File system information classes (MS-FSCC 2.5).
    pub struct FsInfoClass(u8) {
        /// [`FsVolumeInformation`].
        VOLUME = 1,
        /// [`FsLabelInformation`].
        LABEL = 2,
        /// [`FsSizeInformation`].
        SIZE = 3,
        /// [`FsDeviceInformation`].
        DEVICE = 4,
        /// [`FsAttributeInformation`].
        ATTRIBUTE = 5,
        /// [`FsControlInformation`].
        CONTROL = 6,
        /// [`FsFullSizeInformation`].
        FULL_SIZE = 7,
        /// [`FsObjectIdInformation`].
        OBJECT_ID = 8,
        /// Driver path.
        DRIVER_PATH = 9,
        /// [`FsSectorSizeInformation`].
        SECTOR_SIZE = 11,
        /// [`FsPosixInformation`] (not MS-FSCC).
        POSIX = 100,
    }
}
