//! The SMB2/3 server: dialects 2.0.2 to 3.1.1 over TCP and SMB Direct.
//!
//! **What it is.** [`Server`] holds shares, sessions and open files. [`Server::serve_tcp`] and
//! [`Server::serve_direct`] run one connection each until it ends, on the worker that calls them. Connection, session,
//! channel and open are separate things: a session's channels may lie on connections of several workers.
//!
//! **What it is not.** No listening, no configuration files, no control interface (the `causeway` crate has these), no
//! file system (the `vfs` crate).
//!
//! **Layout.** `connection/` is the engine: it turns messages into requests, runs chains of them, keeps credits, and
//! signs and encrypts; it does no I/O. `transport/` moves bytes between it and a socket or a queue pair. `commands/`
//! has one file per command. `opens.rs` has all opens of the server, `files/` the state that all opens of one file
//! share, `durable.rs` the opens that outlive their connection, `breaks.rs` and `inbox.rs` send the breaks of oplocks
//! and leases to clients, `namespace.rs` is the gateway for changes of names.
//!
//! **I/O model.** A request whose data is in memory is answered in the turn that received it, and a turn's replies are
//! sent with one system call. A request that must wait becomes a future inside the connection's task.
//!
//! **Errors.** A protocol violation ends the peer's connection, with a [`ConnectionError`]; all other errors are an
//! NTSTATUS in a reply. `status.rs` maps backend errors.

mod access;
mod breaks;
mod commands;
mod config;
mod connection;
mod durable;
mod failed_logons;
mod files;
mod identity;
mod inbox;
mod journal;
mod mailbox;
mod namespace;
mod open;
mod opens;
mod permission;
mod pipes;
mod principals;
mod replay;
mod request;
mod server;
mod session;
mod share;
mod status;
mod sync;
mod transport;

pub use config::{Interface, Interfaces, Limits, Protection, ServerConfig, ShareConfig};
pub use connection::{ConnectionError, Credits};
pub use journal::{CachingRecord, FileJournal, JournalResult, OpenJournal, OpenRecord};
pub use permission::{ShareGrant, ShareLevel, ShareProtection};
pub use server::{ChannelInfo, OpenInfo, Server, SessionInfo, ShareError, ShareInfo, Totals, TransportKind};
pub use transport::{Admitted, SetupEnded};
