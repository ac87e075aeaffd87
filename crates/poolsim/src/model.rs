//! The bytes that a read of a space may return, by unit of [`UNIT`] bytes.
//!
//! A unit has a list of its changes (writes and discards), each with the times when it began, ended and was
//! acknowledged. A change is *replaced* by an acknowledged one that began after it had ended.
//!
//! 1. A read returns a change that was not replaced when the read began, or zeros if no change was acknowledged
//!    before.
//! 2. The value that a read returned is the newest of all changes that had ended when the read began: two reads
//!    agree.
//! 3. A flush makes the changes durable that were acknowledged before it began. After a crash ([`Model::crashed`])
//!    any other change may have happened or not. The first read decides that; later crashes do not change the
//!    decision.
//! 4. A change that failed may have happened, until it is replaced.
//! 5. A disk may be damaged or rolled back when a pool is opened again ([`Model::disk_was_corrupted`]). Then a read of
//!    a mirrored unit that was not flushed since its last change may return that disk's copy: the log has no checksum
//!    of the new data yet. Two reads agree. The same applies to a unit that a crash has left undecided, if bits are
//!    flipped before a read decides it ([`Model::flipped`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use arena::IoBuf;
use pool_seam::UNIT;

/// The most bits that damage changes in a unit: twice the most that one damage flips.
const BITS: u32 = 24;

/// See the module.
#[derive(Default)]
pub(crate) struct Model {
    clock: u64,
    units: BTreeMap<u64, Vec<Change>>,
    /// Discards in flight, with their versions: they also apply to a unit whose first write begins meanwhile.
    discards: Vec<(u64, Range<u64>)>,
    /// Units that may have any contents, and the bytes that a read has returned since.
    undefined: BTreeMap<u64, Option<Vec<u8>>>,
    /// Units in which a few bits may be wrong.
    flipped: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    version: u64,
    /// The version, or 0 for zeros.
    value: u64,
    /// The change replaces changes that ended before this time: its beginning, or the beginning of the last read that
    /// returned it.
    order: u64,
    ended: Option<u64>,
    acknowledged: Option<u64>,
    is_durable: bool,
    /// It was not durable at a crash.
    is_open: bool,
}

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    /// Acknowledged, and durable.
    Durable,
    Failed,
}

impl Model {
    fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Begins a write of these units; returns its version.
    pub(crate) fn write_begun(&mut self, units: Range<u64>) -> u64 {
        let version = self.now();
        for unit in units {
            let discards = self.discards.iter().filter(|(_, units)| units.contains(&unit));
            let begun = || discards.map(|(version, _)| Change::new(*version, 0)).collect();
            self.units.entry(unit).or_insert_with(begun).push(Change::new(version, version));
        }
        version
    }

    /// Begins a discard of these units; returns its version.
    pub(crate) fn discard_begun(&mut self, units: Range<u64>) -> u64 {
        let version = self.now();
        self.discards.push((version, units.clone()));
        // Units without changes are zeros already.
        for (_, changes) in self.units.range_mut(units) {
            changes.push(Change::new(version, 0));
        }
        version
    }

    /// A write or discard of these units ended.
    pub(crate) fn ended(&mut self, units: Range<u64>, version: u64, end: End) {
        let now = self.now();
        self.discards.retain(|(discard, _)| *discard != version);
        for (_, changes) in self.units.range_mut(units.clone()) {
            for change in changes.iter_mut().filter(|change| change.version == version) {
                change.ended = Some(now);
                change.acknowledged = (end != End::Failed).then_some(now);
                change.is_durable = end == End::Durable;
            }
            forget(changes);
        }
        if end != End::Failed {
            self.undefined.retain(|unit, _| !units.contains(unit));
            self.flipped.retain(|unit| !units.contains(unit));
        }
    }

    /// The time at which a flush or a read begins.
    pub(crate) fn time(&mut self) -> u64 {
        self.now()
    }

    /// The flush that began at this time was acknowledged.
    pub(crate) fn flushed(&mut self, began: u64) {
        for changes in self.units.values_mut() {
            for change in changes.iter_mut() {
                change.is_durable |= change.acknowledged.is_some_and(|at| at < began);
            }
            forget(changes);
        }
    }

    /// The owner has ended, with or without a power cut: rule 3.
    pub(crate) fn crashed(&mut self) {
        let now = self.now();
        self.discards.clear();
        for changes in self.units.values_mut() {
            for change in changes.iter_mut().filter(|change| !change.is_durable) {
                change.ended.get_or_insert(now);
                change.acknowledged = None;
                change.is_open = true;
            }
        }
    }

    /// Rule 5: a disk was damaged or rolled back.
    pub(crate) fn disk_was_corrupted(&mut self) {
        for unit in self.changing() {
            self.undefined.entry(unit).or_insert(None);
        }
    }

    /// Rule 5: at most [`BITS`] bits of a unit were flipped.
    pub(crate) fn flipped(&mut self) {
        self.flipped.extend(self.changing());
    }

    /// Units that a crash has left undecided between several changes.
    fn changing(&self) -> Vec<u64> {
        let is_undecided = |change: &Change, all: &[Change]| {
            let is_replaced = all.iter().any(|by| by.acknowledged.is_some() && change.is_before(by));
            change.is_open && change.acknowledged.is_none() && !is_replaced
        };
        let changing =
            self.units.iter().filter(|(_, all)| all.iter().any(|change| is_undecided(change, all)));
        changing.map(|(unit, _)| *unit).collect()
    }

    /// The versions that a read of the unit may return if it began at this time; 0 stands for zeros.
    pub(crate) fn possible(&self, unit: u64, began: u64) -> Vec<u64> {
        let changes = self.units.get(&unit).map_or(&[][..], Vec::as_slice);
        let before = |change: &&Change| change.acknowledged.is_some_and(|at| at < began);
        let is_replaced = |change: &&Change| changes.iter().filter(before).any(|by| change.is_before(by));
        let is_empty = !changes.iter().any(|change| before(&change));
        let mut values: Vec<u64> = is_empty.then_some(0).into_iter().collect();
        values.extend(changes.iter().filter(|change| !is_replaced(change)).map(|change| change.value));
        values.sort_unstable();
        values.dedup();
        values
    }

    /// A read that began at this time returned these bytes of a unit.
    ///
    /// # Errors If the model does not allow these bytes: the reason.
    pub(crate) fn read(&mut self, unit: u64, bytes: &[u8], began: u64) -> Result<(), String> {
        let possible = self.possible(unit, began);
        if let Some(undefined) = self.undefined.get_mut(&unit) {
            let is_expected = tell(bytes)
                .is_some_and(|(of, version)| (of == unit || version == 0) && possible.contains(&version));
            match undefined {
                None if is_expected => _ = self.undefined.remove(&unit),
                None => {
                    *undefined = Some(bytes.to_vec());
                    return Ok(());
                }
                Some(before) if before == bytes || is_expected => return Ok(()),
                Some(_) => {}
            }
        }
        if self.flipped.remove(&unit) && tell(bytes).is_none() {
            let is_near = |version: &u64| {
                let right =
                    if *version == 0 { IoBuf::from(vec![0; bytes.len()]) } else { fill(unit, *version) };
                let wrong = right.iter().zip(bytes).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
                wrong <= BITS
            };
            if possible.iter().any(is_near) {
                self.undefined.insert(unit, Some(bytes.to_vec()));
                return Ok(());
            }
        }
        let seen = tell(bytes).ok_or_else(|| format!("unit {unit} is torn or foreign, not {possible:?}"))?;
        match seen {
            (of, version) if version != 0 && of != unit => {
                return Err(format!("unit {unit} has unit {of}'s version {version}"));
            }
            (_, version) if !possible.contains(&version) => {
                let changes = self.units.get(&unit);
                return Err(format!("unit {unit} has version {version}, not {possible:?} of {changes:?}"));
            }
            (_, version) => self.seen(unit, version, began),
        }
        Ok(())
    }

    /// Rule 2: a read that began at this time returned this value.
    fn seen(&mut self, unit: u64, value: u64, began: u64) {
        let now = self.now();
        let Some(changes) = self.units.get_mut(&unit) else { return };
        let ended = |change: &Change| change.ended.is_some_and(|at| at < began);
        if value != 0 {
            let of = changes.iter_mut().find(|change| change.value == value && ended(change));
            if let Some(change) = of {
                change.order = change.order.max(began);
                change.acknowledged.get_or_insert(now);
                change.is_durable |= change.is_open;
            }
        } else if changes.iter().any(|change| change.value != 0 && ended(change)) {
            let is_durable = changes
                .iter()
                .filter(|change| ended(change))
                .all(|change| change.is_open || change.is_durable);
            let is_discard = changes.iter().any(|change| change.value == 0 && !ended(change));
            if !is_discard {
                changes.push(Change {
                    order: began,
                    ended: Some(now),
                    acknowledged: Some(now),
                    is_durable,
                    ..Change::new(now, 0)
                });
            }
        }
        forget(changes);
    }

    /// The units that were ever written.
    pub(crate) fn units(&self) -> Vec<u64> {
        self.units.keys().copied().collect()
    }
}

impl Change {
    /// Whether this change had ended when the other one began. A read may have moved the other's `order`, even beyond
    /// its end.
    fn is_before(&self, other: &Change) -> bool {
        self.version != other.version && self.ended.is_some_and(|ended| ended < other.order)
    }

    fn new(version: u64, value: u64) -> Change {
        Change {
            version,
            value,
            order: version,
            ended: None,
            acknowledged: None,
            is_durable: false,
            is_open: false,
        }
    }
}

/// Drops changes that no read can return any more, not even after a crash. A read that began before a change was
/// acknowledged may return the replaced value; no read lasts for more than 400 ticks of the clock.
fn forget(changes: &mut Vec<Change>) {
    let is_kept = |change: &Change| change.is_durable && change.acknowledged.is_some();
    let durable: Vec<Change> = changes.iter().filter(|change| is_kept(change)).copied().collect();
    let latest = changes.iter().map(|change| change.version).max().unwrap_or(0);
    let is_old = |by: &Change| by.acknowledged.is_some_and(|at| at + 400 < latest);
    changes.retain(|change| !durable.iter().any(|by| change.is_before(by) && is_old(by)));
}

/// The bytes of a version of a unit; versions count from 1. Each 16 bytes are different, so that torn or misplaced
/// pieces are detected.
pub(crate) fn fill(unit: u64, version: u64) -> IoBuf {
    let pair = |at: u64| [unit, version << 8 | at].map(u64::to_le_bytes).concat();
    IoBuf::from((0..UNIT / 16).flat_map(pair).collect::<Vec<u8>>())
}

/// The unit and version of these bytes: version 0 for zeros, `None` for any other bytes.
pub(crate) fn tell(bytes: &[u8]) -> Option<(u64, u64)> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let (unit, version) = (word(0)?, word(8)? >> 8);
    let zeros = version == 0 && bytes.len() as u64 == UNIT && bytes.iter().all(|byte| *byte == 0);
    (zeros || version != 0 && bytes == &*fill(unit, version)).then_some((unit, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_reads_agree() {
        let mut model = Model::default();
        let (a, b) = (model.write_begun(0..1), model.write_begun(0..1));
        model.ended(0..1, a, End::Done);
        model.ended(0..1, b, End::Done);
        let began = model.time();
        assert_eq!(model.possible(0, began), [a, b]);
        model.read(0, &fill(0, a), began).unwrap();
        let began = model.time();
        assert_eq!(model.possible(0, began), [a]);
        // Neither change is durable.
        model.crashed();
        let began = model.time();
        assert_eq!(model.possible(0, began), [0, a, b]);
        model.read(0, &fill(0, b), began).unwrap();
        model.crashed();
        let began = model.time();
        assert_eq!(model.possible(0, began), [b]);
    }

    #[test]
    fn what_was_flushed_stays() {
        let mut model = Model::default();
        let a = model.write_begun(0..1);
        model.ended(0..1, a, End::Done);
        let flush = model.time();
        model.flushed(flush);
        let discard = model.discard_begun(0..4);
        model.ended(0..4, discard, End::Done);
        let began = model.time();
        assert_eq!(model.possible(0, began), [0]);
        model.crashed();
        let began = model.time();
        assert_eq!(model.possible(0, began), [0, a]);
        model.read(0, &[0; UNIT as usize], began).unwrap();
        model.crashed();
        let began = model.time();
        assert_eq!(model.possible(0, began), [0]);
        assert_eq!(model.possible(1, began), [0]);
    }
}
