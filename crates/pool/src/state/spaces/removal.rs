//! The operations on spaces when a disk is removed from service.

use std::collections::BTreeMap;

use pool_seam::CopyRegions;

use super::{ALL, SpaceOp, alone};
use crate::state::State;
use crate::{DiskNumber, Op, RowNumber, SpaceId};

/// The stale regions on a disk that the owners of spaces state. For a space without an answer the disk is unaccounted.
pub type OwnerAnswers = BTreeMap<SpaceId, Vec<CopyRegions>>;

impl State {
    /// For each space with slabs on the disk: marks the regions stale that its owner states; without an answer, marks
    /// the disk as unaccounted. Regions that no other disk could supply are not marked, because this disk has them.
    pub(in crate::state) fn account_for_removal(&self, disk: DiskNumber, answers: &OwnerAnswers) -> Vec<Op> {
        let mut ops = Vec::new();
        for space in self.spaces_on(disk) {
            let (Some(record), Some(of)) = (self.spaces.get(&space), self.disks.get(&disk)) else { continue };
            let Some(answer) = answers.get(&space) else {
                let op = SpaceOp::Unaccounted { disk, membership: of.membership };
                ops.push(Op::Space { space, op });
                continue;
            };
            let reported = |number: RowNumber, generation: u32| {
                let of =
                    |reported: &&CopyRegions| reported.row == number && reported.generation == generation;
                let regions = answer.iter().filter(of).fold(0, |all, reported| all | reported.regions);
                if number == RowNumber::LOG && regions != 0 { ALL } else { regions }
            };
            let rows = self.index.rows_on(disk).filter(|(of, _)| *of == space);
            for (number, row) in rows.filter_map(|(_, row)| Some((row, record.rows.get(&row)?))) {
                // A new row is empty, so no copy of it can be stale.
                if row.is_new && number != RowNumber::LOG {
                    continue;
                }
                let alone = alone(record, number, row, disk, |other| other != disk);
                for (index, copy) in row.copies().filter(|(_, copy)| copy.place.disk == disk) {
                    let stale = reported(number, copy.generation) & !alone & !copy.stale_regions;
                    let regions = if number == RowNumber::LOG && stale != 0 { ALL } else { stale };
                    if regions != 0 {
                        let (index, generation) = (index as u8, copy.generation);
                        let op = SpaceOp::MarkStale { row: number, index, generation, regions };
                        ops.push(Op::Space { space, op });
                    }
                }
            }
        }
        ops
    }
}
