//! The common head of checksum blocks of all layouts: magic, CRC, identification, generation. Bytes
//! in `docs/on-disk-format.md`.

use super::{crc_without, u32_at, u64_at};
use crate::{PoolId, RowNumber, SpaceId};

/// Bytes of a block.
pub const BLOCK: usize = 4096;

const CRC_AT: usize = 8;

/// Which block it is; one that says another was written elsewhere, or in another life of the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId {
    /// The pool.
    pub pool: PoolId,
    /// The space.
    pub space: SpaceId,
    /// The row.
    pub row: RowNumber,
    /// The slab's index in the row.
    pub index: u8,
    /// The group in the slab.
    pub group: u32,
    /// [`crate::SlabCopy::generation`].
    pub allocation: u32,
}

/// Why a block is not what was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// Its bytes are not a checksum block, or not whole.
    #[error("the checksum block is damaged")]
    Bytes,
    /// It is the block of another place, or of an earlier life of the slab: a write went astray or was lost.
    #[error("the checksum block belongs to another place")]
    Another,
}

/// A block that has nothing but its head.
pub(super) fn begin(magic: &[u8; 8], id: &BlockId, generation: u64) -> Vec<u8> {
    let mut b = vec![0; BLOCK];
    b[0..8].copy_from_slice(magic);
    b[16..32].copy_from_slice(&id.pool.0);
    b[32..36].copy_from_slice(&id.space.0.to_le_bytes());
    b[36..40].copy_from_slice(&id.row.0.to_le_bytes());
    b[40] = id.index;
    b[44..48].copy_from_slice(&id.group.to_le_bytes());
    b[48..52].copy_from_slice(&id.allocation.to_le_bytes());
    b[56..64].copy_from_slice(&generation.to_le_bytes());
    b
}

/// The whole block, when all else is in it.
pub(super) fn seal(mut b: Vec<u8>) -> Vec<u8> {
    let crc = crc_without(&b, CRC_AT);
    b[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    b
}

/// The generation of a block that is whole and the one that is looked for.
///
/// # Errors
/// [`Damaged`].
pub(super) fn open(b: &[u8], magic: &[u8; 8], id: &BlockId) -> Result<u64, Damaged> {
    if b.len() != BLOCK || &b[0..8] != magic || u32_at(b, CRC_AT) != crc_without(b, CRC_AT) {
        return Err(Damaged::Bytes);
    }
    let is = BlockId {
        pool: PoolId(b[16..32].try_into().unwrap_or_default()),
        space: SpaceId(u32_at(b, 32)),
        row: RowNumber(u32_at(b, 36)),
        index: b[40],
        group: u32_at(b, 44),
        allocation: u32_at(b, 48),
    };
    if is != *id { Err(Damaged::Another) } else { Ok(u64_at(b, 56)) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::blocks) fn id() -> BlockId {
        BlockId {
            pool: PoolId(*b"pool of 16 bytes"),
            space: SpaceId(0x0101_0102),
            row: RowNumber(0x0203_0405),
            index: 6,
            group: 7,
            allocation: 0x0809_0a0b,
        }
    }

    /// Asserts that a layout refuses damaged blocks; `b` is a block of [`id`], and `decode` returns why it is
    /// not the expected one.
    pub(in crate::blocks) fn refuses(b: &[u8], decode: impl Fn(&[u8], &BlockId) -> Option<Damaged>) {
        for at in 0..BLOCK {
            let mut bad = b.to_vec();
            bad[at] ^= 0x10;
            assert_eq!(decode(&bad, &id()), Some(Damaged::Bytes), "byte {at}");
        }
        assert_eq!(decode(&[0; BLOCK], &id()), Some(Damaged::Bytes));
        assert_eq!(decode(&b[..4000], &id()), Some(Damaged::Bytes));
        for other in [
            BlockId { pool: PoolId([0; 16]), ..id() },
            BlockId { space: SpaceId(1), ..id() },
            BlockId { row: RowNumber(1), ..id() },
            BlockId { index: 1, ..id() },
            BlockId { group: 1, ..id() },
            BlockId { allocation: 1, ..id() },
        ] {
            assert_eq!(decode(b, &other), Some(Damaged::Another));
        }
    }
}
