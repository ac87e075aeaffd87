//! A record of the log: `docs/on-disk-format.md`, "The space log", "Record".
//!
//! A record is its head's blocks (56 bytes, the body, zeros to the end of the last block) and then its payload units.
//! Only a holder of the segment's key can create a head, and a head is valid at its own position only, so that payload
//! with a copy of a log is not taken for records.

use siphasher::sip::SipHasher24;

use super::entry::{self, Entry, Malformed, UnitPlace};
use super::header::Key;
use super::{BLOCK, COUNTER_MAX};

/// The most blocks of header and body.
pub const HEAD_BLOCKS_MAX: u16 = 1024;

/// The most payload units.
pub const PAYLOAD_UNITS_MAX: u16 = 4096;

/// Bytes of a head, before the body.
pub const HEAD_BYTES: usize = 56;

const MAGIC: &[u8; 4] = b"CWLR";
const CHECK_AT: usize = 48;

/// The place of a record in its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordId {
    /// The epoch of its segment.
    pub epoch: u64,
    /// Incremented with each record, across segments.
    pub sequence: u64,
    /// Blocks since the log was created.
    pub position: u64,
    /// Every record up to this sequence was durable, data included, when this one was written; less than
    /// `sequence`.
    pub confirmed: u64,
}

/// The first 56 bytes of a record, decoded and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The place in the log.
    pub id: RecordId,
    /// Blocks of header and body.
    pub head_blocks: u16,
    /// The number of payload units after the head.
    pub payload_units: u16,
    body_bytes: u32,
    body_crc: u32,
}

/// Encodes the head's blocks of a record; the payload units of the entries follow, in order.
///
/// # Panics
/// If the record breaks a limit: the body of [`HEAD_BLOCKS_MAX`] blocks, [`PAYLOAD_UNITS_MAX`], those of
/// [`entry::encode`], or a `confirmed` that is not less than `sequence`.
pub fn encode<'a, E>(id: &RecordId, key: &Key, entries: E) -> Vec<u8>
where
    E: IntoIterator<Item = &'a Entry> + Clone,
{
    let mut b = vec![0; HEAD_BYTES];
    entry::encode(entries.clone(), &mut b);
    let (bytes, crc) = (b.len() - HEAD_BYTES, crc_fast::crc32_iscsi(&b[HEAD_BYTES..]));
    b.resize(b.len().next_multiple_of(BLOCK), 0);
    let head = Head {
        id: *id,
        head_blocks: u16::try_from(b.len() / BLOCK).unwrap_or(u16::MAX),
        payload_units: u16::try_from(entries.into_iter().flat_map(Entry::payload).count())
            .unwrap_or(u16::MAX),
        body_bytes: bytes as u32,
        body_crc: crc,
    };
    assert!(head.is_sound(), "an unsound record: {head:?}");
    b[0..4].copy_from_slice(MAGIC);
    b[4..6].copy_from_slice(&head.head_blocks.to_le_bytes());
    b[6..8].copy_from_slice(&head.payload_units.to_le_bytes());
    for (at, field) in [(8, id.epoch), (16, id.sequence), (24, id.position), (32, id.confirmed)] {
        b[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
    b[40..44].copy_from_slice(&head.body_bytes.to_le_bytes());
    b[44..48].copy_from_slice(&head.body_crc.to_le_bytes());
    let check = check_of(&b, key);
    b[CHECK_AT..HEAD_BYTES].copy_from_slice(&check.to_le_bytes());
    b
}

impl Head {
    /// Decodes the head at the beginning of a block. The caller compares [`Head::id`] with the expected one.
    pub fn decode(block: &[u8], key: &Key) -> Result<Head, Malformed> {
        if block.len() < HEAD_BYTES
            || block[0..4] != *MAGIC
            || u64_at(block, CHECK_AT) != check_of(block, key)
        {
            return Err(Malformed);
        }
        let id = RecordId {
            epoch: u64_at(block, 8),
            sequence: u64_at(block, 16),
            position: u64_at(block, 24),
            confirmed: u64_at(block, 32),
        };
        let [head_blocks, payload_units] = [4, 6].map(|at| u16::from_le_bytes([block[at], block[at + 1]]));
        let [body_bytes, body_crc] =
            [40, 44].map(|at| u32::from_le_bytes(std::array::from_fn(|i| block[at + i])));
        let head = Head { id, head_blocks, payload_units, body_bytes, body_crc };
        if head.is_sound() { Ok(head) } else { Err(Malformed) }
    }

    /// Blocks of the record, payload included.
    pub fn blocks(&self) -> u64 {
        u64::from(self.head_blocks) + u64::from(self.payload_units)
    }

    /// The position of the first payload unit.
    pub fn payload(&self) -> u64 {
        self.id.position + u64::from(self.head_blocks)
    }

    /// The entries of the body; `record` begins with the head's blocks.
    pub fn entries(&self, record: &[u8]) -> Result<Vec<Entry>, Malformed> {
        let whole = record.get(..usize::from(self.head_blocks) * BLOCK).ok_or(Malformed)?;
        let (body, padding) = whole[HEAD_BYTES..].split_at(self.body_bytes as usize);
        if crc_fast::crc32_iscsi(body) != self.body_crc || !crate::codec::is_zeros(padding) {
            return Err(Malformed);
        }
        let entries = entry::decode(body)?;
        let units = entries.iter().flat_map(Entry::payload).count();
        if units == usize::from(self.payload_units) { Ok(entries) } else { Err(Malformed) }
    }

    fn is_sound(&self) -> bool {
        let blocks = (HEAD_BYTES + self.body_bytes as usize).div_ceil(BLOCK);
        (1..=HEAD_BLOCKS_MAX).contains(&self.head_blocks)
            && blocks == usize::from(self.head_blocks)
            && self.payload_units <= PAYLOAD_UNITS_MAX
            && self.id.sequence < COUNTER_MAX
            && self.id.position < COUNTER_MAX
            && self.id.confirmed < self.id.sequence
    }
}

/// Compares payload units with the sums of their entries; `payload` has the blocks after the head's, and `hash` returns
/// the hash of a place: a sum is CRC32C of the unit xor that. Fails if a unit is incomplete or does not match.
pub fn verify_payload(
    entries: &[Entry],
    payload: &[u8],
    hash: impl Fn(&UnitPlace) -> u32,
) -> Result<(), Malformed> {
    let mut units = payload.chunks_exact(BLOCK);
    for (place, sum) in entries.iter().flat_map(Entry::payload) {
        let unit = units.next().ok_or(Malformed)?;
        if crc_fast::crc32_iscsi(unit) ^ hash(&place) != sum {
            return Err(Malformed);
        }
    }
    Ok(())
}

fn check_of(block: &[u8], key: &Key) -> u64 {
    SipHasher24::new_with_key(&key.0).hash(&block[..CHECK_AT])
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| b[at + i]))
}
