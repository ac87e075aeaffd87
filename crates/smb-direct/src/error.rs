//! Errors of an SMB Direct connection, grouped by the party that caused them.

use rdma::{Down, RdmaError};
use thiserror::Error;

/// Why a connection ended or a request was refused.
#[derive(Debug, Error)]
pub enum SmbDirectError {
    // The connection ended.
    /// The peer violated the protocol; the connection was closed.
    #[error("the peer violated the SMB Direct protocol: {0}")]
    Peer(#[from] Violation),
    /// The peer refused to negotiate, with this NTSTATUS.
    #[error("the peer refused the connection with status {0:#010x}")]
    Refused(u32),
    /// The peer sent nothing for too long.
    #[error("{0}")]
    TimedOut(Timer),
    /// The fabric ended the connection.
    #[error("the connection ended: {0}")]
    Down(#[from] Down),

    // The resource is unavailable.
    /// A queue is at its limit, set by the named option; retry after the next event.
    #[error("the limit {0} is reached")]
    QueueFull(&'static str),
    /// The arena has no buffer for the part of an RDMA Read that the sinks cannot hold.
    #[error("no memory for the data of an RDMA Read")]
    NoMemory,

    // The caller misused the connection.
    /// The connection has ended already.
    #[error("the connection has ended")]
    Ended,
    /// A message is empty or longer than the peer accepts, in bytes.
    #[error("a message of {length} bytes, but the peer accepts 1 to {limit}")]
    MessageLength {
        /// Length of the message.
        length: usize,
        /// The negotiated limit.
        limit: usize,
    },
    /// An RDMA transfer does not fit its descriptors, its sinks, or the negotiated size, in bytes.
    #[error("an RDMA transfer of {length} bytes exceeds the limit of {limit}")]
    TransferLength {
        /// The requested length.
        length: u64,
        /// The longest possible transfer.
        limit: u64,
    },
    /// More buffer descriptors than [`crate::pdu::MAX_DESCRIPTORS`].
    #[error("too many buffer descriptors: {0}")]
    TooManyDescriptors(usize),
    /// The queue pair refused the request.
    #[error("the queue pair refused a work request: {0}")]
    Rdma(#[from] RdmaError),
}

/// A violation of the specification by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A negotiate message shorter than its fields (MS-SMBD 3.1.5.6, 3.1.5.7).
    #[error("a negotiate message of {0} bytes")]
    NegotiateLength(usize),
    /// No common version (MS-SMBD 3.1.5.6, 3.1.5.7).
    #[error("versions {min:#06x} to {max:#06x}, which do not include 1.0")]
    Version {
        /// The lowest version of the peer.
        min: u16,
        /// The highest version of the peer.
        max: u16,
    },
    /// The peer requested no credits (MS-SMBD 3.1.5.6 to 3.1.5.8).
    #[error("no credits requested")]
    NoCreditsRequested,
    /// The peer granted no credits in its negotiate response (MS-SMBD 3.1.5.7).
    #[error("no credits granted with the negotiate response")]
    NoCreditsGranted,
    /// The peer's MaxReceiveSize is below 128 bytes (MS-SMBD 3.1.5.6, 3.1.5.7).
    #[error("a maximum receive size of {0} bytes")]
    MaxReceiveSize(u32),
    /// The peer's MaxFragmentedSize is below 131,072 bytes (MS-SMBD 3.1.5.6, 3.1.5.7).
    #[error("a maximum fragmented size of {0} bytes")]
    MaxFragmentedSize(u32),
    /// The peer's PreferredSendSize exceeds the receive size of this side (MS-SMBD 3.1.5.7).
    #[error("a preferred send size of {0} bytes, more than this side accepts")]
    PreferredSendSize(u32),
    /// A message for which no credit was granted.
    #[error("a message without a credit")]
    NoCredit,
    /// A data transfer message shorter than its header (MS-SMBD 3.1.5.8).
    #[error("a data transfer message of {0} bytes")]
    DataLength(usize),
    /// A message longer than the negotiated receive size, in bytes.
    #[error("a message of {0} bytes, more than negotiated")]
    TooLong(usize),
    /// DataOffset is not a multiple of 8, or points into the header (MS-SMBD 3.1.5.8).
    #[error("data offset {0}")]
    DataOffset(u32),
    /// The data extend beyond the message (MS-SMBD 3.1.5.8).
    #[error("data at {offset}, {length} bytes long, outside a message of {message}")]
    DataOutside {
        /// DataOffset.
        offset: u32,
        /// DataLength.
        length: u32,
        /// The message's length.
        message: usize,
    },
    /// A fragmented message longer than the limit that this side announced (MS-SMBD 3.1.5.8), in bytes.
    #[error("a fragmented message of {0} bytes or more")]
    FragmentedTooLong(u64),
    /// RemainingDataLength does not continue the sequence.
    #[error("a fragment announces {got} remaining bytes, but {expected} were expected")]
    Remaining {
        /// The remainder that the previous fragments announced.
        expected: u32,
        /// This fragment's data length plus its announced remainder.
        got: u64,
    },
    /// A message without data invalidated a steering tag, or one upper-layer message invalidated two (MS-SMBD
    /// 3.1.4.2: one optional token per message).
    #[error("a remote invalidation that belongs to no message")]
    Invalidation,
}

/// Which timer ended the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Timer {
    /// Negotiation took too long (MS-SMBD 3.1.2.1).
    #[error("the peer did not negotiate in time")]
    Negotiation,
    /// The peer did not answer a keep-alive (MS-SMBD 3.1.2.2).
    #[error("the peer did not answer a keep-alive")]
    KeepAlive,
    /// The connection was closed but the fabric did not finish.
    #[error("the connection did not close in time")]
    Close,
}
