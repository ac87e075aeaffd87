//! The state as those see it who only look: spaces that owners drive are among the others, without their logs.

use pool_seam::RowNumber;

use super::ALL;
use crate::state::{Moving, Row, SlabCopy, SpaceRecord, State};

impl State {
    /// See the module. Of a disk that is not accounted for all copies have missed everything.
    pub(crate) fn shown(&self) -> State {
        let mut shown = self.clone();
        for (&space, record) in &self.owned {
            shown.spaces.insert(space, SpaceRecord::of(record));
            if record.scrub != Default::default() {
                shown.scrubs.insert(space, record.scrub);
            }
            if record.loss.units > 0 {
                shown.losses.insert(space, record.loss.clone());
            }
            let copy = |copy: &pool_seam::SlabCopy| {
                let pool_seam::SlabCopy { place, generation, missed } = *copy;
                let is_unaccounted = record.unaccounted.contains_key(&place.disk);
                SlabCopy { place, generation, missed: if is_unaccounted { ALL } else { missed } }
            };
            for (&number, row) in record.rows.iter().filter(|(number, _)| **number != RowNumber::LOG) {
                let mut as_shown = Row::new(row.slabs.iter().map(copy));
                as_shown.set_moving(row.moving().map(|m| Moving { index: m.index, copy: copy(&m.copy) }));
                shown.rows.insert((space, number), as_shown);
            }
        }
        shown
    }
}
