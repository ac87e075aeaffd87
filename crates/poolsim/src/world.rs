//! A machine with a pool, and the owners of its spaces.

use std::sync::{Arc, OnceLock, Weak};

use crate::rates::Rates;
use arena::{Arena, Class, IoBuf, Sg};
use disk::sim::{CrashPoint, FaultyDisk, Machine, SlotId};
use disk::{Disk, MemoryOptions, PowerCut, sized};
use env::Env;
use pool::authority::PoolAuthority;
use pool::format::Claimant;
use pool::{
    CreateOptions, Deadlines, FaultDomains, NewDisk, OpenError, OpenOptions, Opened, Pool, SpaceRecord,
};
use pool_local::{LocalOptions, LocalPool};
use pool_seam::{
    Coordinator, DiskNumber, MediaClass, Membership, NodeId, Owner, OwnerId, Provisioning, Resiliency,
    SpaceId, UNIT,
};
use space::cache::Budget;
use space::{Retries, Settings, Space, SpaceError};

use crate::process::{Fences, Process};

const MIB: u64 = 1 << 20;

/// A machine, and a process on it with its memory arena.
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) machine: Machine,
    pub(crate) process: Process,
    fences: Fences,
    pub(crate) host: Claimant,
    arena: Arena,
    slab_bytes: u64,
    pub(crate) deadlines: Deadlines,
    pub(crate) retries: Arc<Retries>,
    rates: Option<Arc<Rates>>,
}

/// An owner that is linked to the pool.
pub(crate) struct OwnedSpace {
    pub(crate) id: SpaceId,
    pub(crate) space: Space,
    _link: Arc<dyn Owner>,
    arena: Arena,
}

/// A pool with a mirror in which some units durably have the value 1.
pub(crate) async fn filled(seed: u64, disks: u16) -> (World, Pool, OwnedSpace, SpaceId) {
    filled_in(World::new(seed, disks)).await
}

/// [`filled`] on this machine.
pub(crate) async fn filled_in(world: World) -> (World, Pool, OwnedSpace, SpaceId) {
    let pool = world.create().await;
    let space = pool.create_space(mirror("vm")).await.expect("a space");
    let owned = world.own(&pool, space).await.expect("an owner");
    owned.write(0..64, 1).await.expect("a write");
    owned.flush().await.expect("a flush");
    (world, pool, owned, space)
}

impl World {
    /// A machine with this many disks of 64 MiB.
    pub(crate) fn new(seed: u64, disks: u16) -> World {
        let env = Env::simulated(seed);
        let machine = Machine::new(&env, seed);
        for n in 0..disks {
            machine.add(&MemoryOptions::new(format!("disk{n}"), 64 * MIB));
        }
        World::on(env, machine, Fences::new(true))
    }

    /// A machine with disks of this size, limited to `per_second` bytes per second after [`Rates::begin`].
    pub(crate) fn rated(disks: u16, size: u64, slab_bytes: u64, per_second: u64) -> (World, Arc<Rates>) {
        let mut world = World::new(1, 0);
        for n in 0..disks {
            world.machine.add(&MemoryOptions::new(format!("disk{n}"), size));
        }
        let rates = Rates::new(&world.env, per_second);
        (world.slab_bytes, world.rates) = (slab_bytes, Some(Arc::clone(&rates)));
        (world, rates)
    }

    /// A process of this machine.
    pub(crate) fn on(env: Env, machine: Machine, fences: Fences) -> World {
        static ARENA: OnceLock<Arena> = OnceLock::new();
        let arena = ARENA.get_or_init(|| Arena::new(256 << 20).expect("memory")).clone();
        World {
            env,
            machine,
            process: Process::new(),
            fences,
            host: host(7),
            arena,
            slab_bytes: 2 * MIB,
            deadlines: Deadlines::default(),
            retries: Arc::default(),
            rates: None,
        }
    }

    /// Another process on this machine, with another process number.
    pub(crate) fn another_process(&self, number: u32) -> World {
        let on = World::on(self.env.clone(), self.machine.clone(), self.fences.clone());
        World { host: host(number), ..on }
    }

    /// The next process with the same number, after this one has ended; after a power cut with new fences.
    pub(crate) fn next_process(&self, fences: Option<Fences>) -> World {
        let fences = fences.unwrap_or_else(|| self.fences.clone());
        World { host: self.host.clone(), ..World::on(self.env.clone(), self.machine.clone(), fences) }
    }

    /// The machine after a power cut at this moment, with all disks in their slots.
    pub(crate) fn after(moment: &CrashPoint, cut: PowerCut) -> World {
        let env = Env::simulated(moment.event);
        let machine = moment.cut(&env, cut);
        (0..machine.slots()).for_each(|slot| machine.plug(SlotId(slot)));
        World::on(env, machine, Fences::new(true))
    }

    /// A new handle of a disk.
    pub(crate) fn disk(&self, slot: usize) -> Arc<dyn Disk> {
        self.handle(self.machine.open(SlotId(slot)).expect("it is plugged in"))
    }

    fn handle(&self, disk: Arc<FaultyDisk>) -> Arc<dyn Disk> {
        let slot = disk.slot().0;
        let disk = self.process.handle(&self.env, &self.fences, disk);
        match &self.rates {
            Some(rates) => rates.limit(disk, slot),
            None => disk,
        }
    }

    /// A handle of each disk that is plugged in.
    fn disks(&self) -> Vec<Arc<dyn Disk>> {
        let open = |slot| Some(self.handle(self.machine.open(SlotId(slot)).ok()?));
        (0..self.machine.slots()).filter_map(open).collect()
    }

    /// Creates a pool of all disks.
    pub(crate) async fn create(&self) -> Pool {
        self.create_under(None).await
    }

    /// [`World::create`] with this authority for the pool's owner.
    pub(crate) async fn create_under(&self, authority: Option<Arc<dyn PoolAuthority>>) -> Pool {
        let disks: Vec<_> = self.disks().into_iter().map(NewDisk::new).collect();
        let options = CreateOptions {
            slab_bytes: Some(self.slab_bytes),
            deadlines: self.deadlines,
            ..CreateOptions::new("tank", self.host.clone())
        };
        Pool::create_under(authority, &self.env, &self.arena, &disks, options).await.expect("a pool")
    }

    /// Opens the pool as the next process would.
    pub(crate) async fn open(&self) -> Pool {
        self.try_open(false).await.expect("the pool opens").pool
    }

    /// [`World::open`] with a result; `force`: takes the pool even if another process owns it.
    pub(crate) async fn try_open(&self, force: bool) -> Result<Opened, OpenError> {
        let options = OpenOptions { force, deadlines: self.deadlines, ..OpenOptions::new(self.host.clone()) };
        Pool::open(&self.env, &self.arena, &self.disks(), &options).await
    }

    /// Buffers with this total length in bytes.
    pub(crate) async fn buffers(&self, length: u64) -> arena::SgMut {
        sized(self.arena.alloc_sg(length as usize, Class::Payload).await, length as usize)
    }

    /// Becomes the owner of all spaces of the pool, as the server does.
    pub(crate) async fn local(&self, pool: &Pool) -> Arc<LocalPool> {
        LocalPool::open(&self.env, &self.arena, pool, LocalOptions::default()).await
    }

    /// Becomes the owner of a space.
    pub(crate) async fn own(&self, pool: &Pool, space: SpaceId) -> Result<OwnedSpace, SpaceError> {
        self.own_through(pool, space, Arc::new(pool.clone())).await
    }

    /// [`World::own`] over this connection to the pool's coordinator.
    pub(crate) async fn own_through(
        &self,
        pool: &Pool,
        space: SpaceId,
        coordinator: Arc<dyn Coordinator>,
    ) -> Result<OwnedSpace, SpaceError> {
        let mut owner = pool.owner(space).expect("a space");
        loop {
            match self.try_own(pool, owner, Arc::clone(&coordinator)).await? {
                Some(owned) => return Ok(owned),
                None => owner = pool.hand_over(space, NodeId::default()).await?,
            }
        }
    }

    /// Opens a space once. `None`: a disk has joined meanwhile, and another owner has to open the space.
    async fn try_own(
        &self,
        pool: &Pool,
        owner: OwnerId,
        coordinator: Arc<dyn Coordinator>,
    ) -> Result<Option<OwnedSpace>, SpaceError> {
        let _opening = pool.register_opening(owner);
        let view = Coordinator::view(pool, owner, None).wait().await?.expect("the newest view");
        let disks = pool.clone();
        let open = move |disk: DiskNumber, of: Membership| disks.disk_of(owner, disk, of);
        let settings = Settings {
            env: self.env.clone(),
            arena: self.arena.clone(),
            node: NodeId::default(),
            budget: Budget::new(1 << 20),
            // The pool handles disks that hang.
            hang: self.deadlines.log(),
            retries: Arc::clone(&self.retries),
            coordinator,
            lease: Arc::new(pool.lease()),
            open: Box::new(open),
        };
        let opened = Space::open(settings, view).await?;
        let link: Arc<dyn Owner> = Arc::new(opened.clone());
        let is_linked = pool.link(owner, Arc::downgrade(&link) as Weak<dyn Owner>);
        let arena = self.arena.clone();
        Ok(is_linked.then(|| OwnedSpace { id: owner.space, space: opened, _link: link, arena }))
    }
}

impl OwnedSpace {
    /// Writes a value to each of these units.
    pub(crate) async fn write(&self, units: std::ops::Range<u64>, value: u8) -> Result<(), SpaceError> {
        let src: Sg = units.clone().map(|unit| IoBuf::from(fill(unit, value))).collect();
        self.space.write(units.start * UNIT, src, false).wait().await
    }

    pub(crate) async fn flush(&self) -> Result<(), SpaceError> {
        self.space.flush().wait().await
    }

    /// Whether each of these units has this value.
    pub(crate) async fn has(&self, units: std::ops::Range<u64>, value: u8) -> Result<bool, SpaceError> {
        Ok(self.read(units.clone()).await? == OwnedSpace::filled(units, value))
    }

    /// The bytes of units with this value.
    pub(crate) fn filled(units: std::ops::Range<u64>, value: u8) -> Vec<u8> {
        units.flat_map(|unit| fill(unit, value)).collect()
    }

    /// The bytes of these units, read into a buffer for each.
    pub(crate) async fn read_in_units(&self, units: std::ops::Range<u64>) -> Result<Vec<u8>, SpaceError> {
        let mut dst = arena::SgMut::new();
        for _ in units.clone() {
            dst.extend(sized(self.arena.alloc_sg(UNIT as usize, Class::Payload).await, UNIT as usize));
        }
        let (result, dst) = self.space.read(units.start * UNIT, dst).wait().await;
        result?;
        Ok(dst.iter().flat_map(|part| part.to_vec()).collect())
    }

    /// Whether a unit reads as zeros.
    pub(crate) async fn is_empty(&self, unit: u64) -> bool {
        self.read(unit..unit + 1).await.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    }

    /// The bytes of these units.
    pub(crate) async fn read(&self, units: std::ops::Range<u64>) -> Result<Vec<u8>, SpaceError> {
        let length = ((units.end - units.start) * UNIT) as usize;
        let dst = sized(self.arena.alloc_sg(length, Class::Payload).await, length);
        let (result, dst) = self.space.read(units.start * UNIT, dst).wait().await;
        result?;
        Ok(dst.iter().flat_map(|part| part.to_vec()).collect())
    }
}

/// A thin mirror of two copies, of 16 MiB.
pub(crate) fn mirror(name: &str) -> SpaceRecord {
    SpaceRecord {
        name: name.into(),
        size: 16 * MIB,
        resiliency: Resiliency::Mirror { copies: 2 },
        interleave: 64 << 10,
        columns: 1,
        provisioning: Provisioning::Thin,
        media: MediaClass::ANY,
        ..SpaceRecord::default()
    }
}

/// Assigns the disks of a pool to nodes of three disks each.
pub(crate) async fn put_into_nodes(pool: &Pool) {
    for disk in pool.read(|s| s.disks.keys().copied().collect::<Vec<_>>()) {
        let domains = FaultDomains { node: format!("node{}", disk.0 / 3), ..FaultDomains::default() };
        pool.set_domains(disk, domains).await.expect("it is recorded");
    }
}

/// The disks of a node that has two of the voters.
pub(crate) fn node_with_two_voters(pool: &Pool) -> Vec<DiskNumber> {
    let voters = pool.read(|s| s.voters.clone());
    let node_of = |disk: &DiskNumber| disk.0 / 3;
    let node =
        voters.iter().map(node_of).find(|node| voters.iter().filter(|v| node_of(v) == *node).count() == 2);
    let first = 3 * node.expect("five voters in three nodes");
    (first..first + 3).map(DiskNumber).collect()
}

/// A thin space of 16 MiB with 2 data columns and one parity.
pub(crate) fn coded(name: &str) -> SpaceRecord {
    SpaceRecord { resiliency: Resiliency::Parity { parity: 1 }, columns: 2, ..mirror(name) }
}

/// The bytes of a unit with this value: they contain its address, so that swapped units are detected.
fn fill(unit: u64, value: u8) -> Vec<u8> {
    let mut bytes = vec![value; UNIT as usize];
    bytes[..8].copy_from_slice(&unit.to_le_bytes());
    bytes
}

/// The slot of a disk of [`World::new`].
pub(crate) fn slot_of(disk: &dyn Disk) -> SlotId {
    let number = disk.info().serial.strip_prefix("disk").and_then(|number| number.parse().ok());
    SlotId(number.expect("the serial number says it"))
}

fn host(process: u32) -> Claimant {
    Claimant { host: "host".into(), machine: [1; 16], boot: [1; 16], process }
}

/// Runs a test on its own runtime, whose time advances when all tasks wait.
pub(crate) fn virtual_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}
