//! Errors of a backend.

use thiserror::Error;

/// Why a file-system call failed, by cause: the caller's path or arguments, the state of the tree, the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum VfsError {
    /// The last component of the path does not exist.
    #[error("no such file")]
    NotFound,
    /// An earlier component of the path does not exist.
    #[error("a folder in the path does not exist")]
    PathNotFound,
    /// The last component is missing in a folder that is a reparse point: the target of the reparse point may have it.
    #[error("a folder in the path is a reparse point")]
    ReparsePoint,
    /// The name exists already.
    #[error("the name already exists")]
    Exists,
    /// A directory where a file was requested.
    #[error("it is a directory")]
    IsDirectory,
    /// A file where a directory was requested.
    #[error("it is not a directory")]
    NotDirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The operating system denied access.
    #[error("access denied by the file system")]
    AccessDenied,
    /// The caller's check refused to create the file.
    #[error("the creation was refused")]
    Refused,
    /// The path leaves the share (by a symbolic link, say) and is refused.
    #[error("the path leads out of the share")]
    Escapes,
    /// The name no longer refers to the file that was opened.
    #[error("the name now refers to another file")]
    Stale,
    /// A name component is longer than the file system allows.
    #[error("the name is too long")]
    NameTooLong,
    /// The name has characters the backend cannot store.
    #[error("the file system does not allow this name")]
    InvalidName,
    /// An argument is out of range.
    #[error("an argument is out of range")]
    InvalidArgument,
    /// No space left.
    #[error("no space left")]
    NoSpace,
    /// Over quota.
    #[error("the quota is exceeded")]
    Quota,
    /// The file would be larger than the file system allows.
    #[error("the file would be too large")]
    TooLarge,
    /// The tree or the file is read-only.
    #[error("the file or the share is read-only")]
    ReadOnly,
    /// Too many open files.
    #[error("too many open files")]
    TooManyOpen,
    /// Out of memory.
    #[error("out of memory")]
    NoMemory,
    /// The two files are not on one file system.
    #[error("the two files are on different file systems")]
    CrossDevice,
    /// Too many names for one file.
    #[error("too many links")]
    TooManyLinks,
    /// The file or virtual disk is in use elsewhere.
    #[error("the file is in use")]
    Busy,
    /// An attribute or a security descriptor is larger than the file system can store with a file.
    #[error("an attribute is larger than the file system can store")]
    AttributeTooLarge,
    /// The metadata stored with the file cannot be decoded, or has another version.
    #[error("the attributes stored with the file are damaged or from another version")]
    Damaged,
    /// Not supported by this backend.
    #[error("not supported by this backend")]
    Unsupported,
    /// The request was cancelled or its deadline passed.
    #[error("cancelled")]
    Cancelled,
    /// The medium or the system failed: the error number.
    #[error("I/O error {0}")]
    Io(i32),
}
