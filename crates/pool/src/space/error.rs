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
    #[error("row {} of space {}: {}", .row.0, .space.0, away(.disks))]
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

fn away(disks: &[DiskNumber]) -> String {
    let list = disks.iter().map(|d| d.0.to_string()).collect::<Vec<_>>().join(", ");
    match disks {
        [] => "too few of its disks can be used now; see causeway health".to_owned(),
        [_] => format!("the newest data is on disk {list}, which is absent; bring it back"),
        _ => format!("the newest data is on disks {list}, which are absent; bring one of them back"),
    }
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

    #[test]
    fn errors_name_the_absent_disks_and_none_from_an_empty_list() {
        let message = |disks: &[u16]| {
            let disks = disks.iter().map(|d| DiskNumber(*d)).collect();
            SpaceError::Unavailable { space: SpaceId(1), row: RowNumber(2), disks }.to_string()
        };
        let begins = "row 2 of space 1: ";
        assert_eq!(
            message(&[]),
            format!("{begins}too few of its disks can be used now; see causeway health")
        );
        assert_eq!(
            message(&[3]),
            format!("{begins}the newest data is on disk 3, which is absent; bring it back")
        );
        let both = "the newest data is on disks 3, 4, which are absent; bring one of them back";
        assert_eq!(message(&[3, 4]), format!("{begins}{both}"));
        assert_eq!(crate::jobs::Why::Away(Vec::new()).to_string(), "too few disks can be used now");
        let too_few = crate::OpenError::TooFewVoters {
            seen: 1,
            voters: 2,
            needed: 2,
            missing: Vec::new(),
            stale: Vec::new(),
        };
        assert!(too_few.to_string().contains("bring back the others, or"), "{too_few}");
        let diverged = crate::OpenError::Diverged(vec![DiskNumber(7)]).to_string();
        assert!(diverged.starts_with("disk 7 was used without"), "{diverged}");
        assert!(diverged.contains("open the pool without it, or"), "{diverged}");
    }
}
