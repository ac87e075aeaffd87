//! Why a connection ends before its client closes it.

use smb_wire::WireError;
use thiserror::Error;

/// Why a connection ended, by the party at fault.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// The peer's bytes are no valid message.
    #[error("malformed message: {0}")]
    Wire(#[from] WireError),
    /// The peer's message is longer than what was agreed on.
    #[error("a message of {length} bytes exceeds the limit of {limit} bytes")]
    TooLong {
        /// The announced length.
        length: usize,
        /// The bound in force.
        limit: usize,
    },
    /// The peer speaks SMB1 only, or something else.
    #[error("{0}")]
    Protocol(&'static str),
    /// The peer used a message id that it has no credit for (MS-SMB2 3.3.5.2.3).
    #[error(
        "the client used message ids from {first} on (charge {charge}), but only {window:?} are available"
    )]
    OutOfCredits {
        /// The first id it used.
        first: u64,
        /// The number of ids.
        charge: u16,
        /// The ids from the oldest unused one to the end of what was granted.
        window: std::ops::Range<u64>,
    },
    /// The limit of unauthenticated connections was reached, and the peer's address had the most of them.
    #[error("closed: too many connections without a log-on are open, and most of them are from this address")]
    Crowded,
    /// An encrypted message that does not decrypt (MS-SMB2 3.3.5.2.1.1).
    #[error("an encrypted message cannot be decrypted")]
    Decrypt,
    /// The negotiation was tampered with (MS-SMB2 3.3.5.15.12).
    #[error("the negotiation was changed in transit: {0}")]
    Negotiation(&'static str),
    /// No log-on within the time limit.
    #[error("the client did not log on in time")]
    NotAuthenticated,
    /// The peer receives no data, or does not complete a message.
    #[error("timeout: the client accepted no data, or did not complete its message")]
    Stalled,
    /// More requests are pending than a connection may have.
    #[error("too many requests are waiting")]
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
    #[error("an internal error of the server ended the connection; see the messages before this one")]
    Panicked,
    /// The server ends, and its time for draining is over.
    #[error("the server stopped before all requests were answered")]
    Cut,
    /// The server is shutting down or full.
    #[error("the server accepts no more connections")]
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
