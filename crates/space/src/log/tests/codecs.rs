use pool_seam::RowNumber;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{hash, values};
use crate::log::BLOCK;
use crate::log::entry::{self, Change, Entry, FirstStripe, FirstUnit, Malformed, RedoStripe, Stripe, Sums};
use crate::log::header::{Closed, Header, Key, Segment, older};
use crate::log::record::{self, Head, RecordId};
use crate::log::ring::{Point, Ring};

const KEY: Key = Key(*b"key of sixteen b");
const ID: RecordId = RecordId { epoch: 3, sequence: 0x0405, position: 900, confirmed: 0x0403 };

fn encoded(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    entry::encode(entries, &mut out);
    out
}

/// The head, the entries and the payload of a whole record, as replay decodes them.
fn decode(bytes: &[u8], key: &Key) -> Result<(Head, Vec<Entry>), Malformed> {
    let head = Head::decode(bytes, key)?;
    let entries = head.entries(bytes)?;
    let payload = &bytes[usize::from(head.head_blocks) * BLOCK..];
    record::verify_payload(&entries, payload, hash).map(|()| (head, entries))
}

/// A record with payload of these bytes.
fn record(seeds: &[u8], others: &[Entry]) -> Vec<u8> {
    let (mut payload, mut stripes) = (Vec::new(), Vec::new());
    for (i, seed) in seeds.iter().enumerate() {
        let place =
            entry::UnitPlace { row: RowNumber(1), birth: 2, content: i as u8 % 3, unit: 7 + i as u32 / 3 };
        let unit: Vec<u8> = (0..BLOCK).map(|at| seed.wrapping_mul(at as u8 | 1)).collect();
        let sum = crc_fast::crc32_iscsi(&unit) ^ hash(&place);
        payload.extend(unit);
        if i % 3 == 0 {
            stripes.push(RedoStripe {
                stripe: Stripe { written: 0b11, known: 0, sums: Sums::new() },
                payload: 0,
            });
        }
        let last = stripes.last_mut().unwrap();
        last.payload |= 1 << place.content;
        last.stripe.known |= 1 << place.content;
        last.stripe.sums.push(sum);
    }
    let mut entries = others.to_vec();
    entries.retain(|entry| entry.payload().next().is_none());
    if !stripes.is_empty() {
        entries.push(
            Change::Redo { first: FirstStripe { row: RowNumber(1), birth: 2, unit: 7 }, stripes }.into(),
        );
    }
    let mut bytes = record::encode(&ID, &KEY, &entries);
    bytes.extend(payload);
    bytes
}

proptest! {
    #[test]
    fn entries_come_back(entries in vec(values::entry(), 0..20)) {
        let bytes = encoded(&entries);
        prop_assert_eq!(entries.iter().map(Entry::bytes).sum::<usize>(), bytes.len());
        prop_assert_eq!(entry::decode(&bytes), Ok(entries));
    }

    /// Bytes that decode are the encoding of their value, so no two encodings have one value.
    #[test]
    fn entries_have_one_encoding(
        entries in vec(values::entry(), 1..6),
        cut in any::<Index>(),
        at in any::<Index>(),
        byte in any::<u8>(),
        noise in vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = encoded(&entries);
        let cut = cut.index(bytes.len());
        if let Ok(fewer) = entry::decode(&bytes[..cut]) {
            prop_assert_eq!(&entries[..fewer.len()], &fewer[..], "cut between two entries only");
            prop_assert_eq!(encoded(&fewer).len(), cut);
        }
        let at = at.index(bytes.len());
        bytes[at] = byte;
        for bytes in [&bytes, &noise] {
            if let Ok(entries) = entry::decode(bytes) {
                prop_assert_eq!(&encoded(&entries), bytes);
            }
        }
    }

    #[test]
    fn headers_come_back(header in values::header()) {
        let bytes = header.encode(&values::ID);
        prop_assert_eq!(bytes.len(), BLOCK);
        prop_assert_eq!(Header::decode(&bytes, &values::ID), Ok(header));
    }

    #[test]
    fn a_changed_header_is_refused(
        header in values::header(),
        at in 0..BLOCK,
        bit in 0..8_u32,
        noise in vec(any::<u8>(), BLOCK),
    ) {
        let mut bytes = header.encode(&values::ID);
        prop_assert!(Header::decode(&bytes[..at], &values::ID).is_err());
        bytes[at] ^= 1 << bit;
        prop_assert!(Header::decode(&bytes, &values::ID).is_err());
        prop_assert!(Header::decode(&noise, &values::ID).is_err());
    }

    /// A matching checksum does not make the contents valid: every header that decodes is the encoding of its value.
    #[test]
    fn headers_have_one_encoding(header in values::header(), at in 12..700_usize, byte in any::<u8>()) {
        let mut bytes = header.encode(&values::ID);
        bytes[at] = byte;
        bytes[8..12].fill(0);
        let crc = crc_fast::crc32_iscsi(&bytes);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        if let Ok(header) = Header::decode(&bytes, &values::ID) {
            prop_assert_eq!(header.encode(&values::ID), bytes);
        }
    }

    #[test]
    fn records_come_back(entries in vec(values::entry(), 0..30), seeds in vec(any::<u8>(), 0..5)) {
        let bytes = record(&seeds, &entries);
        let (head, back) = decode(&bytes, &KEY).unwrap();
        prop_assert_eq!(head.id, ID);
        prop_assert_eq!(head.blocks() as usize * BLOCK, bytes.len());
        prop_assert_eq!(usize::from(head.payload_units), seeds.len());
        let mut again = record::encode(&head.id, &KEY, &back);
        prop_assert_eq!(head.payload() as usize * BLOCK, ID.position as usize * BLOCK + again.len());
        again.extend(&bytes[again.len()..]);
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn a_changed_record_is_refused(
        entries in vec(values::entry(), 0..30),
        seeds in vec(any::<u8>(), 0..5),
        at in any::<Index>(),
        bit in 0..8_u32,
        block in any::<Index>(),
        noise in vec(any::<u8>(), BLOCK),
    ) {
        let mut bytes = record(&seeds, &entries);
        prop_assert!(decode(&bytes, &Key([1; 16])).is_err());
        prop_assert!(decode(&bytes[..at.index(bytes.len())], &KEY).is_err());
        // A torn write: one block keeps its old bytes.
        let block = block.index(bytes.len() / BLOCK) * BLOCK;
        let mut torn = bytes.clone();
        torn[block..block + BLOCK].copy_from_slice(&noise);
        prop_assert!(decode(&torn, &KEY).is_err());
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(decode(&bytes, &KEY).is_err());
    }

    /// Arbitrary numbers and bodies with the right key: refused, or equal to the encoding of their value.
    #[test]
    fn records_that_were_never_written(
        seeds in vec(any::<u8>(), 0..3),
        entries in vec(values::entry(), 0..3),
        changes in vec((4..300_usize, any::<u8>()), 1..4),
    ) {
        let mut bytes = record(&seeds, &entries);
        changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        let length = u32::from_le_bytes([bytes[40], bytes[41], bytes[42], bytes[43]]) as usize;
        if let Some(body) = bytes.get(56..56 + length) {
            let crc = crc_fast::crc32_iscsi(body);
            bytes[44..48].copy_from_slice(&crc.to_le_bytes());
        }
        let check = siphasher::sip::SipHasher24::new_with_key(&KEY.0).hash(&bytes[..48]);
        bytes[48..56].copy_from_slice(&check.to_le_bytes());
        if let Ok((head, entries)) = decode(&bytes, &KEY) {
            let again = record::encode(&head.id, &KEY, &entries);
            prop_assert_eq!(&again[..], &bytes[..again.len()]);
        }
    }
}

#[test]
fn the_bytes_of_entries() {
    let first = FirstUnit { row: RowNumber(1), birth: 2, content: 0, column: 3, unit: 4 };
    let written = encoded(&[Change::Written { first, sums: Sums::from_slice(&[0x0a0b_0c0d]) }.into()]);
    let expected =
        [1, 0, 1, 0, 20, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a];
    assert_eq!(written, expected, "28 bytes for one unit");
    let stripe = Stripe { written: 0b1111, known: 0b1_1111, sums: Sums::from_slice(&[9, 8, 7, 6, 5]) };
    let redo = Entry::from(Change::Redo {
        first: FirstStripe { row: RowNumber(1), birth: 2, unit: 3 },
        stripes: vec![RedoStripe { stripe, payload: 0b1_0001 }],
    });
    let bytes = encoded(std::slice::from_ref(&redo));
    assert_eq!(bytes.len(), 52, "a redo entry of one unit of 4 + 1");
    assert_eq!(bytes[20..36], [15, 0, 0, 0, 31, 0, 0, 0, 17, 0, 0, 0, 9, 0, 0, 0]);
    let payload: Vec<_> = redo.payload().map(|(place, sum)| (place.content, place.unit, sum)).collect();
    assert_eq!(payload, [(0, 3, 9), (4, 3, 5)]);
    assert_eq!(encoded(&[Change::SnapshotEnds.into()]), [13, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn entries_that_are_refused() {
    let first = FirstUnit { row: RowNumber(1), birth: 2, content: 0, column: 3, unit: 4 };
    let good = encoded(&[Change::Discarded { first, count: 1 }.into()]);
    assert!(entry::decode(&good).is_ok());
    for (at, byte, why) in [
        (0, 0, "an unknown kind"),
        (0, 14, "an unknown kind"),
        (2, 0, "no units"),
        (4, 17, "more bytes than there are"),
        (17, 1, "a reserved byte"),
        (0, 12, "fields of another length"),
        (0, 0x87, "an unconfirmed entry that is not about units"),
    ] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert_eq!(entry::decode(&bytes), Err(Malformed), "{why}");
    }
    let mut last = good;
    last[20..24].fill(0xff);
    assert!(entry::decode(&last).is_ok(), "the last unit of 2^32");
    last[2] = 2;
    assert_eq!(entry::decode(&last), Err(Malformed), "a unit beyond 2^32");
    let mut stripes = vec![5, 0, 0xff, 0xff, 12, 0, 0, 0];
    stripes.extend([0; 12]);
    assert_eq!(entry::decode(&stripes), Err(Malformed), "65,535 stripes in no bytes");
    for (kind, bytes, at) in [(9_u8, 12_u8, 0), (10, 28, 4), (10, 28, 12)] {
        let mut fields = vec![0; usize::from(bytes)];
        fields[at + 7] = 0x40;
        let entry = [&[kind, 0, 0, 0, bytes, 0, 0, 0][..], &fields].concat();
        assert_eq!(entry::decode(&entry), Err(Malformed), "a counter of 2^62 in kind {kind}");
    }
    let annex = [11, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(entry::decode(&annex), Err(Malformed), "a value of 4 GiB");
}

#[test]
fn the_payload_of_the_last_unit_has_a_place() {
    let stripe = Stripe { written: 1, known: 1, sums: Sums::from_slice(&[9]) };
    let first = FirstStripe { row: RowNumber(1), birth: 2, unit: u32::MAX };
    let redo = Entry::from(Change::Redo { first, stripes: vec![RedoStripe { stripe, payload: 1 }] });
    let redo = entry::decode(&encoded(&[redo])).unwrap().remove(0);
    assert_eq!(redo.payload().map(|(place, _)| place.unit).collect::<Vec<_>>(), [u32::MAX]);
}

fn segment(epoch: u64, position: u64, end: Option<u64>) -> Segment {
    let closed = end.map(|end| Closed { end, confirmed: 1 });
    Segment { epoch, log: 0x55, key: KEY, first: Point { position, sequence: 1 + position }, closed }
}

fn header(serial: u64, segments: Vec<Segment>) -> Header {
    let ring = Ring::new(256).unwrap();
    Header { serial, ring, tail: Point { position: 3, sequence: 4 }, joined: 5, segments }
}

#[test]
fn the_bytes_of_headers() {
    let bytes = header(9, vec![segment(7, 2, Some(6)), segment(8, 6, None)]).encode(&values::ID);
    assert_eq!(&bytes[0..8], b"CWYLOGH1");
    assert_eq!(bytes[12..16], [2, 1, 0, 0]);
    assert_eq!(&bytes[16..32], b"pool of 16 bytes");
    assert_eq!(bytes[32..41], [2, 0, 0, 0, 77, 0, 0, 0, 9]);
    for (at, field) in [(48, 256), (56, 3), (64, 4), (72, 5), (128, 7), (136, 0x55), (160, 2), (168, 3)] {
        assert_eq!(bytes[at..at + 8], u64::to_le_bytes(field), "at {at}");
    }
    assert_eq!(&bytes[144..160], &KEY.0);
    assert_eq!(bytes[176..192], [6, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[240..248], [0xff; 8], "the open segment");
}

#[test]
fn headers_of_others_are_refused() {
    use pool_seam::{PoolId, SpaceId};
    let bytes = header(9, vec![segment(7, 2, None)]).encode(&values::ID);
    let id = values::ID;
    for other in [
        super::super::header::ReplicaId { pool: PoolId([0; 16]), ..id },
        super::super::header::ReplicaId { space: SpaceId(1), ..id },
        super::super::header::ReplicaId { allocation: 76, ..id },
    ] {
        assert_eq!(Header::decode(&bytes, &other), Err(Malformed), "{other:?}");
    }
}

#[test]
fn the_newer_header_counts_and_the_older_is_overwritten() {
    let old = header(9, vec![segment(7, 2, None)]);
    let new = header(10, vec![segment(7, 2, None)]);
    let newest = header(1, vec![segment(7, 2, Some(2)), segment(8, 2, None)]);
    for (a, b, expected) in
        [(&old, &new, &new), (&new, &old, &new), (&new, &newest, &newest), (&newest, &old, &newest)]
    {
        assert_eq!(Header::newest([Some(a.clone()), Some(b.clone())]).as_ref(), Some(expected));
        let place = older(Some(a), Some(b));
        assert_ne!([a, b][place], expected);
    }
    assert_eq!(Header::newest([None, Some(old.clone())]), Some(old.clone()));
    assert_eq!(Header::newest([Some(old.clone()), None]), Some(old.clone()));
    assert_eq!(Header::newest([None, None]), None);
    assert_eq!((older(None, Some(&old)), older(Some(&old), None), older(None, None)), (0, 1, 0));
}

#[test]
fn the_bytes_of_records() {
    let first = FirstUnit { row: RowNumber(1), birth: 2, content: 0, column: 3, unit: 4 };
    let unit = Entry::from(Change::Written { first, sums: Sums::from_slice(&[1]) });
    let bytes = record::encode(&ID, &KEY, &vec![unit.clone(); 144]);
    assert_eq!(bytes.len(), BLOCK, "144 random units fit into one block");
    assert_eq!(record::encode(&ID, &KEY, &vec![unit; 145]).len(), 2 * BLOCK);
    assert_eq!(bytes[0..8], *b"CWLR\x01\0\0\0");
    assert_eq!(bytes[8..24], [3, 0, 0, 0, 0, 0, 0, 0, 5, 4, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[24..32], 900_u64.to_le_bytes());
    assert_eq!(bytes[32..40], 0x0403_u64.to_le_bytes());
    assert_eq!(bytes[40..44], 4032_u32.to_le_bytes());
    // The vector of the SipHash-2-4 paper: key 00 to 0f, input 00 to 0e.
    let key: [u8; 16] = std::array::from_fn(|i| i as u8);
    let input: [u8; 15] = std::array::from_fn(|i| i as u8);
    assert_eq!(siphasher::sip::SipHasher24::new_with_key(&key).hash(&input), 0xa129_ca61_49be_45e5);
}

#[test]
fn a_torn_unit_or_body_is_refused() {
    let mut bytes = record(&[1, 2, 3], &[]);
    assert!(decode(&bytes, &KEY).is_ok());
    assert_eq!(decode(&bytes[..BLOCK], &KEY), Err(Malformed), "no payload");
    bytes[2 * BLOCK + 5] ^= 1;
    assert_eq!(decode(&bytes, &KEY), Err(Malformed), "a unit of the payload");
    bytes[2 * BLOCK + 5] ^= 1;
    bytes[56] ^= 1;
    assert_eq!(decode(&bytes, &KEY), Err(Malformed), "the body");
}
