//! Rows that discards in pieces leave empty give their slabs back.
//!
//! Each row with a discard remembers one unit that is still written: its *witness*. A discard that does not
//! cover it leaves the row non-empty, without a search. A discard that covers it starts a search for another
//! one, from the end of the discard downwards and around: so neither a file system that trims upwards nor one
//! that trims downwards searches a group often. If there is none, the row is freed.
//!
//! Invariants:
//! 1. A row has one search at a time. A discard during a search makes it repeat.
//! 2. A witness was written at some time after the last discard that covers it.
//! 3. A row is freed under all its locks, after a search of every group found all known and nothing written,
//!    and no write has happened since the search began: a writer reports its write ([`Emptying::wrote`])
//!    after updating the table and before releasing the range.
//! 4. A row that could not be searched (copies are absent, writes do not stop) is *due*: the next flush
//!    searches it, or the next discard in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use parking_lot::Mutex;

use super::{Space, SpaceError};
use crate::groups::GroupKey;
use crate::{GROUP, RowNumber, UNIT};

/// Rows that are remembered. Of one that is forgotten the next discard looks for a witness again.
const ROWS_MAX: usize = 4096;

/// Groups that are looked at together, at most.
const AT_ONCE: usize = 16;

/// Looks in a row while others discard and write there.
const TRIES: usize = 16;

/// Rows in which something was discarded.
#[derive(Default)]
pub(crate) struct Emptying {
    watches: Mutex<Watches>,
    /// The number of searches: without any, writers have nothing to report.
    looking: AtomicUsize,
}

#[derive(Default)]
struct Watches {
    rows: BTreeMap<RowNumber, Watch>,
    due: BTreeSet<RowNumber>,
    looks: u64,
}

#[derive(Default)]
struct Watch {
    /// An address of the space.
    witness: Option<u64>,
    /// The search in progress.
    look: Option<u64>,
    /// A discard happened since the start of the search.
    again: bool,
    /// A write happened since the start of the search.
    wrote: bool,
}

/// A search of a row; dropping it ends it.
pub(crate) struct Look<'a> {
    of: &'a Emptying,
    row: RowNumber,
    number: u64,
}

/// The result of searching a group or a row.
pub(crate) enum Seen {
    /// The row has no slabs.
    Gone,
    Nothing,
    /// This address is written, or was and is lost.
    Something(u64),
}

impl Emptying {
    /// A part of a row was discarded; `Some` when the caller has to look.
    pub(crate) fn discarded(&self, row: RowNumber, part: &Range<u64>) -> Option<Look<'_>> {
        let mut watches = self.watches.lock();
        if let Some(watch) = watches.rows.get_mut(&row) {
            if watch.look.is_some() {
                watch.again = true;
                return None;
            }
            if watch.witness.is_some_and(|at| !part.contains(&at)) {
                return None;
            }
        }
        Some(self.begin(&mut watches, row))
    }

    /// The next row after this one that needs a search.
    fn due(&self, after: Option<RowNumber>) -> Option<Look<'_>> {
        let mut watches = self.watches.lock();
        let mut due = watches.due.iter().copied();
        let row = due.find(|row| after.is_none_or(|after| *row > after))?;
        Some(self.begin(&mut watches, row))
    }

    fn begin(&self, watches: &mut Watches, row: RowNumber) -> Look<'_> {
        if watches.rows.len() >= ROWS_MAX {
            // Trimming goes upwards.
            let idle = watches.rows.iter().find(|(_, w)| w.look.is_none()).map(|(row, _)| *row);
            idle.iter().for_each(|row| watches.forget(*row));
        }
        watches.looks += 1;
        let number = watches.looks;
        watches.due.remove(&row);
        watches.rows.insert(row, Watch { look: Some(number), ..Watch::default() });
        self.looking.fetch_add(1, Ordering::Relaxed);
        Look { of: self, row, number }
    }

    /// Something was written in a row: its table has it, and the range is still in the caller's hands.
    pub(super) fn wrote(&self, row: RowNumber) {
        // A search that did not see it in the table began before the table changed; the table's lock orders
        // that before this.
        if self.looking.load(Ordering::Relaxed) > 0
            && let Some(watch) = self.watches.lock().rows.get_mut(&row)
        {
            watch.wrote = true;
        }
    }

    /// A row is gone.
    pub(super) fn forget(&self, row: RowNumber) {
        self.watches.lock().forget(row);
    }
}

impl Watches {
    fn forget(&mut self, row: RowNumber) {
        self.rows.remove(&row);
        self.due.remove(&row);
    }

    fn of(&mut self, look: &Look<'_>) -> Option<&mut Watch> {
        self.rows.get_mut(&look.row).filter(|w| w.look == Some(look.number))
    }
}

impl Look<'_> {
    /// Discards and writes until now count no more.
    fn begins(&self) {
        if let Some(watch) = self.of.watches.lock().of(self) {
            (watch.again, watch.wrote) = (false, false);
        }
    }

    /// Whether nothing was written since, and the row has not gone.
    fn is_quiet(&self) -> bool {
        self.of.watches.lock().of(self).is_some_and(|w| !w.wrote)
    }

    /// This was written; false when something was discarded since.
    fn finds(&self, witness: u64) -> bool {
        let mut watches = self.of.watches.lock();
        let Some(watch) = watches.of(self) else { return true };
        if !watch.again {
            watch.witness = Some(witness);
        }
        !watch.again
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.of.looking.fetch_sub(1, Ordering::Relaxed);
        let mut watches = self.of.watches.lock();
        let Some(watch) = watches.of(self) else { return };
        watch.look = None;
        if watch.witness.is_none() {
            watches.due.insert(self.row);
        }
    }
}

impl Space {
    /// After a discard of a part of a row, whose tables have it: gives the row's slabs back if nothing is
    /// left in it. The caller has no lock.
    pub(super) async fn emptied(&self, row: RowNumber, part: Range<u64>) {
        let from = (self.inner.layout.locate(part.end - UNIT).offset / GROUP) as u32;
        if self.path.read(|s| s.rows.contains_key(&(self.inner.id, row)))
            && let Some(look) = self.inner.emptying.discarded(row, &part)
        {
            Box::pin(self.look(look, from)).await;
        }
    }

    /// Searches the rows that could not be searched before. The caller holds no lock.
    pub(super) async fn empty_due(&self) {
        let mut last = None;
        while let Some(look) = self.inner.emptying.due(last) {
            last = Some(look.row);
            Box::pin(self.look(look, 0)).await;
        }
    }

    /// Finds a witness or frees the row. It is not the discard's error when that cannot be done now.
    async fn look(&self, look: Look<'_>, from: u32) {
        let row = look.row;
        if let Err(error) = self.try_look(look, from).await {
            tracing::debug!(%error, space = self.inner.id.0, row = row.0, "whether a row is empty is not known");
        }
    }

    async fn try_look(&self, look: Look<'_>, mut from: u32) -> Result<(), SpaceError> {
        let may = || look.is_quiet() && !self.is_in_doubt(look.row);
        for _ in 0..TRIES {
            look.begins();
            match self.anything_in(look.row, from).await? {
                Seen::Gone => {
                    self.inner.emptying.forget(look.row);
                    return Ok(());
                }
                Seen::Something(at) if look.finds(at) => return Ok(()),
                Seen::Something(at) => from = (self.inner.layout.locate(at).offset / GROUP) as u32,
                Seen::Nothing if self.free_row_if(look.row, &may).await? => return Ok(()),
                Seen::Nothing => {}
            }
        }
        Ok(())
    }

    /// Whether a failed write left something of a row undecided.
    fn is_in_doubt(&self, row: RowNumber) -> bool {
        match self.striped() {
            Some(striped) => striped.is_stuck(row),
            None => self.inner.unresolved.has(row),
        }
    }

    /// Searches the groups of a row, downwards from one and around, until a written unit is found.
    async fn anything_in(&self, row: RowNumber, from: u32) -> Result<Seen, SpaceError> {
        let groups = (self.path.slab_bytes / GROUP) as u32;
        let mut left = (0..groups).map(|n| (from + groups - n) % groups);
        let mut many = 1;
        loop {
            let some: Vec<u32> = left.by_ref().take(many).collect();
            if some.is_empty() {
                return Ok(Seen::Nothing);
            }
            for seen in join_all(some.into_iter().map(|group| self.anything(row, group))).await {
                match seen? {
                    Seen::Nothing => {}
                    other => return Ok(other),
                }
            }
            // Nearby groups are mostly in memory, and have written units.
            many = (many * 2).min(AT_ONCE);
        }
    }

    /// The last that is written in a group of all columns.
    async fn anything(&self, row: RowNumber, group: u32) -> Result<Seen, SpaceError> {
        if let Some(striped) = self.striped() {
            return striped.anything(row, group).await;
        }
        for column in (0..self.inner.columns).rev() {
            let key = GroupKey { row, column, group };
            let Some(group) = self.ready(key, self.inner.regions.of(&key.units())).await? else {
                return Ok(Seen::Gone);
            };
            let state = group.state.lock();
            if let Some(unit) = state.table.written.or(&state.table.lost).iter().last() {
                return Ok(Seen::Something(self.inner.address_in(key, unit)));
            }
        }
        Ok(Seen::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: RowNumber = RowNumber(3);

    #[test]
    fn who_covers_the_witness_looks() {
        let rows = Emptying::default();
        let look = rows.discarded(ROW, &(0..10)).expect("there is no witness");
        look.begins();
        assert!(rows.discarded(ROW, &(10..20)).is_none(), "a search is running");
        assert!(!look.finds(15), "it may have been discarded since it was seen");
        look.begins();
        assert!(look.finds(40));
        drop(look);
        assert!(rows.discarded(ROW, &(0..40)).is_none());
        assert!(rows.discarded(ROW, &(40..50)).is_some());
        assert!(rows.discarded(RowNumber(4), &(0..1)).is_some(), "of another row nothing is known");
    }

    #[test]
    fn what_is_written_meanwhile_counts() {
        let rows = Emptying::default();
        rows.wrote(ROW);
        let look = rows.discarded(ROW, &(0..10)).expect("there is no witness");
        look.begins();
        assert!(look.is_quiet());
        rows.wrote(RowNumber(4));
        assert!(look.is_quiet());
        rows.wrote(ROW);
        assert!(!look.is_quiet());
        look.begins();
        assert!(look.is_quiet());
        rows.forget(ROW);
        assert!(!look.is_quiet(), "the row has gone, and another may be there");
    }

    #[test]
    fn a_look_without_a_result_is_due() {
        let rows = Emptying::default();
        drop(rows.discarded(ROW, &(0..10)).expect("there is no witness"));
        let look = rows.due(None).expect("nothing was found");
        assert_eq!(look.row, ROW);
        assert!(rows.due(None).is_none(), "one looks");
        drop(look);
        assert!(rows.due(Some(ROW)).is_none(), "once for each flush");
        let look = rows.due(None).expect("nothing was found again");
        assert!(look.finds(7));
        drop(look);
        assert!(rows.due(None).is_none());
    }

    #[test]
    fn few_rows_are_remembered() {
        let rows = Emptying::default();
        let first = rows.discarded(RowNumber(0), &(0..1)).expect("there is no witness");
        for row in 1..2 * ROWS_MAX as u32 {
            assert!(rows.discarded(RowNumber(row), &(0..1)).expect("there is no witness").finds(9));
        }
        assert!(first.is_quiet(), "who looks is not forgotten");
        assert_eq!(rows.watches.lock().rows.len(), ROWS_MAX);
    }
}
