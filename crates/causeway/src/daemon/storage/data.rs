//! The data path of an open pool: that of `pool`, or the owners of its spaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arena::Arena;
use disk::Disk;
use env::Env;
use pool::events::Events;
use pool::jobs::pacer::Pacing;
use pool::jobs::{Board, Evacuated, Job};
use pool::{DiskNumber, NewDisk, PathOptions, Pool, Resiliency, SpaceId, SpaceRecord};
use pool_local::{LocalOptions, LocalPool};

use super::error::StorageError;

/// See the module.
pub(super) enum DataPath {
    Pooled(Pool, Arc<pool::DataPath>),
    Owned(Pool, Arc<LocalPool>),
}

impl DataPath {
    /// Opens the one that the pool's spaces are of; where there are none, new ones get owners.
    pub(super) async fn open(pool: &Pool, env: &Env, arena: &Arena) -> Result<Arc<DataPath>, StorageError> {
        let is_pooled = pool.read(|s| s.owned.keys().next().is_none() && !s.spaces.is_empty());
        if !is_pooled {
            let local = LocalPool::open(env, arena, pool, LocalOptions::default()).await;
            return Ok(Arc::new(DataPath::Owned(pool.clone(), local)));
        }
        let options = PathOptions::default();
        let path = pool::DataPath::of_pool(pool, env.clone(), arena.clone(), options).await?;
        Ok(Arc::new(DataPath::Pooled(pool.clone(), path)))
    }

    pub(super) fn events(&self) -> &Events {
        match self {
            DataPath::Pooled(_, path) => &path.events,
            DataPath::Owned(pool, _) => pool.events(),
        }
    }

    pub(super) fn jobs(&self) -> &Arc<Board> {
        match self {
            DataPath::Pooled(_, path) => &path.jobs,
            DataPath::Owned(pool, _) => pool.jobs(),
        }
    }

    /// How jobs are paced if nothing else is said.
    pub(super) fn pacing(&self) -> Pacing {
        match self {
            DataPath::Pooled(..) => Pacing::default(),
            DataPath::Owned(..) => Pacing::of_owners(),
        }
    }

    /// A virtual disk.
    pub(super) fn disk(&self, space: SpaceId) -> Result<Arc<dyn Disk>, StorageError> {
        Ok(match self {
            DataPath::Pooled(_, path) => Arc::new(path.space(space)?),
            DataPath::Owned(_, local) => Arc::new(local.disk(space)?),
        })
    }

    pub(super) async fn create_space(&self, record: SpaceRecord) -> Result<SpaceId, StorageError> {
        match self {
            DataPath::Pooled(pool, _) => Ok(pool.create_space(record).await?),
            DataPath::Owned(_, local) => Ok(local.create(record).await?),
        }
    }

    pub(super) async fn destroy_space(&self, space: SpaceId) -> Result<(), StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.destroy_space(space).await?),
            DataPath::Owned(_, local) => Ok(local.destroy(space).await?),
        }
    }

    pub(super) async fn resize_space(&self, space: SpaceId, size: u64) -> Result<(), StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.resize_space(space, size).await?),
            DataPath::Owned(_, local) => Ok(local.resize(space, size).await?),
        }
    }

    /// Gives a fixed virtual disk all of its slabs.
    pub(super) async fn allocate_all(&self, space: SpaceId) -> Result<(), StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.space(space)?.allocate_all().await?),
            DataPath::Owned(_, local) => Ok(local.allocate_all(space).await?),
        }
    }

    pub(super) async fn is_unwritten(
        &self,
        space: SpaceId,
        from: u64,
        length: u64,
    ) -> Result<bool, StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.space(space)?.is_unwritten(from, length).await?),
            DataPath::Owned(_, local) => Ok(local.is_unwritten(space, from, length).await?),
        }
    }

    /// Discards a range whose rows were allocated and not written; durably.
    pub(super) async fn give_back(
        &self,
        space: SpaceId,
        ranges: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<(), StorageError> {
        match self {
            DataPath::Pooled(_, path) => {
                let space = path.space(space)?;
                for (at, length) in ranges {
                    space.discard_at(at, length).await?;
                }
                Ok(space.flush_all().await?)
            }
            // The resize that follows frees them.
            DataPath::Owned(..) => Ok(()),
        }
    }

    /// Makes everything durable that its users have written.
    pub(super) async fn flush(&self, space: SpaceId) -> Result<(), StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.space(space)?.flush_for_user().await?),
            DataPath::Owned(_, local) => Ok(local.flush(space).await?),
        }
    }

    pub(super) async fn quiesce(&self) -> Result<(), StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.quiesce().await?),
            DataPath::Owned(_, local) => Ok(local.close().await?),
        }
    }

    pub(super) async fn add_disk(&self, disk: &NewDisk) -> Result<DiskNumber, StorageError> {
        match self {
            DataPath::Pooled(pool, path) => Ok(path.add_disk(pool, disk).await?),
            DataPath::Owned(pool, _) => Ok(pool.add_disk(disk).await?),
        }
    }

    pub(super) async fn return_disk(
        &self,
        disk: Arc<dyn Disk>,
        accept_loss: bool,
    ) -> Result<DiskNumber, StorageError> {
        match self {
            DataPath::Pooled(pool, path) => Ok(path.return_disk(pool, disk, accept_loss).await?),
            DataPath::Owned(pool, _) => Ok(pool.return_disk(disk, accept_loss).await?),
        }
    }

    pub(super) fn release_absent(&self) {
        match self {
            DataPath::Pooled(_, path) => path.release_absent(),
            // An owner lets a handle go with the membership that it is of.
            DataPath::Owned(..) => {}
        }
    }

    pub(super) async fn check_disks(&self) -> Result<(), StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.check_disks().await?),
            DataPath::Owned(pool, _) => Ok(pool.check_disks().await?),
        }
    }

    /// What a crash has left open, by virtual disk.
    pub(super) fn in_doubt(&self) -> BTreeMap<SpaceId, usize> {
        match self {
            DataPath::Pooled(_, path) => path.in_doubt(),
            DataPath::Owned(_, local) => local.in_doubt(),
        }
    }

    pub(super) async fn resolve_all(&self, job: &Job) -> Result<(), StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.resolve_all(job).await?),
            DataPath::Owned(pool, _) => Ok(pool.resolve_all(job).await?),
        }
    }

    pub(super) async fn resync(&self, disk: DiskNumber, job: &Job) -> Result<(), StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.resync(disk, job).await?),
            DataPath::Owned(pool, _) => Ok(pool.resync(disk, job).await?),
        }
    }

    pub(super) async fn evacuate(&self, disk: DiskNumber, job: &Job) -> Result<Evacuated, StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.evacuate(disk, job).await?),
            DataPath::Owned(pool, _) => Ok(pool.evacuate(disk, job).await?),
        }
    }

    pub(super) async fn resume_moves(&self, job: &Job) -> Result<(), StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.resume_moves(job).await?),
            DataPath::Owned(pool, _) => Ok(pool.resume_moves(job).await?),
        }
    }

    pub(super) async fn optimize(&self, job: &Job) -> Result<usize, StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.optimize(job).await?),
            DataPath::Owned(pool, _) => Ok(pool.optimize(job).await?),
        }
    }

    /// Reads every copy; false: it was stopped.
    pub(super) async fn scrub(
        &self,
        space: SpaceId,
        is_repair: bool,
        anew: bool,
        job: &Job,
    ) -> Result<bool, StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.space(space)?.scrub_recorded(is_repair, anew, job).await?),
            DataPath::Owned(pool, _) => Ok(pool.scrub(space, is_repair, anew, job).await?),
        }
    }

    /// The time until the next scrub begins to count now, where it does not yet.
    pub(super) async fn await_scrub(&self, space: SpaceId) -> Result<(), StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.space(space)?.await_scrub().await?),
            DataPath::Owned(pool, _) => Ok(pool.await_scrub(space).await?),
        }
    }

    /// Makes lost units known to the metadata; whether there were any that are new. Owners do it themselves.
    pub(super) async fn record_losses(&self) -> Result<bool, StorageError> {
        match self {
            DataPath::Pooled(_, path) => Ok(path.record_losses().await?),
            DataPath::Owned(..) => Ok(false),
        }
    }

    /// Lost units found since the pool was opened that the metadata may not have yet; owners record theirs at once.
    pub(super) fn lost(&self) -> BTreeMap<SpaceId, BTreeSet<u64>> {
        match self {
            DataPath::Pooled(_, path) => path.events.lost(),
            DataPath::Owned(..) => BTreeMap::new(),
        }
    }

    /// The disks that a new virtual disk needs a slab more of, for its log; 0: it has none.
    pub(super) fn log_slabs(&self, resiliency: Resiliency) -> usize {
        match self {
            DataPath::Pooled(..) if resiliency.is_parity() => resiliency.failures() + 1,
            DataPath::Pooled(..) => 0,
            DataPath::Owned(..) => (resiliency.failures() + 1).max(2),
        }
    }

    /// Reads of a disk that were late, so that another copy was read.
    pub(super) fn hedged_reads_of(&self, disk: DiskNumber) -> u64 {
        match self {
            DataPath::Pooled(_, path) => path.hedged_reads_of(disk),
            DataPath::Owned(pool, _) => pool.hedged_reads_of(disk),
        }
    }

    pub(super) fn hedged_reads(&self) -> u64 {
        match self {
            DataPath::Pooled(_, path) => path.hedged_reads().1,
            DataPath::Owned(pool, _) => pool.hedged_reads().1,
        }
    }

    /// Reads of a virtual disk that were late, so that the data was read from other disks too. The data path of the pool
    /// counts them by physical disk only.
    pub(super) fn hedged_reads_in(&self, space: SpaceId) -> u64 {
        match self {
            DataPath::Pooled(..) => 0,
            DataPath::Owned(_, local) => local.hedged_reads(space),
        }
    }

    /// Look-ups of checksum tables: those that found one in memory, and the others.
    pub(super) fn table_cache(&self, space: SpaceId) -> (u64, u64) {
        match self {
            DataPath::Pooled(_, path) => path.table_cache(space),
            DataPath::Owned(_, local) => local.table_cache(space),
        }
    }
}
