//! Applying an operation on a space: every check before the first change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pool_seam::{
    Moving, Regions, Resiliency, Row, Shape, SlabCopy, SlabPlace, SpaceEpoch, SpaceRecord, Tree, UNIT,
};

use super::{ALL, SpaceOp, alone, only, sets};
use crate::state::State;
use crate::state::apply::next;
use crate::{DiskNumber, InvalidOp, RowNumber, SpaceId};

/// The most slots of marks of a pool.
const SLOTS: u16 = 4096;

impl State {
    pub(in crate::state) fn apply_to_space(&mut self, space: SpaceId, op: &SpaceOp) -> Result<(), InvalidOp> {
        let outdated = InvalidOp::Outdated(space);
        let check = |fits: bool| if fits { Ok(()) } else { Err(outdated.clone()) };
        match op {
            SpaceOp::Create { record } => self.create_space(space, record)?,
            SpaceOp::Destroy => {
                let record = self.spaces.remove(&space).ok_or(InvalidOp::NoSpace(space))?;
                for (number, row) in &record.rows {
                    row.copies().for_each(|(_, copy)| self.give_back(space, *number, copy.place));
                }
            }
            SpaceOp::SetSize { size } => {
                let mut resized = SpaceRecord::clone(self.space(space)?);
                resized.size = *size;
                self.check_shape(&resized)?;
                let is_outside = |row| !resized.has_place_for(row, self.slab_bytes);
                if resized.is_converting() || resized.data_rows().any(|(row, _)| is_outside(row)) {
                    return Err(InvalidOp::SpaceInUse(space));
                }
                self.spaces.insert(space, Arc::new(resized));
            }
            SpaceOp::Rename { name } => {
                self.space(space)?;
                self.check_space_name(name)?;
                self.space_mut(space)?.name.clone_from(name);
            }
            SpaceOp::SetMedia { media } => self.space_mut(space)?.media = *media,
            SpaceOp::Allocate { row, first, slabs } => self.allocate(space, *row, *first, slabs)?,
            SpaceOp::Ready { row, birth, stale_copies } => self.ready(space, *row, *birth, stale_copies)?,
            SpaceOp::Free { row, birth } => {
                check(*row != RowNumber::LOG)?;
                self.row_mut(space, *row, Some(*birth))?;
                let freed = self.space_mut(space)?.rows.remove(row).ok_or(outdated)?;
                freed.copies().for_each(|(_, copy)| self.give_back(space, *row, copy.place));
                self.end_change(space)?;
            }
            SpaceOp::MarkStale { row, index, generation, regions } => {
                check(*row != RowNumber::LOG || *regions == ALL)?;
                let disk = self.copy_mut(space, *row, *index, *generation)?.place.disk;
                let record = self.space(space)?;
                let present = record.rows.get(row).ok_or(outdated)?;
                let last = alone(record, *row, present, disk, |other| other != disk) & regions;
                if last != 0 {
                    return Err(InvalidOp::LastCopy { space, row: *row, regions: last });
                }
                let of = Regions::new(self.slab_bytes);
                let copy = self.copy_mut(space, *row, *index, *generation)?;
                copy.stale_regions = of.union(copy.stale_regions, *regions);
            }
            SpaceOp::MarkCurrent { row, index, generation, regions } => {
                let all = Regions::new(self.slab_bytes).all();
                let stale = self.copy_mut(space, *row, *index, *generation)?.stale_regions & !regions & all;
                check(*row != RowNumber::LOG || stale == 0)?;
                self.copy_mut(space, *row, *index, *generation)?.stale_regions = stale;
            }
            SpaceOp::MarkDiskStale { disk, membership: of } => {
                check(self.membership(*disk) == Some(*of))?;
                self.stale(space, *disk)?;
            }
            SpaceOp::Accounted { disk, membership: of } => {
                check(self.space(space)?.unaccounted.get(disk) == Some(of))?;
                self.space_mut(space)?.unaccounted.remove(disk);
            }
            SpaceOp::Unaccounted { disk, membership: of } => {
                check(self.disks.get(disk).is_some_and(|record| record.membership == *of))?;
                self.space_mut(space)?.unaccounted.insert(*disk, *of);
            }
            SpaceOp::BeginMove { row, index, to } => {
                // Every slab of the log is a replica.
                let present = self.row_mut(space, *row, None)?.clone();
                let resiliency = self.space(space)?.resiliency_of(&present);
                let simple = resiliency == Resiliency::Simple && *row != RowNumber::LOG;
                check(present.moving().is_none() && usize::from(*index) < present.slabs.len())?;
                self.check_free(*to)?;
                if !simple && present.slabs.iter().any(|copy| copy.place.disk == to.disk) {
                    return Err(InvalidOp::SameDisk(to.disk));
                }
                let copy = self.take(space, *row, *to)?;
                self.row_mut(space, *row, None)?.set_moving(Some(Moving { index: *index, copy }));
            }
            SpaceOp::EndMove { row } => {
                let all = Regions::new(self.slab_bytes).all();
                let present = self.row_mut(space, *row, None)?.clone();
                let Moving { index, copy } = present.moving().ok_or(outdated.clone())?;
                let old = *present.copy(usize::from(index)).ok_or(outdated.clone())?;
                // The copy must be on a present disk: the content of an absent disk is uncertain, and this operation
                // frees the old slab.
                check(
                    copy.stale_regions & !old.stale_regions & all == 0 && self.is_present(copy.place.disk),
                )?;
                let row_now = self.row_mut(space, *row, None)?;
                row_now.set_moving(None);
                *row_now.copy_mut(usize::from(index)).ok_or(outdated)? = copy;
                self.give_back(space, *row, old.place);
            }
            SpaceOp::CancelMove { row } => {
                let present = self.row_mut(space, *row, None)?.clone();
                let moving = present.moving().ok_or(outdated.clone())?;
                let old = *present.copy(usize::from(moving.index)).ok_or(outdated)?;
                let (record, disk) = (self.space(space)?, moving.copy.place.disk);
                let last = match record.resiliency_of(&present) {
                    // The owner cancels such a move only when the disk of the new replica was removed.
                    _ if *row == RowNumber::LOG => 0,
                    // The disk may have another column of the row, which stays on it.
                    Resiliency::Simple => {
                        let all = Regions::new(self.slab_bytes).all();
                        !moving.copy.stale_regions & record.stale_regions(&old) & all
                    }
                    _ => alone(record, *row, &present, disk, |other| other != disk),
                };
                if last != 0 {
                    return Err(InvalidOp::LastCopy { space, row: *row, regions: last });
                }
                self.row_mut(space, *row, None)?.set_moving(None);
                self.give_back(space, *row, moving.copy.place);
            }
            SpaceOp::Replace { row, index, to } => {
                let present = self.row_mut(space, *row, None)?.clone();
                let old = *present.slabs.get(usize::from(*index)).ok_or(outdated.clone())?;
                check(present.moving().is_none())?;
                self.check_free(*to)?;
                if present.slabs.iter().any(|copy| copy.place.disk == to.disk) {
                    return Err(InvalidOp::SameDisk(to.disk));
                }
                let last = alone(self.space(space)?, *row, &present, old.place.disk, |d| d != old.place.disk);
                if last != 0 {
                    return Err(InvalidOp::LastCopy { space, row: *row, regions: last });
                }
                let copy = self.take(space, *row, *to)?;
                *self.row_mut(space, *row, None)?.copy_mut(usize::from(*index)).ok_or(outdated)? = copy;
                self.give_back(space, *row, old.place);
            }
            SpaceOp::SetShape { shape } => self.set_shape(space, *shape)?,
            SpaceOp::Reshape { row, slabs } => self.reshape(space, *row, slabs)?,
            SpaceOp::Converted { to } => {
                check(self.space(space)?.converted.is_some_and(|converted| converted < *to))?;
                check(to.is_multiple_of(UNIT))?;
                self.space_mut(space)?.converted = Some(*to);
                self.end_change(space)?;
            }
            SpaceOp::Own { ownership } => {
                check(ownership.epoch > self.space(space)?.ownership.epoch && ownership.request == 0)?;
                check(ownership.epoch.pool_epoch() == self.epoch())?;
                self.space_mut(space)?.ownership = *ownership;
            }
            SpaceOp::Done { epoch, number } => {
                let done = self.space(space)?.ownership;
                check(*epoch == done.epoch && *number > done.request)?;
                self.space_mut(space)?.ownership.request = *number;
            }
            SpaceOp::Log { state } => {
                let had = self.space(space)?.log;
                check(state.epoch >= had.epoch && state.sequence >= had.sequence)?;
                self.space_mut(space)?.log = *state;
            }
            SpaceOp::Scrub { record } => self.space_mut(space)?.scrub = *record,
            SpaceOp::Lost { record } => {
                if !record.is_sound() {
                    return Err(InvalidOp::BadShape("the record of lost data is invalid"));
                }
                self.space_mut(space)?.loss = record.clone();
            }
        }
        Ok(())
    }

    pub(in crate::state) fn space(&self, space: SpaceId) -> Result<&Arc<SpaceRecord>, InvalidOp> {
        self.spaces.get(&space).ok_or(InvalidOp::NoSpace(space))
    }

    /// The record of a space for a change; copied first if a view shares it.
    pub(in crate::state) fn space_mut(&mut self, space: SpaceId) -> Result<&mut SpaceRecord, InvalidOp> {
        self.spaces.get_mut(&space).map(Arc::make_mut).ok_or(InvalidOp::NoSpace(space))
    }

    fn row_mut(&mut self, space: SpaceId, row: RowNumber, birth: Option<u32>) -> Result<&mut Row, InvalidOp> {
        let present = self.space_mut(space)?.rows.get_mut(&row);
        present.filter(|row| birth.is_none_or(|birth| row.birth == birth)).ok_or(InvalidOp::Outdated(space))
    }

    fn copy_mut(
        &mut self,
        space: SpaceId,
        row: RowNumber,
        index: u8,
        generation: u32,
    ) -> Result<&mut SlabCopy, InvalidOp> {
        let copy = self.row_mut(space, row, None)?.copy_mut(usize::from(index));
        copy.filter(|copy| copy.generation == generation).ok_or(InvalidOp::Outdated(space))
    }

    /// Allocates a free slab for a row; the slab is wholly stale.
    pub(super) fn take(
        &mut self,
        space: SpaceId,
        row: RowNumber,
        place: SlabPlace,
    ) -> Result<SlabCopy, InvalidOp> {
        let after = self.next_generation.checked_add(1).ok_or(InvalidOp::NotFree(place))?;
        let generation = std::mem::replace(&mut self.next_generation, after);
        self.used.insert(place);
        self.index.insert(space, row, place.disk);
        Ok(SlabCopy { place, generation, stale_regions: ALL })
    }

    pub(super) fn give_back(&mut self, space: SpaceId, row: RowNumber, place: SlabPlace) {
        self.used.remove(place);
        self.index.remove(space, row, place.disk);
    }

    fn create_space(&mut self, space: SpaceId, record: &SpaceRecord) -> Result<(), InvalidOp> {
        next(u64::from(space.0), u64::from(self.next_space))?;
        let after =
            self.next_space.checked_add(1).ok_or(InvalidOp::BadShape("all virtual disk numbers are used"))?;
        self.check_space(record)?;
        self.check_space_name(&record.name)?;
        if !record.rows.is_empty() || !record.unaccounted.is_empty() || record.is_changing() {
            return Err(InvalidOp::SpaceInUse(space));
        }
        self.next_space = after;
        self.spaces.insert(space, Arc::new(record.clone()));
        Ok(())
    }

    /// Checks the shape of a space, and that no other space has its slot.
    pub(in crate::state) fn check_space(&self, record: &SpaceRecord) -> Result<(), InvalidOp> {
        self.check_shape(record)?;
        if record.is_changing() {
            let mut former = SpaceRecord { rows: Tree::default(), ..record.clone() };
            former.set_shape(record.former);
            self.check_shape(&former)?;
        }
        let is_taken = self.spaces.values().any(|other| other.slot == record.slot);
        let is_converting = record.is_changing() && record.converted.is_some_and(|c| c.is_multiple_of(UNIT));
        let may_change = match record.converted {
            Some(_) => is_converting && record.half < 2,
            None => record.former.differs_in_copies_only(&record.shape()) && record.half < 2,
        };
        if record.slot >= SLOTS || is_taken || !may_change || !record.loss.is_sound() {
            return Err(InvalidOp::BadShape("the record of a virtual disk is invalid"));
        }
        Ok(())
    }

    /// The lowest slot of marks that no space has.
    pub(crate) fn free_slot(&self) -> Option<u16> {
        let taken: BTreeSet<u16> = self.spaces.values().map(|record| record.slot).collect();
        (0..SLOTS).find(|slot| !taken.contains(slot))
    }

    fn allocate(
        &mut self,
        space: SpaceId,
        row: RowNumber,
        first: u32,
        slabs: &[SlabPlace],
    ) -> Result<(), InvalidOp> {
        let record = Arc::clone(self.space(space)?);
        let bad = InvalidOp::BadRow { space, row, slabs: slabs.len() };
        let is_log = row == RowNumber::LOG;
        let shape = record.shape_at(row);
        let fits = match is_log {
            true => !slabs.is_empty(),
            false => slabs.len() == shape.slabs() && self.may_allocate(&record, row),
        };
        if !fits || record.rows.contains_key(&row) {
            return Err(bad);
        }
        next(u64::from(first), u64::from(self.next_generation))?;
        let mut seen: BTreeMap<DiskNumber, BTreeSet<u32>> = BTreeMap::new();
        for place in slabs {
            self.check_free(*place)?;
            if self.disks.get(&place.disk).is_none_or(|disk| disk.areas.slots() <= record.slot) {
                return Err(InvalidOp::NotFree(*place));
            }
            let on_disk = seen.entry(place.disk).or_default();
            if !on_disk.insert(place.slab)
                || on_disk.len() > 1 && (is_log || shape.resiliency != Resiliency::Simple)
            {
                return Err(InvalidOp::SameDisk(place.disk));
            }
        }
        self.next_generation.checked_add(slabs.len() as u32).ok_or(bad.clone())?;
        // A new row is empty, so no copy is stale.
        let copies =
            slabs.iter().map(|place| Ok(SlabCopy { stale_regions: 0, ..self.take(space, row, *place)? }));
        let copies = copies.collect::<Result<Vec<SlabCopy>, InvalidOp>>()?;
        let mut new = Row::new(first, copies);
        if !is_log && row.half() != record.half {
            new.shape = Shape::Former;
        }
        self.space_mut(space)?.rows.insert(row, new);
        Ok(())
    }

    /// Whether a row may be allocated: not where all data was converted.
    pub(super) fn may_allocate(&self, record: &SpaceRecord, row: RowNumber) -> bool {
        let end = (u64::from(row.index()) + 1) * record.shape_at(row).row_bytes(self.slab_bytes);
        let is_converted = row.half() != record.half && end <= record.converted_end();
        record.has_place_for(row, self.slab_bytes) && !is_converted
    }

    fn ready(
        &mut self,
        space: SpaceId,
        number: RowNumber,
        birth: u32,
        stale_copies: &[u8],
    ) -> Result<(), InvalidOp> {
        let mut row = self.row_mut(space, number, Some(birth))?.clone();
        let lacks = |index: usize| stale_copies.iter().any(|other| usize::from(*other) == index);
        let whole = |set: std::ops::Range<usize>| set.filter(|index| !lacks(*index)).count();
        let record = self.space(space)?;
        if !row.is_new || sets(record, number, &row).into_iter().any(|(set, needed)| whole(set) < needed) {
            return Err(InvalidOp::Outdated(space));
        }
        row.is_new = false;
        for index in 0..row.copies().count() {
            let copy = row.copy_mut(index).expect("it is one of its copies");
            copy.stale_regions = if lacks(index) { Regions::new(self.slab_bytes).union(0, ALL) } else { 0 };
        }
        *self.row_mut(space, number, Some(birth))? = row;
        Ok(())
    }

    /// Marks all regions of this disk's copies stale that other disks have, including absent and unaccounted ones. An
    /// unaccounted disk may lack the newest writes, but this disk is known to be old.
    pub(in crate::state) fn stale(&mut self, space: SpaceId, disk: DiskNumber) -> Result<(), InvalidOp> {
        let record = Arc::clone(self.space(space)?);
        let rows: Vec<RowNumber> =
            self.index.rows_on(disk).filter(|(of, _)| *of == space).map(|(_, row)| row).collect();
        for number in rows {
            let row = record.rows.get(&number).filter(|row| !row.is_new || number == RowNumber::LOG);
            let Some(row) = row else { continue };
            let only = only(&record, number, row, disk, |other| other != disk);
            for (index, copy) in row.copies().filter(|(_, copy)| copy.place.disk == disk) {
                let stale = Regions::new(self.slab_bytes).union(copy.stale_regions, !only);
                self.copy_mut(space, number, index as u8, copy.generation)?.stale_regions = stale;
            }
        }
        Ok(())
    }

    /// A permanently removed disk is no longer unaccounted.
    pub(in crate::state) fn forget_unaccounted(&mut self, disk: DiskNumber) {
        let lists = self.spaces.iter().filter(|(_, record)| record.unaccounted.contains_key(&disk));
        let spaces: Vec<SpaceId> = lists.map(|(space, _)| *space).collect();
        for space in spaces {
            if let Ok(record) = self.space_mut(space) {
                record.unaccounted.remove(&disk);
            }
        }
    }

    /// At an opening of the pool, every space gets the first owner of this epoch, without a record of its own.
    pub(in crate::state) fn begin_ownerships(&mut self, epoch: u64) {
        let spaces: Vec<SpaceId> = self.spaces.keys().copied().collect();
        for space in spaces {
            if let Ok(record) = self.space_mut(space) {
                (record.ownership.epoch, record.ownership.request) = (SpaceEpoch::first(epoch), 0);
            }
        }
    }
}
