//! A pool that is in use here: the owners of its virtual disks, its background work, and the attachments.
//!
//! Invariant: the pool has owners while it is open.

mod owners;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arena::Arena;
use env::Env;
use pool::health::Problems;
use pool::{DiskNumber, Pool, SpaceId, Suspension};
use pool_local::LocalOptions;

use owners::Owners;

use super::attach::Attachments;
use super::counting::SpaceTallies;
use super::describe;
use super::error::StorageError;
use super::pools::Pools;
use super::reporter::EventReporter;
use crate::config::JobsSection;
use crate::control::events::EventKind;

/// See the module.
pub(super) struct OpenPool {
    pub(super) pool: Pool,
    pub(super) read_only: bool,
    /// Notes about the opening, valid while it is open.
    pub(super) notes: Vec<String>,
    pub(super) attachments: Arc<Attachments>,
    pub(super) tallies: Arc<SpaceTallies>,
    pub(super) reporter: EventReporter,
    env: Env,
    arena: Arena,
    local: LocalOptions,
    jobs: JobsSection,
    running: Owners,
}

/// The state of the clients of a suspended pool that was closed, for its next opening.
#[derive(Default)]
pub(super) struct SuspendedClients {
    pub(super) attachments: Arc<Attachments>,
    tallies: Arc<SpaceTallies>,
    spaces: pool_local::AbandonedSpaces,
    /// The epoch of the closed opening: if the pool was opened elsewhere since, its contents may have changed.
    pub(super) epoch: u64,
}

impl OpenPool {
    /// Starts the owners, which read the logs, and the repairs after a crash or an absence.
    pub(super) async fn new(
        pools: &Pools,
        pool: Pool,
        read_only: bool,
        notes: Vec<String>,
        kept: SuspendedClients,
    ) -> Result<OpenPool, StorageError> {
        let SuspendedClients { attachments, tallies, spaces, .. } = kept;
        let open = OpenPool {
            reporter: EventReporter::new(&pools.env, &pools.events, &pool),
            pool,
            read_only,
            notes,
            attachments,
            tallies,
            env: pools.env.clone(),
            arena: pools.arena.clone(),
            local: pools.local.clone(),
            jobs: pools.jobs,
            running: Owners::default(),
        };
        open.start_owners(spaces).await;
        Ok(open)
    }

    pub(super) fn env(&self) -> &Env {
        &self.env
    }

    /// See [`pool::Pool::unverified`]. In a pool that is open for reading only, each read verifies its own units.
    pub(super) fn unverified(&self) -> BTreeSet<SpaceId> {
        if self.read_only { BTreeSet::new() } else { self.pool.unverified() }
    }

    /// Virtual disks that cannot be opened, with the reason.
    pub(super) fn not_open(&self) -> BTreeMap<SpaceId, String> {
        self.owners().map(|owners| owners.not_open()).unwrap_or_default()
    }

    /// The disks and virtual disks that have problems.
    pub(super) fn problems(&self) -> Problems {
        let unlabelled = self.pool.unlabelled().into_keys();
        let events = self.pool.events();
        Problems {
            not_open: self.not_open(),
            slow: events.slow().into_keys().collect(),
            failing: events.failing().into_keys().chain(unlabelled).collect(),
        }
    }

    /// Checks for jobs: a disk has joined and lacks writes, or its storage may have space again.
    pub(super) fn check_for_jobs(&self) {
        if let Some(repairer) = self.repairer() {
            repairer.check_for_work();
        }
    }

    /// Refuses a command for the pool while a virtual disk is in use: only the end of the server detaches virtual
    /// disks.
    ///
    /// # Errors
    /// [`StorageError::InUse`].
    pub(super) fn refuse_in_use(&self) -> Result<(), StorageError> {
        let attached = self.attachments.all();
        if attached.is_empty() {
            return self.refuse_shared(|_| true);
        }
        let spaces = self
            .pool
            .read(|s| attached.iter().filter_map(|id| s.spaces.get(id)).map(|r| r.name.clone()).collect());
        Err(StorageError::InUse { pool: self.name(), spaces })
    }

    /// # Errors
    /// [`StorageError::Attached`]: a virtual disk is served over NBD, or is a block device.
    pub(super) fn refuse_attached(&self, space: SpaceId) -> Result<(), StorageError> {
        match self.attachments.place(space) {
            Some(place) => Err(StorageError::Attached { name: self.name_of(space), place }),
            None => Ok(()),
        }
    }

    /// # Errors
    /// [`StorageError::Shared`]: clients of shares have one of these virtual disks open.
    pub(super) fn refuse_shared(&self, which: impl Fn(SpaceId) -> bool) -> Result<(), StorageError> {
        match self.attachments.shared().into_iter().find(|space| which(*space)) {
            Some(space) => Err(StorageError::Shared(self.name_of(space))),
            None => Ok(()),
        }
    }

    /// A virtual disk's size, in bytes; 0 if there is none.
    pub(super) fn size_of(&self, space: SpaceId) -> u64 {
        self.pool.read(|s| s.spaces.get(&space).map_or(0, |record| record.size))
    }

    /// A virtual disk's name.
    pub(super) fn name_of(&self, space: SpaceId) -> String {
        self.pool.read(|s| s.spaces.get(&space).map_or_else(String::new, |r| r.name.clone()))
    }

    /// Disconnects the clients, flushes, and releases the pool.
    pub(super) async fn close(&self) -> Result<(), StorageError> {
        let flushed = self.end_use().await;
        self.release().await?;
        flushed
    }

    /// The first half of closing: disconnects the clients and flushes.
    pub(super) async fn end_use(&self) -> Result<(), StorageError> {
        let ends = async {
            self.attachments.end_all().await;
            self.end_owners().await
        };
        tokio::select! {
            biased;
            ended = ends => ended,
            never = self.abandon_when_suspended() => match never {},
        }
    }

    /// Never completes. Abandons the pool once it is permanently suspended, because calls that wait for it would never
    /// complete.
    async fn abandon_when_suspended(&self) -> Infallible {
        let mut changes = self.pool.changes();
        loop {
            if self.is_permanently_suspended() {
                self.pool.abandon();
                std::future::pending::<()>().await;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether the pool is permanently suspended.
    pub(super) fn is_permanently_suspended(&self) -> bool {
        self.pool.suspended().is_some_and(|why| !matches!(why, Suspension::NoLease { .. }))
    }

    /// The second half of closing: releases the pool. Unflushed data is marked on the disks, and is resolved when the
    /// pool is opened again.
    pub(super) async fn release(&self) -> Result<(), StorageError> {
        if !self.read_only {
            self.pool.export().await?;
        }
        Ok(())
    }

    /// Closes a suspended pool without a flush. Its clients stay connected until the next opening.
    pub(super) async fn abandon(&self) -> SuspendedClients {
        let spaces = self.abandon_owners().await;
        let (attachments, tallies) = (Arc::clone(&self.attachments), Arc::clone(&self.tallies));
        SuspendedClients { attachments, tallies, spaces, epoch: self.pool.epoch() }
    }

    pub(super) fn name(&self) -> String {
        self.pool.read(|s| s.name.clone())
    }

    /// A note about absent disks.
    pub(super) fn absent(&self) -> Option<String> {
        let paths = self.reporter.paths();
        let absent: Vec<_> = self.pool.read(|s| {
            let absent = s.disks.keys().filter(|n| !s.is_present(**n));
            absent.map(|n| describe::disk_text(s, *n, &paths)).collect()
        });
        (!absent.is_empty()).then(|| format!("absent: {}", absent.join(", ")))
    }

    /// Reports that the pool is open, with the notes about the opening.
    pub(super) fn report_opened(&self, kind: EventKind, how: &str) {
        let noticed = self.notes.iter().cloned().chain(self.absent());
        let parts: Vec<String> = [how.to_owned()].into_iter().chain(noticed).collect();
        self.reporter.report(kind, parts.join("; "));
    }

    /// The paths of its disks.
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
