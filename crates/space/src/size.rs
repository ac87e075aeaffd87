//! The size of a space, and its allocated addresses.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pool_seam::layout::{ColumnPosition, Layout};
use pool_seam::{GROUP, OwnerOp, RowNumber, SeamError, SpaceView, UNIT};

use crate::SpaceError;
use crate::owner::{Inner, RETRY, Space};
use crate::view::layout;
use crate::write::Target;

/// The most groups whose tables one call of [`Space::allocated`] reads.
const GROUPS: usize = 256;

/// Calls beyond this byte fail although it is inside the space, because the space is being shrunk.
pub(crate) struct Limit(AtomicU64);

/// A limit that is removed on drop.
struct Limited<'a>(&'a Limit);

/// The allocated parts of the beginning of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// Addresses that may have data, in order; all others up to `end` read as zeros.
    pub ranges: Vec<Range<u64>>,
    /// The end of the examined range; the caller continues from here.
    pub end: u64,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit(AtomicU64::new(u64::MAX))
    }
}

impl Drop for Limited<'_> {
    fn drop(&mut self) {
        self.0.0.store(u64::MAX, Ordering::SeqCst);
    }
}

impl Space {
    /// The allocated parts of at most `length` bytes from `address` on: by units where a table is available.
    pub async fn allocated(&self, address: u64, length: u64) -> Result<Allocated, SpaceError> {
        let inner = Arc::clone(&self.0);
        self.0.env.run(async move { inner.allocated(address..address.saturating_add(length)).await }).await
    }
}

/// The first address from `at` on in a row of this layout that exists and is not new; `end` if there is none before
/// that.
pub(crate) fn next_ready(view: &SpaceView, layout: &Layout, at: u64, end: u64) -> u64 {
    let mut rows =
        view.record.rows.range(layout.locate(at).row.rest_of_half()).filter(|(_, row)| !row.is_new);
    rows.next().map_or(end, |(row, _)| at.max(u64::from(row.index()) * layout.row_bytes()).min(end))
}

impl Inner {
    /// Checks that a range of whole units is inside the space.
    ///
    /// # Panics
    /// If the range is not whole units.
    pub(crate) fn check_range(&self, size: u64, address: u64, length: u64) -> Result<(), SpaceError> {
        assert!(address.is_multiple_of(UNIT) && length.is_multiple_of(UNIT), "whole units");
        let size = size.min(self.limit.0.load(Ordering::SeqCst));
        match address.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            end => Err(SpaceError::Beyond { end: end.unwrap_or(u64::MAX), size }),
        }
    }

    /// See [`Owner::resize`](pool_seam::Owner::resize).
    pub(crate) async fn resize(
        self: &Arc<Inner>,
        from: u64,
        to: u64,
        destroy: bool,
    ) -> Result<(), SpaceError> {
        let _one = self.resizing.lock().await;
        let view = self.view.get().value;
        if view.record.size != from || !to.is_multiple_of(UNIT) || view.record.is_converting() {
            return Err(SeamError::Invalid(view).into());
        }
        if to >= from {
            return self.commit(vec![OwnerOp::SetSize { from, to }]).await;
        }
        self.limit.0.store(to, Ordering::SeqCst);
        let _limited = Limited(&self.limit);
        // Once this call has all permits, earlier writes have ended, and later ones see the limit.
        drop(self.all_writes().await?);
        if destroy {
            self.discard(to..from).await?;
        } else {
            let mut at = to;
            while at < from {
                let allocated = self.allocated(at..from).await?;
                if !allocated.ranges.is_empty() {
                    return Err(SeamError::Invalid(self.view.get().value).into());
                }
                at = allocated.end;
            }
        }
        let first = to.div_ceil(view.record.row_bytes(view.slab_bytes));
        let first = RowNumber::new(view.record.half, first as u32);
        loop {
            self.checkpoint().await?;
            // Otherwise a job is using one of the rows.
            let is_free = self.free_from(first).await?;
            if is_free && self.commit_if_fits(vec![OwnerOp::SetSize { from, to }]).await? {
                return Ok(());
            }
            let view = self.view.get().value;
            if view.record.size != from || view.record.is_converting() {
                return Err(SeamError::Invalid(view).into());
            }
            // A write that waited for its row may have got it meanwhile; it sees the limit afterwards.
            self.env.sleep(RETRY).await;
        }
    }

    pub(crate) async fn allocated(self: &Arc<Inner>, range: Range<u64>) -> Result<Allocated, SpaceError> {
        loop {
            let record = Arc::clone(&self.view.get().value.record);
            let allocated = self.allocated_now(range.clone()).await?;
            // Rows whose data was converted meanwhile may be empty already.
            let now = &self.view.get().value.record;
            if (now.half, now.converted) == (record.half, record.converted) {
                return Ok(allocated);
            }
        }
    }

    async fn allocated_now(self: &Arc<Inner>, range: Range<u64>) -> Result<Allocated, SpaceError> {
        let view = self.view.get().value;
        let (map, size) = (layout(&view), view.record.size);
        let (mut at, last) = (range.start.min(size), range.end.min(size));
        let (mut ranges, mut groups): (Vec<Range<u64>>, usize) = (Vec::new(), 0);
        while groups < GROUPS && at < last {
            let (layout, limit) = (map.at(at), last.min(map.end_of_layout(at)));
            at = next_ready(&view, &layout, at, limit);
            if at == limit {
                continue;
            }
            let row_end = (u64::from(layout.locate(at).row.index()) + 1) * layout.row_bytes();
            let end = (at + GROUP * layout.columns()).min(row_end).min(limit);
            let mut units: Vec<u64> = Vec::new();
            for run in layout.runs(at, end - at, GROUP) {
                groups += 1;
                let target = Target::new(&view, run.at, run.length);
                let Some(cached) = self.loaded(target.key).await? else { continue };
                let written = self.with_table(&cached, |table| table.written_of(run.at.column));
                let address = |unit: usize| {
                    let offset = u64::from(target.key.group) * GROUP + unit as u64 * UNIT;
                    layout.address(ColumnPosition { offset, ..run.at })
                };
                units.extend(target.units.clone().filter(|unit| written.has(*unit)).map(address));
            }
            units.sort_unstable();
            for unit in units {
                match ranges.last_mut() {
                    Some(range) if range.end == unit => range.end += UNIT,
                    _ => ranges.push(unit..unit + UNIT),
                }
            }
            at = end;
        }
        Ok(Allocated { ranges, end: if at < last { at } else { range.end } })
    }
}
