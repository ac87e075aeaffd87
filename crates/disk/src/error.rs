//! Errors of a disk, classified by cause.

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
pub struct IoRange {
    /// The operation.
    pub op: Op,
    /// Bytes from the beginning of the disk.
    pub offset: u64,
    /// In bytes.
    pub length: u64,
}

/// Why a disk call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DiskError {
    /// Caller's error: the range is not whole logical blocks.
    #[error("{at}: the range does not consist of whole blocks of {block} bytes")]
    Unaligned {
        /// The call.
        at: IoRange,
        /// The logical block, in bytes.
        block: u32,
    },
    /// Caller's error: the range ends beyond the disk.
    #[error("{at}: beyond the end of the disk, which has {size} bytes")]
    OutOfRange {
        /// The call.
        at: IoRange,
        /// The disk's size, in bytes.
        size: u64,
    },
    /// Caller's error: the I/O is longer than [`crate::IO_MAX`].
    #[error("{at}: longer than the limit of {} bytes", crate::IO_MAX)]
    TooLong {
        /// The call.
        at: IoRange,
    },
    /// Caller's error: the disk is read-only or was opened read-only.
    #[error("{at}: the disk is read-only")]
    ReadOnly {
        /// The call.
        at: IoRange,
    },
    /// Medium error: these bytes cannot be read or written; after a failed flush, some written bytes are
    /// lost.
    #[error("{at}: the medium failed")]
    Medium {
        /// The failed range; it may be a part of the request.
        at: IoRange,
    },
    /// The disk disappeared or lost power, or its file was removed or truncated. It may return with its
    /// content of that time.
    #[error("{at}: the disk is gone")]
    Gone {
        /// The call.
        at: IoRange,
    },
    /// The caller is no longer the owner: the disk is fenced for a higher epoch.
    #[error("{at}: the request has epoch {}, but the disk is fenced for epoch {}", call_epoch.0, epoch.0)]
    Fenced {
        /// The call.
        at: IoRange,
        /// The epoch of the call.
        call_epoch: Epoch,
        /// The epoch that the disk is fenced for.
        epoch: Epoch,
    },
    /// The storage below the disk is full (sparse file, thin device).
    #[error(
        "{at}: no space left; add or free space where the disk is stored (its pool, its file system, or its thin device)"
    )]
    Full {
        /// The call.
        at: IoRange,
    },
    /// Not completed by its deadline. The I/O continues, and its outcome is unknown.
    #[error("{at}: not completed in time")]
    Timeout {
        /// The call.
        at: IoRange,
    },
    /// The system refused with another error.
    #[error("{at}: the system refused it with error {errno}")]
    Refused {
        /// The call.
        at: IoRange,
        /// The system's errno.
        errno: i32,
    },
}

impl IoRange {
    /// The range of a call.
    pub fn new(op: Op, offset: u64, length: u64) -> IoRange {
        IoRange { op, offset, length }
    }

    /// The range of a call without one.
    pub fn whole(op: Op) -> IoRange {
        IoRange { op, offset: 0, length: 0 }
    }
}

impl DiskError {
    /// The operation and its range.
    pub fn at(&self) -> IoRange {
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

    /// Whether the error is the caller's; the disk is unaffected.
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

impl fmt::Display for IoRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            Op::Flush | Op::Fence | Op::Check => write!(f, "{}", self.op),
            op => write!(f, "{op} of {} bytes at {}", self.length, self.offset),
        }
    }
}
