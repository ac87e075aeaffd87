//! The seam between a pool's coordinator and the owners of its spaces: what one says to the other, and what both know.
//!
//! **What it is.** Values, messages and two traits, so that `pool` and `space` agree on them and neither depends on the
//! other (`docs/0004-spaces.md`, section B): [`Coordinator`] is what an owner calls, [`Owner`] what the coordinator calls.
//! An owner sees its space as a [`SpaceView`]. In one process the messages are calls of a trait object; a bus would encode
//! them like the bodies of the metadata. Also arithmetic that both need: where addresses lie ([`layout`]), where areas lie
//! on a disk ([`Areas`]), which regions a slab has ([`Regions`]), and the map whose clones are cheap ([`Tree`]).
//!
//! **What it is not.** It does no I/O and has no state. What a message does is the receiver's.
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
pub use findings::{Finding, Found};
pub use ids::{
    DiskId, DiskNumber, JobId, Membership, NodeId, OwnerId, PoolId, RowNumber, SpaceEpoch, SpaceId,
    ViewVersion,
};
pub use losses::{LOST_MAX, LossRecord};
pub use media::{MediaClass, media_number, media_of};
pub use owner::{CopyRegions, JobOrder, JobReport, Owner, OwnerStatus, PortStats, Returned, Stays};
pub use records::{Absence, FaultDomains, Provisioning, Resiliency, ScrubRecord, SlabPlace};
pub use regions::Regions;
pub use rows::{Moving, Row, Shape, SlabCopy, Slabs};
pub use tree::{Iter, Tree};
pub use view::{Attachment, AttachmentKind, DiskView, LogState, Ownership, SpaceRecord, SpaceView};

/// The size of a checksum and of an atomic write: after a crash a unit is entirely old or entirely new;
/// bytes.
pub const UNIT: u64 = 4096;

/// Units whose checksums are in one block.
pub const GROUP_UNITS: u64 = 512;

/// Bytes of a space that one checksum block covers.
pub const GROUP: u64 = GROUP_UNITS * UNIT;

/// The most regions of a slab: overwrites in progress and missed writes are marked by region, one bit each.
pub const REGIONS: u32 = 64;
