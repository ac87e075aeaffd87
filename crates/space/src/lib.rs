//! The data path of a space (virtual disk): its owner alone reads and writes the space's slabs and log.
//!
//! **What it is.** So far its parts. The space's [`log`]: the bytes of headers, records and entries, the arithmetic
//! of the ring, and the replay of a log from its replicas. The other blocks of a space: the [`marks`], which say
//! what is durable on a disk, and the checksum [`blocks`] of its slabs. What is known of the units of a group is a
//! [`table`]; tables are in a [`cache`]. An I/O finds its group in the owner's [`view`], takes [`locks`] of its
//! units, and goes through a [`port`] to each disk. `docs/0004-spaces.md` states the rules, and
//! `docs/0004-format.md` has the byte maps.
//!
//! **What it is not.** It decides nothing about the pool: places, members and owners come from the pool's
//! coordinator in values of [`pool_seam`].
//!
//! **I/O.** Only the running log ([`log::SpaceLog`]), [`port`], and the loads that a caller gives to [`cache`]. All
//! else is pure, over bytes and values.
//!
//! **Errors.** Bytes from a disk never panic, and never allocate more than a small multiple of their length:
//! invalid ones are refused with a typed reason. Values from this process that break a documented limit are
//! a bug and panic.

mod active;
pub mod blocks;
pub mod cache;
mod checkpoint;
mod codec;
mod error;
mod flight;
mod flush;
mod heal;
mod load;
pub mod locks;
pub mod log;
pub mod marks;
mod open;
mod overlay;
mod owner;
pub mod port;
mod read;
#[cfg(test)]
mod rig;
mod source;
mod sync;
pub mod table;
#[cfg(test)]
mod tests;
pub mod view;
mod waiting;
mod write;

pub use error::{Disks, SpaceError};
pub use owner::{OpenDisk, Settings, Space};
pub use read::SpaceRead;
