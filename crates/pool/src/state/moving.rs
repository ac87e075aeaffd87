//! Slabs that move, and which regions count of what they move to.

use super::{InvalidOp, Moving, Resiliency, SlabCopy, SlabPlace, State};
use crate::{DiskNumber, RowNumber, SpaceId};

impl State {
    pub(super) fn move_slab(
        &mut self,
        space: SpaceId,
        row: RowNumber,
        index: usize,
        to: SlabPlace,
    ) -> Result<(), InvalidOp> {
        self.check_free(to)?;
        self.keeps_a_copy(space, row, index, u64::MAX)?;
        if self.rows.get(&(space, row)).is_some_and(|r| r.moving().is_some()) {
            return Err(InvalidOp::Moving { space, row });
        }
        let simple = self.space(space)?.resiliency == Resiliency::Simple;
        let slabs = &self.rows.get(&(space, row)).ok_or(InvalidOp::NoSlab { space, row, index })?.slabs;
        if !simple && slabs.iter().enumerate().any(|(i, c)| i != index && c.place.disk == to.disk) {
            return Err(InvalidOp::SameDisk(to.disk));
        }
        let after = self.next_generation.checked_add(1).ok_or(InvalidOp::NotFree(to))?;
        let generation = self.next_generation;
        let slab = self.slab_mut(space, row, index)?;
        let old = std::mem::replace(slab, SlabCopy { place: to, generation, missed: u64::MAX });
        self.next_generation = after;
        self.used.remove(old.place);
        self.used.insert(to);
        Ok(())
    }

    pub(super) fn begin_move(
        &mut self,
        space: SpaceId,
        row: RowNumber,
        index: u8,
        to: SlabPlace,
    ) -> Result<(), InvalidOp> {
        let simple = self.space(space)?.resiliency == Resiliency::Simple;
        self.check_free(to)?;
        let no_slab = InvalidOp::NoSlab { space, row, index: usize::from(index) };
        let r = self.rows.get(&(space, row)).filter(|r| usize::from(index) < r.slabs.len()).ok_or(no_slab)?;
        if r.moving().is_some() {
            return Err(InvalidOp::Moving { space, row });
        }
        if !simple && r.slabs.iter().any(|c| c.place.disk == to.disk) {
            return Err(InvalidOp::SameDisk(to.disk));
        }
        let after = self.next_generation.checked_add(1).ok_or(InvalidOp::NotFree(to))?;
        let copy = SlabCopy { place: to, generation: self.next_generation, missed: u64::MAX };
        if let Some(r) = self.rows.get_mut(&(space, row)) {
            r.set_moving(Some(Moving { index, copy }));
        }
        self.next_generation = after;
        self.used.insert(to);
        Ok(())
    }

    pub(super) fn end_move(&mut self, space: SpaceId, row: RowNumber) -> Result<(), InvalidOp> {
        let no_move = InvalidOp::Moving { space, row };
        let moving = self.rows.get(&(space, row)).and_then(|r| r.moving());
        let Moving { index, copy } = moving.ok_or(no_move.clone())?;
        let here = self.is_present(copy.place.disk);
        let r = self.rows.get_mut(&(space, row)).ok_or(no_move.clone())?;
        let old = r.copy_mut(usize::from(index)).ok_or(no_move)?;
        // An absent disk may have lost its data, and with this the old slab is freed.
        let regions = if here { copy.missed & !old.missed } else { u64::MAX };
        if regions != 0 {
            return Err(InvalidOp::NotMoved { space, row, regions });
        }
        let place = std::mem::replace(old, copy).place;
        r.set_moving(None);
        self.used.remove(place);
        Ok(())
    }

    pub(super) fn cancel_move(&mut self, space: SpaceId, row: RowNumber) -> Result<(), InvalidOp> {
        let no_move = InvalidOp::Moving { space, row };
        let r = self.rows.get(&(space, row)).filter(|r| r.moving().is_some()).ok_or(no_move)?;
        self.keeps_a_copy(space, row, r.slabs.len(), u64::MAX)?;
        if let Some(r) = self.rows.get_mut(&(space, row)) {
            let moving = r.moving();
            r.set_moving(None);
            moving.into_iter().for_each(|m| self.used.remove(m.copy.place));
        }
        Ok(())
    }

    /// Invariant 7 of a row, after something was changed in it.
    pub(super) fn shadow(&mut self, space: SpaceId, row: RowNumber) {
        let parity = self.spaces.get(&space).is_some_and(|r| r.resiliency.is_parity());
        let r = self.rows.get(&(space, row)).filter(|_| parity);
        let Some((old, new)) =
            r.and_then(|r| Some((r.slabs.get(usize::from(r.moving()?.index))?, r.moving()?.copy)))
        else {
            return;
        };
        let here = self.is_present(old.place.disk) && self.is_present(new.place.disk);
        let missed = if here { new.missed | old.missed } else { u64::MAX };
        if missed != new.missed
            && let Some(r) = self.rows.get_mut(&(space, row))
        {
            let index = r.slabs.len();
            r.copy_mut(index).expect("it is on the move").missed = missed;
        }
    }

    /// Invariant 7 of all rows that have a slab on a disk.
    pub(super) fn shadow_on(&mut self, disk: DiskNumber) {
        let on = |r: &super::Row| r.moving().is_some() && r.copies().any(|(_, c)| c.place.disk == disk);
        let rows: Vec<_> = self.rows.iter().filter(|(_, r)| on(r)).map(|(key, _)| *key).collect();
        rows.into_iter().for_each(|(space, row)| self.shadow(space, row));
    }
}
