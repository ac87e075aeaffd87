//! Limits the units of stripes that are only in the log, not in place: a snapshot must have room to carry them.
//!
//! Invariants:
//! 1. A change of stripes holds permits for its units from before a record has them until they are in place. If
//!    placing them fails, their permits are *stuck* until fewer units are unplaced ([`Unplaced::count`]).
//! 2. No call waits for stuck permits. Changes of rows with such stripes are refused if more than half of the permits
//!    could be stuck after them; changes of other rows only if too few permits are left.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pool_seam::RowNumber;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::SpaceError;
use crate::log::LogError;

/// See the module.
pub(crate) struct Unplaced {
    permits: Semaphore,
    most: AtomicUsize,
    stuck: Mutex<Stuck>,
    /// Notified when more permits are stuck.
    grown: Notify,
}

#[derive(Default)]
struct Stuck {
    permits: usize,
    /// Rows with stripes that cannot be put in place, and why the last one could not.
    rows: BTreeMap<RowNumber, SpaceError>,
}

impl Default for Unplaced {
    fn default() -> Unplaced {
        Unplaced {
            permits: Semaphore::new(0),
            most: AtomicUsize::new(0),
            stuck: Mutex::default(),
            grown: Notify::new(),
        }
    }
}

impl Unplaced {
    /// Sets the number of units that fit a snapshot. Called once.
    pub(crate) fn allow(&self, units: usize) {
        self.most.store(units, Ordering::Relaxed);
        self.permits.add_permits(units);
    }

    /// Waits for permits for this many units of a row, at most for all permits. If too many are stuck, fails with the
    /// error of their placing.
    pub(crate) async fn acquire(
        &self,
        row: RowNumber,
        units: usize,
    ) -> Result<SemaphorePermit<'_>, SpaceError> {
        let units = units.min(self.most.load(Ordering::Relaxed));
        let mut permits = std::pin::pin!(self.permits.acquire_many(units as u32));
        loop {
            let mut grown = std::pin::pin!(self.grown.notified());
            grown.as_mut().enable();
            if let Some(error) = self.refusal(row, units) {
                return Err(error);
            }
            tokio::select! {
                biased;
                permits = &mut permits => return permits.map_err(|_| LogError::Closed.into()),
                () = grown => {}
            }
        }
    }

    fn refusal(&self, row: RowNumber, units: usize) -> Option<SpaceError> {
        let (stuck, most) = (self.stuck.lock(), self.most.load(Ordering::Relaxed));
        let of_row = stuck.rows.get(&row).filter(|_| (stuck.permits + units) * 2 > most);
        let any = || stuck.rows.values().next().filter(|_| stuck.permits + units > most);
        of_row.or_else(any).cloned()
    }

    /// Marks the permits of these units as stuck: the units could not be put in place.
    pub(crate) fn failed(&self, row: RowNumber, permits: SemaphorePermit<'_>, why: &SpaceError) {
        let mut stuck = self.stuck.lock();
        stuck.permits += permits.num_permits();
        stuck.rows.insert(row, why.clone());
        permits.forget();
        drop(stuck);
        self.grown.notify_waiters();
    }

    /// Whether permits are stuck.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.lock().permits > 0
    }

    /// Releases the stuck permits above `units`: the number of unplaced units, including those of changes in
    /// progress, is at most that.
    pub(crate) fn count(&self, units: usize) {
        let mut stuck = self.stuck.lock();
        let free = stuck.permits.saturating_sub(units);
        stuck.permits -= free;
        self.permits.add_permits(free);
        if stuck.permits == 0 {
            stuck.rows.clear();
        }
    }

    /// Permits that are neither held nor stuck.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.permits.available_permits()
    }
}

#[cfg(test)]
mod tests;
