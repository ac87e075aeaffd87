//! A map keyed by the units of a group. Dense, because a table that is being written has entries for most of its units,
//! and each write looks up several of them.

use pool_seam::GROUP_UNITS;

use crate::blocks::Units;

/// See the module. `None` while there are no entries: an idle table takes no memory for this.
#[derive(Clone, Debug)]
pub(super) struct ByUnit<T>(Option<Box<Entries<T>>>);

#[derive(Clone, Debug)]
struct Entries<T> {
    units: Units,
    /// The index of each unit's entry; undefined for units without one.
    at: [u16; GROUP_UNITS as usize],
    /// The entries, unordered.
    entries: Vec<(u16, T)>,
}

impl<T> ByUnit<T> {
    pub(super) fn new() -> ByUnit<T> {
        ByUnit(None)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |all| all.entries.len())
    }

    /// Returns the bytes of memory, excluding allocations of the entries themselves, and the capacity in entries.
    pub(super) fn memory(&self) -> (usize, usize) {
        let Some(all) = &self.0 else { return (0, 0) };
        let entries = all.entries.capacity();
        (size_of::<Entries<T>>() + entries * size_of::<(u16, T)>(), entries)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn has(&self, unit: usize) -> bool {
        self.0.as_ref().is_some_and(|all| all.units.has(unit))
    }

    pub(super) fn get(&self, unit: usize) -> Option<&T> {
        let all = self.0.as_ref().filter(|all| all.units.has(unit))?;
        Some(&all.entries[usize::from(all.at[unit])].1)
    }

    pub(super) fn get_mut(&mut self, unit: usize) -> Option<&mut T> {
        let all = self.0.as_mut().filter(|all| all.units.has(unit))?;
        Some(&mut all.entries[usize::from(all.at[unit])].1)
    }

    pub(super) fn get_or_insert_with(&mut self, unit: usize, new: impl FnOnce() -> T) -> &mut T {
        let none = || Entries { units: Units::NONE, at: [0; GROUP_UNITS as usize], entries: Vec::new() };
        let all = self.0.get_or_insert_with(|| Box::new(none()));
        if !all.units.has(unit) {
            all.units.set(unit, true);
            all.at[unit] = all.entries.len() as u16;
            all.entries.push((unit as u16, new()));
        }
        &mut all.entries[usize::from(all.at[unit])].1
    }

    pub(super) fn remove(&mut self, unit: usize) {
        let Some(all) = self.0.as_mut().filter(|all| all.units.has(unit)) else { return };
        all.units.set(unit, false);
        let at = usize::from(all.at[unit]);
        all.entries.swap_remove(at);
        match all.entries.get(at) {
            Some((moved, _)) => all.at[usize::from(*moved)] = at as u16,
            None if all.entries.is_empty() => self.0 = None,
            None => {}
        }
    }

    /// Keeps the entries for which `keep` returns true; visits them in any order.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(usize, &mut T) -> bool) {
        let mut at = 0;
        while let Some((unit, entry)) = self.0.as_mut().and_then(|all| all.entries.get_mut(at)) {
            match usize::from(*unit) {
                unit if keep(unit, entry) => at += 1,
                unit => self.remove(unit),
            }
        }
    }

    /// In the order of the units.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let units = self.0.iter().flat_map(|all| all.units.iter());
        units.filter_map(|unit| Some((unit, self.get(unit)?)))
    }
}

#[cfg(test)]
mod tests;
