//! Errors of a space.

use std::fmt;

use disk::{DiskError, IoRange, Op};
use pool_seam::{DiskNumber, RowNumber, SeamError, SpaceEpoch};
use smallvec::{SmallVec, smallvec};

use crate::log::{LogError, OpenError};

/// Why a call of a space failed, by cause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum SpaceError {
    /// The disk failed, and cannot be removed from service, because it has the only copy of some data.
    #[error("disk {} has the only current copy, and failed: {error}", .disk.0)]
    Disk { disk: DiskNumber, error: DiskError },
    /// No present disk has the newest data.
    #[error("row {}: the newest data is on {disks}, which cannot be read; bring one of them back", .row.0)]
    Unavailable { row: RowNumber, disks: Disks },
    /// No copy is valid.
    #[error("{length} bytes at address {address} have no valid copy")]
    Corrupt { address: u64, length: u64 },
    /// A conversion has moved the data to another row; the call is repeated. Never returned to callers.
    #[error("the data was moved to another row")]
    Moved,
    /// The range is not inside the space, whose size has changed.
    #[error("the range ends at byte {end}, but the virtual disk has only {size} bytes")]
    Beyond { end: u64, size: u64 },
    /// The metadata cannot be read or changed, or has another owner.
    #[error(transparent)]
    Seam(#[from] SeamError),
    /// The log has failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log could not be opened.
    #[error(transparent)]
    LogNotOpened(#[from] OpenError),
}

/// The disks in an error: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disks(SmallVec<[DiskNumber; 4]>);

impl Disks {
    /// At least one disk.
    pub fn new(first: DiskNumber, others: impl IntoIterator<Item = DiskNumber>) -> Disks {
        let mut disks = smallvec![first];
        disks.extend(others);
        Disks(disks)
    }
}

impl fmt::Display for Disks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, disk) in self.0.iter().enumerate() {
            write!(f, "{}disk {}", if at > 0 { ", " } else { "" }, disk.0)?;
        }
        Ok(())
    }
}

/// `EIO`, equal on all systems.
const EIO: i32 = 5;

/// `EINVAL`, equal on all systems.
const EINVAL: i32 = 22;

impl SpaceError {
    /// Converts the error for the coordinator.
    pub(crate) fn as_seam_error(&self, epoch: SpaceEpoch) -> SeamError {
        match self {
            SpaceError::Seam(error) => error.clone(),
            SpaceError::Log(LogError::Deposed(_)) => SeamError::Deposed(epoch),
            error => SeamError::Failed(error.to_string()),
        }
    }

    /// Converts the error to that of a disk, for callers that use the space as a disk.
    pub fn as_disk_error(&self, op: Op, offset: u64, length: u64) -> DiskError {
        let at = IoRange::new(op, offset, length);
        match self {
            SpaceError::Disk { error: DiskError::Full { .. }, .. }
            | SpaceError::Seam(SeamError::NoRoom(_)) => DiskError::Full { at },
            SpaceError::Disk { .. } | SpaceError::Corrupt { .. } => DiskError::Medium { at },
            SpaceError::Unavailable { .. } => DiskError::Gone { at },
            SpaceError::Beyond { .. } => DiskError::Refused { at, errno: EINVAL },
            SpaceError::Seam(_) | SpaceError::Log(_) | SpaceError::LogNotOpened(_) | SpaceError::Moved => {
                DiskError::Refused { at, errno: EIO }
            }
        }
    }
}

#[cfg(test)]
mod tests;
