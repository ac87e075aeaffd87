//! Decides when a record begins, which callers it answers, and when it is confirmed: `docs/0004-spaces.md`, section D,
//! "Commit", "Pull" and "Gather".
//!
//! A state machine without I/O. The log's task asks [`Core::begin`], takes entries from the space, writes the record
//! that [`Core::begun`] returns, flushes disks for it at the same time, and reports both ([`Core::durable`],
//! [`Core::flushed`]). `W` is a waiting caller, opaque to this module.
//!
//! Invariants:
//! 1. One record is being written at a time: the next one begins when it is durable on all replicas. No position is
//!    assigned twice (rule 7).
//! 2. At most [`UNCONFIRMED_MAX`] records are unconfirmed. They are confirmed in the order of their sequences.
//! 3. A caller is answered by the first record that begins after its call and leaves no entries waiting.
//! 4. A flush that left units in doubt is declared confirmed only by a record that follows all their `doubt` entries
//!    (rule 5).
//! 5. The last quarter of the ring is used by snapshots only, which therefore never wait for room, and by the empty
//!    record that ends a log.

use std::collections::VecDeque;
use std::time::Duration;

use env::Moment;
use pool_seam::DiskNumber;
use smallvec::SmallVec;

pub use super::capacity::{RecordCapacity, Size};
use super::record::RecordId;
use super::ring::{Point, Ring};

/// The most unconfirmed records.
pub const UNCONFIRMED_MAX: usize = 4;

/// After this time without a commit an empty record is written to store the last confirmation.
const QUIET: Duration = Duration::from_millis(50);

/// A shorter wait for more callers is skipped: timers have a resolution of milliseconds.
const GATHER_MIN: Duration = Duration::from_micros(250);

/// The disks that a record's flush must cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushSet {
    /// Every disk with completed and unflushed writes is flushed; otherwise those of `disks` are (FUA).
    pub everything: bool,
    /// The disks whose failure is reported to the caller, and which are always flushed.
    pub disks: SmallVec<[DiskNumber; 4]>,
}

impl FlushSet {
    /// Every disk with completed and unflushed writes.
    pub fn everything() -> FlushSet {
        FlushSet { everything: true, ..FlushSet::default() }
    }
}

/// A record to write.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place in the log.
    pub id: RecordId,
    /// The disks to flush while it is written; then [`Core::flushed`] must be called.
    pub flush: Option<FlushSet>,
}

/// The next step of the log's task.
#[derive(Debug)]
pub enum Next {
    /// The caller takes entries for a record of this sequence, with this flush, and then calls [`Core::begun`].
    Take(u64, FlushSet, RecordCapacity),
    /// The caller waits for another event, or until this time.
    Wait(Option<Moment>),
    /// The caller waits until the tail has moved.
    Full,
}

/// Results for callers; an error has the disk whose flush failed.
pub type Answers<W> = Vec<(W, Result<(), DiskNumber>)>;

/// See the module.
#[derive(Debug)]
pub struct Core<W> {
    epoch: u64,
    ring: Ring,
    tail: u64,
    end: Point,
    /// Callers that wait for a durable record; in `late`, those that also wait for a flush.
    early: Vec<W>,
    late: Vec<(W, FlushSet)>,
    /// The callers of the record for which entries are being taken, and its flush.
    taking: Callers<W>,
    taking_flush: FlushSet,
    /// The last record left entries waiting for lack of room.
    has_rest: bool,
    is_writing: bool,
    unconfirmed: VecDeque<Unconfirmed<W>>,
    confirmed: u64,
    /// No record above this one is declared confirmed before all `doubt` entries are taken (invariant 4).
    doubted: Option<u64>,
    /// The last confirmation in a durable record; in `to_say`, the last record with entries.
    declared: u64,
    to_declare: u64,
    gather: Gather,
    last_commit: Moment,
    is_finishing: bool,
}

#[derive(Debug)]
struct Callers<W> {
    early: Vec<W>,
    late: Vec<(W, FlushSet)>,
}

#[derive(Debug)]
struct Unconfirmed<W> {
    id: RecordId,
    begun: Moment,
    has_entries: bool,
    is_durable: bool,
    /// The disks whose flush failed; `None` while it is in progress.
    flushed: Option<SmallVec<[DiskNumber; 1]>>,
    callers: Callers<W>,
}

/// When callers that wait for a flush may begin a record.
#[derive(Debug)]
struct Gather {
    /// Wait for this many callers: those that the last flush answered, and those that waited then.
    callers: usize,
    /// Wait until this time at most.
    until: Moment,
}

impl<W> Core<W> {
    /// A log of `epoch` whose records begin at `end`; those from position `tail` on are valid.
    pub fn new(epoch: u64, ring: Ring, tail: u64, end: Point, now: Moment) -> Core<W> {
        let confirmed = end.sequence.saturating_sub(1);
        Core {
            epoch,
            ring,
            tail,
            end,
            early: Vec::new(),
            late: Vec::new(),
            taking: Callers::default(),
            taking_flush: FlushSet::default(),
            has_rest: false,
            is_writing: false,
            unconfirmed: VecDeque::new(),
            confirmed,
            doubted: None,
            declared: confirmed,
            to_declare: confirmed,
            gather: Gather { callers: 0, until: now },
            last_commit: now,
            is_finishing: false,
        }
    }

    /// Adds a caller that waits for a durable record, and for the flush of a set.
    pub fn wait(&mut self, caller: W, flush: Option<FlushSet>) {
        match flush {
            None => self.early.push(caller),
            Some(set) => self.late.push((caller, set)),
        }
    }

    /// Whether a record may begin, if there is room for it.
    pub fn is_free(&self) -> bool {
        !self.is_writing && self.unconfirmed.len() < UNCONFIRMED_MAX
    }

    /// The record for which entries are to be taken now, if one begins.
    pub fn begin(&mut self, now: Moment) -> Next {
        if !self.is_free() {
            return Next::Wait(None);
        }
        let (late, quiet) = (self.late_from(now), self.quiet_from());
        let takes_late = late.is_some_and(|from| from <= now);
        let is_quiet = quiet.is_some_and(|from| from <= now);
        let is_urgent = !self.early.is_empty() || self.has_rest || self.doubted.is_some();
        if !is_urgent && !takes_late && !is_quiet {
            return Next::Wait(late.into_iter().chain(quiet).min());
        }
        let room = self.room();
        let ends = self.is_finishing && is_quiet && !is_urgent && !takes_late;
        if room == 0 && !ends {
            return Next::Full;
        }
        let late = if takes_late { std::mem::take(&mut self.late) } else { Vec::new() };
        let mut set = FlushSet::default();
        for (_, of) in &late {
            set.everything |= of.everything;
            set.disks.extend_from_slice(&of.disks);
        }
        set.disks.sort_unstable();
        set.disks.dedup();
        self.taking = Callers { early: std::mem::take(&mut self.early), late };
        self.taking_flush = set.clone();
        Next::Take(self.end.sequence, set, RecordCapacity::new(room))
    }

    /// Entries of this size were taken; `has_rest` if others were left. Returns the record, unless not even one entry
    /// had room.
    pub fn begun(&mut self, now: Moment, size: Size, has_rest: bool) -> Option<Record> {
        let mut callers = std::mem::take(&mut self.taking);
        let flush = std::mem::take(&mut self.taking_flush);
        self.has_rest = has_rest;
        if has_rest {
            self.early.splice(0..0, callers.early.drain(..));
            self.late.splice(0..0, callers.late.drain(..));
            if size.body == 0 {
                return None;
            }
        }
        let flush = (flush.everything || !flush.disks.is_empty()).then_some(flush);
        let record = self.write(now, size, callers, flush);
        if !has_rest {
            self.doubted = None;
        }
        Some(record)
    }

    /// Begins a record of a snapshot, before all waiting entries. The caller has asked [`Core::is_free`].
    pub fn snapshot(&mut self, now: Moment, size: Size) -> Record {
        self.write(now, size, Callers::default(), None)
    }

    /// The last record is durable on all replicas that it was written to.
    pub fn durable(&mut self, now: Moment, answers: &mut Answers<W>) {
        assert!(std::mem::take(&mut self.is_writing), "no record is being written");
        let record = self.unconfirmed.back_mut().expect("a record that is written is not confirmed");
        record.is_durable = true;
        answers.extend(record.callers.early.drain(..).map(|caller| (caller, Ok(()))));
        self.declared = record.id.confirmed;
        self.confirm(now, answers);
    }

    /// The flush of a record ended. Units on the `failed` disks are in doubt: the space has recorded that before this
    /// call.
    pub fn flushed(
        &mut self,
        now: Moment,
        sequence: u64,
        failed: SmallVec<[DiskNumber; 1]>,
        answers: &mut Answers<W>,
    ) {
        let record = self.unconfirmed.iter_mut().find(|record| record.id.sequence == sequence);
        let record = record.expect("a record stays until its flush ended");
        if !failed.is_empty() {
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

    /// From now on the last confirmation is stored in an empty record without delay.
    pub fn finish(&mut self) {
        self.is_finishing = true;
    }

    /// Whether no record is unconfirmed.
    pub fn is_confirmed(&self) -> bool {
        self.unconfirmed.is_empty()
    }

    /// Whether no caller waits, no record is being written, and no confirmation has to be stored.
    pub fn is_idle(&self) -> bool {
        let nothing_waits = self.early.is_empty() && self.late.is_empty() && !self.has_rest;
        nothing_waits && self.doubted.is_none() && self.is_confirmed() && self.to_declare <= self.declared
    }

    /// The position and sequence after the newest record.
    pub fn end(&self) -> Point {
        self.end
    }

    /// The newest confirmed record, and the newest whose confirmation is stored in a durable record.
    pub fn progress(&self) -> (u64, u64) {
        (self.confirmed, self.declared)
    }

    /// Used blocks of the ring, and all of its blocks.
    pub fn used(&self) -> (u64, u64) {
        (self.end.position - self.tail, self.ring.blocks())
    }

    /// Removes and returns all callers.
    pub fn take_callers(&mut self) -> Vec<W> {
        let (early, late) = (std::mem::take(&mut self.early), std::mem::take(&mut self.late));
        let records = std::mem::take(&mut self.unconfirmed).into_iter().map(|record| record.callers);
        let all = records.chain([std::mem::take(&mut self.taking), Callers { early, late }]);
        all.flat_map(|callers| callers.early.into_iter().chain(callers.late.into_iter().map(|(w, _)| w)))
            .collect()
    }

    /// The most blocks of a record that begins now, without the last quarter of the ring.
    fn room(&self) -> u64 {
        let (end, to_end) = (self.end.position, self.ring.to_end(self.end.position));
        let limit = self.tail + self.ring.blocks() - self.ring.blocks() / 4;
        let here = limit.saturating_sub(end).min(to_end);
        let after_the_end = limit.saturating_sub(end + to_end);
        here.max(after_the_end).min(self.ring.record_max())
    }

    /// When the callers that wait for a flush may begin a record; `None` if an event has to happen first.
    fn late_from(&self, now: Moment) -> Option<Moment> {
        let is_flushing = self.unconfirmed.iter().any(|record| !record.callers.late.is_empty());
        if self.late.is_empty() || is_flushing {
            return None;
        }
        let is_due = self.has_rest || self.late.len() >= self.gather.callers;
        Some(if is_due { now } else { self.gather.until })
    }

    /// When an empty record is due.
    fn quiet_from(&self) -> Option<Moment> {
        let quiet = if self.is_finishing { Duration::ZERO } else { QUIET };
        let is_due = self.unconfirmed.is_empty() && self.to_declare > self.declared;
        is_due.then(|| self.last_commit.after(quiet))
    }

    fn write(&mut self, now: Moment, size: Size, callers: Callers<W>, flush: Option<FlushSet>) -> Record {
        let position = self.ring.fit(self.tail, self.end.position, size.blocks());
        let position = position.expect("a quarter of the ring is kept for snapshots");
        let confirmed = self.confirmed.min(self.doubted.unwrap_or(u64::MAX));
        let sequence = self.end.sequence;
        let id = RecordId { epoch: self.epoch, sequence, position, confirmed };
        self.end = Point { position: position + size.blocks(), sequence: sequence + 1 };
        (self.is_writing, self.last_commit) = (true, now);
        let flushed = flush.is_none().then(SmallVec::new);
        let (has_entries, is_durable) = (size.body > 0, false);
        self.unconfirmed.push_back(Unconfirmed { id, begun: now, has_entries, is_durable, flushed, callers });
        Record { id, flush }
    }

    /// Confirms records in order.
    fn confirm(&mut self, now: Moment, answers: &mut Answers<W>) {
        let is_done = |record: &Unconfirmed<W>| record.is_durable && record.flushed.is_some();
        while self.unconfirmed.front().is_some_and(is_done) {
            let Some(record) = self.unconfirmed.pop_front() else { break };
            let sequence = record.id.sequence;
            self.confirmed = sequence;
            if record.has_entries {
                self.to_declare = sequence;
            }
            self.last_commit = now;
            let late = record.callers.late;
            if !late.is_empty() {
                let time = Duration::from_nanos(now.ns_since(record.begun) / 16);
                let time = if time < GATHER_MIN { Duration::ZERO } else { time };
                self.gather = Gather { callers: late.len() + self.late.len(), until: now.after(time) };
            }
            let failed = record.flushed.unwrap_or_default();
            for (caller, set) in late {
                let of_it = failed.iter().find(|disk| set.everything || set.disks.contains(disk));
                answers.push((caller, of_it.map_or(Ok(()), |disk| Err(*disk))));
            }
        }
    }
}

impl<W> Default for Callers<W> {
    fn default() -> Callers<W> {
        Callers { early: Vec::new(), late: Vec::new() }
    }
}
