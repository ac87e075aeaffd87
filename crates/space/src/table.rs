//! The table of the units of a group: `docs/0004-spaces.md`, rules 1, 2, 5 and 6. Pure.
//!
//! A [`Table`] has the newest value of every unit of every content of a set. A simple or mirrored column has one
//! content; in a coded row each column is one. A table is loaded from the blocks of the group, and the log's entries
//! are applied over them. It also has a small map of the units whose newest value is not durably confirmed: the
//! confirmed value, and every newer one with its record. Units with only a waiting value over a confirmed one have a
//! smaller form ([`overwritten`]). In a coded row a unit is a stripe: all of its contents change together.
//!
//! The states of a value: it *waits* ([`Table::set`]) until a record takes it ([`Table::take`]). When the record and
//! the data are durable it is *confirmed*, and may be written to blocks. When a durable record states the
//! confirmation, it is *settled*, and only the newest value is kept. A caller passes the log's progress to the table
//! before each use ([`Table::advance`]).
//!
//! Invariants:
//! 1. The newest values are those of the last version of each pending unit.
//! 2. A parity is written where a data column is, and only there: blocks have no separate bitmap for it.
//! 3. Loading blocks of the confirmed values, with all entries after the confirmed ones, results in the same table.

mod by_unit;
mod changes;
mod overwritten;
mod pending;
mod value;

use std::collections::BTreeMap;
use std::ops::Range;

use arena::Sg;
use pool_seam::{GROUP_UNITS, RowNumber};
use smallvec::{SmallVec, smallvec};

use crate::blocks::{ChecksumBlock, Units, newer};
use by_unit::ByUnit;
use overwritten::Overwritten;
use pending::{Pending, Version};
pub use value::{Value, Values};
use value::{is_written, normalize, value_of};

/// How durable a value is when it is added to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A snapshot declares it confirmed, or it is a decision about all older values.
    Confirmed,
    /// It is in the record of this sequence, which a crash left unconfirmed. The unit is undecided until a decision
    /// is logged (rule 13).
    Open(u64),
    /// It is in the record of this sequence, which [`Table::advance`] confirms later.
    Record(u64),
    /// It waits for a record.
    Waiting,
}

/// Rule 2: how a unit may be written in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// After an `active` entry of its region is durable.
    Firm,
    /// Only after it has become firm: when a durable record declares the record of this sequence confirmed.
    Issued(u64),
    /// At once, without an entry.
    Empty,
    /// At once, under an `active` entry: its discard is not durably confirmed.
    Discarded,
}

/// The group of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableId {
    /// The row.
    pub row: RowNumber,
    /// The generation with which the row was allocated: entries of another one are void (rule 1).
    pub birth: u32,
    /// The set: the column of a simple or mirrored row, 0 of a coded one.
    pub set: u8,
    /// The group in the slabs.
    pub group: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Table {
    id: TableId,
    data: usize,
    contents: Vec<Content>,
    /// No unit is both in this and in `overwritten`.
    pending: ByUnit<Pending>,
    overwritten: Overwritten,
    /// The version of the newest block that was loaded or created.
    version: u64,
    writing: u64,
    versions: SmallVec<[u64; 3]>,
    /// Units with a confirmed value that is in no block.
    stale: Units,
    /// Units that are being written; one entry for each write.
    in_flight: Vec<Range<u16>>,
    /// Units whose copies have to be compared, see [`Table::unresolve`].
    unresolved: Option<Box<Units>>,
    /// Checksums that a unit had before the entries of a replayed log, until the unit is decided.
    former: BTreeMap<u16, SmallVec<[u32; 2]>>,
    /// The arguments of the last [`Table::advance`].
    advanced: (u64, u64),
    /// Whether contents may have unknown units.
    may_be_unknown: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    sums: [u32; GROUP_UNITS as usize],
    written: Units,
    lost: Units,
    /// Units whose value is in neither a block nor an entry.
    unknown: Units,
}

impl Content {
    fn put(&mut self, unit: usize, value: Value) {
        self.sums[unit] = value.sum().unwrap_or(0);
        self.written.set(unit, value.is_written());
        self.lost.set(unit, matches!(value, Value::Lost(_) | Value::LostWithoutSum));
        self.unknown.set(unit, matches!(value, Value::Unknown { .. }));
    }
}

impl Table {
    /// The table of a new, unwritten group with this many data columns and contents; `slabs` is the number of slabs
    /// of the set.
    pub fn empty(id: TableId, data: usize, contents: usize, slabs: usize) -> Table {
        let content = Content {
            sums: [0; GROUP_UNITS as usize],
            written: Units::NONE,
            lost: Units::NONE,
            unknown: Units::NONE,
        };
        Table {
            id,
            data,
            contents: vec![content; contents],
            pending: ByUnit::new(),
            overwritten: Overwritten::default(),
            version: 0,
            writing: 0,
            versions: smallvec![0; slabs],
            stale: Units::NONE,
            in_flight: Vec::new(),
            unresolved: None,
            former: BTreeMap::new(),
            advanced: (0, 0),
            may_be_unknown: false,
        }
    }

    /// The table of a group whose blocks are unknown: a snapshot can carry its entries ([`Table::carry`]).
    pub fn unknown(id: TableId, data: usize, contents: usize, slabs: usize) -> Table {
        let mut table = Table::empty(id, data, contents, slabs);
        table.contents.iter_mut().for_each(|content| content.unknown = Units::ALL);
        table.may_be_unknown = true;
        table
    }

    /// Loads the table that these blocks describe, one for each content; an element is `None` if a block cannot be
    /// read or is not needed yet. The bitmaps of the newest block are used: for units without entries all blocks
    /// agree.
    ///
    /// Returns `None` if there is no block, or its numbers of data columns or slabs differ from those of the row. In
    /// a set without parity the number of slabs may differ: the row may have had more or fewer copies.
    pub fn load(id: TableId, data: usize, slabs: usize, blocks: &[Option<&ChecksumBlock>]) -> Option<Table> {
        let newest = blocks.iter().flatten().copied().reduce(newer)?;
        let is_coded = data < blocks.len();
        let fits = |block: &ChecksumBlock| {
            block.written.len() == data && (!is_coded || block.versions.len() == slabs)
        };
        if data == 0 || data > blocks.len() || !blocks.iter().flatten().copied().all(fits) {
            return None;
        }
        let mut table = Table::empty(id, data, blocks.len(), slabs);
        (table.version, table.writing) = newest.age();
        table.versions.clone_from(&newest.versions);
        for (content, written) in table.contents.iter_mut().zip(&newest.written) {
            content.written = *written;
        }
        for (content, block) in table.contents.iter_mut().zip(blocks) {
            match block {
                Some(block) => (content.sums, content.lost) = (block.sums, block.lost),
                None => (content.unknown, table.may_be_unknown) = (Units::ALL, true),
            }
        }
        table.fit(slabs);
        Some(table)
    }

    /// The contents (bits) that have units whose value is in neither a block nor an entry.
    pub fn unknown_contents(&mut self) -> u32 {
        let is_unknown = |content: &usize| !self.has_block(*content);
        let unknown = (0..self.contents.len()).filter(is_unknown).fold(0, |all, content| all | 1 << content);
        self.may_be_unknown = unknown != 0;
        unknown
    }

    /// Adds the block of a content that was missing when the table was loaded, unless it is older than the others
    /// require.
    pub fn learn_block(&mut self, content: usize, slab: usize, block: &ChecksumBlock) {
        let is_current = self.versions.get(slab).is_some_and(|version| block.version >= *version);
        if block.versions.len() == self.versions.len() && is_current {
            (0..GROUP_UNITS as usize)
                .for_each(|unit| self.put_unknown(content, unit, block.sums[unit], block.lost.has(unit)));
        }
    }

    /// Adds the value of a unit whose newest value is unknown: a checksum, or unwritten.
    pub fn learn(&mut self, content: usize, unit: usize, sum: Option<u32>) {
        if self.contents[content].unknown.has(unit) {
            self.put_unknown(content, unit, sum.unwrap_or(0), false);
        }
    }

    fn put_unknown(&mut self, content: usize, unit: usize, sum: u32, is_lost: bool) {
        let newest = &mut self.contents[content];
        if newest.unknown.has(unit) {
            newest.sums[unit] = sum;
            newest.lost.set(unit, is_lost);
            newest.unknown.set(unit, false);
        }
        for version in self.pending.get_mut(unit).into_iter().flat_map(|p| &mut p.versions) {
            if let Value::Unknown { written } = version.values[content] {
                version.values[content] = value_of(written, is_lost, sum);
            }
        }
    }

    /// The group.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// The approximate memory that it takes, in bytes, without redo payload.
    pub fn bytes(&self) -> usize {
        // A pending unit mostly has two versions; the values of several contents are allocated separately.
        let values = if self.is_coded() { 2 * self.contents.len() * size_of::<Value>() } else { 0 };
        let (pending, entries) = self.pending.memory();
        let contents = self.contents.len() * size_of::<Content>();
        size_of::<Table>() + contents + self.overwritten.memory() + pending + entries * values
    }

    /// The newest value of a unit, 0 to 511.
    pub fn value(&self, content: usize, unit: usize) -> Value {
        let c = &self.contents[content];
        let columns = if content < self.data { content..content + 1 } else { 0..self.data };
        let written = self.contents[columns].iter().any(|column| column.written.has(unit));
        if c.unknown.has(unit) {
            Value::Unknown { written }
        } else {
            value_of(written, c.lost.has(unit), c.sums[unit])
        }
    }

    /// The newest values of all contents.
    pub fn values(&self, unit: usize) -> Values {
        (0..self.contents.len()).map(|content| self.value(content, unit)).collect()
    }

    /// The checksum of a unit's newest bytes. `None` if it is unknown or uncertain: the unit reads as zeros, or a
    /// crash or a failed write has left it undecided between several values. The checksum 0 of a lost parity is
    /// invalid (`normalize`).
    pub fn certain_sum(&self, content: usize, unit: usize) -> Option<u32> {
        let is_certain = self.is_known(unit) || !self.is_open(unit);
        match self.value(content, unit) {
            Value::Written(sum) if is_certain => Some(sum),
            Value::Lost(sum) if is_certain && (content < self.data || sum != 0) => Some(sum),
            _ => None,
        }
    }

    /// Units of a range with lost data whose checksum is known.
    pub fn lost(&self, units: Range<usize>) -> Vec<usize> {
        let is_lost =
            |c: &Content, unit: usize| c.lost.has(unit) && c.written.has(unit) && !c.unknown.has(unit);
        let has_lost = |unit: &usize| self.contents[..self.data].iter().any(|c| is_lost(c, *unit));
        units.filter(has_lost).collect()
    }

    /// Whether the unit, or any unit of the stripe, was written since it was discarded.
    fn is_written(&self, unit: usize) -> bool {
        let is_lost = |c: &Content| c.lost.has(unit) && !c.unknown.has(unit);
        self.contents[..self.data].iter().any(|column| column.written.has(unit))
            || self.contents.iter().any(is_lost)
    }

    /// Rule 2.
    pub fn in_place(&self, unit: usize) -> InPlace {
        let is_written = self.is_written(unit);
        match self.pending.get(unit) {
            None if is_written => InPlace::Firm,
            Some(p) if is_written && p.is_firm => InPlace::Firm,
            Some(p) if is_written && let Some(record) = p.issued() => InPlace::Issued(record),
            Some(p) if p.has_discard() => InPlace::Discarded,
            _ => InPlace::Empty,
        }
    }

    /// Whether the unit is *firm*, see rule 2: a write that a crash interrupts may leave any content there.
    pub fn is_firm(&self, unit: usize) -> bool {
        let pending = self.pending.get(unit);
        pending.map_or_else(|| self.is_written(unit), |pending| pending.is_firm)
    }

    /// Begins a write of units that have no other write in flight. Returns `false` if an acknowledged value of one of
    /// them cannot be taken by a record before this write has ended, because the unit is not firm (rule 2).
    pub fn begin_write(&mut self, units: Range<usize>) -> bool {
        self.in_flight.push(units.start as u16..units.end as u16);
        !units.into_iter().any(|unit| self.waits_for_write(unit))
    }

    /// Ends a write.
    pub fn end_write(&mut self, units: Range<usize>) {
        let at = self.in_flight.iter().position(|other| usize::from(other.start) == units.start);
        self.in_flight.swap_remove(at.expect("a write that was begun"));
    }

    /// Units whose value cannot be taken by a record before a write has ended, see [`Table::begin_write`].
    pub fn held(&self) -> Units {
        let units = self.in_flight.iter().flat_map(|units| units.clone()).map(usize::from);
        units.filter(|unit| self.waits_for_write(*unit)).collect()
    }

    fn waits_for_write(&self, unit: usize) -> bool {
        self.pending.get(unit).is_some_and(|p| p.waits() && !p.is_firm)
    }

    /// Units with a value that is not confirmed, or was not confirmed before it came into doubt.
    pub fn unconfirmed(&self) -> Units {
        self.units(|pending| pending.versions.len() > 1) | self.overwritten.units()
    }

    /// Whether the unit is *open*: undecided between old and new, or new only in the log. A read or write must decide
    /// it first, under its range lock (rules 3, 5, 12 and 13).
    pub fn is_open(&self, unit: usize) -> bool {
        let is_unresolved = self.unresolved.as_ref().is_some_and(|units| units.has(unit));
        let is_pending = |pending: &Pending| pending.is_open() || pending.has_redo();
        is_unresolved || self.pending.get(unit).is_some_and(is_pending)
    }

    /// Whether a unit of a range is open.
    pub fn has_open(&self, mut units: Range<usize>) -> bool {
        units.any(|unit| self.is_open(unit))
    }

    /// The open units of a range, those first that only have to be put in place. The others wait for a record; a
    /// checkpoint that makes room for it can carry only few unplaced units.
    pub fn open_units(&self, units: Range<usize>) -> Vec<usize> {
        let mut open: Vec<usize> = units.filter(|unit| self.is_open(*unit)).collect();
        let is_recorded = |pending: &Pending| pending.has_redo() && !pending.waits();
        open.sort_by_key(|unit| !self.pending.get(*unit).is_some_and(is_recorded));
        open
    }

    /// Whether the newest value may be read without a decision: it is not open, or it is in a record with payload, from
    /// which the stripe can be read ([`Table::redo`]).
    pub fn is_readable(&self, unit: usize) -> bool {
        let is_in_log = |pending: &Pending| {
            let is_in_record = |v: &Version| v.redo.is_some() && v.carrier != Carrier::Waiting;
            pending.newest().is_some_and(is_in_record) && !pending.versions.iter().any(|v| v.is_doubt)
        };
        !self.is_open(unit) || self.pending.get(unit).is_some_and(is_in_log)
    }

    /// Whether a unit has to be decided, or its copies compared.
    pub fn is_unresolved(&self) -> bool {
        self.unresolved.is_some() || !self.open().is_empty()
    }

    /// Whether its set has parities.
    pub fn has_parity(&self) -> bool {
        self.is_coded()
    }

    /// Whether a write or a flush of the unit has failed, without a decision since.
    pub fn is_in_doubt(&self, unit: usize) -> bool {
        self.pending.get(unit).is_some_and(Pending::is_open)
    }

    /// Units whose payload is in a record, but not in place.
    pub fn unplaced(&self) -> Units {
        self.units(|pending| {
            pending.newest().is_some_and(|v| v.redo.is_some() && v.carrier != Carrier::Waiting)
        })
    }

    /// Marks units whose written contents may differ between a copy and the table: a crash may have interrupted a
    /// write, or the copy was rolled back.
    pub fn unresolve(&mut self, units: impl Iterator<Item = usize>) {
        let units: Vec<usize> = units.filter(|unit| self.is_written(*unit)).collect();
        if !units.is_empty() {
            let unresolved = self.unresolved.get_or_insert_default();
            units.into_iter().for_each(|unit| unresolved.set(unit, true));
        }
    }

    /// Records that all copies of a unit have its newest value.
    pub fn resolve(&mut self, unit: usize) {
        self.former.remove(&(unit as u16));
        if let Some(units) = &mut self.unresolved {
            units.set(unit, false);
            if units.is_empty() {
                self.unresolved = None;
            }
        }
    }

    /// Whether the newest value is confirmed, so that only the copies have to be compared.
    pub fn is_known(&self, unit: usize) -> bool {
        !self.pending.has(unit) && !self.overwritten.has(unit)
    }

    /// The values that rule 5 tries, each once: the newest entry's or a failed write's, then older unconfirmed ones,
    /// newest first, then the confirmed one.
    pub fn candidates(&self, unit: usize) -> Vec<Values> {
        let Some(pending) = self.pending.get(unit) else {
            let confirmed = self.overwritten.get(unit).map(|sum| smallvec![Value::Written(sum)]);
            let newest = self.values(unit);
            let older = confirmed.filter(|confirmed| *confirmed != newest);
            return std::iter::once(newest).chain(older).collect();
        };
        let mut all: Vec<Values> = Vec::new();
        // Only the last doubt has a value that no later value has replaced.
        let last = pending.versions.len() - 1;
        for (_, version) in
            pending.versions.iter().enumerate().rev().filter(|(at, v)| *at == last || !v.is_doubt)
        {
            if !all.contains(&version.values) {
                all.push(version.values.clone());
            }
        }
        all
    }

    /// Checksums that the unit had since the last checkpoint, before its known values: a copy with one of them is
    /// stale.
    pub fn former(&self, unit: usize) -> SmallVec<[u32; 2]> {
        self.former.get(&(unit as u16)).cloned().unwrap_or_default()
    }

    /// Sets new values of a unit, which wait for a record; the unit must not be open, unless this is its decision.
    pub fn set(&mut self, unit: usize, values: Values) {
        self.push(unit, Version::new(Carrier::Waiting, values), false);
    }

    /// [`Table::set`] for a stripe whose payload of these columns (bits) is in the log before it is in place (rule
    /// 3). The caller calls [`Table::placed`] when it is in place.
    pub fn set_redo(&mut self, unit: usize, values: Values, columns: u32, payload: Sg) {
        let redo = Some(Box::new((columns, payload)));
        self.push(unit, Version { redo, ..Version::new(Carrier::Waiting, values) }, false);
    }

    /// The payload of the newest value, which is not in place yet: its columns as bits, and their units.
    pub fn redo(&self, unit: usize) -> Option<(u32, Sg)> {
        self.pending.get(unit)?.newest()?.redo.as_deref().cloned()
    }

    /// Records that all payload of the stripe is in place: durably, or at the latest after the next flush of the
    /// space.
    pub fn placed(&mut self, unit: usize) {
        if let Some(pending) = self.pending.get_mut(unit) {
            let taken = pending.versions.iter_mut().filter(|v| v.carrier != Carrier::Waiting);
            taken.for_each(|version| version.redo = None);
            if pending.is_over() {
                self.pending.remove(unit);
                // Stale until a checkpoint has flushed the unit, even if its blocks have the values.
                self.stale.set(unit, true);
            }
        }
    }

    /// Records that a unit may be old or new, as a flush failed; the doubt waits for a record.
    pub fn doubt(&mut self, unit: usize) {
        self.failed(unit, self.values(unit));
    }

    /// [`Table::doubt`] after a failed write of these values.
    pub fn failed(&mut self, unit: usize, values: Values) {
        self.push(unit, Version { is_doubt: true, ..Version::new(Carrier::Waiting, values) }, false);
    }

    /// Whether the newest value of a unit, or a doubt, waits for a record.
    pub fn waits(&self, unit: usize) -> bool {
        self.overwritten.has(unit) || self.pending.get(unit).is_some_and(Pending::waits)
    }

    /// Units whose newest value, or doubt, waits for a record.
    pub fn waiting(&self) -> Units {
        self.units(Pending::waits) | self.overwritten.units()
    }

    /// Updates the progress of the log: all records up to `confirmed` and their data are durable, and all up to
    /// `declared` are declared confirmed in a durable record. Call it before each use of a table, and in a replay
    /// before the entries of each record.
    pub fn advance(&mut self, confirmed: u64, declared: u64) {
        if (confirmed, declared) == std::mem::replace(&mut self.advanced, (confirmed, declared)) {
            return;
        }
        let mut discarded = Units::NONE;
        self.pending.retain(|unit, pending| {
            if pending.confirm(confirmed) {
                self.stale.set(unit, true);
                discarded.set(unit, pending.is_discarded());
            }
            pending.settle(declared);
            !pending.is_over()
        });
        // The copies of discarded units need no comparison any more.
        discarded.iter().for_each(|unit| self.resolve(unit));
    }

    /// Whether a value is missing in the blocks or not durably confirmed, or a unit is being written or undecided.
    pub fn is_dirty(&self) -> bool {
        !self.stale.is_empty()
            || !self.pending.is_empty()
            || !self.overwritten.is_empty()
            || !self.in_flight.is_empty()
            || self.unresolved.is_some()
    }

    /// Whether all units are unwritten, and no pending value can change that. Blocks may not be up to date yet.
    pub fn is_void(&self) -> bool {
        let is_settled = self.pending.is_empty() && self.overwritten.is_empty();
        let is_still = self.in_flight.is_empty() && self.unresolved.is_none();
        is_settled && is_still && self.written() == Units::NONE
    }

    /// Units that rule 5 has to decide, see [`Table::is_open`].
    pub fn open(&self) -> Units {
        self.units(Pending::is_open)
    }

    /// Whether a discard is not confirmed durably.
    pub fn has_discards(&self) -> bool {
        self.pending.iter().any(|(_, pending)| pending.has_discard())
    }

    /// Units with values that are in the log and in no block: a snapshot carries them, unless it leaves their records
    /// in the log.
    pub fn only_in_log(&self) -> Units {
        self.units(Pending::is_only_in_log) | self.stale
    }

    /// Units that do not read as zeros.
    pub fn written(&self) -> Units {
        let is_written =
            |unit: &usize| self.contents.iter().any(|c| c.written.has(*unit) || c.lost.has(*unit));
        (0..GROUP_UNITS as usize).filter(is_written).collect()
    }

    /// Units of a column that do not read as zeros.
    pub fn written_of(&self, column: u8) -> Units {
        let content = &self.contents[if self.is_coded() { usize::from(column) } else { 0 }];
        let is_written = |unit: &usize| content.written.has(*unit) || content.lost.has(*unit);
        (0..GROUP_UNITS as usize).filter(is_written).collect()
    }

    /// Units with a confirmed value that is in no block.
    pub fn stale(&self) -> Units {
        self.stale
    }

    /// Sets the number of slabs of the set. If the number has changed, so has the order of the slabs, and the
    /// versions of their blocks are unknown.
    pub fn fit(&mut self, slabs: usize) {
        if self.versions.len() != slabs {
            self.versions = smallvec![0; slabs];
        }
    }

    /// Begins to write blocks with the confirmed values, for a checkpoint of this version, to these slabs of the
    /// set, as bits. Returns the units that were stale: for [`Table::blocks_failed`].
    pub fn begin_blocks(&mut self, version: u64, slabs: u32) -> Units {
        (self.version, self.writing) = (version, self.writing + 1);
        let written = self.versions.iter_mut().enumerate().filter(|(slab, _)| slabs & 1 << slab != 0);
        written.for_each(|(_, has)| *has = version);
        std::mem::take(&mut self.stale)
    }

    /// Begins to write the block with the confirmed values to one more slab of the set.
    pub fn begin_copy(&mut self, slab: usize) {
        self.writing += 1;
        self.versions[slab] = self.version;
    }

    /// A block could not be written to all of these slabs: the units stay stale.
    pub fn blocks_failed(&mut self, units: Units) {
        units.iter().for_each(|unit| self.stale.set(unit, true));
    }

    /// The block of a content with the confirmed values (rule 6); `None` if not all of its units are known.
    pub fn block(&self, content: usize) -> Option<Box<ChecksumBlock>> {
        if !self.has_block(content) {
            return None;
        }
        let mut confirmed = self.contents[content].clone();
        let mut written: SmallVec<[Units; 1]> =
            self.contents[..self.data].iter().map(|c| c.written).collect();
        for (unit, pending) in self.pending.iter() {
            let values = &pending.versions[0].values;
            confirmed.put(unit, values[content]);
            written.iter_mut().zip(values).for_each(|(w, value)| w.set(unit, value.is_written()));
        }
        for unit in self.overwritten.units().iter() {
            confirmed.sums[unit] = self.overwritten.get(unit).unwrap_or(confirmed.sums[unit]);
        }
        let Content { sums, lost, .. } = confirmed;
        let (version, writing, versions) = (self.version, self.writing, self.versions.clone());
        Some(Box::new(ChecksumBlock { version, writing, lost, written, versions, sums }))
    }

    /// Whether the confirmed values of a content are known.
    fn has_block(&self, content: usize) -> bool {
        if !self.may_be_unknown {
            return true;
        }
        let is_unknown =
            |pending: &Pending| matches!(pending.versions[0].values[content], Value::Unknown { .. });
        let newest = self.contents[content].unknown.iter();
        newest.into_iter().all(|unit| self.pending.has(unit))
            && !self.pending.iter().any(|(_, pending)| is_unknown(pending))
    }

    fn units(&self, is_so: impl Fn(&Pending) -> bool) -> Units {
        self.pending.iter().filter(|(_, p)| is_so(p)).map(|(unit, _)| unit).collect()
    }

    fn push(&mut self, unit: usize, mut version: Version, is_part: bool) {
        assert_eq!(version.values.len(), self.contents.len(), "one value for each content");
        normalize(&mut version.values, self.data);
        // A doubt remains a doubt, even if its entry is durable.
        if version.is_doubt && version.carrier == Carrier::Confirmed {
            version.carrier = Carrier::Open(0);
        }
        let before = self.values(unit);
        if let (&[Value::Written(sum)], false) = (&before[..], self.pending.has(unit))
            && version.only_waits()
        {
            if !self.overwritten.has(unit) {
                self.overwritten.add(unit, sum);
            }
            return self.contents[0].put(unit, version.values[0]);
        }
        self.expand(unit);
        self.contents.iter_mut().zip(&version.values).for_each(|(content, value)| content.put(unit, *value));
        let pending = self.pending.get_or_insert_with(unit, || Pending::new(before));
        pending.push(version, is_part);
        if pending.is_over() {
            self.pending.remove(unit);
            self.stale.set(unit, true);
        }
    }

    /// Converts a unit of `overwritten` to one with versions.
    fn expand(&mut self, unit: usize) {
        if let Some(confirmed) = self.overwritten.remove(unit) {
            let newest = Version::new(Carrier::Waiting, self.values(unit));
            let confirmed = || Pending::new(smallvec![Value::Written(confirmed)]);
            self.pending.get_or_insert_with(unit, confirmed).push(newest, false);
        }
    }
}

#[cfg(test)]
mod tests;
