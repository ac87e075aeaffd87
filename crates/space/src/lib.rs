//! The data path of a space (virtual disk): its owner alone reads and writes the space's slabs and log.
//!
//! **What it is.** [`Space`], the owner of a space: reads, writes and discards of whole units, flushes, writes with
//! forced unit access (FUA), checkpoints, jobs, and recovery after a crash. Its parts: the space's [`log`], which has
//! the changes since the checksum [`blocks`] were written; the [`table`] of a group's units, in a [`cache`]; the
//! owner's [`view`] of the metadata, [`locks`] of units, and a [`port`] to each disk. `docs/0004-spaces.md` states the
//! rules, and `docs/on-disk-format.md` has the byte maps.
//!
//! `ARCHITECTURE.md` has the path of a write, a flush and a read in function names.
//!
//! **What it is not.** It decides nothing about the pool: places, members and owners come from the pool's
//! coordinator in values of [`pool_seam`].
//!
//! **I/O.** [`Space`], the running log ([`log::SpaceLog`]) and [`port`]. All else is pure, over bytes and values.
//!
//! **Errors.** Bytes from a disk never panic, and never allocate more than a small multiple of their length:
//! invalid ones are refused. Values from this process that break a documented limit are
//! a bug and panic.

mod active;
mod allocate;
pub mod blocks;
pub mod cache;
mod checkpoint;
mod codec;
mod coded;
mod discard;
mod disk_marks;
mod emptying;
mod error;
mod findings;
mod flight;
mod flush;
mod heal;
mod hedge;
mod jobs;
mod load;
pub mod locks;
pub mod log;
pub mod marks;
mod open;
mod overlay;
mod owner;
pub mod port;
mod read;
mod replicas;
mod requests;
mod retries;
#[cfg(test)]
mod rig;
mod size;
mod source;
mod sync;
pub mod table;
#[cfg(test)]
mod tests;
pub mod view;
mod waiting_groups;
mod window;
mod write;

pub use error::{Disks, SpaceError};
pub use owner::{OpenDisk, Settings, Space};
pub use read::SpaceRead;
pub use retries::Retries;
pub use size::Allocated;
