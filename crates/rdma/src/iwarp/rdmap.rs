//! RDMAP: operations and their headers (RFC 5040 4).

use crate::violation::Violation;
use crate::{Remote, Stag};

/// An RDMAP operation (RFC 5040 4.1, figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode(pub u8);

impl Opcode {
    /// RDMA Write: tagged.
    pub const WRITE: Opcode = Opcode(0);
    /// RDMA Read Request: untagged, queue 1.
    pub const READ_REQUEST: Opcode = Opcode(1);
    /// RDMA Read Response: tagged.
    pub const READ_RESPONSE: Opcode = Opcode(2);
    /// Send: untagged, queue 0; so are the next three.
    pub const SEND: Opcode = Opcode(3);
    /// Send with Invalidate.
    pub const SEND_INVALIDATE: Opcode = Opcode(4);
    /// Send with Solicited Event.
    pub const SEND_SE: Opcode = Opcode(5);
    /// Send with Solicited Event and Invalidate.
    pub const SEND_SE_INVALIDATE: Opcode = Opcode(6);
    /// Terminate: untagged, queue 2.
    pub const TERMINATE: Opcode = Opcode(7);

    /// Parses RDMAP's control byte: bits 7–6 are the version, 1; bits 3–0 are the opcode.
    ///
    /// # Errors
    /// Another version (RFC 5040 4.8).
    pub fn parse(control: u8) -> Result<Opcode, Violation> {
        if control >> 6 != VERSION { Err(Violation::RDMAP_VERSION) } else { Ok(Opcode(control & 0x0F)) }
    }

    /// Encodes the control byte.
    pub fn control(self) -> u8 {
        VERSION << 6 | self.0
    }

    /// Whether it is one of the four Sends.
    pub fn is_send(self) -> bool {
        (Opcode::SEND.0..=Opcode::SEND_SE_INVALIDATE.0).contains(&self.0)
    }

    /// Whether it invalidates a steering tag.
    pub fn invalidates(self) -> bool {
        self == Opcode::SEND_INVALIDATE || self == Opcode::SEND_SE_INVALIDATE
    }
}

const VERSION: u8 = 1;

/// The payload of a Read Request (RFC 5040 4.4), big-endian.
///
/// ```text
///  0  sink steering tag, 4
///  4  sink tagged offset, 8
/// 12  length, 4
/// 16  source steering tag, 4
/// 20  source tagged offset, 8
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The steering tag of the response's target.
    pub sink: Stag,
    /// The tagged offset of the response's target.
    pub sink_offset: u64,
    /// The range to read.
    pub from: Remote,
}

impl ReadRequest {
    /// Length of a Read Request in bytes.
    pub const LEN: usize = 28;

    /// Decodes a Read Request.
    ///
    /// # Errors
    /// The payload does not have [`ReadRequest::LEN`] bytes.
    pub fn parse(payload: &[u8]) -> Result<ReadRequest, Violation> {
        let b: &[u8; ReadRequest::LEN] = payload.try_into().map_err(|_| Violation::MESSAGE_SIZE)?;
        let word = |at: usize| u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let long = |at| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        Ok(ReadRequest {
            sink: Stag(word(0)),
            sink_offset: long(4),
            from: Remote { length: word(12), stag: Stag(word(16)), offset: long(20) },
        })
    }

    /// Appends the encoded Read Request.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sink.0.to_be_bytes());
        out.extend_from_slice(&self.sink_offset.to_be_bytes());
        out.extend_from_slice(&self.from.length.to_be_bytes());
        out.extend_from_slice(&self.from.stag.0.to_be_bytes());
        out.extend_from_slice(&self.from.offset.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn read_requests_round_trip(sink: u32, sink_offset: u64, stag: u32, offset: u64, length: u32) {
            let from = Remote { stag: Stag(stag), offset, length };
            let request = ReadRequest { sink: Stag(sink), sink_offset, from };
            let mut bytes = Vec::new();
            request.write(&mut bytes);
            prop_assert_eq!(ReadRequest::parse(&bytes), Ok(request));
            prop_assert_eq!(ReadRequest::parse(&bytes[1..]), Err(Violation::MESSAGE_SIZE));
        }
    }

    #[test]
    fn versions() {
        assert_eq!(Opcode::parse(0x43), Ok(Opcode::SEND));
        assert_eq!(Opcode::SEND.control(), 0x43);
        for version in [0u8, 2, 3] {
            assert_eq!(Opcode::parse(version << 6 | 3), Err(Violation::RDMAP_VERSION));
        }
    }
}
