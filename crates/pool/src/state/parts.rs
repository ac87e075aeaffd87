//! A state as it is on disk: without what can be derived, and not to be trusted until it has been checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::apply::check_policy;
use super::{DiskRecord, EPOCHS_MAX, GIVEN_UP_MAX, InvalidOp, Policy, Shared, SpaceRecord, State, Tree};
use crate::format::Areas;
use crate::{DiskNumber, PoolId, SpaceId};

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
    pub(crate) disks: Shared<BTreeMap<DiskNumber, DiskRecord>>,
    pub(crate) spaces: Tree<SpaceId, Arc<SpaceRecord>>,
    pub(crate) policy: Policy,
    pub(crate) given_up: Shared<BTreeMap<u64, u64>>,
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
            disks: s.disks,
            spaces: s.spaces,
            policy: s.policy,
            given_up: s.given_up,
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
        if p.given_up.len() > GIVEN_UP_MAX || p.given_up.keys().any(|e| *e > s.epoch()) {
            return Err(InvalidOp::BadShape("no pool is like that"));
        }
        s.given_up = p.given_up;
        s.take_spaces(&p.spaces)?;
        Ok(s)
    }
}
