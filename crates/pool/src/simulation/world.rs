//! A pool of simulated disks with one space, and what its user does.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arena::{Class, IoBuf};
use disk::sim::{Machine, SlotId};
use disk::{Disk, DiskError, MemoryOptions, sized};
use env::{Ctx, Env, Epoch};
use futures_util::future::join_all;
use parking_lot::Mutex;

use super::book::TestBook;
use super::model::{Model, Value};
use super::{Random, arena};
use crate::book::Book;
use crate::format::Areas;
use crate::{
    DataPath, DiskId, DiskNumber, DiskRecord, FaultDomains, MediaClass, Member, Members, Op, PathOptions,
    PoolId, Presence, Provisioning, Resiliency, Space, SpaceId, SpaceRecord, State, UNIT, Usage,
};

pub(super) const SPACE: SpaceId = SpaceId(0);

/// What the pool and its space look like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) disks: u16,
    pub(super) copies: u8,
    /// How many columns of parity may be lost; then `columns` are those of data, and there is one copy.
    pub(super) parity: u8,
    /// Groups of a local reconstruction code, or 1: each beyond the first has a parity column more.
    pub(super) groups: u8,
    pub(super) columns: u8,
    pub(super) slab_bytes: u64,
    pub(super) slabs: u32,
    pub(super) rows_max: u64,
    pub(super) interleave: u32,
    /// Entries of a block of the activity log.
    pub(super) log_entries: usize,
}

impl Shape {
    pub(super) const MIRROR: Shape = Shape {
        disks: 2,
        copies: 2,
        parity: 0,
        groups: 1,
        columns: 1,
        slab_bytes: 2 << 20,
        slabs: 3,
        rows_max: u64::MAX,
        interleave: 64 << 10,
        log_entries: 4,
    };

    pub(super) fn areas(&self) -> Areas {
        Areas::plan(self.disk_bytes(), self.slab_bytes).expect("there is room")
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        let slabs = u64::from(self.slabs) * (self.slab_bytes + self.slab_bytes / 512);
        (slabs + (2 << 20)).max(Areas::DISK_MIN)
    }

    fn record(&self) -> SpaceRecord {
        // A slab of each disk is left for a journal.
        let slabs = self.slabs - u32::from(self.parity > 0);
        let rows = u64::from(slabs) * u64::from(self.disks)
            / (u64::from(self.copies) * u64::from(self.columns + self.parity + self.groups - 1));
        SpaceRecord {
            name: "space".into(),
            size: rows.min(self.rows_max) * u64::from(self.columns) * self.slab_bytes,
            resiliency: match self.copies {
                _ if self.groups > 1 => {
                    Resiliency::LocalParity { groups: self.groups, global: self.parity - 1 }
                }
                _ if self.parity > 0 => Resiliency::Parity { parity: self.parity },
                1 => Resiliency::Simple,
                copies => Resiliency::Mirror { copies },
            },
            interleave: self.interleave,
            columns: self.columns,
            provisioning: Provisioning::Thin,
            media: MediaClass::ANY,
        }
    }

    pub(super) fn state(&self) -> State {
        let mut state = State::new(PoolId([9; 16]), "pool".into(), self.slab_bytes);
        for n in 0..self.disks {
            let record = DiskRecord {
                id: DiskId([n as u8 + 1; 16]),
                name: format!("disk{n}"),
                slabs: self.slabs,
                usage: Usage::AutoSelect,
                presence: Presence::Present,
                domains: FaultDomains::default(),
                media: 0,
                label_sequence: 1,
                membership: crate::Membership(1),
                areas: crate::format::Areas::plan(16 << 20, 2 << 20).expect("room"),
            };
            state.apply(&Op::AddDisk { disk: DiskNumber(n), record }).expect("a new disk");
        }
        state.apply(&Op::Voters { voters: [DiskNumber(0)].into() }).expect("a voter");
        state.apply_all(&state.create_ops(self.record())).expect("a space");
        // Losing the voter is the metadata's own business, which has tests of its own.
        state.voters.clear();
        state
    }
}

/// A pool that is open.
pub(super) struct World {
    pub(super) shape: Shape,
    pub(super) site: Site,
    pub(super) book: Arc<TestBook>,
    pub(super) path: Arc<DataPath>,
    epoch: u64,
}

/// What users of a space see.
pub(super) struct Site {
    pub(super) env: Env,
    pub(super) machine: Machine,
    pub(super) space: Space,
}

impl std::ops::Deref for World {
    type Target = Site;
    fn deref(&self) -> &Site {
        &self.site
    }
}

impl World {
    /// A new pool on new disks.
    pub(super) async fn new(shape: Shape, seed: u64) -> World {
        let env = Env::simulated(seed);
        let machine = Machine::new(&env, seed);
        for n in 0..shape.disks {
            machine.add(&MemoryOptions::new(format!("disk{n}"), shape.disk_bytes()));
        }
        World::open(shape, env, machine, shape.state(), 1).await
    }

    /// Opens the pool on a machine with the disks that its state calls present.
    pub(super) async fn open(shape: Shape, env: Env, machine: Machine, state: State, epoch: u64) -> World {
        let present = |n: &u16| state.is_present(DiskNumber(*n));
        let members = (0..shape.disks).filter(present).filter_map(|n| member(&shape, &machine, n));
        let members: Members = members.collect();
        let book = TestBook::new(&machine, state, members);
        let options = PathOptions { tables: 8, log_entries: shape.log_entries, read_only: false };
        let opened =
            DataPath::open(env.clone(), arena(), Arc::clone(&book) as _, Epoch(epoch), options).await;
        let path = opened.expect("the data path opens");
        book.set_path(&path);
        // What the pool does when it is opened without a disk.
        for disk in (0..shape.disks).map(DiskNumber) {
            if book.state().is_present(disk) && path.disk(disk).is_none() {
                book.leave_now(disk, crate::Absence::NotFound).expect("it may leave");
            }
        }
        let space = path.space(SPACE).expect("the space");
        World { shape, site: Site { env, machine, space }, book, path, epoch }
    }

    /// The pool after a restart of this machine, with whatever survived.
    pub(super) async fn reopen(self) -> World {
        let state = self.book.state();
        self.machine.restart();
        World::open(self.shape, self.env.clone(), self.machine.clone(), state, self.epoch + 1).await
    }

    /// A disk that left comes back with what it has.
    pub(super) async fn bring_back(&self, disk: u16) {
        let _one = self.path.joining.lock().await;
        self.bring_back_alone(disk).await;
    }

    /// The same, for a holder that excludes others.
    pub(super) async fn bring_back_alone(&self, disk: u16) {
        let member = member(&self.shape, &self.machine, disk).expect("it is plugged in");
        let members = self.book.members().with(Arc::clone(&member));
        self.path.join_alone(&member).await.expect("it joins");
        self.book.set_members(members);
        let disk = member.number;
        let membership = self.book.state().disks[&disk].next_membership();
        self.book.change(&[Op::DiskPresent { disk, membership }]).expect("it is present");
    }
}

impl Site {
    /// Writes a value to each of some units.
    pub(super) async fn write(&self, units: Range<u64>, values: &[Value]) -> Result<(), DiskError> {
        let bytes: Vec<IoBuf> = values.iter().map(|v| IoBuf::from(bytes(*v))).collect();
        assert_eq!(values.len() as u64, units.end - units.start);
        self.space.write(&Ctx::default(), units.start * UNIT, bytes.into()).wait().await
    }

    /// The values of some units; a unit that is of one value and another is what no test ever wrote.
    pub(super) async fn read(&self, units: Range<u64>) -> Result<Vec<Value>, DiskError> {
        let length = ((units.end - units.start) * UNIT) as usize;
        let buffers = sized(arena().alloc_sg(length, Class::Payload).await, length);
        let (result, read) = self.space.read(&Ctx::default(), units.start * UNIT, buffers).wait().await;
        result?;
        let mut whole = Vec::with_capacity(length);
        read.iter().for_each(|b| whole.extend_from_slice(b));
        Ok(whole.chunks_exact(UNIT as usize).map(value).collect())
    }
}

fn member(shape: &Shape, machine: &Machine, n: u16) -> Option<Arc<Member>> {
    let disk = machine.open(SlotId(usize::from(n))).ok()?;
    Some(Arc::new(Member {
        number: DiskNumber(n),
        id: DiskId([n as u8 + 1; 16]),
        disk,
        areas: shape.areas(),
    }))
}

/// A unit that says which value it is, in every 8 bytes.
pub(super) fn bytes(value: Value) -> Vec<u8> {
    value.to_le_bytes().repeat(UNIT as usize / 8)
}

fn value(unit: &[u8]) -> Value {
    let first = u64::from_le_bytes(unit[..8].try_into().expect("8 bytes"));
    if unit.chunks_exact(8).all(|c| c == &unit[..8]) { first } else { Value::MAX }
}

/// What users do to a space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) users: u64,
    pub(super) steps: u64,
    /// The units that are used, at the beginning of each row.
    pub(super) units: u64,
    /// I/Os take up to so long.
    pub(super) delay_ms: u64,
    /// Whole rows are discarded, at once and in pieces.
    pub(super) rows: bool,
}

/// Users work, each on units of its own (runs of four go round them), until they are done or the power fails.
/// Every read is checked.
pub(super) async fn work(world: &Site, load: Load, seed: u64, model: &Mutex<Model>) {
    for n in 0..world.machine.slots() {
        if load.delay_ms > 0 {
            world.machine.shuffle(SlotId(n), Duration::from_millis(load.delay_ms));
        }
    }
    let users = (0..load.users).map(|user| one_user(world, load, user, seed, model));
    join_all(users).await;
}

async fn one_user(world: &Site, load: Load, user: u64, seed: u64, model: &Mutex<Model>) {
    let mut random = Random(seed ^ (user + 1).wrapping_mul(0x1234_5678_9abc));
    let row_units = world.space.inner.layout.row_bytes() / UNIT;
    let rows = world.space.info().geometry.size / UNIT / row_units;
    for _ in 0..load.steps {
        if !world.machine.is_on() {
            return;
        }
        // A run of one to four units that is this user's.
        let runs = load.units / 4;
        let run = random.below(runs.div_ceil(load.users)) * load.users + user;
        let from = random.below(4);
        let count = 1 + random.below(4 - from);
        let row = random.below(rows);
        let first = row * row_units + (run % runs) * 4 + from;
        let mine = run < runs;
        let units = first..first + count;
        let events = || world.machine.events();
        match random.below(12) {
            0..=5 if mine => {
                let values: Vec<Value> = {
                    let mut m = model.lock();
                    units
                        .clone()
                        .map(|u| {
                            let v = m.fresh();
                            m.begins(u, v, events());
                            v
                        })
                        .collect()
                };
                if world.write(units.clone(), &values).await.is_ok() {
                    units.for_each(|u| model.lock().acknowledged(u));
                }
            }
            6 | 7 if mine => {
                let read = world.read(units.clone()).await;
                if let (Ok(values), true) = (&read, world.machine.is_on()) {
                    for (unit, value) in units.zip(values) {
                        let allowed = model.lock().now(unit);
                        assert!(
                            allowed.contains(value),
                            "seed {seed}: unit {unit} is {value}, not one of {allowed:?}"
                        );
                        model.lock().seen(unit, *value);
                    }
                } else if world.machine.is_on() {
                    panic!("seed {seed}: unit {first} cannot be read: {read:?}");
                }
            }
            8 if mine => {
                let whole = load.rows && load.users == 1 && random.below(3) == 0;
                let units = if whole { row * row_units..(row + 1) * row_units } else { units };
                let used = if whole { units.start..units.start + load.units } else { units.clone() };
                used.clone().for_each(|u| model.lock().begins(u, 0, events()));
                let pieces: Vec<Range<u64>> = match whole && random.below(2) == 0 {
                    true => used.clone().step_by(8).map(|u| u..used.end.min(u + 8)).collect(),
                    false => vec![units],
                };
                let mut well = true;
                for piece in pieces {
                    let (offset, length) = (piece.start * UNIT, (piece.end - piece.start) * UNIT);
                    well &= world.space.discard(&Ctx::default(), offset, length).wait().await.is_ok();
                }
                if well {
                    used.for_each(|u| model.lock().acknowledged(u));
                }
            }
            9 | 10 => {
                let flushing = model.lock().flush_begins();
                if world.space.flush(&Ctx::default()).wait().await.is_ok() {
                    let event = events();
                    model.lock().flushed(&flushing, event);
                }
            }
            _ => world.env.sleep(Duration::from_millis(random.below(3))).await,
        }
    }
}

/// Every unit that the load uses.
pub(super) fn used_units(world: &Site, load: Load) -> Vec<Range<u64>> {
    let row_units = world.space.inner.layout.row_bytes() / UNIT;
    let rows = world.space.info().geometry.size / UNIT / row_units;
    (0..rows).map(|r| r * row_units..r * row_units + load.units).collect()
}
