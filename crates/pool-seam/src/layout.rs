//! Maps an address of a space to row, column and offset in the column, and back. Pure arithmetic.
//!
//! A row's data is striped over its columns in pieces of the interleave:
//!
//! ```text
//! address     0      1i     2i     3i     4i     5i      (i = interleave, 2 columns)
//! column      0      1      0      1      0      1
//! offset      0      0      1i     1i     2i     2i
//! ```
//!
//! Invariants:
//! 1. [`Layout::locate`] and [`Layout::address`] are inverses.
//! 2. The pieces of all [`Run`]s of an I/O cover it once; the pieces of one run lie end to end in its column.
//! 3. No run crosses a row, nor a multiple of the requested boundary in its column.

use std::ops::Range;

use smallvec::SmallVec;

use crate::{RowNumber, UNIT};

/// The shape of a space's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    slab_bytes: u64,
    columns: u64,
    interleave: u64,
}

/// The position of a byte of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ColumnPosition {
    /// Its row.
    pub row: RowNumber,
    /// Its data column.
    pub column: u8,
    /// Bytes from the beginning of the column, which is also the offset in each copy's slab.
    pub offset: u64,
}

impl ColumnPosition {
    /// The units of its column in the `length` bytes from here; `length` must be a multiple of the unit.
    pub fn units(self, length: u64) -> Range<u32> {
        let first = (self.offset / UNIT) as u32;
        first..first + (length / UNIT) as u32
    }
}

/// The part of an I/O in one column of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where it begins.
    pub at: ColumnPosition,
    /// In bytes.
    pub length: u64,
    /// The positions of its bytes in the I/O's buffers, in column order.
    pub pieces: SmallVec<[Piece; 1]>,
}

/// Bytes of an I/O that are contiguous both in its buffers and in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes from the beginning of the I/O.
    pub start: u64,
    /// In bytes.
    pub length: u64,
}

impl Layout {
    /// The layout of a space with `columns` data columns. The interleave is in bytes, a power of two from
    /// [`UNIT`] to a slab. Values out of range are clamped.
    pub fn new(columns: u8, interleave: u32, slab_bytes: u64) -> Layout {
        Layout {
            slab_bytes,
            columns: u64::from(columns.max(1)),
            interleave: u64::from(interleave).clamp(UNIT, slab_bytes),
        }
    }

    /// Bytes of data in a row.
    pub fn row_bytes(&self) -> u64 {
        self.slab_bytes * self.columns
    }

    /// Bytes of data in a slab.
    pub fn slab_bytes(&self) -> u64 {
        self.slab_bytes
    }

    /// The position of an address.
    pub fn locate(&self, address: u64) -> ColumnPosition {
        let within = address % self.row_bytes();
        let (stripe, rest) = (within / self.interleave, within % self.interleave);
        ColumnPosition {
            row: RowNumber((address / self.row_bytes()) as u32),
            column: (stripe % self.columns) as u8,
            offset: stripe / self.columns * self.interleave + rest,
        }
    }

    /// The address of a position.
    pub fn address(&self, position: ColumnPosition) -> u64 {
        let (turn, rest) = (position.offset / self.interleave, position.offset % self.interleave);
        let within = (turn * self.columns + u64::from(position.column)) * self.interleave + rest;
        u64::from(position.row.0) * self.row_bytes() + within
    }

    /// The start of an I/O, if all of it is one piece of one column that crosses no multiple of `boundary`
    /// there.
    pub fn one_piece(&self, address: u64, length: u64, boundary: u64) -> Option<ColumnPosition> {
        let at = self.locate(address);
        let interleave = if self.columns == 1 { self.slab_bytes } else { self.interleave };
        let fits = |step: u64| at.offset % step + length <= step;
        (fits(interleave) && fits(boundary)).then_some(at)
    }

    /// Splits an I/O of `length` bytes at `address` into runs of at most `boundary` bytes (a power of two, at
    /// least a unit), in the order of their first address.
    pub fn runs(&self, address: u64, length: u64, boundary: u64) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        // The index of the run that can be extended, for each column.
        let mut last: SmallVec<[usize; 8]> = SmallVec::from_elem(usize::MAX, self.columns as usize);
        let mut done = 0;
        while done < length {
            let at = self.locate(address + done);
            let to_turn = self.interleave - at.offset % self.interleave;
            let to_boundary = boundary - at.offset % boundary;
            let piece = Piece { start: done, length: to_turn.min(to_boundary).min(length - done) };
            done += piece.length;
            let mine = &mut last[usize::from(at.column)];
            let open = runs.get_mut(*mine).filter(|r| {
                r.at.row == at.row
                    && r.at.offset + r.length == at.offset
                    && !at.offset.is_multiple_of(boundary)
            });
            match open {
                Some(run) => {
                    run.length += piece.length;
                    match run.pieces.last_mut() {
                        Some(p) if p.start + p.length == piece.start => p.length += piece.length,
                        _ => run.pieces.push(piece),
                    }
                }
                None => {
                    *mine = runs.len();
                    runs.push(Run { at, length: piece.length, pieces: SmallVec::from_slice(&[piece]) });
                }
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests;
