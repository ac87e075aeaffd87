//! Journal records and headers: bytes in, values out. Maps in `docs/on-disk-format.md`.
//!
//! A record is whole or it is not there: its CRC is over all of it, and it counts only when its epoch is the
//! header's and its sequence the next one.

use arena::{IoBuf, Sg};

use crate::blocks::stripes::COLUMNS_MAX;
use crate::blocks::{u32_at, u64_at};
use crate::{PoolId, RowNumber, SpaceId, UNIT};

const MAGIC: &[u8; 8] = b"CWYJRNL1";
const HEADER_MAGIC: &[u8; 8] = b"CWYJHDR1";
const CRC_AT: usize = 8;
const HEAD: usize = 64;
const ENTRY: usize = 32;

/// The most units of a record.
pub const RECORD_MAX: u64 = 4096;

/// The subject of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Units of a stripe are to be written: they are in the record.
    Redo,
    /// A stripe that was not written before: its units lie in their places, durably.
    Fresh,
    /// The blocks of the stripe's group are about to be written. Nothing else.
    Touched,
}

/// The new state of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kind.
    pub kind: Kind,
    /// The row.
    pub row: RowNumber,
    /// The highest allocation generation of the row's slabs: with another one the row is not what it was, and
    /// the entry means nothing.
    pub birth: u32,
    /// The unit of every column that the stripe is.
    pub unit: u32,
    /// Data columns that are written; the others are zeros.
    pub written: u32,
    /// Columns whose sums are right.
    pub known: u32,
    /// Columns whose units follow, in order.
    pub payload: u32,
    /// For each column; [`Kind::Touched`] has none.
    pub sums: Vec<u32>,
}

/// The identity of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordId {
    /// The pool.
    pub pool: PoolId,
    /// The parity space.
    pub space: SpaceId,
    /// The epoch of the pool that it was written in.
    pub epoch: u64,
    /// One more for each record.
    pub sequence: u64,
}

/// Where reading begins; in two places that are written in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One more each time: the higher one counts.
    pub serial: u64,
    /// The epoch of the records that count.
    pub epoch: u64,
    /// Where the first of them is: units since the beginning of time, round and round the ring.
    pub tail: u64,
    /// Its sequence.
    pub sequence: u64,
}

/// Units of a record with entries of these kinds, for `columns` columns, and this many units of payload: an
/// upper bound, however it is combined.
pub fn units(entries: usize, columns: usize, payload: usize) -> u64 {
    let bytes = HEAD + entries * (ENTRY + 4 * columns);
    (bytes.div_ceil(UNIT as usize) + payload) as u64
}

/// The bytes of a record; `payload` has the units of all entries, in order.
pub fn encode(id: &RecordId, columns: usize, entries: &[Entry], payload: &[IoBuf]) -> Sg {
    assert!(columns <= COLUMNS_MAX);
    let mut b = vec![0; HEAD];
    b[0..8].copy_from_slice(MAGIC);
    b[16..32].copy_from_slice(&id.pool.0);
    b[32..36].copy_from_slice(&id.space.0.to_le_bytes());
    b[36..40].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    b[40..48].copy_from_slice(&id.epoch.to_le_bytes());
    b[48..56].copy_from_slice(&id.sequence.to_le_bytes());
    b[60] = columns as u8;
    for e in entries {
        let kind = match e.kind {
            Kind::Redo => 0_u32,
            Kind::Fresh => 1,
            Kind::Touched => 2,
        };
        for field in [kind, e.row.0, e.birth, e.unit, e.written, e.known, e.payload, 0] {
            b.extend_from_slice(&field.to_le_bytes());
        }
        let sums = e.sums.iter().copied().chain(std::iter::repeat(0)).take(columns);
        sums.for_each(|s| b.extend_from_slice(&s.to_le_bytes()));
    }
    b.resize(b.len().next_multiple_of(UNIT as usize), 0);
    let units = (b.len() as u64 / UNIT) as u32 + payload.len() as u32;
    b[56..60].copy_from_slice(&units.to_le_bytes());
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&b);
    payload.iter().for_each(|p| digest.update(p));
    b[CRC_AT..CRC_AT + 4].copy_from_slice(&(digest.finalize() as u32).to_le_bytes());
    let mut out = Sg::new();
    out.push(IoBuf::from(b));
    out.extend(payload.iter().cloned());
    out
}

/// How many units the record has that begins with this one; `None` when none begins here.
pub fn length(first: &[u8], id: &RecordId) -> Option<u64> {
    if first.len() < HEAD || !is_this(first, id) {
        return None;
    }
    let units = u64::from(u32_at(first, 56));
    (1..=RECORD_MAX).contains(&units).then_some(units)
}

fn is_this(b: &[u8], id: &RecordId) -> bool {
    &b[0..8] == MAGIC
        && b[16..32] == id.pool.0
        && u32_at(b, 32) == id.space.0
        && u64_at(b, 40) == id.epoch
        && u64_at(b, 48) == id.sequence
}

/// The entries of a record, each with its units; `None` when it is not whole, or not this one.
pub fn decode(b: &IoBuf, id: &RecordId, columns: usize) -> Option<Vec<(Entry, Vec<IoBuf>)>> {
    let unit = UNIT as usize;
    if length(b, id)? * UNIT != b.len() as u64 || usize::from(b[60]) != columns {
        return None;
    }
    if u32_at(b, CRC_AT) != crate::blocks::crc_without(b, CRC_AT) {
        return None;
    }
    let (count, size) = (u32_at(b, 36) as usize, ENTRY + 4 * columns);
    let mut next = HEAD.checked_add(count.checked_mul(size)?)?.next_multiple_of(unit);
    if next > b.len() {
        return None;
    }
    let mut out = Vec::with_capacity(count);
    for at in (0..count).map(|i| HEAD + i * size) {
        let field = |i: usize| u32_at(b, at + 4 * i);
        let entry = Entry {
            kind: [Kind::Redo, Kind::Fresh, Kind::Touched].get(field(0) as usize).copied()?,
            row: RowNumber(field(1)),
            birth: field(2),
            unit: field(3),
            written: field(4),
            known: field(5),
            payload: field(6),
            sums: (0..columns).map(|c| u32_at(b, at + ENTRY + 4 * c)).collect(),
        };
        let many = entry.payload.count_ones() as usize;
        if next + many * unit > b.len() || (entry.payload | entry.known | entry.written) >> columns != 0 {
            return None;
        }
        let units = (0..many).map(|i| b.slice(next + i * unit..next + (i + 1) * unit)).collect();
        next += many * unit;
        out.push((entry, units));
    }
    Some(out)
}

/// The bytes of a header.
pub fn encode_header(pool: PoolId, space: SpaceId, h: &Header) -> Vec<u8> {
    let mut b = vec![0; UNIT as usize];
    b[0..8].copy_from_slice(HEADER_MAGIC);
    b[16..32].copy_from_slice(&pool.0);
    b[32..36].copy_from_slice(&space.0.to_le_bytes());
    for (at, field) in [(40, h.serial), (48, h.epoch), (56, h.tail), (64, h.sequence)] {
        b[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
    let crc = crate::blocks::crc_without(&b, CRC_AT);
    b[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    b
}

/// The contents of a header; `None` if it is incomplete, or of another space.
pub fn decode_header(b: &[u8], pool: PoolId, space: SpaceId) -> Option<Header> {
    let whole = b.len() == UNIT as usize
        && &b[0..8] == HEADER_MAGIC
        && b[16..32] == pool.0
        && u32_at(b, 32) == space.0
        && u32_at(b, CRC_AT) == crate::blocks::crc_without(b, CRC_AT);
    let field = |at| u64_at(b, at);
    whole.then(|| Header { serial: field(40), epoch: field(48), tail: field(56), sequence: field(64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: RecordId =
        RecordId { pool: PoolId(*b"pool of 16 bytes"), space: SpaceId(0x0102), epoch: 3, sequence: 0x0405 };

    fn entries() -> Vec<Entry> {
        let one = Entry {
            kind: Kind::Redo,
            row: RowNumber(1),
            birth: 2,
            unit: 3,
            written: 0b11,
            known: 0b111,
            payload: 0b101,
            sums: vec![7, 8, 9],
        };
        let fresh = Entry { kind: Kind::Fresh, unit: 9, payload: 0, ..one.clone() };
        let touched = Entry { kind: Kind::Touched, sums: vec![0; 3], payload: 0, ..one.clone() };
        vec![fresh, one, touched]
    }

    fn whole(sg: &Sg) -> IoBuf {
        IoBuf::from(arena::sg_to_vec(sg))
    }

    #[test]
    fn the_bytes() {
        let payload = [IoBuf::from(vec![0xaa; 4096]), IoBuf::from(vec![0xbb; 4096])];
        let b = whole(&encode(&ID, 3, &entries(), &payload));
        assert_eq!((b.len() as u64 / UNIT, units(3, 3, 2)), (3, 3));
        assert_eq!((&b[0..8], &b[12..16]), (&b"CWYJRNL1"[..], &[0; 4][..]));
        assert_eq!(u32_at(&b, 8), crate::blocks::crc_without(&b, 8));
        assert_eq!(
            &b[32..64],
            &[2, 1, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0]
        );
        assert_eq!(&b[108..120], &[0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0], "the second entry");
        assert_eq!(length(&b[..4096], &ID), Some(3));
        let back = decode(&b, &ID, 3).unwrap();
        assert_eq!(back.iter().map(|(e, _)| e.clone()).collect::<Vec<_>>(), entries());
        assert_eq!((back[0].1.len(), back[1].1.len(), &back[1].1[1][..]), (0, 2, &[0xbb; 4096][..]));
    }

    #[test]
    fn what_is_refused() {
        let b = whole(&encode(&ID, 3, &entries(), &[IoBuf::from(vec![1; 4096]), IoBuf::from(vec![2; 4096])]));
        for at in (0..HEAD + 200).chain([4096, 12287]) {
            let mut bad = b.to_vec();
            bad[at] ^= 4;
            assert!(decode(&IoBuf::from(bad), &ID, 3).is_none(), "byte {at}");
        }
        assert!(decode(&b.slice(0..8192), &ID, 3).is_none());
        assert!(decode(&b, &ID, 4).is_none());
        assert!(decode(&b, &RecordId { sequence: 1, ..ID }, 3).is_none());
        assert!(decode(&b, &RecordId { epoch: 2, ..ID }, 3).is_none());
        // One that says more payload than there is, with a good CRC.
        let mut more = entries();
        more[0].payload = 0b111;
        assert!(decode(&whole(&encode(&ID, 3, &more, &[IoBuf::from(vec![1; 4096])])), &ID, 3).is_none());
        more[0].payload = 0b1000;
        assert!(decode(&whole(&encode(&ID, 3, &more, &[])), &ID, 3).is_none());
    }

    #[test]
    fn headers() {
        let h = Header { serial: 5, epoch: 6, tail: 7, sequence: 8 };
        let b = encode_header(ID.pool, ID.space, &h);
        assert_eq!(decode_header(&b, ID.pool, ID.space), Some(h));
        assert_eq!(decode_header(&b, ID.pool, SpaceId(1)), None);
        assert_eq!(decode_header(&[0; 4096], ID.pool, ID.space), None);
        for at in 0..b.len() {
            let mut bad = b.clone();
            bad[at] ^= 1;
            assert_eq!(decode_header(&bad, ID.pool, ID.space), None, "byte {at}");
        }
    }
}
