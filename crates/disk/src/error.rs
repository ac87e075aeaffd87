//! Errors of a disk, by blame.

use std::fmt;

use env::Epoch;
use thiserror::Error;

/// The operation on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// See [`crate::Disk::read`].
    Read,
    /// See [`crate::Disk::write`].
    Write,
    /// See [`crate::Disk::flush`].
    Flush,
    /// See [`crate::Disk::discard`].
    Discard,
    /// See [`crate::Disk::fence`].
    Fence,
    /// See [`crate::Disk::check`] and [`crate::Disk::allocated`].
    Check,
}

/// The operation and its range: `length` bytes at `offset`; both 0 for a flush, fence or check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The operation.
    pub op: Op,
    /// Bytes from the beginning of the disk.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// Why a disk call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DiskError {
    /// The caller's: not whole logical blocks.
    #[error("{at}: the range does not consist of whole blocks of {block} bytes")]
    Unaligned {
        /// The call.
        at: Place,
        /// The logical block, in bytes.
        block: u32,
    },
    /// The caller's: beyond the end of the disk.
    #[error("{at}: beyond the end of the disk, which has {size} bytes")]
    OutOfRange {
        /// The call.
        at: Place,
        /// The disk's size, in bytes.
        size: u64,
    },
    /// The caller's: longer than [`crate::IO_MAX`].
    #[error("{at}: longer than the limit of {} bytes", crate::IO_MAX)]
    TooLong {
        /// The call.
        at: Place,
    },
    /// The caller's: the disk was opened or is made for reading only.
    #[error("{at}: the disk is read-only")]
    ReadOnly {
        /// The call.
        at: Place,
    },
    /// The medium's: these bytes cannot be read or written; for a flush, some that were written are lost.
    #[error("{at}: the medium failed")]
    Medium {
        /// The failed range; it may be a part of the request.
        at: Place,
    },
    /// The disk disappeared, or lost its power, or its file was removed or truncated. It may return, with what it had then.
    #[error("{at}: the disk is gone")]
    Gone {
        /// The call.
        at: Place,
    },
    /// The caller's time as owner is over: another epoch has the disk.
    #[error("{at}: the request has epoch {}, but the disk is fenced for epoch {}", had.0, epoch.0)]
    Fenced {
        /// The call.
        at: Place,
        /// The epoch of the call.
        had: Epoch,
        /// The epoch that the disk is fenced for.
        epoch: Epoch,
    },
    /// The storage below the disk is full (a sparse file, a thin device).
    #[error(
        "{at}: no space left; add or free space where the disk is stored (its pool, its file system, or its thin device)"
    )]
    Full {
        /// The call.
        at: Place,
    },
    /// Not completed by its deadline; it continues, and its outcome is unknown.
    #[error("{at}: not completed in time")]
    Timeout {
        /// The call.
        at: Place,
    },
    /// The system refused with another error.
    #[error("{at}: the system refused it with error {errno}")]
    Refused {
        /// The call.
        at: Place,
        /// The system's number.
        errno: i32,
    },
}

impl Place {
    /// A place in the words of a call.
    pub fn new(op: Op, offset: u64, length: u64) -> Place {
        Place { op, offset, length }
    }

    /// A call without a range.
    pub fn whole(op: Op) -> Place {
        Place { op, offset: 0, length: 0 }
    }
}

impl DiskError {
    /// The operation and its range.
    pub fn at(&self) -> Place {
        match *self {
            DiskError::Unaligned { at, .. }
            | DiskError::OutOfRange { at, .. }
            | DiskError::TooLong { at }
            | DiskError::ReadOnly { at }
            | DiskError::Medium { at }
            | DiskError::Gone { at }
            | DiskError::Fenced { at, .. }
            | DiskError::Full { at }
            | DiskError::Timeout { at }
            | DiskError::Refused { at, .. } => at,
        }
    }

    /// Whether the caller is to blame: the disk is as good as before.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            DiskError::Unaligned { .. }
                | DiskError::OutOfRange { .. }
                | DiskError::TooLong { .. }
                | DiskError::ReadOnly { .. }
        )
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::Fence => "fence",
            Op::Check => "check",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            Op::Flush | Op::Fence | Op::Check => write!(f, "{}", self.op),
            op => write!(f, "{op} of {} bytes at {}", self.length, self.offset),
        }
    }
}
