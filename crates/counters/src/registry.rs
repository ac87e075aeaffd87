//! All instances of all sets, and their clock.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use env::{Env, Moment};

use crate::requests::Sums;
use crate::sets::{CLIENT_SHARES, DIRECT, HEALTH, RDMA, SERVER_SHARES, SESSIONS, io};
use crate::{Instance, Instances, SetSnapshot, Snapshot};

/// A clock that counts from the creation of a registry.
#[derive(Clone)]
pub struct Clock {
    env: Env,
    started: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn new(env: Env) -> Clock {
        Clock { started: env.now(), env }
    }

    /// The current time.
    #[inline]
    pub fn now(&self) -> Instant {
        self.env.now()
    }

    /// The current time, for [`crate::Tally::whole`].
    #[inline]
    pub fn moment(&self) -> Moment {
        self.env.moment()
    }

    /// Converts a moment to an [`Instant`].
    pub fn instant(&self, at: Moment) -> Instant {
        self.env.instant(at)
    }

    /// `at` in nanoseconds since the start; 0 before it.
    #[inline]
    pub fn ns(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_nanos() as u64
    }
}

/// The counters of one server or client. Clones share them.
#[derive(Clone)]
pub struct Registry {
    clock: Clock,
    /// SMB Direct Connection.
    pub direct: Arc<Instances>,
    /// SMB Client Shares.
    pub client_shares: Arc<Instances>,
    /// SMB Server Shares.
    pub server_shares: Arc<Instances>,
    /// SMB Server Sessions.
    pub sessions: Arc<Instances>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

/// RDMA Activity. Providers belong to the process, not to a registry.
static PROVIDERS: LazyLock<Instances> = LazyLock::new(|| Instances::new(&RDMA));

/// The RDMA Activity instance of a provider.
pub fn provider(name: &str) -> Arc<Instance> {
    PROVIDERS.permanent(name, &[name])
}

/// Storage Health. Pools belong to the process too.
static POOLS: LazyLock<Instances> = LazyLock::new(|| Instances::new(&HEALTH));

/// The Storage Health instance of a pool.
pub fn pool_health(name: &str) -> Arc<Instance> {
    POOLS.permanent(name, &[name])
}

/// PhysicalDisk. Disks belong to the process too.
pub static PHYSICAL_DISKS: LazyLock<Instances> = LazyLock::new(|| Instances::new(&io::DISKS));
/// Storage Spaces Virtual Disk.
pub static VIRTUAL_DISKS: LazyLock<Instances> = LazyLock::new(|| Instances::new(&io::SPACES));
/// Storage Pool.
pub static STORAGE_POOLS: LazyLock<Instances> = LazyLock::new(|| Instances::new(&io::POOLS));

impl Registry {
    /// A registry without instances.
    pub fn new(env: Env) -> Registry {
        Registry {
            clock: Clock::new(env),
            direct: Arc::new(Instances::new(&DIRECT)),
            client_shares: Arc::new(Instances::new(&CLIENT_SHARES)),
            server_shares: Arc::new(Instances::new(&SERVER_SHARES)),
            sessions: Arc::new(Instances::new(&SESSIONS)),
        }
    }

    /// Its clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The sums of requests on all shares of a server.
    pub fn requests(&self) -> Sums {
        Sums::of(&self.server_shares.sum())
    }

    /// A snapshot of all current counts.
    pub fn snapshot(&self) -> Snapshot {
        let all =
            [&*self.server_shares, &self.sessions, &self.direct, &PROVIDERS, &self.client_shares, &POOLS];
        let counted: Vec<_> = all
            .iter()
            .map(|instances| {
                let list = instances.list();
                (instances.set(), list.into_iter().map(|i| (i.values(), i)).collect::<Vec<_>>())
            })
            .collect();
        // Read after the cells, so that every request in progress began earlier.
        let at_ns = self.clock.ns(self.clock.now());
        let mut sets: Vec<_> =
            counted.into_iter().map(|(set, list)| SetSnapshot::of(set, &list, at_ns)).collect();
        let disks = [&*STORAGE_POOLS, &VIRTUAL_DISKS, &PHYSICAL_DISKS];
        sets.extend(disks.map(|of| SetSnapshot::of_io(of.set(), &of.list(), at_ns)));
        Snapshot { at_ns, unix_ms: self.clock.env.unix_time().as_millis() as u64, sets }
    }
}
