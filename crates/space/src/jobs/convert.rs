//! Copies the data of a space to rows of another shape: `docs/0004-spaces.md`, section H.
//!
//! The addresses are copied in windows, from the lowest on. While a window is copied, writes to it wait, and reads use
//! the former row. When the copy is durable, the metadata moves the boundary between the shapes to the end of the
//! window. A crash before that repeats the window. Former rows below the boundary are discarded and freed.

use std::ops::Range;
use std::sync::Arc;

use arena::{Class, IoBufMut, Sg, SgMut};
use disk::sized;
use futures_util::StreamExt;
use pool_seam::layout::Layout;
use pool_seam::{GROUP, NotMoved, OwnerOp, Provisioning, RowNumber, SeamError, SpaceView, UNIT};

use super::Job;
use crate::SpaceError;
use crate::log::commit::FlushSet;
use crate::owner::{Inner, Space};
use crate::size::next_ready;
use crate::view::layout;
use crate::write::WrittenRun;

/// The most bytes of the space in a window.
const WINDOW: u64 = 32 << 20;

/// The most bytes that are copied with one read and one write.
const PIECE: u64 = 1 << 20;

/// Pieces of a window that are copied at a time. They use memory of the reserve: a client whose writes wait for the
/// window may have all other memory.
const PIECES_AT_ONCE: usize = 2;

impl Job {
    /// Copies all data that is in rows of the former shape, if the space is being converted.
    pub(super) async fn convert(&mut self) -> Result<(), SpaceError> {
        loop {
            let (inner, view) = (Arc::clone(&self.inner), self.inner.view.get().value);
            let Some(from) = view.record.converted else { return Ok(()) };
            let is_copied = from >= view.record.size;
            let pieces = if is_copied { 0 } else { self.turn().await? };
            if pieces == 0 {
                let freed = inner.free_converted().await;
                if is_copied && freed.is_ok() && !inner.view.get().value.record.is_converting() {
                    return Ok(());
                }
                let rows = former_rows(&inner.view.get().value, u64::MAX);
                self.note_unfinished(rows.into_iter().map(|row| (row, 0)));
                return Ok(());
            }
            let row = layout(&view).at(from).locate(from).row;
            let why = match inner.convert_window(from, pieces as u64 * inner.region_bytes()).await {
                Ok(bytes) => {
                    self.done.bytes += bytes;
                    continue;
                }
                Err(SpaceError::Seam(SeamError::NoRoom(why))) => NotMoved::NoPlace(why),
                Err(
                    SpaceError::Unavailable { .. } | SpaceError::Disk { .. } | SpaceError::Corrupt { .. },
                ) => NotMoved::Unfinished,
                Err(error) => return Err(error),
            };
            self.not_moved.insert((row, 0), why);
            return Ok(());
        }
    }
}

impl Inner {
    /// Copies the next window, which begins at `from` and has about `length` bytes. Returns how many bytes of rows are
    /// converted.
    async fn convert_window(self: &Arc<Inner>, from: u64, length: u64) -> Result<u64, SpaceError> {
        match self.free_converted().await {
            // Rows that cannot be freed now do not prevent that others are copied.
            Ok(()) | Err(SpaceError::Unavailable { .. } | SpaceError::Disk { .. }) => {}
            Err(error) => return Err(error),
        }
        let _one = self.resizing.lock().await;
        let view = self.view.get().value;
        if view.record.converted != Some(from) {
            return Ok(0);
        }
        let map = layout(&view);
        let (old, new, size) = (map.at(from), map.of_half(view.record.half), view.record.size);
        let is_fixed = view.record.provisioning == Provisioning::Fixed;
        // The window ends with a stripe of the new rows unless these are very long, or before the next data.
        let unit = |most: u64| if new.stripe_bytes() <= most { new.stripe_bytes() } else { UNIT };
        let step = unit(WINDOW);
        let mut to = (from / step * step + length.min(WINDOW).next_multiple_of(step)).min(size);
        let next = next_ready(&view, &old, from, size);
        if next > to && !is_fixed {
            to = if next == size { size } else { to.max(next / step * step) };
        }
        let piece_bytes = PIECE / unit(PIECE) * unit(PIECE);
        let window = self.window.open(from..to).await;
        drop(self.all_writes().await?);
        let failed = self.ports.failed();
        if is_fixed {
            let rows = new.locate(from).row.index()..=new.locate(to - UNIT).row.index();
            self.allocate_rows(rows.map(|index| RowNumber::new(view.record.half, index)).collect()).await?;
        }
        let (mut at, mut written) = (from, Vec::new());
        while at < to {
            let allocated = self.allocated(at..to).await?;
            let end = allocated.end.min(to);
            // An earlier attempt may have left data there.
            let mut hole = at;
            for range in &allocated.ranges {
                self.discard_rows(&new, hole..range.start).await?;
                hole = range.end;
            }
            self.discard_rows(&new, hole..end).await?;
            let pieces = allocated.ranges.into_iter().flat_map(|range| cut(range, piece_bytes));
            let copies = pieces.map(|piece| self.copy_piece(&new, piece));
            // All of them end, even if one fails: a write must not be dropped.
            let copies: Vec<_> =
                futures_util::stream::iter(copies).buffer_unordered(PIECES_AT_ONCE).collect().await;
            for runs in copies {
                written.extend(runs?);
            }
            at = end;
        }
        self.flush_groups(None, FlushSet::everything()).await?;
        // The window is repeated if a disk was reopened, which may have lost writes that it had completed (whatever
        // was decided about these units since), or if a value is not durable yet.
        let is_unsure = |(cached, units): &WrittenRun| {
            self.with_table(cached, |table| {
                units.clone().any(|unit| table.waits(unit) || table.is_in_doubt(unit) || table.is_open(unit))
            })
        };
        if self.ports.failed() != failed || written.iter().any(is_unsure) {
            return Ok(0);
        }
        self.commit_if_fits(vec![OwnerOp::Converted { from, to }]).await?;
        drop(window);
        Ok(if next < to { to - from.max(next) } else { 0 })
    }

    /// Copies addresses to the rows of a layout. Returns the written units.
    async fn copy_piece(
        self: &Arc<Inner>,
        new: &Layout,
        piece: Range<u64>,
    ) -> Result<Vec<WrittenRun>, SpaceError> {
        let length = (piece.end - piece.start) as usize;
        let dst: SgMut = sized(self.arena.alloc_sg(length, Class::Control).await, length);
        let (result, read) = Space(Arc::clone(self)).read(piece.start, dst).wait().await;
        result?;
        let view = self.view.get().value;
        let runs = new.runs(piece.start, piece.end - piece.start, GROUP);
        let src: Sg = read.into_iter().map(IoBufMut::freeze).collect();
        self.write_to(&view, &runs, &src).await
    }

    /// Frees the rows of the former shape whose data is in other rows.
    async fn free_converted(self: &Arc<Inner>) -> Result<(), SpaceError> {
        let view = self.view.get().value;
        let Some(converted) = view.record.converted else { return Ok(()) };
        let old = layout(&view).of_half(view.record.half ^ 1);
        let addresses = |row: &RowNumber| {
            let start = u64::from(row.index()) * old.row_bytes();
            start..(start + old.row_bytes()).min(view.record.size)
        };
        let rows = former_rows(&view, converted);
        if rows.is_empty() {
            return Ok(());
        }
        for row in &rows {
            self.discard_rows(&old, addresses(row)).await?;
        }
        self.checkpoint().await?;
        let _one = self.checkpoints.lock().await;
        for row in rows {
            self.free(row).await?;
            self.free_new(row).await?;
        }
        Ok(())
    }
}

/// The rows of the former shape whose last address in the space is below `end`.
fn former_rows(view: &SpaceView, end: u64) -> Vec<RowNumber> {
    let bytes = view.record.former.row_bytes(view.slab_bytes);
    let is_below =
        |row: &RowNumber| (u64::from(row.index()) + 1).saturating_mul(bytes).min(view.record.size) <= end;
    let half = RowNumber::new(view.record.half ^ 1, 0).rest_of_half();
    view.record.rows.range(half).map(|(row, _)| *row).take_while(is_below).collect()
}

/// Cuts a range at multiples of `length`.
fn cut(range: Range<u64>, length: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = ((at / length + 1) * length).min(range.end);
        let piece = at..end;
        at = end;
        (piece.start < piece.end).then_some(piece)
    })
}
