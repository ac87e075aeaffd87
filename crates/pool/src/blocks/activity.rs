//! A block of a disk's activity log: regions that may have writes in flight. Bytes in `docs/on-disk-format.md`.

use super::{crc_without, u16_at, u32_at, u64_at};
use crate::{DiskNumber, PoolId};

/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// Blocks of a disk's log; each is written alternately in two places.
pub const BLOCKS: usize = 16;

/// Entries of a block.
pub const ENTRIES: usize = (BLOCK - HEADER) / ENTRY;

const MAGIC: &[u8; 8] = b"CWYACTV1";
const CRC_AT: usize = 8;
const HEADER: usize = 64;
const ENTRY: usize = 16;

/// The identification of a block; of its two places the one with the higher (epoch, sequence)
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The pool.
    pub pool: PoolId,
    /// The disk.
    pub disk: DiskNumber,
    /// Which of [`BLOCKS`].
    pub block: u16,
    /// The epoch of the pool's claim.
    pub epoch: u64,
    /// Counts this block's writes.
    pub sequence: u64,
}

/// The marked regions of one slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The slab of this disk.
    pub slab: u32,
    /// Its allocation; an entry with another one is of an earlier life of the slab and means nothing.
    pub generation: u32,
    /// One bit for each region.
    pub regions: u64,
}

/// The bytes of a block.
///
/// # Panics
/// When there are more than [`ENTRIES`].
pub fn encode(header: &Header, entries: &[Entry]) -> Vec<u8> {
    assert!(entries.len() <= ENTRIES);
    let mut b = vec![0; BLOCK];
    b[0..8].copy_from_slice(MAGIC);
    b[16..32].copy_from_slice(&header.pool.0);
    b[32..34].copy_from_slice(&header.disk.0.to_le_bytes());
    b[34..36].copy_from_slice(&header.block.to_le_bytes());
    b[36..40].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    b[40..48].copy_from_slice(&header.epoch.to_le_bytes());
    b[48..56].copy_from_slice(&header.sequence.to_le_bytes());
    for (bytes, e) in b[HEADER..].chunks_exact_mut(ENTRY).zip(entries) {
        bytes[0..4].copy_from_slice(&e.slab.to_le_bytes());
        bytes[4..8].copy_from_slice(&e.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&e.regions.to_le_bytes());
    }
    let crc = crc_without(&b, CRC_AT);
    b[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    b
}

/// A block's header and entries; `None` when it is not whole, or not block `block` of this disk.
pub fn decode(b: &[u8], pool: PoolId, disk: DiskNumber, block: u16) -> Option<(Header, Vec<Entry>)> {
    if b.len() != BLOCK || &b[0..8] != MAGIC || u32_at(b, CRC_AT) != crc_without(b, CRC_AT) {
        return None;
    }
    let header = Header {
        pool: PoolId(b[16..32].try_into().ok()?),
        disk: DiskNumber(u16_at(b, 32)),
        block: u16_at(b, 34),
        epoch: u64_at(b, 40),
        sequence: u64_at(b, 48),
    };
    let count = u32_at(b, 36) as usize;
    if header.pool != pool || header.disk != disk || header.block != block || count > ENTRIES {
        return None;
    }
    let entry = |e: &[u8]| Entry { slab: u32_at(e, 0), generation: u32_at(e, 4), regions: u64_at(e, 8) };
    Some((header, b[HEADER..].chunks_exact(ENTRY).take(count).map(entry).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes() {
        let pool = PoolId(*b"pool of 16 bytes");
        let header = Header { pool, disk: DiskNumber(0x0102), block: 3, epoch: 4, sequence: 0x0506 };
        let entries: Vec<Entry> = (0..ENTRIES as u32)
            .map(|i| Entry { slab: i, generation: i + 1, regions: 1 << (i % 64) })
            .collect();
        let b = encode(&header, &entries);
        assert_eq!((ENTRIES, &b[0..8], &b[12..16]), (252, &b"CWYACTV1"[..], &[0; 4][..]));
        assert_eq!(u32_at(&b, 8), crc_without(&b, 8));
        assert_eq!(&b[32..56], &[2, 1, 3, 0, 252, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 6, 5, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&b[80..96], &[1, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(&b, pool, header.disk, 3), Some((header, entries)));
        assert_eq!(decode(&b, PoolId([0; 16]), header.disk, 3), None);
        assert_eq!(decode(&b, pool, DiskNumber(1), 3), None);
        assert_eq!(decode(&b, pool, header.disk, 4), None);
        for at in 0..BLOCK {
            let mut bad = b.clone();
            bad[at] ^= 1;
            assert_eq!(decode(&bad, pool, header.disk, 3), None, "byte {at}");
        }
        assert_eq!(decode(&[0; BLOCK], pool, header.disk, 3), None);
    }
}
