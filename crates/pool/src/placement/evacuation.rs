//! Whether everything on a disk has a place elsewhere. Pure.

use super::replacement;
use crate::jobs::Stays;
use crate::{DiskNumber, Op, RowNumber, SlabPlace, SpaceId, State, Usage};

/// The result of moving everything off a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evacuation {
    /// Slabs that have a place elsewhere.
    pub moves: usize,
    /// Slabs without a destination, or without data on a present disk.
    pub left: usize,
    /// Why, of one of them.
    pub why: Option<Stays>,
}

/// Plays through moving everything off a disk, as far as that is known now.
pub fn evacuation(state: &State, disk: DiskNumber) -> Evacuation {
    let mut s = state.clone();
    if let Some(record) = s.disks.get_mut(&disk) {
        record.usage = Usage::Retired;
    }
    let mut plan = Evacuation::default();
    let on: Vec<_> = s.copies_on(disk).collect();
    for (space, row, index) in on {
        let moving = s.rows.get(&(space, row)).is_some_and(|r| r.moving().is_some());
        // Moves in progress in a row are completed first, in one way or the other.
        match if moving { Ok(None) } else { place_off(&s, space, row, index).map(Some) } {
            Ok(to) => {
                plan.moves += 1;
                // A slab that is taken is no place for the next; of a row with two on the disk the second
                // finds its own when its time comes.
                let taken = to.map(|to| s.apply(&Op::BeginMove { space, row, index: index as u8, to }));
                debug_assert!(!matches!(taken, Some(Err(_))), "{taken:?}");
            }
            Err(why) => {
                plan.left += 1;
                plan.why = Some(why);
            }
        }
    }
    plan
}

/// Where a slab of a row should go when its disk is emptied, or why it stays there.
pub(crate) fn place_off(s: &State, space: SpaceId, row: RowNumber, index: usize) -> Result<SlabPlace, Stays> {
    let here =
        s.rows.get(&(space, row)).and_then(|r| r.copy(index)).is_some_and(|c| s.is_present(c.place.disk));
    if !here && s.alone(space, row, index) != 0 {
        return Err(Stays::OnlyCopy(space));
    }
    Ok(replacement(s, space, row, index)?)
}
