//! Storage pools and virtual disks.
//!
//! **What it is.** The coordinator of a pool: its disks, which of them have the metadata, which process may open it,
//! the location of each row of its spaces (virtual disks), the stale regions of their copies, and the jobs.
//! `docs/0001-pool.md` states how data loss is avoided; `docs/on-disk-format.md` has the bytes.
//!
//! **What it is not.** It does not read or write data of spaces: their owners (`space`) do, through the interface
//! `pool-seam`. It has no files and no devices (these belong to `disk`). It has one writer: an [`authority`] decides
//! which process may open a pool, without consensus.
//!
//! **Layout.** `state`, `voters`, `placement` and `layout` are pure functions over values; `format` encodes and decodes
//! values; all I/O goes through `disk::Disk`, and time and randomness come from [`env::Env`].
//!
//! **Errors.** One enum for each stage of use, by cause. Bytes from a disk never panic: [`State::apply`] validates
//! operations before it changes the state.

pub mod authority;
pub mod coordinator;
mod deadlines;
mod domains;
pub mod events;
pub mod format;
pub mod health;
pub mod jobs;
mod metadata;
pub use pool_seam::code as parity;
pub mod placement;
mod pool;
mod state;
mod supervision;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod voters;

pub use deadlines::Deadlines;
pub use metadata::{CommitError, Member, Members, Suspension};
pub(crate) use placement::NoPlace;
pub use pool::{
    AdminError, CreateError, CreateOptions, FoundLabel, NewDisk, OpenError, OpenOptions, Opened, Pool,
    READ_ONLY_MEMORY, Unsuitable, scan,
};
pub use pool_seam::layout;
pub use pool_seam::{
    DiskId, DiskNumber, GROUP, GROUP_UNITS, Membership, PoolId, REGIONS, RowNumber, RowShape, SpaceEpoch,
    SpaceId, UNIT,
};
pub use state::{
    Absence, DiskRecord, FaultDomains, InvalidOp, LOST_MAX, LossRecord, MediaClass, Moving, NewSlab, Op,
    OwnerAnswers, Policy, Presence, Provisioning, Resiliency, Row, ScrubRecord, Shape, SlabCopy, SlabPlace,
    Slabs, SpaceOp, SpaceRecord, State, Tree, Usage,
};
pub use supervision::HANG_TIMEOUT;
pub use supervision::outliers::Slowness;
