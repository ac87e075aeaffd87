//! A log with tables as its source: checks which record has which value.

use std::sync::Arc;
use std::time::Duration;

use arena::{IoBuf, Sg};
use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Disk, Op, PowerCut};
use env::{Ctx, Io};
use parking_lot::Mutex;
use pool_seam::{DiskNumber, RowNumber};
use smallvec::{SmallVec, smallvec};

use super::super::*;
use super::in_virtual_time;
use super::world::{DATA, DATA_DISK, World};
use crate::blocks::ChecksumBlock;
use crate::table::{Table, TableId, Value};

const ID: TableId = TableId { row: RowNumber(3), birth: 7, set: 0, group: 0 };
const SLOW: Duration = Duration::from_millis(20);

/// One table of a simple row.
struct Tables {
    table: Arc<Mutex<Table>>,
    disk: Arc<dyn Disk>,
}

impl Tables {
    fn new(world: &World) -> Arc<Tables> {
        let (table, disk) = (Arc::new(Mutex::new(Table::empty(ID, 1, 1, 1))), world.machine.open(DATA));
        Arc::new(Tables { table, disk: disk.expect("the data disk") })
    }

    fn set(&self, sum: u32) {
        self.table.lock().set(0, smallvec![Value::Written(sum)]);
    }

    /// The table after an update with the log's progress.
    fn with_table<T>(&self, log: &SpaceLog, read: impl FnOnce(&mut Table) -> T) -> T {
        let Progress { confirmed, declared, .. } = log.reached();
        let mut table = self.table.lock();
        table.advance(confirmed, declared);
        read(&mut table)
    }
}

impl EntrySource for Tables {
    fn take(&self, sequence: u64, set: &FlushSet, capacity: &mut RecordCapacity) -> Taken {
        self.table.lock().take(sequence, set.everything, capacity)
    }

    fn flush(&self, _: FlushSet) -> Io<SmallVec<[DiskNumber; 1]>> {
        let table = Arc::clone(&self.table);
        self.disk.flush(&Ctx::default()).map(move |flushed| match flushed {
            Ok(()) => SmallVec::new(),
            Err(_) => {
                table.lock().doubt(0);
                [DATA_DISK].into_iter().collect()
            }
        })
    }
}

fn everything() -> FlushSet {
    FlushSet::everything()
}

async fn log(world: &World, tables: &Arc<Tables>) -> SpaceLog {
    let settings = LogSettings { source: Arc::<Tables>::clone(tables), ..world.settings() };
    SpaceLog::create(settings, world.ring, world.replicas(), 1).await.expect("a new log")
}

/// The table that the next owner loads after a power cut, with the blocks of the last checkpoint.
async fn found(world: &World, block: Option<&ChecksumBlock>) -> Table {
    world.machine.cut(PowerCut::LoseAll);
    world.machine.restart();
    (0..=5).for_each(|slot| world.machine.no_rules(SlotId(slot)));
    let (_log, opened) = world.next().open().await;
    let mut table = match block {
        Some(block) => Table::load(ID, 1, 1, &[Some(block)]).expect("a block"),
        None => Table::empty(ID, 1, 1, 1),
    };
    for (record, entry) in opened.log.entries() {
        let declared = record.head.id.confirmed;
        table.advance(declared, declared);
        table.apply(&entry.change, opened.log.carrier(record, entry), &Sg::new());
    }
    let declared = opened.log.closed.confirmed;
    table.advance(declared, declared);
    table
}

fn sums(table: &Table) -> Vec<u32> {
    let sum = |value: &Value| if let Value::Written(sum) = value { *sum } else { 0 };
    table.candidates(0).iter().map(|values| sum(&values[0])).collect()
}

#[test]
fn a_value_set_while_a_record_is_written_is_in_the_next_one() {
    in_virtual_time(async {
        let world = World::new(1, 256, 1);
        let tables = Tables::new(&world);
        let log = log(&world, &tables).await;
        world.machine.rule(SlotId(0), Rule::new(Op::Write, When::From(0), Fault::Slow(SLOW)));
        tables.set(1);
        let first = log.flush(everything());
        world.env.sleep(SLOW / 2).await;
        tables.set(2);
        let second = log.flush(everything());
        first.await.unwrap();
        assert_eq!(log.reached().confirmed, 1);
        second.await.unwrap();
        assert_eq!(log.reached().confirmed, 2);
        assert_eq!(tables.with_table(&log, |table| sums(table)), [2]);
        drop(log);
        let table = found(&world, None).await;
        assert_eq!(sums(&table)[0], 2, "the flush of the second value was acknowledged");
    });
}

#[test]
fn a_checkpoint_between_a_durable_record_and_its_answer_carries_it() {
    in_virtual_time(async {
        let world = World::new(1, 256, 1);
        let tables = Tables::new(&world);
        let log = log(&world, &tables).await;
        world.machine.rule(DATA, Rule::new(Op::Flush, When::From(0), Fault::Slow(SLOW)));
        let data = [IoBuf::from(vec![1; 4096])].into_iter().collect();
        tables.disk.write(&Ctx::default(), 0, data).wait().await.unwrap();
        tables.set(1);
        let flush = log.flush(everything());
        world.env.sleep(SLOW / 2).await;
        let block = tables.with_table(&log, |table| {
            table.begin_blocks(0, 1);
            table.block(0).expect("all is known")
        });
        let from = Arc::clone(&tables.table);
        let parts = move || {
            let mut table = from.lock();
            let units = table.only_in_log();
            Parts { carried: table.carry(&units), ..Parts::default() }
        };
        log.checkpoint(parts).await.unwrap();
        flush.await.unwrap();
        drop(log);
        let table = found(&world, Some(&block)).await;
        assert_eq!(sums(&table)[0], 1, "its flush was acknowledged");
    });
}

#[test]
fn a_value_whose_flush_failed_is_old_or_new_and_not_lost() {
    in_virtual_time(async {
        let world = World::new(1, 256, 1);
        let tables = Tables::new(&world);
        let log = log(&world, &tables).await;
        tables.set(1);
        log.flush(everything()).await.unwrap();
        tables.with_table(&log, |table| table.set(0, smallvec![Value::Written(2)]));
        world.machine.rule(DATA, Rule::new(Op::Flush, When::Nth(0), Fault::Error));
        assert_eq!(log.flush(everything()).await, Err(LogError::NotFlushed(DATA_DISK)));
        log.wait_declared(2).await.unwrap();
        assert_eq!(tables.with_table(&log, |table| (sums(table), table.is_open(0))), (vec![2, 1], true));
        drop(log);
        world.env.sleep(SLOW).await;
        let table = found(&world, None).await;
        assert_eq!((sums(&table), table.is_open(0)), (vec![2, 1], true));
    });
}
