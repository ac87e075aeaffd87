//! The log of a space: `docs/on-disk-format.md`, "The space log"; `docs/0004-spaces.md`, section D.
//!
//! A [`header`] says where a log's records begin and which owner wrote which part of it (a segment). A [`record`] has a
//! head, a body of [`entry`] values, and payload units. The [`ring`] maps positions to blocks, and [`replay`] reads
//! them back from all replicas after a crash. All positions and lengths are in blocks of [`BLOCK`] bytes.
//!
//! These are pure, and so are [`commit`], which decides when a record begins and when it is confirmed, and
//! [`snapshot`], which has the state that a log keeps across checkpoints. [`SpaceLog`] is the running log: one task
//! takes waiting entries from the space ([`EntrySource`]), and writes them to all replicas. A caller may stop waiting
//! at any time.

mod capacity;
pub mod commit;
pub mod entry;
pub mod header;
pub mod record;
pub mod replay;
pub mod ring;
mod running;
pub mod snapshot;
#[cfg(test)]
mod tests;

use arena::{IoBuf, Pages};

pub use running::{
    Coordination, Deposed, EntrySource, FailureDecision, LogError, LogSettings, OpenError, Opened, Progress,
    Replica, Required, SpaceLog, Taken, Wait,
};

/// Bytes of a block: the unit of positions in the ring, and of the atomic writes of a disk.
pub const BLOCK: usize = pool_seam::UNIT as usize;

/// A unit of scattered bytes in one buffer; copied only if it spans several buffers.
pub(crate) fn unit_of(bytes: &[IoBuf], unit: usize) -> IoBuf {
    let mut parts = arena::sg_slice(bytes, unit * BLOCK, BLOCK);
    match parts.len() {
        1 => parts.remove(0),
        _ => IoBuf::from(Pages::copied(parts.iter().map(|part| &**part))),
    }
}

/// Positions and sequences from disks are below this, so that arithmetic with them does not overflow.
pub const COUNTER_MAX: u64 = 1 << 62;
