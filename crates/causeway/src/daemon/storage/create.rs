//! Creates, exports and destroys pools; adds disks and takes them offline.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::Disk;
use disk::qualify::CannotPoolReason;
use pool::jobs::Subject;
use pool::{
    AdminError, CommitError, CreateError, CreateOptions, FaultDomains, NewDisk, Pool, Presence, UNIT,
    Unsuitable, Usage,
};

use super::error::{StorageError, check_location, check_name};
use super::open_pool::OpenPool;
use super::pools::{Closed, KnownPool, Pools, Purpose, done, resolve_links};
use super::{find, media, removing};
use crate::control::events::EventKind;
use crate::control::storage::{ClearRequest, NewDisks, NewPool};
use crate::control::types::Changed;
use crate::output::{quoted, some};

/// Why an exported pool is not open; this reason is not a fault.
pub(super) const EXPORTED: &str = "it was exported";

impl Pools {
    /// Creates a pool, and keeps it open.
    ///
    /// # Errors
    /// A disk cannot be pooled; nothing is written then.
    pub async fn create_pool(&self, new: NewPool) -> Result<Changed, StorageError> {
        check_name(&new.name)?;
        check_location(&new.disks.place)?;
        let paths = resolve_links(&new.disks.paths)?;
        let _one = self.changing.lock().await;
        match self.find(&new.name) {
            Err(StorageError::NoPool(_)) => {}
            _ => return Err(StorageError::PoolExists(new.name)),
        }
        let mut disks = Vec::new();
        for (n, path) in paths.iter().enumerate() {
            if paths[..n].contains(path) {
                let why = pool::Unsuitable::Twice;
                return Err(CreateError::Disk { path: path.clone(), why }.into());
            }
            disks.push(self.new_disk(path, &new.disks, false, None).await?);
        }
        let options = CreateOptions {
            slab_bytes: new.slab_size,
            deadlines: self.deadlines,
            ..CreateOptions::new(&new.name, self.by.clone())
        };
        let pool = Pool::create(&self.env, &self.arena, &disks, options).await?;
        let notes = self.unlisted(&paths);
        let open = self.start_use(pool, false, Vec::new(), None).await?;
        tracing::info!(pool = new.name, disks = paths.len(), "pool created");
        open.reporter.report(EventKind::PoolCreated, format!("created from {}", some(paths.len(), "disk")));
        Ok(done(format!("pool {} created from {}", new.name, some(paths.len(), "disk")), notes))
    }

    /// Adds disks to an open pool, or returns its own absent disks.
    ///
    /// # Errors
    /// See [`StorageError`]. If a disk cannot be pooled, none is added. If a later step fails for one disk, the disks
    /// before it stay added.
    pub async fn add_disks(&self, name: &str, new: NewDisks) -> Result<Changed, StorageError> {
        check_location(&new.place)?;
        let paths = resolve_links(&new.paths)?;
        let _one = self.changing.lock().await;
        let open = self.pool_to_change(name)?;
        let mut found = Vec::new();
        for (n, path) in paths.iter().enumerate() {
            if paths[..n].contains(path) {
                return Err(CreateError::Disk { path: path.clone(), why: pool::Unsuitable::Twice }.into());
            }
            let labels = find::labels(&self.env, &self.arena, vec![path.clone()]).await;
            let own = labels.iter().find(|l| l.label.pool == open.pool.id());
            let absent = own.filter(|l| {
                let gone = |r: &pool::DiskRecord| r.id == l.label.id && r.presence != Presence::Present;
                open.pool.read(|s| s.disks.get(&l.label.number).is_some_and(gone))
            });
            // A disk with this pool's label that the pool does not list: an addition was interrupted, or the disk was
            // removed. `Pool::add_disk` decides whether it may be added.
            let begun = own.is_some_and(|l| !open.pool.has(l.label.id));
            found.push(match absent {
                Some(l) => JoiningDisk::Returning(self.open_disk(path, &l.label, Purpose::Write).await?),
                None => JoiningDisk::New(Box::new(self.new_disk(path, &new, begun, Some(name)).await?), path),
            });
        }
        let mut numbers = Vec::new();
        for disk in found {
            numbers.push(match disk {
                JoiningDisk::Returning(disk) => {
                    let number = open.bring_back(disk, new.accept_loss, "returned by command").await?;
                    format!("disk {} returned to the pool {}", number.0, open.name())
                }
                JoiningDisk::New(disk, path) => {
                    let number = match open.add(&disk).await {
                        Err(
                            error @ StorageError::Admin(AdminError::Unsuitable(Unsuitable::InPool { .. })),
                        ) => {
                            return Err(match self.removed_from(path).await {
                                Some(pool) => StorageError::Removed {
                                    path: path.to_owned(),
                                    pool,
                                    into: Some(open.name()),
                                },
                                None => error,
                            });
                        }
                        added => added?,
                    };
                    format!("disk {} added to the pool {}: {}", number.0, open.name(), path.display())
                }
            });
        }
        Ok(done(numbers.join("\n"), self.unlisted(&paths)))
    }

    /// Takes a disk offline until `disk return`, to examine or disconnect it.
    ///
    /// # Errors
    /// See [`StorageError`]: the disk has the only current copy of some data, or the pool cannot
    /// continue without it.
    pub async fn take_offline(&self, name: &str, disk: &str) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let open = self.pool_to_change(name)?;
        let number = open.disk(disk)?;
        if !open.pool.read(|s| pool::health::may_leave(s, number)) {
            return Err(StorageError::Needed { pool: open.name(), disk: number.0 });
        }
        if let Some(space) = open.pool.unverified_on(number) {
            let name = open.pool.read(|s| s.spaces.get(&space).map(|record| record.name.clone()));
            return Err(StorageError::Unverified {
                pool: open.name(),
                disk: number.0,
                space: name.unwrap_or_default(),
            });
        }
        open.pool.take_offline(number).await.map_err(|error| match error {
            // Meanwhile another change made the disk necessary.
            CommitError::Needed(disk) => StorageError::Needed { pool: open.name(), disk: disk.0 },
            error => error.into(),
        })?;
        let object = open.reporter.object(Subject::Disk(number));
        open.reporter.report_object(EventKind::DiskLeft, object, "taken offline by command".to_owned());
        Ok(done(format!("disk {} of the pool {} is offline", number.0, open.name()), Vec::new()))
    }

    /// Clears the record of errors that were found and repaired.
    ///
    /// # Errors
    /// See [`StorageError`]: no such pool or disk.
    pub async fn clear(&self, name: &str, request: ClearRequest) -> Result<Changed, StorageError> {
        let open = self.open_pool(name)?;
        let disk = request.disk.map(|disk| open.disk(&disk)).transpose()?;
        open.pool.events().clear(disk);
        let whose = disk.map_or_else(|| "all disks".to_owned(), |d| format!("disk {}", d.0));
        Ok(done(
            format!("record of repaired errors of {whose} of the pool {} cleared", open.name()),
            Vec::new(),
        ))
    }

    /// Exports a pool: flushes it and releases it, so that another machine can open it.
    ///
    /// # Errors
    /// See [`StorageError`]: a virtual disk of it is attached, or it is suspended and its claim remains.
    pub async fn export(&self, name: &str) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        if let Ok((id, KnownPool::Closed(closed))) = self.find(name)
            && let Some(kept) = { self.suspended_clients.lock().remove(&id) }
        {
            // Ends the clients of a suspended pool that was closed, so that it does not resume.
            kept.attachments.end_all().await;
            return Ok(done(
                format!("the clients of the pool {} were disconnected", closed.name),
                Vec::new(),
            ));
        }
        let open = self.open_pool(name)?;
        open.refuse_in_use()?;
        let name = open.name();
        let suspended = open.pool.suspended();
        let closed = open.close().await;
        let reason = match (&closed, suspended) {
            (Ok(()), _) => EXPORTED.to_owned(),
            (Err(_), Some(why)) => format!("the pool was suspended: {why}"),
            (Err(e), None) => e.to_string(),
        };
        self.record_closed(&open, name.clone(), reason);
        closed?;
        open.reporter.report(EventKind::PoolExported, "another machine may open it".to_owned());
        Ok(done(format!("pool {name} exported"), Vec::new()))
    }

    /// Records why a pool is no longer open.
    fn record_closed(&self, open: &OpenPool, name: String, reason: String) {
        let import = format!("causeway pool import {}", quoted(&name));
        let (cure, helps) = (Some(import.clone()), vec![import]);
        let entry = Closed { name, disks: open.paths(), reason, cure, helps };
        self.known.lock().insert(open.pool.id(), KnownPool::Closed(entry));
    }

    /// Erases a pool and all its data.
    ///
    /// # Errors
    /// See [`StorageError`]: a virtual disk of it is attached, or it is not open for writing.
    pub async fn destroy_pool(&self, name: &str) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let open = self.pool_to_change(name)?;
        open.refuse_in_use()?;
        let (id, name) = (open.pool.id(), open.name());
        let absent = open.pool.read(|s| s.disks.values().filter(|d| d.presence != Presence::Present).count());
        if let Err(error) = open.end_use().await {
            tracing::warn!(pool = name, %error, "a pool is being erased, although some of its writes could not be flushed");
        }
        if let Err(error) = open.release().await {
            self.record_closed(&open, name, error.to_string());
            return Err(error);
        }
        let erased = open.pool.erase_labels().await;
        self.known.lock().remove(&id);
        self.forget(id, |_| true).await;
        erased?;
        tracing::info!(pool = name, "pool destroyed");
        open.reporter.report(EventKind::PoolDestroyed, "erased, with all its data".to_owned());
        let notes = match absent {
            0 => Vec::new(),
            n => vec![format!("{n} of its disks were absent and still have its label")],
        };
        Ok(done(format!("pool {name} destroyed"), notes))
    }

    /// Opens a disk that can be pooled. `begun`: it may have the pool's label from an interrupted addition.
    async fn new_disk(
        &self,
        path: &Path,
        how: &NewDisks,
        begun: bool,
        into: Option<&str>,
    ) -> Result<NewDisk, StorageError> {
        self.refuse_own(path)?;
        let found = self.examine(path, how.force, false).await?;
        let in_pool = |r: &CannotPoolReason| matches!(r, CannotPoolReason::InAPool { .. });
        let labelled = found.reasons.iter().any(in_pool);
        let reasons: Vec<_> =
            found.reasons.into_iter().filter(|r| !((how.force || begun) && in_pool(r))).collect();
        if !reasons.is_empty() {
            if labelled {
                return Err(self.labelled(path, reasons, into).await);
            }
            return Err(StorageError::CannotPool { path: path.to_owned(), reasons });
        }
        let atomic = how.assume_atomic.then_some(UNIT as u32);
        let disk = self.open_new(path, atomic, found.info.geometry.size).await?;
        let usage = how.usage.map_or(Usage::AutoSelect, removing::usage_of);
        let domains = removing::location_after(FaultDomains::default(), &how.place);
        let media = how.media.map(media::media_of);
        Ok(NewDisk { overwrite: how.force, usage, media, domains, ..NewDisk::new(disk) })
    }

    /// The error for a disk with a pool's label that cannot be pooled for these reasons.
    async fn labelled(
        &self,
        path: &Path,
        reasons: Vec<CannotPoolReason>,
        into: Option<&str>,
    ) -> StorageError {
        let held = |r: &CannotPoolReason| matches!(r, CannotPoolReason::InUse { by } if by.is_empty());
        if reasons.iter().any(held) {
            let by = match self.open_reserving(path, None, Purpose::Write, Vec::new()).await {
                Err(StorageError::Disk(disk::OpenError::InUse { by, .. })) => by,
                _ => Vec::new(),
            };
            let labels = find::labels(&self.env, &self.arena, vec![path.to_owned()]).await;
            let pool = labels.first().map(|l| l.label.pool_name.clone());
            return StorageError::HasDisk { path: path.to_owned(), by, pool };
        }
        let path = path.to_owned();
        let forced =
            |r: &_| matches!(r, CannotPoolReason::InAPool { .. } | CannotPoolReason::NotBlank { .. });
        if reasons.iter().all(forced)
            && let Some(pool) = self.removed_from(&path).await
        {
            return StorageError::Removed { path, pool, into: into.map(str::to_owned) };
        }
        StorageError::CannotPool { path, reasons }
    }

    /// Refuses a disk of a pool that is open on this server, even with `--force`.
    pub(super) fn refuse_own(&self, path: &Path) -> Result<(), StorageError> {
        for open in self.open_pools() {
            let members = open.pool.members();
            let mine = members.iter().find(|m| m.disk.info().path == path).map(|m| m.number);
            if let Some(mine) = mine {
                return Err(StorageError::OwnDisk { path: path.to_owned(), pool: open.name(), disk: mine.0 });
            }
        }
        Ok(())
    }

    /// Notes about disks that the server would not find at its next start.
    pub(super) fn unlisted(&self, paths: &[PathBuf]) -> Vec<String> {
        let unlisted = paths.iter().filter(|p| !find::names(&self.devices, p));
        unlisted
            .map(|p| {
                format!(
                    "{} is not in storage.devices: add it in the configuration, or the server will not find the pool at its \
                     next start",
                    p.display()
                )
            })
            .collect()
    }
}

/// A disk that joins a pool.
enum JoiningDisk<'a> {
    /// An absent disk of the pool.
    Returning(Arc<dyn Disk>),
    New(Box<NewDisk>, &'a Path),
}

impl OpenPool {
    /// Adds a disk and starts a rebalance; returns its number.
    async fn add(&self, disk: &NewDisk) -> Result<pool::DiskNumber, StorageError> {
        self.writable()?;
        let number = self.pool.add_disk(disk).await?;
        self.report_joined(EventKind::DiskAdded, number, "added");
        self.check_for_jobs();
        if disk.usage == Usage::AutoSelect
            && let Some(mover) = self.mover()
        {
            mover.rebalance();
        }
        Ok(number)
    }

    /// Returns an absent disk; returns its number. `how` is the message of the event.
    pub(super) async fn bring_back(
        &self,
        disk: Arc<dyn Disk>,
        accept_loss: bool,
        how: &str,
    ) -> Result<pool::DiskNumber, StorageError> {
        self.writable()?;
        let number = self.pool.return_disk(disk, accept_loss).await?;
        self.report_joined(EventKind::DiskReturned, number, how);
        self.check_for_jobs();
        Ok(number)
    }

    fn report_joined(&self, kind: EventKind, number: pool::DiskNumber, how: &str) {
        let members = self.pool.members();
        let place = members.iter().find(|m| m.number == number).map(|m| m.disk.info().path.clone());
        let place = place.map_or_else(String::new, |p| format!(", at {}", p.display()));
        self.reporter.report_object(
            kind,
            self.reporter.object(Subject::Disk(number)),
            format!("{how}{place}"),
        );
    }
}
