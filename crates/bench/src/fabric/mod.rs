//! The raw fabric: the least that a request for bytes can cost over RDMA, or over a socket, with no SMB in it.
//!
//! **What it is.** An initiator (a target `iwarp://HOST:PORT` or `tcp://HOST:PORT` of a run) and a
//! [`Listener`] that stores nothing: it returns zeros and drops writes, like the `null` backend of the
//! server. Over `iwarp` data moves as in SMB Direct: the initiator exposes memory and sends a small request;
//! the peer writes into that memory (a read) or reads from it (a write) and sends a small reply that
//! invalidates the tag. Over `tcp` the payload follows the request of a write or the reply of a read. The
//! formats are in `wire`.
//!
//! **What it is not.** Storage, or safe to leave open: clients are not authenticated. It only measures.
//!
//! **Bounds.** The initiator first announces the length of its longest I/O and its number of outstanding
//! I/Os; the listener accepts or refuses that. The allocations for a peer are bounded for a connection
//! ([`Bounds`]), and so is the number of connections. A peer that violates its announcement is disconnected.
//!
//! **I/O model.** A thread for each connection. Over `iwarp` it drives one queue pair on a current-thread runtime, over
//! `tcp` it reads and writes a blocking socket.
//!
//! **Errors.** [`PlaceError`]: an invalid address; [`FabricError`]: why there is no connection; [`Broken`]: a
//! violation by the peer.

mod direct;
mod listen;
mod place;
mod socket;
pub(crate) mod wire;

pub use listen::{Heard, Listener};
pub use place::{Carrier, FabricPlace, PlaceError};
pub use wire::{Bounds, Refusal};

use std::io;

use rdma::Down;
use rdma::iwarp::SetupError;
use thiserror::Error;

/// Why there is no connection to a listener.
#[derive(Debug, Error)]
pub enum FabricError {
    /// The name means nothing here.
    #[error("no such address: {0}")]
    Resolve(#[source] io::Error),
    /// TCP does not come through.
    #[error("{0}; is `causeway bench listen` running there, on this port?")]
    Unreachable(#[source] io::Error),
    /// The address is taken, or not ours.
    #[error("cannot listen on this address: {0}")]
    Listen(#[source] io::Error),
    /// The RDMA connection does not come about.
    #[error("no RDMA connection: {0}; is `causeway bench listen iwarp://...` running there, on this port?")]
    Setup(#[source] SetupError),
    /// The peer is another kind of server.
    #[error("the program at this address is not `causeway bench listen` for this kind of target")]
    Stranger,
    /// It does not take us.
    #[error("the listener refused the connection: {0}")]
    Refused(Refusal),
    /// The system has no memory.
    #[error("cannot allocate memory: {0}")]
    Memory(#[source] io::Error),
}

/// How a connection of a listener ended, but for a peer that closed it.
#[derive(Debug, Error)]
pub enum Broken {
    /// The peer is not causeway bench, or requests something that is not available.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// It does not speak as `wire` has it.
    #[error("the peer is not an initiator of causeway bench")]
    Stranger,
    /// A request that no initiator makes.
    #[error("the peer sent a request outside of the agreed limits")]
    Request,
    /// The RDMA connection could not be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The RDMA connection ended.
    #[error(transparent)]
    Down(#[from] Down),
    /// We misused it.
    #[error("internal error: {0}")]
    Rdma(#[from] rdma::RdmaError),
    /// There is no memory for it.
    #[error("not enough memory for the connection")]
    Memory,
    /// The socket.
    #[error(transparent)]
    System(#[from] io::Error),
}
