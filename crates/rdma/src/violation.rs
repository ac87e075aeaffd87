//! Protocol violations by a peer, each with the Terminate code that reports it (RFC 5040 4.8).

use crate::{Down, TerminateCode};

/// A violation of the protocol by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// A description of the violation.
    pub what: &'static str,
    /// The code in the Terminate that reports it.
    pub code: TerminateCode,
}

impl Violation {
    const fn new(layer: u8, etype: u8, code: u8, what: &'static str) -> Violation {
        Violation { what, code: TerminateCode { layer, etype, code } }
    }

    // RFC 5040 4.8: layer RDMAP, remote protection error.
    /// An RDMA Read from a steering tag that is not exposed.
    pub const READ_INVALID_STAG: Violation = Self::new(0, 1, 0x00, "RDMA Read from an invalid steering tag");
    /// An RDMA Read outside the exposed range.
    pub const READ_BOUNDS: Violation = Self::new(0, 1, 0x01, "RDMA Read out of bounds");
    /// An RDMA Read from memory exposed for writing only.
    pub const READ_RIGHTS: Violation = Self::new(0, 1, 0x02, "RDMA Read without the right to read");
    /// An RDMA Write into memory exposed for reading only.
    pub const WRITE_RIGHTS: Violation = Self::new(0, 1, 0x02, "RDMA Write without the right to write");
    /// The range of an RDMA Read wraps around.
    pub const READ_WRAP: Violation = Self::new(0, 1, 0x04, "the tagged offset of an RDMA Read wraps around");
    /// An exposed buffer was invalidated while the peer read it.
    pub const READ_REVOKED: Violation = Self::new(0, 1, 0x00, "RDMA Read from an invalidated steering tag");

    // RFC 5040 4.8: layer RDMAP, remote operation error.
    /// An RDMAP version that is not 1.
    pub const RDMAP_VERSION: Violation = Self::new(0, 2, 0x05, "RDMAP version is not 1");
    /// An operation that is not allowed where it arrived: in a tagged segment, on this queue, or within this message.
    pub const UNEXPECTED_OPCODE: Violation = Self::new(0, 2, 0x06, "unexpected RDMAP opcode");
    /// A message of the wrong size for its operation.
    pub const MESSAGE_SIZE: Violation = Self::new(0, 2, 0xFF, "an RDMAP message has the wrong size");
    /// A Send with Invalidate names a steering tag that is not exposed.
    pub const CANNOT_INVALIDATE: Violation =
        Self::new(0, 2, 0x09, "Send with Invalidate of an invalid steering tag");
    /// A Read Response that is not the next expected one.
    pub const UNEXPECTED_RESPONSE: Violation =
        Self::new(0, 2, 0x06, "Read Response without an outstanding Read");
    /// A Read Response that is too short or too long.
    pub const RESPONSE_SIZE: Violation = Self::new(0, 2, 0xFF, "a Read Response has the wrong size");

    // RFC 5041 8.2: layer DDP, tagged buffer error.
    /// A tagged segment for a steering tag that is not exposed.
    pub const INVALID_STAG: Violation = Self::new(1, 1, 0x00, "a tagged segment for an invalid steering tag");
    /// A tagged segment outside the exposed range.
    pub const BOUNDS: Violation = Self::new(1, 1, 0x01, "a tagged segment is out of bounds");
    /// The range of a tagged segment wraps around.
    pub const WRAP: Violation = Self::new(1, 1, 0x03, "the tagged offset wraps around");
    /// A tagged segment of a DDP version that is not 1.
    pub const TAGGED_VERSION: Violation = Self::new(1, 1, 0x04, "DDP version is not 1 in a tagged segment");

    // RFC 5041 8.2: layer DDP, untagged buffer error.
    /// A queue number above 2.
    pub const QUEUE_NUMBER: Violation = Self::new(1, 2, 0x01, "invalid queue number");
    /// No buffer: a Send without a posted receive, or more RDMA Reads than our IRD.
    pub const NO_BUFFER: Violation = Self::new(1, 2, 0x02, "no buffer for an untagged message");
    /// A message sequence number that is not the next.
    pub const MSN: Violation = Self::new(1, 2, 0x03, "message sequence number out of order");
    /// A message offset that does not continue the message.
    pub const MESSAGE_OFFSET: Violation = Self::new(1, 2, 0x04, "message offset out of order");
    /// A message longer than its buffer.
    pub const TOO_LONG: Violation = Self::new(1, 2, 0x05, "a message is longer than the posted receive");
    /// An untagged segment of a DDP version that is not 1.
    pub const UNTAGGED_VERSION: Violation =
        Self::new(1, 2, 0x06, "DDP version is not 1 in an untagged segment");

    // RFC 5044 8: layer LLP, MPA errors.
    /// The checksum of an FPDU does not match.
    pub const CRC: Violation = Self::new(2, 0, 0x02, "MPA CRC error");
    /// An FPDU whose length cannot hold a DDP header or exceeds the bound.
    pub const FPDU_LENGTH: Violation = Self::new(2, 0, 0x03, "an FPDU's length does not fit");
}

impl From<Violation> for Down {
    fn from(v: Violation) -> Down {
        Down::Protocol { what: v.what, code: v.code }
    }
}
