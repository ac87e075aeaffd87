//! What a log keeps over checkpoints, and the records of a snapshot: `docs/0004-spaces.md`, section D, "Checkpoint"
//! and "Annex".
//!
//! Invariants:
//! 1. Annex records, carried entries, and active regions together with disk marks have a [`share`] of the ring each.
//!    So a snapshot has less than a quarter of the ring, the blocks that it skips at the ring's end included.
//! 2. What is kept is what the entries of the log say from the last complete snapshot on. Entries that are enqueued
//!    count already: a snapshot may be ahead of the records before it, and repeats nothing that they changed back.

use std::collections::BTreeMap;
use std::sync::Arc;

use arena::Sg;
use pool_seam::DiskNumber;

use super::BLOCK;
use super::commit::Size;
use super::entry::{Change, Entry};
use super::record::HEAD_BYTES;
use super::ring::Ring;

/// The smallest ring that has room for snapshots, in blocks.
pub const RING_BLOCKS_MIN: u64 = 128;

/// Blocks of a snapshot that are none of its shares: the ends of its records, of which there are at most eight, two
/// each because the heads need room too.
const OVERHEAD: u64 = 16;

/// Entries and their payload.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// The entries.
    pub entries: Vec<Entry>,
    /// The payload units, in the order of the entries.
    pub payload: Sg,
}

/// What the space puts into a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// `K`: blocks have all values up to this sequence, apart from those of carried entries.
    pub through: u64,
    /// An `active` entry for each set that has active regions.
    pub active: Vec<Entry>,
    /// The newest value of units that blocks do not have, each with its payload.
    pub carried: Vec<(Entry, Sg)>,
}

/// Annex records and disk marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    annex: BTreeMap<u64, Arc<[u8]>>,
    annex_bytes: usize,
    marks: BTreeMap<DiskNumber, Entry>,
}

/// A share of the ring, or of a snapshot, has more bytes than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are more than a 16th of the log's ring")]
pub struct TooLarge {
    /// How many it would have.
    pub bytes: usize,
}

/// Bytes that each part of a snapshot may have: a 16th of the ring, without a part of the overhead.
pub fn share(ring: Ring) -> usize {
    (record_max(ring) * BLOCK as u64) as usize
}

/// The most blocks of a snapshot's record.
pub(super) fn record_max(ring: Ring) -> u64 {
    (ring.blocks() / 4).saturating_sub(OVERHEAD) / 4
}

impl Content {
    /// The size of the record's part.
    pub fn size(&self) -> Size {
        let body = self.entries.iter().map(Entry::bytes).sum();
        Size { body, units: arena::sg_len(&self.payload) / BLOCK }
    }
}

impl Kept {
    /// Applies an entry: annex records, disk marks, and the beginning of a snapshot, which has all of them anew.
    pub fn apply(&mut self, entry: &Entry) {
        match &entry.change {
            Change::AnnexPut { key, value } => {
                self.remove(*key);
                self.annex_bytes += entry.bytes();
                self.annex.insert(*key, value.as_slice().into());
            }
            Change::AnnexRemove { key } => self.remove(*key),
            Change::DiskMark { disk, .. } => drop(self.marks.insert(*disk, entry.clone())),
            Change::SnapshotBegins { .. } => *self = Kept::default(),
            _ => {}
        }
    }

    /// Whether the annex has room for an entry.
    ///
    /// # Errors
    /// [`TooLarge`] with the bytes that all records would have.
    pub fn admits(&self, ring: Ring, entry: &Entry) -> Result<(), TooLarge> {
        let Change::AnnexPut { key, .. } = &entry.change else { return Ok(()) };
        let replaced = self.annex.get(key).map_or(0, |value| put(*key, value).bytes());
        let bytes = self.annex_bytes - replaced + entry.bytes();
        if bytes + HEAD_BYTES <= share(ring) { Ok(()) } else { Err(TooLarge { bytes }) }
    }

    /// The records of the annex.
    pub fn annex(&self) -> &BTreeMap<u64, Arc<[u8]>> {
        &self.annex
    }

    /// The newest mark of each disk, as an entry.
    pub fn marks(&self) -> &BTreeMap<DiskNumber, Entry> {
        &self.marks
    }

    /// The records of a snapshot of this and `parts`, in order.
    ///
    /// # Errors
    /// [`TooLarge`] if a share is exceeded.
    pub fn pack(&self, ring: Ring, parts: Parts) -> Result<Vec<Content>, TooLarge> {
        let begins = Change::SnapshotBegins { through: parts.through, records: 0 };
        let mut packer = Packer::new(ring);
        packer.share(
            [Entry::from(begins)].into_iter().chain(parts.active).chain(self.marks.values().cloned()),
        )?;
        packer.share(self.annex.iter().map(|(key, value)| put(*key, value)))?;
        packer.share_with_payload(parts.carried.into_iter())?;
        packer.push(Change::SnapshotEnds.into(), Sg::new());
        let count = packer.records.len() as u32;
        let begins = &mut packer.records[0].entries[0];
        *begins = Change::SnapshotBegins { through: parts.through, records: count }.into();
        Ok(packer.records)
    }

    fn remove(&mut self, key: u64) {
        if let Some(value) = self.annex.remove(&key) {
            self.annex_bytes -= put(key, &value).bytes();
        }
    }
}

fn put(key: u64, value: &[u8]) -> Entry {
    Change::AnnexPut { key, value: value.to_vec() }.into()
}

/// Entries without payload as the contents of as many records as they need.
pub fn split(ring: Ring, entries: Vec<Entry>) -> Vec<Content> {
    let mut packer = Packer::new(ring);
    entries.into_iter().for_each(|entry| packer.push(entry, Sg::new()));
    packer.records.retain(|record| !record.entries.is_empty());
    packer.records
}

/// Fills records one after the other.
struct Packer {
    share: usize,
    records: Vec<Content>,
    size: Size,
}

impl Packer {
    fn new(ring: Ring) -> Packer {
        Packer { share: share(ring), records: vec![Content::default()], size: Size::default() }
    }

    fn share(&mut self, entries: impl Iterator<Item = Entry>) -> Result<(), TooLarge> {
        self.share_with_payload(entries.map(|entry| (entry, Sg::new())))
    }

    fn share_with_payload(&mut self, entries: impl Iterator<Item = (Entry, Sg)>) -> Result<(), TooLarge> {
        let mut bytes = HEAD_BYTES;
        for (entry, payload) in entries {
            bytes += entry.bytes() + arena::sg_len(&payload);
            if bytes > self.share {
                return Err(TooLarge { bytes });
            }
            self.push(entry, payload);
        }
        Ok(())
    }

    fn push(&mut self, entry: Entry, payload: Sg) {
        let size = Size { body: entry.bytes(), units: arena::sg_len(&payload) / BLOCK };
        let with = self.size.and(size);
        let is_full = with.blocks() as usize * BLOCK > self.share;
        self.size = if is_full { size } else { with };
        if is_full {
            self.records.push(Content::default());
        }
        let record = self.records.last_mut().expect("a packer has a record");
        record.entries.push(entry);
        record.payload.extend(payload);
    }
}
