//! A state as it is on disk: without what can be derived, and not to be trusted until it has been checked.

use std::collections::{BTreeMap, BTreeSet};

use super::{DiskRecord, EPOCHS_MAX, InvalidOp, Row, ScrubRecord, SpaceRecord, State};
use crate::format::Areas;
use crate::{DiskNumber, PoolId, RowNumber, SpaceId};

/// The fields of [`State`], without `used`.
pub(crate) struct StateParts {
    pub(crate) pool: PoolId,
    pub(crate) name: String,
    pub(crate) slab_bytes: u64,
    pub(crate) epochs: BTreeMap<u64, u64>,
    pub(crate) voters: BTreeSet<DiskNumber>,
    pub(crate) next_disk: u16,
    pub(crate) next_space: u32,
    pub(crate) next_generation: u32,
    pub(crate) regions_given_up: u64,
    pub(crate) disks: BTreeMap<DiskNumber, DiskRecord>,
    pub(crate) spaces: BTreeMap<SpaceId, SpaceRecord>,
    pub(crate) rows: BTreeMap<(SpaceId, RowNumber), Row>,
    pub(crate) scrubs: Scrubs,
}

/// Not there at all when there are none: so a checkpoint of before there were any is the same.
pub(crate) struct Scrubs(pub(crate) BTreeMap<SpaceId, ScrubRecord>);

impl State {
    pub(crate) fn parts(&self) -> StateParts {
        let s = self.clone();
        StateParts {
            pool: s.pool,
            name: s.name,
            slab_bytes: s.slab_bytes,
            epochs: s.epochs,
            voters: s.voters,
            next_disk: s.next_disk,
            next_space: s.next_space,
            next_generation: s.next_generation,
            regions_given_up: s.regions_given_up,
            disks: s.disks,
            spaces: s.spaces,
            rows: s.rows,
            scrubs: Scrubs(s.scrubs),
        }
    }

    /// Checks the invariants that can be checked on a state alone, and derives the rest.
    pub(crate) fn from_parts(p: StateParts) -> Result<State, InvalidOp> {
        let mut s = State::new(p.pool, p.name, p.slab_bytes);
        let slabs = Areas::SLAB_MIN..=Areas::SLAB_MAX;
        if !s.slab_bytes.is_power_of_two() || !slabs.contains(&s.slab_bytes) || p.epochs.len() > EPOCHS_MAX {
            return Err(InvalidOp::BadShape("no pool is like that"));
        }
        s.epochs = p.epochs;
        s.regions_given_up = p.regions_given_up;
        (s.next_disk, s.next_space, s.next_generation) = (p.next_disk, p.next_space, p.next_generation);
        if let Some(disk) = p.disks.keys().find(|d| d.0 >= p.next_disk) {
            return Err(InvalidOp::NoDisk(*disk));
        }
        s.disks = p.disks;
        if p.voters.iter().any(|v| !s.is_present(*v)) {
            return Err(InvalidOp::BadVoters);
        }
        s.voters = p.voters;
        for (id, record) in &p.spaces {
            if id.0 >= p.next_space {
                return Err(InvalidOp::NoSpace(*id));
            }
            s.check_shape(record)?;
        }
        s.spaces = p.spaces;
        for (&(space, row), r) in &p.rows {
            let record = s.spaces.get(&space).ok_or(InvalidOp::NoSpace(space))?;
            let bad = InvalidOp::BadRow { space, row, slabs: r.slabs.len() };
            if r.slabs.len() != record.slabs_in_row() || u64::from(row.0) >= record.rows(s.slab_bytes) {
                return Err(bad);
            }
            for copy in &r.slabs {
                let disk = s.disks.get(&copy.place.disk).ok_or(InvalidOp::NoDisk(copy.place.disk))?;
                let free = copy.place.slab < disk.slabs
                    && s.used.entry(copy.place.disk).or_default().insert(copy.place.slab);
                if !free || copy.generation >= s.next_generation {
                    return Err(InvalidOp::NotFree(copy.place));
                }
            }
        }
        s.rows = p.rows;
        if let Some(space) = p.scrubs.0.keys().find(|id| !s.spaces.contains_key(id)) {
            return Err(InvalidOp::NoSpace(*space));
        }
        s.scrubs = p.scrubs.0;
        Ok(s)
    }
}
