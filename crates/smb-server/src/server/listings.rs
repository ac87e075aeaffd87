//! Listings for administrators: shares, sessions, opens, totals.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Server, TransportKind};
use crate::connection::Credits;

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
    /// The client's name, as the client sent it.
    pub workstation: String,
    /// 0x0202 … 0x0311.
    pub dialect: u16,
    /// Opens now.
    pub opens: usize,
    /// Requests are signed: signing is required, or the last request was signed, other than a TREE_CONNECT, which 3.1.1
    /// always protects.
    pub signed: bool,
    /// Requests are encrypted: encryption is required, or the last request was encrypted.
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

impl Server {
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

    /// All opens of files and directories, by id; including disconnected ones.
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

    /// Running totals; those of requests are sums of the shares' performance counters.
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
}
