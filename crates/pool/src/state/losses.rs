//! Known lost units of a space, across openings of the pool.

use std::collections::BTreeMap;

use super::{InvalidOp, State};
use crate::{LossRecord, SpaceId};

impl State {
    /// This is what is known to be lost of a space; nothing, if there are no units.
    pub(super) fn set_lost(&mut self, space: SpaceId, record: &LossRecord) -> Result<(), InvalidOp> {
        self.space(space)?;
        if !record.is_sound() {
            return Err(InvalidOp::BadShape("nothing is lost like that"));
        }
        match record.units {
            0 => drop(self.losses.remove(&space)),
            _ => drop(self.losses.insert(space, record.clone())),
        }
        Ok(())
    }

    /// The same of all spaces, as a checkpoint has it.
    pub(super) fn take_losses(&mut self, losses: &BTreeMap<SpaceId, LossRecord>) -> Result<(), InvalidOp> {
        if losses.values().any(|r| r.units == 0) {
            return Err(InvalidOp::BadShape("nothing is lost like that"));
        }
        losses.iter().try_for_each(|(space, record)| self.set_lost(*space, record))
    }
}
