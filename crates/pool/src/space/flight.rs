//! A write that waits only for its disks, and has no task: its last completion ends it.
//!
//! Nearly every write is one: a run of a ready group, its regions marked, all copies present, no other user
//! of its units. Other cases continue in a task.
//!
//! Invariants:
//! 1. It begins under what `space`, invariant 1, asks for, with nothing left to wait for; and ends as every write does.
//! 2. It continues whether or not a caller waits: it is called back once for each of its I/Os, on completion
//!    or when the disk is removed. So the caller of the callback must not hold a lock that the end of a write
//!    takes.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arena::{Sg, sg_len};
use disk::{DiskError, Place, Told, Written};
use futures_util::FutureExt;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::change::{Marks, Targets};
use super::locks::RangeLock;
use super::{Call, Space, SpaceError};
use crate::blocks::checksums::Sums;
use crate::groups::{Group, GroupKey};
use crate::{GROUP, SpaceId};

/// See the module.
struct Flight(Mutex<State>);

struct State {
    /// The result of each copy.
    results: Results,
    /// I/Os that have not ended.
    left: usize,
    /// Until all have.
    change: Option<Change>,
    answer: Answer,
}

/// The results of the I/Os.
type Results = SmallVec<[Result<(), DiskError>; 2]>;

enum Answer {
    /// Without or with a waiter.
    Open(Option<Waker>),
    Told(Result<(), SpaceError>),
    Taken,
}

/// The resources of a write until it ends, beside its I/Os; released in this order.
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

/// The wait for a write, which continues without it.
pub(super) struct Wait(Arc<Flight>);

/// The one that must complete the write; if it is dropped, the result is unknown.
struct Teller {
    flight: Arc<Flight>,
    key: GroupKey,
    space: SpaceId,
}

impl Space {
    /// Begins a write, if it has nothing to wait for but the disks. Gives back what it was given otherwise,
    /// and nothing has changed.
    pub(super) fn start_write(
        &self,
        address: u64,
        mut src: Sg,
        call: Option<Call>,
    ) -> Result<Wait, (Sg, Option<Call>)> {
        let length = sg_len(&src) as u64;
        let Some(mut change) = self.prepare_write(address, length) else { return Err((src, call)) };
        change.call = call;
        let key = change.group.key;
        change.sums = self.sums(key.row, key.column, change.units.start, src.iter().map(|b| &b[..]));
        // It may end, and give the copies back, before the last one is started.
        let (targets, first) = (change.targets.clone(), change.units.start);
        let copies = || targets.copies().iter().filter_map(|c| Some((c, c.disk.as_ref()?)));
        let left = copies().count();
        let results = SmallVec::from_elem(Ok(()), left);
        let state = State { results, left, change: Some(change), answer: Answer::Open(None) };
        let (flight, now) = (Arc::new(Flight(Mutex::new(state))), self.path.env.moment());
        for (which, (copy, disk)) in copies().enumerate() {
            let src = if which + 1 < left { src.clone() } else { std::mem::take(&mut src) };
            let who: Arc<Flight> = Arc::clone(&flight);
            disk.write_then(now, copy.data_at(disk, first), src, (who, which));
        }
        Ok(Wait(flight))
    }

    /// All that comes before its I/Os.
    fn prepare_write(&self, address: u64, length: u64) -> Option<Change> {
        if self.striped().is_some() || length == 0 || !self.path.tenure.holds() {
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

impl Flight {
    fn end(self: &Arc<Self>, change: Change, results: Results) {
        let (key, space) = (change.group.key, change.right.0.id());
        let teller = Teller { flight: Arc::clone(self), key, space };
        let space = &change.right.0;
        let (well, tenure) =
            (space.is_well(&change.targets, change.regions, &results), Arc::clone(&space.path.tenure));
        if well && tenure.holds() {
            return teller.tell(change.ends(Ok(())));
        }
        space.path.env.clone().spawn_if_running(async move {
            let Change { right, group, units, targets, .. } = &change;
            let judged = match well {
                true => Ok(()),
                false => right.0.judge_writes(group.key, units, targets, &results).await,
            };
            if let Err(error) = &judged {
                let disk = right.0.info.path.display();
                tracing::warn!(%disk, %error, row = group.key.row.0, "a virtual disk refused");
            }
            let result = change.ends(judged);
            teller.tell(match result {
                Ok(()) => tenure.hold().await.map_err(SpaceError::from),
                error => error,
            });
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
    /// The result of the write: everything is released, before the waiter is notified.
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

impl Told<Written> for Flight {
    fn told(self: Arc<Self>, which: usize, result: Written) {
        let mut state = self.0.lock();
        state.results[which] = result;
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        let results = std::mem::take(&mut state.results);
        let change = state.change.take();
        drop(state);
        if let Some(change) = change {
            self.end(change, results);
        }
    }
}

impl Wait {
    /// The wait in the words of a disk.
    pub(super) fn told(self, at: Place) -> impl Future<Output = Result<(), DiskError>> + Send + 'static {
        self.map(move |result| result.map_err(|e| e.as_disk_error(at.op, at.offset, at.length)))
    }
}

impl Future for Wait {
    type Output = Result<(), SpaceError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = &mut self.0.0.lock().answer;
        match std::mem::replace(answer, Answer::Taken) {
            Answer::Told(result) => Poll::Ready(result),
            Answer::Taken => panic!("polled after its end"),
            Answer::Open(waker) => {
                let waker = waker.filter(|w| w.will_wake(context.waker()));
                *answer = Answer::Open(Some(waker.unwrap_or_else(|| context.waker().clone())));
                Poll::Pending
            }
        }
    }
}
