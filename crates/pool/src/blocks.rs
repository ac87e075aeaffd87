//! Bytes in, values out: the blocks of the data path. `docs/on-disk-format.md` has the maps; labels and
//! metadata are in `format`.
//!
//! All numbers are little-endian. Every block carries a magic and a CRC32C of itself with the
//! CRC's own bytes as zeros.

pub mod activity;
pub mod checksums;
mod head;
pub mod stripes;
mod units;

pub use head::{BLOCK, BlockId, Damaged};
pub use units::Units;

/// CRC32C of a block whose CRC lies at `at`.
pub(crate) fn crc_without(block: &[u8], at: usize) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..at]);
    digest.update(&[0; 4]);
    digest.update(&block[at + 4..]);
    digest.finalize() as u32
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

pub(crate) fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| b[at + i]))
}

pub(crate) fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| b[at + i]))
}
