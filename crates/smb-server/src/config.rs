//! The configuration of a server.

use std::net::SocketAddr;
use std::sync::Arc;

use smb_wire::Guid;
use vfs::Vfs;

use crate::journal::OpenJournal;

/// Whether signing (encryption) of messages is offered or required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Not offered.
    Off,
    /// Offered; the client decides.
    Enabled,
    /// A client without it is refused.
    Required,
}

/// One server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// NetBIOS-like name, shown to clients (at most 15 characters).
    pub name: String,
    /// The server's GUID, stable across restarts (MS-SMB2 3.3.1.5).
    pub guid: Guid,
    /// Counts the server's starts: part of every persistent FileId, so that none is reused after a restart.
    pub boot: u32,
    /// Stable storage for persistent opens; without it there are none.
    pub journal: Option<Arc<dyn OpenJournal>>,
    /// Signing; [`Protection::Off`] means the same as enabled: SMB2 always allows it.
    pub signing: Protection,
    /// Encryption.
    pub encryption: Protection,
    /// The oldest dialect offered: 0x0202, 0x0210, 0x0300, 0x0302 or 0x0311.
    pub dialect_min: u16,
    /// The newest dialect offered.
    pub dialect_max: u16,
    /// Interfaces for FSCTL_QUERY_NETWORK_INTERFACE_INFO.
    pub interfaces: Arc<dyn Interfaces>,
    /// Bounds per connection and for the whole server.
    pub limits: Limits,
}

/// Bounds, each in the unit its name says.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest READ, WRITE and other transaction, in bytes (MS-SMB2 3.3.5.4 MaxReadSize …).
    pub max_io: u32,
    /// Credits that one connection may hold.
    pub max_credits: u32,
    /// Sessions on one connection.
    pub sessions_per_connection: usize,
    /// Tree connects in one session.
    pub trees_per_session: usize,
    /// Opens of all clients; those that may have two descriptors of the process count twice.
    pub opens: usize,
    /// Opens of one user, in all sessions and disconnected ones.
    pub opens_per_user: usize,
    /// From this number of waiting requests of one connection on, the server refuses requests that may wait for other
    /// clients, and sends no interim responses for slow ones.
    pub pending_per_connection: usize,
    /// Connections at once.
    pub connections: usize,
    /// Unauthenticated connections at once. At the limit a new one closes one of the address that has the most.
    pub unauthenticated: usize,
    /// A connection that has not authenticated after so many seconds is closed.
    pub authenticate_s: u64,
    /// A connection whose peer receives no data, or leaves a message incomplete, for so many seconds is closed.
    pub stall_s: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_io: 8 << 20,
            max_credits: 8192,
            sessions_per_connection: 4096,
            trees_per_session: 4096,
            opens: 1 << 20,
            opens_per_user: 65_536,
            pending_per_connection: 4096,
            connections: 65_536,
            unauthenticated: 1024,
            authenticate_s: 45,
            stall_s: 60,
        }
    }
}

/// One network interface as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The system's index: addresses with the same index are one interface.
    pub index: u32,
    /// Its address.
    pub address: std::net::IpAddr,
    /// Link speed in bits per second, as the system reports it.
    pub bits_per_second: u64,
    /// It has several receive queues.
    pub rss: bool,
    /// SMB Direct is served on it.
    pub rdma: bool,
}

/// Provides the list of interfaces: called for each query, so that the list is never stale.
pub trait Interfaces: Send + Sync + std::fmt::Debug {
    /// The current interfaces. `reached` is the local address of the connection of the query.
    fn list(&self, reached: SocketAddr) -> Vec<Interface>;
}

/// One share.
pub struct ShareConfig {
    /// Its name; compared without regard to case.
    pub name: String,
    /// Shown to clients.
    pub comment: String,
    /// The backend.
    pub vfs: Arc<dyn Vfs>,
    /// Nothing may be changed through it.
    pub read_only: bool,
    /// Only encrypted access is allowed (SMB2_SHAREFLAG_ENCRYPT_DATA).
    pub encrypt: bool,
    /// Left out of listings.
    pub hidden: bool,
    /// Clients may have persistent handles, which survive a restart of the server (MS-SMB2 3.3.1.6 IsCA). Writes are
    /// durable before they are answered.
    pub continuous: bool,
}

impl ShareConfig {
    /// A share of this name on `vfs`, with default options.
    pub fn new(name: &str, vfs: Arc<dyn Vfs>) -> ShareConfig {
        ShareConfig {
            name: name.to_owned(),
            comment: String::new(),
            vfs,
            read_only: false,
            encrypt: false,
            hidden: false,
            continuous: false,
        }
    }
}
