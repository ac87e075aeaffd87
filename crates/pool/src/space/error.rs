//! Why a space could not do what it was asked to, by blame.

use disk::{DiskError, Op, Place};
use smallvec::SmallVec;

use crate::placement::NoPlace;
use crate::{CommitError, Suspension};
use crate::{DiskNumber, RowNumber, SpaceId};

/// Why a space could not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// The disk's, and no other has the newest data: it stays in the pool.
    #[error("disk {} has the only current copy, and failed: {error}", .disk.0)]
    Disk {
        /// Which.
        disk: DiskNumber,
        /// How.
        error: DiskError,
    },
    /// No present disk has the newest data.
    #[error(
        "row {} of space {}: the newest data is on {}, which are absent; bring one of them back",
        .row.0, .space.0, names(.disks)
    )]
    Unavailable {
        /// The space.
        space: SpaceId,
        /// The row.
        row: RowNumber,
        /// The disks that have it.
        disks: SmallVec<[DiskNumber; 4]>,
    },
    /// The medium's: no copy is valid.
    #[error("space {} at {address}: no copy of these {length} bytes is valid", .space.0)]
    Corrupt {
        /// The space.
        space: SpaceId,
        /// The first byte.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// A disk with the only copy of a row's newest data was absent, with unflushed writes.
    #[error(
        "disk {} was absent and has the only copy of row {} of space {}: unflushed writes there may be lost",
        .disk.0, .row.0, .space.0
    )]
    Returned {
        /// The space.
        space: SpaceId,
        /// The row.
        row: RowNumber,
        /// Which.
        disk: DiskNumber,
    },
    /// There is no room for another row.
    #[error("space {}: no room for another row: {why}", .space.0)]
    NoRoom {
        /// The space.
        space: SpaceId,
        /// The missing disks or room.
        why: NoPlace,
    },
    /// The space has been deleted.
    #[error("space {} was deleted", .0.0)]
    Deleted(SpaceId),
    /// The metadata cannot be changed.
    #[error(transparent)]
    Metadata(#[from] CommitError),
}

impl From<Suspension> for SpaceError {
    fn from(why: Suspension) -> SpaceError {
        SpaceError::Metadata(why.into())
    }
}

fn names(disks: &[DiskNumber]) -> String {
    disks.iter().map(|d| format!("disk {}", d.0)).collect::<Vec<_>>().join(", ")
}

impl SpaceError {
    /// The same as an error of a disk, for users of the space as a disk.
    pub fn as_disk_error(&self, op: Op, offset: u64, length: u64) -> DiskError {
        let at = Place::new(op, offset, length);
        match self {
            SpaceError::Disk { error: DiskError::Full { .. }, .. } => DiskError::Full { at },
            SpaceError::Disk { .. } | SpaceError::Corrupt { .. } | SpaceError::Returned { .. } => {
                DiskError::Medium { at }
            }
            SpaceError::Unavailable { .. } | SpaceError::Deleted(_) => DiskError::Gone { at },
            SpaceError::NoRoom { .. } => DiskError::Full { at },
            SpaceError::Metadata(_) => DiskError::Refused { at, errno: EIO },
        }
    }
}

/// `EIO` of every system there is.
const EIO: i32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// The two errors differ for a writer: a full disk accepts the same write again when there is room.
    #[test]
    fn no_room_under_a_disk_is_no_medium_error() {
        let (below, above) = (Place::new(Op::Write, 4096, 512), Place::new(Op::Write, 0, 4096));
        let told = |error| SpaceError::Disk { disk: DiskNumber(1), error }.as_disk_error(Op::Write, 0, 4096);
        assert_eq!(told(DiskError::Full { at: below }), DiskError::Full { at: above });
        assert_eq!(told(DiskError::Medium { at: below }), DiskError::Medium { at: above });
    }
}
