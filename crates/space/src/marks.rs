//! Marks: what a disk has durably of a space. `docs/on-disk-format.md`, "Mark slot"; `docs/0004-spaces.md`, rule 9.
//!
//! A slot of a disk belongs to one space, and the space's owner alone writes it. It has two places of one block,
//! written in turn: the lowest bit of the count is the place. So a write that is cut leaves the mark before it.
//!
//! The block:
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | `CWYMARK1` |
//! | 8 | 4 | CRC32C of the block with these four bytes as zeros |
//! | 12 | 4, 16, 2 | space; pool; disk |
//! | 40 | 8, 8 | epoch, count |
//! | 56 | 8 | mark |
//!
//! All other bytes are zeros: each mark has one encoding.

use pool_seam::{DiskNumber, PoolId, SpaceId};

use crate::codec::{Malformed, Reader, crc_of, is_zeros, seal};
use crate::log::BLOCK;

/// The most slots of a disk.
pub const SLOTS_MAX: u16 = 4096;

const MAGIC: &[u8; 8] = b"CWYMARK1";
const EPOCH_AT: usize = 40;

/// The disk and the space that a mark belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct MarkId {
    pub pool: PoolId,
    pub disk: DiskNumber,
    pub space: SpaceId,
}

/// What a disk has durably of a space. All numbers are below [`COUNTER_MAX`](crate::log::COUNTER_MAX).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The space's epoch of the owner that wrote it.
    pub epoch: u64,
    /// One more with each write of the slot; its lowest bit is the place, see [`place`].
    pub count: u64,
    /// The sequence of a record. Everything before it that concerns the disk is durable on the disk.
    pub mark: u64,
}

/// Why a block is not the mark that is looked for. Each of them counts as no mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Only zeros: nothing was written since the disk was added.
    #[error("no mark was written there")]
    Empty,
    /// Cut or damaged, or not a mark.
    #[error("the block of the mark is damaged")]
    Damaged,
    /// The mark of another pool: the disk was in that one before, or disks are mixed up.
    #[error("the mark is that of pool {0}")]
    OtherPool(PoolId),
    /// The mark of another disk of the pool: a copied disk, or a misdirected write.
    #[error("the mark is that of disk {}", .0.0)]
    OtherDisk(DiskNumber),
    /// The mark of another space: the former user of the slot, or a misdirected write.
    #[error("the mark is that of space {}", .0.0)]
    OtherSpace(SpaceId),
    /// A mark whose count belongs into the other place: a misdirected write.
    #[error("the mark with count {0} is in the wrong one of its two places")]
    OtherPlace(u64),
    /// The checksum matches, but no owner of this version writes these bytes.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl Mark {
    /// The block of a mark. It belongs at [`position`] of its slot and count.
    ///
    /// # Panics
    /// If a number is not below [`COUNTER_MAX`](crate::log::COUNTER_MAX).
    pub fn encode(&self, id: &MarkId) -> Vec<u8> {
        let fields = [self.epoch, self.count, self.mark];
        assert!(fields.iter().all(|field| *field < crate::log::COUNTER_MAX), "an unsound mark: {self:?}");
        let mut b = Vec::with_capacity(BLOCK);
        b.extend(MAGIC);
        b.extend([0; 4]);
        b.extend(id.space.0.to_le_bytes());
        b.extend(id.pool.0);
        b.extend(id.disk.0.to_le_bytes());
        b.resize(EPOCH_AT, 0);
        fields.iter().for_each(|field| b.extend(field.to_le_bytes()));
        b.resize(BLOCK, 0);
        seal(&mut b);
        b
    }

    /// The mark in one place, 0 or 1, of a slot.
    pub fn decode(block: &[u8], id: &MarkId, in_place: usize) -> Result<Mark, Refused> {
        if block.len() != BLOCK {
            return Err(Refused::Damaged);
        }
        if is_zeros(block) {
            return Err(Refused::Empty);
        }
        let mut r = Reader(block);
        if r.array()? != *MAGIC || r.u32()? != crc_of(block) {
            return Err(Refused::Damaged);
        }
        let (space, pool, disk) = (SpaceId(r.u32()?), PoolId(r.array()?), DiskNumber(r.u16()?));
        if pool != id.pool {
            return Err(Refused::OtherPool(pool));
        }
        if disk != id.disk {
            return Err(Refused::OtherDisk(disk));
        }
        if space != id.space {
            return Err(Refused::OtherSpace(space));
        }
        r.zeros(6)?;
        let [epoch, count, mark] = [r.counter()?, r.counter()?, r.counter()?];
        if place(count) != in_place {
            return Err(Refused::OtherPlace(count));
        }
        if is_zeros(r.0) { Ok(Mark { epoch, count, mark }) } else { Err(Malformed.into()) }
    }

    /// The mark that counts of those in a slot's two places: the one with the higher (epoch, count). `None` if
    /// neither place has a valid one: the disk is behind.
    pub fn newest(places: [Option<Mark>; 2]) -> Option<Mark> {
        places.into_iter().flatten().max_by_key(Mark::age)
    }

    /// Which of two marks of a slot is newer: by epoch, then by count.
    pub fn age(&self) -> (u64, u64) {
        (self.epoch, self.count)
    }
}

/// The place, 0 or 1, of the mark with this count.
pub fn place(count: u64) -> usize {
    (count & 1) as usize
}

/// The byte of the disk at which one place, 0 or 1, of a slot begins. `marks` is the byte at which the disk's
/// area of marks begins; whether the area has the slot is the caller's to know.
///
/// # Panics
/// If the slot is not below [`SLOTS_MAX`], or there is no such place.
pub fn position(marks: u64, slot: u16, place: usize) -> u64 {
    assert!(slot < SLOTS_MAX && place < 2, "no place {place} of slot {slot}");
    marks + (2 * u64::from(slot) + place as u64) * BLOCK as u64
}

#[cfg(test)]
mod tests;
