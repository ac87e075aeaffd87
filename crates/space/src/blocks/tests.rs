use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::codec::{is_zeros, resealed};

const ID: BlockId = BlockId {
    pool: PoolId(*b"pool of 16 bytes"),
    space: SpaceId(0x0102),
    row: RowNumber(0x0304),
    group: 5,
    allocation: 0x0607,
};

fn units() -> impl Strategy<Value = Units> {
    any::<[u64; 8]>().prop_map(Units)
}

prop_compose! {
    fn block()(columns in 1..=DATA_COLUMNS_MAX)(
        written in vec(units(), columns),
        versions in vec(0..1_u64 << 62, columns..=SLABS_MAX),
        lost in units(),
        (version, writing) in (0..1_u64 << 62, 0..1_u64 << 62),
        sums in vec(any::<u32>(), 512),
    ) -> ChecksumBlock {
        let sums = sums.try_into().unwrap();
        ChecksumBlock { version, writing, lost, written: written.into(), versions: versions.into(), sums }
    }
}

/// A block of a two-way mirror.
fn mirror() -> ChecksumBlock {
    let mut written = Units([0x1ff, 0, 0, 0, 0, 0, 0, 0]);
    written.set(511, true);
    let mut lost = Units::NONE;
    lost.set(9, true);
    let mut sums = [0; 512];
    (sums[0], sums[511]) = (0xdead_beef, 0x0102_0304);
    ChecksumBlock {
        version: 0x1122,
        writing: 3,
        lost,
        written: [written].into_iter().collect(),
        versions: [0x1122, 0x1121].into_iter().collect(),
        sums,
    }
}

proptest! {
    #[test]
    fn blocks_come_back(block in block()) {
        let bytes = block.encode(&ID);
        prop_assert_eq!(bytes.len(), BLOCK);
        prop_assert_eq!(ChecksumBlock::decode(&bytes, &ID), Ok(Box::new(block)));
    }

    /// A matching checksum does not make the contents valid: every block that decodes is the encoding of its value.
    #[test]
    fn blocks_have_one_encoding(
        block in block(),
        at in prop_oneof![12..16_usize, 12..BLOCK],
        byte in prop_oneof![0..20_u8, any::<u8>()],
    ) {
        let bytes = resealed(block.encode(&ID), at, byte);
        if let Ok(block) = ChecksumBlock::decode(&bytes, &ID) {
            prop_assert_eq!(block.encode(&ID), bytes);
        }
    }

    #[test]
    fn cuts_and_garbage_are_damaged(block in block(), at in 0..BLOCK, noise in vec(any::<u8>(), 0..2 * BLOCK)) {
        let mut bytes = block.encode(&ID);
        prop_assert_eq!(ChecksumBlock::decode(&bytes[..at], &ID), Err(Malformed));
        prop_assert_eq!(ChecksumBlock::decode(&noise, &ID), Err(Malformed));
        bytes[2048..].rotate_right(4);
        if bytes != block.encode(&ID) {
            prop_assert_eq!(ChecksumBlock::decode(&bytes, &ID), Err(Malformed));
        }
    }

    #[test]
    fn units_are_bits(set in vec(0..512_usize, 0..40), out in vec(0..512_usize, 0..40)) {
        let mut units = Units::NONE;
        set.iter().for_each(|unit| units.set(*unit, true));
        out.iter().for_each(|unit| units.set(*unit, false));
        let bytes: Vec<u8> = units.bytes().collect();
        for unit in 0..512 {
            let expected = set.contains(&unit) && !out.contains(&unit);
            prop_assert_eq!(units.has(unit), expected);
            prop_assert_eq!(bytes[unit / 8] & 1 << (unit % 8) != 0, expected);
        }
    }
}

#[test]
fn the_bytes_of_blocks() {
    let bytes = mirror().encode(&ID);
    assert_eq!(&bytes[0..8], b"CWYSUMS1");
    assert_eq!(bytes[8..12], 0x0af3_2a1d_u32.to_le_bytes());
    assert_eq!(bytes[12..16], [0, 1, 2, 0]);
    assert_eq!(&bytes[16..32], b"pool of 16 bytes");
    assert_eq!(bytes[32..48], [2, 1, 0, 0, 4, 3, 0, 0, 5, 0, 0, 0, 7, 6, 0, 0]);
    assert_eq!(bytes[48..64], [0x22, 0x11, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[64..68], [0, 2, 0, 0], "unit 9 is lost");
    assert_eq!((bytes[128], bytes[129], bytes[191]), (0xff, 1, 0x80), "units 0 to 8 and 511 are written");
    assert!(is_zeros(&bytes[192..1152]), "a mirror has one data column");
    assert_eq!(bytes[1152..1168], [0x22, 0x11, 0, 0, 0, 0, 0, 0, 0x21, 0x11, 0, 0, 0, 0, 0, 0]);
    assert!(is_zeros(&bytes[1168..2048]));
    assert_eq!(bytes[2048..2052], [0xef, 0xbe, 0xad, 0xde]);
    assert_eq!(bytes[4092..4096], [4, 3, 2, 1]);
}

#[test]
fn every_flipped_bit_is_damage() {
    let mut bytes = mirror().encode(&ID);
    for bit in 0..8 * BLOCK {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(ChecksumBlock::decode(&bytes, &ID), Err(Malformed), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(ChecksumBlock::decode(&bytes, &ID), Ok(Box::new(mirror())));
}

#[test]
fn blocks_of_other_places_and_allocations() {
    for found in [
        BlockId { pool: PoolId([0; 16]), ..ID },
        BlockId { space: SpaceId(1), ..ID },
        BlockId { row: RowNumber(1), ..ID },
        BlockId { group: 4, ..ID },
        BlockId { allocation: ID.allocation + 1, ..ID },
        BlockId { allocation: ID.allocation - 1, ..ID },
    ] {
        let block = mirror().encode(&found);
        assert_eq!(ChecksumBlock::decode(&block, &ID), Err(Malformed), "{found:?}");
    }
}

#[test]
fn blocks_that_no_owner_writes() {
    let good = mirror().encode(&ID);
    for (at, byte, why) in [
        (13, 0, "no data column"),
        (13, 3, "more data columns than slabs"),
        (13, 17, "too many data columns"),
        (14, 0, "no slab"),
        (14, 19, "too many slabs"),
        (14, 1, "a version beyond the slabs"),
        (15, 1, "a reserved byte"),
        (55, 0x40, "a version beyond the limit"),
        (63, 0x40, "a writing beyond the limit"),
        (192, 1, "a bitmap beyond the columns"),
        (1159, 0x80, "a slab's version beyond the limit"),
        (2047, 1, "a reserved byte"),
    ] {
        let bytes = resealed(good.clone(), at, byte);
        assert_eq!(ChecksumBlock::decode(&bytes, &ID), Err(Malformed), "{why}");
    }
    assert_eq!(ChecksumBlock::decode(&[0; BLOCK], &ID), Err(Malformed));
}

#[test]
#[should_panic(expected = "unsound")]
fn a_block_without_columns_is_not_encoded() {
    ChecksumBlock { written: SmallVec::new(), ..mirror() }.encode(&ID);
}

#[test]
fn the_higher_version_and_then_the_higher_writing_is_newer() {
    let old = mirror();
    let rewritten = ChecksumBlock { writing: 4, ..mirror() };
    let new = ChecksumBlock { version: 0x1123, writing: 0, ..mirror() };
    for (a, b) in [(&old, &rewritten), (&rewritten, &new), (&old, &new)] {
        assert_eq!(newer(a, b).age(), b.age());
        assert_eq!(newer(b, a).age(), b.age());
    }
    let same = mirror();
    assert!(std::ptr::eq(newer(&old, &same), &raw const old), "the first of equal ones");
}

#[test]
fn blocks_lie_before_the_data_of_their_slab() {
    assert_eq!(position(1 << 20, 0), 1 << 20);
    assert_eq!(position(1 << 20, 511), (1 << 20) + 511 * 4096);
}

#[test]
fn the_memory_of_a_mirrors_group() {
    let block = ChecksumBlock { versions: [1, 2, 3].into_iter().collect(), ..mirror() };
    assert!(size_of::<ChecksumBlock>() <= 2355, "2.3 KiB: {}", size_of::<ChecksumBlock>());
    let back = ChecksumBlock::decode(&block.encode(&ID), &ID).unwrap();
    assert!(!back.written.spilled() && !back.versions.spilled());
}

mod checksums {
    use std::collections::HashMap;

    use super::*;

    const HERE: ContentId = ContentId { space: SpaceId(1), birth: 2, content: 3 };

    #[test]
    fn the_values() {
        // CRC32C of 32 zero bytes: RFC 3720, B.4.
        assert_eq!(HERE.checksum(4, &[0; 32]) ^ HERE.place_hash(4), 0x8a91_36aa);
        assert_eq!(HERE.place_hash(4), 0xd8e1_8ab9);
        assert_eq!(HERE.checksum(4, &[0; BLOCK]), 0x4018_cb30);
    }

    /// All small places, and places that differ from one of them in a single high bit of one field. The set is
    /// fixed, because two random places have the same hash once in 2^32 times.
    #[test]
    fn places_that_differ_in_any_field_have_different_hashes() {
        let mut places = Vec::new();
        for n in 0..8_u32 * 8 * 8 * 8 {
            let [space, birth, content, unit] = [n & 7, n >> 3 & 7, n >> 6 & 7, n >> 9];
            places.push((space, birth, content as u8, unit));
        }
        for bit in 3..32 {
            let far = 1 << bit;
            places.extend([(far, 2, 3, 4), (1, far, 3, 4)]);
        }
        places.extend((3..18).map(|bit| (1, 2, 3, 1 << bit)));
        places.extend((3..5).map(|bit| (1, 2, 1 << bit, 4)));
        let mut seen = HashMap::new();
        for place in places {
            let (space, birth, content, unit) = place;
            let hash = ContentId { space: SpaceId(space), birth, content }.place_hash(unit);
            assert_eq!(seen.insert(hash, place), None, "{place:?}");
        }
    }

    #[test]
    fn no_two_units_of_a_row_have_the_same_hash() {
        let of = |content| ContentId { content, ..HERE };
        let mut all: Vec<u32> = [0, 1, 7, 17]
            .into_iter()
            .flat_map(|c| (0..1 << 18).map(move |unit| of(c).place_hash(unit)))
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn a_checksum_depends_on_each_bit_of_the_unit() {
        let mut unit = vec![0x5a; BLOCK];
        let sum = HERE.checksum(4, &unit);
        for bit in 0..8 * BLOCK {
            unit[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(HERE.checksum(4, &unit), sum, "bit {bit}");
            unit[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
