//! A state as decoded from a disk: without derived fields, and untrusted until it is checked.

use super::apply::check_policy;
use super::{EPOCHS_MAX, GIVEN_UP_MAX, InvalidOp, State};
use crate::format::Areas;
use crate::format::codec::record;

record!(State {
    pool, name, slab_bytes, epochs, voters, next_disk, next_space, next_generation, disks, spaces, policy, given_up,
}, derived used, derived index);

impl State {
    /// Checks the invariants of a single state, and computes the derived fields.
    pub(crate) fn checked(mut self) -> Result<State, InvalidOp> {
        let slabs = Areas::SLAB_MIN..=Areas::SLAB_MAX;
        let is_slab = self.slab_bytes.is_power_of_two() && slabs.contains(&self.slab_bytes);
        let is_given_up = self.given_up.keys().all(|epoch| *epoch <= self.epoch());
        if !is_slab || self.epochs.len() > EPOCHS_MAX || self.given_up.len() > GIVEN_UP_MAX || !is_given_up {
            return Err(InvalidOp::BadShape("the record of the pool is invalid"));
        }
        check_policy(&self.policy)?;
        if let Some(disk) = self.disks.keys().find(|d| d.0 >= self.next_disk) {
            return Err(InvalidOp::NoDisk(*disk));
        }
        if self.disks.values().any(|d| !d.areas.is_sound()) {
            return Err(InvalidOp::BadShape("the record of a disk is invalid"));
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
