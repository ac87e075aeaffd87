//! Whether all slabs of a disk can be moved elsewhere. Pure.

use std::sync::Arc;

use super::slab;
use crate::jobs::NotMoved;
use crate::state::SpaceOp;
use crate::{DiskNumber, Op, State, Usage};

/// The result of moving everything off a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evacuation {
    /// Slabs that can be moved.
    pub moves: usize,
    /// Slabs without a destination, or without data on a present disk.
    pub left: usize,
    /// The reason for one of these slabs.
    pub why: Option<NotMoved>,
}

/// Simulates moving all slabs off a disk, starting from the current state.
pub fn evacuation(state: &State, disk: DiskNumber) -> Evacuation {
    let mut s = state.clone();
    if let Some(record) = Arc::make_mut(&mut s.disks).get_mut(&disk) {
        record.usage = Usage::Retired;
    }
    let mut plan = Evacuation::default();
    for (space, number, row) in state.rows_on(disk) {
        for (index, _) in row.copies().filter(|(_, copy)| copy.place.disk == disk) {
            // A move in progress is completed or cancelled first.
            let is_moving = s.spaces[&space].rows[&number].moving().is_some();
            let to = match () {
                () if is_moving => Ok(None),
                () if !s.is_present(disk) && s.is_only_copy(disk, space, number) => {
                    Err(NotMoved::OnlyCopy(space))
                }
                () => slab(&s, space, number, index as u8, |_| true).map(Some).map_err(NotMoved::from),
            };
            match to {
                Ok(to) => {
                    plan.moves += 1;
                    // Marks the target as used for the next slabs. If the row has a second slab on this disk, that
                    // slab gets its target later.
                    let op = to.map(|to| SpaceOp::BeginMove { row: number, index: index as u8, to });
                    let taken = op.map(|op| s.apply(&Op::Space { space, op }));
                    debug_assert!(!matches!(taken, Some(Err(_))), "{taken:?}");
                }
                Err(why) => {
                    plan.left += 1;
                    plan.why = Some(why);
                }
            }
        }
    }
    plan
}
