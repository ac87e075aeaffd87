//! Identifiers. Those of pools and disks are random and globally unique; the short ones are unique within
//! their pool.

use std::fmt;

/// Identifies a pool permanently, independent of its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub [u8; 16]);

/// Identifies a disk of a pool permanently. It is written in the label and is not the device's serial number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub [u8; 16]);

/// A disk's number in its pool; not reused after the disk is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskNumber(pub u16);

/// A space's number in its pool; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub u32);

/// The number of a row in its space: the row with index `i` holds the addresses from `i * row_bytes` on. The highest
/// bits are the half. Rows of one half have the same columns and interleave; a space that is converted to others
/// has rows in both halves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowNumber(pub u32);

impl RowNumber {
    /// The row that holds the log of a space: one slab for each replica.
    pub const LOG: RowNumber = RowNumber(u32::MAX);
    /// The number of rows that a half can have.
    pub const IN_HALF: u32 = 1 << 30;

    /// The row with this index in this half (0 or 1).
    pub fn new(half: u8, index: u32) -> RowNumber {
        debug_assert!(half < 2 && index < RowNumber::IN_HALF);
        RowNumber(u32::from(half) * RowNumber::IN_HALF + index)
    }

    /// The half: 0 or 1; 3 for the log.
    pub fn half(self) -> u8 {
        (self.0 / RowNumber::IN_HALF) as u8
    }

    /// The index in the half.
    pub fn index(self) -> u32 {
        self.0 % RowNumber::IN_HALF
    }

    /// The rows of this half from this one on.
    pub fn rest_of_half(self) -> std::ops::Range<RowNumber> {
        self..RowNumber((u32::from(self.half()) + 1) * RowNumber::IN_HALF)
    }
}

/// A machine of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// The epoch of a space's owner: the pool's epoch times 2^20, plus the number of handovers in that epoch. So
/// it increases with every owner, and opening the pool starts a new one without writing a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceEpoch(pub u64);

impl SpaceEpoch {
    const HANDOVER_BITS: u32 = 20;

    /// The epoch of the first owner after the pool was opened with epoch `pool_epoch`, which is below 2^42.
    pub fn first(pool_epoch: u64) -> SpaceEpoch {
        SpaceEpoch(pool_epoch << Self::HANDOVER_BITS)
    }

    /// The epoch of the pool in which this one was assigned.
    pub fn pool_epoch(self) -> u64 {
        self.0 >> Self::HANDOVER_BITS
    }

    /// The epoch of the next owner. Returns `None` after 2^20 - 1 handovers: the pool must be reopened first.
    pub fn next(self) -> Option<SpaceEpoch> {
        Some(SpaceEpoch(self.0 + 1)).filter(|next| next.pool_epoch() == self.pool_epoch())
    }
}

/// An owner of a space, as named in each of its calls to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId {
    /// The space.
    pub space: SpaceId,
    /// The machine that it runs on.
    pub node: NodeId,
    /// Its epoch.
    pub epoch: SpaceEpoch,
}

/// The version of a view. A new coordinator has a higher pool epoch, so all of its versions are higher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewVersion {
    /// The epoch that the pool was opened with.
    pub pool_epoch: u64,
    /// The number of changes since then.
    pub number: u64,
}

/// Counts how often a disk has joined the service. Results from an earlier membership are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership(pub u64);

/// Identifies a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8; 16]) -> fmt::Result {
    for (i, b) in bytes.iter().enumerate() {
        let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
        write!(f, "{dash}{b:02x}")?;
    }
    Ok(())
}

macro_rules! uuid_like {
    ($($t:ty),*) => {$(
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(f, &self.0)
            }
        }
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(f, &self.0)
            }
        }
    )*};
}
uuid_like!(PoolId, DiskId);

#[cfg(test)]
mod tests;
