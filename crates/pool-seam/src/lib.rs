//! Identifiers and units that a pool's coordinator and the owners of its spaces share.
//!
//! **What it is.** Values only, so that `pool` and `space` agree on them and neither depends on the other
//! (`docs/0004-spaces.md`, section B). `pool` re-exports all of it.
//!
//! **What it is not.** It does no I/O, has no state and returns no errors.

mod ids;

pub use ids::{DiskId, DiskNumber, PoolId, RowNumber, SpaceId};

/// The size of a checksum and of an atomic write: after a crash a unit is entirely old or entirely new;
/// bytes.
pub const UNIT: u64 = 4096;

/// Units whose checksums are in one block.
pub const GROUP_UNITS: u64 = 512;

/// Bytes of a space that one checksum block covers.
pub const GROUP: u64 = GROUP_UNITS * UNIT;

/// Regions in a slab: activity and missed writes are marked by region, one bit each.
pub const REGIONS: u32 = 64;
