//! The copies of a column, as they are at one moment.

use std::ops::Range;
use std::sync::Arc;

use arena::{IoBuf, Sg};
use disk::DiskError;
use smallvec::SmallVec;

use super::{SpaceError, SpaceInner};
use crate::disks::DataDisk;
use crate::groups::GroupKey;
use crate::path::DataPath;
use crate::{DiskNumber, RowNumber, UNIT};

/// One copy of a column.
#[derive(Clone)]
pub(crate) struct Copy {
    /// Its index in the row ([`crate::Row::copies`]).
    pub(crate) index: usize,
    /// The slab of the row that it is or will be: the index in its checksum blocks.
    pub(crate) slab_of: usize,
    pub(crate) number: DiskNumber,
    pub(crate) slab: u32,
    pub(crate) generation: u32,
    pub(crate) missed: u64,
    /// Its disk, if that is present.
    pub(crate) disk: Option<Arc<DataDisk>>,
}

pub(crate) type Copies = SmallVec<[Copy; 3]>;

impl Copy {
    /// Whether it is what a slab of the row is moving to.
    pub(crate) fn is_new(&self) -> bool {
        self.index != self.slab_of
    }

    /// Whether it has the newest data of all of these regions.
    pub(crate) fn is_current(&self, regions: u64) -> bool {
        self.disk.is_some() && self.missed & regions == 0
    }

    /// The regions that it has the newest data of.
    pub(crate) fn current(&self) -> u64 {
        if self.disk.is_some() { !self.missed } else { 0 }
    }

    /// Whether it is the same slab, present or absent as before.
    pub(crate) fn is_as(&self, other: &Copy) -> bool {
        let disks = match (&self.disk, &other.disk) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        disks && (self.number, self.slab, self.generation) == (other.number, other.slab, other.generation)
    }

    /// Where a unit lies on its disk.
    pub(crate) fn data_at(&self, disk: &DataDisk, unit: u32) -> u64 {
        disk.member.areas.data(self.slab).offset + u64::from(unit) * UNIT
    }

    /// Where a group's checksum block lies on its disk.
    pub(crate) fn block_at(&self, disk: &DataDisk, group: u32) -> u64 {
        disk.member.areas.checksums(self.slab).offset + u64::from(group) * UNIT
    }
}

impl SpaceInner {
    /// The copies of a column; `None` when the row has no slabs.
    pub(crate) fn copies(&self, path: &DataPath, row: RowNumber, column: u8) -> Option<Copies> {
        let first = usize::from(column) * self.copies;
        let mut found = path.read(|state| {
            let r = state.rows.get(&(self.id, row))?;
            let copy = |(index, s): (usize, &crate::SlabCopy)| {
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
            let mine =
                r.copies().filter(|(index, _)| (first..first + self.copies).contains(&r.slab_of(*index)));
            Some(mine.map(copy).collect::<SmallVec<[(Copy, bool); 3]>>())
        })?;
        for (copy, present) in &mut found {
            if *present {
                copy.disk = path.disk(copy.number);
            }
        }
        Some(found.into_iter().map(|(c, _)| c).collect())
    }

    /// Whether a copy has become current in these regions since `before`: a read that no copy answered tries
    /// again then.
    pub(crate) fn has_come(
        &self,
        path: &DataPath,
        row: RowNumber,
        column: u8,
        before: &[Copy],
        regions: u64,
    ) -> bool {
        let is_old = |c: &Copy| before.iter().any(|b| b.is_as(c) && b.is_current(regions));
        let now = self.copies(path, row, column).unwrap_or_default();
        now.iter().any(|c| c.is_current(regions) && !is_old(c))
    }

    /// The column that a copy of a row is of.
    pub(crate) fn column_of(&self, path: &DataPath, row: RowNumber, index: usize) -> u8 {
        let slab = path.read(|s| s.rows.get(&(self.id, row)).map_or(index, |r| r.slab_of(index)));
        (slab / self.copies) as u8
    }

    /// Regions that no copy here has.
    pub(crate) fn unavailable(
        &self,
        row: RowNumber,
        copies: &[Copy],
        regions: u64,
    ) -> Result<(), SpaceError> {
        if regions & !current(copies) == 0 {
            return Ok(());
        }
        let away = copies.iter().filter(|c| c.disk.is_none() && !c.missed & regions != 0);
        Err(SpaceError::Unavailable { space: self.id, row, disks: away.map(|c| c.number).collect() })
    }

    /// The space's address of a unit.
    pub(crate) fn address(&self, row: RowNumber, column: u8, unit: u32) -> u64 {
        self.layout.address(crate::layout::Spot { row, column, offset: u64::from(unit) * UNIT })
    }

    /// The same for a unit of a group.
    pub(crate) fn address_in(&self, key: GroupKey, unit: usize) -> u64 {
        self.address(key.row, key.column, key.units().start + unit as u32)
    }

    /// Cuts units of a column at groups.
    pub(crate) fn groups_of(
        &self,
        row: RowNumber,
        column: u8,
        units: &Range<u32>,
    ) -> impl Iterator<Item = (GroupKey, Range<u32>)> + use<> {
        let units = units.clone();
        let per = crate::GROUP_UNITS as u32;
        (units.start / per..=(units.end - 1) / per).map(move |group| {
            let key = GroupKey { row, column, group };
            (key, units.start.max(group * per)..units.end.min((group + 1) * per))
        })
    }
}

/// Units and their bytes, in order: neighbours in one piece.
pub(crate) fn in_pieces(units: impl IntoIterator<Item = (u32, IoBuf)>) -> Vec<(u32, Sg)> {
    let mut out: Vec<(u32, Sg)> = Vec::new();
    let mut next = None;
    for (unit, bytes) in units {
        match out.last_mut() {
            Some((_, piece)) if next == Some(unit) => piece.push(bytes),
            _ => out.push((unit, [bytes].into_iter().collect())),
        }
        next = Some(unit + 1);
    }
    out
}

/// The regions that one or another of these copies has the newest data of.
pub(crate) fn current<'a>(copies: impl IntoIterator<Item = &'a Copy>) -> u64 {
    copies.into_iter().fold(0, |have, c| have | c.current())
}

/// The default interpretation of a copy's error.
pub(crate) fn blame(number: DiskNumber, error: DiskError) -> SpaceError {
    SpaceError::Disk { disk: number, error }
}
