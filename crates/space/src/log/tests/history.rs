//! A writer of a log on replicas that crash, lose writes and are rolled back.

use pool_seam::{DiskNumber, RowNumber};

use super::{Chance, hash, values};
use crate::log::BLOCK;
use crate::log::entry::{Change, Entry, FirstStripe, FirstUnit, RedoStripe, Stripe, Sums, UnitPlace};
use crate::log::header::{Closed, Header, Key, ReplicaId, Segment, older};
use crate::log::record::{self, RecordId};
use crate::log::ring::{Point, Ring};

/// One replica: the two slots of its header, with the headers written there, and its ring.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) headers: [Option<Header>; 2],
    pub(super) ring: Vec<u8>,
}

impl Replica {
    pub(super) fn newest(&self) -> Option<&Header> {
        self.headers.iter().flatten().max_by_key(|header| header.age())
    }

    pub(super) fn at(&mut self, block: u64) -> &mut [u8] {
        &mut self.ring[block as usize * BLOCK..][..BLOCK]
    }
}

/// A record that was written, at least in part.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) id: RecordId,
    pub(super) entries: Vec<Entry>,
    pub(super) bytes: Vec<u8>,
}

impl Written {
    pub(super) fn blocks(&self) -> u64 {
        (self.bytes.len() / BLOCK) as u64
    }
}

/// The contents of a payload unit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload {
    Random,
    Zeros,
    /// Any block of an earlier record, byte for byte.
    CopyOfRecord,
    CopyOfHeader,
    /// A head for this position with a plausible sequence, made with another key.
    Forged,
}

pub(super) struct History {
    pub(super) chance: Chance,
    pub(super) ring: Ring,
    pub(super) replicas: Vec<Replica>,
    /// Every record of every owner, identified by epoch and position.
    pub(super) written: Vec<Written>,
    pub(super) segments: Vec<Segment>,
    pub(super) tail: Point,
    pub(super) end: Point,
    pub(super) confirmed: u64,
    serial: u64,
    epoch: u64,
}

pub(super) fn id(index: usize) -> ReplicaId {
    ReplicaId { allocation: 77 + index as u32, ..values::ID }
}

impl History {
    pub(super) fn new(seed: u64, blocks: u64, replicas: usize) -> History {
        let mut chance = Chance(seed);
        let end = Point { position: chance.below(3 * blocks), sequence: 1 + chance.below(5) };
        let bytes = blocks as usize * BLOCK;
        let replica = Replica { headers: [None, None], ring: vec![0; bytes] };
        let mut history = History {
            chance,
            ring: Ring::new(blocks).unwrap(),
            replicas: vec![replica; replicas],
            written: Vec::new(),
            segments: Vec::new(),
            tail: end,
            end,
            confirmed: end.sequence - 1,
            serial: 0,
            epoch: 1,
        };
        history.own(None, 0);
        history
    }

    /// A new owner: adds its segment, some blocks after the last one.
    fn own(&mut self, closed: Option<Closed>, skip: u64) {
        if let Some(last) = self.segments.last_mut() {
            last.closed = closed;
        }
        self.end.position += skip;
        self.epoch += 1 + self.chance.below(3);
        let key = Key(std::array::from_fn(|_| self.chance.next() as u8));
        let log = self.chance.next();
        self.segments.push(Segment { epoch: self.epoch, log, key, first: self.end, closed: None });
        self.write_header(|_| true, None);
    }

    /// Continues from the replayed log.
    pub(super) fn recover(&mut self, log: &crate::log::replay::Log, skip: u64) {
        self.segments.clone_from(&log.header.segments);
        (self.tail, self.end, self.serial) = (log.header.tail, log.next, log.header.serial);
        self.confirmed = log.closed.confirmed;
        if self.segments.len() == crate::log::header::SEGMENTS_MAX {
            self.trim(0);
        }
        self.own(Some(log.closed), skip);
    }

    /// A header with the present state on the replicas chosen; `joins` has every record from now on only.
    fn write_header(&mut self, chosen: impl Fn(usize) -> bool, joins: Option<usize>) {
        self.serial += 1;
        for (i, replica) in self.replicas.iter_mut().enumerate().filter(|(i, _)| chosen(*i)) {
            let old = replica.newest().map_or(0, |header| header.joined);
            let joined = if joins == Some(i) { self.end.position } else { old };
            let [a, b] = &replica.headers;
            let place = older(a.as_ref(), b.as_ref());
            let (serial, ring, tail) = (self.serial, self.ring, self.tail);
            let segments = self.segments.clone();
            replica.headers[place] = Some(Header { serial, ring, tail, joined, segments });
        }
    }

    /// Moves the tail so that this many records stay, and drops segments before it.
    fn trim(&mut self, keep: usize) {
        let mut live: Vec<Point> = Vec::new();
        for w in &self.written {
            let owner = self.segments.iter().rposition(|s| s.first.position <= w.id.position);
            if owner.is_some_and(|i| self.segments[i].epoch == w.id.epoch)
                && (self.tail.position..self.end.position).contains(&w.id.position)
            {
                live.push(Point { position: w.id.position, sequence: w.id.sequence });
            }
        }
        live.sort();
        live.push(self.end);
        self.tail = live[(live.len() - 1).saturating_sub(keep)];
        let (tail, last) = (self.tail.position, self.segments.len() - 1);
        let first = (0..last).find(|i| self.segments[*i].closed.unwrap().end > tail).unwrap_or(last);
        self.segments.drain(..first);
        self.tail = self.tail.max(self.segments[0].first);
    }

    pub(super) fn checkpoint(&mut self, keep: usize) {
        self.trim(keep);
        self.write_header(|_| true, None);
    }

    /// A checkpoint whose header write is interrupted: only some replicas have it, and the writer does not use the
    /// freed room.
    pub(super) fn torn_checkpoint(&mut self, keep: usize, on: u64) {
        let (tail, segments) = (self.tail, self.segments.clone());
        self.trim(keep);
        self.write_header(|replica| on & 1 << replica != 0, None);
        (self.tail, self.segments) = (tail, segments);
    }

    /// Another slab becomes a replica: empty, or with an old replica's ring.
    pub(super) fn replace(&mut self, replica: usize) {
        self.replicas[replica].headers = [None, None];
        match self.chance.below(3) {
            0 => self.replicas[replica].ring.fill(0),
            1 => {
                let bytes = self.replicas[replica].ring.len();
                self.replicas[replica].ring = self.chance.fill(bytes);
            }
            _ => {}
        }
        self.write_header(|_| true, Some(replica));
    }

    /// Writes a record durably to all replicas; makes room if there is none.
    pub(super) fn append(&mut self, payload: &[Payload], annex: usize, unconfirmed: u64) {
        self.issue(payload, annex, unconfirmed);
        let record = self.written.last().unwrap().clone();
        let first = self.ring.block(record.id.position) as usize * BLOCK;
        for replica in &mut self.replicas {
            replica.ring[first..first + record.bytes.len()].copy_from_slice(&record.bytes);
        }
    }

    /// Writes a record of which each replica gets some blocks only.
    pub(super) fn torn_append(&mut self, payload: &[Payload], annex: usize, unconfirmed: u64) {
        self.issue(payload, annex, unconfirmed);
        let record = self.written.last().unwrap().clone();
        let first = self.ring.block(record.id.position);
        let most = self.chance.below(4);
        for replica in 0..self.replicas.len() {
            for (i, block) in record.bytes.chunks(BLOCK).enumerate() {
                // The number of blocks written ranges from hardly any to nearly all.
                if self.chance.below(4) <= most {
                    self.replicas[replica].at(first + i as u64).copy_from_slice(block);
                }
            }
        }
    }

    /// Makes the next record, without writing it.
    fn issue(&mut self, payload: &[Payload], annex: usize, unconfirmed: u64) {
        let columns = payload.len() as u32;
        let stripe = |sums| {
            Entry::from(Change::Redo {
                first: FirstStripe { row: RowNumber(4), birth: 9, unit: 70 },
                stripes: vec![RedoStripe {
                    stripe: Stripe { written: 1, known: (1 << columns) - 1, sums },
                    payload: (1 << columns) - 1,
                }],
            })
        };
        let mark = self.chance.next() >> 2;
        let mark = Change::DiskMark { disk: DiskNumber(3), mark, count: 2, membership: 5 };
        let mut entries = vec![Entry::from(mark)];
        if annex > 0 {
            entries.push(Change::AnnexPut { key: 8, value: self.chance.fill(annex) }.into());
        }
        if self.chance.one_in(3) {
            let first = FirstUnit { row: RowNumber(1), birth: 2, content: 0, column: 1, unit: 3 };
            let sums = Sums::from_slice(&[self.chance.next() as u32]);
            let is_unconfirmed = self.chance.one_in(2);
            entries.push(Entry { change: Change::Written { first, sums }, is_unconfirmed });
        }
        entries.push(stripe(Sums::from_elem(0, payload.len())));
        let head = (56 + entries.iter().map(Entry::bytes).sum::<usize>()).div_ceil(BLOCK) as u64;
        let blocks = head + payload.len() as u64;
        if self.ring.fit(self.tail.position, self.end.position, blocks).is_none() {
            self.checkpoint(0);
        }
        let position = self.ring.fit(self.tail.position, self.end.position, blocks).unwrap();
        let (mut units, mut sums) = (Vec::new(), Sums::new());
        for (i, kind) in payload.iter().enumerate() {
            let unit = self.unit(*kind, position + head + i as u64);
            let place = UnitPlace { row: RowNumber(4), birth: 9, content: i as u8, unit: 70 };
            sums.push(crc_fast::crc32_iscsi(&unit) ^ hash(&place));
            units.extend(unit);
        }
        *entries.last_mut().unwrap() = stripe(sums);
        let (sequence, epoch) = (self.end.sequence, self.epoch);
        self.confirmed = self.confirmed.max((sequence - 1).saturating_sub(unconfirmed));
        let id = RecordId { epoch, sequence, position, confirmed: self.confirmed };
        let key = self.segments.last().unwrap().key;
        let mut bytes = record::encode(&id, &key, &entries);
        bytes.extend(units);
        self.written.push(Written { id, entries, bytes });
        self.end = Point { position: position + blocks, sequence: sequence + 1 };
    }

    fn unit(&mut self, kind: Payload, position: u64) -> Vec<u8> {
        let forged = |history: &mut History| {
            let keys = history.segments.len() as u64;
            let key = match history.chance.below(keys) as usize {
                i if i + 1 < history.segments.len() => history.segments[i].key,
                _ => Key([7; 16]),
            };
            let sequence = history.end.sequence + history.chance.below(3);
            let confirmed = history.confirmed;
            let id = RecordId { epoch: history.epoch, sequence, position, confirmed };
            record::encode(&id, &key, &[])
        };
        match kind {
            Payload::Random => vec![self.chance.next() as u8; BLOCK],
            Payload::Zeros => vec![0; BLOCK],
            Payload::CopyOfRecord if !self.written.is_empty() => {
                // A recent record: its sequence is plausible.
                let recent = (self.written.len() as u64).min(3);
                let record = self.chance.below(recent) as usize + self.written.len() - recent as usize;
                let bytes = &self.written[record].bytes;
                let block = if self.chance.one_in(4) { bytes.len() / BLOCK - 1 } else { 0 };
                bytes[block * BLOCK..][..BLOCK].to_vec()
            }
            Payload::CopyOfHeader => self.replicas[0].newest().map_or(vec![0; BLOCK], |h| h.encode(&id(0))),
            Payload::CopyOfRecord | Payload::Forged => forged(self),
        }
    }
}
