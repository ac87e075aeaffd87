//! The header of a log's replica: `docs/on-disk-format.md`, "The space log", "Header".
//!
//! A header is one block. A replica has two slots for it, in blocks 0 and 1 of its slab's data. A writer overwrites the
//! older one, so that an interrupted write leaves the newer one intact.

use std::fmt;

use pool_seam::{PoolId, SpaceId};

use super::ring::{Point, Ring};
use super::{BLOCK, COUNTER_MAX};
use crate::codec::{Malformed, Reader, crc_of, is_zeros, seal};

/// The most segments of a header.
pub const SEGMENTS_MAX: usize = 32;

const MAGIC: &[u8; 8] = b"CWYLOGH1";
const SEGMENTS_AT: usize = 128;
const OPEN: u64 = u64::MAX;

/// The replica that a header belongs to; a header of another replica is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct ReplicaId {
    pub pool: PoolId,
    pub space: SpaceId,
    /// The generation with which the replica's slab was allocated.
    pub allocation: u32,
}

/// The location of a log's records, and the owners that wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Incremented with each header of the space.
    pub serial: u64,
    /// The ring.
    pub ring: Ring,
    /// The first valid record.
    pub tail: Point,
    /// The position from which on this replica has every record.
    pub joined: u64,
    /// 1 to [`SEGMENTS_MAX`] segments, oldest first; the last one is open, and no other.
    pub segments: Vec<Segment>,
}

/// The part of a log that one owner wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The owner's epoch of the space.
    pub epoch: u64,
    /// The log's identity: random.
    pub log: u64,
    /// The key of the records' message authentication.
    pub key: Key,
    /// The position and sequence of its first record.
    pub first: Point,
    /// How it ended; `None` while it is open.
    pub closed: Option<Closed>,
}

/// The end of a closed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The position after its last record.
    pub end: u64,
    /// The highest sequence that was confirmed when the next owner read it.
    pub confirmed: u64,
}

/// A random key of SipHash. `Debug` hides its bytes, because records can be forged with a known key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; 16]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Header {
    /// The block of a replica's header.
    ///
    /// # Panics
    /// If the segments break the rules that [`Header::decode`] checks.
    pub fn encode(&self, id: &ReplicaId) -> Vec<u8> {
        assert!(self.is_sound(), "an unsound header: {self:?}");
        let mut b = Vec::with_capacity(BLOCK);
        b.extend(MAGIC);
        b.extend([0; 4]);
        b.extend(id.space.0.to_le_bytes());
        b.extend(id.pool.0);
        b.extend([self.segments.len() as u8, 0, 0, 0]);
        b.extend(id.allocation.to_le_bytes());
        let (tail, ring) = (self.tail, self.ring.blocks());
        for field in [self.serial, ring, tail.position, tail.sequence, self.joined] {
            b.extend(field.to_le_bytes());
        }
        b.resize(SEGMENTS_AT, 0);
        self.segments.iter().for_each(|segment| segment.put(&mut b));
        b.resize(BLOCK, 0);
        seal(&mut b);
        b
    }

    /// Decodes the header in a block of a replica. Refuses one of another replica or allocation.
    pub fn decode(block: &[u8], id: &ReplicaId) -> Result<Header, Malformed> {
        if block.len() != BLOCK {
            return Err(Malformed);
        }
        let mut r = Reader(block);
        let ours = r.array()? == *MAGIC
            && r.u32()? == crc_of(block)
            && r.u32()? == id.space.0
            && r.array()? == id.pool.0;
        if !ours {
            return Err(Malformed);
        }
        let count = usize::from(r.u8()?);
        r.zeros(3)?;
        if r.u32()? != id.allocation || count > SEGMENTS_MAX {
            return Err(Malformed);
        }
        let serial = r.counter()?;
        let ring = Ring::new(r.u64()?).ok_or(Malformed)?;
        let tail = Point { position: r.counter()?, sequence: r.counter()? };
        let joined = r.counter()?;
        r.zeros(SEGMENTS_AT - 80)?;
        let segments = (0..count).map(|_| Segment::get(&mut r)).collect::<Result<_, _>>()?;
        let header = Header { serial, ring, tail, joined, segments };
        if header.is_sound() && is_zeros(r.0) { Ok(header) } else { Err(Malformed) }
    }

    /// The current header of a replica's two slots; `None` if neither slot has a valid one.
    pub fn newest(places: [Option<Header>; 2]) -> Option<Header> {
        let [a, b] = places;
        if older(a.as_ref(), b.as_ref()) == 0 { b } else { a }
    }

    /// The next header, with a tail at or after this one's. Segments that end before the tail or have no records are
    /// dropped.
    pub fn next(mut self, tail: Point) -> Header {
        let has_records = |end: u64, first: u64| end > first.max(tail.position);
        self.segments.retain(|s| s.closed.is_none_or(|closed| has_records(closed.end, s.first.position)));
        let tail = tail.max(self.segments[0].first);
        Header { serial: self.serial + 1, tail, ..self }
    }

    /// The age, to order the headers of a space: by the epoch of the last segment, then by serial.
    pub fn age(&self) -> (u64, u64) {
        (self.open().epoch, self.serial)
    }

    /// The open segment.
    pub fn open(&self) -> &Segment {
        self.segments.last().expect("a header has segments")
    }

    /// The index of the segment that a position belongs to; positions before the first segment have none.
    pub fn segment_at(&self, position: u64) -> Option<usize> {
        self.segments.iter().rposition(|segment| segment.first.position <= position)
    }

    fn is_sound(&self) -> bool {
        let follows = |a: &Segment, b: &Segment| {
            let end = a.closed.is_some_and(|c| (a.first.position..=b.first.position).contains(&c.end));
            end && a.epoch < b.epoch && a.first.sequence <= b.first.sequence
        };
        let begins = |first: &Segment| {
            first.first.position <= self.tail.position && first.first.sequence <= self.tail.sequence
        };
        let counters = [self.serial, self.tail.position, self.tail.sequence, self.joined];
        self.segments.len() <= SEGMENTS_MAX
            && self.segments.first().is_some_and(begins)
            && self.segments.last().is_some_and(|last| last.closed.is_none() && last.epoch < COUNTER_MAX)
            && self.segments.is_sorted_by(follows)
            && counters.iter().all(|counter| *counter < COUNTER_MAX)
    }
}

/// The slot, 0 or 1, for the next header of a replica: the one without a valid header, or with the older one.
pub fn older(first: Option<&Header>, second: Option<&Header>) -> usize {
    usize::from(first.map(Header::age) > second.map(Header::age))
}

impl Segment {
    fn put(&self, out: &mut Vec<u8>) {
        let Closed { end, confirmed } = self.closed.unwrap_or(Closed { end: OPEN, confirmed: 0 });
        out.extend(self.epoch.to_le_bytes());
        out.extend(self.log.to_le_bytes());
        out.extend(self.key.0);
        for field in [self.first.position, self.first.sequence, end, confirmed] {
            out.extend(field.to_le_bytes());
        }
    }

    fn get(r: &mut Reader<'_>) -> Result<Segment, Malformed> {
        let (epoch, log, key) = (r.u64()?, r.u64()?, Key(r.array()?));
        let first = Point { position: r.counter()?, sequence: r.counter()? };
        let closed = match (r.u64()?, r.u64()?) {
            (OPEN, 0) => None,
            (end, confirmed) if end < COUNTER_MAX && confirmed < COUNTER_MAX => {
                Some(Closed { end, confirmed })
            }
            _ => return Err(Malformed),
        };
        Ok(Segment { epoch, log, key, first, closed })
    }
}
