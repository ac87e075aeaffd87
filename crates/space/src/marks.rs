//! Marks: the sequence up to which a disk durably has a space's data. `docs/on-disk-format.md`, "Mark slot";
//! `docs/0004-spaces.md`, rule 9.
//!
//! A slot of a disk belongs to one space, and the space's owner alone writes it. It has two places of one block,
//! written in turn: the lowest bit of the count is the place. So an interrupted write leaves the previous mark intact.
//! All bytes outside the byte map are zeros: each mark has one encoding.

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

/// A mark of a disk for a space. All numbers are below [`COUNTER_MAX`](crate::log::COUNTER_MAX).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The epoch of the owner that wrote it.
    pub epoch: u64,
    /// Incremented with each write of the slot; its lowest bit is the place, see [`place`].
    pub count: u64,
    /// The sequence of a record. All earlier data of the disk is durable there.
    pub mark: u64,
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

    /// Decodes the mark in one place, 0 or 1, of a slot. Refuses one of another disk, space, pool or place.
    pub fn decode(block: &[u8], id: &MarkId, in_place: usize) -> Result<Mark, Malformed> {
        let mut r = Reader(block);
        if block.len() != BLOCK || r.array()? != *MAGIC || r.u32()? != crc_of(block) {
            return Err(Malformed);
        }
        let (space, pool, disk) = (SpaceId(r.u32()?), PoolId(r.array()?), DiskNumber(r.u16()?));
        r.zeros(6)?;
        let [epoch, count, mark] = [r.counter()?, r.counter()?, r.counter()?];
        let is_ours = MarkId { pool, disk, space } == *id && place(count) == in_place;
        if is_ours && is_zeros(r.0) { Ok(Mark { epoch, count, mark }) } else { Err(Malformed) }
    }

    /// The current mark of a slot's two places: the one with the higher (epoch, count). `None` if neither place has a
    /// valid one: the disk is stale.
    pub fn newest(places: [Option<Mark>; 2]) -> Option<Mark> {
        places.into_iter().flatten().max_by_key(Mark::age)
    }

    /// The age, to order the marks of a slot: by epoch, then by count.
    pub fn age(&self) -> (u64, u64) {
        (self.epoch, self.count)
    }
}

/// The place, 0 or 1, of the mark with this count.
pub fn place(count: u64) -> usize {
    (count & 1) as usize
}

/// The byte of the disk at which one place, 0 or 1, of a slot begins. `marks` is the byte at which the disk's area of
/// marks begins; the caller ensures that the area has the slot.
///
/// # Panics
/// If the slot is not below [`SLOTS_MAX`], or there is no such place.
pub fn position(marks: u64, slot: u16, place: usize) -> u64 {
    assert!(slot < SLOTS_MAX && place < 2, "no place {place} of slot {slot}");
    marks + (2 * u64::from(slot) + place as u64) * BLOCK as u64
}

#[cfg(test)]
mod tests;
