//! Which slab should move so that the disks are more evenly full and the copies stand farther apart. Pure, one step at a time.
//!
//! Invariants, for a step that [`rebalance`] gives and that is made:
//! 1. The pairs of mates that share a domain, counted from the rack to the disk, do not become more.
//! 2. If they are as many, the sum of `used² / slabs` over the disks becomes less. Both are bounded from below, so the steps come to an end.
//! 3. It can be applied ([`crate::Op::BeginMove`]), and leaves the reserve of the disk that it goes to.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::{mates, reserve, shared};
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
    /// Where it should be.
    pub to: SlabPlace,
}

/// How full a disk is.
#[derive(Clone, Copy)]
struct Fill {
    used: u64,
    slabs: u64,
}

impl Fill {
    /// In parts of a million.
    fn ratio(self) -> u64 {
        self.used * 1_000_000 / self.slabs.max(1)
    }

    /// Invariant 2: `(used - 1)² / slabs + (to.used + 1)² / to.slabs` is less than before.
    fn gains_by_giving(self, to: Fill) -> bool {
        self.used > 0 && (2 * to.used + 1) * self.slabs < (2 * self.used - 1) * to.slabs
    }
}

/// The step that helps most; `None` when there is none. Rows in `skip`, and those with a slab on the move, are left alone, as are parity spaces and
/// their journals.
pub fn rebalance(state: &State, skip: &BTreeSet<(SpaceId, RowNumber)>) -> Option<Step> {
    let disks: Vec<(DiskNumber, Fill)> = targets(state);
    let mut best: Option<(_, Step)> = None;
    for (&(space, row), r) in &state.rows {
        let Some(record) = state.spaces.get(&space) else { continue };
        let parity = record.resiliency.is_parity() || state.owner_of(space).is_some();
        if r.moving().is_some() || parity || skip.contains(&(space, row)) {
            continue;
        }
        for (index, copy) in r.slabs.iter().enumerate() {
            let from = copy.place.disk;
            let movable = state.disks.get(&from).is_some_and(|d| d.usage == Usage::AutoSelect);
            if !movable || !state.is_present(from) {
                continue;
            }
            let mates = mates(record, &r.slabs, index);
            let (now, fill) = (shared(state, &mates, from), fill(state, from));
            for &(to, to_fill) in &disks {
                if r.slabs.iter().any(|c| c.place.disk == to) {
                    continue;
                }
                let then = shared(state, &mates, to);
                if then > now || (then == now && !fill.gains_by_giving(to_fill)) {
                    continue;
                }
                let gain = (now > then, fill.ratio().saturating_sub(to_fill.ratio()), Reverse((from, to)));
                if best.as_ref().is_some_and(|(b, _)| *b >= gain) {
                    continue;
                }
                let Some(slab) = state.free_slabs(to).next() else { continue };
                best = Some((gain, Step { space, row, index, to: SlabPlace { disk: to, slab } }));
            }
        }
    }
    best.map(|(_, step)| step)
}

/// About how many slabs would have to move for all disks to be as full as all together.
pub fn to_rebalance(state: &State) -> usize {
    let disks: Vec<Fill> = auto(state).map(|d| fill(state, d)).collect();
    let (used, slabs) = disks.iter().fold((0, 0), |(u, s), d| (u + d.used, s + d.slabs));
    let over = |d: &Fill| d.used.saturating_sub((used * d.slabs).div_ceil(slabs.max(1)));
    disks.iter().map(over).sum::<u64>() as usize
}

fn auto(state: &State) -> impl Iterator<Item = DiskNumber> + '_ {
    let auto = state.disks.iter().filter(|(d, r)| r.usage == Usage::AutoSelect && state.is_present(**d));
    auto.map(|(d, _)| *d)
}

/// Disks that take slabs.
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
