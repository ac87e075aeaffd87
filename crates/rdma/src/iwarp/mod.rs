//! iWARP in user space over a TCP socket: MPA (RFC 5044, 6581), DDP (RFC 5041), RDMAP (RFC 5040).
//!
//! **What it is.** Wire-compatible with iWARP cards and with Linux's siw. `core` (with `rx` and `tx`) is the
//! protocol without a socket. `shell` moves bytes between it and a [`tokio::net::TcpStream`]. `setup` establishes
//! connections: [`Listener`] or [`respond`] on one side, [`connect`] on the other.
//!
//! **What it is not.** No markers: a peer that demands them is refused, with the reason. No segments across TCP
//! connections and no loose ordering: TCP delivers in order, so every sequence number and offset must be the next
//! one.
//!
//! **Copies.** Sending is zero-copy: headers and payload are sent in one vectored write. Without CRCs, long
//! segments are read from the socket directly into their target; other bytes pass through a receive buffer that all
//! connections of a thread share. With CRCs all bytes pass through that buffer, because no byte is placed before
//! its CRC has been checked. [`arena::passes`] counts the copies and the CRCs.

mod batch;
mod core;
pub mod ddp;
#[doc(hidden)]
pub mod fuzzing;
pub mod mpa;
pub mod rdmap;
mod rx;
mod setup;
mod shell;
pub mod terminate;
#[cfg(test)]
mod tests;
mod tx;

/// The provider's name in the RDMA Activity counters.
pub const PROVIDER: &str = "iwarp";

pub use setup::{
    AcceptedStream, ConnectionRequest, Crc, Listener, Options, SetupError, connect, initiate, respond,
};
pub use shell::IwarpQueuePair;
