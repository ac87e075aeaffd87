//! What each unit may be: now, and after a power cut at any event. Naive on purpose.

use std::collections::BTreeMap;

/// A unit is known by the number that fills it; 0 is zeros.
pub(super) type Value = u64;

#[derive(Clone, Default)]
pub(super) struct Model {
    units: BTreeMap<u64, Unit>,
    next: Value,
}

#[derive(Clone)]
struct Unit {
    /// Every value it was to have, in order, and the events there had been when its write began.
    values: Vec<(Value, u64)>,
    /// How many of them were acknowledged or failed.
    told: usize,
    /// The last that was acknowledged.
    acknowledged: usize,
    /// From this event on, values before this one cannot come back.
    floors: Vec<(u64, usize)>,
}

impl Default for Unit {
    fn default() -> Unit {
        Unit { values: vec![(0, 0)], told: 1, acknowledged: 0, floors: vec![(0, 0)] }
    }
}

/// The acknowledged writes at the beginning of a flush.
pub(super) struct Flushing(BTreeMap<u64, usize>);

impl Flushing {
    /// Of the others nothing is said.
    pub(super) fn retain(&mut self, which: impl Fn(u64) -> bool) {
        self.0.retain(|unit, _| which(*unit));
    }
}

impl Model {
    pub(super) fn fresh(&mut self) -> Value {
        self.next += 1;
        self.next
    }

    /// A write or discard of a unit begins.
    pub(super) fn begins(&mut self, unit: u64, value: Value, event: u64) {
        self.units.entry(unit).or_default().values.push((value, event));
    }

    /// It was acknowledged.
    pub(super) fn acknowledged(&mut self, unit: u64) {
        let u = self.units.entry(unit).or_default();
        (u.told, u.acknowledged) = (u.values.len(), u.values.len() - 1);
    }

    pub(super) fn flush_begins(&self) -> Flushing {
        Flushing(self.units.iter().map(|(n, u)| (*n, u.acknowledged)).collect())
    }

    pub(super) fn flushed(&mut self, flushing: &Flushing, event: u64) {
        for (unit, index) in &flushing.0 {
            self.units.entry(*unit).or_default().floors.push((event, *index));
        }
    }

    /// What reads may give now, when no write to the unit is under way.
    pub(super) fn now(&self, unit: u64) -> Vec<Value> {
        let Some(u) = self.units.get(&unit) else { return vec![0] };
        u.values[u.acknowledged..].iter().map(|(v, _)| *v).collect()
    }

    /// A read gave one of what it might: from now on it is that one.
    pub(super) fn seen(&mut self, unit: u64, value: Value) {
        let Some(u) = self.units.get_mut(&unit) else { return };
        if let Some(i) = u.values.iter().rposition(|(v, _)| *v == value) {
            let last = u.values.len() - 1;
            if i != last {
                let entry = u.values[i];
                u.values.push((entry.0, entry.1));
            }
            u.acknowledged = u.values.len() - 1;
        }
    }

    /// What reads may give after a power cut before event `event`.
    pub(super) fn after_cut(&self, unit: u64, event: u64) -> Vec<Value> {
        let Some(u) = self.units.get(&unit) else { return vec![0] };
        let floor = u.floors.iter().filter(|(e, _)| *e <= event).map(|(_, i)| *i).max().unwrap_or(0);
        u.values[floor..].iter().filter(|(_, e)| *e <= event).map(|(v, _)| *v).collect()
    }
}
