//! A state as it is on disk: without what can be derived, and not to be trusted until it has been checked.

use super::apply::check_policy;
use super::{EPOCHS_MAX, GIVEN_UP_MAX, InvalidOp, State};
use crate::format::Areas;
use crate::format::codec::record;

record!(State {
    pool, name, slab_bytes, epochs, voters, next_disk, next_space, next_generation, disks, spaces, policy, given_up,
}, derived used, derived index);

impl State {
    /// Checks the invariants that can be checked on a state alone, and derives the rest.
    pub(crate) fn checked(mut self) -> Result<State, InvalidOp> {
        let slabs = Areas::SLAB_MIN..=Areas::SLAB_MAX;
        let is_slab = self.slab_bytes.is_power_of_two() && slabs.contains(&self.slab_bytes);
        let is_given_up = self.given_up.keys().all(|epoch| *epoch <= self.epoch());
        if !is_slab || self.epochs.len() > EPOCHS_MAX || self.given_up.len() > GIVEN_UP_MAX || !is_given_up {
            return Err(InvalidOp::BadShape("no pool is like that"));
        }
        check_policy(&self.policy)?;
        if let Some(disk) = self.disks.keys().find(|d| d.0 >= self.next_disk) {
            return Err(InvalidOp::NoDisk(*disk));
        }
        if self.disks.values().any(|d| !d.areas.is_sound()) {
            return Err(InvalidOp::BadShape("no disk is like that"));
        }
        if self.voters.iter().any(|v| !self.is_present(*v)) {
            return Err(InvalidOp::BadVoters);
        }
        (self.used, self.index) = Default::default();
        let spaces = std::mem::take(&mut self.spaces);
        self.take_spaces(&spaces)?;
        Ok(self)
    }
}
