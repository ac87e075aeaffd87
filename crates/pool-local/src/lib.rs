//! A pool and the owners of its spaces in one process.
//!
//! **What it is.** [`LocalPool`] owns every space of an open [`Pool`]: it opens their logs, connects the
//! owners with the pool's coordinator, and provides each space as a [`VirtualDisk`], which is a
//! [`disk::Disk`]. It creates, resizes and destroys spaces.
//!
//! **What it is not.** It makes no decisions about data or metadata: that is the task of `space` and `pool`,
//! which interact only through `pool-seam`.
//!
//! Invariants:
//! 1. A space has at most one owner in this process. The next owner starts only after the previous one
//!    accepts no more calls.
//! 2. A space that cannot be opened is tried again when a disk joins or leaves, and after [`RETRY_INTERVAL`].
//!    Until then its virtual disk returns the reason.
//!
//! **Errors.** [`LocalError`].

mod disk_of;
mod slot;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arena::Arena;
use env::Env;
use futures_util::future::{Either, join_all, select};
use parking_lot::Mutex;
use pool::coordinator::CreateSpaceError;
use pool::{Pool, SpaceId, SpaceRecord};
use pool_seam::SeamError;
pub use space::Retries;
use space::SpaceError;
pub use space::cache::Budget as TableBudget;
use tokio::runtime::Handle;

pub use disk_of::VirtualDisk;
use slot::Slot;

/// The interval for retrying to open a space.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// How long opening a pool waits for its spaces. Spaces that take longer are opened in the background.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// Resources for a pool in this process.
#[derive(Clone)]
pub struct LocalOptions {
    /// Memory for checksum tables, shared by all pools of the process.
    pub tables: Arc<TableBudget>,
    /// The runtimes of the threads among which spaces are distributed. They must outlive the spaces.
    pub workers: Vec<Handle>,
}

impl LocalOptions {
    /// The runtime for the tasks of a space; the current one if there are no workers.
    ///
    /// # Panics
    /// If there are no workers and no Tokio runtime.
    pub fn worker_of(&self, space: SpaceId) -> Handle {
        let at = (space.0 as usize).checked_rem(self.workers.len());
        at.map_or_else(Handle::current, |at| self.workers[at].clone())
    }
}

impl Default for LocalOptions {
    fn default() -> LocalOptions {
        LocalOptions { tables: TableBudget::new(256 << 20), workers: Vec::new() }
    }
}

/// Why an operation on a space failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// There is no such space.
    #[error("the pool has no virtual disk {}", .0.0)]
    NoSpace(SpaceId),
    /// Its log could not be opened yet.
    #[error("the virtual disk cannot be used now: {0}")]
    NotOpen(SpaceError),
    /// It was not created.
    #[error(transparent)]
    NotCreated(#[from] CreateSpaceError),
    /// An error of its owner.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// An error of the pool.
    #[error(transparent)]
    Pool(#[from] SeamError),
}

impl LocalError {
    /// Whether the cause is a lack of disks or of space on them.
    pub fn is_no_room(&self) -> bool {
        matches!(
            self,
            LocalError::NotCreated(CreateSpaceError::NoRoom(_))
                | LocalError::Pool(SeamError::NoRoom(_))
                | LocalError::Space(SpaceError::Seam(SeamError::NoRoom(_)))
        )
    }
}

/// See the module.
pub struct LocalPool {
    env: Env,
    arena: Arena,
    pool: Pool,
    options: LocalOptions,
    retries: Arc<Retries>,
    spaces: Mutex<BTreeMap<SpaceId, Arc<Slot>>>,
    /// Serialises creating and destroying spaces.
    changing: tokio::sync::Mutex<()>,
}

/// The spaces of an abandoned pool. Their virtual disks work again when the pool is opened with this value.
#[derive(Default)]
pub struct AbandonedSpaces(BTreeMap<SpaceId, Arc<Slot>>);

impl LocalPool {
    /// Opens the pool's spaces and owns them.
    pub async fn open(env: &Env, arena: &Arena, pool: &Pool, options: LocalOptions) -> Arc<LocalPool> {
        LocalPool::open_again(env, arena, pool, options, AbandonedSpaces::default()).await
    }

    /// Reopens an abandoned pool with the value that [`LocalPool::abandon`] returned.
    pub async fn open_again(
        env: &Env,
        arena: &Arena,
        pool: &Pool,
        options: LocalOptions,
        AbandonedSpaces(mut abandoned): AbandonedSpaces,
    ) -> Arc<LocalPool> {
        let local = Arc::new(LocalPool {
            env: env.clone(),
            arena: arena.clone(),
            pool: pool.clone(),
            options,
            retries: Arc::default(),
            spaces: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        });
        let owned: Vec<SpaceId> = pool.read(|s| s.spaces.keys().copied().collect());
        let slot = |space| local.add(abandoned.remove(&space).unwrap_or_else(|| Arc::new(Slot::new(space))));
        let slots: Vec<_> = owned.into_iter().map(slot).collect();
        let all = Arc::clone(&local);
        let opened = env.run(async move { drop(join_all(slots.iter().map(|slot| slot.open(&all))).await) });
        wait_at_most(env, OPEN_TIMEOUT, opened).await;
        env.spawn(keep_open(env.clone(), Arc::downgrade(&local)));
        local
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns a space as a disk. If the space is not open yet, calls of the disk fail with the reason.
    pub fn disk(&self, space: SpaceId) -> Result<VirtualDisk, LocalError> {
        let of = self.pool.read(|s| s.spaces.get(&space).cloned().map(|record| (record, s.slab_bytes)));
        let (record, slab_bytes) = of.ok_or(LocalError::NoSpace(space))?;
        let is_read_only = self.pool.is_read_only();
        Ok(VirtualDisk::new(self.slot(space)?, self.pool.id(), &record, slab_bytes, is_read_only))
    }

    /// Creates a space. It has no slabs, except for its log, until it is written. Errors:
    /// [`LocalError::NotOpen`] if it was created but could not be opened.
    pub async fn create(self: &Arc<LocalPool>, record: SpaceRecord) -> Result<SpaceId, LocalError> {
        let _one = self.changing.lock().await;
        let space = self.pool.create_space(record).await?;
        self.add(Arc::new(Slot::new(space))).open(self).await?;
        Ok(space)
    }

    /// Allocates all slabs of a space with fixed provisioning. Errors: slabs already allocated remain.
    pub async fn allocate_all(&self, space: SpaceId) -> Result<(), LocalError> {
        Ok(self.slot(space)?.space()?.allocate_all().await?)
    }

    /// Destroys a space and its data, after outstanding calls complete. Errors: the space still exists and is
    /// reopened.
    pub async fn destroy(self: &Arc<LocalPool>, space: SpaceId) -> Result<(), LocalError> {
        let _one = self.changing.lock().await;
        let slot = self.slot(space)?;
        // A failed flush must not prevent the destruction.
        let closed = slot.close(LocalError::NoSpace(space)).await;
        if let Err(error) = self.pool.destroy_space(space).await {
            slot.still_exists(error.clone(), closed.is_ok());
            drop(slot.reopen(self).await);
            return Err(error.into());
        }
        self.spaces.lock().remove(&space);
        Ok(())
    }

    /// Changes the size of a space in use. Shrinking destroys the data beyond the new size; growing adds
    /// zeros. Errors: the space has its former size, but data beyond the new size may be lost.
    pub async fn resize(&self, space: SpaceId, size: u64) -> Result<(), LocalError> {
        let link = self.slot(space)?.owner()?;
        let from = self.pool.read(|s| s.spaces.get(&space).map(|record| record.size));
        let from = from.ok_or(LocalError::NoSpace(space))?;
        Ok(link.resize(from, size, true).wait().await?)
    }

    /// Whether a range was never written, or was discarded completely. Errors: the allocation cannot be read
    /// now.
    pub async fn is_unwritten(&self, space: SpaceId, from: u64, length: u64) -> Result<bool, LocalError> {
        let (space, end) = (self.slot(space)?.space()?, from + length);
        let mut at = from;
        while at < end {
            let allocated = space.allocated(at, end - at).await?;
            if !allocated.ranges.is_empty() {
                return Ok(false);
            }
            at = allocated.end;
        }
        Ok(true)
    }

    /// Makes all completed writes to a space durable.
    pub async fn flush(&self, space: SpaceId) -> Result<(), LocalError> {
        Ok(self.slot(space)?.space()?.flush().wait().await?)
    }

    /// Ends all owners: all writes are durable, and nothing has to be replayed. Errors: the first error; the
    /// other owners have ended nevertheless.
    pub async fn close(&self) -> Result<(), LocalError> {
        let slots: Vec<_> = std::mem::take(&mut *self.spaces.lock()).into_iter().collect();
        let ends = slots.iter().map(|(space, slot)| slot.close(LocalError::NoSpace(*space)));
        join_all(ends).await.into_iter().collect()
    }

    /// Abandons a suspended pool: calls fail from now on. Virtual disks remain, and work again after
    /// [`LocalPool::open_again`]; the first flush of each then fails, because earlier writes may be lost.
    /// Waits at most [`RETRY_INTERVAL`]: I/O that hangs keeps the disks open.
    pub async fn abandon(&self) -> AbandonedSpaces {
        self.pool.abandon();
        let slots = std::mem::take(&mut *self.spaces.lock());
        let slots = slots.into_iter().map(|(space, slot)| (space, slot, Arc::new(AtomicBool::new(false))));
        let slots: Vec<_> = slots.collect();
        let each = slots.iter().map(|(_, slot, is_over)| {
            let (slot, is_over) = (Arc::clone(slot), Arc::clone(is_over));
            self.env.run(async move { slot.abandon(&is_over).await })
        });
        wait_at_most(&self.env, RETRY_INTERVAL, join_all(each)).await;
        // If an owner could still be starting, its space is dropped and its users get errors.
        let is_over =
            |(_, _, is_over): &(SpaceId, Arc<Slot>, Arc<AtomicBool>)| is_over.load(Ordering::Relaxed);
        AbandonedSpaces(slots.into_iter().filter(is_over).map(|(space, slot, _)| (space, slot)).collect())
    }

    /// Spaces that cannot be opened, with the reason. Opening them is retried every [`RETRY_INTERVAL`].
    pub fn not_open(&self) -> BTreeMap<SpaceId, String> {
        let spaces = self.spaces.lock();
        spaces.iter().filter_map(|(space, slot)| Some((*space, slot.not_open()?))).collect()
    }

    /// The number of units and regions whose content is undecided after a crash, by space.
    pub fn in_doubt(&self) -> BTreeMap<SpaceId, usize> {
        let spaces = self.spaces.lock();
        let open = |(space, slot): (&SpaceId, &Arc<Slot>)| {
            let unverified = slot.owner().ok()?.status().unverified;
            (unverified > 0).then_some((*space, unverified as usize))
        };
        spaces.iter().filter_map(open).collect()
    }

    /// The number of lookups of a space's checksum tables that found the table in memory, and of those that
    /// did not.
    pub fn table_cache(&self, space: SpaceId) -> (u64, u64) {
        let open = self.slot(space).and_then(|slot| slot.space());
        open.map_or((0, 0), |space| space.table_cache())
    }

    /// The number of slow reads of a space that were repeated on other disks, since it was opened.
    pub fn hedged_reads(&self, space: SpaceId) -> u64 {
        let open = self.slot(space).and_then(|slot| slot.space());
        open.map_or(0, |space| space.hedged_reads())
    }

    /// The number of repeated calls to the pool's disks, since the pool was opened.
    pub fn retries(&self) -> &Retries {
        &self.retries
    }

    fn slot(&self, space: SpaceId) -> Result<Arc<Slot>, LocalError> {
        self.spaces.lock().get(&space).cloned().ok_or(LocalError::NoSpace(space))
    }

    fn add(&self, slot: Arc<Slot>) -> Arc<Slot> {
        self.spaces.lock().insert(slot.id(), Arc::clone(&slot));
        slot
    }
}

/// Waits for tasks with a time limit, after which the tasks continue.
async fn wait_at_most(env: &Env, limit: Duration, tasks: impl Future) {
    drop(select(std::pin::pin!(tasks), std::pin::pin!(env.sleep(limit))).await);
}

/// Retries to open spaces (invariant 2).
async fn keep_open(env: Env, local: Weak<LocalPool>) {
    let Some(mut changes) = local.upgrade().map(|local| local.pool.changes()) else { return };
    loop {
        let changed = std::pin::pin!(changes.changed());
        if let Either::Left((Err(_), _)) = select(changed, std::pin::pin!(env.sleep(RETRY_INTERVAL))).await {
            return;
        }
        let Some(local) = local.upgrade() else { return };
        let slots: Vec<_> = local.spaces.lock().values().cloned().collect();
        for slot in slots.into_iter().filter(|slot| slot.is_to_open()) {
            let local = Arc::clone(&local);
            env.spawn(async move { drop(slot.reopen(&local).await) });
        }
    }
}
