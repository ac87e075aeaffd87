//! The entries of a record's body: `docs/on-disk-format.md`, table "kind, fields, meaning" of "The space log".
//!
//! Each value has one encoding, and all other bytes are refused. Whether rows, columns and births exist is not checked
//! here.

use pool_seam::{DiskNumber, RowNumber};
use smallvec::SmallVec;

pub use crate::codec::Malformed;
use crate::codec::Reader;

/// The most bytes of the value of an annex key.
pub const ANNEX_BYTES_MAX: usize = 64 << 10;

const HEAD: usize = 8;
const UNCONFIRMED: u8 = 0x80;

/// Checksums of units: CRC32C of each unit xor the hash of its place.
pub type Sums = SmallVec<[u32; 4]>;

/// An entry of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The change.
    pub change: Change,
    /// A snapshot carries the entry, and no record has confirmed it. Possible only for changes of units.
    pub is_unconfirmed: bool,
}

/// One change of the space's state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of the fields, which are what their types and the table of the format say
pub enum Change {
    /// Kind 1: units of a simple or mirrored column are written.
    Written { first: FirstUnit, sums: Sums },
    /// Kind 2: units read as zeros.
    Discarded { first: FirstUnit, count: u16 },
    /// Kind 3: units are written, but no copy has them; only bytes with these sums restore them.
    Lost { first: FirstUnit, sums: Sums },
    /// Kind 4: as kind 3, and no copy has the sums either.
    LostWithoutSum { first: FirstUnit, count: u16 },
    /// Kind 5: data and parity of stripes are in place.
    Fresh { first: FirstStripe, stripes: Vec<Stripe> },
    /// Kind 6: units of stripes are the record's payload, and go in place after it.
    Redo { first: FirstStripe, stripes: Vec<RedoStripe> },
    /// Kind 7: written units of these regions (one bit each) may be overwritten in place from now on.
    Active { row: RowNumber, birth: u32, set: u8, regions: u64 },
    /// Kind 8: after a failed write or flush it is unknown whether units are old or new.
    Doubt { first: FirstUnit, count: u16 },
    /// Kind 9: a snapshot of this many records begins; blocks have all values up to the sequence `through`.
    SnapshotBegins { through: u64, records: u32 },
    /// Kind 10: the newest durable mark of a disk: its sequence, its count, and the membership it was written in.
    DiskMark { disk: DiskNumber, mark: u64, count: u64, membership: u64 },
    /// Kind 11: replaces the value of an annex key; at most [`ANNEX_BYTES_MAX`].
    AnnexPut { key: u64, value: Vec<u8> },
    /// Kind 12: removes an annex key.
    AnnexRemove { key: u64 },
    /// Kind 13: the snapshot is complete.
    SnapshotEnds,
}

/// The first of the consecutive units of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct FirstUnit {
    pub row: RowNumber,
    /// The generation with which the row was allocated.
    pub birth: u32,
    pub content: u8,
    pub column: u8,
    /// Units from the beginning of the column.
    pub unit: u32,
}

/// The first of the consecutive stripes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct FirstStripe {
    pub row: RowNumber,
    pub birth: u32,
    /// The stripe's unit number in every column.
    pub unit: u32,
}

/// The state of a stripe. Columns are bits, the lowest the first column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Data columns that are written; the others are zeros.
    pub written: u32,
    /// Columns whose sums are known.
    pub known: u32,
    /// One for each known column, in the order of the columns.
    pub sums: Sums,
}

/// A stripe of which some units are payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedoStripe {
    /// The state after the change.
    pub stripe: Stripe,
    /// Columns whose units are payload, in the order of the columns; each is a known one.
    pub payload: u32,
}

/// The place of a unit, for the hash of its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct UnitPlace {
    pub row: RowNumber,
    pub birth: u32,
    /// The content: the column, in a coded row.
    pub content: u8,
    /// Units from the beginning of the column.
    pub unit: u32,
}

/// Appends the encoding of entries to `out`.
///
/// # Panics
/// If an entry breaks a limit of its kind: no units or stripes, or more than 65,535; units beyond 2^32; sums
/// that are not those of the known columns; payload of a column that is not known; a too long annex value; an
/// unconfirmed entry that is not about units.
pub fn encode<'a>(entries: impl IntoIterator<Item = &'a Entry>, out: &mut Vec<u8>) {
    entries.into_iter().for_each(|entry| entry.put(out));
}

/// The entries of a whole body.
pub fn decode(body: &[u8]) -> Result<Vec<Entry>, Malformed> {
    let (mut rest, mut entries) = (Reader(body), Vec::new());
    while rest.end().is_err() {
        entries.push(Entry::get(&mut rest)?);
    }
    Ok(entries)
}

impl From<Change> for Entry {
    fn from(change: Change) -> Entry {
        Entry { change, is_unconfirmed: false }
    }
}

impl Entry {
    /// Bytes of the encoding.
    pub fn bytes(&self) -> usize {
        const UNITS: usize = HEAD + 16;
        const STRIPES: usize = HEAD + 12;
        match &self.change {
            Change::Written { sums, .. } | Change::Lost { sums, .. } => UNITS + 4 * sums.len(),
            Change::Discarded { .. } | Change::LostWithoutSum { .. } | Change::Doubt { .. } => UNITS,
            Change::Fresh { stripes, .. } => {
                STRIPES + stripes.iter().map(|s| 8 + 4 * s.sums.len()).sum::<usize>()
            }
            Change::Redo { stripes, .. } => {
                STRIPES + stripes.iter().map(|s| 12 + 4 * s.stripe.sums.len()).sum::<usize>()
            }
            Change::Active { .. } => HEAD + 20,
            Change::SnapshotBegins { .. } => HEAD + 12,
            Change::DiskMark { .. } => HEAD + 28,
            Change::AnnexPut { value, .. } => HEAD + 12 + value.len(),
            Change::AnnexRemove { .. } => HEAD + 8,
            Change::SnapshotEnds => HEAD,
        }
    }

    /// The units that the entry has in the record's payload, in the order of the payload, with their sums.
    pub fn payload(&self) -> impl Iterator<Item = (UnitPlace, u32)> + '_ {
        let (first, stripes) = match &self.change {
            Change::Redo { first, stripes } => (Some(first), &stripes[..]),
            _ => (None, &[][..]),
        };
        first.into_iter().flat_map(move |first| {
            (0..).zip(stripes).flat_map(move |(at, redo)| {
                let unit = first.unit + at;
                let known = columns(redo.stripe.known).zip(redo.stripe.sums.iter().copied());
                let payload = known.filter(|(column, _)| redo.payload & 1 << column != 0);
                payload.map(move |(content, sum)| {
                    (UnitPlace { row: first.row, birth: first.birth, content, unit }, sum)
                })
            })
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        let kind = self.change.kind();
        assert!(!self.is_unconfirmed || is_of_units(kind), "kind {kind} is not carried as unconfirmed");
        let (content, count) = self.change.content_and_count();
        out.extend([kind | if self.is_unconfirmed { UNCONFIRMED } else { 0 }, content]);
        out.extend(u16::try_from(count).expect("an entry has at most 65,535 units").to_le_bytes());
        out.extend(((self.bytes() - HEAD) as u32).to_le_bytes());
        self.change.put(count, out);
    }

    fn get(rest: &mut Reader<'_>) -> Result<Entry, Malformed> {
        let (kind, content, count, bytes) = (rest.u8()?, rest.u8()?, rest.u16()?, rest.u32()?);
        let mut fields = Reader(rest.take(bytes as usize)?);
        let is_unconfirmed = kind & UNCONFIRMED != 0;
        let kind = kind & !UNCONFIRMED;
        if is_unconfirmed && !is_of_units(kind) {
            return Err(Malformed);
        }
        let change = Change::get(kind, content, count, &mut fields)?;
        fields.end().map(|()| Entry { change, is_unconfirmed })
    }
}

impl Change {
    fn kind(&self) -> u8 {
        match self {
            Change::Written { .. } => 1,
            Change::Discarded { .. } => 2,
            Change::Lost { .. } => 3,
            Change::LostWithoutSum { .. } => 4,
            Change::Fresh { .. } => 5,
            Change::Redo { .. } => 6,
            Change::Active { .. } => 7,
            Change::Doubt { .. } => 8,
            Change::SnapshotBegins { .. } => 9,
            Change::DiskMark { .. } => 10,
            Change::AnnexPut { .. } => 11,
            Change::AnnexRemove { .. } => 12,
            Change::SnapshotEnds => 13,
        }
    }

    /// The values of the fields content and count in the entry's first bytes.
    fn content_and_count(&self) -> (u8, usize) {
        match self {
            Change::Written { first, sums } | Change::Lost { first, sums } => (first.content, sums.len()),
            Change::Discarded { first, count }
            | Change::LostWithoutSum { first, count }
            | Change::Doubt { first, count } => (first.content, usize::from(*count)),
            Change::Fresh { stripes, .. } => (0, stripes.len()),
            Change::Redo { stripes, .. } => (0, stripes.len()),
            _ => (0, 0),
        }
    }

    fn put(&self, count: usize, out: &mut Vec<u8>) {
        match self {
            Change::Written { first, sums } | Change::Lost { first, sums } => {
                first.put(count, out);
                put_all(sums, out);
            }
            Change::Discarded { first, .. }
            | Change::LostWithoutSum { first, .. }
            | Change::Doubt { first, .. } => first.put(count, out),
            Change::Fresh { first, stripes } => {
                first.put(count, out);
                stripes.iter().for_each(|stripe| stripe.put(None, out));
            }
            Change::Redo { first, stripes } => {
                first.put(count, out);
                stripes.iter().for_each(|redo| redo.stripe.put(Some(redo.payload), out));
            }
            Change::Active { row, birth, set, regions } => {
                put_all(&[row.0, *birth, u32::from(*set)], out);
                out.extend(regions.to_le_bytes());
            }
            Change::SnapshotBegins { through, records } => {
                out.extend(through.to_le_bytes());
                out.extend(records.to_le_bytes());
            }
            Change::DiskMark { disk, mark, count, membership } => {
                out.extend(u32::from(disk.0).to_le_bytes());
                [mark, count, membership].iter().for_each(|field| out.extend(field.to_le_bytes()));
            }
            Change::AnnexPut { key, value } => {
                assert!(value.len() <= ANNEX_BYTES_MAX, "an annex value has at most 64 KiB");
                out.extend(key.to_le_bytes());
                out.extend((value.len() as u32).to_le_bytes());
                out.extend(value);
            }
            Change::AnnexRemove { key } => out.extend(key.to_le_bytes()),
            Change::SnapshotEnds => {}
        }
    }

    fn get(kind: u8, content: u8, count: u16, r: &mut Reader<'_>) -> Result<Change, Malformed> {
        Ok(match kind {
            1 => Change::Written { first: FirstUnit::get(content, count, r)?, sums: sums(count.into(), r)? },
            2 => Change::Discarded { first: FirstUnit::get(content, count, r)?, count },
            3 => Change::Lost { first: FirstUnit::get(content, count, r)?, sums: sums(count.into(), r)? },
            4 => Change::LostWithoutSum { first: FirstUnit::get(content, count, r)?, count },
            8 => Change::Doubt { first: FirstUnit::get(content, count, r)?, count },
            _ if content != 0 => return Err(Malformed),
            5 => {
                Change::Fresh { first: FirstStripe::get(count, r)?, stripes: stripes(count, Stripe::get, r)? }
            }
            6 => Change::Redo { first: FirstStripe::get(count, r)?, stripes: stripes(count, redo, r)? },
            _ if count != 0 => return Err(Malformed),
            7 => {
                Change::Active { row: RowNumber(r.u32()?), birth: r.u32()?, set: byte(r)?, regions: r.u64()? }
            }
            9 => Change::SnapshotBegins { through: r.counter()?, records: r.u32()? },
            10 => {
                let disk = DiskNumber(r.u16()?);
                r.zeros(2)?;
                Change::DiskMark { disk, mark: r.counter()?, count: r.counter()?, membership: r.u64()? }
            }
            11 => {
                let (key, length) = (r.u64()?, r.u32()? as usize);
                if length > ANNEX_BYTES_MAX {
                    return Err(Malformed);
                }
                Change::AnnexPut { key, value: r.take(length)?.to_vec() }
            }
            12 => Change::AnnexRemove { key: r.u64()? },
            13 => Change::SnapshotEnds,
            _ => return Err(Malformed),
        })
    }
}

impl FirstUnit {
    fn put(&self, count: usize, out: &mut Vec<u8>) {
        assert!(are_units(self.unit, count), "units {} + {count} do not exist", self.unit);
        put_all(&[self.row.0, self.birth, u32::from(self.column), self.unit], out);
    }

    fn get(content: u8, count: u16, r: &mut Reader<'_>) -> Result<FirstUnit, Malformed> {
        let (row, birth, column, unit) = (RowNumber(r.u32()?), r.u32()?, byte(r)?, r.u32()?);
        let first = FirstUnit { row, birth, content, column, unit };
        if are_units(unit, count.into()) { Ok(first) } else { Err(Malformed) }
    }
}

impl FirstStripe {
    fn put(&self, count: usize, out: &mut Vec<u8>) {
        assert!(are_units(self.unit, count), "units {} + {count} do not exist", self.unit);
        put_all(&[self.row.0, self.birth, self.unit], out);
    }

    fn get(count: u16, r: &mut Reader<'_>) -> Result<FirstStripe, Malformed> {
        let first = FirstStripe { row: RowNumber(r.u32()?), birth: r.u32()?, unit: r.u32()? };
        if are_units(first.unit, count.into()) { Ok(first) } else { Err(Malformed) }
    }
}

impl Stripe {
    fn put(&self, payload: Option<u32>, out: &mut Vec<u8>) {
        assert_eq!(self.sums.len(), self.known.count_ones() as usize, "one sum for each known column");
        put_all(&[self.written, self.known], out);
        if let Some(payload) = payload {
            assert_eq!(payload & !self.known, 0, "payload has known sums");
            out.extend(payload.to_le_bytes());
        }
        put_all(&self.sums, out);
    }

    fn get(r: &mut Reader<'_>) -> Result<Stripe, Malformed> {
        let (written, known) = (r.u32()?, r.u32()?);
        Ok(Stripe { written, known, sums: sums(known.count_ones() as usize, r)? })
    }
}

fn redo(r: &mut Reader<'_>) -> Result<RedoStripe, Malformed> {
    let (written, known, payload) = (r.u32()?, r.u32()?, r.u32()?);
    if payload & !known != 0 {
        return Err(Malformed);
    }
    let sums = sums(known.count_ones() as usize, r)?;
    Ok(RedoStripe { stripe: Stripe { written, known, sums }, payload })
}

/// Reads `count` stripes. Memory is allocated only for bytes that exist.
fn stripes<T>(
    count: u16,
    get: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>,
    r: &mut Reader<'_>,
) -> Result<Vec<T>, Malformed> {
    let mut out = Vec::new();
    for _ in 0..count {
        out.push(get(r)?);
    }
    Ok(out)
}

fn sums(count: usize, r: &mut Reader<'_>) -> Result<Sums, Malformed> {
    let bytes = r.take(4 * count)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect())
}

/// A byte and three zeros.
fn byte(r: &mut Reader<'_>) -> Result<u8, Malformed> {
    let value = r.u8()?;
    r.zeros(3).map(|()| value)
}

fn put_all(values: &[u32], out: &mut Vec<u8>) {
    values.iter().for_each(|value| out.extend(value.to_le_bytes()));
}

/// Whether a kind changes units: 1 to 6, and doubt.
fn is_of_units(kind: u8) -> bool {
    matches!(kind, 1..=6 | 8)
}

fn are_units(first: u32, count: usize) -> bool {
    count > 0 && u64::from(first) + count as u64 <= 1 << 32
}

/// The columns of a set of bits, in order.
fn columns(bits: u32) -> impl Iterator<Item = u8> {
    (0..32).filter(move |column| bits & 1 << column != 0)
}
