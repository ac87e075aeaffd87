//! A write that waits for its disks only, and has no task: who ends the last of its I/Os ends it.
//!
//! Nearly every write is one: a run of a group that is ready, its regions marked, all copies here, nobody else at its units. What turns out otherwise goes on in
//! a task.
//!
//! Invariants:
//! 1. It begins under what `space`, invariant 1, asks for, with nothing left to wait for; and ends as every write does.
//! 2. It goes on whoever waits, or does not: being woken is looking, and nobody has to poll it. So who wakes it may hold no lock that the end of a write takes.
//! 3. One at a time looks; who wakes it meanwhile has him look again.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use arena::{Sg, sg_len};
use disk::{DiskError, Place};
use futures_util::FutureExt;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::task::unconstrained;

use super::change::{Marks, Targets};
use super::locks::RangeLock;
use super::{Call, Space, SpaceError};
use crate::blocks::checksums::Sums;
use crate::disks::Started;
use crate::groups::{Group, GroupKey};
use crate::{GROUP, SpaceId};

/// See the module.
struct Flight {
    /// Until it ends.
    going: Mutex<Option<(Writes, Change)>>,
    /// Somebody has woken it.
    again: AtomicBool,
    answer: Mutex<Answer>,
}

enum Answer {
    /// Nobody waits yet, or somebody does.
    Open(Option<Waker>),
    Told(Result<(), SpaceError>),
    Taken,
}

/// Of each copy.
type Writes = SmallVec<[Started; 2]>;

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
        let Some(mut change) = self.prepare_write(address, sg_len(&src) as u64) else {
            return Err((src, call));
        };
        change.call = call;
        let key = change.group.key;
        change.sums = self.sums(key.row, key.column, change.units.start, src.iter().map(|b| &b[..]));
        let (mut writes, now) = (Writes::new(), self.path.env.moment());
        for copy in change.targets.copies() {
            if let Some(disk) = &copy.disk {
                writes.push(disk.start_write(now, copy.data_at(disk, change.units.start), src.clone()));
            }
        }
        let flight = Arc::new(Flight {
            going: Mutex::new(Some((writes, change))),
            again: AtomicBool::new(false),
            answer: Mutex::new(Answer::Open(None)),
        });
        flight.wake_by_ref();
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

impl Flight {
    /// Looks whether its I/Os have ended, and ends it then.
    fn look(self: &Arc<Self>, waker: &Waker) {
        self.again.store(true, Ordering::SeqCst);
        while self.again.load(Ordering::SeqCst) {
            // Who has it looks at `again` after he has given it back.
            let Some(mut going) = self.going.try_lock() else { return };
            self.again.store(false, Ordering::SeqCst);
            let Some((writes, _)) = &mut *going else { return };
            // Whoever wakes it: his turn is not its own.
            let all = poll_fn(|context| Started::poll_all(writes, context));
            let ended = pin!(unconstrained(all)).poll(&mut Context::from_waker(waker));
            if ended.is_ready()
                && let Some((writes, change)) = going.take()
            {
                drop(going);
                return self.end(writes, change);
            }
        }
    }

    fn end(self: &Arc<Self>, writes: Writes, change: Change) {
        let (key, space) = (change.group.key, change.right.0.id());
        let teller = Teller { flight: Arc::clone(self), key, space };
        let results: SmallVec<[_; 2]> = writes.iter().map(Started::result).collect();
        drop(writes);
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
        let before = std::mem::replace(&mut *self.answer.lock(), Answer::Told(result));
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
        let open = matches!(*self.flight.answer.lock(), Answer::Open(_));
        if open {
            let (space, row) = (self.space, self.key.row);
            self.flight.tell(Err(SpaceError::Unavailable { space, row, disks: Default::default() }));
        }
    }
}

impl Wake for Flight {
    fn wake(self: Arc<Self>) {
        Self::wake_by_ref(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.look(&Waker::from(Arc::clone(self)));
    }
}

impl Wait {
    /// The wait in the words of a disk.
    pub(super) fn told(self, at: Place) -> impl Future<Output = Result<(), DiskError>> + Send + 'static {
        self.map(move |result| result.map_err(|e| e.as_disk_error(at.op, at.offset, at.length)))
    }

    /// What came of it, if it has ended; once.
    pub(super) fn now(&self) -> Option<Result<(), SpaceError>> {
        let mut answer = self.0.answer.lock();
        match std::mem::replace(&mut *answer, Answer::Taken) {
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
        let mut answer = self.0.answer.lock();
        match &mut *answer {
            Answer::Open(waker) => {
                if !waker.as_ref().is_some_and(|w| w.will_wake(context.waker())) {
                    *waker = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
            Answer::Told(_) | Answer::Taken => {}
        }
        drop(answer);
        Poll::Ready(self.now().expect("not polled after its end"))
    }
}
