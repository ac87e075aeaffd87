//! The I/O of all owners to one disk in one membership.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use disk::{Disk, DiskError, DiskInfo, Gate, Op, Outcome, Pass, Place, Read, SlowReads, Then, Told, Written};
use env::{BoxFuture, Ctx, Epoch, Io, Moment};
use parking_lot::Mutex;
use pool_seam::{DiskNumber, Membership, SpaceId};
use tokio::sync::Notify;

use super::Supervision;
use super::hedge::{HEDGE_MOST, RENEWAL, TRIAL, hedge_after};
use super::latencies::Latencies;
use super::standing::{Look, SHORT};

/// See the module.
pub(crate) struct Record {
    pub(super) number: DiskNumber,
    pub(super) of: Membership,
    pub(super) info: DiskInfo,
    supervision: Arc<Supervision>,
    state: Mutex<State>,
    ended: Notify,
    is_slow: AtomicBool,
    /// When a read of it began or completed last, as far as it is slow: nanoseconds since [`Moment::START`].
    last_read: AtomicU64,
    hedged: AtomicU64,
}

struct State {
    /// None: the membership has ended, and no I/O begins any more.
    disk: Option<Arc<dyn Disk>>,
    /// What closes the disk to earlier owners of a space.
    gates: BTreeMap<SpaceId, Arc<Gate>>,
    latencies: Latencies,
    outstanding: Vec<Option<Outstanding>>,
    free: Vec<usize>,
    modifying: usize,
    reads: u64,
    /// After how long a read is late, as of a time.
    hedge_after: (Duration, Option<Moment>),
}

/// An I/O that the disk has not completed.
struct Outstanding {
    began: Moment,
    at: Place,
    /// It began in a short queue, of at most [`SHORT`].
    short: bool,
    /// A late read that was reported.
    is_late: bool,
    /// None: the caller has been called back already.
    caller: Option<Caller>,
    /// The space's gate counts the I/O.
    _pass: Pass,
}

/// What is called when a read is late, and its number of the read.
pub(super) type Receiver = (Arc<dyn Told<Read>>, usize);

/// What waits for an I/O.
pub(super) enum Caller {
    Reads(Then<Read>),
    Writes(Then<Written>),
    /// It polls; the waker of the last time.
    Polls(Option<Waker>),
}

/// An I/O that was begun, until it has completed.
pub(super) struct Begun {
    record: Arc<Record>,
    which: usize,
    at: Place,
    has_completed: bool,
}

/// The wait for an I/O without a callback. When it is dropped, a task waits for the disk in its place.
struct Waiting<T: Outcome> {
    io: Option<BoxFuture<T>>,
    begun: Option<Begun>,
}

impl Record {
    pub(super) fn new(
        supervision: &Arc<Supervision>,
        number: DiskNumber,
        of: Membership,
        disk: Arc<dyn Disk>,
    ) -> Arc<Record> {
        let info = disk.info().clone();
        let state = State {
            disk: Some(disk),
            gates: BTreeMap::new(),
            latencies: Latencies::new(),
            outstanding: Vec::new(),
            free: Vec::new(),
            modifying: 0,
            reads: 0,
            hedge_after: (HEDGE_MOST, None),
        };
        let supervision = Arc::clone(supervision);
        Arc::new(Record {
            number,
            of,
            info,
            supervision,
            state: Mutex::new(state),
            ended: Notify::new(),
            is_slow: AtomicBool::new(false),
            last_read: AtomicU64::new(0),
            hedged: AtomicU64::new(0),
        })
    }

    /// Whether it is the record of this handle of a disk.
    pub(super) fn is_of(&self, number: DiskNumber, of: Membership, disk: &Arc<dyn Disk>) -> bool {
        let is_it = |mine: &Arc<dyn Disk>| std::ptr::addr_eq(Arc::as_ptr(mine), Arc::as_ptr(disk));
        (self.number, self.of) == (number, of) && self.state.lock().disk.as_ref().is_some_and(is_it)
    }

    /// The gate of a space.
    pub(super) fn gate(&self, space: SpaceId) -> Arc<Gate> {
        Arc::clone(self.state.lock().gates.entry(space).or_default())
    }

    /// The pool's epoch, under which the disk is used.
    pub(super) fn epoch(&self) -> Epoch {
        self.supervision.epoch
    }

    pub(super) fn supervision(&self) -> &Arc<Supervision> {
        &self.supervision
    }

    /// The disk; none when the membership has ended.
    pub(super) fn disk(&self) -> Option<Arc<dyn Disk>> {
        self.state.lock().disk.clone()
    }

    /// Registers an I/O of a space, which the caller then starts on the disk. Errors: it may not begin: the space has
    /// another owner, or the disk has left the service. The caller is given back.
    pub(super) fn begin(
        self: &Arc<Record>,
        gate: &Arc<Gate>,
        c: &Ctx,
        at: Place,
        caller: Caller,
    ) -> Result<(Arc<dyn Disk>, usize), (DiskError, Caller)> {
        let pass = match gate.enter(c, at) {
            Ok(pass) => pass,
            Err(error) => return Err((error, caller)),
        };
        let began = self.supervision.env.moment();
        if at.op == Op::Read {
            // Also at its start: while a read hangs, the disk gets no second one for a trial.
            self.note_read(began);
        }
        let begun = {
            let mut state = self.state.lock();
            let Some(disk) = state.disk.clone() else {
                return Err((DiskError::Gone { at }, caller));
            };
            let short = state.outstanding.len() - state.free.len() < SHORT;
            let new = Outstanding { began, at, short, is_late: false, caller: Some(caller), _pass: pass };
            (disk, state.add(new))
        };
        // After it is there to be seen: the task looks once more when it ends.
        self.supervision.wake();
        if at.op == Op::Read {
            self.supervision.wake_hedger();
        }
        Ok(begun)
    }

    /// The wait for an I/O that [`Record::begin`] has registered for a caller that polls.
    pub(super) fn wait<T: Outcome>(self: &Arc<Record>, which: usize, at: Place, io: Io<T>) -> Io<T> {
        let begun = Begun { record: Arc::clone(self), which, at, has_completed: false };
        match io {
            Io::Done(outcome) => {
                begun.completed();
                Io::Done(outcome)
            }
            Io::Pending(io) => Io::pending(Waiting { io: Some(io), begun: Some(begun) }),
        }
    }

    /// The disk has completed an I/O: its caller, unless that was called back already.
    fn completed(&self, which: usize) -> Option<Caller> {
        let now = self.supervision.env.moment();
        let mut state = self.state.lock();
        let old = state.outstanding[which].as_ref()?;
        let (op, took, short) = (old.at.op, now.ns_since(old.began), old.short);
        state.latencies.add(op, took, short, now);
        let caller = state.remove(which);
        drop(state);
        if op == Op::Read {
            self.note_read(now);
        }
        caller
    }

    fn note_read(&self, now: Moment) {
        if self.is_slow.load(Ordering::Relaxed) {
            self.last_read.store(now.ns_since(Moment::START), Ordering::Relaxed);
        }
    }

    /// The disk is far slower than its peers, or no longer is.
    pub(super) fn set_slow(&self, is_slow: bool) {
        if self.is_slow.swap(is_slow, Ordering::Relaxed) != is_slow {
            // The first trial comes after a while.
            self.note_read(self.supervision.env.moment());
        }
    }

    /// Reads that have begun.
    pub(super) fn reads(&self) -> u64 {
        self.state.lock().reads
    }

    /// Reads that were late and hedged.
    pub(super) fn hedged(&self) -> u64 {
        self.hedged.load(Ordering::Relaxed)
    }

    /// The callers of reads that are late by now, each once, and when the next read will be.
    pub(super) fn late_reads(&self, now: Moment) -> (Vec<Receiver>, Option<Moment>) {
        let (mut late, mut next) = (Vec::new(), None::<Moment>);
        let mut state = self.state.lock();
        let State { latencies, outstanding, hedge_after: (after, renewed), .. } = &mut *state;
        if renewed.is_none_or(|at| now >= at.after(RENEWAL)) {
            (*after, *renewed) = (hedge_after(&latencies.reads), Some(now));
        }
        for io in outstanding.iter_mut().flatten().filter(|io| !io.is_late) {
            let Some(Caller::Reads(then)) = &io.caller else { continue };
            let due = io.began.after(*after);
            if due > now {
                next = Some(next.map_or(due, |next| next.min(due)));
            } else {
                io.is_late = true;
                late.extend(then.receiver());
            }
        }
        (late, next)
    }

    /// The membership has ended, and that is durable: no I/O begins any more, and callers wait no longer. What is
    /// outstanding counts until the disk has completed it. The disk is closed then.
    pub(super) fn end(&self) {
        let (disk, callers) = {
            let mut state = self.state.lock();
            let callers: Vec<Caller> =
                state.outstanding.iter_mut().flatten().filter_map(|io| io.caller.take()).collect();
            (state.disk.take(), callers)
        };
        self.ended.notify_waiters();
        for caller in callers {
            match caller {
                // Dropped, they report that the result is unknown.
                Caller::Reads(_) | Caller::Writes(_) | Caller::Polls(None) => {}
                Caller::Polls(Some(waker)) => waker.wake(),
            }
        }
        drop(disk);
    }

    /// Waits for the end of the membership.
    pub(super) async fn until_ended(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if self.has_ended() {
                return;
            }
            ended.await;
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().disk.is_none()
    }

    /// Whether no I/O is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.outstanding.len() == state.free.len()
    }

    /// Whether I/O is outstanding that changes the disk.
    pub(super) fn is_modifying(&self) -> bool {
        self.state.lock().modifying > 0
    }

    /// When the oldest I/O began that is waited for.
    pub(super) fn oldest(&self) -> Option<Moment> {
        let state = self.state.lock();
        state.outstanding.iter().flatten().filter(|io| io.caller.is_some()).map(|io| io.began).min()
    }

    /// The recent I/O; see [`Latencies::look`].
    pub(super) fn look(&self, now: Moment) -> Look {
        let mut state = self.state.lock();
        let State { latencies, outstanding, .. } = &mut *state;
        let waited = outstanding.iter().flatten().filter(|io| io.caller.is_some());
        latencies.look(&self.info, waited.map(|io| (io.at.op, io.began, io.short)), now)
    }
}

impl State {
    fn add(&mut self, new: Outstanding) -> usize {
        self.modifying += usize::from(new.at.op != Op::Read);
        self.reads += u64::from(new.at.op == Op::Read);
        match self.free.pop() {
            Some(which) => {
                self.outstanding[which] = Some(new);
                which
            }
            None => {
                self.outstanding.push(Some(new));
                self.outstanding.len() - 1
            }
        }
    }

    /// Its caller; the rest of it stays in its place until then, because moving it takes time for every I/O.
    fn remove(&mut self, which: usize) -> Option<Caller> {
        let old = self.outstanding[which].as_mut()?;
        let caller = old.caller.take();
        self.modifying -= usize::from(old.at.op != Op::Read);
        self.outstanding[which] = None;
        self.free.push(which);
        caller
    }
}

impl SlowReads for Record {
    fn is_avoided(&self) -> bool {
        if !self.is_slow.load(Ordering::Relaxed) {
            return false;
        }
        let now = self.supervision.env.moment().ns_since(Moment::START);
        now.saturating_sub(self.last_read.load(Ordering::Relaxed)) < TRIAL.as_nanos() as u64
    }

    fn may_hedge(&self) -> bool {
        let may = self.supervision.may_hedge();
        self.hedged.fetch_add(u64::from(may), Ordering::Relaxed);
        may
    }
}

/// The callback of the disk for the read `which`.
impl Told<Read> for Record {
    fn told(self: Arc<Record>, which: usize, outcome: Read) {
        if let Some(Caller::Reads(then)) = self.completed(which) {
            then.tell(outcome);
        }
    }
}

/// The same of a write.
impl Told<Written> for Record {
    fn told(self: Arc<Record>, which: usize, outcome: Written) {
        if let Some(Caller::Writes(then)) = self.completed(which) {
            then.tell(outcome);
        }
    }
}

impl Begun {
    fn completed(mut self) {
        self.has_completed = true;
        self.record.completed(self.which);
    }
}

/// Its driver has ended: nothing is known of how long it took.
impl Drop for Begun {
    fn drop(&mut self) {
        if !self.has_completed {
            let caller = self.record.state.lock().remove(self.which);
            drop(caller);
        }
    }
}

impl<T: Outcome> Waiting<T> {
    /// Waits for the disk in a task.
    fn leave_to_task(&mut self) {
        let (Some(io), Some(begun)) = (self.io.take(), self.begun.take()) else { return };
        let env = begun.record.supervision.env.clone();
        env.spawn_if_running(async move {
            drop(io.await);
            begun.completed();
        });
    }
}

impl<T: Outcome> Future for Waiting<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        let (Some(io), Some(begun)) = (&mut this.io, &this.begun) else {
            panic!("an I/O was polled after its completion")
        };
        if let Poll::Ready(outcome) = io.as_mut().poll(context) {
            this.io = None;
            this.begun.take().into_iter().for_each(Begun::completed);
            return Poll::Ready(outcome);
        }
        let at = begun.at;
        let is_waited_for = match &mut begun.record.state.lock().outstanding[begun.which] {
            Some(Outstanding { caller: Some(Caller::Polls(waker)), .. }) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    *waker = Some(context.waker().clone());
                }
                true
            }
            _ => false,
        };
        if is_waited_for {
            return Poll::Pending;
        }
        this.leave_to_task();
        Poll::Ready(T::unknown(at))
    }
}

impl<T: Outcome> Drop for Waiting<T> {
    fn drop(&mut self) {
        let Some(begun) = &self.begun else { return };
        // No caller waits for it any more.
        let caller = match &mut begun.record.state.lock().outstanding[begun.which] {
            Some(io) => io.caller.take(),
            None => None,
        };
        drop(caller);
        self.leave_to_task();
    }
}
