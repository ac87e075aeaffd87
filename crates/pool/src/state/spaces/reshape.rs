//! Changes the shape of the rows of a space (`docs/0004-spaces.md`, section H): their number of copies in place, one row
//! after the other, or everything by a conversion. All checks precede the first change.
//!
//! Invariants:
//! 1. All rows of the former shape have the space's former shape. It differs from the current one exactly while there
//!    are such rows. While the log has fewer replicas than the current resiliency requires, it counts as such a row.
//! 2. After a reshape, a region of a set has at least as many current copies as before, or as many as the new
//!    resiliency has.

use std::collections::BTreeSet;
use std::sync::Arc;

use pool_seam::{Regions, Resiliency, Row, RowShape, Shape, SlabCopy, SpaceRecord};

use super::{NewSlab, sets};
use crate::state::State;
use crate::{InvalidOp, RowNumber, SpaceId};

impl State {
    /// Sets the shape of new rows. Existing rows with this shape are then of the current shape, the others of the former
    /// one.
    pub(super) fn set_shape(&mut self, space: SpaceId, to: RowShape) -> Result<(), InvalidOp> {
        let record = Arc::clone(self.space(space)?);
        if record.is_converting() {
            return Err(InvalidOp::BadShape("the virtual disk is being converted"));
        }
        let mut changed = SpaceRecord::clone(&record);
        changed.set_shape(to);
        self.check_shape(&changed)?;
        let mut others = record.data_rows().map(|(_, row)| record.shape_of(row)).filter(|had| *had != to);
        let former = others.next();
        if others.any(|other| Some(other) != former) {
            return Err(InvalidOp::BadShape("its rows already have two different numbers of copies"));
        }
        let before = if record.shape() == to { record.former } else { record.shape() };
        let former = former.unwrap_or(before);
        let is_conversion = !former.differs_in_copies_only(&to);
        if is_conversion {
            if record.is_changing() {
                return Err(InvalidOp::BadShape("its number of copies is being changed"));
            }
            (changed.half, changed.converted) = (record.half ^ 1, Some(0));
            // A scrub reads rows in the order of their numbers.
            changed.scrub.next = RowNumber(0);
        }
        let log = record.rows.get(&RowNumber::LOG);
        let is_short = |log: &Row| log.slabs.len() < to.log_replicas();
        // A log on the only disk of a pool does not hold up a conversion.
        let needs_more = to.log_replicas() > former.log_replicas() || !is_conversion;
        let is_log_short = former != to && needs_more && log.is_some_and(is_short);
        changed.former = former;
        let rows: Vec<RowNumber> = record.rows.keys().copied().collect();
        for number in rows {
            let Some(row) = changed.rows.get_mut(&number) else { continue };
            let is_present = match number {
                RowNumber::LOG => !is_log_short,
                _ => record.shape_of(row) == to,
            };
            row.shape = if is_present { Shape::Current } else { Shape::Former };
        }
        self.spaces.insert(space, Arc::new(changed));
        self.end_change(space)
    }

    pub(super) fn reshape(
        &mut self,
        space: SpaceId,
        number: RowNumber,
        slabs: &[NewSlab],
    ) -> Result<(), InvalidOp> {
        let outdated = InvalidOp::Outdated(space);
        let record = Arc::clone(self.space(space)?);
        let row = record.rows.get(&number).ok_or(outdated.clone())?;
        let is_log = number == RowNumber::LOG;
        let is_long = is_log && row.slabs.len() > record.log_replicas();
        let has_shape = row.shape == Shape::Current && !is_long;
        // The data of other rows of a conversion is copied.
        let is_converted = !is_log && record.is_converting();
        if has_shape || is_converted || row.moving().is_some() || row.is_new && !is_log {
            return Err(outdated);
        }
        let needed = if is_log { record.log_replicas() } else { record.slabs_in_row() };
        if slabs.len() != needed {
            return Err(InvalidOp::BadRow { space, row: number, slabs: slabs.len() });
        }
        let mut disks = BTreeSet::new();
        for slab in slabs {
            let disk = match slab {
                NewSlab::Kept { index } => {
                    row.slabs.get(usize::from(*index)).ok_or(outdated.clone())?.place.disk
                }
                NewSlab::Free { place } => {
                    self.check_free(*place)?;
                    if self.disks.get(&place.disk).is_none_or(|disk| disk.areas.slots() <= record.slot) {
                        return Err(InvalidOp::NotFree(*place));
                    }
                    place.disk
                }
            };
            if !disks.insert(disk) && record.resiliency != Resiliency::Simple {
                return Err(InvalidOp::SameDisk(disk));
            }
        }
        self.check_kept(space, &record, number, row, slabs)?;
        let free = slabs.iter().filter(|slab| matches!(slab, NewSlab::Free { .. })).count();
        self.next_generation.checked_add(free as u32).ok_or(outdated.clone())?;
        let dropped = dropped(row, slabs);
        let copies = slabs.iter().map(|slab| match slab {
            NewSlab::Kept { index } => row.slabs.get(usize::from(*index)).copied().ok_or(outdated.clone()),
            NewSlab::Free { place } => self.take(space, number, *place),
        });
        let copies = copies.collect::<Result<Vec<SlabCopy>, InvalidOp>>()?;
        self.space_mut(space)?.rows.insert(number, row.reshaped(copies));
        dropped.iter().for_each(|copy| self.give_back(space, number, copy.place));
        self.end_change(space)
    }

    /// Checks invariant 2, and that slabs stay in their sets, each at most once.
    fn check_kept(
        &self,
        space: SpaceId,
        record: &SpaceRecord,
        number: RowNumber,
        row: &Row,
        slabs: &[NewSlab],
    ) -> Result<(), InvalidOp> {
        let old = sets(record, number, row);
        let size = slabs.len() / old.len().max(1);
        let mut last = 0;
        for ((set, _), new) in old.into_iter().zip(slabs.chunks(size.max(1))) {
            let kept = new.iter().filter_map(|slab| match slab {
                NewSlab::Kept { index } => Some(usize::from(*index)),
                NewSlab::Free { .. } => None,
            });
            let kept: BTreeSet<usize> = kept.filter(|index| set.contains(index)).collect();
            let all_kept = new.iter().filter(|slab| matches!(slab, NewSlab::Kept { .. })).count();
            if kept.is_empty() || kept.len() != all_kept {
                return Err(InvalidOp::Outdated(space));
            }
            for bit in 0..Regions::new(self.slab_bytes).count() {
                let current = |index: &usize| self.is_current(record, &row.slabs[*index], 1 << bit);
                let (before, after) =
                    (set.clone().filter(current).count(), kept.iter().filter(|at| current(at)).count());
                if after < before.min(size) {
                    last |= 1 << bit;
                }
                // A copy on an absent disk is not dropped for a copy whose content is uncertain.
                let has = |index: &usize| record.stale_regions(&row.slabs[*index]) & 1 << bit == 0;
                if !kept.iter().any(has)
                    && set.clone().any(|index| row.slabs[index].stale_regions & 1 << bit == 0)
                {
                    last |= 1 << bit;
                }
            }
        }
        if last != 0 {
            return Err(InvalidOp::LastCopy { space, row: number, regions: last });
        }
        Ok(())
    }

    /// When no row is of the former shape any more, and everything is converted, sets the former shape to the current
    /// one.
    pub(super) fn end_change(&mut self, space: SpaceId) -> Result<(), InvalidOp> {
        let record = self.space(space)?;
        let is_converted = record.converted_end() >= record.size;
        if record.is_changing() && is_converted && !record.rows.values().any(|row| row.shape == Shape::Former)
        {
            let record = self.space_mut(space)?;
            (record.former, record.converted) = (record.shape(), None);
        }
        Ok(())
    }
}

/// The copies of a row that are not in `slabs`.
pub(crate) fn dropped(row: &Row, slabs: &[NewSlab]) -> Vec<SlabCopy> {
    let is_kept = |at: usize| slabs.contains(&NewSlab::Kept { index: at as u8 });
    row.slabs.iter().enumerate().filter(|(at, _)| !is_kept(*at)).map(|(_, copy)| *copy).collect()
}
