//! The I/O of a space's owners to one disk in one membership.
//!
//! Spaces are used on different threads: each has its own lock, and no I/O writes to memory shared between spaces.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use disk::{Callback, Completion, Disk, DiskError, IoRange, Op, Outcome, Read, Written};
use env::{BoxFuture, Ctx, Epoch, Io, Moment};
use parking_lot::Mutex;
use pool_seam::SpaceId;
use tokio::sync::Notify;

use super::latencies::Latencies;
use super::outliers::SHORT_QUEUE;
use super::record::Record;

/// See the module. Aligned, so that no two spaces write to the same cache line.
#[repr(align(128))]
pub(super) struct SpaceIo {
    pub(super) record: Arc<Record>,
    pub(super) space: SpaceId,
    state: Mutex<State>,
    /// Notified when an I/O of an earlier owner has completed.
    drained: Notify,
    /// The number of outstanding I/Os, readable without the lock.
    queue: AtomicUsize,
}

struct State {
    /// The disk; `None` after the membership has ended. Each space has its own reference count, to avoid contention.
    disk: Option<Arc<Arc<dyn Disk>>>,
    /// I/O with a lower epoch, that is of earlier owners of the space, does not begin.
    fence: Epoch,
    /// The recent latencies; `None` if there was no I/O recently.
    latencies: Option<Box<Latencies>>,
    outstanding: Vec<Option<Outstanding>>,
    free: Vec<usize>,
    modifying: usize,
    reads: u64,
}

/// An I/O that the disk has not completed.
struct Outstanding {
    began: Moment,
    at: IoRange,
    /// Whether it began in a short queue, of at most [`SHORT_QUEUE`].
    short: bool,
    /// Whether it is a late read that was reported.
    is_late: bool,
    /// `None` after the callback was called.
    caller: Option<Caller>,
    /// The epoch of the space's owner.
    epoch: Epoch,
}

/// The deadline of an outstanding I/O, and when it began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at: Moment,
    pub(super) began: Moment,
}

/// The disk on which a registered I/O is started, and the I/O's number.
type Registered = (Arc<Arc<dyn Disk>>, usize);

/// The callback for a late read, and the caller's number of the read.
pub(super) type Receiver = (Arc<dyn Completion<Read>>, usize);

/// The caller of an I/O.
pub(super) enum Caller {
    Reads(Callback<Read>),
    Writes(Callback<Written>),
    /// The caller polls; the waker of its last poll.
    Polls(Option<Waker>),
}

/// A started I/O. If it is dropped before it has completed, its latency is unknown.
pub(super) struct Begun {
    of: Arc<SpaceIo>,
    which: usize,
    at: IoRange,
    has_completed: bool,
}

/// The future of an I/O without a callback. If it is dropped, a task waits for the disk instead.
struct Waiting<T: Outcome> {
    io: Option<BoxFuture<T>>,
    begun: Option<Begun>,
}

impl SpaceIo {
    pub(super) fn new(record: &Arc<Record>, space: SpaceId, disk: Option<Arc<dyn Disk>>) -> Arc<SpaceIo> {
        let state = State {
            disk: disk.map(Arc::new),
            fence: Epoch::default(),
            latencies: None,
            outstanding: Vec::new(),
            free: Vec::new(),
            modifying: 0,
            reads: 0,
        };
        let (record, queue) = (Arc::clone(record), AtomicUsize::new(0));
        Arc::new(SpaceIo { record, space, state: Mutex::new(state), drained: Notify::new(), queue })
    }

    /// Registers an I/O, which the caller then starts on the disk. Errors: returns the caller, because the I/O may
    /// not begin: the space has another owner, or the disk was removed from service.
    pub(super) fn begin(
        &self,
        c: &Ctx,
        at: IoRange,
        caller: Caller,
    ) -> Result<Registered, (DiskError, Caller)> {
        let supervision = &self.record.supervision;
        let began = supervision.env.moment();
        if at.op == Op::Read {
            // Also noted at the start of a read: while it hangs, the disk gets no second trial read.
            self.record.note_read(began);
        }
        let begun = {
            let mut state = self.state.lock();
            let disk = match state.admit(c, at) {
                Ok(disk) => disk,
                Err(error) => return Err((error, caller)),
            };
            let short = state.queue().max(self.record.queue(began)) < SHORT_QUEUE;
            let new = Outstanding { began, at, short, is_late: false, caller: Some(caller), epoch: c.epoch };
            let which = state.add(new);
            self.queue.store(state.queue(), Ordering::Relaxed);
            (disk, which)
        };
        // Called after the I/O is registered: the task checks once more for I/O before it ends.
        supervision.wake();
        if at.op == Op::Read {
            supervision.wake_hedger();
        }
        Ok(begun)
    }

    /// Waits for an I/O that [`SpaceIo::begin`] has registered for a caller that polls.
    pub(super) fn wait<T: Outcome>(self: &Arc<SpaceIo>, which: usize, at: IoRange, io: Io<T>) -> Io<T> {
        let begun = Begun { of: Arc::clone(self), which, at, has_completed: false };
        match io {
            Io::Done(outcome) => {
                begun.completed();
                Io::Done(outcome)
            }
            Io::Pending(io) => Io::pending(Waiting { io: Some(io), begun: Some(begun) }),
        }
    }

    /// Records that the disk has completed an I/O; returns its caller, unless that was called already.
    pub(super) fn take_caller(&self, which: usize) -> Option<Caller> {
        let now = self.record.supervision.env.moment();
        let mut state = self.state.lock();
        let old = state.outstanding[which].as_ref()?;
        let (op, took, short) = (old.at.op, now.ns_since(old.began), old.short);
        state.latencies.get_or_insert_with(|| Box::new(Latencies::new())).add(op, took, short, now);
        let caller = self.remove(&mut state, which);
        drop(state);
        if op == Op::Read {
            self.record.note_read(now);
        }
        caller
    }

    /// The disk, for an I/O that does not change it and is not supervised.
    ///
    /// # Errors As for any I/O.
    pub(super) fn disk(&self, c: &Ctx, at: IoRange) -> Result<Arc<Arc<dyn Disk>>, DiskError> {
        self.state.lock().admit(c, at)
    }

    /// See [`Disk::fence`], with the epochs of the space.
    pub(super) fn fence(self: &Arc<SpaceIo>, epoch: Epoch) -> Io<Written> {
        {
            let mut state = self.state.lock();
            if epoch < state.fence {
                let at = IoRange::whole(Op::Fence);
                return Io::Done(Err(DiskError::Fenced { at, call_epoch: epoch, epoch: state.fence }));
            }
            state.fence = epoch;
            if !state.has_older(epoch) {
                return Io::Done(Ok(()));
            }
        }
        let io = Arc::clone(self);
        Io::pending(async move {
            loop {
                // `notify_waiters` wakes it from here on, even before it is polled.
                let drained = io.drained.notified();
                if !io.state.lock().has_older(epoch) {
                    return Ok(());
                }
                drained.await;
            }
        })
    }

    fn remove(&self, state: &mut State, which: usize) -> Option<Caller> {
        let (caller, epoch) = state.remove(which)?;
        self.queue.store(state.queue(), Ordering::Relaxed);
        if epoch < state.fence {
            self.drained.notify_waiters();
        }
        caller
    }

    /// Removes an I/O without a known latency.
    fn forget(&self, which: usize) {
        let caller = self.remove(&mut self.state.lock(), which);
        drop(caller);
    }

    /// Whether no I/O is outstanding. Checked under the lock: a later I/O finds that the task has ended, and starts
    /// it again.
    pub(super) fn is_idle(&self) -> bool {
        self.state.lock().queue() == 0
    }

    /// The approximate number of outstanding I/Os.
    pub(super) fn queue(&self) -> usize {
        self.queue.load(Ordering::Relaxed)
    }

    /// Reads that have begun.
    pub(super) fn reads(&self) -> u64 {
        self.state.lock().reads
    }

    /// Whether I/O is outstanding that changes the disk.
    pub(super) fn is_modifying(&self) -> bool {
        self.state.lock().modifying > 0
    }

    /// The I/O with a waiting caller that passes its deadline first.
    pub(super) fn first_due(&self) -> Option<Due> {
        let deadlines = &self.record.supervision.deadlines;
        let state = self.state.lock();
        let waited = state.outstanding.iter().flatten().filter(|io| io.caller.is_some());
        waited.map(|io| Due { at: io.began.after(deadlines.of(io.at.op)), began: io.began }).min()
    }

    /// Adds the callers of reads that have been outstanding for `after` or longer, each once. Returns when the next
    /// read will be late.
    pub(super) fn late_reads(
        &self,
        after: Duration,
        now: Moment,
        late: &mut Vec<Receiver>,
    ) -> Option<Moment> {
        let mut next = None::<Moment>;
        for io in self.state.lock().outstanding.iter_mut().flatten().filter(|io| !io.is_late) {
            let Some(Caller::Reads(then)) = &io.caller else { continue };
            let due = io.began.after(after);
            if due > now {
                next = Some(next.map_or(due, |next| next.min(due)));
            } else {
                io.is_late = true;
                late.extend(then.receiver());
            }
        }
        next
    }

    /// Adds its latencies to those of other spaces.
    pub(super) fn add_to(&self, all: &mut Latencies, now: Moment) {
        if let Some(mine) = &mut self.state.lock().latencies {
            all.add_all(mine, now);
        }
    }

    /// [`SpaceIo::add_to`] for a check of the disk: also adds the outstanding I/O, and resets the longest I/O.
    pub(super) fn move_to(
        &self,
        all: &mut Latencies,
        outstanding: &mut Vec<(Op, Moment, bool)>,
        now: Moment,
    ) {
        let mut state = self.state.lock();
        if let Some(mine) = &mut state.latencies {
            all.add_all(mine, now);
            if mine.begin_again() {
                state.latencies = None;
            }
        }
        let waited = state.outstanding.iter().flatten().filter(|io| io.caller.is_some());
        outstanding.extend(waited.map(|io| (io.at.op, io.began, io.short)));
    }

    /// See [`Record::end`].
    pub(super) fn end(&self) {
        let (disk, callers) = {
            let mut state = self.state.lock();
            let callers: Vec<Caller> =
                state.outstanding.iter_mut().flatten().filter_map(|io| io.caller.take()).collect();
            (state.disk.take(), callers)
        };
        for caller in callers {
            match caller {
                // Dropping them reports an unknown result.
                Caller::Reads(_) | Caller::Writes(_) | Caller::Polls(None) => {}
                Caller::Polls(Some(waker)) => waker.wake(),
            }
        }
        drop(disk);
    }
}

impl Drop for SpaceIo {
    fn drop(&mut self) {
        self.record.add_reads_of_ended_space(self.state.get_mut().reads);
    }
}

impl State {
    fn queue(&self) -> usize {
        self.outstanding.len() - self.free.len()
    }

    /// Whether an I/O may begin; returns the disk.
    fn admit(&self, c: &Ctx, at: IoRange) -> Result<Arc<Arc<dyn Disk>>, DiskError> {
        if c.epoch < self.fence {
            return Err(DiskError::Fenced { at, call_epoch: c.epoch, epoch: self.fence });
        }
        self.disk.clone().ok_or(DiskError::Gone { at })
    }

    /// Whether an I/O of an earlier owner is outstanding.
    fn has_older(&self, epoch: Epoch) -> bool {
        self.outstanding.iter().flatten().any(|io| io.epoch < epoch)
    }

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

    /// Removes an I/O; returns its caller and epoch. The rest of the I/O is not moved, which would cost time for
    /// every I/O.
    fn remove(&mut self, which: usize) -> Option<(Option<Caller>, Epoch)> {
        let old = self.outstanding[which].as_mut()?;
        let (caller, epoch) = (old.caller.take(), old.epoch);
        self.modifying -= usize::from(old.at.op != Op::Read);
        self.outstanding[which] = None;
        self.free.push(which);
        Some((caller, epoch))
    }
}

/// The callback of the disk for the read `which`.
impl Completion<Read> for SpaceIo {
    fn completed(self: Arc<SpaceIo>, which: usize, outcome: Read) {
        if let Some(Caller::Reads(then)) = self.take_caller(which) {
            then.complete(outcome);
        }
    }
}

/// The callback of the disk for the write `which`.
impl Completion<Written> for SpaceIo {
    fn completed(self: Arc<SpaceIo>, which: usize, outcome: Written) {
        if let Some(Caller::Writes(then)) = self.take_caller(which) {
            then.complete(outcome);
        }
    }
}

impl Begun {
    fn completed(mut self) {
        self.has_completed = true;
        self.of.take_caller(self.which);
    }
}

/// The disk's driver has ended before it completed the I/O: the latency is unknown.
impl Drop for Begun {
    fn drop(&mut self) {
        if !self.has_completed {
            self.of.forget(self.which);
        }
    }
}

impl<T: Outcome> Waiting<T> {
    /// Spawns a task that waits for the disk.
    fn leave_to_task(&mut self) {
        let (Some(io), Some(begun)) = (self.io.take(), self.begun.take()) else { return };
        let env = begun.of.record.supervision.env.clone();
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
        let is_waited_for = match &mut begun.of.state.lock().outstanding[begun.which] {
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
        // The caller does not wait any more.
        let caller = match &mut begun.of.state.lock().outstanding[begun.which] {
            Some(io) => io.caller.take(),
            None => None,
        };
        drop(caller);
        self.leave_to_task();
    }
}
