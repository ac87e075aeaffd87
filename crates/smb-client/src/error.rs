//! Errors, by stage and by the party at fault.

use std::io;
use std::net::SocketAddr;

use smb_auth::mechanism::AuthError;
use smb_wire::{NtStatus, WireError};
use thiserror::Error;

/// Why no session could be established.
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
    /// No server responds at this address.
    #[error("cannot connect to {address}: {source}")]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// The socket's error.
        source: io::Error,
    },
    /// The caller's timeout expired.
    #[error("the server did not answer in time")]
    TimedOut,
    /// RDMA was demanded and is not available.
    #[error("SMB Direct was requested and cannot be used: {0}")]
    NoRdma(#[source] Box<WhyNotRdma>),
    /// The server supports none of our dialects.
    #[error("the server refused the negotiation: {0}")]
    Negotiate(NtStatus),
    /// The server does not offer a feature that the caller demands.
    #[error("{0}")]
    Refused(&'static str),
    /// The negotiation was modified in transit.
    #[error("the negotiation was changed in transit: {0}")]
    Tampered(&'static str),
    /// The log-on failed.
    #[error("log-on refused: {0}")]
    LogOn(NtStatus),
    /// The client's side of the log-on failed.
    #[error("log-on failed: {0}")]
    Auth(#[from] AuthError),
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Why a request failed.
#[derive(Debug, Clone, Error)]
pub enum RequestError {
    /// The status in the server's response.
    #[error("{0}")]
    Status(NtStatus),
    /// The connection ended before a response arrived.
    #[error("the connection was lost: {0}")]
    Lost(Lost),
    /// The server's response is malformed.
    #[error("the server's answer is malformed: {0}")]
    Malformed(#[from] WireError),
    /// The caller's request cannot be encoded.
    #[error("the request cannot be encoded: {0}")]
    Unencodable(WireError),
    /// The server grants too few credits for a request of this size.
    #[error("the request needs {needed} credits, but the server grants only {granted}")]
    Credits {
        /// The charge of the request.
        needed: u32,
        /// The available credits.
        granted: u32,
    },
    /// The client's arena had no memory for the READ until the request timeout, or is too small for it.
    #[error(
        "not enough memory to read {needed} bytes: release buffers, read less at a time, or enlarge the arena"
    )]
    NoMemory {
        /// Length of the READ in bytes.
        needed: u32,
    },
    /// The name is not a valid path.
    #[error("'{0}' is not a valid SMB path")]
    Path(String),
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Lost {
    /// The client closed it.
    #[error("closed by this client")]
    Closed,
    /// The server closed it.
    #[error("the server closed it")]
    ByServer,
    /// The socket or the fabric failed.
    #[error("{0}")]
    Transport(io::ErrorKind),
    /// The SMB Direct layer ended it.
    #[error("SMB Direct ended the connection")]
    Direct,
    /// The signature of a message is wrong, or it cannot be decrypted.
    #[error("the signature or the encryption of a message is wrong")]
    NotAuthentic,
    /// The server violated the protocol.
    #[error("the server violated the protocol: {0}")]
    Protocol(&'static str),
    /// The server did not respond in time.
    #[error("the server did not answer in time")]
    TimedOut,
}

/// Why a connection does not use SMB Direct, for diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WhyNotRdma {
    /// The caller turned it off.
    #[error("SMB Direct is turned off for this connection")]
    TurnedOff,
    /// The dialect is older than 3.0.
    #[error("the server's dialect {0:#06x} does not support SMB Direct (3.0 or later is needed)")]
    Dialect(u16),
    /// The server announces no interface with RDMA.
    #[error("the server announces no RDMA interface")]
    NotAnnounced,
    /// The server did not report its interfaces.
    #[error("the server does not report its network interfaces: {0}")]
    InterfacesNotReported(NtStatus),
    /// The connection failed.
    #[error("{address}{} cannot be reached over RDMA: {reason}", if *announced { ", which the server announces," } else { "" })]
    ConnectFailed {
        /// The address.
        address: SocketAddr,
        /// Whether the server announced an RDMA interface at this address.
        announced: bool,
        /// The failure.
        reason: String,
    },
    /// The channel was in use until its connection ended.
    #[error("the RDMA connection was lost: {0}")]
    Lost(Lost),
    /// The payload would be transferred in plaintext.
    #[error("the session is encrypted, and data sent by RDMA would not be")]
    Encrypted,
    /// The session is signed with AES-GMAC, and one connection has already tried to become a channel of it.
    ///
    /// A binding connection signs its log-on with the session's key. The nonces are its MessageIds, which start
    /// again with every connection (MS-SMB2 3.1.4.1, 3.2.4.2.3). The first binding uses MessageIds that the
    /// session's first connection spent before there was a key. A second binding would sign other messages under
    /// the same nonces, which reveals AES-GMAC's authentication key. AES-CMAC and HMAC-SHA256 have no nonces.
    #[error("the session is signed with AES-GMAC, which allows only one attempt to add a connection")]
    BoundOnce,
}

impl RequestError {
    /// The server's status, if the error is [`RequestError::Status`].
    pub fn status(&self) -> Option<NtStatus> {
        match self {
            RequestError::Status(s) => Some(*s),
            _ => None,
        }
    }
}
