//! What can go wrong below a share.

use thiserror::Error;

/// Why a file-system call failed, by blame: the caller's name or use, the state of the tree, the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum VfsError {
    /// The last component of the path does not exist.
    #[error("no such file")]
    NotFound,
    /// An earlier component of the path does not exist.
    #[error("no such folder on the way")]
    PathNotFound,
    /// The folder that does not have the last component is a reparse point: what it stands for may have it.
    #[error("a folder on the way is a reparse point")]
    ReparsePoint,
    /// The name exists already.
    #[error("the name exists")]
    Exists,
    /// A directory where a file was wanted.
    #[error("it is a directory")]
    IsDirectory,
    /// A file where a directory was wanted.
    #[error("it is not a directory")]
    NotDirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The system refuses.
    #[error("access denied by the file system")]
    AccessDenied,
    /// The caller's check does not let the file be created.
    #[error("the creation was refused")]
    Refused,
    /// The path leaves the share (by a symbolic link, say) and is refused.
    #[error("the path leads out of the share")]
    Escapes,
    /// The name means another file than the one that was opened.
    #[error("the name means another file by now")]
    Stale,
    /// A name component is longer than the file system takes.
    #[error("the name is too long")]
    NameTooLong,
    /// The name has characters the backend cannot store.
    #[error("the name is not valid here")]
    InvalidName,
    /// An argument is out of range.
    #[error("an argument is out of range")]
    InvalidArgument,
    /// No space left.
    #[error("no space left")]
    NoSpace,
    /// Over quota.
    #[error("over quota")]
    Quota,
    /// The file would be larger than the file system allows.
    #[error("the file would be too large")]
    TooLarge,
    /// The tree or the file is read-only.
    #[error("read-only")]
    ReadOnly,
    /// Too many open files.
    #[error("too many open files")]
    TooManyOpen,
    /// Out of memory.
    #[error("out of memory")]
    NoMemory,
    /// The two files are not on one file system.
    #[error("not on the same file system")]
    CrossDevice,
    /// Too many names for one file.
    #[error("too many links")]
    TooManyLinks,
    /// In use by the system.
    #[error("in use")]
    Busy,
    /// An attribute or a security descriptor is larger than the file system keeps with a file.
    #[error("larger than the file system keeps with a file")]
    AttributeTooLarge,
    /// What is stored with the file to describe it cannot be read, or was not written by this version.
    #[error("what is stored with the file cannot be read")]
    Damaged,
    /// Not offered by this backend.
    #[error("not supported by this backend")]
    Unsupported,
    /// The request was cancelled or its deadline passed.
    #[error("cancelled")]
    Cancelled,
    /// The medium or the system failed: the error number.
    #[error("I/O error {0}")]
    Io(i32),
}
