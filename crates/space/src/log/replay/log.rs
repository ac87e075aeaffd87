//! The result of a replay: records, findings, and the place for the next segment.

use crate::log::entry::{Change, Entry};
use crate::log::header::{Closed, Header};
use crate::log::record::Head;
use crate::log::ring::Point;
use crate::table::Carrier;

/// The contents of a log: steps 2 to 5 of `docs/on-disk-format.md`, "Reading a log".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The current header.
    pub header: Header,
    /// The records from the tail on, in order.
    pub records: Vec<Replayed>,
    /// Evidence of damage or lost writes.
    pub findings: Vec<Finding>,
    /// The end of the open segment, for the next owner's header.
    pub closed: Closed,
    /// The first position and sequence of the next owner's segment, after all valid records. The position is past the
    /// end of the open segment if a replica joined there and the records before were lost, because a replica does not
    /// contain earlier positions.
    pub next: Point,
}

/// A record that a replay found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Its head. The payload units are in the ring from position [`Head::payload`] on.
    pub head: Head,
    /// Its body.
    pub entries: Vec<Entry>,
    /// The first replica that has it.
    pub replica: usize,
    /// The replicas that should contain it and do not.
    pub lacking: Vec<usize>,
    /// Whether the data of the record's units is certainly durable (rule 5). A record that its own segment left
    /// unconfirmed stays unconfirmed, regardless of later segments (rule 13).
    pub confirmed: bool,
}

/// Proof of damage or of a lost write (rule 16). Replicas are indices of the list that the replay began with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants explain their fields")]
pub enum Finding {
    /// The replica has no valid header, or one of a ring of another size; it was not read.
    Unusable { replica: usize },
    /// The replica's newest header is older, and not just the one before: (epoch, serial) of both.
    OlderHeader { replica: usize, has: (u64, u64), newest: (u64, u64) },
    /// The replica lacks records that were durable on it: `records` of them, from sequence `first` to `last`.
    /// A record was durable on all replicas if it is confirmed, or if the same owner wrote another one after it.
    Lacks { replica: usize, records: u64, first: u64, last: u64 },
    /// There is no valid record between these points: no replica has the sequences from `from` to before `to`.
    Gap { from: Point, to: Point },
}

impl Log {
    /// Determines which records are confirmed, and which replicas lack records that were durable.
    pub(super) fn new(
        header: Header,
        mut records: Vec<Replayed>,
        mut findings: Vec<Finding>,
        end: Point,
        joined: u64,
        replicas: usize,
    ) -> Log {
        let first = header.open().first;
        let newest = records.last().filter(|record| record.head.id.position >= first.position);
        let confirmed = newest.map_or(first.sequence.saturating_sub(1), |record| record.head.id.confirmed);
        let mut lacks = vec![None; replicas];
        for record in &mut records {
            let id = &record.head.id;
            let segment = header.segment_at(id.position).expect("a record has a segment");
            let closed = header.segments[segment].closed;
            record.confirmed = id.sequence <= closed.map_or(confirmed, |closed| closed.confirmed);
            let next = header.segments.get(segment + 1).map_or(end.sequence, |next| next.first.sequence);
            let has_successor = id.sequence + 1 < next;
            if !record.confirmed && !has_successor {
                continue;
            }
            for &replica in &record.lacking {
                let (records, first, last) = lacks[replica].get_or_insert((0, id.sequence, id.sequence));
                (*records, *last) = (*records + 1, (*last).max(id.sequence));
                *first = (*first).min(id.sequence);
            }
        }
        for (replica, lacks) in lacks.into_iter().enumerate() {
            if let Some((records, first, last)) = lacks {
                findings.push(Finding::Lacks { replica, records, first, last });
            }
        }
        let closed = Closed { end: end.position, confirmed };
        let next = Point { position: end.position.max(joined), ..end };
        Log { header, records, findings, closed, next }
    }

    /// Completes or discards a checkpoint that the previous owner left unfinished. The last complete snapshot becomes
    /// the tail: only the header was missing (rule 8). An incomplete one at the end is cut off, so that its part of the
    /// ring is free for another: the next segment begins at its start.
    pub fn settle_snapshot(&mut self) {
        while let Some(at) = self.records.iter().rposition(|record| snapshot_records(record).is_some()) {
            let head = self.records[at].head.id;
            let first = Point { position: head.position, sequence: head.sequence };
            if self.is_complete(at) {
                self.header.tail = first;
                self.records.drain(..at);
                return;
            }
            if first.position < self.header.open().first.position {
                return;
            }
            self.records.truncate(at);
            // Otherwise a replica joined after it, and nothing may be written before that position.
            if self.next.position == self.closed.end {
                self.next.position = first.position;
            }
            self.next.sequence = first.sequence;
            self.closed =
                Closed { end: first.position, confirmed: self.closed.confirmed.min(first.sequence - 1) };
        }
    }

    /// Number of durable records from the tail on that no replica has. Call [`Log::settle_snapshot`] first.
    pub fn lost(&self) -> u64 {
        let lost = |finding: &Finding| match finding {
            Finding::Gap { from, to } => {
                let (tail, next) = (self.header.tail.sequence, self.next.sequence);
                to.sequence.min(next).saturating_sub(from.sequence.max(tail))
            }
            _ => 0,
        };
        self.findings.iter().map(lost).sum()
    }

    /// The valid entries, in order: without those of incomplete snapshots.
    pub fn entries(&self) -> impl Iterator<Item = (&Replayed, &Entry)> {
        let mut skipped = 0;
        let counts = move |(at, record): &(usize, &Replayed)| {
            if let Some(records) = snapshot_records(record).filter(|_| !self.is_complete(*at)) {
                skipped = record.head.id.sequence + u64::from(records);
            }
            record.head.id.sequence >= skipped
        };
        let records = self.records.iter().enumerate().filter(counts);
        records.flat_map(|(_, record)| record.entries.iter().map(move |entry| (record, entry)))
    }

    /// How durable the values of an entry are, for a table to which each record's confirmation is applied before its
    /// entries.
    pub fn carrier(&self, record: &Replayed, entry: &Entry) -> Carrier {
        let sequence = record.head.id.sequence;
        // A complete snapshot states itself which entries are confirmed. After an opening it is at the tail.
        let tail =
            self.records.first().and_then(|first| Some((first.head.id.sequence, snapshot_records(first)?)));
        let is_of_snapshot =
            tail.is_some_and(|(first, count)| sequence < first + u64::from(count)) && self.is_complete(0);
        match entry.is_unconfirmed || !record.confirmed && !is_of_snapshot {
            true => Carrier::Open(sequence),
            false if is_of_snapshot => Carrier::Confirmed,
            false => Carrier::Record(sequence),
        }
    }

    /// Whether the snapshot that begins with a record is complete: its owner wrote all its records, each after the
    /// previous one was durable. Unreadable records form a gap.
    fn is_complete(&self, at: usize) -> bool {
        let id = &self.records[at].head.id;
        let segment = self.header.segment_at(id.position).expect("a record has a segment");
        let end =
            self.header.segments.get(segment + 1).map_or(self.next.sequence, |next| next.first.sequence);
        snapshot_records(&self.records[at]).is_some_and(|count| id.sequence + u64::from(count) <= end)
    }

    /// Whether the log was rolled back: whether it lacks the epoch and sequence of the metadata's log state, or the
    /// highest mark of a disk (step 5).
    pub fn is_rolled_back(&self, state: (u64, u64), mark: u64) -> bool {
        let last = (self.header.open().epoch, self.next.sequence.saturating_sub(1));
        last < state || last.1 < mark
    }
}

/// The number of records of the snapshot that begins with a record.
fn snapshot_records(record: &Replayed) -> Option<u32> {
    match record.entries.first()?.change {
        Change::SnapshotBegins { records, .. } => Some(records),
        _ => None,
    }
}
