//! Checksums of units: `docs/on-disk-format.md`, the last paragraph of "Checksum block".

use arena::passes::{Pass, count};
use pool_seam::SpaceId;

use crate::log::BLOCK;
use crate::log::entry::Sums;

/// The content of a row that a unit belongs to. A checksum depends on it, on the unit's number and on the bytes.
///
/// The row is identified by its birth, so that a unit of an earlier allocation of the row does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId {
    /// The space.
    pub space: SpaceId,
    /// The generation with which the row was allocated.
    pub birth: u32,
    /// The column in its row, for simple, mirrored and coded rows. So the columns of a mirrored row, each with a set
    /// of its own, have different contents here.
    pub content: u8,
}

impl ContentId {
    /// The part of a checksum that depends on the unit's place. `unit` counts from the beginning of the column, and is
    /// less than 2^18 (a slab of 1 GiB).
    ///
    /// No two units of a row have the same hash, so a unit written to the wrong place of its row is always detected.
    /// Units of two rows have the same hash with a probability of 1 in 2^32.
    pub fn place_hash(&self, unit: u32) -> u32 {
        let row = u64::from(self.space.0) << 32 | u64::from(self.birth);
        let row = mix(row.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let within = u32::from(self.content) << UNIT_BITS | unit;
        mix_one_to_one(within ^ row as u32) ^ (row >> 32) as u32
    }

    /// The checksum of a unit: CRC32C of its bytes xor the hash of its place.
    pub fn checksum(&self, unit: u32, bytes: &[u8]) -> u32 {
        crc_fast::crc32_iscsi(bytes) ^ self.place_hash(unit)
    }

    /// The checksums of the whole units in these consecutive bytes; `first` is the number of the first unit.
    pub fn checksums<'a>(&self, first: u32, bytes: impl IntoIterator<Item = &'a [u8]>) -> Sums {
        let (mut sums, mut apart) = (Sums::new(), Vec::new());
        let mut push = |crc: u32| sums.push(crc ^ self.place_hash(first + sums.len() as u32));
        for mut bytes in bytes {
            while !bytes.is_empty() {
                if !apart.is_empty() || bytes.len() < BLOCK {
                    // A unit that spans several buffers.
                    let (part, rest) = bytes.split_at(bytes.len().min(BLOCK - apart.len()));
                    apart.extend_from_slice(part);
                    bytes = rest;
                    if apart.len() == BLOCK {
                        push(crc_fast::crc32_iscsi(&apart));
                        apart.clear();
                    }
                    continue;
                }
                let (units, rest) = bytes.as_chunks::<BLOCK>();
                let (fours, units) = units.as_chunks::<4>();
                fours.iter().flat_map(disk::crc32c_of_four).for_each(&mut push);
                units.iter().map(disk::crc32c_of_block).for_each(&mut push);
                bytes = rest;
            }
        }
        count(Pass::Crc, sums.len() * BLOCK);
        sums
    }
}

/// The number of bits in the number of a unit of a column.
const UNIT_BITS: u32 = 18;

/// The finaliser of MurmurHash3 for 32 bits, which is a bijection.
fn mix_one_to_one(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    let x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// The finaliser of SplitMix64: every bit of a row's number changes every bit of the result.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
