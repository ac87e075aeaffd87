//! Storage pools and virtual disks.
//!
//! **What it is.** A pool joins disks of any number and size; a space (virtual disk) is made of slabs of
//! them, in copies, columns and later parity, on different fault domains. `docs/0001-pool.md` states how
//! nothing is lost; `docs/on-disk-format.md` the bytes.
//!
//! **What it is not.** It has no files (these belong to `volume`) and no devices (these belong to `disk`). It
//! has one writer: an [`authority`] decides which process may open a pool, not consensus.
//!
//! **Layout.** `state`, `voters`, `placement` and `layout` are pure functions over values; `format` and
//! `blocks` turn values into bytes and back; everything that does I/O does it through `disk::Disk` and takes
//! time and chance from [`env::Env`].
//!
//! **Errors.** One enum for each stage of use, by blame. Bytes from a disk never panic: [`State::apply`]
//! validates them before they count.

pub mod activity;
pub mod authority;
pub mod blocks;
pub mod book;
mod cache;
pub mod coordinator;
mod disks;
pub mod events;
pub mod format;
mod groups;
pub mod health;
pub mod jobs;
pub mod journal;
mod losses;
mod metadata;
pub use pool_seam::code as parity;
mod path;
pub mod placement;
mod pool;
mod pulse;
#[cfg(test)]
mod simulation;
mod space;
mod state;
mod supervision;
pub mod voters;

pub use metadata::{CommitError, Member, Members, Suspension};
pub use path::{DataPath, PathOptions, WRITES_MAX};
pub(crate) use placement::NoPlace;
pub use pool::{
    AdminError, CreateError, CreateOptions, FoundLabel, NewDisk, OpenError, OpenOptions, Opened, Pool,
    READ_ONLY_MEMORY, Unsuitable, scan,
};
pub use pool_seam::layout;
pub use pool_seam::{
    DiskId, DiskNumber, GROUP, GROUP_UNITS, Membership, PoolId, REGIONS, RowNumber, SpaceEpoch, SpaceId, UNIT,
};
pub use space::{ParityCounts, Space, SpaceError};
pub use state::{
    Absence, Answers, DiskRecord, FaultDomains, InvalidOp, LOST_MAX, LossRecord, MediaClass, Moving, Op,
    Policy, Presence, Provisioning, Resiliency, Row, ScrubRecord, Shared, SlabCopy, SlabPlace, Slabs,
    SpaceOp, SpaceRecord, State, Tree, Usage,
};
pub use supervision::HANGS;
pub use supervision::standing::Slowness;
