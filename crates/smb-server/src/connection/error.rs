//! Why a connection ends before its client closes it.

use smb_wire::WireError;
use thiserror::Error;

/// What ended a connection, by blame.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// The peer's bytes make no message.
    #[error("malformed message: {0}")]
    Wire(#[from] WireError),
    /// The peer's message is longer than what was agreed on.
    #[error("a message of {length} bytes, at most {limit} are taken here")]
    TooLong {
        /// What it announced.
        length: usize,
        /// The bound in force.
        limit: usize,
    },
    /// The peer speaks SMB1 only, or something else.
    #[error("{0}")]
    Protocol(&'static str),
    /// The peer used a message id that it has no credit for (MS-SMB2 3.3.5.2.3).
    #[error("message ids from {first} (charge {charge}) where {window:?} was granted and not wholly used")]
    OutOfCredits {
        /// The first id it used.
        first: u64,
        /// How many.
        charge: u16,
        /// The ids from the oldest unused one to the end of what was granted.
        window: std::ops::Range<u64>,
    },
    /// The limit of unauthenticated connections was reached, and its address had the most of them.
    #[error("closed: too many connections without a log-on, and this address has the most of them")]
    Crowded,
    /// An encrypted message that does not decrypt (MS-SMB2 3.3.5.2.1.1).
    #[error("an encrypted message does not decrypt")]
    Decrypt,
    /// The negotiation was tampered with (MS-SMB2 3.3.5.15.12).
    #[error("validate negotiate: {0}")]
    Negotiation(&'static str),
    /// No log-on within the time for it.
    #[error("not authenticated in time")]
    NotAuthenticated,
    /// The peer takes no data, or does not finish a message.
    #[error("the peer neither took data nor finished its message for too long")]
    Stalled,
    /// More requests wait than a connection may have waiting.
    #[error("too many requests wait")]
    TooManyPending,
    /// The socket failed.
    #[error("transport: {0}")]
    Transport(#[from] std::io::Error),
    /// The stream holds no SMB2 frames.
    #[error(transparent)]
    Stream(smb_tcp::StreamError),
    /// SMB Direct failed.
    #[error("SMB Direct: {0}")]
    Direct(#[from] smb_direct::SmbDirectError),
    /// Our own fault: an invariant did not hold (the log has the place).
    #[error("the server failed on this connection")]
    Panicked,
    /// The server ends, and its time to finish what was begun is over.
    #[error("the server ends before all was answered")]
    Cut,
    /// The server is shutting down or full.
    #[error("the server takes no more connections")]
    Refused,
}

impl From<smb_tcp::StreamError> for ConnectionError {
    fn from(e: smb_tcp::StreamError) -> ConnectionError {
        match e {
            smb_tcp::StreamError::Io(e) => ConnectionError::Transport(e),
            other => ConnectionError::Stream(other),
        }
    }
}
