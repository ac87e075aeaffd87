//! Returns disks to their pools: by command, and automatically.
//!
//! A disk returns automatically if it was not found or was disconnected, and is present again in one of the configured
//! paths. A disk that was removed from service for failing I/O returns automatically only if it was disconnected since:
//! otherwise it would fail again. A disk that a command took offline stays offline, and so does one that the pool would
//! accept only with `--accept-loss`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pool::jobs::Subject;
use pool::{Absence, DiskNumber, PoolId, Presence};

use super::error::StorageError;
use super::find::{self, Labelled};
use super::open_pool::OpenPool;
use super::pools::{Pools, Purpose, done};
use super::resuming::SuspendedPools;
use crate::control::events::EventKind;
use crate::control::storage::ReturnRequest;
use crate::control::types::Changed;

/// While a disk is absent: the interval of checks of new paths, and of all paths.
const INTERVAL: Duration = Duration::from_secs(2);
const FULL_INTERVAL: Duration = Duration::from_secs(60);
/// The pause after a disk returned automatically or was refused.
const PAUSE: Duration = Duration::from_secs(30);

type Key = (PoolId, DiskNumber);

/// The result of the last check.
#[derive(Default)]
struct ReturnScan {
    /// Device, inode and size of each path: another disk may have the same path.
    identities: BTreeMap<PathBuf, (u64, u64, u64)>,
    all_at: Option<Instant>,
    /// Absent disks that were not found at any path.
    disconnected: BTreeSet<Key>,
    /// When a disk was last returned automatically, and why it was refused.
    tried: BTreeMap<Key, (Instant, Option<String>)>,
}

impl Pools {
    /// Returns an absent disk to its open pool.
    ///
    /// # Errors
    /// See [`StorageError`]: it is absent, belongs to no open pool, or its data is older or newer than the pool's.
    pub async fn return_disk(&self, request: ReturnRequest) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let named = std::fs::canonicalize(&request.disk).ok();
        let (wanted, places) = match &named {
            Some(path) => (None, vec![path.clone()]),
            None => (Some(self.disk_of_pool(&request.disk)?), find::expand(&self.devices)),
        };
        let in_service = |open: &OpenPool, number: DiskNumber| {
            // Its storage may have been full, and may have free space again.
            open.check_for_jobs();
            done(format!("disk {} of the pool {} is in service", number.0, open.name()), Vec::new())
        };
        if let Some((open, number)) = wanted.as_ref().filter(|(o, n)| o.pool.read(|s| s.is_present(*n))) {
            return Ok(in_service(open, *number));
        }
        let is_it = |f: &Labelled| wanted.as_ref().is_none_or(|(o, n)| (o.pool.id(), *n) == key(f));
        let found = find::labels(&self.env, &self.arena, places).await.into_iter().find(is_it);
        let Some(found) = found else {
            let object = |(o, n): &(Arc<OpenPool>, _)| {
                format!("{} of the pool {}", o.reporter.object(Subject::Disk(*n)), o.name())
            };
            return Err(match &wanted {
                Some(wanted) => StorageError::NotHere { disk: object(wanted) },
                None => StorageError::NoLabel(named.unwrap_or_default()),
            });
        };
        let name = found.label.pool_name.clone();
        let open = self.open_pools().into_iter().find(|o| o.pool.id() == found.label.pool);
        let Some(open) = open else {
            return Err(StorageError::NotOpen {
                name,
                reason: "causeway disk return does not open pools".to_owned(),
            });
        };
        if !open.pool.has(found.label.id) {
            return Err(StorageError::Removed { path: found.path, pool: open.name(), into: None });
        }
        if open.pool.read(|s| s.is_present(found.label.number)) {
            return Ok(in_service(&open, found.label.number));
        }
        let number = self.take_back(&open, &found, request.accept_loss, "returned by command").await?;
        Ok(done(format!("disk {} returned to the pool {}", number.0, open.name()), Vec::new()))
    }

    /// Returns disks automatically while the thread runs.
    pub(super) async fn watch_returns(self: Arc<Pools>) {
        let (mut scan, mut suspended) = (ReturnScan::default(), SuspendedPools::default());
        loop {
            self.env.sleep(INTERVAL).await;
            self.resume_suspended(&mut suspended).await;
            scan.disconnected.extend(suspended.disconnected());
            let absent = self.absent();
            scan.disconnected.retain(|key| absent.contains_key(key) || suspended.has(key.0));
            if absent.is_empty() {
                scan = ReturnScan {
                    tried: scan.tried,
                    disconnected: scan.disconnected,
                    ..ReturnScan::default()
                };
            } else if let Ok(_one) = self.changing.try_lock() {
                self.find_returned(absent, &mut scan).await;
            }
        }
    }

    /// The absent disks that their pools could accept.
    fn absent(&self) -> BTreeMap<Key, (Arc<OpenPool>, Absence)> {
        let mut absent = BTreeMap::new();
        for open in self.open_pools() {
            if open.writable().is_ok() && open.pool.suspended().is_none() {
                open.pool.read(|s| {
                    for (number, record) in s.disks.iter() {
                        if let Presence::Absent(why) = record.presence
                            && why != Absence::ByCommand
                        {
                            absent.insert((s.pool, *number), (Arc::clone(&open), why));
                        }
                    }
                });
            }
        }
        absent
    }

    async fn find_returned(&self, absent: BTreeMap<Key, (Arc<OpenPool>, Absence)>, scan: &mut ReturnScan) {
        let now = self.env.now();
        let mark = |path: PathBuf| {
            let m = std::fs::metadata(&path).ok()?;
            Some((path, (m.dev() ^ m.rdev(), m.ino(), m.len())))
        };
        let here: BTreeSet<PathBuf> = self.open_pools().iter().flat_map(|o| o.paths()).collect();
        let places = find::expand(&self.devices).into_iter().filter(|p| !here.contains(p));
        let places: BTreeMap<_, _> = places.filter_map(mark).collect();
        let is_new = |(path, mark): &(&PathBuf, &_)| scan.identities.get(*path) != Some(*mark);
        let all = scan.all_at.is_none_or(|at| now - at >= FULL_INTERVAL)
            || scan.identities.keys().any(|path| !places.contains_key(path));
        let look: Vec<_> = places.iter().filter(|p| all || is_new(p)).map(|(path, _)| path.clone()).collect();
        scan.identities = places;
        let found = find::labels(&self.env, &self.arena, look).await;
        if all {
            scan.all_at = Some(now);
            let found: BTreeSet<Key> = found.iter().map(key).collect();
            scan.disconnected.extend(absent.keys().filter(|k| !found.contains(k)));
        }
        scan.tried.retain(|k, (at, _)| absent.contains_key(k) || now - *at < PAUSE);
        for found in found {
            let key = key(&found);
            let Some((open, why)) = absent.get(&key) else { continue };
            let by_itself =
                matches!(why, Absence::NotFound | Absence::Gone) || scan.disconnected.contains(&key);
            if !by_itself || !open.pool.has(found.label.id) {
                continue;
            }
            // Its path is checked each time until the disk is in service.
            scan.identities.remove(&found.path);
            let before = scan.tried.get(&key);
            if before.is_some_and(|(at, _)| now - *at < PAUSE) {
                continue;
            }
            let refused = self.return_found(open, &found).await.err();
            if let Some(message) = &refused
                && before.is_none_or(|(_, told)| told.as_ref() != Some(message))
            {
                let subject = Subject::Disk(found.label.number);
                open.reporter.report_warning(EventKind::DiskRefused, subject, message.clone());
            }
            scan.tried.insert(key, (now, refused));
        }
    }

    /// Returns a disk that is present again. The error is the text for the event.
    async fn return_found(&self, open: &Arc<OpenPool>, found: &Labelled) -> Result<(), String> {
        let taken = self.take_back(open, found, false, "it was found again, and returned by itself").await;
        taken.map(drop).map_err(|error| {
            let help = error.cure().map_or_else(String::new, |c| format!(": {c}"));
            format!("it was found again at {}, but the pool refused it: {error}{help}", found.path.display())
        })
    }

    async fn take_back(
        &self,
        open: &Arc<OpenPool>,
        found: &Labelled,
        accept_loss: bool,
        how: &str,
    ) -> Result<DiskNumber, StorageError> {
        open.writable()?;
        let disk = self.open_disk(&found.path, &found.label, Purpose::Write).await?;
        open.bring_back(disk, accept_loss, how).await
    }

    /// A disk of an open pool, by `POOL/NUMBER` or identity.
    fn disk_of_pool(&self, disk: &str) -> Result<(Arc<OpenPool>, DiskNumber), StorageError> {
        let of = |open: Arc<OpenPool>| {
            let number = open.pool.read(|s| {
                let mut all = s.disks.iter();
                all.find(|(n, r)| r.name == disk || format!("{}/{}", s.name, n.0) == disk).map(|(n, _)| *n)
            })?;
            Some((open, number))
        };
        let found = self.open_pools().into_iter().find_map(of);
        found.ok_or_else(|| StorageError::NoDiskHere(disk.to_owned()))
    }
}

fn key(found: &Labelled) -> Key {
    (found.label.pool, found.label.number)
}
