//! When a record begins, what it has, and when it is confirmed: `docs/0004-spaces.md`, section D, "Commit" and
//! "Gather".
//!
//! A state machine without I/O. Callers enqueue a [`Batch`]; the log's task writes the record that [`Core::begin`]
//! returns, flushes disks for it at the same time, and reports both ([`Core::durable`], [`Core::flushed`]). `C` is
//! what a batch has, and `W` is its waiter; neither is looked at.
//!
//! Invariants:
//! 1. One record is being written at a time: the next one begins when it is durable on all replicas. No position is
//!    given out twice (rule 7).
//! 2. At most [`UNCONFIRMED_MAX`] records are unconfirmed. They are confirmed in the order of their sequences.
//! 3. Early batches keep their order, and so do all others. Only early ones overtake: they begin a record while
//!    others wait for a flush. A record with both has them in the order in which they came.
//! 4. No record says that a flush which left units in doubt is confirmed before all its `doubt` entries are in that
//!    record, or in one before it (rule 5).
//! 5. The last quarter of the ring is used by snapshots only, which therefore never wait for room.
//! 6. What waits has at most a quarter of the ring, apart from snapshots and batches in order.

use std::collections::VecDeque;
use std::time::Duration;

use env::Moment;
use pool_seam::DiskNumber;
use smallvec::SmallVec;

use super::record::{HEAD_BLOCKS_MAX, HEAD_BYTES, PAYLOAD_UNITS_MAX, RecordId};
use super::ring::{Point, Ring};
use super::{BLOCK, snapshot};

/// The most unconfirmed records.
pub const UNCONFIRMED_MAX: usize = 4;

/// After this time without a commit an empty record says the last confirmation.
const QUIET: Duration = Duration::from_millis(50);

/// A shorter wait for more batches is not made: timers have milliseconds.
const GATHER_MIN: Duration = Duration::from_micros(250);

/// What a batch waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// The record's durability. Its order among other batches does not matter: active, redo, annex, disk marks; or no
    /// entries at all, to have the last confirmation said.
    Early,
    /// The record's durability. It begins a record at once, after all that waits: doubt, and decisions on units.
    InOrder,
    /// Also a flush, which begins after the batch is taken: written, discarded, lost, fresh.
    Flush(FlushSet),
}

/// The disks that a record's flush is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushSet {
    /// Every disk with completed and unflushed writes is flushed; otherwise those of `disks` are (FUA).
    pub everything: bool,
    /// The disks that the entries are on.
    pub disks: SmallVec<[DiskNumber; 4]>,
}

/// The size of entries and their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes of the entries.
    pub body: usize,
    /// Payload units.
    pub units: usize,
}

/// Entries that go into the log together.
#[derive(Debug)]
pub struct Batch<C, W> {
    /// What it waits for.
    pub class: Class,
    /// Its size; see [`Core::takes`].
    pub size: Size,
    /// Its entries and payload.
    pub content: C,
    /// Receives the result.
    pub waiter: W,
}

/// A record to write.
#[derive(Debug, PartialEq, Eq)]
pub struct Record<C> {
    /// Its place in the log.
    pub id: RecordId,
    /// Its batches, in order.
    pub contents: Vec<C>,
    /// What is flushed while it is written; then [`Core::flushed`] is due.
    pub flush: Option<FlushSet>,
}

/// What the log's task does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<C> {
    /// Write this record.
    Write(Record<C>),
    /// Nothing until another event, or this time.
    Wait(Option<Moment>),
}

/// A durable record, or a confirmed one where a flush was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The record's sequence.
    pub sequence: u64,
    /// Records up to this sequence are confirmed, and a durable record says so. Where a flush was waited for, it is
    /// `sequence`, which no record says yet.
    pub confirmed: u64,
}

/// Results for waiters: an error names the disk whose flush failed.
pub type Answers<W> = Vec<(W, Result<Appended, DiskNumber>)>;

/// See the module.
#[derive(Debug)]
pub struct Core<C, W> {
    epoch: u64,
    ring: Ring,
    tail: u64,
    end: Point,
    early: Queue<C, W>,
    late: Queue<C, W>,
    snapshot: VecDeque<(Size, C, W)>,
    tickets: u64,
    /// Batches in order that wait.
    in_order: usize,
    is_writing: bool,
    unconfirmed: VecDeque<Unconfirmed<W>>,
    confirmed: u64,
    /// Records above this are not called confirmed before all batches in order are taken (invariant 4).
    doubted: Option<u64>,
    /// The last confirmation that a durable record says, and the last one with entries.
    said: u64,
    to_say: u64,
    gather: Gather,
    last_commit: Moment,
    is_finishing: bool,
}

#[derive(Debug)]
struct Queue<C, W> {
    batches: VecDeque<(u64, Batch<C, W>)>,
    size: Size,
}

#[derive(Debug)]
struct Unconfirmed<W> {
    id: RecordId,
    begun: Moment,
    has_entries: bool,
    is_durable: bool,
    /// The disks whose flush failed; `None` while it is in progress.
    flushed: Option<SmallVec<[DiskNumber; 1]>>,
    early: Vec<W>,
    late: Vec<(W, FlushSet)>,
}

/// When batches that wait for a flush may begin a record.
#[derive(Debug)]
struct Gather {
    /// As many callers are there: those that the last flush answered, and those that waited then.
    callers: usize,
    /// Until this time they are waited for.
    until: Moment,
}

impl Size {
    /// Blocks of a record of this size.
    pub fn blocks(&self) -> u64 {
        ((HEAD_BYTES + self.body).div_ceil(BLOCK) + self.units) as u64
    }

    pub(super) fn and(self, other: Size) -> Size {
        Size { body: self.body + other.body, units: self.units + other.units }
    }
}

impl<C, W> Core<C, W> {
    /// A log of `epoch` whose records begin at `end`; those from position `tail` on count.
    pub fn new(epoch: u64, ring: Ring, tail: u64, end: Point, now: Moment) -> Core<C, W> {
        let confirmed = end.sequence.saturating_sub(1);
        let gather = Gather { callers: 0, until: now };
        Core {
            epoch,
            ring,
            tail,
            end,
            early: Queue::default(),
            late: Queue::default(),
            snapshot: VecDeque::new(),
            tickets: 0,
            in_order: 0,
            is_writing: false,
            unconfirmed: VecDeque::new(),
            confirmed,
            doubted: None,
            said: confirmed,
            to_say: confirmed,
            gather,
            last_commit: now,
            is_finishing: false,
        }
    }

    /// Whether a record may have this size: at most an eighth of the ring.
    pub fn takes(&self, size: Size) -> bool {
        let head = size.blocks() - size.units as u64;
        head <= u64::from(HEAD_BLOCKS_MAX)
            && size.units <= usize::from(PAYLOAD_UNITS_MAX)
            && size.blocks() <= self.ring.record_max()
    }

    /// Whether another batch may wait (invariant 6).
    pub fn has_room(&self, class: &Class, size: Size) -> bool {
        let waiting = self.early.size.and(self.late.size).and(size);
        *class == Class::InOrder || waiting.blocks() <= self.ring.blocks() / 4
    }

    /// Adds a batch to those that wait. The caller has asked [`Core::has_room`].
    ///
    /// # Panics
    /// If no record takes the batch.
    pub fn enqueue(&mut self, batch: Batch<C, W>) {
        assert!(self.takes(batch.size), "a batch is larger than a record");
        self.tickets += 1;
        self.in_order += usize::from(batch.class == Class::InOrder);
        let queue = if batch.class == Class::Early { &mut self.early } else { &mut self.late };
        queue.size = queue.size.and(batch.size);
        queue.batches.push_back((self.tickets, batch));
    }

    /// Adds a record of a snapshot. It comes before all that waits, and has [`snapshot::record_max`] blocks at most.
    pub fn enqueue_snapshot(&mut self, size: Size, content: C, waiter: W) {
        assert!(size.blocks() <= snapshot::record_max(self.ring), "a record of a snapshot is too large");
        self.snapshot.push_back((size, content, waiter));
    }

    /// The record to write now, if one begins.
    pub fn begin(&mut self, now: Moment) -> Next<C> {
        if self.is_writing || self.unconfirmed.len() == UNCONFIRMED_MAX {
            return Next::Wait(None);
        }
        if let Some((size, content, waiter)) = self.snapshot.pop_front() {
            let position = self.ring.fit(self.tail, self.end.position, size.blocks());
            let position = position.expect("a quarter of the ring is kept for snapshots");
            let taken = Taken { contents: vec![content], early: vec![waiter], ..Taken::default() };
            return Next::Write(self.write(now, position, size, taken));
        }
        let late = self.late_from(now);
        let takes_late = late.is_some_and(|from| from <= now);
        let quiet = self.quiet_from();
        if self.early.batches.is_empty() && !takes_late && quiet.is_none_or(|from| from > now) {
            return Next::Wait(late.into_iter().chain(quiet).min());
        }
        let (early, late, size) = self.select(takes_late);
        let position = self.ring.place(self.end.position, size.blocks());
        if position + size.blocks() - self.tail + self.ring.blocks() / 4 > self.ring.blocks() {
            return Next::Wait(None);
        }
        let taken = self.take(early, late);
        Next::Write(self.write(now, position, size, taken))
    }

    /// The record that was begun last is durable on all replicas that it is written to.
    pub fn durable(&mut self, now: Moment, answers: &mut Answers<W>) {
        assert!(std::mem::take(&mut self.is_writing), "no record is being written");
        let record = self.unconfirmed.back_mut().expect("a record that is written is not confirmed");
        record.is_durable = true;
        let RecordId { sequence, confirmed, .. } = record.id;
        let early = record.early.drain(..);
        answers.extend(early.map(|waiter| (waiter, Ok(Appended { sequence, confirmed }))));
        self.said = confirmed;
        self.confirm(now, answers);
    }

    /// The flush of a record ended. Of `failed` disks, units stay in doubt: their entries were enqueued in order
    /// before this call.
    pub fn flushed(
        &mut self,
        now: Moment,
        sequence: u64,
        failed: SmallVec<[DiskNumber; 1]>,
        answers: &mut Answers<W>,
    ) {
        let record = self.unconfirmed.iter_mut().find(|record| record.id.sequence == sequence);
        let record = record.expect("a record stays until its flush ended");
        if !failed.is_empty() && self.in_order > 0 {
            self.doubted = Some(self.doubted.map_or(sequence - 1, |known| known.min(sequence - 1)));
        }
        record.flushed = Some(failed);
        self.confirm(now, answers);
    }

    /// The tail has moved: the ring's blocks before it are free.
    pub fn trim(&mut self, tail: u64) {
        assert!((self.tail..=self.end.position).contains(&tail), "a tail outside of the log");
        self.tail = tail;
    }

    /// An empty record says the last confirmation without delay from now on.
    pub fn finish(&mut self) {
        self.is_finishing = true;
    }

    /// Whether nothing waits, is being written, or has to be said.
    pub fn is_idle(&self) -> bool {
        let nothing_waits =
            self.early.batches.is_empty() && self.late.batches.is_empty() && self.snapshot.is_empty();
        nothing_waits && self.unconfirmed.is_empty() && self.to_say <= self.said
    }

    /// After the newest record.
    pub fn end(&self) -> Point {
        self.end
    }

    /// Blocks of the ring that records have, and those of the whole ring.
    pub fn used(&self) -> (u64, u64) {
        (self.end.position - self.tail, self.ring.blocks())
    }

    /// Forgets everything that waits or is unconfirmed; its waiters.
    pub fn take_waiters(&mut self) -> Vec<W> {
        let snapshot = std::mem::take(&mut self.snapshot).into_iter().map(|(_, _, waiter)| waiter);
        let mut waiters: Vec<W> = snapshot.collect();
        for record in std::mem::take(&mut self.unconfirmed) {
            waiters.extend(record.early.into_iter().chain(record.late.into_iter().map(|(waiter, _)| waiter)));
        }
        for queue in [&mut self.early, &mut self.late] {
            waiters.extend(std::mem::take(&mut queue.batches).into_iter().map(|(_, batch)| batch.waiter));
        }
        waiters
    }

    /// When the batches that wait for a flush may begin a record; `None` if an event has to come first.
    fn late_from(&self, now: Moment) -> Option<Moment> {
        let waiting = self.late.batches.len();
        let is_full = self.early.size.and(self.late.size).blocks() >= self.ring.record_max();
        if self.in_order > 0 || waiting > 0 && is_full {
            return Some(now);
        }
        let is_flushing = self.unconfirmed.iter().any(|record| !record.late.is_empty());
        if waiting == 0 || is_flushing {
            return None;
        }
        Some(if waiting >= self.gather.callers { now } else { self.gather.until })
    }

    /// When an empty record is due.
    fn quiet_from(&self) -> Option<Moment> {
        let quiet = if self.is_finishing { Duration::ZERO } else { QUIET };
        let is_due = self.unconfirmed.is_empty() && self.to_say > self.said;
        is_due.then(|| self.last_commit.after(quiet))
    }

    /// How many batches of both queues the next record has, in the order of their tickets, and its size.
    fn select(&self, takes_late: bool) -> (usize, usize, Size) {
        let (mut early, mut late, mut size) = (0, 0, Size::default());
        loop {
            let first = self.early.batches.get(early);
            let second = self.late.batches.get(late).filter(|_| takes_late);
            let next = first.into_iter().chain(second).min_by_key(|(ticket, _)| *ticket);
            let Some((ticket, batch)) = next.filter(|(_, batch)| self.takes(size.and(batch.size))) else {
                return (early, late, size);
            };
            size = size.and(batch.size);
            let is_early = first.is_some_and(|(first, _)| first == ticket);
            if is_early { early += 1 } else { late += 1 }
        }
    }

    /// Takes the batches that [`Core::select`] chose.
    fn take(&mut self, mut early: usize, mut late: usize) -> Taken<C, W> {
        let mut taken = Taken::default();
        while early + late > 0 {
            let ticket = |queue: &Queue<C, W>| queue.batches.front().map(|(ticket, _)| *ticket);
            let is_early = late == 0 || early > 0 && ticket(&self.early) < ticket(&self.late);
            let queue = if is_early { &mut self.early } else { &mut self.late };
            if is_early {
                early -= 1
            } else {
                late -= 1
            }
            let (_, batch) = queue.batches.pop_front().expect("a chosen batch is there");
            queue.size.body -= batch.size.body;
            queue.size.units -= batch.size.units;
            taken.contents.push(batch.content);
            match batch.class {
                Class::Early => taken.early.push(batch.waiter),
                Class::InOrder => {
                    self.in_order -= 1;
                    taken.early.push(batch.waiter);
                }
                Class::Flush(set) => {
                    let flush = taken.flush.get_or_insert_default();
                    flush.everything |= set.everything;
                    flush.disks.extend_from_slice(&set.disks);
                    taken.late.push((batch.waiter, set));
                }
            }
        }
        if let Some(flush) = &mut taken.flush {
            flush.disks.sort_unstable();
            flush.disks.dedup();
        }
        taken
    }

    fn write(&mut self, now: Moment, position: u64, size: Size, taken: Taken<C, W>) -> Record<C> {
        if self.in_order == 0 {
            self.doubted = None;
        }
        let confirmed = self.confirmed.min(self.doubted.unwrap_or(u64::MAX));
        let sequence = self.end.sequence;
        let id = RecordId { epoch: self.epoch, sequence, position, confirmed };
        self.end = Point { position: position + size.blocks(), sequence: sequence + 1 };
        (self.is_writing, self.last_commit) = (true, now);
        let Taken { contents, early, late, flush } = taken;
        let flushed = flush.is_none().then(SmallVec::new);
        let (has_entries, is_durable) = (size.body > 0, false);
        self.unconfirmed.push_back(Unconfirmed {
            id,
            begun: now,
            has_entries,
            is_durable,
            flushed,
            early,
            late,
        });
        Record { id, contents, flush }
    }

    /// Confirms records in order.
    fn confirm(&mut self, now: Moment, answers: &mut Answers<W>) {
        let is_done = |record: &Unconfirmed<W>| record.is_durable && record.flushed.is_some();
        while self.unconfirmed.front().is_some_and(is_done) {
            let Some(record) = self.unconfirmed.pop_front() else { break };
            let sequence = record.id.sequence;
            self.confirmed = sequence;
            if record.has_entries {
                self.to_say = sequence;
            }
            self.last_commit = now;
            if !record.late.is_empty() {
                let time = Duration::from_nanos(now.ns_since(record.begun) / 16);
                let time = if time < GATHER_MIN { Duration::ZERO } else { time };
                let callers = record.late.len() + self.late.batches.len();
                self.gather = Gather { callers, until: now.after(time) };
            }
            let failed = record.flushed.unwrap_or_default();
            for (waiter, set) in record.late {
                let of_it = failed.iter().find(|disk| set.everything || set.disks.contains(disk));
                let confirmed = Appended { sequence, confirmed: sequence };
                answers.push((waiter, of_it.map_or(Ok(confirmed), |disk| Err(*disk))));
            }
        }
    }
}

/// The batches of a record.
struct Taken<C, W> {
    contents: Vec<C>,
    early: Vec<W>,
    late: Vec<(W, FlushSet)>,
    flush: Option<FlushSet>,
}

impl<C, W> Default for Taken<C, W> {
    fn default() -> Taken<C, W> {
        Taken { contents: Vec::new(), early: Vec::new(), late: Vec::new(), flush: None }
    }
}

impl<C, W> Default for Queue<C, W> {
    fn default() -> Queue<C, W> {
        Queue { batches: VecDeque::new(), size: Size::default() }
    }
}
