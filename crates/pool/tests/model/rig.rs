//! A machine with disks, a pool and a space on it, through what the crate offers to everybody; and what is
//! known of its disks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arena::{Arena, Class, IoBuf};
use disk::sim::{Machine, SlotId};
use disk::{Disk, DiskError, MemoryOptions, sized};
use env::{Ctx, Env, IoFlags};
use pool::format::Claimant;
use pool::{
    CommitError, CreateOptions, DataPath, MediaClass, NewDisk, OpenError, OpenOptions, PathOptions, Pool,
    Provisioning, Resiliency, Space, SpaceId, SpaceRecord, UNIT,
};

use crate::model::{Model, Value};

/// A generator that depends on nothing: SplitMix64.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// One for all: a mapping for each would cost more than most runs.
pub fn arena() -> Arena {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    ARENA.get_or_init(|| Arena::new(256 << 20).expect("a mapping")).clone()
}

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub disks: usize,
    pub copies: u8,
    /// How many columns of parity may be lost; then there is one copy.
    pub parity: u8,
    /// Groups of a local reconstruction code, or 1: each beyond the first has a parity column more.
    pub groups: u8,
    pub columns: u8,
    pub interleave: u32,
    pub rows: u64,
    pub fixed: bool,
}

pub const DISK_BYTES: u64 = 16 << 20;
pub const SLAB_BYTES: u64 = 2 << 20;
/// Seeds from here on have parity.
pub const PARITY: u64 = 1 << 48;
/// Seeds from here on have local reconstruction codes.
pub const LOCAL: u64 = 1 << 47;
/// Seeds from here on have disks that are slow: even ones are of mirrors, odd ones of parity.
pub const SLOW: u64 = 1 << 49;
/// The same with local reconstruction codes.
pub const SLOW_LOCAL: u64 = SLOW + (1 << 46);
/// Seeds from here on are the same as without this, on disks that lie, fail single I/Os and are put back to
/// older states.
pub const WILD: u64 = 1 << 50;
/// The units that are used, at the beginning of each row.
pub const USED: u64 = 40;

impl Shape {
    pub fn of(seed: u64) -> Shape {
        if let Some(n) = seed.checked_sub(WILD) {
            return Shape::of(n);
        }
        if let Some(n) = seed.checked_sub(SLOW_LOCAL) {
            return Shape::of(LOCAL + n);
        }
        if let Some(n) = seed.checked_sub(SLOW) {
            return Shape::of(if n % 2 == 0 { n / 2 } else { PARITY + n / 2 });
        }
        let mut random = Random(seed ^ 0x5a5a);
        let kinds = [
            (2, 2, 1),
            (2, 2, 1),
            (3, 2, 1),
            (4, 2, 2),
            (4, 2, 1),
            (3, 3, 1),
            (4, 3, 1),
            (1, 1, 1),
            (2, 1, 2),
            (3, 2, 1),
        ];
        let with_parity =
            [(3, 1, 2), (4, 2, 2), (4, 1, 3), (5, 2, 3), (4, 1, 2), (5, 2, 2), (5, 1, 2), (6, 2, 3)];
        let (disks, copies, columns) = kinds[(seed % 10) as usize];
        let with_groups = [(7, 4), (8, 4), (11, 8), (9, 6), (7, 4), (8, 4), (12, 8), (16, 12)];
        let (disks, copies, parity, groups, columns) = match seed {
            PARITY.. => {
                let (disks, parity, columns) = with_parity[((seed - PARITY) % 8) as usize];
                (disks, 1, parity, 1, columns)
            }
            LOCAL.. => {
                let (disks, columns) = with_groups[((seed - LOCAL) % 8) as usize];
                (disks, 1, 2, 2, columns)
            }
            _ => (disks, copies, 0, 1, columns),
        };
        let interleave = [4096, 8192, 65536][random.below(3) as usize];
        let (rows, fixed) = (1 + random.below(3), random.one_in(3));
        Shape { disks, copies, parity, groups, columns, interleave, rows, fixed }
    }

    pub fn record(&self) -> SpaceRecord {
        SpaceRecord {
            name: "space".into(),
            size: self.rows * self.row_units() * UNIT,
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
            provisioning: if self.fixed { Provisioning::Fixed } else { Provisioning::Thin },
            media: MediaClass::ANY,
        }
    }

    pub fn row_units(&self) -> u64 {
        u64::from(self.columns) * SLAB_BYTES / UNIT
    }

    /// How many disks may be bad at a time.
    pub fn promise(&self) -> usize {
        usize::from(self.copies - 1 + self.parity)
    }
}

/// What lives until the next crash.
#[derive(Clone)]
pub struct Site {
    pub pool: Pool,
    pub path: Arc<DataPath>,
    pub space: Space,
}

pub struct Rig {
    pub seed: u64,
    pub shape: Shape,
    pub env: Env,
    pub machine: Machine,
    pub model: RefCell<Model>,
    /// Disks that are away, behind, or lie.
    pub bad: RefCell<BTreeSet<usize>>,
    /// Of them, those that lie or were put back to an older state.
    pub liars: RefCell<BTreeSet<usize>>,
    pub pulled: RefCell<BTreeSet<usize>>,
    /// Disks that were away when the loss of what only they have was accepted.
    pub given_up: RefCell<BTreeSet<usize>>,
    /// Disks that may be too slow, until the end of this life: they may leave at any moment.
    pub sluggish: RefCell<BTreeSet<usize>>,
    /// A disk takes no new slabs, or is no more of the pool: there may be no room for a row.
    pub less_room: Cell<bool>,
    /// A disk that is returning: until it has joined it misses writes, so it does not count as good.
    pub returning: Cell<Option<usize>>,
    /// Disks that came back in this life: a write that was under way without one says so when it ends.
    pub returned: RefCell<BTreeSet<usize>>,
    /// Slabs of parity rows were given to other disks, which have to be filled first and count as bad until then.
    pub rebuilds: Cell<bool>,
    /// More is bad than promised, until the next opening with all disks.
    pub exceeded: Cell<bool>,
    /// More was bad than promised while a disk returned wrong data: what was lost then stays lost, whichever
    /// disk returns.
    pub ruined: Cell<bool>,
    pub log: RefCell<Vec<String>>,
}

pub fn by() -> Claimant {
    Claimant { host: "a".into(), machine: [1; 16], boot: [1; 16], process: 7 }
}

pub fn options(machine: &Machine) -> MemoryOptions {
    MemoryOptions::new(format!("disk{}", machine.slots()), DISK_BYTES)
}

pub fn disks(machine: &Machine) -> Vec<Arc<dyn Disk>> {
    let all = (0..machine.slots()).filter_map(|n| machine.open(SlotId(n)).ok());
    all.map(|d| d as Arc<dyn Disk>).collect()
}

async fn site(env: &Env, pool: Pool) -> Result<Site, CommitError> {
    let options = PathOptions { tables: 4, log_entries: 2, read_only: false };
    let path = DataPath::of_pool(&pool, env.clone(), arena(), options).await.map_err(|e| match e {
        pool::SpaceError::Metadata(e) => e,
        other => panic!("a data path: {other}"),
    })?;
    let space = path.space(SpaceId(0)).expect("the space");
    Ok(Site { pool, path, space })
}

/// Opens what is here.
pub async fn open(env: &Env, machine: &Machine, accept_loss: bool) -> Result<Site, OpenError> {
    let mut options = OpenOptions::new(by());
    options.accept_loss = accept_loss;
    let opened = Pool::open(env, &arena(), &disks(machine), &options).await?;
    Ok(site(env, opened.pool).await?)
}

/// Opens it for reading only.
pub async fn look(env: &Env, machine: &Machine) -> Result<Site, OpenError> {
    let options = OpenOptions { read_only: true, ..OpenOptions::new(by()) };
    let opened = Pool::open(env, &arena(), &disks(machine), &options).await?;
    Ok(site(env, opened.pool).await?)
}

impl Rig {
    pub async fn new(seed: u64) -> (Rig, Site) {
        let (shape, env) = (Shape::of(seed), Env::simulated(seed));
        let machine = Machine::new(&env, seed);
        for n in 0..shape.disks {
            machine.add(&options(&machine));
            machine.shuffle(SlotId(n), Duration::from_millis(3));
        }
        let new: Vec<NewDisk> = disks(&machine).into_iter().map(|d| placed(d, "first".to_owned())).collect();
        let options = CreateOptions { name: "tank".into(), slab_bytes: Some(SLAB_BYTES), by: by() };
        let pool = Pool::create(&env, &arena(), &new, options).await.expect("a pool");
        assert_eq!(pool.create_space(shape.record()).await, Ok(SpaceId(0)));
        let site = site(&env, pool).await.expect("a data path");
        if shape.fixed {
            site.space.allocate_all().await.expect("there is room");
        }
        let rig = Rig {
            seed,
            shape,
            env,
            machine,
            model: RefCell::default(),
            bad: RefCell::default(),
            liars: RefCell::default(),
            pulled: RefCell::default(),
            given_up: RefCell::default(),
            sluggish: RefCell::default(),
            less_room: Cell::new(false),
            returning: Cell::new(None),
            returned: RefCell::default(),
            rebuilds: Cell::new(false),
            exceeded: Cell::new(false),
            ruined: Cell::new(false),
            log: RefCell::default(),
        };
        (rig, site)
    }

    /// Whether its disks may lie.
    pub fn is_wild(&self) -> bool {
        self.seed >= WILD || crate::wild()
    }

    pub fn note(&self, what: impl FnOnce() -> String) {
        let event = self.machine.events();
        let line = format!("[{event}] {}", what());
        if std::env::var_os("POOL_TRACE").is_some() {
            eprintln!("{line}");
        }
        self.log.borrow_mut().push(line);
    }

    pub fn fail(&self, what: &str) -> ! {
        let log = self.log.borrow();
        let from = log.len().saturating_sub(60);
        panic!("seed {} ({:?}): {what}\n{}", self.seed, self.shape, log[from..].join("\n"));
    }

    /// Whether errors are the pool's fault now.
    pub fn is_strict(&self) -> bool {
        !self.exceeded.get() && self.machine.is_on()
    }

    /// Another disk is bad; false if that is one too many.
    pub fn spoil(&self, n: usize) -> bool {
        self.bad.borrow_mut().insert(n);
        if self.bad.borrow().len() > self.shape.promise() && !self.exceeded.get() {
            self.note(|| format!("disk {n} is one too many"));
            self.exceeded.set(true);
            self.model.borrow_mut().lost();
        }
        self.ruined.set(self.ruined.get() || self.exceeded.get() && !self.liars.borrow().is_empty());
        !self.exceeded.get()
    }

    /// Whether an error is one that a lie and a crash together may leave (docs, "What this does not give"):
    /// nothing is promised from then on.
    pub fn excuses(&self, error: &DiskError) -> bool {
        let medium = matches!(error, DiskError::Medium { .. });
        if medium && self.model.borrow().is_open() && !self.ruined.get() {
            self.note(|| format!("{error}, after a lie and a crash"));
            self.ruined.set(true);
            self.exceeded.set(true);
        }
        medium && self.ruined.get()
    }

    /// Disks that came back and turn out to have missed something.
    pub fn look_at_returned(&self, site: &Site) {
        let returned = self.returned.borrow();
        self.bad.borrow_mut().extend(returned.iter().copied().filter(|n| site.lacks(*n)));
    }

    /// Whether one more may be bad.
    pub fn has_budget(&self, n: usize) -> bool {
        let bad = self.bad.borrow();
        bad.contains(&n) || bad.len() < self.shape.promise()
    }

    /// Disks that are present and have missed nothing are good again.
    pub fn look(&self, site: &Site) {
        // A disk that could not be added belongs to no pool.
        let ours = |n: usize| site.pool.read(|s| s.disks.contains_key(&pool::DiskNumber(n as u16)));
        self.liars.borrow_mut().retain(|n| ours(*n));
        let away: Vec<usize> = self.pulled.borrow().iter().copied().filter(|n| !ours(*n)).collect();
        away.into_iter().for_each(|n| crate::chaos::plug(self, n));
        let liars = self.liars.borrow();
        let pulled = self.pulled.borrow();
        let sluggish = self.sluggish.borrow();
        if self.rebuilds.get() {
            let filled: Vec<usize> =
                (0..self.machine.slots()).filter(|n| ours(*n) && site.lacks(*n)).collect();
            self.rebuilds.set(!filled.is_empty());
            self.bad.borrow_mut().extend(filled);
        }
        self.bad.borrow_mut().retain(|n| {
            let d = pool::DiskNumber(*n as u16);
            if !ours(*n) {
                return false;
            }
            let behind = !site.pool.read(|s| s.is_present(d)) || site.lacks(*n);
            let away = pulled.contains(n) || site.pool.members().get(d).is_none();
            behind || away || liars.contains(n) || sluggish.contains(n) || self.returning.get() == Some(*n)
        });
    }
}

impl Site {
    /// Whether a disk has missed something of what it has slabs for.
    pub fn lacks(&self, n: usize) -> bool {
        let mine = |c: &pool::SlabCopy| c.place.disk == pool::DiskNumber(n as u16) && c.missed != 0;
        self.pool.read(|s| s.rows.values().flat_map(|r| &r.slabs).any(mine))
    }

    pub async fn write(&self, first: u64, values: &[Value], through: bool) -> Result<(), DiskError> {
        let bytes: Vec<IoBuf> =
            values.iter().map(|v| IoBuf::from(v.to_le_bytes().repeat(UNIT as usize / 8))).collect();
        let flags = IoFlags { write_through: through, ..IoFlags::default() };
        self.space.write(&Ctx { flags, ..Ctx::default() }, first * UNIT, bytes.into()).wait().await
    }

    /// The values of some units; a unit with mixed contents was never written so.
    pub async fn read(&self, first: u64, count: u64) -> Result<Vec<Value>, DiskError> {
        let length = (count * UNIT) as usize;
        let buffers = sized(arena().alloc_sg(length, Class::Payload).await, length);
        let (result, read) = self.space.read(&Ctx::default(), first * UNIT, buffers).wait().await;
        result?;
        let mut whole = Vec::with_capacity(length);
        read.iter().for_each(|b| whole.extend_from_slice(b));
        let value = |unit: &[u8]| {
            let first = u64::from_le_bytes(unit[..8].try_into().expect("8 bytes"));
            if unit.chunks_exact(8).all(|c| c == &unit[..8]) { first } else { Value::MAX }
        };
        Ok(whole.chunks_exact(UNIT as usize).map(value).collect())
    }
}

/// A disk for a pool, in an enclosure if that is wanted.
pub fn placed(disk: Arc<dyn Disk>, enclosure: String) -> NewDisk {
    let mut new = NewDisk::new(disk);
    if crate::enclosures() {
        new.domains.enclosure = enclosure;
    }
    new
}
