//! The server: the state that all connections share.

mod connections;
mod listings;
mod open_slots;
mod sessions;
mod shares;
mod unauthenticated;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arena::{Arena, Pipes};
use counters::Registry;
use env::{Env, Moment};
use parking_lot::{Mutex, RwLock};
use smb_auth::mechanism::UserLookup;
use tokio::sync::Notify;

pub(crate) use self::connections::ConnectionGuard;
pub use self::listings::{ChannelInfo, OpenInfo, SessionInfo, ShareInfo, Totals};
pub(crate) use self::open_slots::OpenSlot;
pub(crate) use self::sessions::SessionId;
pub use self::shares::ShareError;
use self::shares::fold;
pub(crate) use self::unauthenticated::{Progress, Unauthenticated};
use crate::ServerConfig;
use crate::breaks::{Clients, LeaseTable};
use crate::connection::{OVERHEAD, UNAUTHENTICATED_MAX};
use crate::failed_logons::FailedLogons;
use crate::files::FileTable;
use crate::namespace::Namespace;
use crate::open::Open;
use crate::opens::OpenTable;
use crate::replay::CreateTable;
use crate::session::Session;
use crate::share::Share;

/// One SMB server, shared by all its connections.
pub struct Server {
    pub(crate) config: ServerConfig,
    pub(crate) users: Arc<dyn UserLookup + Send + Sync>,
    pub(crate) arena: Arena,
    /// For the payload of large WRITEs.
    pub(crate) pipes: Pipes,
    pub(crate) env: Env,
    pub(crate) started: Moment,
    pub(crate) files: FileTable,
    pub(crate) namespace: Namespace,
    pub(crate) failed_logons: FailedLogons,
    shares: RwLock<HashMap<String, Arc<Share>>>,
    sessions: Mutex<HashMap<u64, Arc<Session>>>,
    /// Ids of sessions that are being set up.
    reserved_ids: Mutex<HashSet<u64>>,
    pub(crate) opens: OpenTable<Open>,
    open_slots: Arc<open_slots::OpenSlots>,
    pub(crate) leases: LeaseTable,
    pub(crate) clients: Clients,
    pub(crate) creates: CreateTable,
    next_connection: AtomicU64,
    connections: AtomicUsize,
    unauthenticated: Mutex<unauthenticated::Connections>,
    /// When a warning about the limit of connections was last logged.
    full: Mutex<unauthenticated::WarningLimiter>,
    accepted: AtomicU64,
    /// Requests that name no tree connect, so that no share counts them.
    unshared: AtomicU64,
    draining: AtomicBool,
    force_closing: AtomicBool,
    drained: Notify,
    pub(crate) registry: Registry,
    uncounted: AtomicBool,
}

/// The transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// Direct TCP.
    Tcp,
    /// SMB Direct.
    Rdma,
}

/// Pipes for payload, for all connections together. A user other than root may have some 60 of this size.
const PIPES: usize = 48;
/// Unauthenticated connections may take at most the arena's size divided by this.
const UNAUTHENTICATED_SHARE: usize = 4;

/// I/O sizes are multiples of this, in bytes.
const IO_UNIT: usize = 64 << 10;

impl Server {
    /// A server without shares but IPC$. Its I/O size is lowered so that one message fits half of `arena`: for a larger
    /// one there might never be memory. The limit of unauthenticated connections is lowered to the number that fits a
    /// quarter.
    pub fn new(
        mut config: ServerConfig,
        users: Arc<dyn UserLookup + Send + Sync>,
        arena: Arena,
        env: Env,
    ) -> Arc<Server> {
        let mut shares = HashMap::new();
        let registry = Registry::new(env.clone());
        let counted = registry.server_shares.permanent("IPC$", &["IPC$"]);
        shares.insert(fold("IPC$"), Arc::new(Share::pipes(counted)));
        let opens = OpenTable::new(config.boot);
        let most = arena.usage().budget / UNAUTHENTICATED_SHARE / (UNAUTHENTICATED_MAX + 4);
        config.limits.unauthenticated = config.limits.unauthenticated.min(most);
        let room = (arena.usage().budget / 2 - OVERHEAD) / IO_UNIT * IO_UNIT;
        config.limits.max_io = config.limits.max_io.min(room as u32);
        Arc::new(Server {
            config,
            users,
            arena,
            pipes: Pipes::new(PIPES),
            started: env.moment(),
            files: FileTable::default(),
            namespace: Namespace::default(),
            failed_logons: FailedLogons::default(),
            shares: RwLock::new(shares),
            sessions: Mutex::default(),
            reserved_ids: Mutex::default(),
            opens,
            open_slots: Arc::default(),
            leases: LeaseTable::default(),
            clients: Clients::default(),
            creates: CreateTable::default(),
            next_connection: AtomicU64::new(1),
            connections: AtomicUsize::new(0),
            unauthenticated: Mutex::default(),
            full: Mutex::default(),
            accepted: AtomicU64::new(0),
            unshared: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            force_closing: AtomicBool::new(false),
            drained: Notify::new(),
            registry,
            uncounted: AtomicBool::new(false),
            env,
        })
    }

    /// The performance counters of its shares, sessions and SMB Direct connections.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// From now on requests of new sessions are not counted, not in the totals either. Only for measuring the cost of
    /// counting.
    pub fn stop_counting(&self) {
        self.uncounted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn counting(&self) -> Option<&Registry> {
        (!self.uncounted.load(Ordering::Relaxed)).then_some(&self.registry)
    }

    /// Counts a request that no share counts.
    pub(crate) fn count_unshared(&self) {
        if self.counting().is_some() {
            self.unshared.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Microseconds since the start, for `last_used_us`.
    pub(crate) fn uptime_us(&self, now: Moment) -> u64 {
        now.ns_since(self.started) / 1000
    }
}
