//! The appended and acknowledged entries, and those that a later owner must find.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arena::Sg;
use disk::sim::Machine;
use parking_lot::Mutex;

use super::super::*;
use super::world::{World, redo, unit_of, written};
use crate::log::entry::{Change, Entry};

/// The history of a log. Each step is recorded with the machine's number of events at that time.
pub(super) struct Model {
    machine: Machine,
    next: Mutex<u32>,
    units: Mutex<BTreeMap<u32, Unit>>,
    annex: Mutex<BTreeMap<u64, Vec<Put>>>,
}

#[derive(Clone, Debug, Default)]
struct Unit {
    is_redo: bool,
    /// Whether it was passed to the log.
    enqueued: bool,
    acknowledged: Option<u64>,
    /// The checkpoint that wrote its block.
    block: Option<u64>,
    /// Its flush failed.
    doubted: bool,
}

#[derive(Clone, Debug)]
struct Put {
    value: Option<Vec<u8>>,
    acknowledged: Option<u64>,
}

impl Model {
    pub(super) fn new(machine: &Machine) -> Arc<Model> {
        let (next, units, annex) = (Mutex::new(1), Mutex::default(), Mutex::default());
        Arc::new(Model { machine: machine.clone(), next, units, annex })
    }

    /// A unit that no other entry uses.
    pub(super) fn unit(&self, is_redo: bool) -> u32 {
        let mut next = self.next.lock();
        *next += 1;
        self.units.lock().insert(*next, Unit { is_redo, ..Unit::default() });
        *next
    }

    pub(super) fn enqueued(&self, unit: u32) {
        self.units.lock().get_mut(&unit).expect("a unit").enqueued = true;
    }

    pub(super) fn acknowledged(&self, unit: u32) {
        self.units.lock().get_mut(&unit).expect("a unit").acknowledged = Some(self.machine.events());
    }

    pub(super) fn doubted(&self, unit: u32) {
        self.units.lock().get_mut(&unit).expect("a unit").doubted = true;
    }

    /// Records a change of a key; returns its number.
    pub(super) fn annex(&self, key: u64, value: Option<Vec<u8>>) -> usize {
        let mut annex = self.annex.lock();
        let puts = annex.entry(key).or_default();
        puts.push(Put { value, acknowledged: None });
        puts.len() - 1
    }

    pub(super) fn annex_refused(&self, key: u64) {
        self.annex.lock().get_mut(&key).expect("a key").pop();
    }

    pub(super) fn annex_acknowledged(&self, key: u64, number: usize) {
        self.annex.lock().get_mut(&key).expect("a key")[number].acknowledged = Some(self.machine.events());
    }

    /// The parts of a snapshot: the blocks have the acknowledged units, and the other units are carried.
    pub(super) fn parts(&self) -> Parts {
        let mut parts = Parts::default();
        for (unit, noted) in self.units.lock().iter_mut().filter(|(_, noted)| noted.enqueued) {
            if noted.block.is_some() {
                continue;
            }
            if noted.acknowledged.is_some() || noted.doubted {
                noted.block = Some(self.machine.events());
                continue;
            }
            let (entry, payload) = if noted.is_redo { redo(*unit) } else { (written(*unit), Sg::new()) };
            parts.carried.push((Entry { is_unconfirmed: true, ..entry }, payload));
        }
        parts
    }

    /// Compares the history with the log of an owner that opened it after a power cut before event `cut`.
    pub(super) fn check(&self, world: &World, log: &SpaceLog, opened: &Opened, cut: u64, what: &str) {
        assert_eq!(opened.log.findings, [], "{what}: honest disks");
        let mut found: BTreeSet<u32> = BTreeSet::new();
        let mut doubted: BTreeSet<u32> = BTreeSet::new();
        for (_, entry) in opened.log.entries() {
            found.extend(unit_of(entry));
            if let Change::Doubt { first, .. } = entry.change {
                doubted.insert(first.unit);
            }
        }
        let units = self.units.lock();
        for (unit, noted) in units.iter() {
            let is_block = noted.block.is_some_and(|at| at <= cut);
            if noted.acknowledged.is_some_and(|at| at <= cut) {
                assert!(is_block || found.contains(unit), "{what}: unit {unit} was acknowledged: {noted:?}");
                assert!(noted.is_redo || world.has(*unit), "{what}: the data of unit {unit} was flushed");
            }
        }
        for (record, entry) in opened.log.entries() {
            let Change::Written { first, .. } = &entry.change else { continue };
            if record.confirmed && !entry.is_unconfirmed && !doubted.contains(&first.unit) {
                assert!(
                    world.has(first.unit) || units[&first.unit].doubted && units[&first.unit].block.is_some(),
                    "{what}: the data of unit {} is missing, but {:?} is confirmed",
                    first.unit,
                    record.head.id
                );
            }
        }
        for (sequence, record) in (opened.log.header.tail.sequence..).zip(&opened.log.records) {
            assert_eq!(record.head.id.sequence, sequence, "{what}: sequences have no gap");
        }
        let annex: BTreeMap<u64, Arc<[u8]>> = log.annex_all().into_iter().collect();
        for (key, puts) in self.annex.lock().iter() {
            let from = puts.iter().rposition(|put| put.acknowledged.is_some_and(|at| at <= cut));
            let found = annex.get(key).map(|value| value.to_vec());
            let is_allowed = puts[from.unwrap_or(0)..].iter().any(|put| put.value == found);
            assert!(is_allowed || from.is_none() && found.is_none(), "{what}: annex key {key} is {found:?}");
        }
    }
}
