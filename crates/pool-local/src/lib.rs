//! A pool and the owners of its spaces in one process.
//!
//! **What it is.** [`LocalPool`] owns every space of an open [`Pool`]: it opens their logs, links the owners to the pool's
//! coordinator, and gives each space as a [`VirtualDisk`], which is a [`disk::Disk`]. It makes, resizes and destroys spaces.
//!
//! **What it is not.** It decides nothing about data or metadata: that is done in `space` and `pool`, which know each other by
//! `pool-seam` only.
//!
//! Invariants:
//! 1. A space has one owner at a time in this process. The next one begins when the one before takes no calls any more.
//! 2. A space that cannot be opened is tried again when a disk has joined or left, and after [`AGAIN`]; its virtual disk says why
//!    until then.
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
use pool::coordinator::NotMade;
use pool::{Pool, SpaceId, SpaceRecord};
use pool_seam::SeamError;
pub use space::Retries;
use space::SpaceError;
pub use space::cache::Budget as TableBudget;
use tokio::runtime::Handle;

pub use disk_of::VirtualDisk;
use slot::Slot;

/// A space that could not be opened is tried again after so long.
pub const AGAIN: Duration = Duration::from_secs(10);

/// How long an opening of the pool waits for its spaces. Those that take longer are opened in the background.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a pool in this process needs.
#[derive(Clone)]
pub struct LocalOptions {
    /// Memory for checksum tables, which all pools of the process share.
    pub tables: Arc<TableBudget>,
    /// The runtimes of the threads that the work of spaces is spread over. They end after the spaces.
    pub workers: Vec<Handle>,
}

impl LocalOptions {
    /// The runtime for the tasks of a space; without workers, the current one.
    ///
    /// # Panics
    /// Outside of a Tokio runtime, without workers.
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

/// Why a space could not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// There is no such space.
    #[error("the pool has no virtual disk {}", .0.0)]
    NoSpace(SpaceId),
    /// Its log could not be opened yet.
    #[error("the virtual disk cannot be used now: {0}")]
    NotOpen(SpaceError),
    /// It was not made.
    #[error(transparent)]
    NotMade(#[from] NotMade),
    /// What its owner says.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// What the pool says.
    #[error(transparent)]
    Pool(#[from] SeamError),
}

impl LocalError {
    /// Whether disks, or room on them, are missing.
    pub fn is_no_room(&self) -> bool {
        matches!(
            self,
            LocalError::NotMade(NotMade::NoRoom(_))
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
    /// One space is made or destroyed at a time.
    changing: tokio::sync::Mutex<()>,
}

/// The spaces of a pool that was let go. Virtual disks of them serve again when the pool is opened with this.
#[derive(Default)]
pub struct Kept(BTreeMap<SpaceId, Arc<Slot>>);

impl LocalPool {
    /// Owns every space of the pool.
    pub async fn open(env: &Env, arena: &Arena, pool: &Pool, options: LocalOptions) -> Arc<LocalPool> {
        LocalPool::open_again(env, arena, pool, options, Kept::default()).await
    }

    /// The same of a pool that was let go, with what [`LocalPool::abandon`] has returned.
    pub async fn open_again(
        env: &Env,
        arena: &Arena,
        pool: &Pool,
        options: LocalOptions,
        Kept(mut kept): Kept,
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
        let slot = |space| local.add(kept.remove(&space).unwrap_or_else(|| Arc::new(Slot::new(space))));
        let slots: Vec<_> = owned.into_iter().map(slot).collect();
        let all = Arc::clone(&local);
        let opened = env.run(async move { drop(join_all(slots.iter().map(|slot| slot.open(&all))).await) });
        wait_at_most(env, PATIENCE, opened).await;
        env.spawn(keep_open(env.clone(), Arc::downgrade(&local)));
        local
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A space as a disk. One that is not open yet answers with the reason.
    pub fn disk(&self, space: SpaceId) -> Result<VirtualDisk, LocalError> {
        let of = self.pool.read(|s| s.spaces.get(&space).cloned().map(|record| (record, s.slab_bytes)));
        let (record, slab_bytes) = of.ok_or(LocalError::NoSpace(space))?;
        let is_read_only = self.pool.is_read_only();
        Ok(VirtualDisk::new(self.slot(space)?, self.pool.id(), &record, slab_bytes, is_read_only))
    }

    /// Makes a space; it has no slabs but for its log until it is written. Errors: of one that was made and could not
    /// be opened [`LocalError::NotOpen`].
    pub async fn create(self: &Arc<LocalPool>, record: SpaceRecord) -> Result<SpaceId, LocalError> {
        let _one = self.changing.lock().await;
        let space = self.pool.create_space(record).await?;
        self.add(Arc::new(Slot::new(space))).open(self).await?;
        Ok(space)
    }

    /// Gives a space of fixed provisioning all of its slabs. Errors: what was allocated stays.
    pub async fn allocate_all(&self, space: SpaceId) -> Result<(), LocalError> {
        Ok(self.slot(space)?.space()?.allocate_all().await?)
    }

    /// Destroys a space and what is on it. Calls that are outstanding end before. Errors: it is there, and is opened
    /// again.
    pub async fn destroy(self: &Arc<LocalPool>, space: SpaceId) -> Result<(), LocalError> {
        let _one = self.changing.lock().await;
        let slot = self.slot(space)?;
        // That it could not be flushed keeps nobody from destroying it.
        let closed = slot.close(LocalError::NoSpace(space)).await;
        if let Err(error) = self.pool.destroy_space(space).await {
            slot.stays(error.clone(), closed.is_ok());
            drop(slot.reopen(self).await);
            return Err(error.into());
        }
        self.spaces.lock().remove(&space);
        Ok(())
    }

    /// Gives a space another size while it is used: what is beyond a smaller one is destroyed, and a larger one reads as zeros
    /// there. Errors: it has its former size, and may have lost what is beyond the new one.
    pub async fn resize(&self, space: SpaceId, size: u64) -> Result<(), LocalError> {
        let link = self.slot(space)?.owner()?;
        let from = self.pool.read(|s| s.spaces.get(&space).map(|record| record.size));
        let from = from.ok_or(LocalError::NoSpace(space))?;
        Ok(link.resize(from, size, true).wait().await?)
    }

    /// Whether nothing is written in a range, or all of it was discarded. Errors: that cannot be read now.
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

    /// Makes everything durable that was written to a space.
    pub async fn flush(&self, space: SpaceId) -> Result<(), LocalError> {
        Ok(self.slot(space)?.space()?.flush().wait().await?)
    }

    /// Ends all owners: what was written is durable, and nothing has to be replayed. Errors: the first that failed; the
    /// others have ended all the same.
    pub async fn close(&self) -> Result<(), LocalError> {
        let slots: Vec<_> = std::mem::take(&mut *self.spaces.lock()).into_iter().collect();
        let ends = slots.iter().map(|(space, slot)| slot.close(LocalError::NoSpace(*space)));
        join_all(ends).await.into_iter().collect()
    }

    /// Lets a suspended pool go: calls fail from now on. Virtual disks stay, and serve again after [`LocalPool::open_again`]; the
    /// first flush of each fails then, because what was written before may be lost. Waits for [`AGAIN`] at most: I/O that hangs
    /// keeps the disks open.
    pub async fn abandon(&self) -> Kept {
        self.pool.abandon();
        let slots = std::mem::take(&mut *self.spaces.lock());
        let slots = slots.into_iter().map(|(space, slot)| (space, slot, Arc::new(AtomicBool::new(false))));
        let slots: Vec<_> = slots.collect();
        let each = slots.iter().map(|(_, slot, is_over)| {
            let (slot, is_over) = (Arc::clone(slot), Arc::clone(is_over));
            self.env.run(async move { slot.abandon(&is_over).await })
        });
        wait_at_most(&self.env, AGAIN, join_all(each)).await;
        // Of one whose owner could still begin the users stay without.
        let is_over =
            |(_, _, is_over): &(SpaceId, Arc<Slot>, Arc<AtomicBool>)| is_over.load(Ordering::Relaxed);
        Kept(slots.into_iter().filter(is_over).map(|(space, slot, _)| (space, slot)).collect())
    }

    /// What a crash has left open in spaces, by space, in units and regions.
    pub fn in_doubt(&self) -> BTreeMap<SpaceId, usize> {
        let spaces = self.spaces.lock();
        let open = |(space, slot): (&SpaceId, &Arc<Slot>)| {
            let unverified = slot.owner().ok()?.status().unverified;
            (unverified > 0).then_some((*space, unverified as usize))
        };
        spaces.iter().filter_map(open).collect()
    }

    /// Look-ups of tables of a space: those that found one in memory, and the others.
    pub fn table_cache(&self, space: SpaceId) -> (u64, u64) {
        let open = self.slot(space).and_then(|slot| slot.space());
        open.map_or((0, 0), |space| space.table_cache())
    }

    /// Reads of a space that took so long that the data was read from other disks too, since it was opened.
    pub fn hedged_reads(&self, space: SpaceId) -> u64 {
        let open = self.slot(space).and_then(|slot| slot.space());
        open.map_or(0, |space| space.hedged_reads())
    }

    /// The number of repeated calls to the pool's disks, since it was opened.
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

/// Waits for tasks, which go on when the time is over.
async fn wait_at_most(env: &Env, limit: Duration, tasks: impl Future) {
    drop(select(std::pin::pin!(tasks), std::pin::pin!(env.sleep(limit))).await);
}

/// Invariant 2.
async fn keep_open(env: Env, local: Weak<LocalPool>) {
    let Some(mut changes) = local.upgrade().map(|local| local.pool.changes()) else { return };
    loop {
        let changed = std::pin::pin!(changes.changed());
        if let Either::Left((Err(_), _)) = select(changed, std::pin::pin!(env.sleep(AGAIN))).await {
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
