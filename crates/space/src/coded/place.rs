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
use crate::log::commit::FlushSet;
use crate::owner::Inner;
use crate::table::Table;
use crate::view::route;
use crate::write::{NotYet, Target, What};

/// See [`Failed`].
const FAILURES_MAX: u32 = 8;

/// Whether what the log has of units is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placed {
    Yes,
    /// A caller waits for a flush of a value that the write would hold up: that comes first.
    NeedsFlush,
}

/// How many stripes of each row could not be put in place in one pass. After some the others of the row are left out: each may
/// take as long as its disks need to fail.
#[derive(Default)]
struct Failed(BTreeMap<RowNumber, u32>);

impl Failed {
    fn is_given_up(&self, row: RowNumber) -> bool {
        self.0.get(&row).is_some_and(|failures| *failures >= FAILURES_MAX)
    }
}

/// The first stripes that are not in place and follow each other with payload of the same columns: those as bits, and the
/// payload of each.
fn first_unplaced(table: &Table, mut units: Range<usize>) -> Option<(Range<usize>, u32, Vec<Sg>)> {
    let (first, (columns, payload)) = units.find_map(|unit| Some((unit, table.redo(unit)?)))?;
    let others = units.map_while(|unit| table.redo(unit).filter(|(of, _)| *of == columns));
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
        while self.try_place(target, cached).await? == Placed::NeedsFlush {
            self.log().flush(FlushSet::everything()).await?;
        }
        Ok(())
    }

    /// The same without a wait for a record of the log.
    async fn try_place(
        self: &Arc<Inner>,
        target: &Target,
        cached: &Arc<Cached>,
    ) -> Result<Placed, SpaceError> {
        while let Some((units, columns, payload)) =
            self.look(cached, |table| first_unplaced(table, target.units.clone()))
        {
            let view = self.view.get().value;
            let Some(at) = route(&view, target.key) else { return Ok(Placed::Yes) };
            let mut parts: Vec<Option<Sg>> = vec![None; at.contents()];
            for stripe in payload {
                let contents = (0..at.contents()).filter(|content| columns & 1 << content != 0);
                contents
                    .zip(stripe)
                    .for_each(|(content, unit)| parts[content].get_or_insert_default().push(unit));
            }
            let stripes = Stripes { parts, values: None };
            if self.start_placing(Target { units, ..target.clone() }, stripes).await? == Placed::NeedsFlush {
                return Ok(Placed::NeedsFlush);
            }
        }
        Ok(Placed::Yes)
    }

    /// One try to write in place what the log has.
    async fn start_placing(
        self: &Arc<Inner>,
        target: Target,
        stripes: Stripes,
    ) -> Result<Placed, SpaceError> {
        self.lease.hold().wait().await?;
        match self.begin(&target, What::Decision) {
            Ok(begun) => {
                let change = Change { inner: Arc::clone(self), target, begun, right: None };
                change.begin(New::Stripes(stripes)).await?;
            }
            Err(NotYet::Table(load)) => drop(load.await?),
            Err(NotYet::Disk(member)) => drop(self.port(&member).await?),
            Err(NotYet::Unavailable(error)) => return Err(error),
            Err(NotYet::Flush) => return Ok(Placed::NeedsFlush),
            Err(_) => {}
        }
        Ok(Placed::Yes)
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

    /// Writes those of these stripes in place that are not locked; the snapshot carries the others. Waits for no lock: a
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
                    if let Some(_lock) = self.locks.try_lock(key, unit..unit + 1, Mode::Exclusive) {
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

    /// Writes a stripe in place, unless that has to wait for a record, or its disks fail or are away: the snapshot carries it
    /// then.
    async fn place_now(
        self: &Arc<Inner>,
        cached: &Arc<Cached>,
        unit: usize,
        failed: &mut Failed,
    ) -> Result<(), SpaceError> {
        let target = Target { key: cached.key(), column: 0, units: unit..unit + 1 };
        match self.try_place(&target, cached).await {
            Err(SpaceError::Unavailable { .. } | SpaceError::Disk { .. }) => {
                *failed.0.entry(target.key.row).or_default() += 1;
                Ok(())
            }
            placed => placed.map(|_| ()),
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
