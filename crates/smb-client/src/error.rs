//! Errors, by stage and blame.

use std::io;
use std::net::SocketAddr;

use smb_auth::mechanism::AuthError;
use smb_wire::{NtStatus, WireError};
use thiserror::Error;

/// Why no session could be made.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("cannot find the address of '{host}': {source}")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// No server answers there.
    #[error("cannot connect to {address}: {source}")]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// The socket's error.
        source: io::Error,
    },
    /// It took longer than the caller allowed.
    #[error("the server did not answer in time")]
    TimedOut,
    /// RDMA was demanded and cannot be had.
    #[error("SMB Direct was requested and cannot be used: {0}")]
    NoRdma(#[source] Box<WhyNotRdma>),
    /// The server speaks none of our dialects.
    #[error("the server refused the negotiation: {0}")]
    Negotiate(NtStatus),
    /// The server does not offer what was demanded.
    #[error("{0}")]
    Refused(&'static str),
    /// The negotiation was changed in transit.
    #[error("the negotiation was changed in transit: {0}")]
    Tampered(&'static str),
    /// The log-on failed.
    #[error("log-on refused: {0}")]
    LogOn(NtStatus),
    /// Our end of the log-on failed.
    #[error("log-on failed: {0}")]
    Auth(#[from] AuthError),
    /// The connection failed meanwhile.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Why a request failed.
#[derive(Debug, Clone, Error)]
pub enum RequestError {
    /// The server's answer.
    #[error("{0}")]
    Status(NtStatus),
    /// The connection ended before a response arrived.
    #[error("the connection was lost: {0}")]
    Lost(Lost),
    /// The server's answer makes no sense.
    #[error("the server's answer is malformed: {0}")]
    Malformed(#[from] WireError),
    /// The caller's request cannot be put on the wire.
    #[error("the request cannot be encoded: {0}")]
    Unencodable(WireError),
    /// The server gives too few credits for a request of this size.
    #[error("the request needs {needed} credits, but the server grants only {granted}")]
    Credits {
        /// The cost of the request.
        needed: u32,
        /// The available credits.
        granted: u32,
    },
    /// The client's arena had no memory to read into for as long as an answer may take, or can never have as much.
    #[error(
        "not enough memory to read {needed} bytes: release buffers, read less at a time, or enlarge the arena"
    )]
    NoMemory {
        /// Bytes of the READ.
        needed: u32,
    },
    /// The name cannot be a path.
    #[error("'{0}' is not a valid SMB path")]
    Path(String),
}

/// The reason for a connection's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Lost {
    /// We closed it.
    #[error("closed by this client")]
    Closed,
    /// The server closed it.
    #[error("the server closed it")]
    ByServer,
    /// The socket or the fabric failed.
    #[error("{0}")]
    Transport(io::ErrorKind),
    /// SMB Direct ended it.
    #[error("SMB Direct ended the connection")]
    Direct,
    /// A message with a bad signature, or one that does not decrypt.
    #[error("the signature or the encryption of a message is wrong")]
    NotAuthentic,
    /// The server broke the protocol.
    #[error("the server violated the protocol: {0}")]
    Protocol(&'static str),
    /// No answer within the time for it.
    #[error("the server did not answer in time")]
    TimedOut,
}

/// Why a connection does not use SMB Direct, for diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WhyNotRdma {
    /// It was not wanted.
    #[error("SMB Direct is turned off for this connection")]
    TurnedOff,
    /// Only dialects from 3.0 on have it.
    #[error("the server's dialect {0:#06x} does not support SMB Direct (3.0 or later is needed)")]
    Dialect(u16),
    /// The server lists no interface with RDMA.
    #[error("the server announces no RDMA interface")]
    NotAnnounced,
    /// The server could not be asked.
    #[error("the server does not report its network interfaces: {0}")]
    NotTold(NtStatus),
    /// The connection failed.
    #[error("{address}{} cannot be reached over RDMA: {reason}", if *announced { ", which the server announces," } else { "" })]
    ConnectFailed {
        /// Where.
        address: SocketAddr,
        /// Whether the server has announced an interface with RDMA there.
        announced: bool,
        /// The failure.
        reason: String,
    },
    /// It was used until its connection ended.
    #[error("the RDMA connection was lost: {0}")]
    Lost(Lost),
    /// The payload would go in the clear.
    #[error("the session is encrypted, and data sent by RDMA would not be")]
    Encrypted,
    /// The session is signed with AES-GMAC, and one connection has tried to become a channel of it already.
    ///
    /// A connection that binds signs its log-on with the session's key, under nonces made of its MessageIds, and these
    /// begin anew with every connection (MS-SMB2 3.1.4.1, 3.2.4.2.3). The first binding uses MessageIds that the
    /// session's first connection spent before there was a key. A second one would sign other messages under the same
    /// nonces, which gives AES-GMAC's authentication key away. AES-CMAC and HMAC-SHA256 have no nonces.
    #[error("the session is signed with AES-GMAC, which allows only one attempt to add a connection")]
    BoundOnce,
}

impl RequestError {
    /// The server's status, if that is what it is.
    pub fn status(&self) -> Option<NtStatus> {
        match self {
            RequestError::Status(s) => Some(*s),
            _ => None,
        }
    }
}
