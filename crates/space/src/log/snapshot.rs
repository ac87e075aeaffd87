//! The state that a log keeps across checkpoints, and the records of a snapshot: `docs/0004-spaces.md`, section D,
//! "Checkpoint" and "Annex".
//!
//! Invariants:
//! 1. Annex records, carried entries, and active regions together with disk marks have a [`share`] of the ring each. So
//!    a snapshot takes less than a quarter of the ring, including the blocks that it skips at the ring's end.
//! 2. The annex is the result of the log's entries from the last complete snapshot on, and of changes that wait for a
//!    record. A snapshot may already have changes that later records repeat.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arena::Sg;

use super::BLOCK;
use super::commit::{RecordCapacity, Size};
use super::entry::{ANNEX_BYTES_MAX, Change, Entry};
use super::record::HEAD_BYTES;
use super::ring::Ring;

/// The smallest ring that has room for snapshots, in blocks.
pub const RING_BLOCKS_MIN: u64 = 128;

/// The blocks of a snapshot that its shares do not count: two for each of its at most eight records, for the head and
/// the unused end.
const OVERHEAD: u64 = 16;

/// Entries and their payload.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// The entries.
    pub entries: Vec<Entry>,
    /// The payload units, in the order of the entries.
    pub payload: Sg,
}

/// The space's parts of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// `K`: blocks have all values up to this sequence, except those of carried entries.
    pub through: u64,
    /// An `active` entry for each set that has active regions, and the newest mark of each disk.
    pub state: Vec<Entry>,
    /// The newest values of units that are not in blocks, each with its payload.
    pub carried: Vec<(Entry, Sg)>,
}

/// The annex records of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annex {
    records: BTreeMap<u64, Arc<[u8]>>,
    bytes: usize,
    /// Keys whose newest change waits for a record.
    waiting: BTreeSet<u64>,
}

/// A part of a snapshot would exceed its share of the ring, or an annex record its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes exceed the log's limit of {most}")]
pub struct TooLarge {
    /// The bytes that the part or record would have.
    pub bytes: usize,
    /// The limit.
    pub most: usize,
}

/// The limit of each part of a snapshot, in bytes: a 16th of the ring, less a part of the overhead.
pub fn share(ring: Ring) -> usize {
    (record_max(ring) * BLOCK as u64) as usize
}

/// The most blocks of a snapshot's record.
fn record_max(ring: Ring) -> u64 {
    (ring.blocks() / 4).saturating_sub(OVERHEAD) / 4
}

impl Content {
    /// The size of the record's part.
    pub fn size(&self) -> Size {
        let body = self.entries.iter().map(Entry::bytes).sum();
        Size { body, units: arena::sg_len(&self.payload) / BLOCK }
    }
}

impl Annex {
    /// Applies an entry of the log: an annex record, or the beginning of a snapshot, which repeats all of them.
    pub fn apply(&mut self, entry: &Entry) {
        match &entry.change {
            Change::AnnexPut { key, value } => self.set(*key, Some(value.as_slice().into())),
            Change::AnnexRemove { key } => self.set(*key, None),
            Change::SnapshotBegins { .. } => *self = Annex::default(),
            _ => {}
        }
    }

    /// Changes a key's record; the change then waits for a record of the log.
    pub fn change(&mut self, ring: Ring, key: u64, value: Option<Arc<[u8]>>) -> Result<(), TooLarge> {
        if let Some(value) = &value {
            let replaced = self.records.get(&key).map_or(0, |value| put_bytes(value));
            let bytes = self.bytes - replaced + put_bytes(value) + HEAD_BYTES;
            for (bytes, most) in [(value.len(), ANNEX_BYTES_MAX), (bytes, share(ring))] {
                if bytes > most {
                    return Err(TooLarge { bytes, most });
                }
            }
        }
        self.set(key, value);
        self.waiting.insert(key);
        Ok(())
    }

    /// The records, by key.
    pub fn records(&self) -> &BTreeMap<u64, Arc<[u8]>> {
        &self.records
    }

    /// Takes waiting changes, as many as fit; returns whether others still wait.
    pub fn take(&mut self, capacity: &mut RecordCapacity) -> (Vec<Entry>, bool) {
        let mut taken = Vec::new();
        while let Some(key) = self.waiting.first() {
            let entry = match self.records.get(key) {
                Some(value) => put(*key, value),
                None => Change::AnnexRemove { key: *key }.into(),
            };
            if !capacity.add(Size { body: entry.bytes(), units: 0 }) {
                return (taken, true);
            }
            taken.push(entry);
            self.waiting.pop_first();
        }
        (taken, false)
    }

    /// The records of a snapshot of this and `parts`, in order.
    pub fn pack(&self, ring: Ring, parts: Parts) -> Result<Vec<Content>, TooLarge> {
        let begins = |records| Entry::from(Change::SnapshotBegins { through: parts.through, records });
        let alone = |entry| (entry, Sg::new());
        let mut packer = Packer::new(ring);
        packer.share([begins(0)].into_iter().chain(parts.state).map(alone))?;
        packer.share(self.records.iter().map(|(key, value)| alone(put(*key, value))))?;
        packer.share(parts.carried.into_iter())?;
        packer.push(Change::SnapshotEnds.into(), Sg::new());
        packer.records[0].entries[0] = begins(packer.records.len() as u32);
        Ok(packer.records)
    }

    fn set(&mut self, key: u64, value: Option<Arc<[u8]>>) {
        self.bytes += value.as_deref().map_or(0, put_bytes);
        let replaced = match value {
            Some(value) => self.records.insert(key, value),
            None => self.records.remove(&key),
        };
        self.bytes -= replaced.as_deref().map_or(0, put_bytes);
    }
}

fn put(key: u64, value: &[u8]) -> Entry {
    Change::AnnexPut { key, value: value.to_vec() }.into()
}

/// Bytes of the entry with a value.
fn put_bytes(value: &[u8]) -> usize {
    Entry::from(Change::AnnexRemove { key: 0 }).bytes() + 4 + value.len()
}

/// Fills records one after the other.
struct Packer {
    ring: Ring,
    records: Vec<Content>,
    capacity: RecordCapacity,
}

impl Packer {
    fn new(ring: Ring) -> Packer {
        Packer { ring, records: vec![Content::default()], capacity: RecordCapacity::new(record_max(ring)) }
    }

    fn share(&mut self, entries: impl Iterator<Item = (Entry, Sg)>) -> Result<(), TooLarge> {
        let (mut bytes, most) = (HEAD_BYTES, share(self.ring));
        for (entry, payload) in entries {
            bytes += entry.bytes() + arena::sg_len(&payload);
            if bytes > most {
                return Err(TooLarge { bytes, most });
            }
            self.push(entry, payload);
        }
        Ok(())
    }

    fn push(&mut self, entry: Entry, payload: Sg) {
        let size = Size { body: entry.bytes(), units: arena::sg_len(&payload) / BLOCK };
        if !self.capacity.add(size) {
            self.records.push(Content::default());
            self.capacity = RecordCapacity::new(record_max(self.ring));
            assert!(self.capacity.add(size), "an entry of a snapshot is at most a share");
        }
        let record = self.records.last_mut().expect("a packer has a record");
        record.entries.push(entry);
        record.payload.extend(payload);
    }
}
