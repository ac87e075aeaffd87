//! An owner's I/O to one disk of its space, as long as the disk is in service.
//!
//! Invariants:
//! 1. A write counts as not durable from its completion, before its caller is notified, until a later flush has
//!    succeeded. So a commit flushes the ports with such writes, determined after the writes have completed.
//! 2. A port ends with the membership of its disk, or when its handle has failed. Outstanding calls then fail with
//!    [`DiskError::Timeout`]: it is unknown whether they take effect. Later completions of the disk are ignored, and no
//!    further call begins.
//! 3. A call counts as outstanding from before it reaches the disk until the disk has completed it, even if the port
//!    has ended. The disk's next port waits until there is none ([`Ports::drained`]): an old write never follows a new
//!    one.
//! 4. No write and no discard reaches the disk without the lease. On disks that do not fence other processes, an old owner
//!    could otherwise overwrite the log of the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arena::{Sg, SgMut, sg_len};
use disk::{Callback, Completion, Disk, DiskError, IoRange, Op, Outcome, Read, SlowReads, Written};
use env::{Ctx, Env, Epoch, Io, IoFlags};
use parking_lot::{Mutex, RwLock};
use pool_seam::{DiskNumber, Lease, Membership, PortStats, SeamError, SpaceView, Suspension, ViewVersion};
use slab::Slab;
use tokio::sync::{Notify, oneshot};

/// After this time the lease of a suspended pool is checked again.
const PAUSE: Duration = Duration::from_millis(100);

/// State shared by all ports of an owner.
#[derive(Clone)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct Access {
    pub env: Env,
    pub lease: Arc<dyn Lease>,
    pub epoch: Epoch,
}

/// See the module.
pub struct Port {
    number: DiskNumber,
    of: Membership,
    disk: Arc<dyn Disk>,
    /// `None`: latencies are not compared.
    slow_reads: Option<Arc<dyn SlowReads>>,
    access: Access,
    /// Set under the lock of `state`.
    has_ended: AtomicBool,
    state: Mutex<State>,
    /// Notified when no call is outstanding any more.
    drained: Notify,
}

#[derive(Default)]
struct State {
    is_leaving: bool,
    outstanding: u64,
    reads: Calls<Read>,
    /// Writes, discards and flushes.
    writes: Calls<Written>,
    /// Writes and discards that have completed.
    completed: u64,
    /// How many of these writes and discards are durable, counted from the oldest.
    durable: u64,
}

/// The callers of outstanding calls, by number. A port that has ended has none.
type Calls<T> = Slab<(Callback<T>, Kind)>;

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    WriteThrough,
    /// A flush, with the number of writes that had completed when it began.
    Flush(u64),
}

impl Port {
    /// A port for a disk in this membership.
    pub fn new(number: DiskNumber, of: Membership, disk: Arc<dyn Disk>, access: Access) -> Arc<Port> {
        let (has_ended, state, drained) = (AtomicBool::new(false), Mutex::default(), Notify::new());
        let slow_reads = disk.slow_reads();
        Arc::new(Port { number, of, disk, slow_reads, access, has_ended, state, drained })
    }

    /// The disk.
    pub fn number(&self) -> DiskNumber {
        self.number
    }

    /// The membership.
    pub fn membership(&self) -> Membership {
        self.of
    }

    /// Whether the disk is far slower than its peers, so that data should be read elsewhere if possible.
    pub fn is_avoided(&self) -> bool {
        self.slow_reads.as_ref().is_some_and(|reads| reads.is_avoided())
    }

    /// Whether a late read of the disk may be hedged; counts it, if so.
    pub fn may_hedge(&self) -> bool {
        self.slow_reads.as_ref().is_some_and(|reads| reads.may_hedge())
    }

    /// Reads from byte `offset` of the disk as many bytes as `dst` has filled; see [`Disk::read`].
    pub fn read_then(self: &Arc<Port>, offset: u64, dst: SgMut, then: Callback<Read>) {
        let length = dst.iter().map(|b| b.len() as u64).sum();
        let Some(then) =
            self.begin(|s| &mut s.reads, IoRange::new(Op::Read, offset, length), |_| Kind::Read, then)
        else {
            return;
        };
        self.disk.read_then(&self.ctx(false), offset, dst, then);
    }

    /// Writes `src` at byte `offset` of the disk; with `through`, it is durable on completion.
    pub fn write_then(self: &Arc<Port>, offset: u64, src: Sg, through: bool, then: Callback<Written>) {
        let kind = if through { Kind::WriteThrough } else { Kind::Write };
        let at = IoRange::new(Op::Write, offset, sg_len(&src) as u64);
        let Some(then) = self.begin(|s| &mut s.writes, at, |_| kind, then) else { return };
        let c = self.ctx(through);
        match self.access.lease.holds() {
            true => self.disk.write_then(&c, offset, src, then),
            false => then.complete_with(self.later(at, move |disk| disk.write(&c, offset, src))),
        }
    }

    /// Discards bytes of the disk; ordered like a write.
    pub fn discard_then(self: &Arc<Port>, offset: u64, length: u64, then: Callback<Written>) {
        let at = IoRange::new(Op::Discard, offset, length);
        let Some(then) = self.begin(|s| &mut s.writes, at, |_| Kind::Write, then) else { return };
        let c = self.ctx(false);
        then.complete_with(match self.access.lease.holds() {
            true => self.disk.discard(&c, offset, length),
            false => self.later(at, move |disk| disk.discard(&c, offset, length)),
        });
    }

    /// Makes all completed writes durable.
    pub fn flush_then(self: &Arc<Port>, then: Callback<Written>) {
        let kind = |state: &State| Kind::Flush(state.completed);
        if let Some(then) = self.begin(|s| &mut s.writes, IoRange::whole(Op::Flush), kind, then) {
            then.complete_with(self.disk.flush(&self.ctx(false)));
        }
    }

    /// [`Port::read_then`] as a future.
    pub async fn read(self: &Arc<Port>, offset: u64, dst: SgMut) -> Read {
        let length = dst.iter().map(|b| b.len() as u64).sum();
        let (then, outcome) = Once::pair(IoRange::new(Op::Read, offset, length));
        self.read_then(offset, dst, then);
        outcome.await
    }

    /// [`Port::write_then`] as a future.
    pub async fn write(self: &Arc<Port>, offset: u64, src: Sg, through: bool) -> Written {
        let (then, outcome) = Once::pair(IoRange::new(Op::Write, offset, sg_len(&src) as u64));
        self.write_then(offset, src, through, then);
        outcome.await
    }

    /// [`Port::discard_then`] as a future.
    pub async fn discard(self: &Arc<Port>, offset: u64, length: u64) -> Written {
        let (then, outcome) = Once::pair(IoRange::new(Op::Discard, offset, length));
        self.discard_then(offset, length, then);
        outcome.await
    }

    /// [`Port::flush_then`] as a future.
    pub async fn flush(self: &Arc<Port>) -> Written {
        let (then, outcome) = Once::pair(IoRange::whole(Op::Flush));
        self.flush_then(then);
        outcome.await
    }

    /// The disk, for I/O that bypasses this port.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }

    /// Sets whether the disk's removal is in progress. While it is, no call begins, as if the disk were removed.
    pub fn set_leaving(&self, is_leaving: bool) {
        self.state.lock().is_leaving = is_leaving;
    }

    /// See [`Port::set_leaving`].
    pub fn is_leaving(&self) -> bool {
        self.state.lock().is_leaving
    }

    /// Ends the port: the disk is removed from service.
    pub fn end(&self) {
        let (reads, writes) = {
            let mut state = self.state.lock();
            self.has_ended.store(true, Ordering::Release);
            (std::mem::take(&mut state.reads), std::mem::take(&mut state.writes))
        };
        // Dropping them calls the callbacks with an unknown result; not under the lock, which a callback may take.
        drop((reads, writes));
    }

    /// Whether no further call begins, because the disk was removed from service or the handle failed.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Whether writes have completed that are not durable.
    pub fn is_dirty(&self) -> bool {
        let state = self.state.lock();
        state.durable < state.completed
    }

    /// The outstanding calls and the writes that are not durable.
    pub fn stats(&self) -> PortStats {
        let state = self.state.lock();
        let (outstanding, unflushed) = (state.outstanding, state.completed - state.durable);
        PortStats { disk: self.number, membership: self.of, outstanding, unflushed }
    }

    /// Whether the port has ended, and no call is outstanding.
    fn is_over(&self) -> bool {
        self.has_ended() && self.state.lock().outstanding == 0
    }

    /// Waits until no call is outstanding at the disk.
    async fn drained(&self) {
        loop {
            let mut drained = std::pin::pin!(self.drained.notified());
            drained.as_mut().enable();
            if self.state.lock().outstanding == 0 {
                return;
            }
            drained.await;
        }
    }

    /// Counts a call as completed by the disk.
    fn answered(&self, state: &mut State) {
        state.outstanding -= 1;
        if state.outstanding == 0 {
            self.drained.notify_waiters();
        }
    }

    /// Counts a call, and returns the callback for the disk; `None` if the port has ended.
    fn begin<T: Outcome>(
        self: &Arc<Port>,
        calls: impl FnOnce(&mut State) -> &mut Calls<T>,
        at: IoRange,
        kind: impl FnOnce(&State) -> Kind,
        then: Callback<T>,
    ) -> Option<Callback<T>>
    where
        Port: Completion<T>,
    {
        let mut state = self.state.lock();
        if self.has_ended() || state.is_leaving {
            // Dropping the callback calls it, and the callback may take the lock.
            drop(state);
            drop(then);
            return None;
        }
        let kind = kind(&state);
        state.outstanding += 1;
        let which = calls(&mut state).insert((then, kind));
        let port: Arc<Port> = Arc::clone(self);
        Some(Callback::new(port, which, at))
    }

    /// Begins a write when the lease holds again, or fails: with [`DiskError::Fenced`] when there is another owner,
    /// with [`DiskError::Gone`] when the pool was released.
    fn later(
        &self,
        at: IoRange,
        write: impl FnOnce(&dyn Disk) -> Io<Written> + Send + 'static,
    ) -> Io<Written> {
        let (Access { env, lease, epoch: call_epoch }, disk) = (self.access.clone(), Arc::clone(&self.disk));
        Io::pending(async move {
            loop {
                let epoch = match lease.hold().wait().await {
                    Ok(()) => return write(&*disk).wait().await,
                    Err(SeamError::Deposed(epoch)) => epoch.0,
                    Err(SeamError::Suspended(Suspension::TakenOver(epoch))) => epoch,
                    // The pool was released.
                    Err(SeamError::Failed(_)) => return Err(DiskError::Gone { at }),
                    Err(_) => {
                        env.sleep(PAUSE).await;
                        continue;
                    }
                };
                return Err(DiskError::Fenced { at, call_epoch, epoch: Epoch(epoch) });
            }
        })
    }

    fn ctx(&self, write_through: bool) -> Ctx {
        let flags = IoFlags { write_through, ..IoFlags::default() };
        Ctx { epoch: self.access.epoch, flags, ..Ctx::default() }
    }
}

/// A callback that completes a future.
struct Once<T>(Mutex<Option<oneshot::Sender<T>>>);

impl<T: Outcome> Once<T> {
    fn pair(at: IoRange) -> (Callback<T>, impl Future<Output = T>) {
        let (sender, receiver) = oneshot::channel();
        let once = Arc::new(Once(Mutex::new(Some(sender))));
        (Callback::new(once, 0, at), async move { receiver.await.unwrap_or_else(|_| T::unknown(at)) })
    }
}

impl<T: Outcome> Completion<T> for Once<T> {
    fn completed(self: Arc<Self>, _: usize, outcome: T) {
        if let Some(sender) = self.0.lock().take() {
            drop(sender.send(outcome));
        }
    }
}

impl Completion<Read> for Port {
    fn completed(self: Arc<Port>, which: usize, outcome: Read) {
        let call = {
            let mut state = self.state.lock();
            self.answered(&mut state);
            state.reads.try_remove(which)
        };
        if let Some((then, _)) = call {
            then.complete(outcome);
        }
    }

    fn late(self: Arc<Port>, which: usize) {
        // If the call has just completed, a newer call may have its number. That call is then reported late too
        // early, which is harmless.
        let caller = self.state.lock().reads.get(which).and_then(|(then, _)| then.receiver());
        if let Some((caller, which)) = caller {
            caller.late(which);
        }
    }
}

impl Completion<Written> for Port {
    fn completed(self: Arc<Port>, which: usize, outcome: Written) {
        let then = {
            let mut state = self.state.lock();
            self.answered(&mut state);
            let Some((then, kind)) = state.writes.try_remove(which) else { return };
            match (kind, &outcome) {
                (Kind::Flush(completed), Ok(())) => state.durable = state.durable.max(completed),
                // A part of a failed write may be in the disk's cache.
                (Kind::Write, _) | (Kind::WriteThrough, Err(_)) => state.completed += 1,
                (Kind::Read | Kind::WriteThrough | Kind::Flush(_), _) => {}
            }
            then
        };
        then.complete(outcome);
    }
}

/// The ports of a space: one for each disk of the view that is in service and that this process can open.
pub struct Ports {
    access: Access,
    open: Box<Open>,
    inner: RwLock<Inner>,
    /// Notified after [`Ports::follow`].
    changed: Notify,
}

/// A port that has ended has calls outstanding.
struct Outstanding;

/// Opens a disk for the space, in a membership; `None` if this process cannot access it.
type Open = dyn Fn(DiskNumber, Membership) -> Option<Arc<dyn Disk>> + Send + Sync;

#[derive(Default)]
struct Inner {
    version: ViewVersion,
    /// The disks that are in service.
    members: BTreeMap<DiskNumber, Membership>,
    ports: BTreeMap<DiskNumber, Arc<Port>>,
    /// Ports that have ended with outstanding calls.
    ended: Vec<Arc<Port>>,
    /// Disks with a handle that failed with unflushed writes, not reported by a flush yet.
    unreported: BTreeMap<DiskNumber, Membership>,
    /// See [`Ports::failed`].
    failed: u64,
    /// Disks whose removal is in progress: this applies to a reopened port, too.
    leaving: BTreeMap<DiskNumber, Membership>,
}

impl Ports {
    /// Creates the value without ports. `open` opens a disk for its membership; it is retried at each view until it
    /// succeeds.
    pub fn new(
        access: Access,
        open: impl Fn(DiskNumber, Membership) -> Option<Arc<dyn Disk>> + Send + Sync + 'static,
    ) -> Ports {
        Ports { access, open: Box::new(open), inner: RwLock::default(), changed: Notify::new() }
    }

    /// Ends the ports of memberships that have ended, and opens those that have begun. An older view than the last one
    /// has no effect.
    pub fn follow(&self, view: &SpaceView) {
        let ended = {
            let mut inner = self.inner.write();
            if view.version < inner.version {
                return;
            }
            inner.version = view.version;
            inner.members = view.members().into_iter().collect();
            let has_ended = |port: &&Arc<Port>| inner.members.get(&port.number) != Some(&port.of);
            let ended: Vec<_> = inner.ports.values().filter(has_ended).cloned().collect();
            for port in &ended {
                inner.ports.remove(&port.number);
                inner.leaving.remove(&port.number);
            }
            // Unflushed writes of a removed disk are recorded as stale regions, even if its port had ended before.
            let Inner { unreported, members, .. } = &mut *inner;
            unreported.retain(|disk, of| members.get(disk) == Some(of));
            inner.ended.extend(ended.iter().cloned());
            for (disk, of) in inner.members.clone() {
                self.open_in(&mut inner, disk, of);
            }
            ended
        };
        ended.iter().for_each(|port| port.end());
        self.changed.notify_waiters();
    }

    /// Waits until the ended ports of a disk have no outstanding call, before the disk is reopened.
    pub async fn drained(&self, disk: DiskNumber) {
        let ended: Vec<_> =
            self.inner.read().ended.iter().filter(|port| port.number == disk).cloned().collect();
        for port in ended {
            port.drained().await;
        }
    }

    /// Removes a port that has ended although its disk stays in service.
    pub fn abandon(&self, port: &Arc<Port>) {
        let mut inner = self.inner.write();
        if inner.ports.get(&port.number).is_some_and(|present| Arc::ptr_eq(present, port)) {
            inner.ports.remove(&port.number);
            inner.ended.push(Arc::clone(port));
            if port.is_dirty() {
                inner.unreported.insert(port.number, port.of);
            }
            inner.failed += 1;
        }
    }

    /// How many handles have failed so far. While this does not change, no completed write was lost with one.
    pub fn failed(&self) -> u64 {
        self.inner.read().failed
    }

    /// Disks whose handle failed with unflushed writes since the last call; see [`Ports::abandon`].
    pub fn unreported(&self) -> BTreeSet<DiskNumber> {
        if self.inner.read().unreported.is_empty() {
            return BTreeSet::new();
        }
        std::mem::take(&mut self.inner.write().unreported).into_keys().collect()
    }

    /// Reopens a disk whose port has ended, when it has no outstanding call any more. Returns the current port; `None`
    /// if the disk was removed, or cannot be opened now.
    pub async fn reopen(&self, disk: DiskNumber, of: Membership) -> Option<Arc<Port>> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.try_reopen(disk, of) {
                Ok(port) => return port,
                Err(Outstanding) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = self.drained(disk) => {}
                },
            }
        }
    }

    /// [`Ports::reopen`] without waiting; `None` also if calls are outstanding.
    pub fn reopen_now(&self, disk: DiskNumber, of: Membership) -> Option<Arc<Port>> {
        self.try_reopen(disk, of).ok()?
    }

    fn try_reopen(&self, disk: DiskNumber, of: Membership) -> Result<Option<Arc<Port>>, Outstanding> {
        let mut inner = self.inner.write();
        if inner.members.get(&disk) != Some(&of) {
            return Ok(None);
        }
        if !self.open_in(&mut inner, disk, of) {
            return Err(Outstanding);
        }
        Ok(inner.ports.get(&disk).filter(|port| port.of == of).cloned())
    }

    /// Opens a disk that has no port. Returns `false` if an earlier port of the disk has outstanding calls.
    fn open_in(&self, inner: &mut Inner, disk: DiskNumber, of: Membership) -> bool {
        inner.ended.retain(|port| !port.is_over());
        if inner.ended.iter().any(|port| port.number == disk) {
            return false;
        }
        if !inner.ports.contains_key(&disk)
            && let Some(opened) = (self.open)(disk, of)
        {
            let port = Port::new(disk, of, opened, self.access.clone());
            port.set_leaving(inner.leaving.get(&disk) == Some(&of));
            inner.ports.insert(disk, port);
        }
        true
    }

    /// Sets whether the removal of a disk is in progress. While it is, no call begins there.
    pub fn set_leaving(&self, disk: DiskNumber, of: Membership, is_leaving: bool) {
        let mut inner = self.inner.write();
        match is_leaving {
            true => _ = inner.leaving.insert(disk, of),
            false if inner.leaving.get(&disk) == Some(&of) => _ = inner.leaving.remove(&disk),
            false => {}
        }
        if let Some(port) = inner.ports.get(&disk).filter(|port| port.of == of) {
            port.set_leaving(is_leaving);
        }
    }

    /// A port for a disk that is about to join with this membership.
    pub fn open(&self, disk: DiskNumber, of: Membership) -> Option<Arc<Port>> {
        (self.open)(disk, of).map(|opened| Port::new(disk, of, opened, self.access.clone()))
    }

    /// Whether the space has the disk, in this membership.
    pub fn has(&self, disk: DiskNumber, of: Membership) -> bool {
        self.inner.read().members.get(&disk) == Some(&of)
    }

    /// Whether this handle has failed while its disk stays in service: its unflushed writes may be lost. A port that
    /// [`Ports::follow`] has ended has not failed, even before its caller publishes the view.
    pub fn has_failed(&self, port: &Port) -> bool {
        port.has_ended() && self.has(port.number, port.of)
    }

    /// The port of a disk in a membership; `None` if the membership has ended, or the disk cannot be opened.
    pub fn get(&self, disk: DiskNumber, of: Membership) -> Option<Arc<Port>> {
        self.inner.read().ports.get(&disk).filter(|port| port.of == of).cloned()
    }

    /// All ports.
    pub fn all(&self) -> Vec<Arc<Port>> {
        self.inner.read().ports.values().cloned().collect()
    }

    /// The ports that a commit has to flush: those with completed writes that are not durable.
    pub fn dirty(&self) -> Vec<Arc<Port>> {
        self.inner.read().ports.values().filter(|port| port.is_dirty()).cloned().collect()
    }

    /// The statistics of each port.
    pub fn stats(&self) -> Vec<PortStats> {
        self.inner.read().ports.values().map(|port| port.stats()).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
