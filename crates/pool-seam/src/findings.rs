//! Damage that an owner or the coordinator has found.

use crate::{DiskNumber, SpaceId};

/// Kinds of damage to a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamageKind {
    /// One copy had wrong content and was repaired from another copy.
    Healed,
    /// One copy could not be read and was repaired from another copy.
    Unreadable,
    /// A checksum block was damaged, belonged to another slab, or was older than those of the other copies.
    BadTable,
    /// A label, a claim, a checkpoint or the journal of the metadata had wrong content and was repaired.
    Metadata,
    /// No copy has the content that was written.
    Lost,
    /// After a crash no copy matched any checksum, so the lowest copy was taken. Two writes were in flight.
    Unsettled,
}

/// One finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of damage.
    pub kind: DamageKind,
    /// The disk of the copy; of the lowest copy if all are affected.
    pub disk: DiskNumber,
    /// The space.
    pub space: SpaceId,
    /// The unit's first byte in the space.
    pub address: u64,
}
