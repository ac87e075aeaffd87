//! Checksums of units: `docs/0004-format.md`, the last paragraph of "Checksum block".

use pool_seam::SpaceId;

/// The content of a row that a unit belongs to: with the unit, what a checksum depends on besides the bytes.
///
/// The row is identified by its birth, so that a unit of an earlier allocation of the row does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId {
    /// The space.
    pub space: SpaceId,
    /// The generation with which the row was allocated.
    pub birth: u32,
    /// The content in its row: the column, of simple, mirrored and coded rows alike. So columns of a mirrored row,
    /// each with a set of its own, have different contents here.
    pub content: u8,
}

impl ContentId {
    /// The part of a checksum that depends on the unit's place. `unit` counts from the beginning of the column.
    /// Two places have the same hash with odds of 1 in 2^32.
    pub fn place_hash(&self, unit: u32) -> u32 {
        let row = u64::from(self.space.0) << 32 | u64::from(self.birth);
        let row = mix(row.wrapping_add(0x9e37_79b9_7f4a_7c15));
        mix(row ^ (u64::from(self.content) << 32 | u64::from(unit))) as u32
    }

    /// The checksum of a unit: CRC32C of its bytes xor the hash of its place.
    pub fn checksum(&self, unit: u32, bytes: &[u8]) -> u32 {
        crc_fast::crc32_iscsi(bytes) ^ self.place_hash(unit)
    }
}

/// The finish of SplitMix64, twice for each place: every bit of the place changes every bit of the hash.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
