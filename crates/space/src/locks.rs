//! Locks on ranges of units, one queue for each group.
//!
//! Invariants:
//! 1. Two locks that are held at a time do not overlap, unless both are shared.
//! 2. Conflicting requests are granted in the order of their arrival: none starves. Only a checkpoint overtakes waiting
//!    requests ([`RangeLocks::try_lock_first`]): they may wait for the room that it makes.
//! 3. The holder of a lock waits for another of the same space only in ascending order of groups. With the order below
//!    there is no circular wait.
//! 4. A queue has one entry for each request that its caller waits for or holds. A request ends when its caller drops
//!    it, waiting or not.
//!
//! **Order.** The resources that a call of a space may wait for, in the order in which it takes them. While a call
//! holds one of them, it waits only for later ones:
//!
//! 1. a permit of `Inner::writes`
//! 2. locks of units
//! 3. permits of `Inner::unplaced`
//! 4. `Inner::placing`, shared with other changes of stripes
//! 5. a record of the log, which may need room
//!
//! Only a checkpoint makes room, under `Inner::checkpoints`. So the holder of that lock, and the background task that
//! makes checkpoints, wait neither for 1 nor for 3, and for 2 and 5 only until the log is full. A checkpoint that has
//! `Inner::placing` exclusively waits for none of these. `Inner::allocating` is taken without any of them, or under
//! `Inner::checkpoints`; its holder never waits for a checkpoint.

use std::hash::{BuildHasher, Hash};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::view::GroupKey;

/// Shards of a structure, each with its own lock.
pub(crate) const SHARDS: usize = 16;

/// The locks of a space.
#[derive(Clone, Default)]
pub struct RangeLocks {
    shards: Arc<[Mutex<Shard>; SHARDS]>,
}

#[derive(Default)]
struct Shard {
    queues: FxHashMap<GroupKey, SmallVec<[Request; 2]>>,
    next: u64,
}

struct Request {
    id: u64,
    units: Range<usize>,
    mode: Mode,
    /// The caller waits for this notification.
    wake: Option<Arc<Notify>>,
}

/// The mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Compatible with other shared locks.
    Shared,
    /// Compatible with no other lock.
    Exclusive,
}

/// A lock, held or waited for; it ends on drop.
pub struct RangeLock {
    locks: RangeLocks,
    key: GroupKey,
    id: u64,
}

impl RangeLocks {
    /// Takes a lock: waits until no earlier request for any of these units conflicts.
    pub async fn lock(&self, key: GroupKey, units: Range<usize>, mode: Mode) -> RangeLock {
        if let Some(lock) = self.try_lock(key, units.clone(), mode) {
            return lock;
        }
        let wake = Arc::<Notify>::default();
        let lock = self.push(key, Request { id: 0, units, mode, wake: Some(Arc::clone(&wake)) });
        // `notify_one` stores a permit, so a wake-up between the check and the wait is not lost.
        while !lock.is_granted() {
            wake.notified().await;
        }
        lock
    }

    /// Takes a lock without waiting. Returns `None` if there is a conflicting request, held or waiting.
    pub fn try_lock(&self, key: GroupKey, units: Range<usize>, mode: Mode) -> Option<RangeLock> {
        let mut shard = self.shard(&key).lock();
        let request = Request { id: 0, units, mode, wake: None };
        let queue = shard.queues.get(&key);
        let is_free = queue.is_none_or(|queue| !queue.iter().any(|other| other.conflicts(&request)));
        is_free.then(|| self.push_in(&mut shard, key, request))
    }

    /// An exclusive lock of units that no call has locked. It overtakes waiting requests.
    pub fn try_lock_first(&self, key: GroupKey, units: Range<usize>) -> Option<RangeLock> {
        let mut shard = self.shard(&key).lock();
        let request = Request { id: 0, units, mode: Mode::Exclusive, wake: None };
        let queue = shard.queues.entry(key).or_default();
        let is_held = |at: usize| queue[at].conflicts(&request) && is_granted(queue, at);
        if (0..queue.len()).any(is_held) {
            return None;
        }
        let lock = self.push_in(&mut shard, key, request);
        shard.queues.get_mut(&key).expect("it has the request").rotate_right(1);
        Some(lock)
    }

    fn push(&self, key: GroupKey, request: Request) -> RangeLock {
        self.push_in(&mut self.shard(&key).lock(), key, request)
    }

    fn push_in(&self, shard: &mut Shard, key: GroupKey, request: Request) -> RangeLock {
        shard.next += 1;
        let id = shard.next;
        shard.queues.entry(key).or_default().push(Request { id, ..request });
        RangeLock { locks: self.clone(), key, id }
    }

    fn shard(&self, key: &GroupKey) -> &Mutex<Shard> {
        &self.shards[shard_of(key)]
    }
}

/// Whether no earlier request conflicts.
fn is_granted(queue: &[Request], at: usize) -> bool {
    !queue[..at].iter().any(|other| other.conflicts(&queue[at]))
}

/// The shard of a group.
pub(crate) fn shard_of(key: &impl Hash) -> usize {
    // FxHash has its entropy in the high bits.
    (FxBuildHasher.hash_one(key) >> 58) as usize % SHARDS
}

impl Request {
    fn conflicts(&self, other: &Request) -> bool {
        let overlap = self.units.start < other.units.end && other.units.start < self.units.end;
        overlap && (self.mode == Mode::Exclusive || other.mode == Mode::Exclusive)
    }
}

impl RangeLock {
    fn is_granted(&self) -> bool {
        let shard = self.locks.shard(&self.key).lock();
        let queue = &shard.queues[&self.key];
        let mine = queue.iter().position(|r| r.id == self.id).expect("a request stays until it is dropped");
        is_granted(queue, mine)
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        let mut shard = self.locks.shard(&self.key).lock();
        let Some(queue) = shard.queues.get_mut(&self.key) else { return };
        if let Some(mine) = queue.iter().position(|r| r.id == self.id) {
            let gone = queue.remove(mine);
            let waiting = queue[mine..].iter().filter(|r| r.conflicts(&gone));
            waiting.filter_map(|r| r.wake.as_ref()).for_each(|wake| wake.notify_one());
        }
        if queue.is_empty() {
            shard.queues.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
