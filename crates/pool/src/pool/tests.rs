//! Pools on disks in memory.

mod authority;
mod crash;
mod holding;
mod lifecycle;
mod loss;
mod rot;
mod rounds;

use std::sync::Arc;

use arena::Arena;
use disk::{Disk, MemoryDisk, MemoryOptions, PowerCut};
use env::Env;

use super::*;
use crate::format::Claimant;
use crate::testing::mirror;
use crate::{MediaClass, Resiliency, RowNumber, SlabPlace, SpaceRecord, testing};

const MIB: u64 = 1 << 20;

const ROW: RowNumber = RowNumber(0);

/// A machine with some disks.
struct World {
    env: Env,
    arena: Arena,
    disks: Vec<Arc<MemoryDisk>>,
}

impl World {
    fn new(disks: usize) -> World {
        let disks = (0..disks).map(|n| MemoryDisk::new(&MemoryOptions::new(format!("disk{n}"), 16 * MIB)));
        World { env: Env::simulated(1), arena: Arena::new(4 << 20).unwrap(), disks: disks.collect() }
    }

    fn disk(&self, n: usize) -> Arc<dyn Disk> {
        self.disks[n].clone()
    }

    fn all(&self) -> Vec<Arc<dyn Disk>> {
        (0..self.disks.len()).map(|n| self.disk(n)).collect()
    }

    fn some(&self, which: &[usize]) -> Vec<Arc<dyn Disk>> {
        which.iter().map(|n| self.disk(*n)).collect()
    }

    async fn create(&self) -> Pool {
        let disks: Vec<_> = self.all().into_iter().map(NewDisk::new).collect();
        Pool::create(&self.env, &self.arena, &disks, options()).await.unwrap()
    }

    async fn open(&self, which: &[usize]) -> Result<Opened, OpenError> {
        self.open_with(which, |_| {}).await
    }

    async fn open_with(
        &self,
        which: &[usize],
        change: impl FnOnce(&mut OpenOptions),
    ) -> Result<Opened, OpenError> {
        let mut options = OpenOptions::new(host("a"));
        change(&mut options);
        Pool::open(&self.env, &self.arena, &self.some(which), &options).await
    }

    /// Cuts the power: every disk loses its unflushed writes.
    fn power_cut(&mut self) {
        for d in &mut self.disks {
            d.power_cut(PowerCut::LoseAll);
            *d = d.restart();
        }
    }
}

fn host(name: &str) -> Claimant {
    Claimant { host: name.into(), machine: [name.as_bytes()[0]; 16], boot: [1; 16], process: 7 }
}

fn options() -> CreateOptions {
    CreateOptions::new("tank", host("a"))
}

/// A space without a log or an owner.
async fn make(pool: &Pool, record: SpaceRecord) -> SpaceId {
    try_make(pool, record).await.unwrap()
}

async fn try_make(pool: &Pool, record: SpaceRecord) -> Result<SpaceId, CommitError> {
    let (space, op) = pool.read(|s| (SpaceId(s.next_space), testing::create(s, record)));
    pool.metadata().commit(vec![op]).await?;
    Ok(space)
}

/// Allocates row 0 of a space with a slab on each of these disks.
async fn allocate(pool: &Pool, space: SpaceId, disks: impl IntoIterator<Item = u16>, slab: u32) {
    let slabs = disks.into_iter().map(|d| SlabPlace { disk: DiskNumber(d), slab });
    let ops = pool.read(|s| testing::allocate(s, space, ROW, slabs));
    pool.metadata().commit(ops.to_vec()).await.unwrap();
}

/// Makes copy 1 of row 0 stale in regions.
async fn mark_stale(pool: &Pool, space: SpaceId, regions: u64) {
    let op = pool.read(|s| testing::mark_stale(s, space, ROW, 1, regions));
    pool.metadata().commit(vec![op]).await.unwrap();
}

/// Makes copy 1 of row 0 current in regions again.
async fn catches_up(pool: &Pool, space: SpaceId, regions: u64) {
    let op = pool.read(|s| testing::mark_current(s, space, ROW, 1, regions));
    pool.metadata().commit(vec![op]).await.unwrap();
}

/// The stale regions of the copies of row 0.
fn stale_regions(pool: &Pool, space: SpaceId) -> Vec<u64> {
    pool.read(|s| s.stale_regions_of(space, ROW))
}
