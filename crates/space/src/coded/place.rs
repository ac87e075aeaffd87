//! Stripes that a record has are written in place: by the call that changed them, by the next that uses them, and by
//! checkpoints.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arena::Sg;
use pool_seam::RowNumber;

use crate::SpaceError;
use crate::cache::Cached;
use crate::flight::{Change, New, Stripes};
use crate::locks::Mode;
use crate::owner::{Inner, RETRY};
use crate::table::Table;
use crate::view::route;
use crate::write::{NotYet, Target, What};

/// See [`Failed`].
const FAILURES_MAX: u32 = 8;

/// How many stripes of each row could not be put in place in one pass. After some the others of the row are left out: each may
/// take as long as its disks need to fail.
#[derive(Default)]
struct Failed(BTreeMap<RowNumber, u32>);

impl Failed {
    fn is_given_up(&self, row: RowNumber) -> bool {
        self.0.get(&row).is_some_and(|failures| *failures >= FAILURES_MAX)
    }
}

/// The first stripes that a record has, that are not in place, and that follow each other with payload of the same columns:
/// those as bits, and the payload of each.
fn first_unplaced(table: &Table, mut units: Range<usize>) -> Option<(Range<usize>, u32, Vec<Sg>)> {
    let in_record = |unit| table.redo(unit).filter(|_| !table.waits(unit));
    let (first, (columns, payload)) = units.find_map(|unit| Some((unit, in_record(unit)?)))?;
    let others = units.map_while(|unit| in_record(unit).filter(|(of, _)| *of == columns));
    let payload: Vec<Sg> = std::iter::once(payload).chain(others.map(|(_, payload)| payload)).collect();
    Some((first..first + payload.len(), columns, payload))
}

impl Inner {
    /// Writes what the log has of units and the disks do not have yet, in place. The caller has their lock alone.
    pub(crate) async fn place(
        self: &Arc<Inner>,
        target: &Target,
        cached: &Arc<Cached>,
    ) -> Result<(), SpaceError> {
        // One that no record has yet waits for it (rule 3): its call may have ended with an error.
        let only_waits = |table: &Table, unit| table.waits(unit) && table.redo(unit).is_some();
        loop {
            // First: the record may need room, and the checkpoint that makes it cannot place what this call has locked.
            self.place_recorded(target, cached).await?;
            if !self.look(cached, |table| target.units.clone().any(|unit| only_waits(table, unit))) {
                return Ok(());
            }
            self.log().durable().await?;
        }
    }

    /// The same of those that a record has: it waits for none.
    async fn place_recorded(
        self: &Arc<Inner>,
        target: &Target,
        cached: &Arc<Cached>,
    ) -> Result<(), SpaceError> {
        while let Some((units, columns, payload)) =
            self.look(cached, |table| first_unplaced(table, target.units.clone()))
        {
            let view = self.view.get().value;
            let Some(at) = route(&view, target.key) else { return Ok(()) };
            let mut parts: Vec<Option<Sg>> = vec![None; at.contents()];
            for stripe in payload {
                let contents = (0..at.contents()).filter(|content| columns & 1 << content != 0);
                contents
                    .zip(stripe)
                    .for_each(|(content, unit)| parts[content].get_or_insert_default().push(unit));
            }
            let stripes = Stripes { parts, values: None };
            self.try_place(Target { units, ..target.clone() }, stripes).await?;
        }
        Ok(())
    }

    /// One try to write stripes in place.
    async fn try_place(self: &Arc<Inner>, target: Target, stripes: Stripes) -> Result<(), SpaceError> {
        self.lease.hold().wait().await?;
        match self.begin(&target, What::Decision) {
            Ok(begun) => {
                let change = Change { inner: Arc::clone(self), target, begun, right: None };
                change.begin(New::Stripes(stripes)).await?;
            }
            Err(NotYet::Table(load)) => drop(load.await?),
            Err(NotYet::Disk(member)) => drop(self.port(&member).await?),
            Err(NotYet::Unavailable(error)) => return Err(error),
            // A flush waits only for values that no record has, and the slabs of these stripes have blocks.
            Err(_) => self.env.sleep(RETRY).await,
        }
        Ok(())
    }

    /// Writes stripes in place that only a record has: those that an opening has found in the log, and those whose placing
    /// failed. Waits for their locks, until the log is full: their holders may wait for room then. The caller does not hold
    /// `placing`, which the holders of these locks may wait for.
    pub(crate) async fn place_remaining(self: &Arc<Inner>) -> Result<(), SpaceError> {
        let mut full = std::pin::pin!(self.log().full());
        let mut failed = Failed::default();
        for cached in self.cache.dirty() {
            for unit in self.look(&cached, |table| table.unplaced()).iter() {
                if failed.is_given_up(cached.key().row) {
                    break;
                }
                let _lock = tokio::select! {
                    biased;
                    lock = self.locks.lock(cached.key(), unit..unit + 1, Mode::Exclusive) => lock,
                    () = &mut full => return Ok(()),
                };
                self.place_now(&cached, unit, &mut failed).await?;
            }
        }
        Ok(())
    }

    /// Writes those of these stripes in place that no call holds a lock of; the snapshot carries the others. Waits for no lock: a
    /// holder may wait for `placing`, or for a lock whose holder does. Returns how many were written in place since the space
    /// was opened.
    pub(crate) async fn place_unlocked(self: &Arc<Inner>) -> Result<u64, SpaceError> {
        let mut failed = Failed::default();
        loop {
            let placed = self.placed.load(Ordering::SeqCst);
            for cached in self.cache.dirty() {
                let key = cached.key();
                for unit in self.look(&cached, |table| table.unplaced()).iter() {
                    if failed.is_given_up(key.row) {
                        break;
                    }
                    if let Some(_lock) = self.locks.try_lock_first(key, unit..unit + 1) {
                        self.place_now(&cached, unit, &mut failed).await?;
                    }
                }
            }
            if placed == self.placed.load(Ordering::SeqCst) {
                return Ok(placed);
            }
            self.env.sleep(Duration::from_millis(1)).await;
        }
    }

    /// Writes a stripe in place, unless its disks fail or are away: the snapshot carries it then.
    async fn place_now(
        self: &Arc<Inner>,
        cached: &Arc<Cached>,
        unit: usize,
        failed: &mut Failed,
    ) -> Result<(), SpaceError> {
        let target = Target { key: cached.key(), column: 0, units: unit..unit + 1 };
        match self.place_recorded(&target, cached).await {
            Err(SpaceError::Unavailable { .. } | SpaceError::Disk { .. }) => {
                *failed.0.entry(target.key.row).or_default() += 1;
                Ok(())
            }
            placed => placed,
        }
    }

    /// Tries again to write stripes in place whose placing failed.
    pub(crate) async fn place_stuck(self: &Arc<Inner>) -> Result<(), SpaceError> {
        if self.unplaced.is_stuck() {
            self.place_remaining().await?;
            self.count_unplaced();
        }
        Ok(())
    }

    /// Counts the units of which snapshots have to carry changes that failed.
    fn count_unplaced(&self) {
        let units = |table: &mut Table| {
            let columns = table.unplaced().iter().filter_map(|unit| Some(table.redo(unit)?.0.count_ones()));
            columns.sum::<u32>() as usize
        };
        let dirty = self.cache.dirty();
        self.unplaced.count(dirty.iter().map(|cached| self.look(cached, units)).sum());
    }
}
