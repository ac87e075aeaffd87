//! Slabs on media outside their space's class, after a change of the class or of a disk's medium. Pure.

use super::Eligible;
use crate::{DiskNumber, RowNumber, SpaceId, State};

/// How many slabs of a space are on media outside its class.
pub fn outside(state: &State, space: SpaceId) -> usize {
    let Some(record) = state.spaces.get(&space).filter(|record| !record.media.is_any()) else { return 0 };
    let eligible = Eligible::for_data(state, record.media);
    let slabs = record.data_rows().flat_map(|(_, row)| row.slabs.iter());
    slabs.filter(|copy| eligible.is_outside(copy.place.disk)).count() + log_outside(state, space).count()
}

/// Replicas of a space's log, by index, on media where the log may not be placed.
pub(super) fn log_outside(state: &State, space: SpaceId) -> impl Iterator<Item = (usize, DiskNumber)> + '_ {
    let record = state.spaces.get(&space);
    let slabs = record.and_then(|record| Some((record, record.rows.get(&RowNumber::LOG)?)));
    slabs.into_iter().flat_map(move |(record, log)| {
        let eligible = Eligible::for_log(state, record.media);
        let disks = log.slabs.iter().map(|copy| copy.place.disk).enumerate();
        disks.filter(move |(_, disk)| eligible.is_outside(*disk))
    })
}
