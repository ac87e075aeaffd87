//! Conversion between entries of the log and values of a table.
//!
//! A stripe's entry has a value of each known column: a sum, or unwritten. An unknown column keeps its value, so a
//! stripe can have an entry although one of its disks is absent. Lost units have entries of kinds 3 and 4, which
//! follow the entry of the stripe in the record.

use arena::Sg;

use super::pending::Version;
use super::{Carrier, Table, Value, Values};
use crate::blocks::Units;
use crate::log::commit::{RecordCapacity, Size};
use crate::log::entry::{Change, Entry, FirstStripe, FirstUnit, RedoStripe, Stripe, Sums};
use crate::log::{BLOCK, Taken, unit_of};

impl Table {
    /// Applies the part of an entry for this group; entries of other rows, births, sets and groups have no effect. To
    /// load a table, all entries of the log are applied over its blocks, in their order. `payload` is that of a redo,
    /// which may not be in place.
    pub fn apply(&mut self, change: &Change, carrier: Carrier, payload: &Sg) {
        match change {
            Change::Written { first, sums } => {
                self.apply_units(first, sums.len(), carrier, |at| Some(Value::Written(sums[at])));
            }
            Change::Lost { first, sums } => {
                self.apply_units(first, sums.len(), carrier, |at| Some(Value::Lost(sums[at])));
            }
            Change::Discarded { first, count } => {
                self.apply_units(first, (*count).into(), carrier, |_| Some(Value::Unwritten));
            }
            Change::LostWithoutSum { first, count } => {
                self.apply_units(first, (*count).into(), carrier, |_| Some(Value::LostWithoutSum));
            }
            Change::Doubt { first, count } => self.apply_units(first, (*count).into(), carrier, |_| None),
            Change::Fresh { first, stripes } => {
                self.apply_stripes(first, stripes.iter().map(|stripe| (stripe, None)), carrier);
            }
            Change::Redo { first, stripes } => {
                let mut from = 0;
                let with_units = stripes.iter().map(|redo| {
                    let first = from;
                    from += redo.payload.count_ones() as usize;
                    let has_all = arena::sg_len(payload) >= from * BLOCK;
                    let units = || (first..from).map(|unit| unit_of(payload, unit)).collect();
                    (&redo.stripe, has_all.then(|| (redo.payload, units())))
                });
                let stripes: Vec<_> = with_units.collect();
                self.apply_stripes(first, stripes.into_iter(), carrier);
            }
            _ => {}
        }
    }

    /// Takes entries and payload for the record of this sequence, as many as fit: all doubts, and values that no
    /// write blocks ([`Table::held`]). A value also needs a flush of the group's disks (`is_flushed`), unless it
    /// depends on none.
    pub fn take(&mut self, record: u64, is_flushed: bool, capacity: &mut RecordCapacity) -> Taken {
        let (mut taken, held) = (Taken::default(), self.held());
        for unit in self.waiting().iter() {
            self.expand(unit);
            let Some(pending) = self.pending.get(unit) else { continue };
            let next = pending.next(!held.has(unit), is_flushed);
            let versions = pending.versions[next.clone()].to_vec();
            let changes = versions.iter().flat_map(|version| self.changes(unit, version));
            let entries: Vec<_> = changes.map(Entry::from).collect();
            let payload: Sg = versions.into_iter().filter_map(|v| v.redo).flat_map(|redo| redo.1).collect();
            // Entries of adjacent units are merged, so this is an upper bound.
            let body = entries.iter().map(Entry::bytes).sum();
            if !capacity.add(Size { body, units: arena::sg_len(&payload) / BLOCK }) {
                taken.has_rest = true;
                break;
            }
            entries.into_iter().for_each(|entry| add(&mut taken.content.entries, entry));
            taken.content.payload.extend(payload);
            let pending = self.pending.get_mut(unit).expect("it waits");
            pending.taken(next, record);
        }
        taken
    }

    /// The entries and payload with which a snapshot carries these units: for each the confirmed value, then the
    /// newer values in records, in order and marked unconfirmed (rules 12 and 13). After a replay these are open
    /// until a decision.
    pub fn carry(&mut self, units: &Units) -> Vec<(Entry, Sg)> {
        let mut out = Vec::new();
        for unit in units.iter() {
            self.expand(unit);
            for version in self.pending.get_mut(unit).into_iter().flat_map(|p| &mut p.versions[1..]) {
                if let Carrier::Record(record) = version.carrier {
                    version.carrier = Carrier::Open(record);
                }
            }
            let settled = [Version::new(Carrier::Confirmed, self.values(unit))];
            let versions = if self.versions(unit).is_empty() { &settled } else { self.versions(unit) };
            let versions = versions.iter().enumerate().filter(|(_, v)| v.carrier != Carrier::Waiting);
            for (at, version) in versions {
                let mut payload = version.redo.as_ref().map(|redo| redo.1.clone());
                for change in self.changes(unit, version) {
                    let entry = Entry { change, is_unconfirmed: at > 0 };
                    out.push((entry, payload.take().unwrap_or_default()));
                }
            }
        }
        out
    }

    /// The entry of a stripe with these values, for a coded row.
    pub fn stripe(&self, values: &Values) -> Stripe {
        let mut stripe = Stripe { written: 0, known: 0, sums: Sums::new() };
        for (column, value) in values.iter().enumerate() {
            let is_data = column < self.data;
            // A lost unit without a sum is declared written here, too; the following entry declares it lost.
            let is_written = value.is_written() || *value == Value::LostWithoutSum;
            stripe.written |= u32::from(is_data && is_written) << column;
            let sum = match *value {
                Value::Written(sum) | Value::Lost(sum) => sum,
                Value::Unwritten if is_data => 0,
                _ => continue,
            };
            stripe.known |= 1 << column;
            stripe.sums.push(sum);
        }
        stripe
    }

    /// The versions of a unit; empty if the unit is not pending.
    fn versions(&self, unit: usize) -> &[Version] {
        self.pending.get(unit).map_or(&[], |pending| &pending.versions)
    }

    /// The entries of a version; the payload belongs to the first one.
    fn changes(&self, unit: usize, version: &Version) -> Vec<Change> {
        if version.is_doubt {
            return vec![Change::Doubt { first: self.first_unit(0, unit), count: 1 }];
        }
        let mut out = Vec::new();
        let is_coded = self.is_coded();
        if version.values.iter().all(|value| matches!(value, Value::Unknown { .. })) {
            return out;
        }
        if is_coded {
            let (first, stripe) = (self.first_stripe(unit), self.stripe(&version.values));
            out.push(match version.redo.as_deref() {
                Some((payload, _)) => {
                    Change::Redo { first, stripes: vec![RedoStripe { stripe, payload: *payload }] }
                }
                None => Change::Fresh { first, stripes: vec![stripe] },
            });
        }
        for (content, value) in version.values.iter().enumerate() {
            let first = self.first_unit(content as u8, unit);
            match *value {
                Value::Written(sum) if !is_coded => {
                    out.push(Change::Written { first, sums: Sums::from_elem(sum, 1) });
                }
                Value::Unwritten if !is_coded => out.push(Change::Discarded { first, count: 1 }),
                Value::Lost(sum) => out.push(Change::Lost { first, sums: Sums::from_elem(sum, 1) }),
                Value::LostWithoutSum => out.push(Change::LostWithoutSum { first, count: 1 }),
                _ => {}
            }
        }
        out
    }

    /// Applies `value` to the entry's unit `at`; `None` is a doubt.
    fn apply_units(
        &mut self,
        first: &FirstUnit,
        count: usize,
        carrier: Carrier,
        value: impl Fn(usize) -> Option<Value>,
    ) {
        let content = usize::from(first.content);
        let is_of_set = self.is_coded() || first.column == self.id.set;
        if (first.row, first.birth) != (self.id.row, self.id.birth)
            || !is_of_set
            || content >= self.contents.len()
        {
            return;
        }
        for (at, unit) in self.within(first.unit, count) {
            let mut values = self.values(unit);
            if let (Value::Written(sum), false) = (values[content], self.is_coded()) {
                self.former.entry(unit as u16).or_default().push(sum);
            }
            let value = value(at);
            values[content] = value.unwrap_or(values[content]);
            let is_doubt = value.is_none();
            self.push(unit, Version { is_doubt, ..Version::new(carrier, values) }, self.is_coded());
        }
    }

    fn apply_stripes<'a>(
        &mut self,
        first: &FirstStripe,
        stripes: impl ExactSizeIterator<Item = (&'a Stripe, Option<(u32, Sg)>)>,
        carrier: Carrier,
    ) {
        if (first.row, first.birth) != (self.id.row, self.id.birth) || !self.is_coded() {
            return;
        }
        let mut stripes: Vec<_> = stripes.collect();
        for (at, unit) in self.within(first.unit, stripes.len()) {
            let mut values = self.values(unit);
            let (stripe, redo) = (stripes[at].0, stripes[at].1.take().map(Box::new));
            let mut sums = stripe.sums.iter();
            for column in 0..32 {
                let has = |columns: u32| columns & 1 << column != 0;
                let sum = has(stripe.known).then(|| sums.next()).flatten();
                let Some(value) = values.get_mut(column) else { break };
                let written = column >= self.data || has(stripe.written);
                *value = match (written, sum, *value) {
                    (true, Some(sum), _) => Value::Written(*sum),
                    (false, Some(_), _) => Value::Unwritten,
                    (_, None, Value::Unknown { .. }) => Value::Unknown { written },
                    // The stripe's entry declares the column written, but the table does not: the checksum is
                    // unknown.
                    (true, None, Value::Unwritten) => Value::LostWithoutSum,
                    (false, None, value) if value.is_written() => Value::Unwritten,
                    (_, None, value) => value,
                };
            }
            self.push(unit, Version { redo, ..Version::new(carrier, values) }, false);
        }
    }

    pub(super) fn is_coded(&self) -> bool {
        self.data < self.contents.len()
    }

    /// The units of the group among the `count` units from `first` on, which counts from the beginning of the column.
    /// Each one has its index among the `count`.
    fn within(&self, first: u32, count: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (group, per_group) = (u64::from(self.id.group), pool_seam::GROUP_UNITS);
        let (first, begin) = (u64::from(first), group * per_group);
        let range = first.max(begin)..(first + count as u64).min(begin + per_group);
        range.map(move |unit| ((unit - first) as usize, (unit - begin) as usize))
    }

    fn unit_in_column(&self, unit: usize) -> u32 {
        self.id.group * pool_seam::GROUP_UNITS as u32 + unit as u32
    }

    pub(super) fn first_stripe(&self, unit: usize) -> FirstStripe {
        FirstStripe { row: self.id.row, birth: self.id.birth, unit: self.unit_in_column(unit) }
    }

    pub(super) fn first_unit(&self, content: u8, unit: usize) -> FirstUnit {
        let (row, birth, unit) = (self.id.row, self.id.birth, self.unit_in_column(unit));
        let column = if self.is_coded() { content } else { self.id.set };
        FirstUnit { row, birth, content, column, unit }
    }
}

/// Appends an entry of one unit or stripe, or extends the last entry if the unit follows it.
fn add(out: &mut Vec<Entry>, entry: Entry) {
    let follows = |first: &FirstUnit, count: usize, next: &FirstUnit| {
        FirstUnit { unit: first.unit.wrapping_add(count as u32), ..*first } == *next
    };
    match (out.last_mut().map(|last| &mut last.change), &entry.change) {
        (Some(Change::Written { first, sums }), Change::Written { first: next, sums: more })
        | (Some(Change::Lost { first, sums }), Change::Lost { first: next, sums: more })
            if follows(first, sums.len(), next) =>
        {
            sums.extend_from_slice(more);
        }
        (Some(Change::Discarded { first, count }), Change::Discarded { first: next, .. })
        | (Some(Change::LostWithoutSum { first, count }), Change::LostWithoutSum { first: next, .. })
        | (Some(Change::Doubt { first, count }), Change::Doubt { first: next, .. })
            if follows(first, usize::from(*count), next) =>
        {
            *count += 1;
        }
        (Some(Change::Fresh { first, stripes }), Change::Fresh { first: next, stripes: more })
            if FirstStripe { unit: first.unit.wrapping_add(stripes.len() as u32), ..*first } == *next =>
        {
            stripes.extend_from_slice(more);
        }
        _ => out.push(entry),
    }
}
