//! Checksum blocks: the checksums and written units of a group, on one slab. `docs/on-disk-format.md`, "Checksum
//! block"; `docs/0004-spaces.md`, rules 6 and 16.
//!
//! A slab has one block for each group of 512 units, and the blocks of a row are written before the row is used. So a
//! damaged or misplaced block is never taken for an empty one. A block has the checksums of one content, and which
//! units of every data column of its set are written. All bytes outside the byte map are zeros: each value has one
//! encoding.

mod checksums;
mod units;

use pool_seam::{GROUP_UNITS, PoolId, RowNumber, SpaceId};
use smallvec::SmallVec;

pub use checksums::ContentId;
pub use units::Units;

use crate::codec::{Malformed, Reader, crc_of, seal};
use crate::log::{BLOCK, COUNTER_MAX};

/// The most data columns of a set.
pub const DATA_COLUMNS_MAX: usize = 16;

/// The most slabs of a set: data columns and two parities.
pub const SLABS_MAX: usize = 18;

const MAGIC: &[u8; 8] = b"CWYSUMS1";
const WRITTEN_AT: usize = 128;
const VERSIONS_AT: usize = 1152;
const SUMS_AT: usize = 2048;

/// The place that a checksum block belongs to, and the allocation of its slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct BlockId {
    pub pool: PoolId,
    pub space: SpaceId,
    pub row: RowNumber,
    /// The group in the slab: units `512 group` to `512 group + 511` of the slab.
    pub group: u32,
    /// The generation with which the slab was allocated, which no other slab has.
    pub allocation: u32,
}

/// The units of a group, as the checksum block of one slab describes them.
///
/// A mirror's group takes less than 2.3 KiB, in one allocation if the mirror has at most three copies. The caller
/// compares the numbers of data columns and slabs with those of the row before it uses them as indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChecksumBlock {
    /// `K` of the log's checkpoint that wrote it; 0 when the row was allocated.
    pub version: u64,
    /// Counts the times the group was written: orders blocks of equal versions.
    pub writing: u64,
    /// Units of this content that no copy has. A lost unit that is also written (for a parity: in any data column) is
    /// restored only by bytes with its sum; for one that is not written the sum is lost, too.
    pub lost: Units,
    /// Written units of each data column of the set, 1 to [`DATA_COLUMNS_MAX`] elements; a simple or mirrored column
    /// has one.
    pub written: SmallVec<[Units; 1]>,
    /// For each slab of the set, at most [`SLABS_MAX`], the minimum version of its block; 0 if unknown. At least as
    /// many as data columns.
    pub versions: SmallVec<[u64; 3]>,
    /// Checksums of this content's units, see [`ContentId::checksum`]. Those of unwritten units are undefined, but are
    /// stored unchanged.
    pub sums: [u32; GROUP_UNITS as usize],
}

impl ChecksumBlock {
    /// The bytes of the block.
    ///
    /// # Panics
    /// If the numbers of data columns and slabs break their limits, or a version or the writing is not below
    /// [`COUNTER_MAX`].
    pub fn encode(&self, id: &BlockId) -> Vec<u8> {
        assert!(self.is_sound(), "an unsound checksum block: {self:?}");
        let mut b = Vec::with_capacity(BLOCK);
        b.extend(MAGIC);
        b.extend([0; 4]);
        b.extend([0, self.written.len() as u8, self.versions.len() as u8, 0]);
        b.extend(id.pool.0);
        for field in [id.space.0, id.row.0, id.group, id.allocation] {
            b.extend(field.to_le_bytes());
        }
        b.extend(self.version.to_le_bytes());
        b.extend(self.writing.to_le_bytes());
        [&self.lost].into_iter().chain(&self.written).for_each(|units| b.extend(units.bytes()));
        b.resize(VERSIONS_AT, 0);
        self.versions.iter().for_each(|version| b.extend(version.to_le_bytes()));
        b.resize(SUMS_AT, 0);
        self.sums.iter().for_each(|sum| b.extend(sum.to_le_bytes()));
        seal(&mut b);
        b
    }

    /// Decodes the block at this place. A block of another place or allocation is refused, too.
    pub fn decode(block: &[u8], id: &BlockId) -> Result<Box<ChecksumBlock>, Malformed> {
        let mut r = Reader(block);
        if block.len() != BLOCK || r.array()? != *MAGIC || r.u32()? != crc_of(block) {
            return Err(Malformed);
        }
        let [before, columns, slabs, after] = r.array()?;
        let found = BlockId {
            pool: PoolId(r.array()?),
            space: SpaceId(r.u32()?),
            row: RowNumber(r.u32()?),
            group: r.u32()?,
            allocation: r.u32()?,
        };
        let (columns, slabs) = (usize::from(columns), usize::from(slabs));
        if found != *id || [before, after] != [0; 2] || !are_counts(columns, slabs) {
            return Err(Malformed);
        }
        let (version, writing) = (r.counter()?, r.counter()?);
        let lost = Units::get(&mut r)?;
        let written = (0..columns).map(|_| Units::get(&mut r)).collect::<Result<_, _>>()?;
        r.zeros(VERSIONS_AT - WRITTEN_AT - 64 * columns)?;
        let versions = (0..slabs).map(|_| r.counter()).collect::<Result<_, _>>()?;
        r.zeros(SUMS_AT - VERSIONS_AT - 8 * slabs)?;
        let mut sums = [0; GROUP_UNITS as usize];
        for sum in &mut sums {
            *sum = r.u32()?;
        }
        Ok(Box::new(ChecksumBlock { version, writing, lost, written, versions, sums }))
    }

    /// Whether another block of the same content has the same values, regardless of age.
    pub fn says_the_same(&self, other: &ChecksumBlock) -> bool {
        (&self.sums, &self.lost, &self.written) == (&other.sums, &other.lost, &other.written)
    }

    /// Which of two blocks of a group is newer: by version, then by writing.
    pub fn age(&self) -> (u64, u64) {
        (self.version, self.writing)
    }

    fn is_sound(&self) -> bool {
        let mut counters = [self.version, self.writing].into_iter().chain(self.versions.iter().copied());
        are_counts(self.written.len(), self.versions.len()) && counters.all(|counter| counter < COUNTER_MAX)
    }
}

/// The newer of two blocks of a group: the one with the higher (version, writing), the first one if they are equal.
/// Blocks of the same content and age are equal unless a write was lost or damaged.
pub fn newer<'a>(a: &'a ChecksumBlock, b: &'a ChecksumBlock) -> &'a ChecksumBlock {
    if b.age() > a.age() { b } else { a }
}

/// The byte offset on the disk of the block of a group; `slab` is the offset of the slab.
pub fn position(slab: u64, group: u32) -> u64 {
    slab + u64::from(group) * BLOCK as u64
}

fn are_counts(columns: usize, slabs: usize) -> bool {
    (1..=DATA_COLUMNS_MAX).contains(&columns) && (columns..=SLABS_MAX).contains(&slabs)
}

#[cfg(test)]
mod tests;
