//! Locks on ranges of units, one queue for each column of each row.
//!
//! Invariants:
//! 1. Two locks held at a time do not overlap.
//! 2. Overlapping requests are granted in order of arrival: none starves.
//! 3. The holder of one waits for no other of the same space, except in ascending order of (row, column); so
//!    there is no circular wait.
//! 4. The queue holds one entry for each request that its caller waits for or holds; it bounds itself by the
//!    callers' bounds.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::RowNumber;

type Key = (RowNumber, u8);

/// The locks of a space.
#[derive(Default)]
pub struct RangeLocks {
    columns: Arc<Mutex<Columns>>,
}

#[derive(Default)]
struct Columns {
    queues: FxHashMap<Key, SmallVec<[Request; 2]>>,
    next: u64,
}

struct Request {
    id: u64,
    units: Range<u32>,
    /// The waiters.
    wake: Option<Arc<Notify>>,
}

/// A lock, held or waited for; it ends on drop.
pub struct RangeLock {
    columns: Arc<Mutex<Columns>>,
    key: Key,
    id: u64,
}

impl RangeLocks {
    /// Waits until no other request for any of these units of the column is before this one.
    pub async fn lock(&self, row: RowNumber, column: u8, units: Range<u32>) -> RangeLock {
        if let Some(lock) = self.try_lock(row, column, units.clone()) {
            return lock;
        }
        let (key, wake) = ((row, column), Arc::<Notify>::default());
        let id = {
            let mut columns = self.columns.lock();
            columns.next += 1;
            let id = columns.next;
            let request = Request { id, units, wake: Some(Arc::clone(&wake)) };
            columns.queues.entry(key).or_default().push(request);
            id
        };
        let lock = RangeLock { columns: Arc::clone(&self.columns), key, id };
        // Rarely: the box keeps it out of every write's task.
        Box::pin(lock.wait(&wake)).await;
        lock
    }

    /// The same at once, if no other request for any of these units is there.
    pub fn try_lock(&self, row: RowNumber, column: u8, units: Range<u32>) -> Option<RangeLock> {
        let key = (row, column);
        let mut columns = self.columns.lock();
        let Columns { queues, next } = &mut *columns;
        let queue = queues.entry(key).or_default();
        if queue.iter().any(|r| overlap(&r.units, &units)) {
            return None;
        }
        *next += 1;
        queue.push(Request { id: *next, units, wake: None });
        Some(RangeLock { columns: Arc::clone(&self.columns), key, id: *next })
    }
}

impl RangeLock {
    async fn wait(&self, wake: &Notify) {
        // `notify_one` keeps a permit, so a wake-up between the look and the wait is not lost.
        while !self.is_granted() {
            wake.notified().await;
        }
    }

    fn is_granted(&self) -> bool {
        let columns = self.columns.lock();
        let Some(queue) = columns.queues.get(&self.key) else { return false };
        let Some(mine) = queue.iter().position(|r| r.id == self.id) else { return false };
        queue[..mine].iter().all(|r| !overlap(&r.units, &queue[mine].units))
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        let mut columns = self.columns.lock();
        let Some(queue) = columns.queues.get_mut(&self.key) else { return };
        if let Some(mine) = queue.iter().position(|r| r.id == self.id) {
            let gone = queue.remove(mine);
            let waiting = queue[mine..].iter().filter(|r| overlap(&r.units, &gone.units));
            waiting.filter_map(|r| r.wake.as_ref()).for_each(|wake| wake.notify_one());
        }
        if queue.is_empty() {
            columns.queues.remove(&self.key);
        }
    }
}

fn overlap(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const ROW: RowNumber = RowNumber(1);

    #[tokio::test]
    async fn overlapping_ones_wait_in_order() {
        let locks = RangeLocks::default();
        let first = locks.lock(ROW, 0, 0..4).now_or_never().unwrap();
        let apart = locks.lock(ROW, 0, 4..8).now_or_never().unwrap();
        let other = locks.lock(ROW, 1, 0..4).now_or_never().unwrap();
        assert!(locks.try_lock(ROW, 0, 3..5).is_none());
        let mut second = Box::pin(locks.lock(ROW, 0, 3..5));
        assert!(second.as_mut().now_or_never().is_none());
        // It would be free, but the second request arrived before it.
        let mut third = Box::pin(locks.lock(ROW, 0, 2..4));
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.as_mut().now_or_never().is_none(), "the other neighbour still has it");
        drop(apart);
        let second = second.now_or_never().unwrap();
        assert!(locks.try_lock(ROW, 0, 2..3).is_none(), "the third wants it");
        assert!(third.as_mut().now_or_never().is_none());
        drop(second);
        drop((third.now_or_never().unwrap(), other));
        assert!(locks.try_lock(ROW, 0, 2..4).is_some());
        assert!(locks.columns.lock().queues.is_empty());
    }

    #[tokio::test]
    async fn who_gives_up_blocks_nobody() {
        let locks = RangeLocks::default();
        let first = locks.lock(ROW, 0, 0..4).await;
        let mut second = Box::pin(locks.lock(ROW, 0, 0..4));
        assert!(second.as_mut().now_or_never().is_none());
        let mut third = Box::pin(locks.lock(ROW, 0, 0..4));
        assert!(third.as_mut().now_or_never().is_none());
        drop(second);
        drop(first);
        assert!(third.now_or_never().is_some());
    }
}
