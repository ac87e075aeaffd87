//! Regions of rows whose newest changes are not durable in place, in memory only: a disk that is removed may
//! have lost them. The journal covers crashes.
//!
//! Invariants:
//! 1. A region is marked from before the first write to it until a checkpoint that began after its last one
//!    is durable: data, sums, journal.
//! 2. All regions of a group are in `blocks` from before its blocks are written until they are durable: the
//!    others record which block each column should have, and a disk that is removed without its block would
//!    thereby lose the rest of the group.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::table::RowKey;
use crate::RowNumber;

#[derive(Default)]
pub(super) struct Marks(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    clock: u64,
    rows: BTreeMap<RowNumber, BTreeMap<u8, Use>>,
    blocks: BTreeMap<RowKey, u64>,
}

struct Use {
    in_flight: u32,
    /// When the last change ended that is not durable in its place; 0 for none.
    touched: u64,
}

/// Regions with an outstanding or imminent change.
pub(super) struct Mark {
    marks: Arc<Marks>,
    row: RowNumber,
    regions: u64,
    changes: bool,
}

impl Marks {
    pub(super) fn begin(self: &Arc<Marks>, row: RowNumber, regions: u64) -> Mark {
        let mut inner = self.0.lock();
        let uses = inner.rows.entry(row).or_default();
        for region in bits(regions) {
            uses.entry(region).or_insert(Use { in_flight: 0, touched: 0 }).in_flight += 1;
        }
        Mark { marks: Arc::clone(self), row, regions, changes: false }
    }

    pub(super) fn of(&self, row: RowNumber) -> u64 {
        self.0.lock().of(row)
    }

    /// The regions of a row that a removed disk may have lost: these, and those of groups whose blocks are
    /// being written.
    pub(super) fn may_be_lost(&self, row: RowNumber) -> u64 {
        let inner = self.0.lock();
        let blocks = inner.blocks.iter().filter(|(key, _)| key.row == row);
        blocks.fold(0, |all, (_, regions)| all | regions) | inner.of(row)
    }

    /// Blocks of a group are about to be written, which has these regions.
    pub(super) fn blocks_begin(&self, key: RowKey, regions: u64) {
        self.0.lock().blocks.insert(key, regions);
    }

    /// They are durable wherever they count.
    pub(super) fn blocks_end(&self, key: RowKey) {
        self.0.lock().blocks.remove(&key);
    }

    /// The time, for [`Marks::durable`].
    pub(super) fn now(&self) -> u64 {
        self.0.lock().clock
    }

    /// Changes before `began` are durable in place, except for the regions of a row in `keep`.
    pub(super) fn durable(&self, began: u64, keep: impl Fn(RowNumber) -> u64) {
        let mut inner = self.0.lock();
        inner.rows.retain(|row, uses| {
            let keep = keep(*row);
            uses.retain(|region, u| {
                if u.touched <= began && keep & 1 << region == 0 {
                    u.touched = 0;
                }
                u.in_flight != 0 || u.touched != 0
            });
            !uses.is_empty()
        });
    }

    /// Nothing is known of anything any more.
    pub(super) fn clear(&self) {
        let mut inner = self.0.lock();
        inner.rows.clear();
        inner.blocks.clear();
    }

    pub(super) fn forget(&self, row: RowNumber) {
        let mut inner = self.0.lock();
        inner.rows.remove(&row);
        inner.blocks.retain(|key, _| key.row != row);
    }
}

impl Inner {
    fn of(&self, row: RowNumber) -> u64 {
        self.rows.get(&row).map_or(0, |uses| uses.keys().fold(0, |all, r| all | 1 << r))
    }
}

impl Mark {
    /// A change may be written from now on: one that ends earlier leaves no trace.
    pub(super) fn changes(&mut self) {
        self.changes = true;
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut inner = self.marks.0.lock();
        inner.clock += 1;
        let now = inner.clock;
        let Some(uses) = inner.rows.get_mut(&self.row) else { return };
        for region in bits(self.regions) {
            if let Some(u) = uses.get_mut(&region) {
                u.in_flight = u.in_flight.saturating_sub(1);
                u.touched = if self.changes { now } else { u.touched };
            }
        }
        uses.retain(|_, u| u.in_flight != 0 || u.touched != 0);
        if uses.is_empty() {
            inner.rows.remove(&self.row);
        }
    }
}

fn bits(regions: u64) -> impl Iterator<Item = u8> {
    (0..64).filter(move |b| regions & 1 << b != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stays_until_what_it_marks_is_durable() {
        let (marks, row) = (Arc::new(Marks::default()), RowNumber(3));
        drop(marks.begin(row, 0b100));
        assert_eq!(marks.of(row), 0, "nothing was written");
        let mut first = marks.begin(row, 0b11);
        first.changes();
        let began = marks.now();
        marks.durable(began, |_| 0);
        assert_eq!(marks.of(row), 0b11, "under way");
        drop(first);
        marks.durable(began, |_| 0);
        assert_eq!(marks.of(row), 0b11, "it ended after that began");
        marks.durable(marks.now(), |_| 0b10);
        assert_eq!(marks.of(row), 0b10, "kept");
        marks.durable(marks.now(), |_| 0);
        assert_eq!(marks.of(row), 0);
    }

    #[test]
    fn blocks_under_way_count_for_a_disk_that_leaves() {
        let (marks, row) = (Arc::new(Marks::default()), RowNumber(3));
        let key = |group| RowKey { row, group };
        marks.blocks_begin(key(0), 0b11);
        marks.blocks_begin(key(1), 0b1100);
        let _mark = marks.begin(row, 0b1_0000);
        assert_eq!((marks.of(row), marks.may_be_lost(row)), (0b1_0000, 0b1_1111));
        assert_eq!(marks.may_be_lost(RowNumber(4)), 0);
        marks.blocks_end(key(0));
        assert_eq!(marks.may_be_lost(row), 0b1_1100);
        marks.forget(row);
        assert_eq!(marks.may_be_lost(row), 0);
    }
}
