//! A write that waits for its disks only, and has no task: who ends the last of its I/Os ends it.
//!
//! Nearly every write is one: a run of a group that is ready, its regions marked, all copies here, nobody else at its units. What turns out otherwise goes on in
//! a task.
//!
//! Invariants:
//! 1. It begins under what `space`, invariant 1, asks for, with nothing left to wait for; and ends as every write does.
//! 2. It goes on whoever waits, or does not: its disks tell it when they are done. So who tells may hold no lock that the end of a write takes.
//! 3. Each of its I/Os ends once: when its disk tells, or when the disk has left before, which wakes it. Then the I/O stays under way until the disk tells.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use arena::{Sg, sg_len};
use disk::{DiskError, Op, Place, Then, Told};
use futures_util::FutureExt;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::change::{Marks, Targets};
use super::locks::RangeLock;
use super::{Call, Space, SpaceError};
use crate::blocks::checksums::Sums;
use crate::groups::{Group, GroupKey};
use crate::pulse::Ticket;
use crate::{GROUP, SpaceId};

/// See the module.
struct Flight(Mutex<State>);

struct State {
    writes: Writes,
    /// Those that have not ended.
    left: usize,
    /// Until all have.
    change: Option<Change>,
    answer: Answer,
}

/// Of each copy.
type Writes = SmallVec<[Write; 2]>;

/// One of its I/Os.
struct Write {
    at: Place,
    /// Until its disk is done with it.
    ticket: Option<Ticket>,
    /// When it has ended.
    result: Option<Result<(), DiskError>>,
}

/// What a write had, and what came of its I/Os.
type Ended = (Change, SmallVec<[Result<(), DiskError>; 2]>);

enum Answer {
    /// Nobody waits yet, or somebody does.
    Open(Option<Waker>),
    Told(Result<(), SpaceError>),
    Taken,
}

/// What a write has until it ends, beside its I/Os; it is given back in this order.
struct Change {
    group: Arc<Group>,
    /// Of the column.
    units: Range<u32>,
    regions: u64,
    sums: Sums,
    targets: Targets,
    _marks: Marks,
    _lock: RangeLock,
    right: Right,
    call: Option<Call>,
}

/// The right to one run of a write.
struct Right(Space);

impl Drop for Right {
    fn drop(&mut self) {
        self.0.path.writes.add_permits(1);
    }
}

/// The wait for a write that goes on anyway.
pub(super) struct Wait(Arc<Flight>);

/// Who has to answer; if he cannot, nobody knows what came of it.
struct Teller {
    flight: Arc<Flight>,
    key: GroupKey,
    space: SpaceId,
}

impl Space {
    /// Begins a write, if it has nothing to wait for but the disks. Gives back what it was given otherwise, and nothing has changed.
    pub(super) fn start_write(
        &self,
        address: u64,
        src: Sg,
        call: Option<Call>,
    ) -> Result<Wait, (Sg, Option<Call>)> {
        let length = sg_len(&src) as u64;
        let Some(mut change) = self.prepare_write(address, length) else { return Err((src, call)) };
        change.call = call;
        let key = change.group.key;
        change.sums = self.sums(key.row, key.column, change.units.start, src.iter().map(|b| &b[..]));
        // It may end, and give the copies back, before the last one is started.
        let (targets, first) = (change.targets.clone(), change.units.start);
        let state =
            State { writes: Writes::new(), left: 0, change: Some(change), answer: Answer::Open(None) };
        let (flight, now) = (Arc::new(Flight(Mutex::new(state))), self.path.env.moment());
        let mut starts: SmallVec<[_; 2]> = SmallVec::new();
        let mut state = flight.0.lock();
        for (copy, disk) in targets.copies().iter().filter_map(|c| Some((c, c.disk.as_ref()?))) {
            let at = Place::new(Op::Write, copy.data_at(disk, first), length);
            let ticket = disk.pulse.begin_write(now, at, Waker::from(Arc::clone(&flight)));
            if ticket.is_some() {
                starts.push((state.writes.len(), disk, at));
            }
            let result = ticket.is_none().then_some(Err(DiskError::Timeout { at }));
            state.writes.push(Write { at, ticket, result });
        }
        state.left = starts.len();
        let ended = state.ended();
        drop(state);
        for (which, disk, at) in starts {
            let who: Arc<Flight> = Arc::clone(&flight);
            disk.write_then(at.offset, src.clone(), Then::new(who, which, at));
        }
        flight.end(ended);
        Ok(Wait(flight))
    }

    /// All that comes before its I/Os.
    fn prepare_write(&self, address: u64, length: u64) -> Option<Change> {
        if self.striped().is_some() || length == 0 {
            return None;
        }
        let spot = self.inner.layout.one_piece(address, length, GROUP)?;
        let (key, units) = (GroupKey::of(spot), spot.units(length));
        let regions = self.inner.regions.of(&units);
        self.path.writes.try_acquire().ok()?.forget();
        let right = Right(self.clone());
        if self.inner.groups.are_too_dirty() {
            return None;
        }
        let group = self.inner.groups.get(key);
        let _lock = self.inner.locks.try_lock(key.row, key.column, units.clone())?;
        if !self.is_ready(&group, regions) {
            return None;
        }
        let (targets, _marks) = self.begin_change_at_once(key, regions)?;
        let sums = Sums::new();
        Some(Change { group, units, regions, sums, targets, _marks, _lock, right, call: None })
    }
}

impl State {
    /// One of its I/Os has ended, if it had not; what the write had, when all have.
    fn ends(&mut self, which: usize, result: Result<(), DiskError>) -> Option<Ended> {
        let mine = &mut self.writes[which].result;
        if mine.is_some() {
            return None;
        }
        *mine = Some(result);
        self.left -= 1;
        self.ended()
    }

    fn ended(&mut self) -> Option<Ended> {
        if self.left > 0 {
            return None;
        }
        let results = self.writes.iter().filter_map(|w| w.result).collect();
        self.change.take().map(|change| (change, results))
    }
}

impl Flight {
    /// Ends it, if it has ended.
    fn end(self: &Arc<Self>, ended: Option<Ended>) {
        let Some((change, results)) = ended else { return };
        let (key, space) = (change.group.key, change.right.0.id());
        let teller = Teller { flight: Arc::clone(self), key, space };
        let space = &change.right.0;
        if space.is_well(&change.targets, change.regions, &results) {
            return teller.tell(change.ends(Ok(())));
        }
        space.path.env.clone().spawn_if_running(async move {
            let Change { right, group, regions, targets, .. } = &change;
            let judged = right.0.judge_writes(group.key, *regions, targets, &results).await;
            if let Err(error) = &judged {
                let disk = right.0.inner.info.path.display();
                tracing::warn!(%disk, %error, row = group.key.row.0, "a virtual disk refused");
            }
            teller.tell(change.ends(judged));
        });
    }

    fn tell(&self, result: Result<(), SpaceError>) {
        let before = std::mem::replace(&mut self.0.lock().answer, Answer::Told(result));
        if let Answer::Open(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl Change {
    /// It came out like this: all is given back, and nobody told yet.
    fn ends(self, result: Result<(), SpaceError>) -> Result<(), SpaceError> {
        if result.is_ok() {
            self.right.0.written(&self.group, &self.units, &self.sums);
        }
        result
    }
}

impl Teller {
    fn tell(self, result: Result<(), SpaceError>) {
        self.flight.tell(result);
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let open = matches!(self.flight.0.lock().answer, Answer::Open(_));
        if open {
            let (space, row) = (self.space, self.key.row);
            self.flight.tell(Err(SpaceError::Unavailable { space, row, disks: Default::default() }));
        }
    }
}

impl Told for Flight {
    fn told(self: Arc<Self>, which: usize, result: Result<(), DiskError>) {
        let mut state = self.0.lock();
        let ticket = state.writes[which].ticket.take();
        let ended = state.ends(which, result);
        drop(state);
        if let Some(ticket) = ticket {
            ticket.done();
        }
        self.end(ended);
    }
}

/// It is woken when a disk may have left.
impl Wake for Flight {
    fn wake(self: Arc<Self>) {
        Self::wake_by_ref(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.0.lock();
        let left = |w: &Write| w.ticket.as_ref().is_some_and(Ticket::is_abandoned);
        let mut ended = None;
        for which in 0..state.writes.len() {
            let write = &state.writes[which];
            if left(write) {
                let at = write.at;
                ended = ended.or(state.ends(which, Err(DiskError::Timeout { at })));
            }
        }
        drop(state);
        self.end(ended);
    }
}

impl Wait {
    /// The wait in the words of a disk.
    pub(super) fn told(self, at: Place) -> impl Future<Output = Result<(), DiskError>> + Send + 'static {
        self.map(move |result| result.map_err(|e| e.as_disk_error(at.op, at.offset, at.length)))
    }

    /// What came of it, if it has ended; once.
    pub(super) fn now(&self) -> Option<Result<(), SpaceError>> {
        let answer = &mut self.0.0.lock().answer;
        match std::mem::replace(answer, Answer::Taken) {
            Answer::Told(result) => Some(result),
            other => {
                *answer = other;
                None
            }
        }
    }
}

impl Future for Wait {
    type Output = Result<(), SpaceError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Answer::Open(waker) = &mut self.0.0.lock().answer {
            if !waker.as_ref().is_some_and(|w| w.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        Poll::Ready(self.now().expect("not polled after its end"))
    }
}
