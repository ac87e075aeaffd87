//! The state in memory of the stripes of parity rows, by group: the same 512 units of every column.
//!
//! Invariants:
//! 1. `written` is right in the `mapped` regions, a column's `sums` in its `known` ones but for its `lost`
//!    units, as the newest change left them.
//! 2. A stripe in `fresh` is in memory and on the disks, but neither in the journal nor in a block.
//! 3. One with fresh stripes is dirty, and so is one whose blocks say something else (`stale`).
//! 4. A table with a change in `stuck` or a resync is held: their changes of it exist nowhere else yet.

use std::ops::Range;

use crate::blocks::Units;
use crate::cache::{Cache, Cached, Entry, Flags, Key};
use crate::groups::GroupKey;
use crate::parity::Code;
use crate::space::copies::Copy;
use crate::{GROUP_UNITS, RowNumber};

/// Which group of which row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowKey {
    pub(crate) row: RowNumber,
    pub(crate) group: u32,
}

impl RowKey {
    pub(super) fn of(row: RowNumber, unit: u32) -> RowKey {
        RowKey { row, group: unit / GROUP_UNITS as u32 }
    }

    /// Its key in the parts of a space that know no columns.
    pub(super) fn group_key(self) -> GroupKey {
        GroupKey { row: self.row, column: 0, group: self.group }
    }

    /// Its first unit, counted from the beginning of the columns.
    pub(super) fn first(self) -> u32 {
        self.group * GROUP_UNITS as u32
    }

    pub(super) fn units(self) -> Range<u32> {
        self.first()..self.first() + GROUP_UNITS as u32
    }
}

/// One group.
pub(super) type RowGroup = Cached<RowKey, RowState>;

/// The groups that a parity space has in memory.
pub(super) type RowGroups = Cache<RowKey, RowState>;

impl Key for RowKey {
    fn row(&self) -> RowNumber {
        self.row
    }
}

pub(super) struct RowState {
    code: Code,
    pub(super) written: Vec<Units>,
    pub(super) sums: Vec<[u32; GROUP_UNITS as usize]>,
    pub(super) lost: Vec<Units>,
    pub(super) known: Vec<u64>,
    pub(super) mapped: u64,
    pub(super) fresh: Units,
    pub(super) generation: u64,
    pub(super) wrote: Vec<u64>,
    /// Columns, by bit, whose sums are not compared yet with what the others make ([`super::doubt`]).
    pub(super) doubted: u32,
    /// Its blocks are to be written.
    pub(super) stale: bool,
    /// Where the newest journal record is that names it, plus one; 0 for none.
    pub(super) named: u64,
    /// The same of the oldest one that its blocks do not say yet.
    pub(super) since: u64,
    pub(super) flags: Flags,
}

impl Entry for RowState {
    fn flags(&mut self) -> &mut Flags {
        &mut self.flags
    }
}

impl RowState {
    /// Which data columns of a stripe are written.
    pub(super) fn mask(&self, unit: usize) -> u32 {
        self.written.iter().enumerate().fold(0, |mask, (c, w)| mask | u32::from(w.has(unit)) << c)
    }

    /// Whether regions are known of every column that is current there.
    pub(super) fn knows(&self, columns: &[Copy], regions: u64) -> bool {
        columns.iter().zip(&self.known).all(|(c, known)| c.current() & regions & !known == 0)
    }

    /// Whether the column's unit has a sum to be compared with: `region` is the unit's.
    pub(super) fn has_sum(&self, column: usize, unit: usize, region: u64) -> bool {
        self.known[column] & region != 0 && !self.lost[column].has(unit)
    }

    /// Whether a unit of a column, data or parity, has anything in its place.
    pub(super) fn is_there(&self, column: usize, unit: usize) -> bool {
        self.code.covers(column) & self.mask(unit) != 0
    }

    /// Units of a column that have something in their places: of a parity column, those that have a written
    /// data unit's part.
    pub(super) fn there(&self, column: usize) -> Units {
        there(self.code, column, &self.written)
    }

    /// A record of the journal names it.
    pub(super) fn name(&mut self, named: u64) {
        self.named = self.named.max(named);
        self.since = if self.since == 0 { named } else { self.since.min(named) };
    }

    /// Stripes of which anything is written.
    pub(super) fn any(&self) -> Units {
        self.written.iter().fold(Units::NONE, |all, w| all.or(w))
    }
}

/// The same, when these units are written of each data column.
pub(super) fn there(code: Code, column: usize, written: &[Units]) -> Units {
    let covers = code.covers(column);
    let of = written.iter().enumerate().filter(|(c, _)| covers & 1 << c != 0);
    of.fold(Units::NONE, |all, (_, w)| all.or(w))
}

impl RowGroups {
    /// The groups of rows with this code, at most this many.
    pub(super) fn with(bound: usize, code: Code) -> RowGroups {
        let (data, columns) = (code.data(), code.columns());
        Cache::new(bound, move |_| RowState {
            code,
            written: vec![Units::NONE; data],
            sums: vec![[0; GROUP_UNITS as usize]; columns],
            lost: vec![Units::NONE; columns],
            known: vec![0; columns],
            mapped: 0,
            fresh: Units::NONE,
            generation: 0,
            wrote: vec![0; columns],
            doubted: 0,
            stale: false,
            named: 0,
            since: 0,
            flags: Flags::default(),
        })
    }

    /// Its blocks are to be written.
    pub(super) fn stale(&self, group: &RowGroup, state: &mut RowState) {
        state.stale = true;
        self.dirty(group, state);
    }
}
