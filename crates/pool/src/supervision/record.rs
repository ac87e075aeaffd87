//! The supervised I/O of all spaces to a disk in one membership.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use disk::{Disk, DiskInfo, SlowReads};
use env::{Epoch, Moment};
use parking_lot::Mutex;
use pool_seam::{DiskNumber, Membership, SpaceId};
use tokio::sync::Notify;

use super::Supervision;
use super::hedge::{HEDGE_MOST, RENEWAL, TRIAL, hedge_after};
use super::latencies::Latencies;
use super::outliers::RecentIo;
use super::space_io::{Due, Receiver, SpaceIo};

/// The time for which a count of outstanding I/Os is reused before it is updated.
const QUEUE_COUNT_LIFETIME: Duration = Duration::from_millis(1);

/// See the module.
pub(crate) struct Record {
    pub(super) number: DiskNumber,
    pub(super) of: Membership,
    pub(super) info: DiskInfo,
    pub(super) supervision: Arc<Supervision>,
    /// The disk; `None` after the membership has ended, so that no further space gets it. Each existing space has its
    /// own reference, until it ends, too.
    disk: Mutex<Option<Arc<dyn Disk>>>,
    /// Spaces with handles or outstanding I/Os.
    spaces: Mutex<Vec<Weak<SpaceIo>>>,
    /// The number of outstanding I/Os of all spaces. Below, when they were counted, in nanoseconds since
    /// [`Moment::START`].
    queue: AtomicUsize,
    counted: AtomicU64,
    /// The number of reads of spaces that are no longer in the list.
    reads_before: AtomicU64,
    ended: Notify,
    is_slow: AtomicBool,
    /// For a slow disk, when a read last began or completed, in nanoseconds since [`Moment::START`].
    last_read: AtomicU64,
    hedged: AtomicU64,
    /// The time after which a read is late, and when it was computed.
    hedge_after: Mutex<(Duration, Option<Moment>)>,
}

impl Record {
    pub(super) fn new(
        supervision: &Arc<Supervision>,
        number: DiskNumber,
        of: Membership,
        disk: Arc<dyn Disk>,
    ) -> Arc<Record> {
        Arc::new(Record {
            number,
            of,
            info: disk.info().clone(),
            supervision: Arc::clone(supervision),
            disk: Mutex::new(Some(disk)),
            spaces: Mutex::default(),
            queue: AtomicUsize::new(0),
            counted: AtomicU64::new(0),
            reads_before: AtomicU64::new(0),
            ended: Notify::new(),
            is_slow: AtomicBool::new(false),
            last_read: AtomicU64::new(0),
            hedged: AtomicU64::new(0),
            hedge_after: Mutex::new((HEDGE_MOST, None)),
        })
    }

    /// Whether this is the record of this handle of a disk.
    pub(super) fn is_of(&self, number: DiskNumber, of: Membership, disk: &Arc<dyn Disk>) -> bool {
        let is_it = |mine: &Arc<dyn Disk>| std::ptr::addr_eq(Arc::as_ptr(mine), Arc::as_ptr(disk));
        (self.number, self.of) == (number, of) && self.disk.lock().as_ref().is_some_and(is_it)
    }

    /// The I/O of a space.
    pub(super) fn of_space(self: &Arc<Record>, space: SpaceId) -> Arc<SpaceIo> {
        let mut spaces = self.spaces.lock();
        spaces.retain(|io| io.strong_count() > 0);
        let found = spaces.iter().filter_map(Weak::upgrade).find(|io| io.space == space);
        found.unwrap_or_else(|| {
            // Done under the lock: the end of the membership removes the disk first, and then ends the spaces in the
            // list.
            let new = SpaceIo::new(self, space, self.disk());
            spaces.push(Arc::downgrade(&new));
            new
        })
    }

    fn spaces(&self) -> Vec<Arc<SpaceIo>> {
        self.spaces.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// The pool's epoch, under which the disk is used.
    pub(super) fn epoch(&self) -> Epoch {
        self.supervision.epoch
    }

    /// The disk; `None` when the membership has ended.
    pub(super) fn disk(&self) -> Option<Arc<dyn Disk>> {
        self.disk.lock().clone()
    }

    /// Outstanding I/Os of all spaces, counted at most [`QUEUE_COUNT_LIFETIME`] ago.
    pub(super) fn queue(&self, now: Moment) -> usize {
        let (now, then) = (now.ns_since(Moment::START), self.counted.load(Ordering::Relaxed));
        let is_due = now.saturating_sub(then) >= QUEUE_COUNT_LIFETIME.as_nanos() as u64;
        if is_due && self.counted.compare_exchange(then, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.queue.store(self.spaces().iter().map(|io| io.queue()).sum(), Ordering::Relaxed);
        }
        self.queue.load(Ordering::Relaxed)
    }

    /// A space has no handle and no outstanding I/O any more: adds the number of its reads.
    pub(super) fn add_reads_of_ended_space(&self, reads: u64) {
        self.reads_before.fetch_add(reads, Ordering::Relaxed);
    }

    pub(super) fn note_read(&self, now: Moment) {
        if self.is_slow.load(Ordering::Relaxed) {
            self.last_read.store(now.ns_since(Moment::START), Ordering::Relaxed);
        }
    }

    /// Sets whether the disk is far slower than its peers.
    pub(super) fn set_slow(&self, is_slow: bool) {
        if self.is_slow.swap(is_slow, Ordering::Relaxed) != is_slow {
            // The first trial comes after a while.
            self.note_read(self.supervision.env.moment());
        }
    }

    /// The number of reads that have begun.
    pub(super) fn reads(&self) -> u64 {
        let now: u64 = self.spaces().iter().map(|io| io.reads()).sum();
        now + self.reads_before.load(Ordering::Relaxed)
    }

    /// The number of reads that were late and hedged.
    pub(super) fn hedged(&self) -> u64 {
        self.hedged.load(Ordering::Relaxed)
    }

    /// Takes the callers of reads that are late now, each once. Also returns when the next read will be late.
    pub(super) fn late_reads(&self, now: Moment) -> (Vec<Receiver>, Option<Moment>) {
        let spaces = self.spaces();
        let after = {
            let mut hedge = self.hedge_after.lock();
            if hedge.1.is_none_or(|at| now >= at.after(RENEWAL)) {
                let mut all = Latencies::new();
                spaces.iter().for_each(|io| io.add_to(&mut all, now));
                *hedge = (hedge_after(&all.reads), Some(now));
            }
            hedge.0
        };
        let (mut late, mut next) = (Vec::new(), None::<Moment>);
        for io in spaces {
            let due = io.late_reads(after, now, &mut late);
            next = [next, due].into_iter().flatten().min();
        }
        (late, next)
    }

    /// Ends the record, because the end of the membership is durable: no I/O begins any more, and waiting callers
    /// fail. Outstanding I/O counts until the disk has completed it; then the disk is closed.
    pub(super) fn end(&self) {
        let disk = self.disk.lock().take();
        self.spaces().iter().for_each(|io| io.end());
        self.ended.notify_waiters();
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
        self.disk.lock().is_none()
    }

    /// Whether no I/O is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.spaces().iter().all(|io| io.is_idle())
    }

    /// Whether I/O is outstanding that changes the disk.
    pub(super) fn is_modifying(&self) -> bool {
        self.spaces().iter().any(|io| io.is_modifying())
    }

    /// The I/O with a waiting caller that passes its deadline first.
    pub(super) fn first_due(&self) -> Option<Due> {
        self.spaces().iter().filter_map(|io| io.first_due()).min()
    }

    /// The recent I/O; see [`Latencies::recent_io`].
    pub(super) fn recent_io(&self, now: Moment) -> RecentIo {
        let (mut all, mut outstanding) = (Latencies::new(), Vec::new());
        self.spaces().iter().for_each(|io| io.move_to(&mut all, &mut outstanding, now));
        all.recent_io(&self.info, outstanding.into_iter(), now)
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

#[cfg(test)]
mod tests;
