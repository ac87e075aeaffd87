//! Spaces as decoded from a checkpoint: untrusted until they are checked.

use std::sync::Arc;

use pool_seam::{Shape, SpaceRecord, Tree};

use crate::state::State;
use crate::{InvalidOp, RowNumber, SpaceId};

impl State {
    /// Adds the spaces to a state whose disks are known, and computes the derived fields.
    pub(in crate::state) fn take_spaces(
        &mut self,
        spaces: &Tree<SpaceId, Arc<SpaceRecord>>,
    ) -> Result<(), InvalidOp> {
        for (&space, record) in spaces {
            if space.0 >= self.next_space {
                return Err(InvalidOp::NoSpace(space));
            }
            self.check_space(record)?;
            if let Some(disk) = record.unaccounted.keys().find(|disk| !self.disks.contains_key(disk)) {
                return Err(InvalidOp::NoDisk(*disk));
            }
            for (&number, row) in &record.rows {
                let bad = InvalidOp::BadRow { space, row: number, slabs: row.slabs.len() };
                let fits = match number {
                    RowNumber::LOG => !row.slabs.is_empty(),
                    _ => {
                        row.slabs.len() == record.shape_of(row).slabs()
                            && record.has_place_for(number, self.slab_bytes)
                    }
                };
                let is_former = row.shape == Shape::Former;
                if is_former && !record.is_changing() {
                    return Err(bad);
                }
                let is_of_other_half = number != RowNumber::LOG && number.half() != record.half;
                if number != RowNumber::LOG && record.is_converting() && is_former != is_of_other_half {
                    return Err(bad);
                }
                if !fits || row.moving().is_some_and(|m| usize::from(m.index) >= row.slabs.len()) {
                    return Err(bad);
                }
                for (_, copy) in row.copies() {
                    let disk = copy.place.disk;
                    let slabs = self.disks.get(&disk).ok_or(InvalidOp::NoDisk(disk))?.slabs;
                    let is_free = copy.place.slab < slabs && self.used.insert(copy.place);
                    if !is_free
                        || copy.generation >= self.next_generation
                        || row.birth >= self.next_generation
                    {
                        return Err(InvalidOp::NotFree(copy.place));
                    }
                    self.index.insert(space, number, disk);
                }
            }
            self.spaces.insert(space, Arc::clone(record));
            self.end_change(space)?;
        }
        Ok(())
    }
}
