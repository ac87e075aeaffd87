//! The slabs that operations free.

use pool_seam::{RowNumber, SlabPlace, SpaceRecord};

use super::SpaceOp;
use super::reshape::dropped;
use crate::Op;
use crate::state::State;

impl State {
    /// The slabs that these operations would free, one after the other.
    pub(crate) fn slabs_freed_by_all(&self, ops: &[Op]) -> Vec<SlabPlace> {
        let (mut state, mut slabs) = (self.clone(), Vec::new());
        for op in ops {
            slabs.extend(state.slabs_freed_by(op));
            if state.apply(op).is_err() {
                break;
            }
        }
        slabs
    }

    /// The slabs that an operation would free.
    pub(crate) fn slabs_freed_by(&self, op: &Op) -> Vec<SlabPlace> {
        let Op::Space { space, op } = op else { return Vec::new() };
        let Some(record) = self.spaces.get(space) else { return Vec::new() };
        let copies = |row: &RowNumber| record.rows.get(row).into_iter().flat_map(|row| row.copies());
        let moving = |row: &RowNumber| record.rows.get(row).and_then(|row| row.moving());
        match op {
            SpaceOp::Destroy => record.rows.keys().flat_map(copies).map(|(_, copy)| copy.place).collect(),
            SpaceOp::Free { row, .. } => copies(row).map(|(_, copy)| copy.place).collect(),
            SpaceOp::EndMove { row } => {
                let old = moving(row).and_then(|moving| place(record, *row, moving.index));
                old.into_iter().collect()
            }
            SpaceOp::CancelMove { row } => moving(row).map(|moving| moving.copy.place).into_iter().collect(),
            SpaceOp::Reshape { row, slabs } => {
                let row = record.rows.get(row).into_iter();
                row.flat_map(|row| dropped(row, slabs)).map(|copy| copy.place).collect()
            }
            SpaceOp::Replace { row, index, .. } => place(record, *row, *index).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

fn place(record: &SpaceRecord, row: RowNumber, index: u8) -> Option<SlabPlace> {
    Some(record.rows.get(&row)?.slabs.get(usize::from(index))?.place)
}
