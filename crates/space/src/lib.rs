//! The data path of a space (virtual disk): its owner alone reads and writes the space's slabs and log.
//!
//! **What it is.** So far the space's [`log`]: the bytes of headers, records and entries, the arithmetic of the
//! ring, and the replay of a log from its replicas. Also the other blocks of a space: the [`marks`], which say
//! what is durable on a disk, and the checksum [`blocks`] of its slabs. `docs/0004-spaces.md` states the rules,
//! and `docs/0004-format.md` has the byte maps.
//!
//! **What it is not.** It decides nothing about the pool: places, members and owners come from the pool's
//! coordinator in values of [`pool_seam`].
//!
//! **I/O.** None. Every function is pure, over bytes and values; a caller reads and writes the disks.
//!
//! **Errors.** Bytes from a disk never panic, and never allocate more than a small multiple of their length:
//! invalid ones are refused with a typed reason. Values from this process that break a documented limit are
//! a bug and panic.

pub mod blocks;
mod codec;
pub mod log;
pub mod marks;
pub mod table;
