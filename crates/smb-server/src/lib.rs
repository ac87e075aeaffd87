//! The SMB2/3 server: dialects 2.0.2 to 3.1.1 over TCP and SMB Direct.
//!
//! **What it is.** [`Server`] holds shares, sessions and open files. [`Server::serve_tcp`] and
//! [`Server::serve_direct`] run one connection each until it ends, on the worker that calls them. Connection, session,
//! channel and open are separate things: a session's channels may lie on connections of several workers.
//!
//! **What it is not.** No listening, no configuration files, no control interface (the `causeway` crate has these), no
//! file system (the `vfs` crate). Oplocks, leases, durable handles, change notification and named streams are not here
//! yet: requests for them get what the specification lets a server without them say, and their place in the state is
//! marked in `files.rs` and `open.rs`.
//!
//! **Layout.** `connection/` is the engine: it turns messages into requests, runs chains of them, keeps credits, and
//! signs and encrypts; it does no I/O. `transport/` moves bytes between it and a socket or a queue pair. `commands/`
//! has one file per command. `files.rs` is what all opens of one file share.
//!
//! **I/O model.** A request whose data is at hand is answered in the turn that read it, and a turn's replies leave in
//! one system call. What must wait is a future inside the connection's task.
//!
//! **Errors.** A peer that breaks the protocol ends its connection, with a [`ConnectionError`] that says how; all else
//! is an NTSTATUS in a reply. `status.rs` maps backend errors.

mod access;
mod commands;
mod config;
mod connection;
mod files;
mod identity;
mod open;
mod pipes;
mod request;
mod server;
mod session;
mod share;
mod status;
mod transport;

pub use config::{Interface, Interfaces, Limits, Protection, ServerConfig, ShareConfig};
pub use connection::{ConnectionError, Credits};
pub use server::{ChannelInfo, OpenInfo, Server, SessionInfo, ShareError, ShareInfo, Totals, TransportKind};
pub use transport::{Admitted, SetupEnded};
