//! The data path of an open pool and its background work: how they start, stop, and start again.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use env::Env;
use parking_lot::Mutex;
use pool::jobs::{Kind, Subject};
use pool::{CommitError, DataPath, PathOptions, SpaceError};

use super::OpenPool;
use crate::daemon::storage::error::StorageError;
use crate::daemon::storage::jobs::Mender;
use crate::daemon::storage::mover::Mover;

/// How long until a data path that could not be opened is tried again, at first and at most: twice as long each time.
const SOON: Duration = Duration::from_secs(1);
const AT_LAST: Duration = Duration::from_secs(60);

/// How often it is checked that the disks are still those that were opened.
const CHECKS: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Default)]
pub(super) struct Data {
    /// None while it is changed, and when the pool is closed.
    live: Mutex<Option<Live>>,
    /// Jobs that were paused when the data path ended: those of the next one are too.
    paused: Mutex<BTreeSet<(Kind, Subject)>>,
    /// Why there is none although the pool is open.
    missing: Mutex<Option<String>>,
    /// Held while one comes or goes; whether the last one has gone.
    ended: tokio::sync::Mutex<bool>,
}

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
        self.live.live.lock().as_ref().map(|l| Arc::clone(&l.data))
    }

    /// The data path.
    ///
    /// # Errors
    /// [`StorageError::NoData`].
    pub(in crate::daemon::storage) fn data_now(&self) -> Result<Arc<DataPath>, StorageError> {
        let why = || self.no_data().unwrap_or_else(|| "it is being changed, or closed".to_owned());
        self.data().ok_or_else(|| StorageError::NoData { pool: self.name(), why: why() })
    }

    /// Why there is no data path although the pool is open.
    pub(in crate::daemon::storage) fn no_data(&self) -> Option<String> {
        self.live.missing.lock().clone()
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
        self.live.live.lock().as_ref()?.workers.as_ref().map(|w| Arc::clone(&w.mender))
    }

    /// Moves its data to other disks, as long as it can run.
    pub(in crate::daemon::storage) fn mover(&self) -> Option<Arc<Mover>> {
        self.live.live.lock().as_ref()?.workers.as_ref().map(|w| Arc::clone(&w.mover))
    }

    /// Opens a data path; it reads the activity logs.
    pub(super) async fn start_data(&self) -> Result<(), SpaceError> {
        let (env, arena) = (self.env.clone(), self.arena.clone());
        let data = DataPath::of_pool(&self.pool, env, arena, PathOptions::default()).await?;
        data.jobs.pause_all(std::mem::take(&mut *self.live.paused.lock()));
        self.use_data(data);
        Ok(())
    }

    fn use_data(&self, data: Arc<DataPath>) {
        let workers = || Workers {
            mender: Mender::start(&self.env, &self.pool, &data, self.jobs, &self.teller),
            mover: Mover::start(&self.env, &self.pool, &data, &self.teller),
        };
        let workers = (!self.read_only).then(workers);
        if !self.read_only {
            self.env.spawn(check_disks(self.env.clone(), Arc::downgrade(&data)));
        }
        *self.live.live.lock() = Some(Live { data, workers });
        *self.live.missing.lock() = None;
    }

    /// Takes the data path out of use and flushes everything; no space may be used meanwhile. On failure,
    /// returns the data path with the error: everything that it knows must still be made durable.
    async fn stop_data(&self) -> Result<(), (Arc<DataPath>, SpaceError)> {
        let Some(Live { data, workers }) = self.live.live.lock().take() else { return Ok(()) };
        // Of one that is open for reading only nothing is to be made durable.
        let Some(Workers { mender, mover }) = workers else { return Ok(()) };
        mover.stop();
        mender.stop().await;
        data.quiesce().await.map_err(|error| (Arc::clone(&data), error))?;
        *self.live.paused.lock() = data.jobs.paused();
        Ok(())
    }

    /// The same for good.
    pub(super) async fn end_data(&self) -> Result<(), StorageError> {
        let mut ended = self.live.ended.lock().await;
        *ended = true;
        self.stop_data().await.map_err(|(_, error)| StorageError::Space(error))
    }

    /// Flushes everything, makes a change to the metadata that the data path does not expect, and opens the
    /// data path again.
    ///
    /// # Errors
    /// [`StorageError::Unflushed`]: nothing was done. [`StorageError::NotBack`]: it was done, and
    /// the virtual disks are unavailable until a data path can be opened, which is retried.
    pub(in crate::daemon::storage) async fn without_data(
        self: &Arc<Self>,
        work: impl Future<Output = Result<(), StorageError>>,
    ) -> Result<(), StorageError> {
        let _one = self.live.ended.lock().await;
        if let Err((data, source)) = self.stop_data().await {
            data.jobs.go_on();
            self.use_data(data);
            return Err(StorageError::Unflushed { pool: self.name(), source });
        }
        let result = work.await;
        let Err(source) = self.start_data().await else { return result };
        tracing::error!(pool = self.name(), error = %source, "the data path could not be opened again: the server will retry");
        *self.live.missing.lock() = Some(source.to_string());
        self.env.spawn(bring_data_back(Arc::downgrade(self)));
        result.and(Err(StorageError::NotBack { pool: self.name(), source }))
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

/// Tries to open the data path of a pool until that succeeds, or the pool is closed.
async fn bring_data_back(open: Weak<OpenPool>) {
    let mut wait = SOON;
    loop {
        let Some(env) = open.upgrade().map(|open| open.env.clone()) else { return };
        env.sleep(wait).await;
        let Some(open) = open.upgrade() else { return };
        let ended = open.live.ended.lock().await;
        if *ended || open.data().is_some() {
            return;
        }
        match open.start_data().await {
            Ok(()) => return tracing::info!(pool = open.name(), "the data path is open again"),
            Err(error) => *open.live.missing.lock() = Some(error.to_string()),
        }
        wait = (wait * 2).min(AT_LAST);
    }
}

#[cfg(test)]
mod tests;
