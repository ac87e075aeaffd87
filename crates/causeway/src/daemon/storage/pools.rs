//! The pools of this server, open or not, by identity.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arena::Arena;
use counters::IoTally;
use disk::{Counted, Disk, FileDisk, FileOptions};
use env::Env;
use parking_lot::Mutex;
use pool::format::{Areas, Claimant, Label};
use pool::{Deadlines, PoolId};
use pool_local::{LocalOptions, TableBudget};
use tokio::runtime::Handle;

use super::error::StorageError;
use super::health::FaultWatch;
use super::machine;
use super::open_pool::{OpenPool, SuspendedClients};
use super::shared::PoolShare;
use super::stored_attachments::StoredAttachments;
use crate::config::{JobsSection, StorageSection, TimeoutsSection};
use crate::control::events::EventKind;
use crate::control::types::Changed;
use crate::daemon::events::Events;

/// The memory of checksum tables is this fraction of the payload memory, in addition to it.
const TABLES_PART: usize = 4;

/// The pools: see the module. They are used on the storage thread; `changing` is locked during every change.
pub struct Pools {
    pub(super) env: Env,
    pub(super) arena: Arena,
    /// Memory for the checksum tables of all pools, and the workers.
    pub(super) local: LocalOptions,
    pub(super) devices: Vec<String>,
    pub(super) jobs: JobsSection,
    /// The deadlines of disks.
    pub(super) deadlines: Deadlines,
    pub(super) by: Claimant,
    pub(super) changing: tokio::sync::Mutex<()>,
    pub(super) known: Mutex<BTreeMap<PoolId, KnownPool>>,
    /// The clients of suspended pools that were closed and are not open again.
    pub(super) suspended_clients: Mutex<BTreeMap<PoolId, SuspendedClients>>,
    /// The reported faults.
    pub(super) watch: FaultWatch,
    pub(super) events: Arc<Events>,
    /// The attachments to restore.
    pub(super) stored_attachments: StoredAttachments,
    /// The shares of pools; one that was removed is dropped.
    pub(super) shares: Mutex<Vec<Weak<PoolShare>>>,
}

/// The areas with reserved space in the file system: labels, claims, marks, the metadata.
fn metadata_of(areas: &Areas) -> Vec<Range<u64>> {
    vec![areas.label_a.offset..areas.journal.end(), areas.label_b.offset..areas.label_b.end()]
}

fn deadlines(timeouts: TimeoutsSection) -> Deadlines {
    let TimeoutsSection { read_ms, write_ms, flush_ms, metadata_ms } = timeouts;
    let [reads, writes, flushes, metadata] =
        [read_ms, write_ms, flush_ms, metadata_ms].map(Duration::from_millis);
    Deadlines { reads, writes, flushes, metadata }
}

/// The purpose of opening a disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Opens with an exclusive lock.
    Write,
    /// Opens with a lock that excludes writers.
    Read,
    /// Opens without a lock.
    Examine,
}

/// A known pool.
#[derive(Clone)]
pub(super) enum KnownPool {
    Open(Arc<OpenPool>),
    Closed(Closed),
}

/// A pool that is not open.
#[derive(Clone)]
pub(super) struct Closed {
    pub(super) name: String,
    pub(super) disks: Vec<PathBuf>,
    pub(super) reason: String,
    pub(super) cure: Option<String>,
    /// Commands that open it, which can be run unchanged.
    pub(super) helps: Vec<String>,
}

impl Pools {
    pub(super) fn new(
        section: &StorageSection,
        arena: Arena,
        env: Env,
        events: Arc<Events>,
        stored_attachments: StoredAttachments,
        machine: [u8; 16],
        workers: Vec<Handle>,
    ) -> Pools {
        let (devices, jobs) = (section.devices.clone(), section.jobs);
        let (changing, known, suspended_clients) =
            (tokio::sync::Mutex::default(), Mutex::default(), Mutex::default());
        let watch = FaultWatch::default();
        let local = LocalOptions { tables: TableBudget::new(arena.budget() / TABLES_PART), workers };
        Pools {
            env,
            arena,
            local,
            devices,
            jobs,
            deadlines: deadlines(section.timeouts),
            by: machine::claimant(machine),
            changing,
            known,
            suspended_clients,
            watch,
            events,
            stored_attachments,
            shares: Mutex::default(),
        }
    }

    /// A pool by name or identity.
    pub(super) fn find(&self, name: &str) -> Result<(PoolId, KnownPool), StorageError> {
        let known = self.known.lock();
        let mut found = known.iter().filter(|(id, k)| k.name() == name || id.to_string() == name);
        match (found.next(), found.next()) {
            (Some((id, k)), None) => Ok((*id, k.clone())),
            (None, _) => Err(StorageError::NoPool(name.to_owned())),
            _ => Err(StorageError::Ambiguous { name: name.to_owned(), what: "pools" }),
        }
    }

    /// An open pool by name or identity.
    pub(super) fn open_pool(&self, name: &str) -> Result<Arc<OpenPool>, StorageError> {
        match self.find(name)?.1 {
            KnownPool::Open(open) => Ok(open),
            KnownPool::Closed(closed) => {
                Err(StorageError::NotOpen { name: closed.name, reason: closed.reason })
            }
        }
    }

    /// An open pool that is not read-only, by name or identity.
    pub(super) fn pool_to_change(&self, name: &str) -> Result<Arc<OpenPool>, StorageError> {
        let open = self.open_pool(name)?;
        open.writable()?;
        Ok(open)
    }

    /// The open pools.
    pub(super) fn open_pools(&self) -> Vec<Arc<OpenPool>> {
        let open = |k: &KnownPool| match k {
            KnownPool::Open(open) => Some(Arc::clone(open)),
            KnownPool::Closed(_) => None,
        };
        self.known.lock().values().filter_map(open).collect()
    }

    /// Opens a disk with a pool's label; the properties that were found when it was added are still valid.
    pub(super) async fn open_disk(
        &self,
        path: &Path,
        label: &Label,
        purpose: Purpose,
    ) -> Result<Arc<dyn Disk>, StorageError> {
        let atomic = Some(label.atomic_write);
        match self.open_reserving(path, atomic, purpose, metadata_of(&label.areas)).await {
            Err(StorageError::Disk(error @ disk::OpenError::NoSpace { .. })) => {
                tracing::warn!("{error}; until then the pool may refuse changes");
                self.open_reserving(path, atomic, purpose, Vec::new()).await
            }
            opened => opened,
        }
    }

    /// Opens a disk with at least `size` bytes for a pool. `atomic`: the atomic write size, if the caller overrides the
    /// value of the system.
    ///
    /// # Errors
    /// Fails also if the file system has no space for the metadata of a pool.
    pub(super) async fn open_new(
        &self,
        path: &Path,
        atomic: Option<u32>,
        size: u64,
    ) -> Result<Arc<dyn Disk>, StorageError> {
        // The position of the metadata does not depend on the slab size.
        let reserve = Areas::plan(size, Areas::SLAB_MIN).as_ref().map(metadata_of).unwrap_or_default();
        self.open_reserving(path, atomic, Purpose::Write, reserve).await
    }

    pub(super) async fn open_reserving(
        &self,
        path: &Path,
        atomic: Option<u32>,
        purpose: Purpose,
        reserve: Vec<Range<u64>>,
    ) -> Result<Arc<dyn Disk>, StorageError> {
        let (env, path) = (self.env.clone(), path.to_owned());
        let options = FileOptions {
            atomic_write: atomic,
            reserve,
            read_only: purpose != Purpose::Write,
            shared: purpose == Purpose::Examine,
            arena: Some(self.arena.clone()),
            ..FileOptions::default()
        };
        let tally = IoTally::new(&env);
        let opened = tokio::task::spawn_blocking(move || FileDisk::open(&env, &path, &options));
        Ok(Counted::new(opened.await.map_err(|_| StorageError::Stopping)??, tally))
    }

    /// Starts to disconnect the NBD clients of all spaces.
    pub(super) fn begin_disconnect(&self) {
        self.open_pools().iter().for_each(|open| open.attachments.begin_disconnect());
        self.suspended_clients.lock().values().for_each(|kept| kept.attachments.begin_disconnect());
    }

    /// Disconnects the clients of all spaces, flushes the spaces, and releases the pools.
    pub(super) async fn close_all(&self) {
        // Abandons suspended pools first: a command that holds the lock may wait for one of them.
        self.open_pools()
            .iter()
            .filter(|open| open.is_permanently_suspended())
            .for_each(|open| open.pool.abandon());
        let _one = self.changing.lock().await;
        self.begin_disconnect();
        for open in self.open_pools() {
            let name = open.name();
            match open.close().await {
                Ok(()) => {
                    tracing::info!(pool = name, "pool exported");
                    open.reporter.report(EventKind::PoolClosed, "the server is stopping".to_owned());
                }
                Err(error) => tracing::error!(pool = name, %error, "cannot export the pool cleanly"),
            }
        }
        let kept = std::mem::take(&mut *self.suspended_clients.lock());
        for kept in kept.into_values() {
            kept.attachments.end_all().await;
        }
        self.known.lock().clear();
    }
}

impl KnownPool {
    pub(super) fn name(&self) -> String {
        match self {
            KnownPool::Open(open) => open.name(),
            KnownPool::Closed(closed) => closed.name.clone(),
        }
    }
}

pub(super) fn done(text: String, notes: Vec<String>) -> Changed {
    Changed { done: text, notes }
}

/// The paths with all links resolved.
///
/// # Errors
/// A path is not absolute, or does not exist.
pub(super) fn resolve_links(paths: &[PathBuf]) -> Result<Vec<PathBuf>, StorageError> {
    let real = |path: &PathBuf| {
        if !path.is_absolute() {
            return Err(StorageError::NotAbsolute(path.clone()));
        }
        std::fs::canonicalize(path)
            .map_err(|source| disk::OpenError::Path { path: path.clone(), source }.into())
    };
    paths.iter().map(real).collect()
}

#[cfg(test)]
pub(super) mod tests;
