//! Regions whose written units may be overwritten in place: `docs/0004-spaces.md`, rule 2. Pure.
//!
//! A region is *active* from the record with its `active` entry until a snapshot without an entry for it.
//!
//! Invariants:
//! 1. An overwrite of a firm unit begins after the entry of its region is durable.
//! 2. A snapshot has every region whose entry was appended before it, except those without an overwrite that waits, is
//!    in flight, or has completed and is not confirmed.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pool_seam::RowNumber;
use smallvec::SmallVec;

use crate::log::commit::{RecordCapacity, Size};
use crate::log::entry::{Change, Entry};

/// The active regions of a space.
#[derive(Default)]
pub(crate) struct Active(Mutex<BTreeMap<SetKey, Regions>>);

/// A set of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SetKey {
    pub(crate) row: RowNumber,
    pub(crate) birth: u32,
    pub(crate) set: u8,
}

/// The regions of a set, as bitmasks.
#[derive(Default)]
struct Regions {
    /// Regions whose entry waits for a record.
    waiting: u64,
    /// Regions whose entry is in a record.
    taken: u64,
    /// Regions whose entry is in a durable record.
    durable: u64,
    /// Regions in which an overwrite has completed whose value may not be confirmed.
    completed: u64,
    /// Regions that were active at a crash and still have undecided units.
    unresolved: u64,
    /// The number of overwrites that wait or are in flight, by region.
    begun: SmallVec<[(u8, u32); 2]>,
}

/// An overwrite that waits or is in flight; it ends on drop.
pub(crate) struct Overwrite {
    active: Arc<Active>,
    set: SetKey,
    region: u8,
}

impl Active {
    /// Restores the active regions from a log's entries, in their order. All are unresolved after the crash.
    pub(crate) fn restore<'a>(&self, changes: impl Iterator<Item = &'a Change>) {
        let mut all = self.0.lock();
        for change in changes {
            match *change {
                Change::SnapshotBegins { .. } => all.clear(),
                Change::Active { row, birth, set, regions } => {
                    let at = all.entry(SetKey { row, birth, set }).or_default();
                    (at.durable, at.unresolved) = (at.durable | regions, at.unresolved | regions);
                }
                _ => {}
            }
        }
    }

    /// Removes a row that is freed.
    pub(crate) fn forget(&self, row: RowNumber) {
        self.0.lock().retain(|set, _| set.row != row);
    }

    /// Whether no region is active.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Whether a write that a crash interrupted may have changed units of a region.
    pub(crate) fn is_unresolved(&self, set: SetKey, region: u64) -> bool {
        self.0.lock().get(&set).is_some_and(|regions| regions.unresolved & region != 0)
    }

    /// The unresolved regions: each with its set and its number.
    pub(crate) fn unresolved(&self) -> Vec<(SetKey, u32)> {
        let all = self.0.lock();
        let of_set = |(set, regions): (&SetKey, &Regions)| {
            let (set, unresolved) = (*set, regions.unresolved);
            (0..u64::BITS)
                .filter(move |region| unresolved & 1 << region != 0)
                .map(move |region| (set, region))
        };
        all.iter().flat_map(of_set).collect()
    }

    /// Marks a region (one bit) as unresolved, if it is active: its disk may have lost overwrites.
    pub(crate) fn unresolve(&self, set: SetKey, region: u64) {
        if let Some(regions) = self.0.lock().get_mut(&set) {
            regions.unresolved |= (regions.taken | regions.durable) & region;
        }
    }

    /// Marks a region as resolved: all of its units are decided.
    pub(crate) fn resolved(&self, set: SetKey, region: u32) {
        if let Some(regions) = self.0.lock().get_mut(&set) {
            regions.unresolved &= !(1 << region);
        }
    }

    /// Begins an overwrite in a region (one bit). Returns `None` if the region is not durably active.
    pub(crate) fn begin(self: &Arc<Active>, set: SetKey, region: u64) -> Option<Overwrite> {
        let mut all = self.0.lock();
        let regions = all.get_mut(&set).filter(|regions| regions.durable & region != 0)?;
        regions.begin(region);
        Some(Overwrite { active: Arc::clone(self), set, region: region.trailing_zeros() as u8 })
    }

    /// Begins an overwrite in a region whose entry is queued for a record, or is in one. The caller flushes the log,
    /// and then calls [`Overwrite::is_durable`].
    pub(crate) fn want(self: &Arc<Active>, set: SetKey, region: u64) -> Overwrite {
        let mut all = self.0.lock();
        let regions = all.entry(set).or_default();
        regions.waiting |= region & !regions.taken & !regions.durable;
        regions.begin(region);
        Overwrite { active: Arc::clone(self), set, region: region.trailing_zeros() as u8 }
    }

    /// Whether a record has the entry of a region.
    pub(crate) fn has(&self, set: SetKey, region: u64) -> bool {
        self.0.lock().get(&set).is_some_and(|regions| (regions.taken | regions.durable) & region != 0)
    }

    /// Takes waiting entries, as many as fit; returns whether others still wait.
    pub(crate) fn take(&self, capacity: &mut RecordCapacity) -> (Vec<Entry>, bool) {
        let mut entries = Vec::new();
        for (set, regions) in self.0.lock().iter_mut().filter(|(_, regions)| regions.waiting != 0) {
            let entry = set.entry(regions.waiting);
            if !capacity.add(Size { body: entry.bytes(), units: 0 }) {
                return (entries, true);
            }
            entries.push(entry);
            regions.taken |= std::mem::take(&mut regions.waiting);
        }
        (entries, false)
    }

    /// Returns the regions with completed overwrites, before a commit that confirms these. If it does not, they are
    /// given back with [`Active::not_confirmed`].
    pub(crate) fn take_completed(&self) -> Vec<(SetKey, u64)> {
        let mut all = self.0.lock();
        all.iter_mut().map(|(set, regions)| (*set, std::mem::take(&mut regions.completed))).collect()
    }

    /// See [`Active::take_completed`].
    pub(crate) fn not_confirmed(&self, completed: Vec<(SetKey, u64)>) {
        let mut all = self.0.lock();
        for (set, bits) in completed {
            if let Some(regions) = all.get_mut(&set) {
                regions.completed |= bits;
            }
        }
    }

    /// The entries for a snapshot; all other regions become inactive.
    pub(crate) fn snapshot(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.0.lock().retain(|set, regions| {
            let begun = regions.begun.iter().fold(0, |bits, (region, _)| bits | 1_u64 << region);
            let kept = (regions.taken | regions.durable) & (begun | regions.unresolved | regions.completed);
            (regions.taken, regions.durable) = (regions.taken & kept, regions.durable & kept);
            if kept != 0 {
                entries.push(set.entry(kept));
            }
            kept | begun != 0
        });
        entries
    }
}

impl SetKey {
    fn entry(&self, regions: u64) -> Entry {
        let SetKey { row, birth, set } = *self;
        Change::Active { row, birth, set, regions }.into()
    }
}

impl Regions {
    fn begin(&mut self, region: u64) {
        let region = region.trailing_zeros() as u8;
        match self.begun.iter_mut().find(|(other, _)| *other == region) {
            Some((_, number)) => *number += 1,
            None => self.begun.push((region, 1)),
        }
    }
}

impl Overwrite {
    /// Marks the region unresolved, as after a crash, because the overwrite failed.
    pub(crate) fn failed(&self) {
        if let Some(regions) = self.active.0.lock().get_mut(&self.set) {
            regions.unresolved |= 1 << self.region;
        }
    }

    /// Marks the region durably active: the record with its entry is durable.
    pub(crate) fn is_durable(&self) {
        if let Some(regions) = self.active.0.lock().get_mut(&self.set) {
            regions.durable |= 1 << self.region;
        }
    }
}

impl Drop for Overwrite {
    fn drop(&mut self) {
        let mut all = self.active.0.lock();
        let Some(regions) = all.get_mut(&self.set) else { return };
        regions.completed |= 1 << self.region;
        if let Some(at) = regions.begun.iter().position(|(region, _)| *region == self.region) {
            regions.begun[at].1 -= 1;
            if regions.begun[at].1 == 0 {
                regions.begun.swap_remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
