//! The raw fabric: the minimum cost of transferring bytes over RDMA or a socket, without SMB.
//!
//! **What it is.** An initiator (a target `iwarp://HOST:PORT` or `tcp://HOST:PORT` of a run) and a
//! [`Listener`] that stores nothing: it returns zeros and discards writes, like the server's `null` backend.
//! Over `iwarp` data is transferred as in SMB Direct: the initiator registers memory and sends a small
//! request; the peer writes into that memory (a read) or reads from it (a write) and sends a small reply that
//! invalidates the tag. Over `tcp` the payload follows the request of a write or the reply of a read. The
//! formats are in `wire`.
//!
//! **What it is not.** It is no storage, and must not be exposed: clients are not authenticated. It only
//! measures.
//!
//! **Bounds.** The initiator first announces the length of its longest I/O and its number of outstanding
//! I/Os; the listener accepts or refuses. The memory for a connection is limited ([`Bounds`]), and so is the
//! number of connections. A peer that exceeds its announcement is disconnected.
//!
//! **I/O model.** A thread for each connection. Over `iwarp` it drives one queue pair on a current-thread
//! runtime; over `tcp` it reads and writes a blocking socket.
//!
//! **Errors.** [`FabricAddressError`]: an invalid address; [`FabricError`]: why there is no connection;
//! [`ConnectionError`]: a violation by the peer.

mod address;
mod direct;
mod listen;
mod socket;
pub(crate) mod wire;

pub use address::{FabricAddress, FabricAddressError, FabricTransport};
pub use listen::{Listener, ListenerEvent};
pub use wire::{Bounds, Refusal};

use std::io;

use rdma::Down;
use rdma::iwarp::SetupError;
use thiserror::Error;

/// Why connecting to a listener or listening failed.
#[derive(Debug, Error)]
pub enum FabricError {
    /// The host name cannot be resolved.
    #[error("no such address: {0}")]
    Resolve(#[source] io::Error),
    /// The TCP connection failed.
    #[error("{0}; is `causeway bench listen` running there, on this port?")]
    Unreachable(#[source] io::Error),
    /// The address is in use or not local.
    #[error("cannot listen on this address: {0}")]
    Listen(#[source] io::Error),
    /// The RDMA connection failed.
    #[error("no RDMA connection: {0}; is `causeway bench listen iwarp://...` running there, on this port?")]
    Setup(#[source] SetupError),
    /// The peer is another kind of server.
    #[error("the program at this address is not `causeway bench listen` for this kind of target")]
    UnknownProtocol,
    /// The listener refused the connection.
    #[error("the listener refused the connection: {0}")]
    Refused(Refusal),
    /// The system has no memory.
    #[error("cannot allocate memory: {0}")]
    Memory(#[source] io::Error),
}

/// Why a listener ended a connection, other than because the peer closed it.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// The peer's announcement was refused.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The peer does not follow the protocol in `wire`.
    #[error("the peer is not an initiator of causeway bench")]
    UnknownProtocol,
    /// The request is outside the agreed limits.
    #[error("the peer sent a request outside of the agreed limits")]
    Request,
    /// The RDMA connection could not be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The RDMA connection ended.
    #[error(transparent)]
    Down(#[from] Down),
    /// An internal misuse of RDMA.
    #[error("internal error: {0}")]
    Rdma(#[from] rdma::RdmaError),
    /// There is no memory for the connection.
    #[error("not enough memory for the connection")]
    Memory,
    /// The socket failed.
    #[error(transparent)]
    System(#[from] io::Error),
}
