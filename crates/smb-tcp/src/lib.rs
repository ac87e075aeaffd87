//! SMB2 messages over direct TCP (MS-SMB2 2.1), for client and server, zero-copy for payload.
//!
//! **What it is.** [`Receiver`] splits a stream into messages, which are slices of the receive buffers. [`Sender`]
//! writes messages with as few system calls as possible. The payload of a large WRITE (at a server) or READ
//! response (at a client) is read directly into separate buffers.
//!
//! **What it is not.** It parses a message only as far as needed to find where payload begins. It has no tasks and
//! no timers.
//!
//! **I/O model.** The task that owns the connection polls both.
//!
//! **Errors.** [`StreamError`]: a socket error or a violation by the peer. Either ends the connection.

mod receive;
mod send;

pub use receive::{ReadOutcome, Receiver};
pub use send::Sender;

use smb_wire::WireError;
use thiserror::Error;

/// Which end of the connection this is. It determines which messages may get separate payload buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Receives requests; WRITE carries payload.
    Server,
    /// Receives responses; READ carries payload.
    Client,
}

/// Why the stream cannot be read any further.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The peer sent a malformed frame.
    #[error("malformed frame: {0}")]
    Wire(#[from] WireError),
    /// The peer's message is longer than the limit.
    #[error("a message of {length} bytes exceeds the limit of {limit} bytes")]
    TooLong {
        /// Announced length in bytes.
        length: usize,
        /// The limit in force, in bytes.
        limit: usize,
    },
    /// The socket failed.
    #[error("transport: {0}")]
    Io(#[from] std::io::Error),
}
