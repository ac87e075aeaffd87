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

use crate::{RowNumber, RowShape, SpaceRecord, UNIT};

/// The layout of rows of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    slab_bytes: u64,
    columns: u64,
    interleave: u64,
    half: u8,
}

/// The layout of a space: of one shape, or of two during a conversion.
#[derive(Clone, Copy, Debug)]
pub struct AddressMap<'a> {
    record: &'a SpaceRecord,
    slab_bytes: u64,
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
    /// The layout of rows in a half of the row numbers with `columns` data columns. The interleave is in bytes, a power
    /// of two from [`UNIT`] to a slab. Values out of range are clamped.
    pub fn new(half: u8, columns: u8, interleave: u32, slab_bytes: u64) -> Layout {
        Layout {
            slab_bytes,
            columns: u64::from(columns.max(1)),
            interleave: u64::from(interleave).clamp(UNIT, slab_bytes),
            half,
        }
    }

    /// Bytes of data in a row.
    pub fn row_bytes(&self) -> u64 {
        self.slab_bytes * self.columns
    }

    /// Data columns.
    pub fn columns(&self) -> u64 {
        self.columns
    }

    /// Bytes of data in a stripe: one interleave of each column.
    pub fn stripe_bytes(&self) -> u64 {
        self.interleave * self.columns
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
            row: RowNumber::new(self.half, (address / self.row_bytes()) as u32),
            column: (stripe % self.columns) as u8,
            offset: stripe / self.columns * self.interleave + rest,
        }
    }

    /// The address of a position.
    pub fn address(&self, position: ColumnPosition) -> u64 {
        let (turn, rest) = (position.offset / self.interleave, position.offset % self.interleave);
        let within = (turn * self.columns + u64::from(position.column)) * self.interleave + rest;
        u64::from(position.row.index()) * self.row_bytes() + within
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

impl<'a> AddressMap<'a> {
    /// The map of a space.
    pub fn new(record: &'a SpaceRecord, slab_bytes: u64) -> AddressMap<'a> {
        AddressMap { record, slab_bytes }
    }

    /// The layout of rows with numbers of this half.
    pub fn of_half(&self, half: u8) -> Layout {
        let is_former = half != self.record.half && self.record.is_converting();
        let RowShape { columns, interleave, .. } =
            if is_former { self.record.former } else { self.record.shape() };
        Layout::new(half, columns, interleave, self.slab_bytes)
    }

    /// The layout at an address.
    pub fn at(&self, address: u64) -> Layout {
        let is_former = address >= self.record.converted_end();
        self.of_half(self.record.half ^ u8::from(is_former))
    }

    /// The position of an address.
    pub fn locate(&self, address: u64) -> ColumnPosition {
        self.at(address).locate(address)
    }

    /// The end of the addresses that have the same layout as this one.
    pub fn end_of_layout(&self, address: u64) -> u64 {
        let converted = self.record.converted_end();
        if address < converted { converted } else { u64::MAX }
    }

    /// Whether this row has the data of a position in it. Otherwise a conversion has not copied it yet, or has copied
    /// it to another row.
    pub fn is_in_use(&self, position: ColumnPosition) -> bool {
        let is_current = position.row.half() == self.record.half;
        is_current == (self.address(position) < self.record.converted_end())
    }

    /// The address of a position.
    pub fn address(&self, position: ColumnPosition) -> u64 {
        self.of_half(position.row.half()).address(position)
    }

    /// See [`Layout::one_piece`].
    pub fn one_piece(&self, address: u64, length: u64, boundary: u64) -> Option<ColumnPosition> {
        let is_in_layout = length <= self.end_of_layout(address) - address;
        is_in_layout.then(|| self.at(address).one_piece(address, length, boundary)).flatten()
    }

    /// See [`Layout::runs`].
    pub fn runs(&self, address: u64, length: u64, boundary: u64) -> Vec<Run> {
        let first = length.min(self.end_of_layout(address) - address);
        let mut runs = self.at(address).runs(address, first, boundary);
        if first < length {
            let rest = address + first;
            let mut others = self.at(rest).runs(rest, length - first, boundary);
            others.iter_mut().flat_map(|run| &mut run.pieces).for_each(|piece| piece.start += first);
            runs.append(&mut others);
        }
        runs
    }
}

#[cfg(test)]
mod tests;
