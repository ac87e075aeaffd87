//! A machine with a pool, and the owners of its spaces.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::rates::Rates;
use arena::{Arena, Class, IoBuf, Sg};
use disk::sim::{Machine, Moment, SlotId};
use disk::{Disk, MemoryOptions, PowerCut, sized};
use env::Env;
use pool::format::Claimant;
use pool::{CreateOptions, NewDisk, OpenOptions, Pool, SpaceRecord};
use pool_seam::{
    Coordinator, DiskNumber, MediaClass, Membership, NodeId, Owner, Provisioning, Resiliency, SpaceId, UNIT,
};
use space::cache::Budget;
use space::{Settings, Space, SpaceError};

const MIB: u64 = 1 << 20;

/// A machine, and the memory of its process.
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) machine: Machine,
    arena: Arena,
    slab_bytes: u64,
    rates: Option<Arc<Rates>>,
}

/// An owner that is linked to the pool.
pub(crate) struct Owned {
    pub(crate) space: Space,
    _link: Arc<dyn Owner>,
    arena: Arena,
}

impl World {
    /// A machine with so many disks of 64 MiB.
    pub(crate) fn new(seed: u64, disks: u16) -> World {
        let env = Env::simulated(seed);
        let machine = Machine::new(&env, seed);
        for n in 0..disks {
            machine.add(&MemoryOptions::new(format!("disk{n}"), 64 * MIB));
        }
        World { env, machine, arena: Arena::new(64 << 20).expect("memory"), slab_bytes: 2 * MIB, rates: None }
    }

    /// A machine with disks of this size that move so many bytes a second, once [`Rates::begin`] was called.
    pub(crate) fn rated(disks: u16, size: u64, slab_bytes: u64, per_second: u64) -> (World, Arc<Rates>) {
        let mut world = World::new(1, 0);
        for n in 0..disks {
            world.machine.add(&MemoryOptions::new(format!("disk{n}"), size));
        }
        let rates = Rates::new(&world.env, per_second);
        (world.slab_bytes, world.rates) = (slab_bytes, Some(Arc::clone(&rates)));
        (world, rates)
    }

    /// The machine after a power cut at that moment, with all disks in their slots.
    pub(crate) fn after(moment: &Moment, cut: PowerCut) -> World {
        let env = Env::simulated(moment.event);
        let machine = moment.cut(&env, cut);
        (0..machine.slots()).for_each(|slot| machine.plug(SlotId(slot)));
        World { env, machine, arena: Arena::new(64 << 20).expect("memory"), slab_bytes: 2 * MIB, rates: None }
    }

    /// A new handle of a disk.
    pub(crate) fn disk(&self, slot: usize) -> Arc<dyn Disk> {
        handle(&self.machine, self.rates.as_ref(), slot).expect("it is plugged in")
    }

    /// A handle of each disk that is plugged in.
    fn disks(&self) -> Vec<Arc<dyn Disk>> {
        let open = |slot| handle(&self.machine, self.rates.as_ref(), slot);
        (0..self.machine.slots()).filter_map(open).collect()
    }

    /// A pool of all disks.
    pub(crate) async fn create(&self) -> Pool {
        let disks: Vec<_> = self.disks().into_iter().map(NewDisk::new).collect();
        let options = CreateOptions { name: "tank".into(), slab_bytes: Some(self.slab_bytes), by: host() };
        Pool::create(&self.env, &self.arena, &disks, options).await.expect("a pool")
    }

    /// The pool as the next process finds it.
    pub(crate) async fn open(&self) -> Pool {
        let opened = Pool::open(&self.env, &self.arena, &self.disks(), &OpenOptions::new(host())).await;
        opened.expect("the pool opens").pool
    }

    /// Owns a space of the pool from now on.
    pub(crate) async fn own(&self, pool: &Pool, space: SpaceId) -> Result<Owned, SpaceError> {
        self.own_through(pool, space, Arc::new(pool.clone())).await
    }

    /// The same, with a connection to the pool's coordinator.
    pub(crate) async fn own_through(
        &self,
        pool: &Pool,
        space: SpaceId,
        coordinator: Arc<dyn Coordinator>,
    ) -> Result<Owned, SpaceError> {
        let owner = pool.owner(space).expect("a space");
        pool.opens(owner);
        let view = Coordinator::view(pool, owner, None).wait().await?.expect("the newest view");
        let (handles, machine, rates) = (pool.clone(), self.machine.clone(), self.rates.clone());
        // Fences of the pool's metadata and of the space are of different epochs, so each has a handle of its own.
        let open = move |disk: DiskNumber, of: Membership| {
            handles.member_disk(disk, of)?;
            handle(&machine, rates.as_ref(), disk.0.into())
        };
        let settings = Settings {
            env: self.env.clone(),
            arena: self.arena.clone(),
            node: NodeId::default(),
            budget: Budget::new(1 << 20),
            hang: Duration::from_secs(10),
            coordinator,
            lease: Arc::new(pool.lease()),
            open: Box::new(open),
        };
        let space = Space::open(settings, view).await?;
        let link: Arc<dyn Owner> = Arc::new(space.clone());
        pool.link(owner, Arc::downgrade(&link) as Weak<dyn Owner>);
        Ok(Owned { space, _link: link, arena: self.arena.clone() })
    }
}

impl Owned {
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
        let expected: Vec<u8> = units.clone().flat_map(|unit| fill(unit, value)).collect();
        Ok(self.read(units).await? == expected)
    }

    /// Whether a unit reads as zeros.
    pub(crate) async fn is_empty(&self, unit: u64) -> bool {
        self.read(unit..unit + 1).await.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    }

    async fn read(&self, units: std::ops::Range<u64>) -> Result<Vec<u8>, SpaceError> {
        let length = ((units.end - units.start) * UNIT) as usize;
        let dst = sized(self.arena.alloc_sg(length, Class::Payload).await, length);
        let (result, dst) = self.space.read(units.start * UNIT, dst).wait().await;
        result?;
        Ok(dst.iter().flat_map(|part| part.to_vec()).collect())
    }
}

/// A new handle of a disk that is plugged in.
fn handle(machine: &Machine, rates: Option<&Arc<Rates>>, slot: usize) -> Option<Arc<dyn Disk>> {
    let disk = machine.open(SlotId(slot)).ok()?;
    Some(match rates {
        Some(rates) => rates.limit(disk, slot),
        None => disk,
    })
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
    }
}

/// A thin space of 16 MiB with 2 data columns and one of parity.
pub(crate) fn coded(name: &str) -> SpaceRecord {
    SpaceRecord { resiliency: Resiliency::Parity { parity: 1 }, columns: 2, ..mirror(name) }
}

/// What a unit has of a value: its address, so that units that are mixed up are found.
fn fill(unit: u64, value: u8) -> Vec<u8> {
    let mut bytes = vec![value; UNIT as usize];
    bytes[..8].copy_from_slice(&unit.to_le_bytes());
    bytes
}

fn host() -> Claimant {
    Claimant { host: "host".into(), machine: [1; 16], boot: [1; 16], process: 7 }
}

/// Runs a test on a runtime of its own, whose time passes when all tasks wait.
pub(crate) fn virtual_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}
