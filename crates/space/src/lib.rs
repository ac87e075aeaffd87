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

pub mod blocks;
pub mod cache;
mod codec;
pub mod locks;
pub mod log;
pub mod marks;
pub mod port;
#[cfg(test)]
mod rig;
mod sync;
pub mod table;
pub mod view;
