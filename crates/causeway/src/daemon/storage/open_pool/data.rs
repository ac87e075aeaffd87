//! The data path of an open pool and its background work: how they start and stop.

use std::sync::{Arc, Weak};
use std::time::Duration;

use env::Env;
use parking_lot::Mutex;
use pool::CommitError;

use super::OpenPool;
use crate::daemon::storage::data::DataPath;
use crate::daemon::storage::error::StorageError;
use crate::daemon::storage::jobs::Mender;
use crate::daemon::storage::mover::Mover;

/// How often it is checked that the disks are still those that were opened.
const CHECKS: Duration = Duration::from_secs(2);

/// See the module; none when the pool is closed.
#[derive(Default)]
pub(super) struct Data(Mutex<Option<Live>>);

/// The parts that exist while data can be used.
struct Live {
    data: Arc<DataPath>,
    workers: Option<Workers>,
}

/// The background work, if the pool may be written.
struct Workers {
    mender: Arc<Mender>,
    mover: Arc<Mover>,
}

impl OpenPool {
    /// The data path, while there is one.
    pub(in crate::daemon::storage) fn data(&self) -> Option<Arc<DataPath>> {
        self.live.0.lock().as_ref().map(|l| Arc::clone(&l.data))
    }

    /// The data path.
    ///
    /// # Errors
    /// [`StorageError::NoData`].
    pub(in crate::daemon::storage) fn data_now(&self) -> Result<Arc<DataPath>, StorageError> {
        self.data().ok_or_else(|| StorageError::NoData(self.name()))
    }

    /// The data path, if data may be changed.
    ///
    /// # Errors
    /// [`CommitError::ReadOnly`]; [`StorageError::NoData`].
    pub(in crate::daemon::storage) fn writable(&self) -> Result<Arc<DataPath>, StorageError> {
        match self.read_only {
            true => Err(StorageError::Commit(CommitError::ReadOnly)),
            false => self.data_now(),
        }
    }

    /// The background work, as long as it can run.
    pub(in crate::daemon::storage) fn mender(&self) -> Option<Arc<Mender>> {
        self.live.0.lock().as_ref()?.workers.as_ref().map(|w| Arc::clone(&w.mender))
    }

    /// Moves its data to other disks, as long as it can run.
    pub(in crate::daemon::storage) fn mover(&self) -> Option<Arc<Mover>> {
        self.live.0.lock().as_ref()?.workers.as_ref().map(|w| Arc::clone(&w.mover))
    }

    /// Opens the data path; it reads the activity logs.
    pub(super) async fn start_data(&self) -> Result<(), StorageError> {
        let data = DataPath::open(&self.pool, &self.env, &self.arena).await?;
        let workers = || Workers {
            mender: Mender::start(&self.env, &self.pool, &data, self.jobs, &self.teller),
            mover: Mover::start(&self.env, &self.pool, &data, &self.teller),
        };
        let workers = (!self.read_only).then(workers);
        if !self.read_only {
            self.env.spawn(check_disks(self.env.clone(), Arc::downgrade(&data)));
        }
        *self.live.0.lock() = Some(Live { data, workers });
        Ok(())
    }

    /// Takes the data path out of use for good and flushes everything; no space may be used meanwhile.
    pub(super) async fn end_data(&self) -> Result<(), StorageError> {
        let Some(Live { data, workers }) = self.live.0.lock().take() else { return Ok(()) };
        // Of one that is open for reading only nothing is to be made durable.
        let Some(Workers { mender, mover }) = workers else { return Ok(()) };
        mover.stop();
        mender.stop().await;
        data.quiesce().await
    }
}

/// Checks the disks of a data path as long as there is one.
async fn check_disks(env: Env, data: Weak<DataPath>) {
    loop {
        env.sleep(CHECKS).await;
        let Some(data) = data.upgrade() else { return };
        if let Err(error) = data.check_disks().await {
            tracing::debug!(%error, "a disk that is gone could not be removed from service");
        }
    }
}
