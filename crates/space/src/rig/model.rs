//! The bytes that a read may return, by unit of [`UNIT`] bytes.
//!
//! A unit has a list of its writes and discards, each with the times when it began, ended and became durable. A
//! change is *replaced* by another one that began after it had ended:
//!
//! 1. a read returns a value that no acknowledged change has replaced;
//! 2. after a crash ([`Model::after_crash`]) it returns a value that no durable change has replaced: a flush makes
//!    the changes durable that were acknowledged before it began;
//! 3. a write that failed may have had an effect, until it is replaced;
//! 4. after a crash the value of the first read stays ([`Model::settled`]).
//!
//! Times contain the machine's number of events, so that a crash at a past moment can be checked.

use std::collections::BTreeMap;
use std::ops::Range;

use arena::IoBuf;
use disk::sim::Machine;
use pool_seam::UNIT;

/// See the module.
#[derive(Clone)]
pub(crate) struct Model {
    machine: Machine,
    /// Counts the calls of the model.
    clock: u64,
    units: BTreeMap<u64, Vec<Change>>,
    changes: BTreeMap<u64, Times>,
    flushes: BTreeMap<u64, u64>,
}

/// A change of a unit: its version, and its value, which is the version or 0 for zeros.
#[derive(Clone, Copy)]
struct Change {
    version: u64,
    value: u64,
}

/// The number of the model's call, and the machine's number of events at that time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Time {
    event: u64,
    call: u64,
}

/// The times of a write; it is acknowledged if it ended without an error.
#[derive(Clone, Copy)]
struct Times {
    began: Time,
    ended: Option<Time>,
    is_acknowledged: bool,
    durable: Option<Time>,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Acknowledged.
    Done,
    /// Acknowledged, and durable (FUA).
    Durable,
    /// Failed with an error.
    Failed,
}

impl Model {
    /// A model in which all units are durably zeros.
    pub(crate) fn new(machine: &Machine) -> Model {
        Model {
            machine: machine.clone(),
            clock: 0,
            units: BTreeMap::new(),
            changes: BTreeMap::new(),
            flushes: BTreeMap::new(),
        }
    }

    /// Skips this many versions.
    pub(crate) fn skip(&mut self, versions: u64) {
        self.clock += versions;
    }

    /// Begins a write of these units; returns its version, for [`fill`].
    pub(crate) fn write_begun(&mut self, units: Range<u64>) -> u64 {
        self.begun(units, |version| version)
    }

    /// Begins a discard of these units; returns its version, for [`Model::ended`].
    pub(crate) fn discard_begun(&mut self, units: Range<u64>) -> u64 {
        self.begun(units, |_| 0)
    }

    fn begun(&mut self, units: Range<u64>, value: impl Fn(u64) -> u64) -> u64 {
        let began = self.now();
        let version = began.call;
        self.changes.insert(version, Times { began, ended: None, is_acknowledged: false, durable: None });
        for unit in units {
            self.units.entry(unit).or_default().push(Change { version, value: value(version) });
        }
        version
    }

    /// A write or discard ended.
    pub(crate) fn ended(&mut self, version: u64, end: End) {
        let now = self.now();
        let times = self.changes.get_mut(&version).expect("it began");
        times.ended = Some(now);
        times.is_acknowledged = end != End::Failed;
        times.durable = (end == End::Durable).then_some(now);
    }

    /// Begins a flush; returns its id for [`Model::flushed`].
    pub(crate) fn flush_begun(&mut self) -> u64 {
        let now = self.now().call;
        self.flushes.insert(now, now);
        now
    }

    /// The flush was acknowledged: writes that were acknowledged before it began are durable. A failed flush guarantees
    /// nothing, so it needs no call.
    pub(crate) fn flushed(&mut self, flush: u64) {
        let now = self.now();
        let began = self.flushes.remove(&flush).expect("it began");
        for times in self.changes.values_mut().filter(|times| times.is_acknowledged) {
            if times.ended.is_some_and(|ended| ended.call < began) {
                times.durable.get_or_insert(now);
            }
        }
    }

    /// The model of the machine after a power cut at `event`: changes that were not durable then may have happened or
    /// not. `u64::MAX`: after everything so far.
    pub(crate) fn after_crash(&self, event: u64, machine: &Machine) -> Model {
        let mut after = Model { machine: machine.clone(), ..self.clone() };
        // The new machine counts its events from 0.
        let crash = Time { event: 0, call: after.now().call };
        let is_before = |time: &Time| time.event <= event;
        let anew = |time: Time| Time { event: 0, ..time };
        after.changes.retain(|_, times| is_before(&times.began));
        for times in after.changes.values_mut() {
            let durable = times.durable.filter(is_before).map(anew);
            let ended = times.ended.filter(is_before).map_or(crash, anew);
            let is_acknowledged = durable.is_some();
            *times = Times { began: anew(times.began), ended: Some(ended), is_acknowledged, durable };
        }
        let changes = &after.changes;
        after.units.values_mut().for_each(|unit| unit.retain(|change| changes.contains_key(&change.version)));
        after.flushes.clear();
        after
    }

    /// The versions that a read of the unit may return; 0 stands for zeros.
    pub(crate) fn possible(&self, unit: u64) -> Vec<u64> {
        let changes = self.units.get(&unit).map_or(&[][..], Vec::as_slice);
        let times = |change: &Change| self.changes[&change.version];
        // All changes that had ended before the last acknowledged one began are replaced.
        let replacing = changes.iter().map(times).filter(|times| times.is_acknowledged);
        let last = replacing.map(|times| times.began.call).max();
        let is_replaced =
            |change: &Change| times(change).ended.zip(last).is_some_and(|(ended, last)| ended.call < last);
        let mut values: Vec<u64> = last.is_none().then_some(0).into_iter().collect();
        values.extend(changes.iter().filter(|change| !is_replaced(change)).map(|change| change.value));
        values.sort_unstable();
        values.dedup();
        values
    }

    /// Whether a read may have returned these bytes of a unit.
    pub(crate) fn check(&self, unit: u64, bytes: &[u8]) -> Result<(), String> {
        let possible = self.possible(unit);
        let found = tell(bytes).ok_or_else(|| format!("unit {unit} is torn or foreign, not {possible:?}"))?;
        match found {
            (of, version) if version != 0 && of != unit => {
                Err(format!("unit {unit} has unit {of}'s version {version}"))
            }
            (_, version) if !possible.contains(&version) => {
                Err(format!("unit {unit} has version {version}, not one of {possible:?}"))
            }
            _ => Ok(()),
        }
    }

    /// A read after a crash returned this version: from now on the unit durably has it. No write of the unit may be
    /// in flight.
    pub(crate) fn settled(&mut self, unit: u64, value: u64) {
        let began = self.now();
        let end = Some(self.now());
        let version = began.call;
        self.changes.insert(version, Times { began, ended: end, is_acknowledged: true, durable: end });
        self.units.insert(unit, vec![Change { version, value }]);
    }

    /// The current time: versions that begin later are higher.
    pub(crate) fn time(&self) -> u64 {
        self.clock
    }

    /// The units that were ever changed.
    pub(crate) fn units(&self) -> impl Iterator<Item = u64> {
        self.units.keys().copied()
    }

    fn now(&mut self) -> Time {
        self.clock += 1;
        Time { event: self.machine.events(), call: self.clock }
    }
}

/// The bytes of a version of a unit; versions count from 1. Each 16 bytes are different, so that torn or misplaced
/// pieces are detected.
pub(crate) fn fill(unit: u64, version: u64) -> IoBuf {
    let pair = |at: u64| [unit, version << 8 | at].map(u64::to_le_bytes).concat();
    IoBuf::from((0..UNIT / 16).flat_map(pair).collect::<Vec<u8>>())
}

/// The unit and version of these bytes; version 0 for zeros, `None` for other bytes.
pub(crate) fn tell(bytes: &[u8]) -> Option<(u64, u64)> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let (unit, version) = (word(0)?, word(8)? >> 8);
    let zeros = version == 0 && bytes.len() as u64 == UNIT && bytes.iter().all(|byte| *byte == 0);
    (zeros || version != 0 && bytes == &*fill(unit, version)).then_some((unit, version))
}
