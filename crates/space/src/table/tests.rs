//! The table against the history of each unit, to which rules 1, 2, 5 and 6 are applied literally.

use std::collections::BTreeSet;

use pool_seam::RowNumber;
use proptest::prelude::*;
use smallvec::smallvec;

use super::*;
use crate::log::commit::RecordCapacity;
use crate::log::entry::{Change, Entry, FirstUnit, RedoStripe, Sums};

const ID: TableId = TableId { row: RowNumber(3), birth: 7, set: 0, group: 2 };

/// In place of a record's number: a snapshot declares the value confirmed.
const BY_SNAPSHOT: u64 = u64::MAX;

/// The number of units that the tests use. They are adjacent, so that entries have several units.
const UNITS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mirror,
    /// Two data columns and a parity.
    Coded,
}

impl Kind {
    /// The numbers of data columns, contents and slabs.
    fn shape(self) -> (usize, usize, usize) {
        match self {
            Kind::Mirror => (1, 1, 2),
            Kind::Coded => (2, 3, 3),
        }
    }

    fn empty(self) -> Table {
        let (data, contents, slabs) = self.shape();
        Table::empty(ID, data, contents, slabs)
    }

    fn unwritten(self) -> Values {
        smallvec![Value::Unwritten; self.shape().1]
    }
}

/// Takes the waiting entries into a record that has room.
fn take(table: &mut Table, record: u64) -> Vec<Entry> {
    let taken = table.take(record, true, &mut RecordCapacity::new(1024));
    assert!(!taken.has_rest);
    taken.content.entries
}

/// A value of a unit, or a doubt about it (`values` is `None`), and the record that has it.
#[derive(Clone, Debug)]
struct LoggedValue {
    record: Option<u64>,
    /// For a doubt: the confirmed record when it was added. The doubt covers all later values.
    since: u64,
    values: Option<Values>,
    /// Whether a snapshot carries it as unconfirmed.
    is_carried: bool,
}

impl LoggedValue {
    fn is_in(&self, last: u64) -> bool {
        self.record.is_some_and(|record| record <= last)
    }

    fn is_confirmed(&self, last: u64) -> bool {
        (self.is_in(last) || self.since == BY_SNAPSHOT) && !self.is_carried
    }

    fn writes(&self) -> bool {
        self.values.as_deref().is_some_and(is_written)
    }

    fn discards(&self) -> bool {
        self.values.as_deref().is_some_and(|values| !is_written(values))
    }
}

/// The values and doubts of a unit since the row was allocated, and the log's progress.
struct History<'a> {
    kind: Kind,
    values_logged: &'a [LoggedValue],
    confirmed: u64,
    settled: u64,
    /// Whether the log was replayed: after a crash all unconfirmed values are open.
    is_replayed: bool,
}

impl History<'_> {
    /// The number of values and doubts up to the value that the records up to `last` confirm.
    fn base(&self, last: u64) -> usize {
        let is_doubted = |at: usize| {
            let record = self.values_logged[at].record.unwrap_or(0);
            let is_later = |s: &LoggedValue| s.values.is_none() && s.since < record;
            self.values_logged[at].since != BY_SNAPSHOT && self.values_logged[at..].iter().any(is_later)
        };
        let confirms = |at: &usize| {
            let values_logged = &self.values_logged[*at];
            values_logged.values.is_some() && values_logged.is_confirmed(last) && !is_doubted(*at)
        };
        (0..self.values_logged.len()).rfind(confirms).map_or(0, |at| at + 1)
    }

    fn candidates(&self) -> Vec<Values> {
        let (before, later) = self.values_logged.split_at(self.base(self.confirmed));
        let confirmed = before.last().and_then(|s| s.values.clone()).unwrap_or_else(|| self.kind.unwritten());
        let mut all = Vec::new();
        for values in later.iter().rev().filter_map(|s| s.values.clone()).chain([confirmed]) {
            if !all.contains(&values) {
                all.push(values);
            }
        }
        all
    }

    fn is_open(&self) -> bool {
        let later = &self.values_logged[self.base(self.confirmed)..];
        later.iter().any(|s| s.values.is_none()) || self.is_replayed && !later.is_empty()
    }

    /// Rule 2, implemented literally.
    fn in_place(&self) -> InPlace {
        let (settled, later) = self.values_logged.split_at(self.base(self.settled));
        let is_firm =
            settled.last().is_some_and(LoggedValue::writes) && !later.iter().any(LoggedValue::discards);
        let is_discarded = later.iter().any(LoggedValue::discards);
        let entry = self.values_logged.iter().rfind(|s| s.record.is_some() && s.values.is_some());
        match is_written(&self.candidates()[0]) {
            true if is_firm => InPlace::Firm,
            true if entry.is_some_and(LoggedValue::writes) => {
                InPlace::Issued(entry.and_then(|s| s.record).unwrap_or(0))
            }
            _ if is_discarded => InPlace::Discarded,
            _ => InPlace::Empty,
        }
    }

    /// With `is_exact`, also checks how the unit may be written; the table may be more careful than necessary.
    fn check(&self, table: &Table, unit: usize, is_exact: bool) {
        let candidates = self.candidates();
        assert_eq!(table.values(unit), candidates[0], "rule 1, unit {unit}");
        assert_eq!(table.candidates(unit), candidates, "rule 5, unit {unit}");
        assert_eq!(table.is_open(unit), self.is_open(), "unit {unit}");
        let (says, right) = (table.in_place(unit), self.in_place());
        let waits = matches!(says, InPlace::Issued(_)) && right == InPlace::Firm;
        let marks = says == InPlace::Discarded && right == InPlace::Empty;
        assert!(says == right || !is_exact && (waits || marks), "rule 2, unit {unit}: {says:?}, {right:?}");
    }
}

/// A group with its log and blocks, and the values and doubts of each unit.
struct World {
    kind: Kind,
    table: Table,
    values_logged: Vec<Vec<LoggedValue>>,
    log: Vec<Vec<Entry>>,
    /// The confirmed sequence in each record.
    says: Vec<u64>,
    snapshots: BTreeSet<u64>,
    /// As `declared`, but as the log has it: including the values that snapshots have carried.
    logged: Vec<Vec<LoggedValue>>,
    confirmed: u64,
    settled: u64,
    /// The blocks of the last checkpoint; below, the last record whose values they have.
    blocks: Vec<ChecksumBlock>,
    through: u64,
    /// The record of the last checkpoint's snapshot. It is durable before the records up to `through` are overwritten
    /// (rule 8).
    snapshot: u64,
}

impl World {
    fn new(kind: Kind) -> World {
        let mut table = kind.empty();
        let blocks = blocks(&mut table, 0);
        let values_logged = vec![Vec::new(); UNITS];
        World {
            kind,
            table,
            logged: values_logged.clone(),
            values_logged,
            log: Vec::new(),
            says: Vec::new(),
            snapshots: BTreeSet::new(),
            confirmed: 0,
            settled: 0,
            blocks,
            through: 0,
            snapshot: 0,
        }
    }

    fn last(&self) -> u64 {
        self.log.len() as u64
    }

    fn say(&mut self, unit: usize, values: Option<Values>) {
        let values_logged = &mut self.values_logged[unit];
        // A commit takes the newest waiting value of a unit, and its doubts.
        let is_replaced = |s: &LoggedValue| s.record.is_none() && (values.is_some() || s.values.is_none());
        let mut doubt: Option<LoggedValue> = None;
        while values_logged.last().is_some_and(is_replaced) {
            let replaced = values_logged.pop().filter(|s| s.values.is_none());
            doubt = replaced.into_iter().chain(doubt).min_by_key(|s| s.since);
        }
        let since = doubt.as_ref().map_or(self.confirmed, |doubt| doubt.since);
        values_logged.extend(doubt.filter(|_| values.is_some()));
        values_logged.push(LoggedValue { record: None, since, values, is_carried: false });
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Set(unit, values) => {
                self.table.set(*unit, values.clone());
                self.say(*unit, Some(values.clone()));
            }
            Step::Doubt(unit) => {
                self.table.doubt(*unit);
                self.say(*unit, None);
            }
            Step::Commit(mask) => {
                let in_flight: Units = (0..UNITS).filter(|u| mask & 1 << u == 0).collect();
                let (record, since) = (self.last() + 1, self.confirmed);
                in_flight.iter().for_each(|unit| _ = self.table.begin_write(unit..unit + 1));
                let held = self.table.held();
                self.log.push(take(&mut self.table, record));
                in_flight.iter().for_each(|unit| self.table.end_write(unit..unit + 1));
                self.says.push(self.confirmed);
                for unit in 0..UNITS {
                    let doubt = self.values_logged[unit].iter().rposition(|s| s.values.is_none());
                    let until = if held.has(unit) { doubt.map_or(0, |at| at + 1) } else { usize::MAX };
                    for values_logged in
                        self.values_logged[unit].iter_mut().take(until).filter(|s| s.record.is_none())
                    {
                        values_logged.record = Some(record);
                        self.logged[unit].push(LoggedValue { since, ..values_logged.clone() });
                    }
                }
            }
            Step::Confirm(less) => {
                self.confirmed = self.confirmed.max(self.last().saturating_sub(*less));
                self.table.advance(self.confirmed, self.settled);
            }
            Step::Settle(less) => {
                self.settled = self.settled.max(self.confirmed.saturating_sub(*less));
                self.table.advance(self.confirmed, self.settled);
            }
            Step::Checkpoint => {
                // A checkpoint confirms all records first.
                self.take(&Step::Confirm(0));
                self.blocks = blocks(&mut self.table, self.confirmed);
                self.through = self.confirmed;
                self.snapshot();
            }
            Step::Crash { lost, cut } => self.crash(*lost, *cut),
        }
    }

    /// Carries the open values in a record of its own, after the checkpoint's blocks.
    fn snapshot(&mut self) {
        let open = self.table.open();
        self.log.push(self.table.carry(&open).into_iter().map(|(entry, _)| entry).collect());
        self.says.push(self.confirmed);
        self.snapshots.insert(self.last());
        self.snapshot = self.last();
        let record = Some(self.last());
        for unit in 0..UNITS {
            let (kind, confirmed, settled) = (self.kind, self.confirmed, self.settled);
            let history = History {
                kind,
                values_logged: &self.values_logged[unit],
                confirmed,
                settled,
                is_replayed: false,
            };
            let (before, later) = self.values_logged[unit].split_at(history.base(confirmed));
            let values = before.last().and_then(|s| s.values.clone()).or_else(|| Some(kind.unwritten()));
            let base = |record| LoggedValue {
                record,
                since: BY_SNAPSHOT,
                values: values.clone(),
                is_carried: false,
            };
            // The blocks have all values up to `through`, and the log no longer has these records.
            let logged = &mut self.logged[unit];
            logged.retain(|s| !s.is_in(self.through));
            logged.insert(0, base(Some(0)));
            if open.has(unit) {
                logged.push(base(record));
                let carried = later.iter().filter(|s| s.record.is_some()).cloned();
                let since = self.snapshot;
                logged.extend(carried.map(|s| LoggedValue { record, since, is_carried: true, ..s }));
            }
        }
    }

    /// Replays the log without its last records. Some of the blocks are already those of another checkpoint.
    fn crash(&self, lost: u64, cut: u32) {
        let later = blocks(&mut self.table.clone(), self.confirmed);
        let blocks = self.blocks.iter().zip(&later).enumerate();
        let blocks = blocks.map(|(c, (old, new))| Some(if cut & 1 << c == 0 { old } else { new }));
        let blocks: Vec<_> = blocks.collect();
        let (data, _, slabs) = self.kind.shape();
        let mut table = Table::load(ID, data, slabs, &blocks).expect("sound blocks");
        // A value in a block is confirmed, whatever the log's records confirm.
        let is_cut = cut & ((1 << blocks.len()) - 1) != 0;
        let durable = self.last().saturating_sub(lost).max(self.confirmed).max(self.snapshot);
        let says = self.says[..durable as usize].last().copied().unwrap_or(0);
        let settled = if is_cut { self.confirmed } else { self.settled.max(self.through).max(says) };
        for record in self.through + 1..=durable {
            let says = self.says[record as usize - 1];
            table.advance(says, says);
            for entry in &self.log[record as usize - 1] {
                table.apply(
                    &entry.change,
                    match self.snapshots.contains(&record) {
                        _ if entry.is_unconfirmed => Carrier::Open(record),
                        true => Carrier::Confirmed,
                        false if record <= settled => Carrier::Record(record),
                        false => Carrier::Open(record),
                    },
                    &Sg::new(),
                );
            }
        }
        table.advance(settled, settled);
        for (unit, values_logged) in self.logged.iter().enumerate() {
            let values_logged: Vec<_> = values_logged.iter().filter(|s| s.is_in(durable)).cloned().collect();
            let (kind, confirmed) = (self.kind, settled);
            History { kind, values_logged: &values_logged, confirmed, settled, is_replayed: true }
                .check(&table, unit, true);
        }
        self.crash_in_recovery(table);
    }

    /// A checkpoint of the state after a crash, and another crash.
    fn crash_in_recovery(&self, mut table: Table) {
        let entries = table.carry(&table.open()).into_iter().map(|(entry, _)| entry);
        let entries: Vec<Entry> = entries.collect();
        let blocks = blocks(&mut table, 1 << 40);
        let blocks: Vec<_> = blocks.iter().map(Some).collect();
        let (data, _, slabs) = self.kind.shape();
        let mut again = Table::load(ID, data, slabs, &blocks).expect("sound blocks");
        for entry in entries {
            let carrier = if entry.is_unconfirmed { Carrier::Open(1 << 41) } else { Carrier::Confirmed };
            again.apply(&entry.change, carrier, &Sg::new());
        }
        for unit in 0..UNITS {
            assert_eq!(again.candidates(unit), table.candidates(unit), "rule 13, unit {unit}");
            assert_eq!(again.is_open(unit), table.is_open(unit), "rule 13, unit {unit}");
        }
    }

    fn check(&self, is_exact: bool) {
        for (unit, values_logged) in self.values_logged.iter().enumerate() {
            let (confirmed, settled) = (self.confirmed, self.settled);
            let history = History { kind: self.kind, values_logged, confirmed, settled, is_replayed: false };
            history.check(&self.table, unit, is_exact);
        }
    }
}

fn blocks(table: &mut Table, version: u64) -> Vec<ChecksumBlock> {
    table.begin_blocks(version, u32::MAX);
    (0..table.contents.len()).map(|content| *table.block(content).expect("all is known")).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Set(usize, Values),
    Doubt(usize),
    /// Takes the waiting entries of these units (bits).
    Commit(u8),
    /// Confirms the records, except up to this many of the last ones.
    Confirm(u64),
    Settle(u64),
    Checkpoint,
    Crash {
        lost: u64,
        cut: u32,
    },
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (1..9_u32).prop_map(Value::Written),
        3 => Just(Value::Unwritten),
        1 => (1..9_u32).prop_map(Value::Lost),
        1 => Just(Value::LostWithoutSum),
    ]
}

fn values(kind: Kind) -> impl Strategy<Value = Values> {
    let (data, contents, _) = kind.shape();
    prop::collection::vec(value(), contents).prop_map(move |values| {
        let mut values = Values::from_vec(values);
        normalize(&mut values, data);
        values
    })
}

fn steps(kind: Kind) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..UNITS, values(kind)).prop_map(|(unit, values)| Step::Set(unit, values)),
        1 => (0..UNITS).prop_map(Step::Doubt),
        4 => any::<u8>().prop_map(Step::Commit),
        3 => (0..3_u64).prop_map(Step::Confirm),
        2 => (0..2_u64).prop_map(Step::Settle),
        1 => Just(Step::Checkpoint),
        2 => (0..3_u64, prop_oneof![Just(0), any::<u32>()]).prop_map(|(lost, cut)| Step::Crash { lost, cut }),
    ];
    prop::collection::vec(step, 1..60)
}

fn run(kind: Kind, steps: &[Step]) {
    let mut world = World::new(kind);
    for step in steps {
        world.take(step);
        world.check(world.settled == world.confirmed && matches!(step, Step::Settle(_)));
    }
    for step in [Step::Commit(u8::MAX), Step::Confirm(0), Step::Settle(0)] {
        world.take(&step);
    }
    world.check(true);
    let doubts = (0..UNITS).filter(|unit| world.table.is_open(*unit)).count();
    assert_eq!(world.table.pending.len(), doubts, "nothing else is remembered");
    assert!(world.table.overwritten.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_mirror_is_what_its_entries_say(steps in steps(Kind::Mirror)) {
        run(Kind::Mirror, &steps);
    }

    #[test]
    fn a_coded_row_is_what_its_entries_say(steps in steps(Kind::Coded)) {
        run(Kind::Coded, &steps);
    }
}

fn sum(content: usize, unit: usize) -> u32 {
    (100 * content + unit) as u32
}

/// A group in which three units of both data columns and the parity are written.
fn written() -> (Table, Vec<ChecksumBlock>) {
    let mut table = Kind::Coded.empty();
    for unit in 0..3 {
        table.set(unit, (0..3).map(|content| Value::Written(sum(content, unit))).collect());
    }
    take(&mut table, 1);
    table.advance(1, 1);
    let blocks = blocks(&mut table, 1);
    (table, blocks)
}

/// The number of the row's copies has changed since the block was written: its versions are ignored.
#[test]
fn blocks_of_sets_with_another_number_of_copies_are_loaded() {
    let block = |slabs: usize| ChecksumBlock {
        version: 7,
        writing: 3,
        lost: Units::NONE,
        written: smallvec![Units::ALL],
        versions: smallvec![7; slabs],
        sums: [5; GROUP_UNITS as usize],
    };
    for (had, has) in [(1, 2), (2, 1), (3, 2), (2, 3), (3, 1), (1, 3), (2, 2)] {
        let mut table = Table::load(ID, 1, has, &[Some(&block(had))]).expect("a block");
        let again = table.block(0).expect("it is known");
        assert_eq!(again.versions[..], vec![if had == has { 7 } else { 0 }; has][..], "{had} {has}");
        assert_eq!((table.value(0, 9), again.age()), (Value::Written(5), (7, 3)));
        // A newer view has another number of copies than the table.
        table.fit(3);
        table.begin_copy(2);
        table.begin_blocks(8, 0b101);
        assert_eq!((table.block(0).unwrap().versions[0], table.block(0).unwrap().versions[2]), (8, 8));
    }
    assert!(Table::load(ID, 1, 3, &[Some(&block(2)), None]).is_none(), "with parity the number stays");
}

/// The disk of a column is absent, and its block is read later. The entries have some of the column's values, and the
/// block has the others.
#[test]
fn a_content_without_a_block_is_unknown_and_can_be_learnt() {
    let (whole, blocks) = written();
    let mut table = Table::load(ID, 2, 3, &[Some(&blocks[0]), None, Some(&blocks[2])]).expect("blocks");
    let unknown = |written| Value::Unknown { written };
    assert_eq!((table.value(1, 0), table.value(1, 9)), (unknown(true), unknown(false)));
    assert_eq!(table.block(1), None, "no block is made of what is not known");
    let values: Values = smallvec![Value::Written(7), table.value(1, 0), Value::Lost(0)];
    table.set(0, values);
    table.set(1, smallvec![Value::Written(8), Value::Written(9), Value::Written(10)]);
    // Another owner reads the entries with all blocks. It finds the same values as this table after it has read the
    // block.
    let mut other = whole;
    let entries = take(&mut table, 2);
    entries.iter().for_each(|entry| other.apply(&entry.change, Carrier::Confirmed, &Sg::new()));
    assert_eq!(table.unknown_contents(), 0b010);
    table.learn_block(1, 1, &ChecksumBlock { version: 0, ..blocks[1].clone() });
    assert_eq!(table.unknown_contents(), 0b010, "an older block than the others name says nothing");
    let mut from_bytes = table.clone();
    for unit in 0..GROUP_UNITS as usize {
        from_bytes.learn(1, unit, blocks[1].written[1].has(unit).then_some(blocks[1].sums[unit]));
    }
    (0..UNITS).for_each(|unit| assert_eq!(from_bytes.values(unit), other.values(unit), "unit {unit}"));
    assert_eq!(from_bytes.block(1), None, "what unit 1 had before is in no bytes");
    table.learn_block(1, 1, &blocks[1]);
    for unit in 0..UNITS {
        assert_eq!(table.values(unit), other.values(unit), "unit {unit}");
    }
    let before: Values = (0..3).map(|content| Value::Written(sum(content, 0))).collect();
    assert_eq!(
        (table.value(1, 0), table.pending.get(0).expect("it waits").versions[0].values.clone()),
        (Value::Written(sum(1, 0)), before)
    );
    assert_eq!(table.value(1, 1), Value::Written(9));
    assert_eq!(table.block(1).expect("all is known").sums, blocks[1].sums, "nothing is confirmed since");
    from_bytes.advance(2, 2);
    assert!(from_bytes.block(1).is_some());
}

#[test]
fn a_parity_of_lost_data_is_not_unwritten() {
    let mut table = Kind::Coded.empty();
    table.set(0, smallvec![Value::Unwritten, Value::LostWithoutSum, Value::Written(5)]);
    assert_eq!(table.value(2, 0), Value::LostWithoutSum);
    table.set(1, smallvec![Value::Written(1), Value::Unwritten, Value::LostWithoutSum]);
    assert_eq!(table.value(2, 1), Value::Lost(0), "it is computed when the stripe is written again");
    table.set(2, smallvec![Value::Unwritten, Value::Unwritten, Value::Written(5)]);
    assert_eq!(table.value(2, 2), Value::Unwritten);
}

#[test]
fn entries_of_others_change_nothing() {
    let first = FirstUnit { row: ID.row, birth: ID.birth, content: 0, column: 0, unit: 2 * 512 };
    let others = [
        FirstUnit { row: RowNumber(4), ..first },
        FirstUnit { birth: 6, ..first },
        FirstUnit { column: 1, ..first },
        FirstUnit { content: 1, ..first },
        FirstUnit { unit: 3 * 512, ..first },
        FirstUnit { unit: 2 * 512 - 1, ..first },
        FirstUnit { unit: u32::MAX, ..first },
    ];
    let mut table = Kind::Mirror.empty();
    for first in others {
        table.apply(&Change::Written { first, sums: Sums::from_elem(1, 1) }, Carrier::Confirmed, &Sg::new());
    }
    assert!(!table.is_dirty());
    // An entry that begins before the group and ends after it changes all units of the group.
    let first = FirstUnit { unit: 2 * 512 - 1, ..first };
    table.apply(&Change::Written { first, sums: (0..514).collect() }, Carrier::Confirmed, &Sg::new());
    assert_eq!((table.value(0, 0), table.value(0, 511)), (Value::Written(1), Value::Written(512)));
}

/// The memory of a group matches the size that the budget of all tables counts.
#[test]
fn a_mirrored_group_takes_less_than_the_design_says() {
    assert!(Kind::Mirror.empty().bytes() < 2500, "{}", Kind::Mirror.empty().bytes());
}

#[test]
fn blocks_that_could_not_be_written_leave_it_dirty() {
    let (mut table, _) = written();
    assert!(!table.is_dirty());
    table.set(0, smallvec![Value::Unwritten; 3]);
    assert!(table.is_dirty(), "it waits");
    take(&mut table, 2);
    table.advance(2, 2);
    assert_eq!((table.is_dirty(), table.stale()), (true, Units::from_iter([0])));
    let stale = table.begin_blocks(2, 0b011);
    assert!(!table.is_dirty());
    assert_eq!(table.block(0).expect("all is known").versions[..], [2, 2, 1]);
    table.blocks_failed(stale);
    assert_eq!(table.stale(), Units::from_iter([0]));
}

/// Adjacent units that wait make one entry.
#[test]
fn a_sequential_write_is_one_entry() {
    let mut table = Kind::Mirror.empty();
    (0..256).for_each(|unit| table.set(unit, smallvec![Value::Written(unit as u32)]));
    let entries = take(&mut table, 1);
    let [Entry { change: Change::Written { first, sums }, .. }] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((first.unit, sums.len(), entries[0].bytes()), (1024, 256, 1048));
}

/// Values of a stripe, and payload of its first and last columns; the stripe is written to the log first.
fn redo(sum: u32) -> (Values, Sg) {
    let values = smallvec![Value::Written(sum), Value::Written(2), Value::Written(sum + 1)];
    let unit = arena::IoBuf::from(vec![sum as u8; 4096]);
    (values, [unit.clone(), unit].into_iter().collect())
}

/// A second change of a stripe whose first one is not in place: a replay refuses a record whose payload has another
/// length than its entries state.
#[test]
fn payload_of_a_column_stays_as_long_as_its_value() {
    let (mut table, _) = written();
    let unit = |byte: u8| arena::IoBuf::from(vec![byte; 4096]);
    let sums = |values: [Value; 3]| Values::from_iter(values);
    let first = [Value::Written(4), Value::Written(5), Value::Written(6)];
    table.set_redo(0, sums(first), 0b111, [4, 5, 6].map(unit).into_iter().collect());
    take(&mut table, 2);
    let second = [Value::Unwritten, Value::Written(5), Value::Written(7)];
    table.set_redo(0, sums(second), 0b100, [unit(7)].into_iter().collect());
    take(&mut table, 3);
    let (columns, payload) = table.redo(0).expect("it is not in place");
    assert_eq!((columns, payload.iter().map(|bytes| bytes[0]).collect::<Vec<_>>()), (0b110, vec![5, 7]));
    table.set(0, sums([Value::Unwritten; 3]));
    take(&mut table, 4);
    assert!(table.redo(0).is_none(), "of a discard nothing is placed");
}

#[test]
fn a_redo_stays_one_until_its_payload_is_in_place() {
    let (mut table, _) = written();
    let (values, payload) = redo(7);
    table.set(0, smallvec![Value::Lost(5), Value::Written(2), Value::Written(3)]);
    table.set_redo(0, values, 0b101, payload);
    let taken = table.take(2, false, &mut RecordCapacity::new(1024)).content;
    assert!(matches!(taken.entries[..], [Entry { change: Change::Redo { .. }, .. }]), "{:?}", taken.entries);
    assert_eq!(arena::sg_len(&taken.payload), 8192, "it needs no flush");
    let carried = |table: &Table| {
        let mut table = table.clone();
        let carried = table.carry(&table.only_in_log());
        carried
            .into_iter()
            .map(|(e, payload)| (e.change.clone(), e.is_unconfirmed, arena::sg_len(&payload)))
            .next_back()
    };
    assert_eq!(carried(&table), Some((taken.entries[0].change.clone(), true, 8192)));
    table.advance(2, 2);
    assert!(table.is_dirty(), "the payload is in the log only");
    assert_eq!(carried(&table), Some((taken.entries[0].change.clone(), false, 8192)));
    table.placed(0);
    assert!(matches!(carried(&table), Some((Change::Fresh { .. }, false, 0))));
    // A value in a block is not durable in place yet: the group stays dirty until a checkpoint has flushed it.
    let (mut table, _) = written();
    let (values, payload) = redo(7);
    table.set_redo(0, values, 0b101, payload);
    take(&mut table, 2);
    table.advance(2, 2);
    blocks(&mut table, 2);
    table.placed(0);
    assert!(table.is_dirty() && table.stale().has(0));
}

#[test]
fn lost_units_and_doubts_need_no_flush_and_data_does() {
    let capacity = || RecordCapacity::new(1024);
    let mut table = Kind::Mirror.empty();
    (0..3).for_each(|unit| table.set(unit, smallvec![Value::Written(1)]));
    take(&mut table, 1);
    table.advance(1, 1);
    table.set(0, smallvec![Value::Lost(1)]);
    table.set(1, smallvec![Value::Written(2)]);
    table.doubt(2);
    let taken = table.take(2, false, &mut capacity()).content.entries;
    assert!(matches!(
        taken[..],
        [Entry { change: Change::Lost { .. }, .. }, Entry { change: Change::Doubt { .. }, .. }]
    ));
    assert_eq!(table.waiting(), Units::from_iter([1]));
    assert!(table.take(4, true, &mut RecordCapacity::new(0)).has_rest);
    assert_eq!(table.take(4, true, &mut capacity()).content.entries.len(), 1);
}

#[test]
fn a_fresh_unit_is_written_again_at_once_until_a_record_has_it() {
    let mut table = Kind::Mirror.empty();
    table.set(0, smallvec![Value::Written(1)]);
    assert_eq!(table.in_place(0), InPlace::Empty);
    take(&mut table, 1);
    assert_eq!(table.in_place(0), InPlace::Issued(1));
}

/// Rule 2: an entry of a unit that is not firm states the unit's contents, so no write to the unit may be in flight.
#[test]
fn a_value_that_is_being_overwritten_waits_unless_the_unit_is_firm() {
    let mut table = Kind::Mirror.empty();
    assert!(table.begin_write(0..1) && table.is_dirty(), "nothing waits");
    table.set(0, smallvec![Value::Written(1)]);
    table.end_write(0..1);
    assert!(!table.begin_write(0..1), "the first value waits for the second write");
    assert_eq!((take(&mut table, 1).len(), table.held()), (0, Units::from_iter([0])));
    table.end_write(0..1);
    assert_eq!(take(&mut table, 2).len(), 1);
    table.advance(2, 2);
    table.set(0, smallvec![Value::Written(2)]);
    assert!(table.begin_write(0..1), "the region of a firm unit is active");
    assert_eq!((take(&mut table, 3).len(), table.held()), (1, Units::NONE));
}

/// Rule 6: a crash may leave several versions open, of which only the newest is placed.
#[test]
fn a_snapshot_has_payload_once_for_each_stripe() {
    let carried = |table: &mut Table| -> Vec<usize> {
        let units = table.only_in_log();
        table.carry(&units).iter().map(|(_, payload)| arena::sg_len(payload) / 4096).collect()
    };
    let of = |change: Change, carrier, table: &mut Table, payload: &Sg| {
        table.apply(&change, carrier, payload);
    };
    let redo_of = |sum: u32, columns: u32| {
        let (values, payload) = redo(sum);
        let (first, stripe) = (Kind::Coded.empty().first_stripe(0), Kind::Coded.empty().stripe(&values));
        let payload = payload.iter().cycle().take(columns.count_ones() as usize).cloned().collect();
        (Change::Redo { first, stripes: vec![RedoStripe { stripe, payload: columns }] }, payload)
    };
    let (older, older_payload) = redo_of(7, 0b101);
    let (newer, newer_payload) = redo_of(7, 0b110);
    let fresh = |values: &Values| Change::Fresh {
        first: Kind::Coded.empty().first_stripe(0),
        stripes: vec![Kind::Coded.empty().stripe(values)],
    };

    let mut table = Kind::Coded.empty();
    of(older.clone(), Carrier::Confirmed, &mut table, &older_payload);
    of(newer, Carrier::Open(2), &mut table, &newer_payload);
    assert_eq!(carried(&mut table), [0, 3], "that of the older one is a part of the newer one's");
    assert_eq!(table.redo(0).map(|(columns, units)| (columns, units.len())), Some((0b111, 3)));

    // A change that only marks a unit of the stripe as lost does not place the others.
    let lost = Change::Lost { first: table.first_unit(0, 0), sums: Sums::from_elem(7, 1) };
    for carrier in [Carrier::Open(2), Carrier::Open(3), Carrier::Confirmed] {
        let mut table = table.clone();
        of(lost.clone(), carrier, &mut table, &Sg::new());
        assert_eq!((table.redo(0).map(|redo| redo.0), table.value(0, 0)), (Some(0b111), Value::Lost(7)));
    }

    // A discard, and a fresh write after it, carry no older payload.
    of(fresh(&Kind::Coded.unwritten()), Carrier::Open(3), &mut table, &Sg::new());
    assert_eq!((carried(&mut table), table.redo(0).is_some()), (vec![0, 0, 0], false));
    of(fresh(&redo(5).0), Carrier::Open(4), &mut table, &Sg::new());
    assert_eq!((carried(&mut table), table.redo(0).is_some()), (vec![0, 0, 0, 0], false));

    // A waiting discard is in no record, so older values still count.
    let mut table = Kind::Coded.empty();
    of(older, Carrier::Confirmed, &mut table, &older_payload);
    table.set(0, Kind::Coded.unwritten());
    assert_eq!(carried(&mut table), [2]);
    take(&mut table, 5);
    assert_eq!(carried(&mut table), [0, 0]);
}
