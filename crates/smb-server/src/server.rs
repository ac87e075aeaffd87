//! The server: what all connections share.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arena::{Arena, Pipes};
use counters::Registry;
use env::{Env, Moment};
use parking_lot::{Mutex, RwLock};
use smb_auth::mechanism::UserLookup;
use thiserror::Error;
use tokio::sync::Notify;

use crate::ShareProtection;
use crate::breaks::{Clients, LeaseTable};
use crate::commands::close::Loose;
use crate::connection::{Credits, OVERHEAD, UNAUTHENTICATED_MAX};
use crate::durable::SessionEnd;
use crate::failed_logons::FailedLogons;
use crate::files::FileTable;
use crate::inbox::{Inbox, Notice};
use crate::namespace::Namespace;
use crate::open::Open;
use crate::opens::OpenTable;
use crate::replay::CreateTable;
use crate::session::Session;
use crate::share::{Share, Tree};
use crate::{ServerConfig, ShareConfig};

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
    pub(crate) leases: LeaseTable,
    pub(crate) clients: Clients,
    pub(crate) creates: CreateTable,
    next_connection: AtomicU64,
    connections: AtomicUsize,
    unauthenticated: AtomicUsize,
    /// Of those that can be closed for another, by age.
    unauthenticated_inboxes: Mutex<BTreeMap<u64, Arc<Inbox>>>,
    accepted: AtomicU64,
    /// Requests that name no tree connect, so that no share counts them.
    unshared: AtomicU64,
    draining: AtomicBool,
    cutting: AtomicBool,
    drained: Notify,
    pub(crate) registry: Registry,
    uncounted: AtomicBool,
}

/// How a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// Direct TCP.
    Tcp,
    /// SMB Direct.
    Rdma,
}

/// Why a share was not added or removed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ShareError {
    /// Another share has the name.
    #[error("a share named '{0}' exists already")]
    Exists(String),
    /// No share has the name.
    #[error("there is no share named '{0}'")]
    NotFound(String),
    /// The name is not one that clients can use: empty, longer than 80 characters, with one of `\/[]:|<>+=;,*?"`, or
    /// reserved (IPC$).
    #[error("'{0}' cannot be a share's name")]
    Name(String),
    /// The directory does not take a descriptor.
    #[error("the directory's descriptor cannot be set: {0}")]
    Path(vfs::VfsError),
}

/// A share, for listings.
#[derive(Debug, Clone)]
pub struct ShareInfo {
    /// Its name.
    pub name: String,
    /// Its comment.
    pub comment: String,
    /// Tree connects now.
    pub users: usize,
    /// Nothing may be changed through it.
    pub read_only: bool,
    /// Only encrypted access.
    pub encrypt: bool,
    /// Left out of listings by clients.
    pub hidden: bool,
}

/// A tree connect, for listings.
pub(crate) struct TreeInfo {
    pub(crate) id: u32,
    pub(crate) share: String,
    /// The share is IPC$.
    pub(crate) pipes: bool,
    /// Opens of files and pipes.
    pub(crate) opens: usize,
}

/// A session, for listings.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    /// SessionId.
    pub id: u64,
    /// The user.
    pub user: String,
    /// The client's own name, as it gave it.
    pub workstation: String,
    /// 0x0202 … 0x0311.
    pub dialect: u16,
    /// Opens now.
    pub opens: usize,
    /// Requests are signed: they must be, or the last one was, other than the TREE_CONNECT that 3.1.1 protects always.
    pub signed: bool,
    /// Requests are encrypted: they must be, or the last one was.
    pub encrypted: bool,
    /// Age.
    pub age: Duration,
    /// Time since the last request.
    pub idle: Duration,
    /// Its channels.
    pub channels: Vec<ChannelInfo>,
}

/// A channel, for listings.
#[derive(Debug, Clone)]
pub struct ChannelInfo {
    /// The client's address.
    pub peer: SocketAddr,
    /// TCP or SMB Direct.
    pub transport: TransportKind,
    /// The credits of its connection.
    pub credits: Credits,
}

/// An open, for listings.
#[derive(Debug, Clone)]
pub struct OpenInfo {
    /// FileId, both halves.
    pub id: (u64, u64),
    /// SessionId.
    pub session: u64,
    /// The user.
    pub user: String,
    /// The share's name.
    pub share: String,
    /// The path in the share, with backslashes.
    pub path: String,
    /// Granted access (an ACCESS_MASK).
    pub access: u32,
    /// Byte-range locks held.
    pub locks: usize,
}

/// Running totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections now.
    pub connections: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Requests begun.
    pub requests: u64,
    /// READ requests.
    pub reads: u64,
    /// WRITE requests.
    pub writes: u64,
    /// Payload bytes of READ replies.
    pub read_bytes: u64,
    /// Payload bytes of WRITE requests that were carried out.
    pub written_bytes: u64,
    /// Of the READ bytes, those placed by RDMA.
    pub read_bytes_rdma: u64,
    /// Of the WRITE bytes, those fetched by RDMA.
    pub written_bytes_rdma: u64,
}

/// Pipes for payload, for all connections together. Who is not root may have some 60 of this size.
const PIPES: usize = 48;
/// The part of the arena, one in so many, that connections may take on which nobody is logged on.
const UNAUTHENTICATED_SHARE: usize = 4;

/// How long connections that are cut may take to close what they have open. The last words of an SMB Direct connection
/// take half of it at most.
const CLOSING: Duration = Duration::from_secs(10);

/// What I/O sizes are multiples of, in bytes.
const IO_UNIT: usize = 64 << 10;

impl Server {
    /// A server without shares but IPC$. Its I/O size is lowered to what half of `arena` has room for, message and all:
    /// for more there might never be memory. The number of connections on which nobody is logged on is lowered to what
    /// a quarter has room for.
    pub fn new(
        mut config: ServerConfig,
        users: Arc<dyn UserLookup + Send + Sync>,
        arena: Arena,
        env: Env,
    ) -> Arc<Server> {
        let mut shares = HashMap::new();
        let registry = Registry::new(env.clone());
        let counted = registry.server_shares.lasting("IPC$", &["IPC$"]);
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
            leases: LeaseTable::default(),
            clients: Clients::default(),
            creates: CreateTable::default(),
            next_connection: AtomicU64::new(1),
            connections: AtomicUsize::new(0),
            unauthenticated: AtomicUsize::new(0),
            unauthenticated_inboxes: Mutex::default(),
            accepted: AtomicU64::new(0),
            unshared: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            cutting: AtomicBool::new(false),
            drained: Notify::new(),
            registry,
            uncounted: AtomicBool::new(false),
            env,
        })
    }

    /// Adds a share; clients see it at once.
    ///
    /// # Errors
    /// See [`ShareError`].
    pub fn add_share(&self, share: ShareConfig) -> Result<(), ShareError> {
        self.add_protected_share(share, ShareProtection::default())
    }

    /// [`Server::add_share`] of a share that is protected from the first moment.
    ///
    /// # Errors
    /// See [`ShareError`].
    pub fn add_protected_share(
        &self,
        share: ShareConfig,
        protection: ShareProtection,
    ) -> Result<(), ShareError> {
        let name = share.name.clone();
        if !is_share_name(&name) {
            return Err(ShareError::Name(name));
        }
        let mut shares = self.shares.write();
        if shares.contains_key(&fold(&name)) {
            return Err(ShareError::Exists(name));
        }
        let counted = self.registry.server_shares.lasting(&name, &[&name]);
        let share = Share::disk(share, counted);
        *share.protection.write() = protection;
        shares.insert(fold(&name), Arc::new(share));
        Ok(())
    }

    /// Changes who may use a share, and how: for tree connects from now on.
    ///
    /// # Errors
    /// [`ShareError::NotFound`].
    pub fn protect_share(&self, name: &str, protection: ShareProtection) -> Result<(), ShareError> {
        *self.disk_share(name)?.protection.write() = protection;
        Ok(())
    }

    /// Whether a name of a [`crate::ShareGrant`] means somebody now.
    pub fn is_principal(&self, name: &str) -> bool {
        crate::permission::principal(name, &*self.users).is_some()
    }

    /// Makes a share's permission the descriptor of its root directory, which what is made there inherits. What is there
    /// already keeps its own.
    ///
    /// # Errors
    /// [`ShareError::NotFound`], [`ShareError::Path`].
    pub async fn copy_permission_to_path(&self, name: &str) -> Result<(), ShareError> {
        let share = self.disk_share(name)?;
        let Some(vfs) = share.vfs() else { return Err(ShareError::NotFound(name.to_owned())) };
        let descriptor = share.protection.read().descriptor_of_root(&*self.users);
        let root = vfs::OpenRequest {
            kind: Some(vfs::Kind::Directory),
            ..vfs::OpenRequest::look(vfs::VfsPath::root())
        };
        let ctx = env::Ctx::default();
        let root = vfs.open(&ctx, root).wait().await.map_err(ShareError::Path)?.node;
        root.set_security(&ctx, descriptor).wait().await.map_err(ShareError::Path)
    }

    fn disk_share(&self, name: &str) -> Result<Arc<Share>, ShareError> {
        let found = self.shares.read().get(&fold(name)).filter(|s| s.vfs().is_some()).cloned();
        found.ok_or_else(|| ShareError::NotFound(name.to_owned()))
    }

    /// Takes a share away: its opens are closed, later requests get STATUS_NETWORK_NAME_DELETED.
    ///
    /// # Errors
    /// [`ShareError::NotFound`]; IPC$ cannot be removed either.
    pub async fn remove_share(self: &Arc<Self>, name: &str) -> Result<(), ShareError> {
        let removed = {
            let mut shares = self.shares.write();
            match shares.get(&fold(name)) {
                Some(s) if s.vfs().is_some() => shares.remove(&fold(name)),
                _ => None,
            }
        };
        let share = removed.ok_or_else(|| ShareError::NotFound(name.to_owned()))?;
        share.removed.store(true, Ordering::Release);
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        for session in sessions {
            for tree in session.trees() {
                if Arc::ptr_eq(&tree.share, &share) {
                    self.close_opens_of(&session, &tree).await;
                }
            }
        }
        Ok(())
    }

    /// All shares but IPC$, by name.
    pub fn shares(&self) -> Vec<ShareInfo> {
        let mut list: Vec<ShareInfo> = self
            .shares
            .read()
            .values()
            .filter(|s| s.vfs().is_some())
            .map(|s| ShareInfo {
                name: s.name.clone(),
                comment: s.comment.clone(),
                users: s.users.load(Ordering::Relaxed),
                read_only: s.read_only,
                encrypt: s.encrypt,
                hidden: s.hidden,
            })
            .collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    /// All sessions, by id.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        let now = self.env.now();
        let up = Duration::from_nanos(self.env.moment().ns_since(self.started));
        let mut list: Vec<SessionInfo> = sessions
            .iter()
            .map(|s| SessionInfo {
                id: s.id,
                user: s.user.name.clone(),
                workstation: s.user.workstation.clone(),
                dialect: s.binding.dialect,
                opens: s.open_count(),
                signed: s.is_signing(),
                encrypted: s.is_encrypting(),
                age: now - s.created,
                idle: up.saturating_sub(Duration::from_micros(s.last_used_us.load(Ordering::Relaxed))),
                channels: s
                    .channels
                    .lock()
                    .iter()
                    .map(|c| ChannelInfo { peer: c.peer, transport: c.transport, credits: c.credits.get() })
                    .collect(),
            })
            .collect();
        list.sort_by_key(|s| s.id);
        list
    }

    /// All opens of files and directories, by id; those whose client is away too.
    pub fn opens(&self) -> Vec<OpenInfo> {
        let mut list = Vec::new();
        for open in self.opens.all() {
            let Some(f) = open.file() else { continue };
            let (id, owner) = (open.id(), open.owner());
            list.push(OpenInfo {
                id: (id.persistent, id.volatile),
                session: owner.as_ref().map_or(0, |o| o.session.id),
                user: match (&owner, open.created.user) {
                    (Some(owner), _) => owner.session.user.name.clone(),
                    (None, user) => user.map(|sid| sid.to_string()).unwrap_or_default(),
                },
                share: f.file.share_of(open.persistent),
                path: f.file.path_of(open.persistent).to_string(),
                access: open.access,
                locks: f.stream.locks_of(open.persistent),
            });
        }
        list.sort_by_key(|o| o.id.0);
        list
    }

    /// The tree connects of a session, by id.
    pub(crate) fn trees_of(&self, session: u64) -> Vec<TreeInfo> {
        let Some(session) = self.session(session) else { return Vec::new() };
        let mut opens: HashMap<u32, usize> = HashMap::new();
        for persistent in session.opens() {
            if let Some(owner) = self.opens.find(persistent).and_then(|open| open.owner()) {
                *opens.entry(owner.tree.id).or_default() += 1;
            }
        }
        let mut list: Vec<_> = session
            .trees()
            .iter()
            .map(|tree| TreeInfo {
                id: tree.id,
                share: tree.share.name.clone(),
                pipes: tree.share.vfs().is_none(),
                opens: opens.get(&tree.id).copied().unwrap_or_default(),
            })
            .collect();
        list.sort_by_key(|t| t.id);
        list
    }

    /// Ends a session and closes its opens; `false` when there is none with that id.
    pub async fn close_session(self: &Arc<Self>, id: u64) -> bool {
        let Some(session) = self.sessions.lock().remove(&id) else { return false };
        self.end_session(&session, SessionEnd::Closed).await;
        true
    }

    /// Closes one open by the persistent half of its id, as an administrator; `false` when there is none.
    pub async fn close_open(self: &Arc<Self>, persistent: u64) -> bool {
        let Some(open) = self.opens.find(persistent) else { return false };
        let Some(open) = self.release(&open) else { return false };
        open.close().await;
        true
    }

    /// Running totals: of requests, what the performance counters of its shares come to.
    pub fn totals(&self) -> Totals {
        let all = self.registry.requests();
        Totals {
            connections: self.connections(),
            accepted: self.accepted.load(Ordering::Relaxed),
            requests: all.requests + self.unshared.load(Ordering::Relaxed),
            reads: all.reads,
            writes: all.writes,
            read_bytes: all.read_bytes,
            written_bytes: all.written_bytes,
            read_bytes_rdma: all.read_bytes_direct,
            written_bytes_rdma: all.written_bytes_direct,
        }
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The performance counters of its shares, sessions and SMB Direct connections.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// From now on requests of new sessions are not counted, in the totals neither: to measure what counting costs, and
    /// for nothing else.
    pub fn stop_counting(&self) {
        self.uncounted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn counting(&self) -> Option<&Registry> {
        (!self.uncounted.load(Ordering::Relaxed)).then_some(&self.registry)
    }

    /// Stops taking requests: connections finish what they have begun and close. Those that have not after `limit` are
    /// cut: their requests are given up, their opens closed. Returns when none is left; a connection whose backend does
    /// not even close is given up after some seconds more.
    pub async fn drain(&self, limit: Duration) {
        self.draining.store(true, Ordering::Release);
        if self.emptied(limit).await {
            return;
        }
        self.cutting.store(true, Ordering::Release);
        self.emptied(CLOSING).await;
    }

    /// Waits until there are no connections; false when there still are after `limit`.
    async fn emptied(&self, limit: Duration) -> bool {
        let end = self.env.now() + limit;
        loop {
            self.drained.notify_waiters(); // connections look at what was set when woken
            if self.connections.load(Ordering::Acquire) == 0 {
                return true;
            }
            if self.env.now() >= end {
                return false;
            }
            self.env.sleep(Duration::from_millis(10)).await;
        }
    }

    /// Completes when the server drains.
    pub(crate) async fn draining(&self) {
        self.told(&self.draining).await;
    }

    /// Completes when its connections must close at once.
    pub(crate) async fn cutting(&self) {
        self.told(&self.cutting).await;
    }

    async fn told(&self, what: &AtomicBool) {
        loop {
            let wake = self.drained.notified();
            if what.load(Ordering::Acquire) {
                return;
            }
            wake.await;
        }
    }

    /// Counts a request that no share counts.
    pub(crate) fn count_unshared(&self) {
        if self.counting().is_some() {
            self.unshared.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a connection for as long as the guard lives; `None` at the bound.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<(u64, ConnectionGuard)> {
        let n = self.connections.fetch_add(1, Ordering::AcqRel);
        let guard = ConnectionGuard(Arc::clone(self));
        if n >= self.config.limits.connections || self.draining.load(Ordering::Acquire) {
            return None;
        }
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some((self.next_connection.fetch_add(1, Ordering::Relaxed), guard))
    }

    /// Counts a connection on which nobody is logged on; `None` at the bound for these: they can hold memory too.
    pub(crate) fn enter_unauthenticated(self: &Arc<Self>, now: Instant) -> Option<Unauthenticated> {
        let n = self.unauthenticated.fetch_add(1, Ordering::AcqRel);
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        let guard = Unauthenticated { server: Arc::clone(self), id, since: now };
        let most = self.config.limits.unauthenticated;
        // At the limit the oldest is closed and the new one taken: a client that means to log on does so at once, and a flood
        // of connections must not keep it out. One that is being closed counts until it is gone.
        (n < most || n < 2 * most && self.close_oldest_unauthenticated()).then_some(guard)
    }

    /// Closes the oldest unauthenticated connection; false when there is none that can be closed.
    fn close_oldest_unauthenticated(&self) -> bool {
        let oldest = self.unauthenticated_inboxes.lock().pop_first();
        oldest.is_some_and(|(_, inbox)| inbox.send(Notice::Crowded))
    }

    pub(crate) fn share(&self, name: &str) -> Option<Arc<Share>> {
        self.shares.read().get(&fold(name)).cloned()
    }

    pub(crate) fn all_shares(&self) -> Vec<Arc<Share>> {
        let mut list: Vec<_> = self.shares.read().values().cloned().collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    /// An id for a new session, which nobody else gets while it is kept: random, and never 0. It has 32 bits as Samba's
    /// have: clients exist that keep no more.
    pub(crate) fn new_session_id(self: &Arc<Self>) -> SessionId {
        self.vacant_id(|| u32::from_le_bytes(self.env.random()))
    }

    fn vacant_id(self: &Arc<Self>, mut candidate: impl FnMut() -> u32) -> SessionId {
        loop {
            let id = u64::from(candidate());
            let mut reserved = self.reserved_ids.lock();
            if id != 0 && !self.sessions.lock().contains_key(&id) && reserved.insert(id) {
                return SessionId { server: Arc::clone(self), id };
            }
        }
    }

    pub(crate) fn add_session(&self, session: Arc<Session>, peer: SocketAddr) {
        let (id, client) = (format!("{:016x}", session.id), peer.ip().to_canonical().to_string());
        let _ = session.counted.set(self.registry.sessions.open(&id, &[&id, &session.user.name, &client]));
        let before = self.sessions.lock().insert(session.id, session);
        assert!(before.is_none(), "a session's id was reserved for it");
    }

    pub(crate) fn session(&self, id: u64) -> Option<Arc<Session>> {
        self.sessions.lock().get(&id).cloned()
    }

    pub(crate) fn remove_session(&self, id: u64) -> Option<Arc<Session>> {
        self.sessions.lock().remove(&id)
    }

    /// Closes the opens of one tree connect. Should the future be given up, even before it was polled, they are closed in the
    /// background.
    pub(crate) fn close_opens_of(
        self: &Arc<Self>,
        session: &Arc<Session>,
        tree: &Tree,
    ) -> impl Future<Output = ()> + Send + use<> {
        let opens = session.opens().into_iter().filter_map(|id| self.opens.find(id));
        let closing: Vec<Loose> =
            opens.filter(|o| o.is_of_tree(tree.id)).filter_map(|o| self.release(&o)).collect();
        async move {
            for open in closing {
                open.close().await;
            }
        }
    }

    /// Microseconds since the start, for `last_used_us`.
    pub(crate) fn uptime_us(&self, now: Moment) -> u64 {
        now.ns_since(self.started) / 1000
    }
}

/// See [`Server::new_session_id`].
pub(crate) struct SessionId {
    server: Arc<Server>,
    pub(crate) id: u64,
}

impl Drop for SessionId {
    fn drop(&mut self) {
        self.server.reserved_ids.lock().remove(&self.id);
    }
}

/// A connection on which nobody is logged on, counted for as long as it lives.
pub(crate) struct Unauthenticated {
    server: Arc<Server>,
    /// In order of age.
    id: u64,
    pub(crate) since: Instant,
}

impl Unauthenticated {
    /// From now on the connection can be closed for another one, with a notice to this inbox.
    pub(crate) fn may_be_closed(&self, inbox: &Arc<Inbox>) {
        self.server.unauthenticated_inboxes.lock().insert(self.id, Arc::clone(inbox));
    }
}

impl Drop for Unauthenticated {
    fn drop(&mut self) {
        self.server.unauthenticated_inboxes.lock().remove(&self.id);
        self.server.unauthenticated.fetch_sub(1, Ordering::AcqRel);
    }
}

/// See [`Server::enter`].
pub(crate) struct ConnectionGuard(Arc<Server>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Share names compare by upper case.
fn fold(name: &str) -> String {
    name.to_uppercase()
}

fn is_share_name(name: &str) -> bool {
    let n = name.chars().count();
    (1..=80).contains(&n)
        && !name.eq_ignore_ascii_case("IPC$")
        && !name.chars().any(|c| c < ' ' || "\\/[]:|<>+=;,*?\"".contains(c))
}

#[cfg(test)]
mod tests {
    use crate::commands::tests::World;

    #[test]
    fn a_session_id_is_nobody_elses() {
        let world = World::new();
        let server = &world.server;
        let given = |candidates: &[u32]| {
            let mut left = candidates.iter().copied();
            server.vacant_id(|| left.next().expect("a vacant one is among them"))
        };
        let first = given(&[0, 7]);
        assert_eq!(first.id, 7);
        assert_eq!(given(&[7, 8]).id, 8, "the first is still being set up");
        world.join(7);
        drop(first);
        assert_eq!(given(&[7, 9]).id, 9, "the first is a session");
        server.remove_session(7);
        assert_eq!(given(&[7, 9]).id, 7);
    }
}
