//! Byte-range locks of one file (MS-FSA 2.1.4.10, 2.1.5.7, 2.1.5.8): the held locks and the waiting requests.
//!
//! Invariants:
//! 1. Of two held locks that overlap, either both are shared, or both belong to one open and the exclusive one is the
//!    older.
//! 2. A waiting lock conflicts with some held one: releasing a lock grants, in order of arrival, all waiting locks
//!    without a conflict.
//! 3. A new request is checked against the held locks only, as in Windows: it may overtake a waiting request.

use std::collections::VecDeque;

use tokio::sync::oneshot;

/// Held locks of one file at most; more are refused.
pub(crate) const HELD_MAX: usize = 8192;
/// The most locks that wait on one file.
pub(crate) const WAITING_MAX: usize = 1024;

/// A range of bytes; its end may be 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockRange {
    offset: u64,
    length: u64,
}

impl LockRange {
    /// `None` when the last byte would lie beyond 2^64 - 1 (STATUS_INVALID_LOCK_RANGE).
    pub(crate) fn new(offset: u64, length: u64) -> Option<LockRange> {
        (length == 0 || offset.checked_add(length - 1).is_some()).then_some(LockRange { offset, length })
    }

    fn end(self) -> u128 {
        u128::from(self.offset) + u128::from(self.length)
    }

    /// Whether two ranges overlap. An empty range overlaps a range that it lies strictly inside of, and never another
    /// empty one.
    fn overlaps(self, other: LockRange) -> bool {
        u128::from(self.offset) < other.end() && u128::from(other.offset) < self.end()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lock {
    /// The open: the persistent half of its FileId.
    owner: u64,
    range: LockRange,
    exclusive: bool,
}

struct Waiter {
    id: u64,
    lock: Lock,
    granted: oneshot::Sender<()>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct LockTable {
    held: Vec<Lock>,
    waiting: VecDeque<Waiter>,
    next_waiter: u64,
}

/// Why a lock was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockRefusal {
    /// It conflicts with a held lock.
    Conflict,
    /// [`HELD_MAX`] or [`WAITING_MAX`] is reached.
    TooMany,
    /// Its open is no longer a member of the file.
    Closed,
}

impl LockTable {
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether [`WAITING_MAX`] is reached.
    pub(crate) fn is_crowded(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    pub(crate) fn held_by(&self, owner: u64) -> usize {
        self.held.iter().filter(|l| l.owner == owner).count()
    }

    /// The locks that an open holds, in order: offset, length, exclusive.
    pub(crate) fn list(&self, owner: u64) -> Vec<(u64, u64, bool)> {
        let mine = self.held.iter().filter(|l| l.owner == owner);
        mine.map(|l| (l.range.offset, l.range.length, l.exclusive)).collect()
    }

    /// Restores the locks that an open held before the server's restart.
    pub(crate) fn restore(&mut self, owner: u64, locks: Vec<(LockRange, bool)>) {
        let room = HELD_MAX.saturating_sub(self.held.len());
        self.held.extend(locks.into_iter().take(room).map(|(range, exclusive)| Lock {
            owner,
            range,
            exclusive,
        }));
    }

    /// Takes a lock if no held lock conflicts.
    pub(crate) fn try_lock(
        &mut self,
        owner: u64,
        range: LockRange,
        exclusive: bool,
    ) -> Result<(), LockRefusal> {
        let lock = Lock { owner, range, exclusive };
        if self.held.len() >= HELD_MAX {
            return Err(LockRefusal::TooMany);
        }
        if self.conflicts(lock) {
            return Err(LockRefusal::Conflict);
        }
        self.held.push(lock);
        Ok(())
    }

    /// Queues a lock that [`LockTable::try_lock`] has just refused. Returns its number in the queue, and a receiver
    /// that completes when the lock is granted, or fails when its open is closed.
    pub(crate) fn wait(
        &mut self,
        owner: u64,
        range: LockRange,
        exclusive: bool,
    ) -> (u64, oneshot::Receiver<()>) {
        let (granted, wait) = oneshot::channel();
        let id = self.next_waiter;
        self.next_waiter += 1;
        self.waiting.push_back(Waiter { id, lock: Lock { owner, range, exclusive }, granted });
        (id, wait)
    }

    /// Removes a lock from the queue; false when it was granted (or its open closed) before.
    pub(crate) fn leave(&mut self, id: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|w| w.id != id);
        self.waiting.len() != before
    }

    /// Releases the lock of exactly this range, an exclusive one first; false when there is none.
    pub(crate) fn unlock(&mut self, owner: u64, range: LockRange) -> bool {
        let mine = |l: &Lock| l.owner == owner && l.range == range;
        let found = self.held.iter().position(|l| mine(l) && l.exclusive);
        let Some(i) = found.or_else(|| self.held.iter().position(mine)) else {
            return false;
        };
        // A lock of any range may be waiting only because the table was full.
        let was_full = self.held.len() >= HELD_MAX;
        self.held.remove(i);
        self.grant_waiting((!was_full).then_some(range));
        true
    }

    /// Releases a lock that was taken just now, and no other lock of the open with the same range.
    pub(crate) fn undo(&mut self, owner: u64, range: LockRange, exclusive: bool) {
        let lock = Lock { owner, range, exclusive };
        if let Some(i) = self.held.iter().rposition(|l| *l == lock) {
            let was_full = self.held.len() >= HELD_MAX;
            self.held.remove(i);
            self.grant_waiting((!was_full).then_some(range));
        }
    }

    /// Releases all locks that an open holds and waits for.
    pub(crate) fn release(&mut self, owner: u64) {
        self.waiting.retain(|w| w.lock.owner != owner);
        let before = self.held.len();
        self.held.retain(|l| l.owner != owner);
        if self.held.len() != before {
            self.grant_waiting(None);
        }
    }

    /// Whether a held lock forbids a read or write by `owner` (MS-FSA 2.1.4.10). The writer's own shared lock forbids a
    /// write, too.
    pub(crate) fn forbids(&self, owner: u64, range: LockRange, write: bool) -> bool {
        self.held.iter().any(|l| {
            let allowed = if l.exclusive { l.owner == owner } else { !write };
            !allowed && l.range.overlaps(range)
        })
    }

    fn conflicts(&self, new: Lock) -> bool {
        self.held.iter().any(|old| {
            let compatible = !new.exclusive && (!old.exclusive || old.owner == new.owner);
            !compatible && old.range.overlaps(new.range)
        })
    }

    /// Grants waiting locks, in order, that no longer conflict; if `released` is given, only those that overlap it.
    fn grant_waiting(&mut self, released: Option<LockRange>) {
        let mut i = 0;
        while i < self.waiting.len() {
            let lock = self.waiting[i].lock;
            let meets = released.is_none_or(|r| r.overlaps(lock.range));
            if !meets || self.held.len() >= HELD_MAX || self.conflicts(lock) {
                i += 1;
                continue;
            }
            let Some(w) = self.waiting.remove(i) else { return };
            // A waiter that was dropped does not get the lock: it would never release it.
            if w.granted.send(()).is_ok() {
                self.held.push(w.lock);
            }
        }
    }
}

#[cfg(test)]
mod tests;
