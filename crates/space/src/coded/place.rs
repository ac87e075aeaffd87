//! Writes stripes in place whose changes are in a record. The call that changed them does this; if it fails, the next
//! call that uses them, or a checkpoint.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arena::Sg;
use pool_seam::RowNumber;
use pool_seam::code::Code;

use super::implied;
use crate::SpaceError;
use crate::cache::Cached;
use crate::flight::{Change, NewData, Stripes};
use crate::locks::Mode;
use crate::owner::{Inner, RETRY};
use crate::table::Table;
use crate::view::route;
use crate::write::{Blocked, Target, WriteKind};

/// The failures in one pass after which a row is skipped: see [`Failed`].
const FAILURES_MAX: u32 = 8;

/// Counts the stripes of each row that could not be put in place in one pass. After [`FAILURES_MAX`] the row's other
/// stripes are skipped: each may take as long as its disks need to fail.
#[derive(Default)]
struct Failed(BTreeMap<RowNumber, u32>);

impl Failed {
    fn is_given_up(&self, row: RowNumber) -> bool {
        self.0.get(&row).is_some_and(|failures| *failures >= FAILURES_MAX)
    }
}

/// The first run of stripes that are in a record and not in place, whose payload has the same columns. Returns the
/// units, the columns as bits, and the payload of each stripe.
fn first_unplaced(
    code: Code,
    table: &Table,
    mut units: Range<usize>,
) -> Option<(Range<usize>, u32, Vec<Sg>)> {
    let in_record = |unit| match table.waits(unit) {
        true => None,
        false => implied::payload(code, table, unit, code.all()),
    };
    let (first, (columns, payload)) = units.find_map(|unit| Some((unit, in_record(unit)?)))?;
    let others = units.map_while(|unit| in_record(unit).filter(|(of, _)| *of == columns));
    let payload: Vec<Sg> = std::iter::once(payload).chain(others.map(|(_, payload)| payload)).collect();
    Some((first..first + payload.len(), columns, payload))
}

impl Inner {
    /// Writes units in place that are only in the log. The caller has their exclusive lock.
    pub(crate) async fn place(
        self: &Arc<Inner>,
        target: &Target,
        cached: &Arc<Cached>,
    ) -> Result<(), SpaceError> {
        // The call that changed such a unit may have ended with an error before the unit's record (rule 3).
        let only_waits = |table: &Table, unit| table.waits(unit) && table.redo(unit).is_some();
        loop {
            // Recorded units first: the other units' record may need room, and the checkpoint that makes room cannot
            // place the stripes that this call has locked.
            self.place_recorded(target, cached).await?;
            if !self.with_table(cached, |table| target.units.clone().any(|unit| only_waits(table, unit))) {
                return Ok(());
            }
            self.log().durable().await?;
        }
    }

    /// [`Inner::place`] for the units that are in a record; does not wait for a record.
    async fn place_recorded(
        self: &Arc<Inner>,
        target: &Target,
        cached: &Arc<Cached>,
    ) -> Result<(), SpaceError> {
        loop {
            let view = self.view.get().value;
            let Some(at) = route(&view, target.key) else { return Ok(()) };
            let Some(code) = at.code else { return Ok(()) };
            let found = self.with_table(cached, |table| first_unplaced(code, table, target.units.clone()));
            let Some((units, columns, payload)) = found else { return Ok(()) };
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
    }

    /// Tries once to write stripes in place.
    async fn try_place(self: &Arc<Inner>, target: Target, stripes: Stripes) -> Result<(), SpaceError> {
        self.lease.hold().wait().await?;
        match self.begin(&target, WriteKind::Decision) {
            Ok(begun) => {
                let change = Change { inner: Arc::clone(self), target, begun, permit: None };
                change.begin(NewData::Stripes(stripes)).await?;
            }
            Err(Blocked::Table(load)) => drop(load.await?),
            Err(Blocked::Disk(member)) => drop(self.port(&member).await?),
            Err(Blocked::Unavailable(error)) => return Err(error),
            // A flush is pending, which waits only for values that are in no record, so not for this call. (The slabs
            // of these stripes always have blocks.)
            Err(_) => self.env.sleep(RETRY).await,
        }
        Ok(())
    }

    /// Writes stripes in place that are only in the log: those found at opening, and those whose placing failed. Waits
    /// for their locks, but returns when the log is full, as the holders may wait for room then. The caller must not
    /// hold `placing`, which the holders may wait for.
    pub(crate) async fn place_remaining(self: &Arc<Inner>) -> Result<(), SpaceError> {
        let mut full = std::pin::pin!(self.log().full());
        let mut failed = Failed::default();
        for cached in self.cache.dirty() {
            for unit in self.with_table(&cached, |table| table.unplaced()).iter() {
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

    /// Places the stripes that are not locked; the snapshot carries the others. Waits for no lock: its holder may
    /// wait for `placing`, or for a lock whose holder waits for `placing`. Returns the number of stripes placed since
    /// the space was opened.
    pub(crate) async fn place_unlocked(self: &Arc<Inner>) -> Result<u64, SpaceError> {
        let mut failed = Failed::default();
        loop {
            let placed = self.placed.load(Ordering::SeqCst);
            for cached in self.cache.dirty() {
                let key = cached.key();
                for unit in self.with_table(&cached, |table| table.unplaced()).iter() {
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

    /// Writes a stripe in place. If its disks fail or are absent, the snapshot carries it.
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

    /// Retries to write stripes in place whose placing failed.
    pub(crate) async fn place_stuck(self: &Arc<Inner>) -> Result<(), SpaceError> {
        if self.unplaced.is_stuck() {
            self.place_remaining().await?;
            self.count_unplaced();
        }
        Ok(())
    }

    /// Counts the units whose placing failed, which snapshots have to carry.
    fn count_unplaced(&self) {
        let units = |table: &mut Table| {
            let columns = table.unplaced().iter().filter_map(|unit| Some(table.redo(unit)?.0.count_ones()));
            columns.sum::<u32>() as usize
        };
        let dirty = self.cache.dirty();
        self.unplaced.count(dirty.iter().map(|cached| self.with_table(cached, units)).sum());
    }
}
