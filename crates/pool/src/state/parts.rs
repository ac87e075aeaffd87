//! A state as it is on disk: without what can be derived, and not to be trusted until it has been checked.

use std::collections::{BTreeMap, BTreeSet};

use super::moving::moves_since;
use super::{
    DiskRecord, EPOCHS_MAX, GIVEN_UP_MAX, InvalidOp, LossRecord, Policy, Row, ScrubRecord, Shared,
    SpaceRecord, State, Tree,
};
use crate::format::{Areas, FORMAT_VERSION};
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
    pub(crate) extras: Extras,
}

/// The additions since version 1. A state of that version has none of them, and its bytes are those of
/// version 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) version: u16,
    pub(crate) policy: Policy,
    pub(crate) scrubs: BTreeMap<SpaceId, ScrubRecord>,
    pub(crate) given_up: BTreeMap<u64, u64>,
    pub(crate) losses: BTreeMap<SpaceId, LossRecord>,
}

impl Extras {
    /// Of a state that says nothing of them.
    pub(crate) const NONE: Extras = Extras {
        version: 1,
        policy: Policy { warn_at: 70, repair_after_s: 300 },
        scrubs: BTreeMap::new(),
        given_up: BTreeMap::new(),
        losses: BTreeMap::new(),
    };
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
            extras: Extras {
                version: s.version,
                policy: s.policy,
                scrubs: (*s.scrubs).clone(),
                given_up: (*s.given_up).clone(),
                losses: (*s.losses).clone(),
            },
        }
    }

    /// Checks the invariants that can be checked on a state alone, and derives the rest.
    pub(crate) fn from_parts(p: StateParts) -> Result<State, InvalidOp> {
        let mut s = State::new(p.pool, p.name, p.slab_bytes);
        let slabs = Areas::SLAB_MIN..=Areas::SLAB_MAX;
        if !s.slab_bytes.is_power_of_two() || !slabs.contains(&s.slab_bytes) || p.epochs.len() > EPOCHS_MAX {
            return Err(InvalidOp::BadShape("no pool is like that"));
        }
        let Extras { version, policy, scrubs, given_up, losses } = p.extras;
        if !(1..=FORMAT_VERSION).contains(&version) {
            return Err(InvalidOp::Version(version));
        }
        (s.version, s.policy) = (version, policy);
        s.check_policy(&policy)?;
        s.epochs = p.epochs;
        s.regions_given_up = p.regions_given_up;
        (s.next_disk, s.next_space, s.next_generation) = (p.next_disk, p.next_space, p.next_generation);
        if let Some(disk) = p.disks.keys().find(|d| d.0 >= p.next_disk) {
            return Err(InvalidOp::NoDisk(*disk));
        }
        p.disks.values().try_for_each(|d| s.check_usage(d.usage))?;
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
            if let Some(m) = r.moving() {
                s.since(moves_since(record))?;
                if usize::from(m.index) >= r.slabs.len() {
                    return Err(bad);
                }
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
        if let Some(space) = scrubs.keys().find(|id| !s.spaces.contains_key(id)) {
            return Err(InvalidOp::NoSpace(*space));
        }
        if !scrubs.is_empty() {
            s.since(2)?;
        }
        s.scrubs = scrubs.into();
        if !given_up.is_empty() {
            s.since(5)?;
        }
        if given_up.len() > GIVEN_UP_MAX || given_up.keys().any(|e| *e > s.epoch()) {
            return Err(InvalidOp::BadShape("no pool is like that"));
        }
        s.given_up = given_up.into();
        s.take_losses(losses)?;
        Ok(s)
    }
}
