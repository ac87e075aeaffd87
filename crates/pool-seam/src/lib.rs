//! The interface between a pool's coordinator and the owners of its spaces: their calls and shared data
//! types.
//!
//! **What it is.** Values, messages and two traits, shared by `pool` and `space` so that neither depends on
//! the other (`docs/0004-spaces.md`, section B). An owner calls [`Coordinator`]; the coordinator calls
//! [`Owner`]. An owner sees its space as a [`SpaceView`]. In one process the messages are calls of a trait
//! object; a network transport would encode them like the bodies of the metadata. The crate also has
//! arithmetic that both sides need: address layout ([`layout`]), disk areas ([`Areas`]), regions of a slab
//! ([`Regions`]), and a map with cheap clones ([`Tree`]).
//!
//! **What it is not.** It does no I/O and has no state. The receivers implement the messages.
//!
//! **Errors.** [`SeamError`]: why the coordinator did not carry out a call.

mod areas;
pub mod code;
mod coordinator;
mod findings;
mod ids;
pub mod layout;
mod losses;
mod media;
mod owner;
mod records;
mod regions;
mod rows;
mod tree;
mod view;

pub use areas::{Areas, Extent};
pub use coordinator::{
    Coordinator, DiskReport, Lease, NoPlace, OwnerOp, Progress, Request, SeamError, Suspension, Turn,
};
pub use findings::{DamageKind, Finding};
pub use ids::{
    DiskId, DiskNumber, JobId, Membership, NodeId, OwnerId, PoolId, RowNumber, SpaceEpoch, SpaceId,
    ViewVersion,
};
pub use losses::{LOST_MAX, LossRecord};
pub use media::{MediaClass, media_number, media_of};
pub use owner::{CopyRegions, JobOrder, JobReport, NotMoved, Owner, OwnerStatus, PortStats, RejoinState};
pub use records::{Absence, FaultDomains, Provisioning, Resiliency, ScrubRecord, SlabPlace};
pub use regions::Regions;
pub use rows::{Moving, Row, Shape, SlabCopy, Slabs};
pub use tree::{Iter, Tree};
pub use view::{Attachment, AttachmentKind, DiskView, LogState, Ownership, RowShape, SpaceRecord, SpaceView};

/// The size, in bytes, of a checksummed block and of an atomic write: after a crash a unit is entirely old or
/// entirely new.
pub const UNIT: u64 = 4096;

/// The number of units whose checksums are in one block.
pub const GROUP_UNITS: u64 = 512;

/// Bytes of a space that one checksum block covers.
pub const GROUP: u64 = GROUP_UNITS * UNIT;

/// The maximum number of regions of a slab. Overwrites in progress and stale data are tracked by region, one
/// bit each.
pub const REGIONS: u32 = 64;
