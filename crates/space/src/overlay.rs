//! Entries of a log that was read at opening, until the tables of their groups are loaded: rule 1. They are then
//! applied over the values of the blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use arena::Sg;
use parking_lot::Mutex;
use pool_seam::{GROUP_UNITS, SpaceView};
use rustc_hash::FxHashMap;

use crate::log::BLOCK;
use crate::log::entry::{Change, FirstStripe, FirstUnit};
use crate::log::replay::Log;
use crate::table::{Carrier, Table};
use crate::view::GroupKey;

/// See the module.
#[derive(Default)]
pub(crate) struct Overlay(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    groups: FxHashMap<GroupKey, Vec<GroupEntry>>,
    /// The last record that the log declares confirmed.
    confirmed: u64,
}

/// An entry with units of a group.
#[derive(Clone)]
struct GroupEntry {
    change: Arc<Change>,
    /// The payload units of a redo.
    payload: Sg,
    carrier: Carrier,
    /// The last confirmed record, as stated in the entry's own record.
    declared: u64,
}

impl Overlay {
    /// Loads the entries of a log. Those of rows that do not exist, or were reallocated, are void.
    pub(crate) fn restore(&self, view: &SpaceView, log: &Log, payloads: &BTreeMap<u64, Sg>) {
        let mut entries = self.0.lock();
        entries.confirmed = log.closed.confirmed;
        let (mut sequence, mut taken) = (0, 0);
        for (record, entry) in log.entries() {
            if sequence != record.head.id.sequence {
                (sequence, taken) = (record.head.id.sequence, 0);
            }
            let length = entry.payload().count() * BLOCK;
            let payload: Sg = match payloads.get(&sequence) {
                Some(all) if length > 0 => arena::sg_slice(all, taken, length),
                _ => Sg::new(),
            };
            taken += length;
            let Some((first, count)) = units_of(&entry.change) else { continue };
            let row = view.record.rows.get(&first.row).filter(|row| row.birth == first.birth);
            let Some(row) = row else { continue };
            let set = if view.record.resiliency_of(row).is_parity() { 0 } else { first.column };
            let change = Arc::new(entry.change.clone());
            let last = u64::from(first.unit) + count as u64 - 1;
            for group in u64::from(first.unit) / GROUP_UNITS..=last / GROUP_UNITS {
                let key = GroupKey { row: first.row, set, group: group as u32 };
                let (change, carrier) = (Arc::clone(&change), log.carrier(record, entry));
                let (declared, payload) = (record.head.id.confirmed, payload.clone());
                entries.groups.entry(key).or_default().push(GroupEntry {
                    change,
                    payload,
                    carrier,
                    declared,
                });
            }
        }
    }

    /// The groups with entries that may be in no table.
    pub(crate) fn groups(&self) -> Vec<GroupKey> {
        let mut groups: Vec<_> = self.0.lock().groups.keys().copied().collect();
        groups.sort_unstable();
        groups
    }

    /// Whether the log has entries of a group whose table was not loaded since.
    pub(crate) fn names(&self, key: &GroupKey) -> bool {
        self.0.lock().groups.contains_key(key)
    }

    /// Applies the entries of a table's group to it.
    pub(crate) fn apply(&self, key: GroupKey, table: &mut Table) {
        let entries = self.0.lock();
        let of_group = entries.groups.get(&key).cloned().unwrap_or_default();
        let confirmed = entries.confirmed;
        drop(entries);
        for GroupEntry { change, payload, carrier, declared } in of_group {
            table.advance(declared, declared);
            table.apply(&change, carrier, &payload);
        }
        table.advance(confirmed, confirmed);
        // A disk that was rolled back since the last checkpoint may lack these units.
        let units = table.only_in_log();
        table.unresolve(units.iter());
    }

    /// Removes the entries of a group here, because its table has them and is dirty.
    pub(crate) fn loaded(&self, key: &GroupKey) {
        self.0.lock().groups.remove(key);
    }
}

/// The first unit or stripe of an entry, and their number.
fn units_of(change: &Change) -> Option<(FirstUnit, usize)> {
    let stripe = |first: &FirstStripe| {
        let FirstStripe { row, birth, unit } = *first;
        FirstUnit { row, birth, content: 0, column: 0, unit }
    };
    match change {
        Change::Written { first, sums } | Change::Lost { first, sums } => Some((*first, sums.len())),
        Change::Discarded { first, count }
        | Change::LostWithoutSum { first, count }
        | Change::Doubt { first, count } => Some((*first, usize::from(*count))),
        Change::Fresh { first, stripes } => Some((stripe(first), stripes.len())),
        Change::Redo { first, stripes } => Some((stripe(first), stripes.len())),
        _ => None,
    }
}
