//! Damage that an owner or the coordinator has found.

use crate::{DiskNumber, SpaceId};

/// The kind of damage of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// One copy was not what was written; another was, and has replaced it.
    Healed,
    /// A copy could not be read; another could, and has replaced it.
    Unreadable,
    /// A checksum block was damaged, another's, or older than those of the other copies.
    BadTable,
    /// A label, a claim, a checkpoint or the journal of the metadata was not what was written, and is again.
    Metadata,
    /// No copy was what was written.
    Lost,
    /// After a crash: no copy was what any table says, so the lowest one counts. Two writes were in flight.
    Unsettled,
}

/// One finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The finding.
    pub found: Found,
    /// The disk of the copy; of the lowest one when it is all of them.
    pub disk: DiskNumber,
    /// The space.
    pub space: SpaceId,
    /// The unit's first byte in the space.
    pub address: u64,
}
