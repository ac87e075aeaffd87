//! Opens pools: at the start, and by command.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::Disk;
use pool::{OpenError, OpenOptions, Opened, Pool, PoolId};

use super::error::{self, StorageError};
use super::find::{self, Labelled};
use super::machine;
use super::open_pool::{OpenPool, SuspendedClients};
use super::pools::{Closed, KnownPool, Pools, Purpose, done, resolve_links};
use crate::control::events::EventKind;
use crate::control::storage::ImportRequest;
use crate::control::types::Changed;
use crate::output::quoted;

/// How long a starting server waits for a stopping one, for each pool, and the interval of its checks.
pub(super) const ENDING: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(200);

impl Pools {
    /// Opens every pool that is found in the configured paths.
    pub(super) async fn import_at_start(&self) {
        let _one = self.changing.lock().await;
        for (id, disks) in self.find_pools(Vec::new()).await {
            let request = ImportRequest::default();
            // After kill -9 and an immediate restart, the previous process may still be ending. Its outstanding
            // I/O holds the locks of its disks, so this start waits for that I/O.
            let patience = self.env.now() + ENDING;
            self.wait_for_locks(&disks, patience).await;
            let mut opened = self.open(id, &disks, &request, patience).await;
            while self.env.now() < patience && opened.as_ref().is_err_and(|e| self.is_held_here(e)) {
                self.env.sleep(AGAIN).await;
                opened = self.open(id, &disks, &request, patience).await;
            }
            match opened {
                Ok(open) => {
                    let name = open.name();
                    tracing::info!(pool = name, "pool opened");
                    open.report_opened(EventKind::PoolOpened, "the server has started");
                    open.notes
                        .iter()
                        .cloned()
                        .chain(open.absent())
                        .for_each(|note| tracing::warn!(pool = name, "{note}"));
                }
                Err(error) => tracing::error!("{error}"),
            }
        }
    }

    /// Searches for pools and opens them.
    ///
    /// # Errors
    /// For a named pool: it cannot be opened, or it is open and has absent disks. For other pools these are notes.
    pub async fn import(&self, request: ImportRequest) -> Result<Changed, StorageError> {
        let more = resolve_links(&request.paths)?;
        let _one = self.changing.lock().await;
        let wanted =
            |id: &PoolId, name: &str| request.name.as_ref().is_none_or(|n| n == name || *n == id.to_string());
        let mut found = self.find_pools(more).await;
        found.retain(|id, disks| disks.first().is_some_and(|d| wanted(id, &d.label.pool_name)));
        if found.len() > 1
            && let Some(name) = &request.name
        {
            return Err(StorageError::Ambiguous { name: name.clone(), what: "pools" });
        }
        let (mut opened, mut notes) = (Vec::new(), Vec::new());
        let patience = self.env.now() + ENDING;
        for (id, disks) in &found {
            match self.open(*id, disks, &request, patience).await {
                Ok(open) => {
                    notes.extend(open.notes.iter().cloned().chain(open.absent()));
                    notes.extend(self.unlisted(&open.paths()));
                    let how = if open.read_only { " for reading only" } else { "" };
                    open.report_opened(EventKind::PoolImported, &format!("opened{how}"));
                    opened.push(format!("pool {} opened{how}", open.name()));
                }
                Err(error) if request.name.is_some() => return Err(error),
                Err(error) => notes.push(error.to_string()),
            }
        }
        for open in self.open_pools().iter().filter(|o| !found.contains_key(&o.pool.id())) {
            if wanted(&open.pool.id(), &open.name()) {
                let name = open.name();
                let absent: Vec<_> = open
                    .pool
                    .read(|s| s.disks.keys().copied().filter(|d| !s.is_present(*d)).map(|d| d.0).collect());
                if open.read_only {
                    opened.push(format!(
                        "pool {name} is open already, for reading only, with the disks that were found then; to open it for writing: causeway pool export {0}, causeway pool import {0}",
                        quoted(&name)
                    ));
                } else if absent.is_empty() {
                    opened.push(format!("pool {name} is open already"));
                } else {
                    let missing = StorageError::Open { name, absent };
                    if request.name.is_some() {
                        return Err(missing);
                    }
                    notes.push(format!("{missing}: {}", missing.cure().unwrap_or_default()));
                }
            }
        }
        if let Some(name) = request.name.filter(|_| opened.is_empty()) {
            return Err(StorageError::NotFound(name));
        }
        let text = match opened.is_empty() {
            true if found.is_empty() => "no pool was found".to_owned(),
            true => "no pool was opened".to_owned(),
            false => opened.join(", "),
        };
        Ok(done(text, notes))
    }

    /// Waits until no process holds locks on the disks, or until a timeout.
    pub(super) async fn wait_for_locks(&self, found: &[Labelled], patience: Instant) {
        for Labelled { path, label } in found {
            while let Err(StorageError::Disk(disk::OpenError::InUse { .. })) =
                self.open_disk(path, label, Purpose::Write).await
                && self.env.now() < patience
            {
                self.env.sleep(AGAIN).await;
            }
        }
    }

    /// Opens a disk. A lock without a process belongs to outstanding I/O of a killed server, and ends with that I/O.
    /// Waits for that until `patience`, because otherwise the pool would be opened without the disk.
    async fn open_unlocked(
        &self,
        Labelled { path, label }: &Labelled,
        purpose: Purpose,
        patience: Instant,
    ) -> Result<Arc<dyn Disk>, StorageError> {
        loop {
            match self.open_disk(path, label, purpose).await {
                Err(StorageError::Disk(disk::OpenError::InUse { by, .. }))
                    if by.is_empty() && self.env.now() < patience =>
                {
                    self.env.sleep(AGAIN).await;
                }
                opened => return opened,
            }
        }
    }

    /// Whether a process of this machine holds the pool.
    fn is_held_here(&self, error: &StorageError) -> bool {
        match error {
            StorageError::HeldHere { .. } => true,
            StorageError::Import { source, .. } => self.is_ours(source),
            _ => false,
        }
    }

    /// Whether the owner of a pool is a process of this machine since its last boot.
    fn is_ours(&self, held: &OpenError) -> bool {
        let OpenError::Held { by, .. } = held else { return false };
        by.boot != [0; 16] && (&by.host, by.boot) == (&self.by.host, self.by.boot)
    }

    /// The disks with labels in the configured paths, at the paths of closed pools, and in `more`.
    pub(super) async fn all_labels(&self, more: Vec<PathBuf>) -> Vec<Labelled> {
        let mut paths = find::expand(&self.devices);
        paths.extend(more);
        for known in self.known.lock().values() {
            if let KnownPool::Closed(closed) = known {
                paths.extend(closed.disks.clone());
            }
        }
        paths.sort();
        paths.dedup();
        find::labels(&self.env, &self.arena, paths).await
    }

    /// The disks with labels, by pool, of pools that are not open here.
    async fn find_pools(&self, more: Vec<PathBuf>) -> BTreeMap<PoolId, Vec<Labelled>> {
        let mut pools: BTreeMap<PoolId, Vec<Labelled>> = BTreeMap::new();
        for found in self.all_labels(more).await {
            pools.entry(found.label.pool).or_default().push(found);
        }
        let known = self.known.lock();
        pools.retain(|id, _| !matches!(known.get(id), Some(KnownPool::Open(_))));
        pools
    }

    /// Opens one pool with these disks, and records it, or the reason why it cannot be opened. Waits for locks without
    /// a process until `patience`.
    pub(super) async fn open(
        &self,
        id: PoolId,
        found: &[Labelled],
        request: &ImportRequest,
        patience: Instant,
    ) -> Result<Arc<OpenPool>, StorageError> {
        let name = found.first().map(|f| f.label.pool_name.clone()).unwrap_or_default();
        let mut disks = Vec::new();
        let (mut unopened, mut in_use, mut readers) = (Vec::new(), false, Vec::new());
        let purpose = if request.read_only { Purpose::Read } else { Purpose::Write };
        for disk in found {
            let label = &disk.label;
            match self.open_unlocked(disk, purpose, patience).await {
                Ok(disk) => disks.push(disk),
                Err(error) => {
                    if let StorageError::Disk(disk::OpenError::InUse { by, .. }) = &error {
                        in_use = true;
                        readers.extend(by.iter().filter(|by| by.reads).cloned());
                    }
                    unopened.push(format!("disk {}: {error}", label.number.0));
                }
            }
        }
        readers.sort_by_key(|by| by.process);
        readers.dedup();
        let options = OpenOptions {
            pool: Some(id),
            is_running: machine::is_running,
            read_only: request.read_only,
            accept_loss: request.accept_loss,
            force: request.force,
            deadlines: self.deadlines,
            ..OpenOptions::new(self.by.clone())
        };
        let result = match readers.is_empty() {
            true => self.open_with(&name, found, disks, &options, in_use, unopened).await,
            // If the pool were opened without the disks of these readers, they would read stale data.
            false => Err(StorageError::BeingRead { name: name.clone(), by: readers }),
        };
        match result {
            Ok(open) => Ok(open),
            Err(error) => {
                let disks = found.iter().map(|f| f.path.clone()).collect();
                let reason = match &error {
                    StorageError::Import { source, .. } | StorageError::HeldHere { source, .. } => {
                        error::why_closed(source)
                    }
                    other => other.to_string(),
                };
                let (cure, helps) = (error.cure(), error.opens(&name));
                self.known.lock().insert(id, KnownPool::Closed(Closed { name, disks, reason, cure, helps }));
                Err(error)
            }
        }
    }

    /// Opens a pool with those of its disks that could be opened, and starts its use.
    async fn open_with(
        &self,
        name: &str,
        found: &[Labelled],
        disks: Vec<Arc<dyn Disk>>,
        options: &OpenOptions,
        in_use: bool,
        unopened: Vec<String>,
    ) -> Result<Arc<OpenPool>, StorageError> {
        let mut opened = Pool::open(&self.env, &self.arena, &disks, options).await;
        drop(disks);
        if in_use
            && opened.is_err()
            && let Some(source) = self.holder(found, options).await
        {
            // `--force` takes the claim, not the lock: the process that holds the lock would continue.
            if self.is_ours(&source) {
                return Err(StorageError::HeldHere { name: name.to_owned(), source });
            }
            opened = Err(source);
        }
        match opened {
            Ok(opened) => self.take(opened, options.read_only, unopened).await,
            Err(source) => Err(refusal(name.to_owned(), source, &unopened, options.read_only)),
        }
    }

    /// The owner of a pool whose disks are in use by another process of this machine.
    async fn holder(&self, found: &[Labelled], options: &OpenOptions) -> Option<OpenError> {
        let mut disks = Vec::new();
        for Labelled { path, label } in found {
            disks.extend(self.open_disk(path, label, Purpose::Examine).await.ok());
        }
        let options = OpenOptions { read_only: true, force: false, accept_loss: true, ..options.clone() };
        let error = Pool::open(&self.env, &self.arena, &disks, &options).await.err()?;
        matches!(error, OpenError::Held { .. }).then_some(error)
    }

    async fn take(
        &self,
        opened: Opened,
        read_only: bool,
        mut notes: Vec<String>,
    ) -> Result<Arc<OpenPool>, StorageError> {
        let Opened { pool, former_epoch, stale, may_be_stale, shortened, .. } = opened;
        notes.extend(shortened.iter().map(|(disk, size, had)| {
            format!(
                "disk {} has become shorter ({size} instead of {had} bytes) and is not used: restore its size, or replace it (causeway pool replace-disk)",
                disk.0
            )
        }));
        let names =
            |disks: &[pool::DiskNumber]| disks.iter().map(|d| d.0.to_string()).collect::<Vec<_>>().join(", ");
        if !stale.is_empty() {
            notes.push(format!("disks {} are older than the pool's record of them", names(&stale)));
        }
        if !may_be_stale.is_empty() {
            notes.push(format!(
                "the loss of newer data was accepted: {} may be stale",
                may_be_stale.join(", ")
            ));
        }
        let is_same = !read_only && may_be_stale.is_empty();
        self.start_use(pool, read_only, notes, is_same.then_some(former_epoch)).await
    }

    /// Starts the use of a pool and restores its attachments. `previous_epoch`: the epoch of the previous opening;
    /// `None` if flushed data may be lost. Clients of a suspended pool that was closed in that epoch stay connected.
    pub(super) async fn start_use(
        &self,
        pool: Pool,
        read_only: bool,
        notes: Vec<String>,
        previous_epoch: Option<u64>,
    ) -> Result<Arc<OpenPool>, StorageError> {
        let kept = self.suspended_clients.lock().remove(&pool.id());
        let kept = match kept {
            Some(kept) if previous_epoch == Some(kept.epoch) => kept,
            Some(kept) => {
                kept.attachments.end_all().await;
                SuspendedClients::default()
            }
            None => SuspendedClients::default(),
        };
        let open = Arc::new(OpenPool::new(self, pool, read_only, notes, kept).await?);
        self.known.lock().insert(open.pool.id(), KnownPool::Open(Arc::clone(&open)));
        self.restore_attachments(&open).await;
        Ok(open)
    }
}

/// The error of a pool that cannot be opened. Logs the disks that cannot be used, the likely cause of missing ones.
fn refusal(name: String, source: OpenError, unopened: &[String], read_only: bool) -> StorageError {
    unopened.iter().for_each(|u| tracing::warn!(pool = name, "{u}"));
    match source {
        OpenError::NoPool { .. } if !unopened.is_empty() => {
            StorageError::Unopened { name, why: unopened.join("; ") }
        }
        source => StorageError::Import { name, source, read_only },
    }
}
