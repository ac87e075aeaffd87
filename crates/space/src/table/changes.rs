//! Changes of the log as values of a table, and back.
//!
//! A stripe's entry gives each known column a value: a sum, or unwritten. A column that is not known keeps what it
//! had, so a stripe has an entry although one of its disks is absent. Lost units have entries of kinds 3 and 4, which
//! follow the entry of the stripe in the record.

use super::pending::Version;
use super::{Carrier, Table, Value, Values};
use crate::blocks::Units;
use crate::log::entry::{Change, Entry, FirstStripe, FirstUnit, Stripe, Sums};

impl Table {
    /// Puts the part of an entry over the table that is about this group; entries of other rows, births, sets and groups
    /// change nothing. To load a table, all entries of the log are put over its blocks, in their order.
    pub fn apply(&mut self, change: &Change, carrier: Carrier) {
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
            Change::Fresh { first, stripes } => self.apply_stripes(first, stripes.iter(), carrier),
            Change::Redo { first, stripes } => {
                self.apply_stripes(first, stripes.iter().map(|redo| &redo.stripe), carrier);
            }
            _ => {}
        }
    }

    /// Changes that say what waits of these units.
    pub fn changes(&self, units: &Units) -> Vec<Change> {
        let mut out = Vec::new();
        let pending = units.iter().filter_map(|unit| Some((unit, self.pending.get(&(unit as u16))?)));
        for (unit, version) in pending.flat_map(|(unit, p)| p.versions.iter().map(move |v| (unit, v))) {
            if version.carrier == Carrier::Waiting {
                self.add_version(&mut out, unit, version);
            }
        }
        out
    }

    /// Entries with which a snapshot carries these units: of each the confirmed value, then what is newer and in a
    /// record, in its order and as unconfirmed (rules 12 and 13).
    pub fn carry(&self, units: &Units) -> Vec<Entry> {
        let mut out = Vec::new();
        for unit in units.iter() {
            let mut confirmed = Vec::new();
            self.add_values(&mut confirmed, unit, &self.confirmed(unit));
            out.extend(confirmed.into_iter().map(Entry::from));
            let newer = self.pending.get(&(unit as u16)).map_or(&[][..], |p| &p.versions[1..]);
            for version in newer.iter().filter(|v| v.carrier != Carrier::Waiting) {
                let mut changes = Vec::new();
                self.add_version(&mut changes, unit, version);
                out.extend(changes.into_iter().map(|change| Entry { change, is_unconfirmed: true }));
            }
        }
        out
    }

    /// The stripe's entry with these values of a coded row.
    pub fn stripe(&self, values: &Values) -> Stripe {
        let mut stripe = Stripe { written: 0, known: 0, sums: Sums::new() };
        for (column, value) in values.iter().enumerate() {
            let is_data = column < self.data;
            // One without a sum is not unwritten for a moment, either: the entry that follows says what it is.
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

    fn add_version(&self, out: &mut Vec<Change>, unit: usize, version: &Version) {
        match version.is_doubt {
            true => add(out, Change::Doubt { first: self.first_unit(0, unit), count: 1 }),
            false => self.add_values(out, unit, &version.values),
        }
    }

    fn add_values(&self, out: &mut Vec<Change>, unit: usize, values: &Values) {
        let is_coded = self.is_coded();
        if is_coded {
            let first = self.first_stripe(unit);
            add(out, Change::Fresh { first, stripes: vec![self.stripe(values)] });
        }
        for (content, value) in values.iter().enumerate() {
            let first = self.first_unit(content as u8, unit);
            match *value {
                Value::Written(sum) if !is_coded => {
                    add(out, Change::Written { first, sums: Sums::from_elem(sum, 1) })
                }
                Value::Unwritten if !is_coded => add(out, Change::Discarded { first, count: 1 }),
                Value::Lost(sum) => add(out, Change::Lost { first, sums: Sums::from_elem(sum, 1) }),
                Value::LostWithoutSum => add(out, Change::LostWithoutSum { first, count: 1 }),
                _ => {}
            }
        }
    }

    /// `value` of the entry's unit `at`; none is a doubt.
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
            let value = value(at);
            values[content] = value.unwrap_or(values[content]);
            self.push(unit, values, value.is_none(), carrier, self.is_coded());
        }
    }

    fn apply_stripes<'a>(
        &mut self,
        first: &FirstStripe,
        stripes: impl ExactSizeIterator<Item = &'a Stripe>,
        carrier: Carrier,
    ) {
        if (first.row, first.birth) != (self.id.row, self.id.birth) || !self.is_coded() {
            return;
        }
        let stripes: Vec<_> = stripes.collect();
        for (at, unit) in self.within(first.unit, stripes.len()) {
            let mut values = self.values(unit);
            let mut sums = stripes[at].sums.iter();
            for column in 0..32 {
                let has = |columns: u32| columns & 1 << column != 0;
                let sum = has(stripes[at].known).then(|| sums.next()).flatten();
                let Some(value) = values.get_mut(column) else { break };
                let written = column >= self.data || has(stripes[at].written);
                *value = match (written, sum, *value) {
                    (true, Some(sum), _) => Value::Written(*sum),
                    (false, Some(_), _) => Value::Unwritten,
                    (_, None, Value::Unknown { .. }) => Value::Unknown { written },
                    // The stripe's entry calls the column written, the table does not: no checksum is known.
                    (true, None, Value::Unwritten) => Value::LostWithoutSum,
                    (false, None, value) if value.is_written() => Value::Unwritten,
                    (_, None, value) => value,
                };
            }
            self.push(unit, values, false, carrier, false);
        }
    }

    fn is_coded(&self) -> bool {
        self.data < self.contents.len()
    }

    /// The units of the group among `count` from `first` on, which count from the beginning of the column: each with its
    /// index among them.
    fn within(&self, first: u32, count: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (group, per_group) = (u64::from(self.id.group), pool_seam::GROUP_UNITS);
        let (first, begin) = (u64::from(first), group * per_group);
        let range = first.max(begin)..(first + count as u64).min(begin + per_group);
        range.map(move |unit| ((unit - first) as usize, (unit - begin) as usize))
    }

    fn unit_in_column(&self, unit: usize) -> u32 {
        self.id.group * pool_seam::GROUP_UNITS as u32 + unit as u32
    }

    fn first_stripe(&self, unit: usize) -> FirstStripe {
        FirstStripe { row: self.id.row, birth: self.id.birth, unit: self.unit_in_column(unit) }
    }

    fn first_unit(&self, content: u8, unit: usize) -> FirstUnit {
        let (row, birth, unit) = (self.id.row, self.id.birth, self.unit_in_column(unit));
        let column = if self.is_coded() { content } else { self.id.set };
        FirstUnit { row, birth, content, column, unit }
    }
}

/// Appends a change of one unit or stripe; to the last one if it continues that.
fn add(out: &mut Vec<Change>, change: Change) {
    let follows = |first: &FirstUnit, count: usize, next: &FirstUnit| {
        FirstUnit { unit: first.unit.wrapping_add(count as u32), ..*first } == *next
    };
    match (out.last_mut(), &change) {
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
        _ => out.push(change),
    }
}
