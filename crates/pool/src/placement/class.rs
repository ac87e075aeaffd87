//! Slabs that lie on other media than their space's class has: it was changed, or what is known of a disk was. Pure.

use super::journal::Taste;
use crate::{DiskNumber, RowNumber, SpaceId, State};

/// How many slabs of a space lie on other media than its class has.
pub fn outside(state: &State, space: SpaceId) -> usize {
    let taste = Taste::of(state, space);
    if taste.media().is_any() {
        return 0;
    }
    let slabs = state.rows_of(space).flat_map(|(_, r)| &r.slabs);
    slabs.filter(|c| is_outside(&taste, state, c.place.disk)).count() + log_outside(state, space).count()
}

/// Replicas of the log of a space with an owner, by their index, that lie on other media than the log may.
pub(super) fn log_outside(state: &State, space: SpaceId) -> impl Iterator<Item = (usize, DiskNumber)> + '_ {
    let record = state.owned.get(&space);
    let slabs = record.and_then(|record| Some((record, record.rows.get(&RowNumber::LOG)?)));
    slabs.into_iter().flat_map(move |(record, log)| {
        let taste = Taste::new(state, true, record.media.or_faster());
        let disks = log.slabs.iter().map(|copy| copy.place.disk).enumerate();
        disks.filter(move |(_, disk)| is_outside(&taste, state, *disk))
    })
}

/// Whether a slab on the disk lies on other media than the class has.
pub(super) fn is_outside(taste: &Taste<'_>, state: &State, disk: DiskNumber) -> bool {
    !taste.media().is_any() && state.disks.get(&disk).is_some_and(|r| !taste.suits(r))
}
