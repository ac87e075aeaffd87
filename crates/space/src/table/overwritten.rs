//! Units whose only pending version is a written one that waits for a record, over a confirmed written value. Pure.
//!
//! Under random writes most pending units of a simple or mirrored space are like this. They take 4 bytes here instead
//! of those of a [`Pending`](super::pending::Pending), and a write does not wait for the memory of one.

use pool_seam::GROUP_UNITS;

use crate::blocks::Units;

/// See the module. `None` while there are no units. The table has the newest values.
#[derive(Clone, Debug, Default)]
pub(super) struct Overwritten(Option<Box<Confirmed>>);

#[derive(Clone, Debug)]
struct Confirmed {
    units: Units,
    /// The confirmed checksums; undefined for other units.
    sums: [u32; GROUP_UNITS as usize],
}

impl Overwritten {
    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.0.as_ref().map_or(0, |_| size_of::<Confirmed>())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn units(&self) -> Units {
        self.0.as_ref().map_or(Units::NONE, |all| all.units)
    }

    pub(super) fn has(&self, unit: usize) -> bool {
        self.0.as_ref().is_some_and(|all| all.units.has(unit))
    }

    /// The confirmed checksum of a unit.
    pub(super) fn get(&self, unit: usize) -> Option<u32> {
        self.0.as_ref().filter(|all| all.units.has(unit)).map(|all| all.sums[unit])
    }

    /// Adds a unit with this confirmed checksum.
    pub(super) fn add(&mut self, unit: usize, confirmed: u32) {
        let none = || Box::new(Confirmed { units: Units::NONE, sums: [0; GROUP_UNITS as usize] });
        let all = self.0.get_or_insert_with(none);
        all.units.set(unit, true);
        all.sums[unit] = confirmed;
    }

    /// Removes a unit; returns its confirmed checksum.
    pub(super) fn remove(&mut self, unit: usize) -> Option<u32> {
        let sum = self.get(unit)?;
        if let Some(all) = &mut self.0 {
            all.units.set(unit, false);
            if all.units.is_empty() {
                self.0 = None;
            }
        }
        Some(sum)
    }
}
