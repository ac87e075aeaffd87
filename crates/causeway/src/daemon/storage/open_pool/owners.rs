//! The owners of the virtual disks of an open pool, and its background work: how they start and stop.

use std::sync::{Arc, Weak};
use std::time::Duration;

use env::Env;
use parking_lot::Mutex;
use pool::CommitError;
use pool_local::{AbandonedSpaces, LocalPool};

use super::OpenPool;
use crate::daemon::storage::error::StorageError;
use crate::daemon::storage::jobs::Repairer;
use crate::daemon::storage::mover::Mover;

/// The interval of the check that the disks are still those that were opened.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// How long the jobs of a suspended pool may take to end when it is closed.
const STOP_TIME_LIMIT: Duration = Duration::from_secs(10);

/// The owners and the background work: see the module. `None` when the pool is closed.
#[derive(Default)]
pub(super) struct Owners(Mutex<Option<RunningOwners>>);

/// The parts that exist while the data is accessible.
struct RunningOwners {
    owners: Arc<LocalPool>,
    workers: Option<Workers>,
}

/// The background work, if the pool may be written.
struct Workers {
    repairer: Arc<Repairer>,
    mover: Arc<Mover>,
}

impl OpenPool {
    /// The owners, while there are any.
    pub(in crate::daemon::storage) fn owners(&self) -> Option<Arc<LocalPool>> {
        self.running.0.lock().as_ref().map(|l| Arc::clone(&l.owners))
    }

    /// The owners.
    ///
    /// # Errors
    /// [`StorageError::NoData`].
    pub(in crate::daemon::storage) fn owners_now(&self) -> Result<Arc<LocalPool>, StorageError> {
        self.owners().ok_or_else(|| StorageError::NoData(self.name()))
    }

    /// The owners, if data may be changed.
    ///
    /// # Errors
    /// [`CommitError::ReadOnly`]; [`StorageError::NoData`].
    pub(in crate::daemon::storage) fn writable(&self) -> Result<Arc<LocalPool>, StorageError> {
        match self.read_only {
            true => Err(StorageError::Commit(CommitError::ReadOnly)),
            false => self.owners_now(),
        }
    }

    /// The background repairs; `None` for a closed or read-only pool.
    pub(in crate::daemon::storage) fn repairer(&self) -> Option<Arc<Repairer>> {
        self.running.0.lock().as_ref()?.workers.as_ref().map(|w| Arc::clone(&w.repairer))
    }

    /// The background moves of data to other disks; `None` for a closed or read-only pool.
    pub(in crate::daemon::storage) fn mover(&self) -> Option<Arc<Mover>> {
        self.running.0.lock().as_ref()?.workers.as_ref().map(|w| Arc::clone(&w.mover))
    }

    /// Opens the virtual disks: their owners read the logs.
    pub(super) async fn start_owners(&self, kept: AbandonedSpaces) {
        let owners =
            LocalPool::open_again(&self.env, &self.arena, &self.pool, self.local.clone(), kept).await;
        let workers = || Workers {
            repairer: Repairer::start(&self.env, &self.pool, &owners, self.jobs, &self.reporter),
            mover: Mover::start(&self.env, &self.pool, &self.reporter),
        };
        let workers = (!self.read_only).then(workers);
        if !self.read_only {
            self.env.spawn(check_disks(self.env.clone(), Arc::downgrade(&owners)));
        }
        *self.running.0.lock() = Some(RunningOwners { owners, workers });
    }

    /// Drops the owners of a suspended pool.
    pub(super) async fn abandon_owners(&self) -> AbandonedSpaces {
        let Some(RunningOwners { owners, workers }) = self.running.0.lock().take() else {
            return AbandonedSpaces::default();
        };
        // Abandons the pool first, because jobs and owners wait for calls that would not complete otherwise.
        self.pool.abandon();
        if let Some(Workers { repairer, mover }) = workers {
            mover.stop();
            // This times out only if I/O of a job hangs.
            let _ = tokio::time::timeout(STOP_TIME_LIMIT, repairer.stop()).await;
        }
        owners.abandon().await
    }

    /// Flushes all data and stops the owners; the virtual disks must not be in use.
    pub(super) async fn end_owners(&self) -> Result<(), StorageError> {
        let Some(RunningOwners { owners, workers }) = self.running.0.lock().take() else { return Ok(()) };
        // A pool that is open for reading only has nothing to flush.
        let Some(Workers { repairer, mover }) = workers else { return Ok(()) };
        mover.stop();
        repairer.stop().await;
        Ok(owners.close().await?)
    }
}

/// Checks the disks of a pool as long as its virtual disks have owners.
async fn check_disks(env: Env, owners: Weak<LocalPool>) {
    loop {
        env.sleep(CHECK_INTERVAL).await;
        // Between the checks this task holds no reference to the pool and its disks.
        let Some(owners) = owners.upgrade() else { return };
        if let Err(error) = owners.pool().check_disks().await {
            tracing::debug!(%error, "cannot remove an absent disk from service");
        }
    }
}
