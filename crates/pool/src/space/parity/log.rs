//! Writing to the journal: the entries of concurrent changes share one record, durable when their calls
//! return.
//!
//! A record whose write failed may be durable all the same. Until another one is in its place nothing begins
//! (`is_failed`), so that what it says cannot come true after something else did.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arena::{IoBuf, Sg, SgMut, sg_slice};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::{Parity, Striped};
use crate::journal::record::{self, Entry, Header, RECORD_MAX, RecordId};
use crate::journal::ring::{Point, Ring};
use crate::space::{Space, SpaceError};
use crate::{RowNumber, UNIT};

/// Units before the ring: the two places of the header.
pub(super) const HEADERS: u64 = 2;

/// The least that a ring can be.
pub(super) const LEAST: u64 = 128;

pub(super) struct Log {
    state: Mutex<State>,
    /// One writes at a time.
    commit: tokio::sync::Mutex<()>,
    capacity: u64,
}

struct State {
    ring: Ring,
    serial: u64,
    /// Whether the header on the disks has this epoch.
    begun: bool,
    failed: bool,
    queue: Vec<Arc<Waiting>>,
}

struct Waiting {
    entries: Vec<Entry>,
    payload: Vec<IoBuf>,
    room: u64,
    done: Mutex<Option<Result<u64, SpaceError>>>,
}

/// Reserved room in the journal for a record; unused room is released.
pub(super) struct Room {
    p: Arc<Parity>,
    units: u64,
}

/// A record whose changes are not all made in place.
pub(super) struct Pending {
    p: Arc<Parity>,
    position: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.p.log.state.lock().ring.release(self.units);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.p.log.state.lock().ring.done(self.position);
    }
}

impl Pending {
    /// Where it is, as [`super::table::RowState::named`] has it.
    pub(super) fn named(&self) -> u64 {
        self.position + 1
    }
}

/// A record is being written; when this is dropped, it is unknown whether the record is on disk.
struct Unsure<'a>(&'a Log);

impl Drop for Unsure<'_> {
    fn drop(&mut self) {
        self.0.state.lock().failed = true;
    }
}

impl Log {
    pub(super) fn new(capacity: u64) -> Log {
        let ring = Ring::new(capacity);
        let state = State { ring, serial: 0, begun: false, failed: false, queue: Vec::new() };
        Log { state: Mutex::new(state), commit: tokio::sync::Mutex::default(), capacity }
    }

    /// The most units that a record may ask room for.
    pub(super) fn most(&self) -> u64 {
        self.state.lock().ring.most().min(RECORD_MAX / 4)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().ring.used() == 0
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.state.lock().ring.is_half_full()
    }

    pub(super) fn is_failed(&self) -> bool {
        self.state.lock().failed
    }

    /// Whether a record that names a group still exists for the next opening.
    pub(super) fn has(&self, named: u64) -> bool {
        named > self.state.lock().ring.tail().position
    }

    /// Only the record on disk counts: the replay sets the position. Until then there are no writes, and no
    /// room.
    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        (state.begun, state.failed) = (false, false);
    }

    /// Nothing counts before this point; that will be durable with the next record, whose epoch is another one.
    pub(super) fn begin_later(&self, at: Point) {
        self.state.lock().ring.begin_at(at);
    }

    /// The last point up to `to` that has the record at a position after it, which there is.
    pub(super) fn no_later(&self, to: Point, position: u64) -> Point {
        if position >= to.position { to } else { self.state.lock().ring.at(position) }
    }

    /// Everything before this is written in place.
    pub(super) fn in_place(&self) -> Point {
        self.state.lock().ring.in_place()
    }
}

impl Striped {
    /// Room for a small record that is to make room, out of what is kept for that.
    pub(super) fn spare_room(&self, units: u64) -> Option<Room> {
        let spare = self.p.log.state.lock().ring.has_spare(units);
        spare.then(|| Room { p: Arc::clone(&self.p), units: 0 })
    }

    /// Room for a record, if there is.
    pub(super) fn try_room(&self, units: u64) -> Option<Room> {
        let got = self.p.log.state.lock().ring.reserve(units);
        got.then(|| Room { p: Arc::clone(&self.p), units })
    }

    /// Makes entries durable. With the result goes the record's place in the journal: it stays until that is dropped.
    pub(super) async fn append(
        &self,
        entries: Vec<Entry>,
        payload: Vec<IoBuf>,
        mut room: Room,
    ) -> Result<Pending, SpaceError> {
        let log = &self.p.log;
        let units = std::mem::take(&mut room.units);
        let mine = Arc::new(Waiting { entries, payload, room: units, done: Mutex::new(None) });
        log.state.lock().queue.push(Arc::clone(&mine));
        loop {
            let _one = log.commit.lock().await;
            if let Some(result) = mine.done.lock().take() {
                return result.map(|position| Pending { p: Arc::clone(&self.p), position });
            }
            let group = {
                let mut state = log.state.lock();
                let mut units = 0;
                let fits = state.queue.iter().take_while(|w| {
                    units += w.room;
                    units <= RECORD_MAX
                });
                let many = fits.count().max(1);
                state.queue.drain(..many).collect::<Vec<_>>()
            };
            let result = self.write_record(&group).await;
            let mut state = log.state.lock();
            for waiting in group {
                if result.is_err() {
                    state.ring.release(waiting.room);
                }
                *waiting.done.lock() = Some(result.clone());
            }
        }
    }

    /// Overwrites a record whose presence on disk is unknown.
    pub(super) async fn mend(&self) -> Result<(), SpaceError> {
        let _one = self.p.log.commit.lock().await;
        match self.p.log.is_failed() {
            true => self.write_record(&[]).await.map(drop),
            false => Ok(()),
        }
    }

    /// One record; its place.
    async fn write_record(&self, group: &[Arc<Waiting>]) -> Result<u64, SpaceError> {
        let log = &self.p.log;
        let journal = self.journal()?;
        if !log.state.lock().begun {
            let tail = log.state.lock().ring.tail();
            self.write_header(&journal, tail).await?;
        }
        let entries: Vec<Entry> = group.iter().flat_map(|w| w.entries.iter().cloned()).collect();
        let payload: Vec<IoBuf> = group.iter().flat_map(|w| w.payload.iter().cloned()).collect();
        let Point { position, sequence } = log.state.lock().ring.next();
        let bytes = record::encode(
            &self.record_id(self.space.path.io.epoch.0, sequence),
            self.p.columns(),
            &entries,
            &payload,
        );
        let units = (arena::sg_len(&bytes) as u64) / UNIT;
        if !log.state.lock().ring.has_room(units) {
            // Reached only without a reservation: by a record that is itself to free room, repeatedly in
            // vain.
            return Err(SpaceError::Unavailable {
                space: self.p.journal,
                row: RowNumber(0),
                disks: Default::default(),
            });
        }
        // A caller that gives up here, by an error or by being dropped, leaves it so.
        let unsure = Unsure(log);
        self.put(&journal, position, units, &bytes).await?;
        flush(journal).await?;
        std::mem::forget(unsure);
        self.p.counts.journal.fetch_add(units, std::sync::atomic::Ordering::Relaxed);
        let mut state = log.state.lock();
        state.failed = false;
        group.iter().for_each(|w| state.ring.release(w.room));
        Ok(state.ring.written(units, group.len()))
    }

    async fn put(&self, journal: &Space, position: u64, units: u64, bytes: &Sg) -> Result<(), SpaceError> {
        let mut done = 0;
        for part in self.places(position, units) {
            let length = part.end - part.start;
            let src = sg_slice(bytes, (done * UNIT) as usize, (length * UNIT) as usize);
            write_units(journal.clone(), part.start, src).await?;
            done += length;
        }
        Ok(())
    }

    /// Where units of the ring lie in the journal's space: in two parts when they go over its end.
    fn places(&self, position: u64, units: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let (capacity, first) = (self.p.log.capacity, position % self.p.log.capacity);
        let here = units.min(capacity - first);
        let rest = units - here;
        let parts = [HEADERS + first..HEADERS + first + here, HEADERS..HEADERS + rest];
        parts.into_iter().filter(|p| !p.is_empty())
    }

    fn record_id(&self, epoch: u64, sequence: u64) -> RecordId {
        RecordId { pool: self.space.path.pool, space: self.space.inner.id, epoch, sequence }
    }

    async fn write_header(&self, journal: &Space, tail: Point) -> Result<(), SpaceError> {
        let serial = {
            let mut state = self.p.log.state.lock();
            state.serial += 1;
            state.serial
        };
        let epoch = self.space.path.io.epoch.0;
        let header = Header { serial, epoch, tail: tail.position, sequence: tail.sequence };
        let bytes = record::encode_header(self.space.path.pool, self.space.inner.id, &header);
        let src = [IoBuf::from(bytes)].into_iter().collect();
        write_units(journal.clone(), serial % HEADERS, src).await?;
        flush(journal.clone()).await?;
        self.p.log.state.lock().begun = true;
        Ok(())
    }

    /// Records before this point are durable in place: their room can be reused.
    pub(super) async fn trim(&self, to: Point) -> Result<(), SpaceError> {
        let _one = self.p.log.commit.lock().await;
        {
            let state = self.p.log.state.lock();
            if state.ring.tail().position >= to.position && state.begun || state.ring.used() == 0 {
                return Ok(());
            }
        }
        self.write_header(&self.journal()?, to).await?;
        self.p.log.state.lock().ring.trim(to);
        Ok(())
    }

    /// Starts an empty journal at a point, durably: its earlier contents no longer count.
    pub(super) async fn begin_log(&self, at: Point) -> Result<(), SpaceError> {
        let _one = self.p.log.commit.lock().await;
        self.write_header(&self.journal()?, at).await?;
        self.p.log.state.lock().ring.begin_at(at);
        Ok(())
    }

    /// Writes zeros over lost units of the journal's space where no valid record is: so a journal becomes
    /// readable again. Returns those units.
    ///
    /// # Errors
    /// What keeps a checkpoint from being made, or the journal from being written.
    pub(crate) async fn clear_lost(&self, lost: &BTreeSet<u64>) -> Result<BTreeSet<u64>, SpaceError> {
        let _use = self.p.life.read().await;
        self.opened().await?;
        let _ = self.flush_now().await?;
        let _ = self.checkpoint().await?;
        let _one = self.p.log.commit.lock().await;
        let journal = self.journal()?;
        let (tail, head) = {
            let ring = &self.p.log.state.lock().ring;
            (ring.tail(), ring.next())
        };
        let used = |unit: u64| {
            self.places(tail.position, head.position - tail.position).any(|part| part.contains(&unit))
        };
        let mut cleared = BTreeSet::new();
        for address in lost {
            let unit = address / UNIT;
            if unit < HEADERS {
                // Each goes to the other's place.
                for _ in 0..HEADERS {
                    self.write_header(&journal, tail).await?;
                }
            } else if used(unit) {
                continue;
            } else {
                let zeros = [IoBuf::from(vec![0; UNIT as usize])].into_iter().collect();
                write_units(journal.clone(), unit, zeros).await?;
            }
            cleared.insert(*address);
        }
        flush(journal).await?;
        Ok(cleared)
    }

    /// The entries that count, in order, with their units; and where the next record would be.
    pub(super) async fn read_log(&self) -> Result<(Vec<(Entry, Vec<IoBuf>)>, Point), SpaceError> {
        let nothing = (Vec::new(), Point { position: 0, sequence: 1 });
        let journal = self.journal()?;
        let id = self.p.journal;
        if !self.space.path.read(|s| s.rows.contains_key(&(id, RowNumber(0)))) {
            return Ok(nothing);
        }
        let mut newest: Option<Header> = None;
        for place in 0..HEADERS {
            let bytes = read_units(journal.clone(), place..place + 1).await?;
            let header = record::decode_header(&bytes, self.space.path.pool, self.space.inner.id);
            newest = header.into_iter().chain(newest).max_by_key(|h| h.serial);
        }
        let Some(header) = newest else { return Ok(nothing) };
        let mut next = Point { position: header.tail, sequence: header.sequence };
        let mut entries = Vec::new();
        while next.position - header.tail < self.p.log.capacity {
            let id = self.record_id(header.epoch, next.sequence);
            let mut whole = Vec::new();
            for part in self.places(next.position, 1) {
                whole = read_units(journal.clone(), part).await?;
            }
            let Some(units) = record::length(&whole, &id) else { break };
            if next.position + units - header.tail > self.p.log.capacity {
                break;
            }
            for part in self.places(next.position + 1, units - 1) {
                whole.extend(read_units(journal.clone(), part).await?);
            }
            let Some(found) = record::decode(&IoBuf::from(whole), &id, self.p.columns()) else { break };
            entries.extend(found);
            next = Point { position: next.position + units, sequence: next.sequence + 1 };
        }
        let mut state = self.p.log.state.lock();
        state.serial = state.serial.max(header.serial);
        Ok((entries, next))
    }
}

// A space of another kind, by the same calls: boxed, so that no future has itself inside.

fn write_units(journal: Space, unit: u64, src: Sg) -> BoxFuture<'static, Result<(), SpaceError>> {
    Box::pin(async move { journal.write_at(unit * UNIT, src).await })
}

fn flush(journal: Space) -> BoxFuture<'static, Result<(), SpaceError>> {
    Box::pin(async move { journal.flush_all().await })
}

fn read_units(journal: Space, units: Range<u64>) -> BoxFuture<'static, Result<Vec<u8>, SpaceError>> {
    Box::pin(async move {
        let length = ((units.end - units.start) * UNIT) as usize;
        let buffers = journal.path.io.arena.alloc_sg(length, arena::Class::Control).await;
        let dst = disk::sized(buffers, length);
        let (result, read): (_, SgMut) = journal.read_at(units.start * UNIT, dst).await;
        result?;
        Ok(crate::disks::whole(&read))
    })
}
