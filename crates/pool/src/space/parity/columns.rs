//! The columns of a row, as they are at one moment.

use smallvec::SmallVec;

use super::super::copies::Copy;
use super::{Parity, Striped};
use crate::space::SpaceError;
use crate::{REGIONS, RowNumber};

pub(super) type Columns = SmallVec<[Copy; 6]>;

impl Striped {
    /// The columns, data first; `None` when the row has no slabs.
    pub(super) fn columns(&self, row: RowNumber) -> Option<Columns> {
        let path = &self.space.path;
        let mut found: SmallVec<[(Copy, bool); 6]> = path.read(|state| {
            let slabs = &state.rows.get(&(self.space.inner.id, row))?.slabs;
            let column = |(index, s): (usize, &crate::SlabCopy)| {
                let copy = Copy {
                    index,
                    slab_of: index,
                    number: s.place.disk,
                    slab: s.place.slab,
                    generation: s.generation,
                    missed: s.missed,
                    disk: None,
                };
                (copy, state.is_present(s.place.disk))
            };
            Some(slabs.iter().enumerate().map(column).collect())
        })?;
        for (copy, present) in &mut found {
            if *present {
                copy.disk = path.disk(copy.number);
            }
        }
        Some(found.into_iter().map(|(c, _)| c).collect())
    }

    /// What journal entries call the row: no other row, and no other set of slabs, ever has the same.
    pub(super) fn birth(columns: &[Copy]) -> u32 {
        columns.iter().map(|c| c.generation).max().unwrap_or(0)
    }

    /// Regions that cannot be used now are an error: the columns that are current there do not tell all.
    pub(super) fn enough(&self, row: RowNumber, columns: &[Copy], regions: u64) -> Result<(), SpaceError> {
        let short = regions & !usable(&self.p, columns);
        if short == 0 {
            return Ok(());
        }
        let away = columns.iter().filter(|c| c.disk.is_none() && !c.missed & short != 0);
        let disks = away.map(|c| c.number).collect();
        Err(SpaceError::Unavailable { space: self.space.inner.id, row, disks })
    }

    /// Whether the columns lie elsewhere than a moment ago, or their disks have come or gone.
    pub(super) fn is_changed(&self, row: RowNumber, before: &[Copy]) -> bool {
        let now = self.columns(row);
        now.is_none_or(|now| now.iter().zip(before).any(|(a, b)| !a.is_as(b)))
    }
}

/// Columns that are current in a region, by bit.
pub(super) fn have(columns: &[Copy], region: u64) -> u32 {
    columns.iter().filter(|c| c.is_current(region)).fold(0, |all, c| all | 1 << c.index)
}

/// Regions where enough columns are current.
pub(super) fn usable(p: &Parity, columns: &[Copy]) -> u64 {
    let many = |region: &u64| p.code.decodes(have(columns, *region));
    (0..REGIONS).map(|r| 1_u64 << r).filter(many).fold(0, |all, r| all | r)
}
