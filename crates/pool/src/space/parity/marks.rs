//! Regions of rows whose newest changes are not durable in their places, in memory alone: a disk that leaves may have lost them. What a crash leaves
//! is the journal's business.
//!
//! Invariant: a region is marked from before the first write to it until a checkpoint that began after its last one is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::RowNumber;

#[derive(Default)]
pub(super) struct Marks(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    clock: u64,
    rows: BTreeMap<RowNumber, BTreeMap<u8, Use>>,
}

struct Use {
    in_flight: u32,
    touched: u64,
}

/// Regions with a change under way.
pub(super) struct Mark {
    marks: Arc<Marks>,
    row: RowNumber,
    regions: u64,
}

impl Marks {
    pub(super) fn begin(self: &Arc<Marks>, row: RowNumber, regions: u64) -> Mark {
        let mut inner = self.0.lock();
        inner.clock += 1;
        let now = inner.clock;
        let uses = inner.rows.entry(row).or_default();
        for region in bits(regions) {
            let u = uses.entry(region).or_insert(Use { in_flight: 0, touched: now });
            (u.in_flight, u.touched) = (u.in_flight + 1, now);
        }
        Mark { marks: Arc::clone(self), row, regions }
    }

    pub(super) fn of(&self, row: RowNumber) -> u64 {
        let inner = self.0.lock();
        inner.rows.get(&row).map_or(0, |uses| uses.keys().fold(0, |all, r| all | 1 << r))
    }

    /// The time, for [`Marks::durable`].
    pub(super) fn now(&self) -> u64 {
        self.0.lock().clock
    }

    /// What was touched by `began` is durable in its place, but for what `keep` gives of a row.
    pub(super) fn durable(&self, began: u64, keep: impl Fn(RowNumber) -> u64) {
        let mut inner = self.0.lock();
        inner.rows.retain(|row, uses| {
            let keep = keep(*row);
            uses.retain(|region, u| u.in_flight != 0 || u.touched > began || keep & 1 << region != 0);
            !uses.is_empty()
        });
    }

    pub(super) fn forget(&self, row: RowNumber) {
        self.0.lock().rows.remove(&row);
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
                (u.in_flight, u.touched) = (u.in_flight.saturating_sub(1), now);
            }
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
        let first = marks.begin(row, 0b11);
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
}
