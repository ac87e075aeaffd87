//! Chooses the next slab to move. The aims: all slabs are on media of their space's class, copies are better
//! separated, and disks are more evenly full. Pure, one step at a time.
//!
//! Invariants of an executed step of [`rebalance`]:
//! 1. The number of slabs outside their space's class does not increase. Such slabs are moved first.
//! 2. If it stays equal, the number of pairs of mates that share a domain, counted from the rack to the disk, does not
//!    increase.
//! 3. If this stays equal, too, the sum of `used² / slabs` over the disks decreases. All three values are bounded
//!    from below, so the steps terminate.
//! 4. A replica of a log moves only to media where its space's log may be placed.
//! 5. The step can be applied ([`crate::SpaceOp::BeginMove`]), and leaves the reserve of the target disk free.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::class::{log_outside, outside};
use super::{Eligible, LEVELS, mates, reserve, shared, slab};
use crate::{DiskNumber, RowNumber, SlabPlace, SpaceId, State, Usage};

/// A slab to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The space.
    pub space: SpaceId,
    /// Its row.
    pub row: RowNumber,
    /// The slab in the row.
    pub index: usize,
    /// The target.
    pub to: SlabPlace,
}

/// The fill level of a disk without a free slab.
const FULL: u64 = 1_000_000;

/// The fill level of a disk.
#[derive(Clone, Copy)]
struct Fill {
    used: u64,
    slabs: u64,
}

impl Fill {
    /// The fill level as a part of [`FULL`].
    fn ratio(self) -> u64 {
        self.used * FULL / self.slabs.max(1)
    }

    /// Invariant 3: moving a slab decreases the sum: `(used - 1)² / slabs + (to.used + 1)² / to.slabs` is less than
    /// before.
    fn gains_by_giving(self, to: Fill) -> bool {
        self.used > 0 && (2 * to.used + 1) * self.slabs < (2 * self.used - 1) * to.slabs
    }
}

/// The step with the largest gain; `None` if there is none. Rows in `skip` and rows with a moving slab are skipped.
pub fn rebalance(state: &State, skip: &BTreeSet<(SpaceId, RowNumber)>) -> Option<Step> {
    log_to_move(state, skip).or_else(|| slab_to_move(state, skip))
}

/// Finds a replica of a log on media where it may not be placed. A log is not moved for another reason, because all
/// permitted places are equivalent.
fn log_to_move(state: &State, skip: &BTreeSet<(SpaceId, RowNumber)>) -> Option<Step> {
    let row = RowNumber::LOG;
    let may_move = |space: &SpaceId| {
        let log = state.spaces.get(space).and_then(|record| record.rows.get(&row));
        log.is_some_and(|log| !log.is_new && log.moving().is_none()) && !skip.contains(&(*space, row))
    };
    state.spaces.keys().copied().filter(may_move).find_map(|space| {
        let mut outside = log_outside(state, space).filter(|(_, disk)| state.is_present(*disk));
        outside.find_map(|(index, _)| {
            let to = slab(state, space, row, index as u8, |_| true).ok()?;
            Some(Step { space, row, index, to })
        })
    })
}

fn slab_to_move(state: &State, skip: &BTreeSet<(SpaceId, RowNumber)>) -> Option<Step> {
    let disks: Vec<(DiskNumber, Fill)> = targets(state);
    let mut best: Option<(_, Step)> = None;
    for (&space, record) in &state.spaces {
        let eligible = Eligible::for_data(state, record.media);
        for (row, r) in record.data_rows() {
            if r.moving().is_some() || skip.contains(&(space, row)) {
                continue;
            }
            for (index, copy) in r.slabs.iter().enumerate() {
                let from = copy.place.disk;
                let outside = eligible.is_outside(from);
                let may = outside || state.disks.get(&from).is_some_and(|d| eligible.takes(d));
                if !may || !state.is_present(from) {
                    continue;
                }
                let mates = mates(record.resiliency_of(r), &r.slabs, index);
                let (now, fill) = (shared(state, &mates, from), fill(state, from));
                for &(to, to_fill) in &disks {
                    let takes = state.disks.get(&to).is_some_and(|d| eligible.takes(d));
                    if !takes || r.slabs.iter().any(|c| c.place.disk == to) {
                        continue;
                    }
                    let then = shared(state, &mates, to);
                    if !outside && then >= now && !(then == now && fill.gains_by_giving(to_fill)) {
                        continue;
                    }
                    // A slab that is moved to its class gets the best possible separation from its row's other
                    // copies, then the disk with the most free space.
                    let gain = match outside {
                        true => (true, Reverse(then), false, FULL.saturating_sub(to_fill.ratio())),
                        false => {
                            let evener = fill.ratio().saturating_sub(to_fill.ratio());
                            (false, Reverse([0; LEVELS]), now > then, evener)
                        }
                    };
                    let gain = (gain, Reverse((from, to)));
                    if best.as_ref().is_some_and(|(b, _)| *b >= gain) {
                        continue;
                    }
                    let Some(slab) = state.free_slabs(to).next() else { continue };
                    best = Some((gain, Step { space, row, index, to: SlabPlace { disk: to, slab } }));
                }
            }
        }
    }
    best.map(|(_, step)| step)
}

/// The approximate number of slabs to move until all are on media of their class, and all disks have the same fill
/// level. If spaces have classes, the fill level is compared separately for each medium.
pub fn to_rebalance(state: &State) -> usize {
    let classes = state.spaces.values().any(|r| !r.media.is_any());
    let mut kinds: BTreeMap<u8, Vec<Fill>> = BTreeMap::new();
    for disk in auto(state) {
        let media = state.disks.get(&disk).map_or(0, |r| if classes { r.media } else { 0 });
        kinds.entry(media).or_default().push(fill(state, disk));
    }
    let uneven = kinds.values().map(|disks| {
        let (used, slabs) = disks.iter().fold((0, 0), |(u, s), d| (u + d.used, s + d.slabs));
        let over = |d: &Fill| d.used.saturating_sub((used * d.slabs).div_ceil(slabs.max(1)));
        disks.iter().map(over).sum::<u64>() as usize
    });
    uneven.sum::<usize>() + state.spaces.keys().map(|s| outside(state, *s)).sum::<usize>()
}

fn auto(state: &State) -> impl Iterator<Item = DiskNumber> + '_ {
    let auto = state.disks.iter().filter(|(d, r)| r.usage == Usage::AutoSelect && state.is_present(**d));
    auto.map(|(d, _)| *d)
}

/// Disks with automatic selection that have free slabs beyond their reserve.
fn targets(state: &State) -> Vec<(DiskNumber, Fill)> {
    let room = |d: &DiskNumber| {
        let slabs = state.disks.get(d).map_or(0, |r| r.slabs);
        state.slabs_free(*d) > reserve(slabs)
    };
    auto(state).filter(room).map(|d| (d, fill(state, d))).collect()
}

fn fill(state: &State, disk: DiskNumber) -> Fill {
    let slabs = u64::from(state.disks.get(&disk).map_or(0, |r| r.slabs));
    Fill { used: slabs - u64::from(state.slabs_free(disk)), slabs }
}
