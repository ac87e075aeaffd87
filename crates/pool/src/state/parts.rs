//! A state as it is on disk: without what can be derived, and not to be trusted until it has been checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::apply::check_policy;
use super::{
    DiskRecord, EPOCHS_MAX, GIVEN_UP_MAX, InvalidOp, LossRecord, Policy, Row, ScrubRecord, Shared,
    SpaceRecord, State, Tree,
};
use crate::format::Areas;
use crate::{DiskNumber, PoolId, RowNumber, SpaceId};

/// The fields of [`State`], without `used`.
pub(crate) struct StateParts {
    pub(crate) pool: PoolId,
    pub(crate) name: String,
    pub(crate) slab_bytes: u64,
    pub(crate) epochs: Shared<BTreeMap<u64, u64>>,
    pub(crate) voters: BTreeSet<DiskNumber>,
    pub(crate) next_disk: u16,
    pub(crate) next_space: u32,
    pub(crate) next_generation: u32,
    pub(crate) regions_given_up: u64,
    pub(crate) disks: Shared<BTreeMap<DiskNumber, DiskRecord>>,
    pub(crate) spaces: Shared<BTreeMap<SpaceId, SpaceRecord>>,
    pub(crate) rows: Tree<(SpaceId, RowNumber), Row>,
    pub(crate) policy: Policy,
    pub(crate) scrubs: Shared<BTreeMap<SpaceId, ScrubRecord>>,
    pub(crate) given_up: Shared<BTreeMap<u64, u64>>,
    pub(crate) losses: Shared<BTreeMap<SpaceId, LossRecord>>,
    pub(crate) owned: Tree<SpaceId, Arc<pool_seam::SpaceRecord>>,
}

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
            policy: s.policy,
            scrubs: s.scrubs,
            given_up: s.given_up,
            losses: s.losses,
            owned: s.owned,
        }
    }

    /// Checks the invariants that can be checked on a state alone, and derives the rest.
    pub(crate) fn from_parts(p: StateParts) -> Result<State, InvalidOp> {
        let mut s = State::new(p.pool, p.name, p.slab_bytes);
        let slabs = Areas::SLAB_MIN..=Areas::SLAB_MAX;
        if !s.slab_bytes.is_power_of_two() || !slabs.contains(&s.slab_bytes) || p.epochs.len() > EPOCHS_MAX {
            return Err(InvalidOp::BadShape("no pool is like that"));
        }
        check_policy(&p.policy)?;
        s.policy = p.policy;
        s.epochs = p.epochs;
        s.regions_given_up = p.regions_given_up;
        (s.next_disk, s.next_space, s.next_generation) = (p.next_disk, p.next_space, p.next_generation);
        if let Some(disk) = p.disks.keys().find(|d| d.0 >= p.next_disk) {
            return Err(InvalidOp::NoDisk(*disk));
        }
        s.disks = p.disks;
        if s.disks.values().any(|d| !d.areas.is_sound()) {
            return Err(InvalidOp::BadShape("no disk is like that"));
        }
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
            if r.moving().is_some_and(|m| usize::from(m.index) >= r.slabs.len()) {
                return Err(bad);
            }
            for (_, copy) in r.copies() {
                let disk = s.disks.get(&copy.place.disk).ok_or(InvalidOp::NoDisk(copy.place.disk))?;
                let free = copy.place.slab < disk.slabs && s.used.insert(copy.place);
                if !free || copy.generation >= s.next_generation {
                    return Err(InvalidOp::NotFree(copy.place));
                }
            }
        }
        s.rows = p.rows;
        if let Some(space) = p.scrubs.keys().find(|id| !s.spaces.contains_key(id)) {
            return Err(InvalidOp::NoSpace(*space));
        }
        s.scrubs = p.scrubs;
        if p.given_up.len() > GIVEN_UP_MAX || p.given_up.keys().any(|e| *e > s.epoch()) {
            return Err(InvalidOp::BadShape("no pool is like that"));
        }
        s.given_up = p.given_up;
        s.take_losses(&p.losses)?;
        s.take_owned(&p.owned)?;
        Ok(s)
    }
}
