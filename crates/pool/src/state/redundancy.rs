//! The regions that the rest of a row could provide without one of its copies.

use super::{InvalidOp, SlabCopy, State};
use crate::{RowNumber, SpaceId};

impl State {
    /// Invariant 3: without copy `index`, can the rest of the row still give these regions?
    pub(super) fn keeps_a_copy(
        &self,
        space: SpaceId,
        row: RowNumber,
        index: usize,
        regions: u64,
    ) -> Result<(), InvalidOp> {
        let no_slab = InvalidOp::NoSlab { space, row, index };
        self.rows.get(&(space, row)).and_then(|r| r.copy(index)).ok_or(no_slab)?;
        match self.only_here(space, row, index) & regions {
            0 => Ok(()),
            regions => Err(InvalidOp::LastCopy { space, row, regions }),
        }
    }

    /// The regions that this copy has, and that the rest of its row could not give without it.
    pub(crate) fn only_here(&self, space: SpaceId, row: RowNumber, index: usize) -> u64 {
        self.irreplaceable(space, row, index, |copy| copy.missed)
    }

    /// The regions that a copy has not missed and that the rest of its row could not provide without it;
    /// `missed` returns the missed regions of each copy.
    pub(super) fn irreplaceable(
        &self,
        space: SpaceId,
        row: RowNumber,
        index: usize,
        missed: impl Fn(&SlabCopy) -> u64,
    ) -> u64 {
        let (Some(record), Some(r)) = (self.spaces.get(&space), self.rows.get(&(space, row))) else {
            return 0;
        };
        let Some(mine) = r.copy(index) else { return 0 };
        let slab = r.slab_of(index);
        match record.code() {
            // Of a slab on the move the old one is what counts (invariant 7).
            Some(_) if index >= r.slabs.len() => 0,
            Some(code) => {
                // A region is lost when too few copies are current there.
                let missed: Vec<u64> = r.slabs.iter().map(missed).collect();
                let have = |bit: u32| {
                    let has = missed.iter().enumerate().filter(|(s, m)| *s != slab && **m & (1 << bit) == 0);
                    has.fold(0, |all, (s, _)| all | 1 << s)
                };
                (0..u64::BITS)
                    .filter(|bit| !mine.missed & (1 << bit) != 0 && !code.decodes(have(*bit)))
                    .fold(0, |only, bit| only | 1 << bit)
            }
            None => {
                // The regions that all others of its column, including the destination of a move, have
                // missed.
                let copies = record.resiliency.copies();
                let mates =
                    r.copies().filter(|(i, _)| *i != index && r.slab_of(*i) / copies == slab / copies);
                !mine.missed & mates.fold(u64::MAX, |by_all, (_, c)| by_all & missed(c))
            }
        }
    }
}
