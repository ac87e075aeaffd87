//! Resumes suspended pools automatically.
//!
//! A pool is permanently suspended when too few of its disks with metadata remain. When the labels of more than half of
//! them can be read again, it is closed and opened again. Its clients stay connected: calls fail in between, and so
//! does the first flush of each virtual disk. They are disconnected if another process opened the pool in the meantime.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pool::{DiskNumber, PoolId, Suspension};

use super::find::Labelled;
use super::import::ENDING;
use super::open_pool::OpenPool;
use super::pools::{Closed, KnownPool, Pools};
use crate::control::events::EventKind;
use crate::control::storage::ImportRequest;

/// The pause after a failed attempt to open a pool again.
const PAUSE: Duration = Duration::from_secs(10);

/// The suspended pools.
#[derive(Default)]
pub(super) struct SuspendedPools(BTreeMap<PoolId, Attempts>);

struct Attempts {
    /// The time of the next attempt.
    due: Instant,
    /// The disks with the pool's metadata when it was suspended.
    voters: BTreeSet<DiskNumber>,
    /// All disks of the pool when it was suspended.
    disks: BTreeSet<DiskNumber>,
    /// The disks that were not found at some time since then: these were disconnected.
    disconnected: BTreeSet<DiskNumber>,
}

impl SuspendedPools {
    /// The disks of suspended pools that are disconnected, or were disconnected meanwhile.
    pub(super) fn disconnected(&self) -> impl Iterator<Item = (PoolId, DiskNumber)> {
        self.0.iter().flat_map(|(id, attempts)| attempts.disconnected.iter().map(|disk| (*id, *disk)))
    }

    /// Whether a pool is suspended.
    pub(super) fn has(&self, pool: PoolId) -> bool {
        self.0.contains_key(&pool)
    }
}

impl Pools {
    /// Opens suspended pools again if enough of their disks are present.
    pub(super) async fn resume_suspended(&self, waiting: &mut SuspendedPools) {
        let suspended = self.open_pools().into_iter().filter(|open| {
            !open.read_only && matches!(open.pool.suspended(), Some(Suspension::TooFewVoters { .. }))
        });
        let mut suspended: BTreeMap<PoolId, Option<Arc<OpenPool>>> =
            suspended.map(|open| (open.pool.id(), Some(open))).collect();
        suspended.extend(self.suspended_clients.lock().keys().map(|id| (*id, None)));
        waiting.0.retain(|id, _| suspended.contains_key(id));
        let now = self.env.now();
        for (id, open) in suspended {
            let new = || Attempts {
                due: now,
                voters: BTreeSet::new(),
                disks: BTreeSet::new(),
                disconnected: BTreeSet::new(),
            };
            let Attempts { due, voters, disks, disconnected } = waiting.0.entry(id).or_insert_with(new);
            if let Some(open) = &open {
                (*voters, *disks) = open.pool.read(|s| (s.voters.clone(), s.disks.keys().copied().collect()));
            }
            if now < *due {
                continue;
            }
            let found = self.disks_of(id, open.as_deref()).await;
            let is_found = |disk: &&DiskNumber| found.iter().any(|found| found.label.number == **disk);
            disconnected.extend(disks.iter().filter(|disk| !is_found(disk)));
            let here = found.iter().filter(|disk| voters.contains(&disk.label.number)).count();
            if here * 2 <= voters.len() {
                continue;
            }
            // Abandons the pool first, because a command that holds the lock may wait for it.
            open.iter().for_each(|open| open.pool.abandon());
            let Ok(_one) = self.changing.try_lock() else { continue };
            // The pool may have been closed or opened meanwhile.
            let is_there = match (self.known.lock().get(&id), &open) {
                (Some(KnownPool::Open(now)), Some(open)) => Arc::ptr_eq(now, open),
                (Some(KnownPool::Closed(_)), None) => self.suspended_clients.lock().contains_key(&id),
                _ => false,
            };
            if is_there {
                *due = now + PAUSE;
                self.open_again(id, open, &found).await;
            }
        }
    }

    /// The disks of a pool whose labels can be read now.
    async fn disks_of(&self, id: PoolId, open: Option<&OpenPool>) -> Vec<Labelled> {
        let mut found = self.all_labels(open.map(OpenPool::paths).unwrap_or_default()).await;
        found.retain(|disk| disk.label.pool == id);
        found
    }

    async fn open_again(&self, id: PoolId, open: Option<Arc<OpenPool>>, found: &[Labelled]) {
        if let Some(open) = open {
            let name = open.name();
            tracing::info!(pool = name, "enough disks of a suspended pool are present again: opening it");
            let kept = open.abandon().await;
            self.suspended_clients.lock().insert(id, kept);
            let closed = Closed {
                name,
                disks: open.paths(),
                reason: "it was suspended, and is being opened again".to_owned(),
                cure: None,
                helps: Vec::new(),
            };
            self.known.lock().insert(id, KnownPool::Closed(closed));
            // Its disks are closed when their last I/O has ended.
        }
        let patience = self.env.now() + ENDING;
        self.wait_for_locks(found, patience).await;
        let before = self.why_closed(id);
        match self.open(id, found, &ImportRequest::default(), patience).await {
            Ok(open) => {
                open.report_opened(EventKind::PoolOpened, "its disks are present again, and it has resumed")
            }
            // Another attempt follows; the same error is logged once.
            Err(error) if self.why_closed(id) != before => {
                tracing::error!(%error, "a suspended pool cannot be opened again");
            }
            Err(_) => {}
        }
    }

    fn why_closed(&self, id: PoolId) -> Option<String> {
        match self.known.lock().get(&id) {
            Some(KnownPool::Closed(closed)) => Some(closed.reason.clone()),
            _ => None,
        }
    }
}
