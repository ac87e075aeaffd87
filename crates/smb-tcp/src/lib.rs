//! SMB2 messages over direct TCP (MS-SMB2 2.1), payload by reference, for both ends.
//!
//! **What it is.** [`Receiver`] turns a stream into messages that are slices of the memory they were read into;
//! [`Sender`] turns messages into as few system calls as there can be. The payload of a large WRITE (at a server) or
//! READ response (at a client) is read straight into memory of its own.
//!
//! **What it is not.** It looks into a message only as far as it must to tell where payload begins. It has no tasks
//! and no timers.
//!
//! **I/O model.** Both are polled by the one task that owns the connection.
//!
//! **Errors.** [`StreamError`]: the socket's, or what is wrong with the stream; either ends the connection.

mod receive;
mod send;

pub use receive::{Filled, Receiver};
pub use send::Sender;

use smb_wire::WireError;
use thiserror::Error;

/// Which messages may have their payload apart from their head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// We receive requests: WRITE.
    Server,
    /// We receive responses: READ.
    Client,
}

/// Why a stream cannot be read further.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The peer's bytes are no frame.
    #[error("malformed frame: {0}")]
    Wire(#[from] WireError),
    /// The peer's message is longer than what was agreed on.
    #[error("a message of {length} bytes exceeds the limit of {limit} bytes")]
    TooLong {
        /// What it announced.
        length: usize,
        /// The bound in force.
        limit: usize,
    },
    /// The socket failed.
    #[error("transport: {0}")]
    Io(#[from] std::io::Error),
}
