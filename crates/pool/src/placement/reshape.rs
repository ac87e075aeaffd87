//! Chooses which copies of a row stay, and the places of new ones, when its number of copies changes. Pure.

use std::collections::BTreeSet;

use super::rows::{farthest, is_reachable};
use super::{Eligible, LEVELS, NoPlace, shared};
use crate::{DiskNumber, NewSlab, Row, RowNumber, SlabCopy, SpaceId, SpaceRecord, State};

/// The slabs of a row in the current shape of its space, set by set: the best of its copies, then new slabs. Each new
/// slab is separated as well as possible from the others of its set, on a `usable` disk without a slab of the row.
/// The reserve may be used.
pub fn reshaped(
    state: &State,
    space: SpaceId,
    number: RowNumber,
    usable: impl Fn(DiskNumber) -> bool,
) -> Result<Vec<NewSlab>, NoPlace> {
    let none = NoPlace::NoSuchRow(space);
    let record = state.spaces.get(&space).ok_or(none.clone())?;
    let row = record.rows.get(&number).ok_or(none)?;
    let (eligible, old, new) = match number {
        RowNumber::LOG => (Eligible::for_log(state, record.media), row.slabs.len(), record.log_replicas()),
        _ => {
            let former = record.shape_of(row).slabs_in_set();
            (Eligible::for_data(state, record.media), former, record.shape().slabs_in_set())
        }
    };
    let mut taken: BTreeSet<DiskNumber> = row.slabs.iter().map(|copy| copy.place.disk).collect();
    let may = |disk: DiskNumber| is_reachable(state, disk, record.slot) && usable(disk);
    let free = state.disks.iter().filter(|(disk, of)| {
        eligible.takes(of) && may(**disk) && !taken.contains(disk) && state.slabs_free(**disk) > 0
    });
    let (needed, disks) = (row.slabs.len() / old.max(1) * new.saturating_sub(old), free.count());
    let mut slabs = Vec::new();
    for first in (0..row.slabs.len()).step_by(old.max(1)) {
        let kept = kept(state, &eligible, record, row, first..first + old, new);
        let mut apart: Vec<DiskNumber> = kept.iter().map(|index| row.slabs[*index].place.disk).collect();
        slabs.extend(kept.iter().map(|index| NewSlab::Kept { index: *index as u8 }));
        for _ in kept.len()..new {
            let place =
                farthest(state, &eligible, &apart, false, |disk| may(disk) && !taken.contains(&disk), |_| 0);
            let place = place.ok_or(NoPlace::NoRoom { needed, disks, media: eligible.media() })?;
            taken.insert(place.disk);
            apart.push(place.disk);
            slabs.push(NewSlab::Free { place });
        }
    }
    Ok(slabs)
}

/// Whether the other replicas of a log are separated as well as possible without this one.
pub(crate) fn may_be_freed(state: &State, log: &Row, generation: u32) -> bool {
    let shared_without = |freed: u32| {
        let others = log.slabs.iter().filter(|copy| copy.generation != freed);
        let disks: Vec<DiskNumber> = others.map(|copy| copy.place.disk).collect();
        let all = disks.iter().map(|disk| shared(state, &disks, *disk));
        all.fold([0; LEVELS], |sum, one| std::array::from_fn(|level| sum[level] + one[level]))
    };
    let least = log.slabs.iter().map(|copy| shared_without(copy.generation)).min();
    Some(shared_without(generation)) == least
}

/// The copies of a set that stay, in the row's order. Copies on present disks are preferred, then those with the
/// fewest stale regions, then those on permitted media.
fn kept(
    state: &State,
    eligible: &Eligible<'_>,
    record: &SpaceRecord,
    row: &Row,
    set: std::ops::Range<usize>,
    most: usize,
) -> Vec<usize> {
    let rank = |copy: &SlabCopy| {
        let disk = copy.place.disk;
        let is_leaving = state.disks.get(&disk).is_none_or(|of| of.usage.is_leaving());
        let stale = record.stale_regions(copy).count_ones();
        (!state.is_present(disk), stale, is_leaving, eligible.is_outside(disk))
    };
    let mut kept: Vec<usize> = set.filter(|index| *index < row.slabs.len()).collect();
    kept.sort_by_key(|index| (rank(&row.slabs[*index]), *index));
    kept.truncate(most);
    kept.sort_unstable();
    kept
}
