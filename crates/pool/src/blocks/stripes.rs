//! The checksum block of a column of a parity row: the sums of its own units of a group, and what is written
//! in every column. Bytes in `docs/on-disk-format.md`.
//!
//! The blocks of a row's columns for one group are written together, with one generation. Which data units
//! are written is in each of them, so that it is known without the disk whose units they are.

use super::head::{begin, open, seal};
use super::{BlockId, Damaged, Units, u32_at, u64_at};
use crate::GROUP_UNITS;
pub use crate::parity::COLUMNS_MAX;
use crate::parity::DATA_MAX;

const MAGIC: &[u8; 8] = b"CWYSTRP1";
const LOST_AT: usize = 128;
const WROTE_AT: usize = 192;
const WRITTEN_AT: usize = 512;
const SUMS_AT: usize = 2048;

/// The contents of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Of the group: 1 when allocated, more each time its blocks are written; the upper half is the epoch of
    /// the opening that wrote it.
    pub generation: u64,
    /// Of each column, the generation of the last block that it has durably; 0 when that is not known.
    pub wrote: Vec<u64>,
    /// Of each data column, the units that have data; the others are zeros.
    pub written: Vec<Units>,
    /// Units of this column whose sum is not known.
    pub lost: Units,
    /// Of this column's units; those of unwritten ones mean nothing. A parity unit is written when a data
    /// unit that it is made of is.
    pub sums: Box<[u32; GROUP_UNITS as usize]>,
}

impl Block {
    /// Of a group that was just allocated.
    pub fn empty(data: usize, parity: usize) -> Block {
        Block {
            generation: 1,
            wrote: vec![1; data + parity],
            written: vec![Units::NONE; data],
            lost: Units::NONE,
            sums: Box::new([0; GROUP_UNITS as usize]),
        }
    }
}

/// The bytes of a block.
///
/// # Panics
/// When it has more columns than [`COLUMNS_MAX`].
pub fn encode(id: &BlockId, block: &Block) -> Vec<u8> {
    let (columns, data) = (block.wrote.len(), block.written.len());
    assert!(columns <= COLUMNS_MAX && data <= DATA_MAX && data <= columns);
    let mut b = begin(MAGIC, id, block.generation);
    (b[41], b[42]) = (data as u8, (columns - data) as u8);
    block.lost.put(&mut b[LOST_AT..LOST_AT + 64]);
    for (bytes, wrote) in b[WROTE_AT..].chunks_exact_mut(8).zip(&block.wrote) {
        bytes.copy_from_slice(&wrote.to_le_bytes());
    }
    for (bytes, written) in b[WRITTEN_AT..].chunks_exact_mut(64).zip(&block.written) {
        written.put(bytes);
    }
    for (bytes, sum) in b[SUMS_AT..].chunks_exact_mut(4).zip(block.sums.iter()) {
        bytes.copy_from_slice(&sum.to_le_bytes());
    }
    seal(b)
}

/// The contents of the block, if it is the expected one, of a row with this many columns.
///
/// # Errors
/// [`Damaged`].
pub fn decode(b: &[u8], id: &BlockId, data: usize, parity: usize) -> Result<Block, Damaged> {
    let generation = open(b, MAGIC, id)?;
    if (usize::from(b[41]), usize::from(b[42])) != (data, parity) || data + parity > COLUMNS_MAX {
        return Err(Damaged::Another);
    }
    Ok(Block {
        generation,
        wrote: (0..data + parity).map(|c| u64_at(b, WROTE_AT + 8 * c)).collect(),
        written: (0..data).map(|c| Units::get(&b[WRITTEN_AT + 64 * c..WRITTEN_AT + 64 * (c + 1)])).collect(),
        lost: Units::get(&b[LOST_AT..LOST_AT + 64]),
        sums: Box::new(std::array::from_fn(|i| u32_at(b, SUMS_AT + i * 4))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::head::tests::{id, refuses};

    #[test]
    fn the_bytes() {
        let mut block = Block::empty(16, 2);
        block.generation = 0x1122;
        block.wrote[17] = 0x33;
        block.written[15] = Units::range(504, 512);
        block.lost.insert(511);
        block.sums[511] = 0xdead_beef;
        let b = encode(&id(), &block);
        assert_eq!((&b[0..8], &b[12..16]), (&b"CWYSTRP1"[..], &[0; 4][..]));
        assert_eq!(u32_at(&b, 8), crate::blocks::crc_without(&b, 8));
        assert_eq!(&b[32..52], &[2, 1, 1, 1, 5, 4, 3, 2, 6, 16, 2, 0, 7, 0, 0, 0, 0x0b, 0x0a, 9, 8]);
        assert_eq!(&b[56..58], &[0x22, 0x11]);
        assert_eq!((b[191], b[192], b[328], b[512 + 16 * 64 - 1]), (0x80, 1, 0x33, 0xff));
        assert_eq!(&b[4092..], &[0xef, 0xbe, 0xad, 0xde]);
        assert_eq!(decode(&b, &id(), 16, 2), Ok(block));
    }

    #[test]
    fn what_is_refused() {
        let b = encode(&id(), &Block::empty(3, 1));
        refuses(&b, |b, id| decode(b, id, 3, 1).err());
        assert_eq!(decode(&b, &id(), 2, 2).err(), Some(Damaged::Another));
    }
}
