//! Errors of the fabric, grouped by the party that caused them.

use thiserror::Error;

/// The caller misused a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RdmaError {
    /// The connection has ended.
    #[error("the connection has ended")]
    Down,
    /// More outstanding work requests than [`crate::QueuePairCaps::max_wr`].
    #[error("the work queue is full")]
    QueueFull,
    /// More exposed buffers than the provider allows.
    #[error("too many exposed regions")]
    TooManyRegions,
    /// An invalid length: a message beyond 4 GiB, a sink smaller than its Read, or an empty exposure.
    #[error("a length does not fit")]
    Length,
    /// The requested rights do not match the buffer: a source is for reading, a sink for writing.
    #[error("the rights do not fit the exposed buffer")]
    Rights,
    /// No exposed buffer has this steering tag.
    #[error("no such steering tag")]
    UnknownStag,
    /// The peer allows no RDMA Reads (its IRD, or our ORD, is 0).
    #[error("RDMA Read is not possible on this connection")]
    NoReads,
}

/// Why a work request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WcError {
    /// The connection ended before it completed.
    #[error("flushed: the connection ended")]
    Flushed,
    /// The local steering tag is not valid.
    #[error("no such steering tag")]
    UnknownStag,
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Down {
    /// This side closed it.
    #[error("closed")]
    Closed,
    /// The peer closed it normally.
    #[error("closed by the peer")]
    PeerClosed,
    /// The peer violated the protocol; this side sent a Terminate with this code.
    #[error("the peer violated the protocol: {what} (terminate {code})")]
    Protocol {
        /// Description of the violation.
        what: &'static str,
        /// The error code sent to the peer.
        code: TerminateCode,
    },
    /// The peer sent a Terminate.
    #[error("the peer ended the connection: terminate {0}")]
    Terminated(TerminateCode),
    /// The transport failed.
    #[error("transport: {0}")]
    Transport(std::io::ErrorKind),
    /// The peer took too long to set up the connection.
    #[error("timed out")]
    TimedOut,
}

/// Layer, type and code of a Terminate message (RFC 5040 4.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminateCode {
    /// 0 RDMAP, 1 DDP, 2 LLP (MPA).
    pub layer: u8,
    /// Error type in the layer.
    pub etype: u8,
    /// Error code in the type.
    pub code: u8,
}

impl std::fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "layer {} type {} code {:#04x}", self.layer, self.etype, self.code)
    }
}
