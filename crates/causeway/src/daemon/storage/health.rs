//! The health of all pools: faults with texts and commands, and the tree of objects.

mod texts;
mod tree;
mod watch;

use std::collections::BTreeMap;
use std::sync::Weak;

use pool::PoolId;
use pool::health::{Snapshot, faults};

pub(super) use watch::FaultWatch;

use super::error::StorageError;
use super::open_pool::OpenPool;
use super::pools::{KnownPool, Pools};
use crate::control::health::{FaultStatus, HealthReport};
use crate::control::storage::DiskStatus;

impl Pools {
    /// The health of all pools, and the disks that can be pooled.
    pub async fn health(&self) -> HealthReport {
        // The search for disks waits for changes in progress; health does not.
        let idle = self.changing.try_lock().is_ok();
        let disks = if idle { self.disks().await } else { Vec::new() };
        let free: Vec<DiskStatus> =
            disks.into_iter().filter(|d| d.can_pool && d.pool.is_none() && d.path.is_some()).collect();
        let mut report = self.health_with(&free);
        let pool = self.open_pools().iter().find(|o| !o.read_only).map(|o| o.name());
        let taken: Vec<_> = self.known.lock().values().map(KnownPool::name).collect();
        let action = |disk: &DiskStatus| match &pool {
            Some(pool) => texts::add_disk(pool, disk),
            // Each disk gets the same command, which creates a pool from all of them.
            None => texts::create(&taken, &free),
        };
        report.faults.extend(free.iter().filter_map(|d| texts::free_disk(d, action(d))));
        report
    }

    /// The health from the known state of the pools, without a search. `free`: disks that can be added.
    fn health_with(&self, free: &[DiskStatus]) -> HealthReport {
        let known = self.known.lock().clone();
        let tree = |known: &KnownPool| match known {
            KnownPool::Open(open) => tree::open(open),
            KnownPool::Closed(closed) => tree::closed(closed),
        };
        let pools = known.values().map(tree).collect();
        let mut faults: Vec<FaultStatus> = self.pool_faults(free).into_iter().flat_map(|(_, f)| f).collect();
        faults.sort_by_key(|f| std::cmp::Reverse(f.perceived_severity));
        self.watch.date(&mut faults);
        HealthReport { pools, faults }
    }

    /// The faults of each pool, by name, including pools that shares or attachments use and that were not found.
    fn pool_faults(&self, free: &[DiskStatus]) -> Vec<(String, Vec<FaultStatus>)> {
        let known = self.known.lock().clone();
        let of = |(id, known): (&PoolId, &KnownPool)| match known {
            KnownPool::Open(open) => (open.name(), open_faults(*id, open, free)),
            KnownPool::Closed(closed) => (closed.name.clone(), vec![texts::closed(*id, closed)]),
        };
        let missing = self.users_of_missing();
        let missing = missing.iter().map(|(name, users)| (name.clone(), vec![texts::missing(name, users)]));
        known.iter().map(of).chain(missing).collect()
    }

    /// The shares and stored attachments of pools that were not found, by the name of the pool.
    fn users_of_missing(&self) -> BTreeMap<String, Vec<String>> {
        let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for entry in self.attached_to_missing() {
            let way = match &entry.attach.nbd {
                Some(socket) => format!("NBD on {}", socket.display()),
                None => "a block device".to_owned(),
            };
            let user = format!("the attachment of the virtual disk {} ({way})", entry.space());
            missing.entry(entry.pool().to_owned()).or_default().push(user);
        }
        let mut shares = self.shares.lock();
        shares.retain(|share| share.strong_count() > 0);
        for share in shares.iter().filter_map(Weak::upgrade) {
            if matches!(self.find(&share.pool), Err(StorageError::NoPool(_))) {
                missing.entry(share.pool.clone()).or_default().push(format!("the share {}", share.name));
            }
        }
        missing
    }
}

fn open_faults(id: PoolId, open: &OpenPool, free: &[DiskStatus]) -> Vec<FaultStatus> {
    let suspended = open.pool.suspended().map(|s| s.to_string());
    let events = open.pool.events();
    // In a pool that is open for reading only, each read resolves its own units, and no job waits.
    let in_doubt =
        open.owners().filter(|_| !open.read_only).map(|owners| owners.in_doubt()).unwrap_or_default();
    let mut failing = events.failing();
    failing.extend(open.pool.unlabelled());
    let (paths, not_open) = (open.reporter.paths(), open.not_open());
    open.pool.read(|state| {
        let now = Snapshot {
            state,
            suspended,
            read_only: open.read_only,
            failing,
            findings: events.counts(),
            slow: events.slow(),
            not_open,
            in_doubt,
            jobs: open.pool.jobs().list(),
            warn_percent: u64::from(state.policy.warn_at),
        };
        let texts = texts::FaultTexts { id, state, paths, jobs: &now.jobs, free };
        faults(&now).iter().map(|f| texts.fault(f)).collect()
    })
}
