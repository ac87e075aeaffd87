//! Disks with replicas, a data disk, and stand-ins for coordinator and ports.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arena::{IoBuf, Sg};
use disk::sim::{CrashPoint, FaultyDisk, Machine, SlotId};
use disk::{Disk, DiskError, MemoryOptions, PowerCut};
use env::{Ctx, Env, Io};
use parking_lot::Mutex;
use pool_seam::{DiskNumber, Membership, PoolId, RowNumber, SpaceId};

use super::super::*;
use crate::blocks::ContentId;
use crate::log::BLOCK;
use crate::log::commit::Size;
use crate::log::entry::{Change, Entry, FirstStripe, FirstUnit, RedoStripe, Stripe};
use crate::port::Port;
use crate::port::tests::access;

const SPACE: SpaceId = SpaceId(3);
const OFFSET: u64 = 64 << 10;
const BIRTH: u32 = 9;
/// Disks for replicas; the data disk is the one after them.
pub(super) const SLOTS: usize = 5;
pub(super) const DATA: SlotId = SlotId(SLOTS);
pub(super) const DATA_DISK: DiskNumber = DiskNumber(SLOTS as u16);

/// The metadata of a replica.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) slot: SlotId,
    pub(super) allocation: u32,
    pub(super) is_stale: bool,
}

pub(super) type Rows = BTreeMap<u8, Place>;

/// Stands for the coordinator: its records are durable at once, after a time.
pub(super) struct TestCoordinator {
    pub(super) env: Env,
    pub(super) machine: Machine,
    /// The states, with the number of events when they became durable.
    history: Mutex<Vec<(u64, Rows)>>,
    pub(super) deposed: Mutex<bool>,
    pub(super) delay: Duration,
    epoch: u64,
}

/// Stands for tables and ports: entries that wait, and one disk, on which unit `u` is at block `u`.
pub(super) struct TestSpace {
    pub(super) disk: Arc<FaultyDisk>,
    /// Completed and unflushed units.
    pub(super) dirty: Arc<Mutex<Vec<u32>>>,
    pub(super) flushes: Mutex<Vec<FlushSet>>,
    waiting: Arc<Mutex<VecDeque<Append>>>,
}

/// A waiting entry, and the flush that its caller requests.
#[derive(Clone, Debug)]
pub(super) struct Append {
    pub(super) entry: Entry,
    pub(super) payload: Sg,
    pub(super) flush: Option<FlushSet>,
}

pub(super) struct World {
    pub(super) env: Env,
    pub(super) machine: Machine,
    pub(super) coordinator: Arc<TestCoordinator>,
    pub(super) disks: Arc<TestSpace>,
    pub(super) ring: Ring,
    pub(super) epoch: u64,
}

impl TestCoordinator {
    pub(super) fn rows(&self) -> Rows {
        self.history.lock().last().expect("a state").1.clone()
    }

    pub(super) fn rows_at(&self, event: u64) -> Rows {
        let history = self.history.lock();
        history.iter().rfind(|(at, _)| *at <= event).expect("a state").1.clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Rows)) {
        let mut rows = self.rows();
        change(&mut rows);
        self.history.lock().push((self.machine.events(), rows));
    }

    async fn failed(self: Arc<Self>, index: u8) -> Result<FailureDecision, Deposed> {
        self.env.sleep(self.delay).await;
        let rows = self.rows();
        let others = rows.iter().any(|(other, place)| *other != index && !place.is_stale);
        if others || rows[&index].is_stale {
            self.change(|rows| rows.get_mut(&index).expect("it is there").is_stale = true);
            return Ok(FailureDecision::Removed);
        }
        loop {
            if *self.deposed.lock() {
                return Err(Deposed);
            }
            match self.machine.open(rows[&index].slot) {
                Ok(disk) => {
                    let number = DiskNumber(rows[&index].slot.0 as u16);
                    return Ok(FailureDecision::Retry(Port::new(
                        number,
                        Membership(1),
                        disk,
                        access(&self.env, self.epoch),
                    )));
                }
                Err(_) => self.env.sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

/// The first allocation of a slab with this index. Each later one is 256 higher, so that the number identifies the
/// slab.
pub(super) fn first_of(index: u8) -> u32 {
    u32::from(index) + 1
}

fn index_of(allocation: u32) -> u8 {
    ((allocation - 1) % 256) as u8
}

/// The trait's implementation needs an owned handle.
struct Handle(Arc<TestCoordinator>);

impl Coordination for Handle {
    fn replica_failed(&self, allocation: u32, _: DiskError) -> Io<Result<FailureDecision, Deposed>> {
        Io::pending(Arc::clone(&self.0).failed(index_of(allocation)))
    }

    fn replicas_rolled_back(&self, allocations: Vec<u32>) -> Io<Result<Vec<u32>, Deposed>> {
        let coordinator = Arc::clone(&self.0);
        let indices: Vec<u8> = allocations.iter().map(|allocation| index_of(*allocation)).collect();
        Io::pending(async move {
            coordinator.env.sleep(coordinator.delay).await;
            let others = |rows: &Rows| rows.iter().any(|(i, place)| !indices.contains(i) && !place.is_stale);
            if others(&coordinator.rows()) {
                coordinator.change(|rows| {
                    indices
                        .iter()
                        .for_each(|index| rows.get_mut(index).expect("it is there").is_stale = true);
                });
                return Ok(allocations);
            }
            Ok(Vec::new())
        })
    }

    fn replica_joined(&self, allocation: u32) -> Io<Result<(), Deposed>> {
        let index = index_of(allocation);
        let coordinator = Arc::clone(&self.0);
        Io::pending(async move {
            coordinator.env.sleep(coordinator.delay).await;
            coordinator.change(|rows| rows.get_mut(&index).expect("it is there").is_stale = false);
            Ok(())
        })
    }
}

impl EntrySource for TestSpace {
    fn take(&self, _: u64, set: &FlushSet, capacity: &mut RecordCapacity) -> Taken {
        let mut taken = Taken::default();
        let flushes = |disk: &DiskNumber| set.everything || set.disks.contains(disk);
        self.waiting.lock().retain(|waiting| {
            if waiting.flush.as_ref().is_some_and(|set| !set.disks.iter().all(flushes)) {
                return true;
            }
            let size = Size { body: waiting.entry.bytes(), units: arena::sg_len(&waiting.payload) / BLOCK };
            taken.has_rest |= !capacity.add(size);
            if !taken.has_rest {
                taken.content.entries.push(waiting.entry.clone());
                taken.content.payload.extend(waiting.payload.clone());
            }
            taken.has_rest
        });
        taken
    }

    fn flush(&self, set: FlushSet) -> Io<SmallVec<[DiskNumber; 1]>> {
        let flushes = set.everything || set.disks.contains(&DATA_DISK);
        self.flushes.lock().push(set);
        if !flushes || self.dirty.lock().is_empty() {
            return Io::Done(SmallVec::new());
        }
        let units = std::mem::take(&mut *self.dirty.lock());
        let waiting = Arc::clone(&self.waiting);
        self.disk.flush(&Ctx::default()).map(move |flushed| match flushed {
            Ok(()) => SmallVec::new(),
            Err(_) => {
                let doubt = |unit| Change::Doubt { first: first(unit), count: 1 }.into();
                let doubts = units.into_iter().map(|unit| Append {
                    entry: doubt(unit),
                    payload: Sg::new(),
                    flush: None,
                });
                waiting.lock().extend(doubts);
                [DATA_DISK].into_iter().collect()
            }
        })
    }
}

impl World {
    /// A machine without a log.
    pub(super) fn new(seed: u64, ring: u64, replicas: u8) -> World {
        let env = Env::simulated(seed);
        let machine = Machine::new(&env, seed);
        for slot in 0..=SLOTS {
            machine.add(&MemoryOptions::new(
                format!("disk{slot}"),
                OFFSET + (ring + 64) * BLOCK as u64 + (8 << 20),
            ));
        }
        let place =
            |index: u8| Place { slot: SlotId(index.into()), allocation: first_of(index), is_stale: false };
        let rows = (0..replicas).map(|index| (index, place(index))).collect();
        World::on(env, machine, rows, Ring::new(ring).expect("a ring"), 1)
    }

    fn on(env: Env, machine: Machine, rows: Rows, ring: Ring, epoch: u64) -> World {
        let disk = machine.open(DATA).expect("the data disk");
        let coordinator = Arc::new(TestCoordinator {
            env: env.clone(),
            machine: machine.clone(),
            history: Mutex::new(vec![(0, rows)]),
            deposed: Mutex::new(false),
            delay: Duration::from_millis(2),
            epoch,
        });
        let disks =
            TestSpace { disk, dirty: Arc::default(), flushes: Mutex::default(), waiting: Arc::default() };
        World { env, machine, coordinator, disks: Arc::new(disks), ring, epoch }
    }

    /// The machine after a cut at a moment, as the next owner finds it.
    pub(super) fn after(&self, moment: &CrashPoint, cut: PowerCut) -> World {
        let env = Env::simulated(moment.event);
        let machine = moment.cut(&env, cut);
        World::on(env, machine, self.coordinator.rows_at(moment.event), self.ring, self.epoch + 1)
    }

    /// The same machine, as the next owner finds it.
    pub(super) fn next(&self) -> World {
        World::on(self.env.clone(), self.machine.clone(), self.coordinator.rows(), self.ring, self.epoch + 1)
    }

    pub(super) fn settings(&self) -> LogSettings {
        LogSettings {
            env: self.env.clone(),
            arena: super::arena(),
            pool: PoolId([5; 16]),
            space: SPACE,
            epoch: self.epoch,
            hang: Duration::from_secs(10),
            coordination: Arc::new(Handle(Arc::clone(&self.coordinator))),
            source: Arc::<TestSpace>::clone(&self.disks),
        }
    }

    pub(super) fn replica(&self, place: &Place) -> Replica {
        let disk = self.machine.open(place.slot).expect("the disk of a replica");
        let port =
            Port::new(DiskNumber(place.slot.0 as u16), Membership(1), disk, access(&self.env, self.epoch));
        Replica { allocation: place.allocation, port, offset: OFFSET }
    }

    /// The current replicas.
    pub(super) fn replicas(&self) -> Vec<Replica> {
        let rows = self.coordinator.rows();
        rows.values().filter(|place| !place.is_stale).map(|place| self.replica(place)).collect()
    }

    pub(super) async fn create(&self) -> SpaceLog {
        SpaceLog::create(self.settings(), self.ring, self.replicas(), 1).await.expect("a new log")
    }

    pub(super) async fn open(&self) -> (SpaceLog, Opened) {
        SpaceLog::open(self.settings(), self.replicas(), Required::default()).await.expect("a log that opens")
    }

    /// A new replica with this index, on a disk that has had none with it.
    pub(super) fn new_replica(&self, index: u8, slot: SlotId) -> Replica {
        let mut place = None;
        self.coordinator.change(|rows| {
            let allocation = rows.get(&index).map_or(first_of(index), |place| place.allocation + 256);
            let new = Place { slot, allocation, is_stale: true };
            rows.insert(index, new.clone());
            place = Some(new);
        });
        self.replica(&place.expect("a place"))
    }

    /// Adds an entry to the space, and waits for it, with the flush if it has one.
    pub(super) fn append(&self, log: &SpaceLog, append: Append) -> Wait<()> {
        let flush = append.flush.clone();
        self.disks.waiting.lock().push_back(append);
        match flush {
            Some(set) => log.flush(set),
            None => log.durable(),
        }
    }

    /// Writes a unit's data, without a flush.
    pub(super) async fn write(&self, unit: u32) {
        let (at, data) = (u64::from(unit) * BLOCK as u64, IoBuf::from(data(unit)));
        let write = self.disks.disk.write(&Ctx::default(), at, [data].into_iter().collect());
        if write.wait().await.is_ok() {
            self.disks.dirty.lock().push(unit);
        }
    }

    /// Whether the data disk has a unit.
    pub(super) fn has(&self, unit: u32) -> bool {
        self.machine.image(DATA).to_vec(u64::from(unit) * BLOCK as u64, BLOCK) == data(unit)
    }
}

/// Units count from 1, because a disk is zeros.
pub(super) fn data(unit: u32) -> Vec<u8> {
    let mut data = vec![unit as u8; BLOCK];
    data[..4].copy_from_slice(&unit.to_le_bytes());
    data
}

pub(super) fn first(unit: u32) -> FirstUnit {
    FirstUnit { row: RowNumber(0), birth: BIRTH, content: 0, column: 0, unit }
}

pub(super) fn written(unit: u32) -> Entry {
    Change::Written { first: first(unit), sums: [unit].into_iter().collect() }.into()
}

/// An append that waits for a flush of everything.
pub(super) fn flush(unit: u32) -> Append {
    let set = FlushSet { everything: true, disks: [DATA_DISK].into_iter().collect() };
    Append { entry: written(unit), payload: Sg::new(), flush: Some(set) }
}

/// A stripe of one column whose unit is payload.
pub(super) fn redo(unit: u32) -> (Entry, Sg) {
    let sum = ContentId { space: SPACE, birth: BIRTH, content: 0 }.checksum(unit, &data(unit));
    let stripe = Stripe { written: 1, known: 1, sums: [sum].into_iter().collect() };
    let first = FirstStripe { row: RowNumber(0), birth: BIRTH, unit };
    let stripes = vec![RedoStripe { stripe, payload: 1 }];
    (Change::Redo { first, stripes }.into(), [IoBuf::from(data(unit))].into_iter().collect())
}

pub(super) fn early(unit: u32) -> Append {
    let (entry, payload) = redo(unit);
    Append { entry, payload, flush: None }
}

/// The unit of an entry of these tests.
pub(super) fn unit_of(entry: &Entry) -> Option<u32> {
    match &entry.change {
        Change::Written { first, .. } => Some(first.unit),
        Change::Redo { first, .. } => Some(first.unit),
        _ => None,
    }
}
