//! The columns of a row, as they are at one moment.
//!
//! A column that moves has two slabs: the old one is the column; the new one receives all writes, data and
//! blocks, and is never read. Its data is a subset of the old one's (`State`'s invariant 7), so it has no
//! sums of its own.

use smallvec::SmallVec;

use super::super::copies::Copy;
use super::{Parity, Striped};
use crate::space::SpaceError;
use crate::{REGIONS, RowNumber};

pub(super) type Columns = SmallVec<[Copy; 6]>;

impl Striped {
    /// The columns, data first; `None` when the row has no slabs.
    pub(super) fn columns(&self, row: RowNumber) -> Option<Columns> {
        self.slabs(row, self.p.columns())
    }

    /// The columns, and last the destination of a moving one: every change goes to all of these.
    pub(super) fn targets(&self, row: RowNumber) -> Option<Columns> {
        self.slabs(row, usize::MAX)
    }

    fn slabs(&self, row: RowNumber, most: usize) -> Option<Columns> {
        let path = &self.space.path;
        let mut found: SmallVec<[(Copy, bool); 6]> = path.read(|state| {
            let r = state.rows.get(&(self.space.inner.id, row))?;
            let slab = |(index, s): (usize, &crate::SlabCopy)| {
                let copy = Copy {
                    index,
                    slab_of: r.slab_of(index),
                    number: s.place.disk,
                    slab: s.place.slab,
                    generation: s.generation,
                    missed: s.missed,
                    disk: None,
                };
                (copy, state.is_present(s.place.disk))
            };
            Some(r.copies().take(most).map(slab).collect())
        })?;
        for (copy, present) in &mut found {
            if *present {
                copy.disk = path.disk(copy.number);
            }
        }
        Some(found.into_iter().map(|(c, _)| c).collect())
    }

    /// The row's identity in journal entries: no other row, and no other set of slabs, ever has the same.
    pub(super) fn birth(columns: &[Copy]) -> u32 {
        columns.iter().filter(|c| !c.is_new()).map(|c| c.generation).max().unwrap_or(0)
    }

    /// Regions that cannot be used now are an error: too few columns are current there.
    pub(super) fn enough(&self, row: RowNumber, columns: &[Copy], regions: u64) -> Result<(), SpaceError> {
        let short = regions & !usable(&self.p, columns);
        if short == 0 {
            return Ok(());
        }
        let away = columns.iter().filter(|c| c.disk.is_none() && !c.missed & short != 0);
        let disks = away.map(|c| c.number).collect();
        Err(SpaceError::Unavailable { space: self.space.inner.id, row, disks })
    }

    /// Whether the [targets](Striped::targets) lie elsewhere than a moment ago, or their disks have come or gone.
    pub(super) fn is_changed(&self, row: RowNumber, before: &[Copy]) -> bool {
        let now = self.targets(row);
        now.is_none_or(|now| now.len() != before.len() || now.iter().zip(before).any(|(a, b)| !a.is_as(b)))
    }
}

/// Columns that are current in a region, by bit.
pub(super) fn have(columns: &[Copy], region: u64) -> u32 {
    let current = columns.iter().filter(|c| !c.is_new() && c.is_current(region));
    current.fold(0, |all, c| all | 1 << c.index)
}

/// Regions where enough columns are current.
pub(super) fn usable(p: &Parity, columns: &[Copy]) -> u64 {
    let many = |region: &u64| p.code.decodes(have(columns, *region));
    (0..REGIONS).map(|r| 1_u64 << r).filter(many).fold(0, |all, r| all | r)
}
