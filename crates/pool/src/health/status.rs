//! The status of a pool, its disks and its spaces, in the industry's words: pure functions over the pool's state.

use std::collections::{BTreeMap, BTreeSet};

use super::lose::spare_in_row;
use crate::{
    Absence, DiskNumber, DiskRecord, Presence, Resiliency, Row, RowNumber, SpaceId, SpaceRecord, State,
    Usage, placement,
};

/// An OperationalStatus and the HealthStatus that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// The OperationalStatus, such as `OK` or `Degraded`.
    pub operational: &'static str,
    /// The HealthStatus: `Healthy`, `Warning`, `Unhealthy` or `Unknown`.
    pub health: &'static str,
}

impl Health {
    /// Nothing is wrong.
    pub const OK: Health = Health::new("OK", "Healthy");

    /// A status of these two words.
    pub const fn new(operational: &'static str, health: &'static str) -> Health {
        Health { operational, health }
    }
}

/// The status of a space; `suspended`: its pool is suspended, so nothing can be read or written.
pub fn of_space(state: &State, space: SpaceId, problems: &Problems, suspended: bool) -> Health {
    match state.spaces.get(&space) {
        Some(_) if suspended || problems.not_open.contains_key(&space) => {
            Health::new("Detached", "Unhealthy")
        }
        Some(record) if record.loss.units > 0 => Health::new("Data loss", "Unhealthy"),
        _ => redundancy(state, space),
    }
}

/// The status of a space's redundancy.
fn redundancy(state: &State, space: SpaceId) -> Health {
    let Some(record) = state.spaces.get(&space) else { return Health::new("Unknown", "Unknown") };
    let rows = || record.ready_rows();
    let full = |row: &Row| record.resiliency_of(row).failures();
    let spares: Vec<_> = rows().map(|(_, row)| (spare_in_row(state, record, row), full(row))).collect();
    if spares.iter().any(|(spare, _)| spare.is_none()) {
        return Health::new("No redundancy", "Unhealthy");
    }
    if spares.iter().all(|(spare, full)| *spare == Some(*full)) {
        return Health::OK;
    }
    let copies = || rows().flat_map(|(_, row)| row.slabs.iter());
    if copies().all(|c| state.is_present(c.place.disk)) {
        return Health::new("In service", "Warning");
    }
    // The data of absent disks is stale (degraded), or still current (incomplete).
    match copies().any(|c| record.stale_regions(c) != 0) {
        true => Health::new("Degraded", "Warning"),
        false => Health::new("Incomplete", "Warning"),
    }
}

/// Problems that are not in the metadata.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    /// Spaces that cannot be opened, with the reason.
    pub not_open: BTreeMap<SpaceId, String>,
    /// Disks that are much slower than their peers.
    pub slow: BTreeSet<DiskNumber>,
    /// Disks with failed I/O.
    pub failing: BTreeSet<DiskNumber>,
}

/// The status of a disk.
pub fn of_disk(disk: DiskNumber, record: &DiskRecord, problems: &Problems) -> Health {
    match record.presence {
        Presence::Present if problems.failing.contains(&disk) => Health::new("IO error", "Unhealthy"),
        Presence::Present if problems.slow.contains(&disk) => Health::new("Abnormal latency", "Warning"),
        Presence::Present if record.usage == Usage::Retired => Health::new("Retired", "Warning"),
        Presence::Present => Health::OK,
        Presence::Absent(Absence::NotFound | Absence::Gone) => Health::new("Lost communication", "Warning"),
        Presence::Absent(Absence::WriteFailed | Absence::FlushFailed) => Health::new("IO error", "Unhealthy"),
        Presence::Absent(Absence::Slow) => Health::new("Abnormal latency", "Warning"),
        Presence::Absent(Absence::ByCommand) => Health::new("In maintenance mode", "Warning"),
        Presence::Absent(Absence::Stale) => Health::new("Stale metadata", "Unhealthy"),
    }
}

/// The status of an open pool, including its spaces and disks.
pub fn of_pool(state: &State, problems: &Problems, suspended: bool, read_only: bool) -> Health {
    if suspended {
        return Health::new("Read-only", "Unhealthy");
    }
    let spaces: Vec<_> = state.spaces.keys().map(|s| of_space(state, *s, problems, false)).collect();
    // A slow or retired disk does not degrade the pool as long as it is in service.
    let problems = Problems { slow: BTreeSet::new(), ..problems.clone() };
    let disks = state.disks.iter().map(|(number, record)| of_disk(*number, record, &problems));
    let disks = disks.filter(|h| h.operational != "Retired");
    if spaces.iter().any(|h| h.health == "Unhealthy") {
        Health::new("Degraded", "Unhealthy")
    } else if disks.chain(spaces.iter().copied()).any(|h| h != Health::OK) {
        Health::new("Degraded", "Warning")
    } else if read_only {
        Health::new("Read-only", "Healthy")
    } else {
        Health::OK
    }
}

/// Whether the pool continues without a present disk, and keeps all data that is on present disks.
pub fn may_leave(state: &State, disk: DiskNumber) -> bool {
    let left = state.voters.iter().filter(|v| **v != disk).count();
    state.is_present(disk) && left >= state.quorum_to_continue() && !state.needs(disk)
}

/// The number of whole rows of such a space that fit the pool, besides its log. Each row takes `slabs_in_row` slabs;
/// except for a simple space, each of them is on another disk.
pub fn rows_that_fit(state: &State, record: &SpaceRecord) -> u64 {
    rows_on(state, record, record.log_replicas())
}

/// [`rows_that_fit`] for an existing space: the number of rows that can be added.
pub fn rows_to_grow(state: &State, space: SpaceId) -> u64 {
    state.spaces.get(&space).map_or(0, |record| rows_on(state, record, 0))
}

/// Whether there is room for one more row of a space. As for a write, absent disks get slabs if too few disks are
/// present.
pub fn may_grow(state: &State, space: SpaceId) -> bool {
    // A row that does not exist has the current shape.
    let next = state.spaces.get(&space).map(|record| RowNumber::new(record.half, RowNumber::IN_HALF - 1));
    next.is_some_and(|row| placement::row(state, space, row, |_| true).is_ok())
}

fn rows_on(state: &State, record: &SpaceRecord, log_slabs: usize) -> u64 {
    let mut free: Vec<u64> = state
        .disks
        .iter()
        .filter(|(d, r)| r.usage == Usage::AutoSelect && state.is_present(**d))
        .filter(|(_, r)| record.media.takes(r.media()))
        .map(|(d, r)| u64::from(state.slabs_free(*d).saturating_sub(placement::reserve(r.slabs))))
        .collect();
    if log_slabs > 0 {
        // Its log takes one slab of each of the emptiest disks.
        free.sort_unstable_by_key(|f| std::cmp::Reverse(*f));
        free.iter_mut().take(log_slabs).for_each(|f| *f = f.saturating_sub(1));
    }
    let slabs = record.slabs_in_row().max(1) as u64;
    let total = free.iter().sum::<u64>() / slabs;
    if record.resiliency == Resiliency::Simple {
        return total;
    }
    // `rows` rows fit if the disks have enough slabs, when each disk gives at most one slab to a row.
    let fits = |rows: u64| free.iter().map(|f| (*f).min(rows)).sum::<u64>() >= rows * slabs;
    let (mut low, mut high) = (0, total);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests;
