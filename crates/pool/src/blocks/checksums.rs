//! The checksum block of a group: the expected contents of its units, on one copy. Bytes in
//! `docs/on-disk-format.md`.
//!
//! Every slab in a row has one block for each group, written when the slab is allocated, so that a block that
//! is not this slab's or not whole is damage, and never taken for an empty one.

use smallvec::SmallVec;

use super::head::{begin, open, seal};
use super::{BlockId, Damaged, Units, u32_at};
use crate::{GROUP_UNITS, RowNumber, SpaceId, UNIT};

const MAGIC: &[u8; 8] = b"CWYSUMS1";
const SUMS_AT: usize = 2048;

/// The expected contents of a group's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Units that have data; the others read as zeros. A block says so of a unit only after data of it was
    /// durable on every copy: so even when nothing matches, what lies in its place is the unit's.
    pub written: Units,
    /// Lost units: no copy had them at the last search, and reads fail. For a written unit the checksum is
    /// known, and only matching data is the unit, on whichever copy it is found. For a unit whose block was
    /// lost on every copy, the checksum is lost too, and only a write ends the loss.
    pub lost: Units,
    /// See [`checksum`]; only those of written units mean anything.
    pub sums: [u32; GROUP_UNITS as usize],
}

impl Default for Table {
    fn default() -> Table {
        Table { written: Units::NONE, lost: Units::NONE, sums: [0; GROUP_UNITS as usize] }
    }
}

impl Table {
    /// The units of `within` about which they do not say the same.
    pub fn differ(&self, other: &Table, within: &Units) -> Units {
        let xor = |a: &Units, b: &Units| a.without(b).or(&b.without(a));
        let mut sums = Units::NONE;
        for (word, (a, b)) in sums.0.iter_mut().zip(self.sums.chunks(64).zip(other.sums.chunks(64))) {
            // Most are the same, and then so are their bytes.
            if a != b {
                let bits = a.iter().zip(b).enumerate().map(|(i, (a, b))| u64::from(a != b) << i);
                *word = bits.fold(0, |all, bit| all | bit);
            }
        }
        let different = xor(&self.written, &other.written).or(&xor(&self.lost, &other.lost));
        different.or(&sums.and(&self.written)).and(within)
    }

    /// Says of these units what another table says.
    pub fn take(&mut self, from: &Table, units: &Units) {
        self.written = self.written.without(units).or(&from.written.and(units));
        self.lost = self.lost.without(units).or(&from.lost.and(units));
        units.iter().for_each(|unit| self.sums[unit] = from.sums[unit]);
    }
}

/// The bytes of a block.
pub fn encode(id: &BlockId, generation: u64, table: &Table) -> Vec<u8> {
    let mut b = begin(MAGIC, id, generation);
    table.written.put(&mut b[128..192]);
    table.lost.put(&mut b[192..256]);
    for (bytes, sum) in b[SUMS_AT..].chunks_exact_mut(4).zip(table.sums) {
        bytes.copy_from_slice(&sum.to_le_bytes());
    }
    seal(b)
}

/// The group's generation and table.
///
/// # Errors
/// [`Damaged`].
pub fn decode(b: &[u8], id: &BlockId) -> Result<(u64, Box<Table>), Damaged> {
    let generation = open(b, MAGIC, id)?;
    let table = Table {
        written: Units::get(&b[128..192]),
        lost: Units::get(&b[192..256]),
        sums: std::array::from_fn(|i| u32_at(b, SUMS_AT + i * 4)),
    };
    Ok((generation, Box::new(table)))
}

/// The part of a checksum that depends on the unit's place. `unit` counts from the beginning of the column.
pub fn place_hash(space: SpaceId, row: RowNumber, column: u8, unit: u32) -> u32 {
    in_row(row_hash(space, row), column, unit)
}

fn row_hash(space: SpaceId, row: RowNumber) -> u64 {
    mix((u64::from(space.0) << 32 | u64::from(row.0)).wrapping_add(0x9e37_79b9_7f4a_7c15))
}

fn in_row(row: u64, column: u8, unit: u32) -> u32 {
    mix(row ^ (u64::from(column) << 32 | u64::from(unit))) as u32
}

/// The finish of SplitMix64, twice for each place: every bit of the place changes every bit of the hash.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The checksum of a unit: CRC32C of its bytes, which may lie in several pieces, and its place.
pub fn checksum<'a>(
    space: SpaceId,
    row: RowNumber,
    column: u8,
    unit: u32,
    bytes: impl IntoIterator<Item = &'a [u8]>,
) -> u32 {
    let mut pieces = bytes.into_iter();
    let crc = match (pieces.next(), pieces.next()) {
        (None, _) => 0,
        (Some(whole), None) => {
            whole.try_into().map_or_else(|_| crc_fast::crc32_iscsi(whole), disk::crc32c_of_block)
        }
        (Some(first), Some(second)) => {
            let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
            digest.update(first);
            digest.update(second);
            pieces.for_each(|p| digest.update(p));
            digest.finalize() as u32
        }
    };
    crc ^ place_hash(space, row, column, unit)
}

/// Checksums of units one after the other.
pub type Sums = SmallVec<[u32; 16]>;

/// The checksums of the whole units that these bytes are end to end, `first` the first: each as [`checksum`],
/// but four at a time where they lie together.
pub fn checksums<'a>(
    space: SpaceId,
    row: RowNumber,
    column: u8,
    first: u32,
    bytes: impl IntoIterator<Item = &'a [u8]>,
) -> Sums {
    const LONG: usize = UNIT as usize;
    let (mut sums, mut unit, mut have) = (Sums::new(), SmallVec::<[&[u8]; 4]>::new(), 0);
    let next = |sums: &Sums| first + sums.len() as u32;
    let hash = row_hash(space, row);
    for mut bytes in bytes {
        sums.reserve(bytes.len() / LONG);
        while !bytes.is_empty() {
            if have == 0 {
                let (units, rest) = bytes.as_chunks::<LONG>();
                let (fours, units) = units.as_chunks::<4>();
                for four in fours {
                    let number = next(&sums);
                    let [a, b, c, d] = disk::crc32c_of_four(four);
                    let sum = |crc, at| crc ^ in_row(hash, column, number + at);
                    sums.extend_from_slice(&[sum(a, 0), sum(b, 1), sum(c, 2), sum(d, 3)]);
                }
                for unit in units {
                    sums.push(checksum(space, row, column, next(&sums), [&unit[..]]));
                }
                bytes = rest;
                if bytes.is_empty() {
                    break;
                }
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(LONG - have));
            unit.push(piece);
            (bytes, have) = (rest, have + piece.len());
            if have == LONG {
                sums.push(checksum(space, row, column, next(&sums), unit.drain(..)));
                have = 0;
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::head::tests::{id, refuses};

    #[test]
    fn the_bytes() {
        let mut table = Table { written: Units::range(0, 9), ..Table::default() };
        table.lost.insert(511);
        table.sums[0] = 0xdead_beef;
        let b = encode(&id(), 0x1122, &table);
        assert_eq!((&b[0..8], &b[12..16]), (&b"CWYSUMS1"[..], &[0; 4][..]));
        assert_eq!(u32_at(&b, 8), crate::blocks::crc_without(&b, 8));
        assert_eq!(&b[32..52], &[2, 1, 1, 1, 5, 4, 3, 2, 6, 0, 0, 0, 7, 0, 0, 0, 0x0b, 0x0a, 9, 8]);
        assert_eq!(&b[56..58], &[0x22, 0x11]);
        assert_eq!((b[128], b[129], b[192], b[255]), (0xff, 1, 0, 0x80));
        assert_eq!(&b[2048..2052], &[0xef, 0xbe, 0xad, 0xde]);
        let (generation, back) = decode(&b, &id()).unwrap();
        assert_eq!((generation, *back), (0x1122, table));
    }

    #[test]
    fn tables_are_compared_and_taken_unit_by_unit() {
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            random >> 33
        };
        for _ in 0..50 {
            let mut table = || Table {
                written: Units(std::array::from_fn(|_| next() << 32 | next())),
                lost: Units(std::array::from_fn(|_| next() & next() & next())),
                sums: std::array::from_fn(|_| (next() & 1) as u32),
            };
            let (a, b) = (table(), table());
            let within = Units::range((next() % 300) as usize, (next() % 513) as usize);
            let agree = |u: usize| {
                let written = a.written.has(u);
                written == b.written.has(u)
                    && a.lost.has(u) == b.lost.has(u)
                    && (!written || a.sums[u] == b.sums[u])
            };
            let differ: Vec<usize> = within.iter().filter(|u| !agree(*u)).collect();
            assert!(a.differ(&b, &within).iter().eq(differ));
            let mut taken = a.clone();
            taken.take(&b, &within);
            for u in 0..512 {
                let from = if within.has(u) { &b } else { &a };
                let says = |t: &Table| (t.written.has(u), t.lost.has(u), t.sums[u]);
                assert_eq!(says(&taken), says(from));
            }
        }
    }

    #[test]
    fn what_is_refused() {
        let b = encode(&id(), 1, &Table::default());
        refuses(&b, |b, id| decode(b, id).err());
    }

    /// However the bytes are cut, and so whether or not four units lie together.
    #[test]
    fn units_in_pieces_have_the_same_checksums() {
        const LONG: usize = UNIT as usize;
        let mut random = 1u64;
        let mut next = move || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) as usize
        };
        let (space, row) = (SpaceId(1), RowNumber(2));
        let bytes: Vec<u8> = (0..14 * LONG).map(|_| next() as u8).collect();
        let one = |n: usize| checksum(space, row, 3, 7 + n as u32, [&bytes[n * LONG..][..LONG]]);
        let expected: Vec<u32> = (0..14).map(one).collect();
        for round in 0..100 {
            let cut = |_| next() % 15 * LONG + if round % 2 == 0 { 0 } else { next() % LONG };
            let mut cuts: Vec<usize> = (0..round % 5).map(cut).map(|at| at.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]);
            assert_eq!(checksums(space, row, 3, 7, pieces)[..], expected, "cut at {cuts:?}");
        }
    }

    #[test]
    fn a_checksum_knows_its_place() {
        // CRC-32C of 32 zero bytes: RFC 3720 B.4.
        let (space, row) = (SpaceId(1), RowNumber(2));
        let here = checksum(space, row, 3, 4, [&[0u8; 32][..]]);
        assert_eq!(here ^ place_hash(space, row, 3, 4), 0x8a91_36aa);
        assert_eq!(here, checksum(space, row, 3, 4, [&[0u8; 5][..], &[0; 20], &[0; 7]]));
        for other in [
            place_hash(SpaceId(2), row, 3, 4),
            place_hash(space, RowNumber(1), 3, 4),
            place_hash(space, row, 4, 3),
            place_hash(space, row, 3, 5),
        ] {
            assert_ne!(other, place_hash(space, row, 3, 4));
        }
    }
}
