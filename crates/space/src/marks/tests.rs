use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::codec::resealed;

const ID: MarkId =
    MarkId { pool: PoolId(*b"pool of 16 bytes"), disk: DiskNumber(0x0304), space: SpaceId(0x0102) };
const MARK: Mark = Mark { epoch: 7 << 20, count: 9, mark: 0x1122 };

fn mark() -> impl Strategy<Value = Mark> {
    let counter = || prop_oneof![0..4_u64, 0..1_u64 << 62];
    (counter(), counter(), counter()).prop_map(|(epoch, count, mark)| Mark { epoch, count, mark })
}

proptest! {
    #[test]
    fn marks_come_back(mark in mark()) {
        let block = mark.encode(&ID);
        prop_assert_eq!(block.len(), BLOCK);
        prop_assert_eq!(Mark::decode(&block, &ID, place(mark.count)), Ok(mark));
        prop_assert_eq!(
            Mark::decode(&block, &ID, 1 - place(mark.count)),
            Err(Malformed)
        );
    }

    /// A matching checksum does not make the contents valid: every mark that decodes is the encoding of its value.
    #[test]
    fn marks_have_one_encoding(mark in mark(), at in 12..100_usize, byte in any::<u8>()) {
        let block = resealed(mark.encode(&ID), at, byte);
        for in_place in [0, 1] {
            if let Ok(mark) = Mark::decode(&block, &ID, in_place) {
                prop_assert_eq!(mark.encode(&ID), &block[..]);
            }
        }
    }

    #[test]
    fn cuts_and_garbage_are_damaged(mark in mark(), at in 1..BLOCK, noise in vec(any::<u8>(), 1..2 * BLOCK)) {
        let mut block = mark.encode(&ID);
        prop_assert_eq!(Mark::decode(&block[..at], &ID, 0), Err(Malformed));
        prop_assert_eq!(Mark::decode(&noise, &ID, 0), Err(Malformed));
        block[8..].fill(0);
        prop_assert_eq!(Mark::decode(&block, &ID, 0), Err(Malformed));
    }

    /// An owner and its successors write marks alternately, and a power cut may interrupt each write. An interrupted
    /// write damages at most its own place, so the newest mark is the last complete one.
    #[test]
    fn a_cut_write_leaves_the_mark_before_it(writes in vec((any::<bool>(), any::<bool>()), 1..20)) {
        let mut slot = [vec![0; BLOCK], vec![0; BLOCK]];
        let (mut expected, mut epoch) = (None, 1);
        for (is_new_owner, is_cut) in writes {
            epoch += u64::from(is_new_owner);
            let newest: Option<Mark> = expected;
            let count = newest.map_or(0, |mark| mark.count) + 1;
            let next = Mark { epoch, count, mark: count };
            let block = next.encode(&ID);
            let at = &mut slot[place(count)];
            at[..56].copy_from_slice(&block[..56]);
            if !is_cut {
                at.copy_from_slice(&block);
                expected = Some(next);
            }
            let places = [0, 1].map(|place| Mark::decode(&slot[place], &ID, place).ok());
            prop_assert_eq!(Mark::newest(places), expected);
        }
    }
}

#[test]
fn the_bytes_of_marks() {
    let block = MARK.encode(&ID);
    assert_eq!(&block[0..8], b"CWYMARK1");
    assert_eq!(block[8..12], 0x1cf5_c753_u32.to_le_bytes());
    assert_eq!(block[12..16], [2, 1, 0, 0]);
    assert_eq!(&block[16..32], b"pool of 16 bytes");
    assert_eq!(block[32..40], [4, 3, 0, 0, 0, 0, 0, 0]);
    for (at, field) in [(40, 7 << 20), (48, 9), (56, 0x1122)] {
        assert_eq!(block[at..at + 8], u64::to_le_bytes(field), "at {at}");
    }
    assert!(is_zeros(&block[64..]) && block.len() == 4096);
}

#[test]
fn every_flipped_bit_is_damage() {
    let mut block = MARK.encode(&ID);
    for bit in 0..8 * BLOCK {
        block[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Mark::decode(&block, &ID, 1), Err(Malformed), "bit {bit}");
        block[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(Mark::decode(&block, &ID, 1), Ok(MARK));
}

#[test]
fn marks_of_others_are_refused() {
    let block = MARK.encode(&ID);
    for other in [
        MarkId { pool: PoolId([0; 16]), ..ID },
        MarkId { disk: DiskNumber(4), ..ID },
        MarkId { space: SpaceId(2), ..ID },
    ] {
        assert_eq!(Mark::decode(&block, &other, 1), Err(Malformed), "{other:?}");
    }
    assert_eq!(Mark::decode(&[0; BLOCK], &ID, 0), Err(Malformed));
    assert_eq!(Mark::decode(&[], &ID, 0), Err(Malformed));
    for (at, byte) in [(34, 1), (39, 1), (47, 0x40), (55, 0x40), (63, 0x40), (64, 1), (72, 1), (4095, 1)] {
        let block = resealed(block.clone(), at, byte);
        assert_eq!(Mark::decode(&block, &ID, 1), Err(Malformed), "byte {at}");
    }
}

#[test]
fn the_higher_epoch_and_then_the_higher_count_is_newer() {
    let successor = Mark { epoch: MARK.epoch + 1, count: 2, mark: 0 };
    let later = Mark { count: 10, mark: 0, ..MARK };
    for (a, b, expected) in
        [(MARK, successor, successor), (MARK, later, later), (later, successor, successor)]
    {
        assert_eq!(Mark::newest([Some(a), Some(b)]), Some(expected));
        assert_eq!(Mark::newest([Some(b), Some(a)]), Some(expected));
    }
    assert_eq!(Mark::newest([Some(MARK), None]), Some(MARK));
    assert_eq!(Mark::newest([None, Some(MARK)]), Some(MARK));
    assert_eq!(Mark::newest([None, None]), None);
}

#[test]
fn slots_lie_side_by_side() {
    assert_eq!((place(8), place(9)), (0, 1));
    assert_eq!(position(0x20000, 0, 0), 0x20000);
    assert_eq!(position(0x20000, 0, 1), 0x21000);
    assert_eq!(position(0x20000, 3, place(9)), 0x20000 + 3 * 8192 + 4096);
    assert_eq!(position(0x20000, SLOTS_MAX - 1, 1) + 4096, 0x20000 + (32 << 20), "the largest area");
}

#[test]
#[should_panic(expected = "slot 4096")]
fn a_slot_that_no_disk_has() {
    position(0, SLOTS_MAX, 0);
}
