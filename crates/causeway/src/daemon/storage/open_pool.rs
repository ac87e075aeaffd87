//! A pool that is in use here: its data path, what mends it, and who uses its spaces.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arena::Arena;
use env::Env;
use parking_lot::Mutex;
use pool::health::Troubled;
use pool::jobs::{Kind, Subject};
use pool::{CommitError, DataPath, DiskNumber, PathOptions, Pool, Presence};

use super::attach::Attachments;
use super::error::StorageError;
use super::jobs::Mender;
use super::mover::Mover;
use super::pools::Pools;
use super::tell::Teller;
use crate::config::JobsSection;
use crate::control::events::EventKind;

/// See the module.
pub(super) struct OpenPool {
    pub(super) pool: Pool,
    pub(super) read_only: bool,
    /// What was noticed when it was opened, and holds as long as it is open.
    pub(super) notes: Vec<String>,
    pub(super) attachments: Attachments,
    pub(super) teller: Teller,
    env: Env,
    arena: Arena,
    jobs: JobsSection,
    /// None while it is closed.
    live: Mutex<Option<Live>>,
    /// Jobs that were paused when the data path ended: those of the next one are too.
    paused: Mutex<BTreeSet<(Kind, Subject)>>,
}

/// What there is while data can be used.
struct Live {
    data: Arc<DataPath>,
    workers: Option<Workers>,
}

/// Who works beside the users, where anything may be written.
struct Workers {
    mender: Arc<Mender>,
    mover: Arc<Mover>,
}

impl OpenPool {
    /// Reads the activity logs, and begins to mend what a crash or an absence has left.
    pub(super) async fn new(
        pools: &Pools,
        pool: Pool,
        read_only: bool,
        notes: Vec<String>,
    ) -> Result<OpenPool, StorageError> {
        let open = OpenPool {
            teller: Teller::new(&pools.env, &pools.events, &pool),
            pool,
            read_only,
            notes,
            attachments: Attachments::default(),
            env: pools.env.clone(),
            arena: pools.arena.clone(),
            jobs: pools.jobs,
            live: Mutex::default(),
            paused: Mutex::default(),
        };
        open.start_data().await?;
        Ok(open)
    }

    /// The data path, while there is one.
    pub(super) fn data(&self) -> Option<Arc<DataPath>> {
        self.live.lock().as_ref().map(|l| Arc::clone(&l.data))
    }

    /// Which of its disks are not as they should be.
    pub(super) fn troubled(&self) -> Troubled {
        let unlabelled = self.pool.unlabelled().into_keys();
        self.data().map_or_else(Troubled::default, |data| Troubled {
            slow: data.events.slow().into_keys().collect(),
            failing: data.events.failing().into_keys().chain(unlabelled).collect(),
        })
    }

    /// The data path, if data may be changed.
    ///
    /// # Errors
    /// [`CommitError::ReadOnly`].
    pub(super) fn writable(&self) -> Result<Arc<DataPath>, StorageError> {
        self.data().filter(|_| !self.read_only).ok_or(StorageError::Commit(CommitError::ReadOnly))
    }

    /// What mends it beside the clients, while anything can.
    pub(super) fn mender(&self) -> Option<Arc<Mender>> {
        self.live.lock().as_ref()?.workers.as_ref().map(|w| Arc::clone(&w.mender))
    }

    /// What moves its data to other disks, while anything can.
    pub(super) fn mover(&self) -> Option<Arc<Mover>> {
        self.live.lock().as_ref()?.workers.as_ref().map(|w| Arc::clone(&w.mover))
    }

    async fn start_data(&self) -> Result<(), StorageError> {
        let (env, arena) = (self.env.clone(), self.arena.clone());
        let data = DataPath::of_pool(&self.pool, env, arena, PathOptions::default()).await?;
        data.jobs.pause_all(std::mem::take(&mut *self.paused.lock()));
        let workers = || Workers {
            mender: Mender::start(&self.env, &self.pool, &data, self.jobs, &self.teller),
            mover: Mover::start(&self.env, &self.pool, &data, &self.teller),
        };
        let workers = (!self.read_only).then(workers);
        *self.live.lock() = Some(Live { data, workers });
        Ok(())
    }

    /// Flushes everything and ends the data path; nobody may use a space meanwhile.
    async fn stop_data(&self) -> Result<(), StorageError> {
        let Some(Live { data, workers }) = self.live.lock().take() else { return Ok(()) };
        // Of one that is open for reading only nothing is to be made durable.
        let Some(Workers { mender, mover }) = workers else { return Ok(()) };
        mover.stop();
        mender.stop().await;
        *self.paused.lock() = data.jobs.paused();
        Ok(data.quiesce().await?)
    }

    /// Flushes everything, does something to the metadata that the data path does not expect, and goes on.
    pub(super) async fn without_data(
        &self,
        work: impl Future<Output = Result<(), StorageError>>,
    ) -> Result<(), StorageError> {
        self.stop_data().await?;
        let result = work.await;
        self.start_data().await?;
        result
    }

    /// A disk takes part from now on: what it has missed is copied to it.
    pub(super) fn joined(&self) {
        if let Some(mender) = self.mender() {
            mender.look();
        }
    }

    /// Lets go of disks that are absent, so that they can be opened anew.
    pub(super) fn release_absent(&self) {
        if let Some(data) = self.data() {
            data.release_absent();
        }
    }

    /// Nobody's virtual disk is taken away by a command about its pool; only the server's own end does not ask.
    ///
    /// # Errors
    /// [`StorageError::InUse`].
    pub(super) fn refuse_in_use(&self) -> Result<(), StorageError> {
        let attached = self.attachments.all();
        if attached.is_empty() {
            return Ok(());
        }
        let spaces = self
            .pool
            .read(|s| attached.iter().filter_map(|id| s.spaces.get(id)).map(|r| r.name.clone()).collect());
        Err(StorageError::InUse { pool: self.name(), spaces })
    }

    /// Ends the clients, flushes, and gives the pool up.
    pub(super) async fn close(&self) -> Result<(), StorageError> {
        self.attachments.end_all().await;
        let flushed = self.stop_data().await;
        if !self.read_only {
            // What could not be flushed is marked on the disks, and is resolved when the pool is opened again.
            self.pool.export().await?;
        }
        flushed
    }

    pub(super) fn name(&self) -> String {
        self.pool.read(|s| s.name.clone())
    }

    /// What to say of disks that are not here.
    pub(super) fn absent(&self) -> Option<String> {
        let absent: Vec<_> = self.pool.read(|s| {
            let absent = s.disks.iter().filter(|(_, r)| r.presence != Presence::Present);
            absent.map(|(n, r)| format!("disk {} ({})", n.0, r.name)).collect()
        });
        (!absent.is_empty()).then(|| format!("not here: {}", absent.join(", ")))
    }

    /// Tells that it is in use from now on, and what was noticed.
    pub(super) fn tell_opened(&self, kind: EventKind, how: &str) {
        let noticed = self.notes.iter().cloned().chain(self.absent());
        let parts: Vec<String> = [how.to_owned()].into_iter().chain(noticed).collect();
        self.teller.tell(kind, parts.join("; "));
    }

    /// Where its disks are.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.pool.members().iter().map(|m| m.disk.info().path.clone()).collect()
    }

    /// One of its disks by number, path or identity.
    pub(super) fn disk(&self, disk: &str) -> Result<DiskNumber, StorageError> {
        let members = self.pool.members();
        let at =
            |path: &Path| path == Path::new(disk) || std::fs::canonicalize(disk).is_ok_and(|p| p == path);
        let by_path = members.iter().find(|m| at(&m.disk.info().path)).map(|m| m.number);
        let by_name = || {
            self.pool.read(|s| {
                let mut all = s.disks.iter();
                all.find(|(n, r)| n.0.to_string() == disk || r.name == disk).map(|(n, _)| *n)
            })
        };
        let none = || StorageError::NoDisk { pool: self.name(), disk: disk.to_owned() };
        by_path.or_else(by_name).ok_or_else(none)
    }
}
